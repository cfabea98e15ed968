//! Trees: what stands in a folder and below it, less what ignore files name.
//!
//! Several threads take folders from one stack. Each folder is opened beneath the root by the kernel, with no links followed, and its files
//! beneath it: what has moved meanwhile is not reached. Folders wait by name and are not held open, so depth and width cost no descriptors.
//! What is listed is sorted before it is taken up, so that a visitor who wants the first few soon has them.
//!
//! The walk is toolgate's own since it opens by handle what others open by path; `ignored` says what is kept out of it.

use std::{
    collections::BTreeMap,
    ffi::{CStr, OsStr},
    io::{self, Read},
    mem::MaybeUninit,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, openat, statat};
use toolgate_core::tool::Place;

use super::{
    FileError, Found, Kind, Source, Step, Visit, Walked,
    ignored::{Layer, Rules},
    local::{is_without_content, kind, open_path, open_regular, opened},
    names, reason,
};

/// Threads of one walk at most. More than this gain nothing on one disk, and a call is not alone.
const THREADS: usize = 8;

/// Entries of one folder that a thread takes at a time, so that a large folder is shared between threads and its folders do not all wait
/// at once.
const SHARE: usize = 256;

/// Bytes of the kernel's listing that are taken at once; a usual folder fits.
const LISTING: usize = 32 * 1024;

/// Bytes of an ignore file that are read; far more than any real one has.
const IGNORE_FILE: u64 = 1024 * 1024;

/// Unreadable things that are named.
const EXAMPLES: usize = 3;

/// Walks what a handle stands for. `workspace` is how far up ignore files are looked for where there is no repository.
pub(super) fn walk(handle: &OwnedFd, place: &Place, workspace: &Path, visit: &Visit<'_>) -> Result<Walked, FileError> {
    let found = fstat(handle).map_err(|error| refused(place, reason(&error.into())))?;
    let found = kind(FileType::from_raw_mode(found.st_mode));
    let walk = Walk {
        root: handle.as_fd(),
        visit,
        stack: Mutex::default(),
        ready: Condvar::new(),
        unreadable: Mutex::default(),
        ignored: AtomicBool::new(false),
    };
    if found != Kind::Folder {
        let open = || open_regular(handle)?.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        walk.shown(b"", found, &open);
        return walk.end(place);
    }
    let (above, layer) = above(place, workspace);
    walk.lock().waiting.push(Task { path: Vec::new(), layer, rest: None });
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS));
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where the system gives no more threads, fewer do the same.
            let _ = thread::Builder::new().spawn_scoped(scope, || walk.work(&above));
        }
        walk.work(&above);
    });
    walk.end(place)
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    visit: &'a Visit<'a>,
    stack: Mutex<Stack>,
    ready: Condvar,
    /// How many, and the first few by path with their reasons.
    unreadable: Mutex<(usize, BTreeMap<Vec<u8>, String>)>,
    ignored: AtomicBool,
}

#[derive(Default)]
struct Stack {
    waiting: Vec<Task>,
    /// Threads that have a task and may add others.
    busy: usize,
    over: bool,
}

/// A folder, or what is left of one.
struct Task {
    /// From the root; empty for the root itself.
    path: Vec<u8>,
    /// What is kept out: above the folder, or in what is left of it.
    layer: Option<Arc<Layer>>,
    /// The entries of a folder of which the first ones are taken.
    rest: Option<(Arc<Listing>, usize)>,
}

/// The entries of a folder, sorted, without an allocation for each.
#[derive(Default)]
struct Listing {
    names: Vec<u8>,
    entries: Vec<(Range<u32>, Kind)>,
}

impl Listing {
    /// With the zero byte at its end that the kernel wants.
    fn name(&self, index: usize) -> (&CStr, Kind) {
        let (range, kind) = &self.entries[index];
        let name = &self.names[range.start as usize..range.end as usize];
        (CStr::from_bytes_with_nul(name).unwrap_or_default(), *kind)
    }
}

impl Walk<'_> {
    fn work(&self, above: &[u8]) {
        let mut path = Vec::new();
        while let Some(task) = self.next() {
            let busy = Busy(self);
            path.clear();
            path.extend_from_slice(above);
            path.extend_from_slice(&task.path);
            if let Err(error) = self.take(task, &mut path, above.len()) {
                self.unreadable(&path[above.len()..], &error);
            }
            drop(busy);
        }
    }

    /// The newest task, or nothing when all is done.
    fn next(&self) -> Option<Task> {
        let mut stack = self.lock();
        loop {
            if stack.over {
                return None;
            }
            if let Some(task) = stack.waiting.pop() {
                stack.busy += 1;
                return Some(task);
            }
            stack = self.ready.wait(stack).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does one task. `path` is its path with what stands above the root in front, `start` bytes of it.
    fn take(&self, task: Task, path: &mut Vec<u8>, start: usize) -> io::Result<()> {
        let own = &path[start..];
        if task.rest.is_none() && !own.is_empty() && !self.shows_folder(own) {
            return Ok(());
        }
        let beneath = open_path(self.root, Path::new(OsStr::from_bytes(own)), OFlags::DIRECTORY)?;
        let folder = openat(&beneath, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        drop(beneath);
        let has_name = !own.is_empty();
        let (listing, from, layer) = match task.rest {
            Some((listing, from)) => (listing, from, task.layer),
            None => {
                let (mut listing, marks) = listed(&folder)?;
                let layer = layer_in(&folder, marks, path.len() + usize::from(has_name), task.layer);
                if let Some(layer) = &layer {
                    self.keep_out(&mut listing, layer, path, start);
                }
                (Arc::new(listing), 0, layer)
            }
        };
        let end = listing.entries.len().min(from + SHARE);
        let rest = (end < listing.entries.len()).then(|| (listing.clone(), end));
        let rest = rest.map(|rest| Task { path: path[start..].to_vec(), layer: layer.clone(), rest: Some(rest) });
        let entries = (from..end).map(|index| listing.name(index));
        let folders = entries.clone().rev().filter(|(_, kind)| *kind == Kind::Folder);
        let folders = folders.map(|(name, _)| joined(&path[start..], name));
        self.add(rest.into_iter().chain(folders.map(|path| Task { path, layer: layer.clone(), rest: None })).collect());

        if has_name {
            path.push(b'/');
        }
        let above = path.len();
        for (name, kind) in entries.filter(|(_, kind)| *kind != Kind::Folder) {
            path.truncate(above);
            path.extend_from_slice(name.to_bytes());
            if self.shown(&path[start..], kind, &|| open_file(&folder, name)) == Step::Stop {
                break;
            }
        }
        Ok(())
    }

    /// Takes out what ignore files name, and says that something was.
    fn keep_out(&self, listing: &mut Listing, layer: &Layer, path: &[u8], start: usize) {
        let mut whole = path.to_vec();
        if path.len() > start {
            whole.push(b'/');
        }
        let above = whole.len();
        let all = listing.entries.len();
        let names = &listing.names;
        listing.entries.retain(|(range, kind)| {
            whole.truncate(above);
            whole.extend_from_slice(&names[range.start as usize..range.end as usize - 1]);
            !layer.keeps_out(&whole, *kind == Kind::Folder)
        });
        if listing.entries.len() < all {
            self.ignored.store(true, Ordering::Relaxed);
        }
    }

    fn shows_folder(&self, path: &[u8]) -> bool {
        let open = || Err(io::Error::from(io::ErrorKind::IsADirectory));
        self.shown(path, Kind::Folder, &open) == Step::On
    }

    /// Shows something to the visitor. What went wrong with it is noted, and the walk goes on.
    fn shown(&self, path: &[u8], kind: Kind, open: &dyn Fn() -> io::Result<Box<dyn Source>>) -> Step {
        let step = (self.visit)(Found { path: Path::new(OsStr::from_bytes(path)), kind, open });
        let step = step.unwrap_or_else(|error| {
            self.unreadable(path, &error);
            Step::On
        });
        if step == Step::Stop {
            self.lock().over = true;
            self.ready.notify_all();
        }
        step
    }

    fn add(&self, tasks: Vec<Task>) {
        if !tasks.is_empty() {
            let several = tasks.len() > 1;
            self.lock().waiting.extend(tasks);
            if several { self.ready.notify_all() } else { self.ready.notify_one() }
        }
    }

    fn unreadable(&self, path: &[u8], error: &io::Error) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, first) = &mut *unreadable;
        *count += 1;
        first.insert(path.to_vec(), reason(error));
        if first.len() > EXAMPLES {
            first.pop_last();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stack> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(self, place: &Place) -> Result<Walked, FileError> {
        let (unreadable, mut first) = self.unreadable.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Of a place that cannot be read itself nothing can be said.
        if let Some(reason) = first.remove(&b""[..]) {
            return Err(refused(place, reason));
        }
        let example =
            |(path, reason): (&Vec<u8>, &String)| format!("{}: {reason}", names::shown(OsStr::from_bytes(path)));
        let examples = first.iter().map(example).collect();
        Ok(Walked { unreadable, examples, ignored: self.ignored.into_inner() })
    }
}

fn refused(place: &Place, reason: String) -> FileError {
    let path = if place.spelled.is_empty() { "." } else { &place.spelled };
    FileError::Refused { path: path.to_owned(), reason }
}

/// A thread that has a task. When the last one is done, also by a panic, and nothing waits, the walk is over.
struct Busy<'a, 'b>(&'a Walk<'b>);

impl Drop for Busy<'_, '_> {
    fn drop(&mut self) {
        let mut stack = self.0.lock();
        stack.busy -= 1;
        stack.over |= thread::panicking() || (stack.busy == 0 && stack.waiting.is_empty());
        if stack.over {
            self.0.ready.notify_all();
        }
    }
}

/// What a folder holds that says something about ignoring.
#[derive(Default)]
struct Marks {
    /// What its `.git` is, where it has one: a repository begins here.
    git: Option<Kind>,
    gitignore: bool,
    ignore: bool,
}

/// The entries of a folder by name. A repository's own folder is never one of them.
fn listed(folder: &OwnedFd) -> io::Result<(Listing, Marks)> {
    let (mut listing, mut marks) = (Listing::default(), Marks::default());
    let mut buffer = [MaybeUninit::uninit(); LISTING];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = match entry.file_type() {
            FileType::Unknown => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => FileType::from_raw_mode(found.st_mode),
                // It is gone by now.
                Err(_) => continue,
            },
            known => known,
        };
        match name.to_bytes() {
            b".git" => {
                marks.git = Some(kind(found));
                continue;
            }
            b".gitignore" => marks.gitignore = true,
            b".ignore" => marks.ignore = true,
            _ => {}
        }
        let start = listing.names.len();
        listing.names.extend_from_slice(name.to_bytes_with_nul());
        let too_many = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let range = u32::try_from(start).map_err(too_many)?..u32::try_from(listing.names.len()).map_err(too_many)?;
        listing.entries.push((range, kind(found)));
    }
    let Listing { names, entries } = &mut listing;
    let key =
        |(range, kind): &(Range<u32>, Kind)| (*kind != Kind::Folder, &names[range.start as usize..range.end as usize]);
    entries.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    Ok((listing, marks))
}

/// What holds in a folder. `skip` is how many bytes of a path lead to it.
fn layer_in(folder: &OwnedFd, marks: Marks, skip: usize, above: Option<Arc<Layer>>) -> Option<Arc<Layer>> {
    if marks.git.is_none() && !marks.gitignore && !marks.ignore {
        return above;
    }
    let read = |there: bool, path: &str| there.then(|| rules(folder, path)).flatten();
    Some(Arc::new(Layer {
        above,
        skip,
        ignore: read(marks.ignore, ".ignore"),
        git: read(marks.gitignore, ".gitignore"),
        exclude: read(marks.git == Some(Kind::Folder), ".git/info/exclude"),
        is_top: marks.git.is_some(),
    }))
}

/// An ignore file that is a regular file. A link is none, as for git.
fn rules(folder: &OwnedFd, path: &str) -> Option<Rules> {
    let handle = open_path(folder.as_fd(), Path::new(path), OFlags::empty()).ok()?;
    let source = open_regular(&handle).ok()?.ok()?;
    let mut text = Vec::new();
    source.take(IGNORE_FILE).read_to_end(&mut text).ok()?;
    Some(Rules::read(&text))
}

/// What holds above the root: the folders up to the repository's top, and where there is none up to the workspace. With the path that
/// leads down from there, its last slash included.
fn above(place: &Place, workspace: &Path) -> (Vec<u8>, Option<Arc<Layer>>) {
    let stands = |folder: &Path, name: &str| statat(CWD, folder.join(name), AtFlags::SYMLINK_NOFOLLOW).ok();
    let is_top = |folder: &Path| stands(folder, ".git").is_some();
    if is_top(&place.real) {
        return (Vec::new(), None);
    }
    let mut folders: Vec<&Path> = place.real.ancestors().skip(1).collect();
    match folders.iter().position(|folder| is_top(folder)) {
        Some(top) => folders.truncate(top + 1),
        None => folders.retain(|folder| place.inside && folder.starts_with(workspace)),
    }
    let Some(top) = folders.last().copied() else { return (Vec::new(), None) };
    let from_top = |folder: &Path| {
        let mut path = folder.strip_prefix(top).unwrap_or(folder).as_os_str().as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path
    };
    let mut layer = None;
    for folder in folders.iter().rev() {
        let Ok(handle) = openat(CWD, *folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        let marks = Marks {
            git: stands(folder, ".git").map(|found| kind(FileType::from_raw_mode(found.st_mode))),
            gitignore: stands(folder, ".gitignore").is_some(),
            ignore: stands(folder, ".ignore").is_some(),
        };
        layer = layer_in(&handle, marks, from_top(folder).len(), layer);
    }
    (from_top(&place.real), layer)
}

/// A file of an open folder. Only what the folder calls a regular file is opened, and it is looked at again before it is read.
fn open_file(folder: &OwnedFd, name: &CStr) -> io::Result<Box<dyn Source>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    let source = opened(file.into())?.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let has_content = source.length().is_some() || !is_without_content(OsStr::from_bytes(name.to_bytes()));
    has_content.then_some(source).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

fn joined(folder: &[u8], name: &CStr) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    [folder, slash, name.to_bytes()].concat()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests make the trees that are walked.
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    /// Walks a folder; gives what was shown with what its files hold, sorted, and what the walk says at its end.
    fn walked(root: &Path, before: &(dyn Fn(&Path) + Sync)) -> (Vec<String>, Walked) {
        let place = Place { spelled: String::new(), path: root.into(), real: root.into(), inside: true };
        let handle = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let seen = Mutex::new(Vec::new());
        let visit = |found: Found<'_>| {
            before(found.path);
            let mut text = format!("{}: ", found.path.display());
            if found.kind == Kind::File {
                (found.open)()?.read_to_string(&mut text)?;
            }
            seen.lock().unwrap().push(text);
            Ok(Step::On)
        };
        let walked = walk(&handle, &place, root, &visit).unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort();
        (seen, walked)
    }

    #[test]
    fn what_became_a_link_after_it_was_listed_is_not_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, outside) = (folder.path().canonicalize().unwrap(), outside.path().canonicalize().unwrap());
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/secret"), "mine").unwrap();
        fs::write(root.join("file"), "mine").unwrap();
        fs::write(root.join("other"), "mine").unwrap();
        let (seen, walked) = walked(&root, &|path| {
            let target = match path.to_str() {
                Some("folder") => outside.clone(),
                Some("file") => outside.join("secret"),
                _ => return,
            };
            fs::rename(root.join(path), root.join(path).with_extension("old")).unwrap();
            symlink(target, root.join(path)).unwrap();
        });
        assert_eq!(seen, ["folder: ", "other: mine"]);
        assert_eq!(walked.unreadable, 2, "{walked:?}");
        assert!(
            walked.examples.iter().all(|example| example.ends_with("(ELOOP)") || example.ends_with("(ENOTDIR)")),
            "{walked:?}"
        );
    }

    #[test]
    fn folders_of_any_width_and_depth_are_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut wanted = Vec::new();
        for i in 0..2 * SHARE + 3 {
            fs::create_dir(root.join(format!("{i}"))).unwrap();
            fs::write(root.join(format!("{i}/f")), format!("{i}")).unwrap();
            fs::write(root.join(format!("x{i}")), "").unwrap();
            wanted.extend([format!("{i}: "), format!("{i}/f: {i}"), format!("x{i}: ")]);
        }
        let deep = "d/".repeat(500);
        fs::create_dir_all(root.join(&deep)).unwrap();
        wanted.extend((1..=500).map(|depth| format!("{}: ", &deep[..2 * depth - 1])));
        wanted.sort();
        let (seen, walked) = walked(&root, &|_| {});
        assert!(seen == wanted, "{} of {}", seen.len(), wanted.len());
        assert_eq!(walked, Walked::default());
    }
}
