//! Spill files: the whole of an output of which the model reads a part.
//!
//! A session has one folder (mode 0700). A file (mode 0600, opened exclusively) holds the raw bytes: at most [`FILE_LIMIT`], of longer
//! outputs the beginning and the end with the number of bytes between. A full disk costs the file, never the call.
#![allow(clippy::disallowed_methods)] // Spill files are written here.

use std::{
    collections::VecDeque,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use toolgate_core::call::Digest;

use super::ring::last;

/// Bytes of one file; beyond it the middle is left out.
pub const FILE_LIMIT: u64 = 64 * 1024 * 1024;

/// Bytes of a long output's end, held in memory until the output is whole, so that a flood costs no disk writes beyond the head. One
/// MiB is some ten thousand lines, and stays in the processor's cache.
pub const TAIL: usize = 1024 * 1024;

/// Bytes of a long output's beginning.
const HEAD: u64 = FILE_LIMIT - TAIL as u64 - MARKER;

/// Room for the line between the two.
const MARKER: u64 = 256;

/// Bytes of all files of one session; the oldest goes first.
const FOLDER_LIMIT: u64 = 1024 * 1024 * 1024;

/// A session's folder. Cheap to clone.
#[derive(Clone)]
pub struct SpillFolder {
    inner: Arc<Folder>,
}

struct Folder {
    path: PathBuf,
    files: Mutex<VecDeque<(PathBuf, u64)>>,
}

impl SpillFolder {
    /// A folder that is made when it is first needed.
    pub fn new(path: PathBuf) -> Self {
        Self { inner: Arc::new(Folder { path, files: Mutex::default() }) }
    }

    fn create(&self, label: &str) -> io::Result<(PathBuf, File)> {
        if !self.inner.path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.inner.path)?;
        }
        let mut number = self.files().len();
        loop {
            // The label may hold anything that a model can write; its digest holds nothing but hex.
            let path =
                self.inner.path.join(format!("{:04}-{}.log", number, &Digest::of(label.as_bytes()).as_str()[..16]));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                opened => return opened.map(|file| (path, file)),
            }
        }
    }

    /// Counts a finished file and lets the oldest expire while all together are too much.
    fn account(&self, path: PathBuf, bytes: u64) {
        let mut files = self.files();
        files.push_back((path, bytes));
        while files.iter().map(|(_, bytes)| bytes).sum::<u64>() > FOLDER_LIMIT && files.len() > 1 {
            if let Some((oldest, _)) = files.pop_front() {
                let notice = "[this output has expired: a session keeps 1 GiB of spill files, the newest ones]\n";
                // The path stands in a result that the model may still follow, so it goes on answering.
                let _ = std::fs::write(oldest, notice);
            }
        }
    }

    fn files(&self) -> std::sync::MutexGuard<'_, VecDeque<(PathBuf, u64)>> {
        self.inner.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One output on its way to disk. It takes the beginning as it comes; the end is handed in when the output is over, since whoever
/// writes holds it in memory anyway.
pub struct Spill {
    folder: SpillFolder,
    open: Result<(PathBuf, File), String>,
    written: u64,
    /// Bytes behind the beginning, which are not in the file so far.
    beyond: u64,
}

/// Where a whole output is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spilled {
    /// All of it.
    Whole(PathBuf),
    /// Its beginning and its end.
    HeadAndTail {
        /// The file.
        path: PathBuf,
        /// Bytes between the two.
        left_out: u64,
    },
    /// Nowhere, and why.
    Failed(String),
}

impl Spill {
    /// Opens a file for the call named by `label`.
    pub fn new(folder: SpillFolder, label: &str) -> Self {
        let open = folder.create(label).map_err(|error| error.to_string());
        Self { folder, open, written: 0, beyond: 0 }
    }

    /// Takes raw bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        let Ok((path, file)) = &mut self.open else { return };
        let room = usize::try_from(HEAD - self.written).unwrap_or(usize::MAX).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.beyond += rest.len() as u64;
        if head.is_empty() {
            return;
        }
        if let Err(error) = file.write_all(head) {
            // Half a file would claim to be the whole output.
            let _ = std::fs::remove_file(&path);
            self.open = Err(format!("{error} ({})", path.display()));
            return;
        }
        self.written += head.len() as u64;
    }

    /// Ends the file and says where it is. `newest` is the end of everything that was written, in two parts; at most [`TAIL`] bytes of
    /// it are used.
    pub fn finish(mut self, newest: (&[u8], &[u8])) -> Spilled {
        let (path, mut file) = match std::mem::replace(&mut self.open, Err(String::new())) {
            Ok(open) => open,
            Err(why) => return Spilled::Failed(why),
        };
        let wanted = usize::try_from(self.beyond).unwrap_or(usize::MAX).min(TAIL);
        let newer = last(newest.1, wanted);
        let older = last(newest.0, wanted - newer.len());
        let left_out = self.beyond - (older.len() + newer.len()) as u64;
        let mut end = || -> io::Result<()> {
            if left_out > 0 {
                file.write_all(format!("\n[... {left_out} bytes left out here ...]\n").as_bytes())?;
            }
            file.write_all(older)?;
            file.write_all(newer)
        };
        if let Err(error) = end() {
            let _ = std::fs::remove_file(&path);
            return Spilled::Failed(format!("{error} ({})", path.display()));
        }
        self.written += (older.len() + newer.len()) as u64;
        self.folder.account(path.clone(), self.written);
        if left_out > 0 { Spilled::HeadAndTail { path, left_out } } else { Spilled::Whole(path) }
    }

    /// Removes the file: nothing was left out after all.
    pub fn discard(self) {}
}

impl Drop for Spill {
    /// A file that nobody was told of is nobody's.
    fn drop(&mut self) {
        if let Ok((path, _)) = &self.open {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_within_its_limit_and_names_what_it_leaves_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(SpillFolder::new(folder.path().join("s")), "call");
        let chunk: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let whole: Vec<u8> = std::iter::repeat_n(&chunk, 70).flatten().copied().collect();
        for _ in 0..70 {
            spill.write(&chunk);
        }
        let Spilled::HeadAndTail { path, left_out } =
            spill.finish((&whole[..whole.len() - 5], &whole[whole.len() - 5..]))
        else {
            panic!("70 MB do not fit")
        };
        let bytes = std::fs::read(path).unwrap();
        assert!(bytes.len() as u64 <= FILE_LIMIT);
        assert!(bytes.starts_with(&whole[..HEAD as usize]) && bytes.ends_with(&whole[whole.len() - TAIL..]));
        assert_eq!(left_out, 70_000_000 - HEAD - TAIL as u64);
    }

    #[test]
    fn the_oldest_file_expires_and_its_path_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let spills = SpillFolder::new(folder.path().to_owned());
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        std::fs::write(&new, "new").unwrap();
        spills.account(old.clone(), FOLDER_LIMIT - 1);
        spills.account(new.clone(), 2);
        assert!(std::fs::read_to_string(old).unwrap().contains("expired"));
        assert_eq!(std::fs::read_to_string(new).unwrap(), "new");
    }
}
