//! The first things that a search finds, in order of path, whatever order they are found in. Shared by the tools that search;
//! no tool itself.
//!
//! Threads find things in an order of their own. What is kept is what lies first by path, as much as is wanted and one more, so that
//! memory is bounded; from then on whatever lies behind it is not wanted any more, so that the search ends early; and since what lies in
//! front of it still is, the same things are kept whatever the threads do.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Bytes of what is found that are held. More than any result shows, so that what a result leaves out can still be looked at, and little
/// enough to be held for many calls at once.
pub(super) const HELD: usize = 1024 * 1024;

/// What lies first.
pub(super) struct First<T> {
    limit: usize,
    found: Mutex<Found<T>>,
    full: AtomicBool,
}

struct Found<T> {
    by_path: BTreeMap<Key, Item<T>>,
    count: usize,
    bytes: usize,
}

/// A path as bytes that are in the order of its parts: what parts them becomes the one byte that no name holds, which is the smallest.
type Key = Vec<u8>;

fn key(path: &Path) -> impl Iterator<Item = u8> {
    path.as_os_str().as_bytes().iter().map(|byte| if *byte == b'/' { 0 } else { *byte })
}

fn path(mut key: Key) -> PathBuf {
    key.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b'/');
    OsString::from_vec(key).into()
}

struct Item<T> {
    count: usize,
    bytes: usize,
    what: T,
}

impl<T> First<T> {
    /// Keeps what holds the first `limit` things, and one more.
    pub(super) fn new(limit: usize) -> Self {
        let found = Found { by_path: BTreeMap::new(), count: 0, bytes: 0 };
        Self { limit, found: Mutex::new(found), full: AtomicBool::new(false) }
    }

    /// Whether something at this path, or below it, can still be among the first.
    pub(super) fn wants(&self, path: &Path) -> bool {
        !self.full.load(Ordering::Acquire) || {
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.by_path.last_key_value().is_none_or(|(last, _)| key(path).lt(last.iter().copied()))
        }
    }

    /// Takes what was found at a path: so many things, so many bytes.
    pub(super) fn add(&self, path: &Path, count: usize, bytes: usize, what: T) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.by_path.insert(key(path).collect(), Item { count, bytes, what });
        found.count += count;
        found.bytes += bytes;
        while let Some(last) = found.by_path.last_entry() {
            let (count, bytes) = (last.get().count, last.get().bytes);
            if !self.is_enough(found.count - count, found.bytes - bytes) {
                break;
            }
            found.by_path.pop_last();
            found.count -= count;
            found.bytes -= bytes;
        }
        if self.is_enough(found.count, found.bytes) {
            self.full.store(true, Ordering::Release);
        }
    }

    fn is_enough(&self, count: usize, bytes: usize) -> bool {
        count > self.limit || bytes >= HELD
    }

    /// What lies first, and whether there may be more behind it.
    pub(super) fn into_parts(self) -> (impl Iterator<Item = (PathBuf, T)>, bool) {
        let found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        (found.by_path.into_iter().map(|(key, item)| (path(key), item.what)), self.full.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_things_are_kept_whatever_order_they_come_in() {
        let all: Vec<(String, usize)> =
            (0..40).map(|i| (format!("d{}/f{i:02}", ["a", "a-b", "a/b"][i % 3]), i % 4)).collect();
        for limit in [0, 1, 5, 17, 1000] {
            let mut seen = None;
            for step in [1, 3, 7, 11, 39] {
                let first = First::new(limit);
                for index in 0..all.len() {
                    let (path, count) = &all[index * step % all.len()];
                    if first.wants(Path::new(path)) && *count > 0 {
                        first.add(Path::new(path), *count, 10, *count);
                    }
                }
                let (kept, more) = first.into_parts();
                let kept: Vec<_> = kept.collect();
                let count: usize = kept.iter().map(|(_, count)| count).sum();
                assert_eq!(more, count > limit, "{limit} {step}");
                assert!(count <= limit + 1 + 3, "{limit} {step}: no more than the last file needs");
                assert!(kept.is_sorted(), "{kept:?}");
                let kept = Some((kept, more));
                assert!(seen.is_none() || seen == kept, "{limit} {step}");
                seen = kept;
            }
        }
    }
}
