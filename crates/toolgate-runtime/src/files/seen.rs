//! What the session has read and written of each file, by content, so that a change by somebody else is told from toolgate's own, and a
//! file that was only touched is not taken for a changed one.

use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use toolgate_core::digest::{Digest, Hasher};

/// Bytes from a file's beginning that are remembered by their digest. More than any answer shows; hashing them takes a few milliseconds.
pub const MOST_BYTES: usize = 8 * 1024 * 1024;

/// Files that are remembered; the oldest is forgotten first, and a forgotten file counts as one that was never read.
const MOST_FILES: usize = 4096;

/// What a session has seen.
#[derive(Default)]
pub struct Seen {
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    known: HashMap<PathBuf, Known>,
    order: VecDeque<PathBuf>,
}

/// The beginning of a file, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    length: usize,
    digest: Digest,
    /// Whether that was all of it.
    whole: bool,
}

/// Takes a file's beginning in pieces as it is read or written.
#[derive(Default)]
pub struct Knowing {
    length: usize,
    hasher: Hasher,
    cut: bool,
}

impl Knowing {
    /// The next bytes of the file.
    pub fn take(&mut self, bytes: &[u8]) {
        let room = MOST_BYTES - self.length;
        self.cut |= bytes.len() > room;
        let bytes = &bytes[..bytes.len().min(room)];
        self.hasher.update(bytes);
        self.length += bytes.len();
    }

    /// Whether nothing more is remembered.
    pub fn is_full(&self) -> bool {
        self.length == MOST_BYTES
    }

    /// What has been taken; `ended` where the file ended with it.
    pub fn known(self, ended: bool) -> Known {
        Known { length: self.length, digest: self.hasher.finish(), whole: ended && !self.cut }
    }
}

impl Known {
    /// All of a content, in pieces.
    pub fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut knowing = Knowing::default();
        pieces.into_iter().for_each(|piece| knowing.take(piece));
        knowing.known(true)
    }

    /// Whether a content begins as this one did, and ends with it where this was all.
    fn is_beginning_of(&self, content: &[u8]) -> bool {
        content.len() >= self.length
            && (!self.whole || content.len() == self.length)
            && Digest::of(&content[..self.length]) == self.digest
    }
}

impl Seen {
    /// The session now knows the file as this.
    pub fn set(&self, real: &Path, known: Known) {
        let mut files = self.files();
        if files.known.insert(real.to_owned(), known).is_none() {
            files.order.push_back(real.to_owned());
        }
        while files.order.len() > MOST_FILES {
            if let Some(oldest) = files.order.pop_front() {
                files.known.remove(&oldest);
            }
        }
    }

    /// Makes a change of the file, which says through `expect` what it will have made of it. That is known before anybody else can look at
    /// the file, so that toolgate's own change is never taken for somebody else's, and is taken back where the change is not made.
    pub fn change<E>(&self, real: &Path, make: impl FnOnce(&mut dyn FnMut(Known)) -> Result<(), E>) -> Result<(), E> {
        let mut replaced: Option<(Option<Known>, Known)> = None;
        let made = make(&mut |known| {
            replaced = Some((self.known(real), known.clone()));
            self.set(real, known);
        });
        if let (Err(_), Some((before, expected))) = (&made, replaced)
            && self.known(real) == Some(expected)
        {
            match before {
                Some(known) => self.set(real, known),
                None => self.forget(real),
            }
        }
        made
    }

    fn known(&self, real: &Path) -> Option<Known> {
        self.files().known.get(real).cloned()
    }

    fn forget(&self, real: &Path) {
        let mut files = self.files();
        files.known.remove(real);
        files.order.retain(|path| path != real);
    }

    /// Whether the session has read the file and its content is another one now. What it has not read may be anything.
    pub fn has_changed(&self, real: &Path, content: &[u8]) -> bool {
        self.known(real).is_some_and(|known| !known.is_beginning_of(content))
    }

    /// Bytes of the file that [`Seen::has_changed`] looks at; none where the session has not read it.
    pub fn known_bytes(&self, real: &Path) -> Option<usize> {
        self.files().known.get(real).map(|known| known.length)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_by_content_and_only_of_what_was_read() {
        let seen = Seen::default();
        let path = Path::new("/w/a");
        assert!(!seen.has_changed(path, b"anything"), "what was never read cannot be stale");
        seen.set(path, Known::of([&b"one\n"[..], b"two\n"]));
        for (content, changed) in
            [(&b"one\ntwo\n"[..], false), (b"one\ntwo\nmore", true), (b"one\nTWO\n", true), (b"", true)]
        {
            assert_eq!(seen.has_changed(path, content), changed, "{content:?}");
        }
        let mut part = Knowing::default();
        part.take(b"one\n");
        seen.set(path, part.known(false));
        assert!(!seen.has_changed(path, b"one\nsomething else"), "only the beginning was read");
        assert!(seen.has_changed(path, b"One\n"));
    }

    #[test]
    fn a_change_is_known_while_it_is_made_and_forgotten_where_it_was_not() {
        let seen = Seen::default();
        let path = Path::new("/w/a");
        let make = |content: &'static [u8], made: Result<(), ()>| {
            seen.change(path, |expect| {
                expect(Known::of([content]));
                assert!(!seen.has_changed(path, content), "known before it is made");
                made
            })
        };
        assert_eq!(make(b"new", Err(())), Err(()));
        assert!(!seen.has_changed(path, b"anything"), "what was never read is unknown again");
        assert_eq!(make(b"one", Ok(())), Ok(()));
        assert!(seen.has_changed(path, b"two"));
        assert_eq!(make(b"two", Err(())), Err(()));
        assert!(!seen.has_changed(path, b"one") && seen.has_changed(path, b"two"));
        let overtaken: Result<(), ()> = seen.change(path, |expect| {
            expect(Known::of([&b"mine"[..]]));
            seen.set(path, Known::of([&b"theirs"[..]]));
            Err(())
        });
        assert!(overtaken.is_err() && !seen.has_changed(path, b"theirs"), "what came later stays");
    }
}
