//! How a file is changed: whole or not at all, and by one of toolgate's calls at a time.
//!
//! The new content is written beside the old one and takes its name in one step, so that a crash or a full disk leaves the old file. Where
//! that would lose something (other names of the same file, its owner, a folder that takes no new names) the file is written in place,
//! and what stood there is put back when that fails.
#![allow(clippy::disallowed_methods)] // Files are written here.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IoSlice, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, fallocate, fchmod, fchown,
        fgetxattr, flistxattr, flock, fsetxattr, fstat, mkdirat, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use toolgate_core::tool::Place;

use super::{
    Change, FileError, Kind,
    local::{kind, open_path, open_regular, reopened},
};
use crate::{ids, tool::ToolError};

/// How long another process may hold a file before the call gives up. A change takes milliseconds; who holds one for longer hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The pause between two tries for a file that another process changes. The kernel can wake us only where we also cannot be stopped.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Times that a file may be replaced by somebody else while it is being opened.
const MOST_TRIES: usize = 100;

/// Bytes of a file's own name that its temporary neighbour keeps; the kernel allows 255 in all.
const KEPT_NAME: usize = 180;

/// Changes the file that stands at `path` beneath `anchor`, or makes it. `told` puts an error of the system into words.
pub(super) fn update(
    anchor: BorrowedFd<'_>,
    path: &Path,
    place: &Place,
    change: &mut Change<'_>,
    told: &dyn Fn(&io::Error) -> ToolError,
) -> Result<(), ToolError> {
    let lock = lock_of(&place.real);
    let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let other = |found| FileError::Kind { path: place.spelled.clone(), found, wanted: Kind::File };
    let name = path.file_name().ok_or_else(|| other(Kind::Folder))?;
    let above = path.parent().unwrap_or(Path::new(""));
    for _ in 0..MOST_TRIES {
        let folder = match open_path(anchor, above, OFlags::DIRECTORY) {
            Ok(folder) => Some(folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(told(&error)),
        };
        let handle = match folder.as_ref().map(|folder| open_path(folder.as_fd(), Path::new(name), OFlags::empty())) {
            None => None,
            Some(Ok(handle)) => Some(handle),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Some(Err(error)) => return Err(told(&error)),
        };
        let done = match (&folder, handle) {
            (Some(folder), Some(handle)) => {
                let found = fstat(&handle).map_err(|error| told(&error.into()))?;
                if kind(FileType::from_raw_mode(found.st_mode)) != Kind::File {
                    return Err(other(kind(FileType::from_raw_mode(found.st_mode))).into());
                }
                let old = Old { folder, name, handle, found };
                old.change(change, told)?
            }
            _ => make(anchor, above, folder, name, change, told)?,
        };
        if done {
            return Ok(());
        }
    }
    Err(ToolError(format!("{} is replaced by another process again and again; nothing was written", place.spelled)))
}

/// A file that stands there.
struct Old<'a> {
    folder: &'a OwnedFd,
    name: &'a OsStr,
    handle: OwnedFd,
    found: Stat,
}

impl Old<'_> {
    /// Whether it was changed; not so where it was replaced meanwhile.
    fn change(&self, change: &mut Change<'_>, told: &dyn Fn(&io::Error) -> ToolError) -> Result<bool, ToolError> {
        // Taking its name would need no right to write the file itself, and who may not write it shall not.
        match reopened(&self.handle, OFlags::WRONLY | OFlags::NONBLOCK) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {}
            Err(error) => return Err(told(&error)),
        }
        let file = reopened(&self.handle, OFlags::RDONLY | OFlags::NONBLOCK).map_err(|error| told(&error))?;
        hold(&file).map_err(|error| told(&error))?;
        let now = statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW);
        if !now.is_ok_and(|now| (now.st_dev, now.st_ino) == (self.found.st_dev, self.found.st_ino)) {
            return Ok(false);
        }
        let Ok(mut source) = open_regular(&self.handle).map_err(|error| told(&error))? else { return Ok(false) };
        let update = change(Some(source.as_mut()))?;
        let Some(pieces) = update.pieces() else { return Ok(true) };
        self.write(&file, &pieces).map_err(|error| told(&error))?;
        Ok(true)
    }

    fn write(&self, file: &File, pieces: &[&[u8]]) -> io::Result<()> {
        if self.found.st_nlink > 1 {
            return self.write_in_place(file, pieces);
        }
        let temporary = match Temporary::new(self.folder, self.name, Mode::from_raw_mode(0o600)) {
            Ok(temporary) => temporary,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                return self.write_in_place(file, pieces);
            }
            Err(error) => return Err(error),
        };
        write_all(&temporary.file, pieces)?;
        if self.give_rights(file, &temporary.file).is_err() {
            drop(temporary);
            return self.write_in_place(file, pieces);
        }
        temporary.file.sync_data()?;
        temporary.take_name(self.name)
    }

    /// Owner, mode and attributes of the old file.
    fn give_rights(&self, old: &File, new: &File) -> io::Result<()> {
        let made = fstat(new)?;
        if (made.st_uid, made.st_gid) != (self.found.st_uid, self.found.st_gid) {
            let (uid, gid) =
                (rustix::fs::Uid::from_raw(self.found.st_uid), rustix::fs::Gid::from_raw(self.found.st_gid));
            fchown(new, Some(uid), Some(gid))?;
        }
        fchmod(new, Mode::from_raw_mode(self.found.st_mode))?;
        copy_attributes(old, new)
    }

    fn write_in_place(&self, file: &File, pieces: &[&[u8]]) -> io::Result<()> {
        let mut before = Vec::new();
        let mut reader = file;
        reader.seek(SeekFrom::Start(0))?;
        reader.read_to_end(&mut before)?;
        let file = reopened(&self.handle, OFlags::WRONLY)?;
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        // A full disk shows itself here, before anything is overwritten.
        if length > before.len() as u64
            && let Err(error) = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, length)
            && error == Errno::NOSPC
        {
            return Err(error.into());
        }
        let written = write_all(&file, pieces).and_then(|()| file.set_len(length)).and_then(|()| file.sync_data());
        written.map_err(|error| match file.write_all_at(&before, 0).and_then(|()| file.set_len(before.len() as u64)) {
            Ok(()) => error,
            Err(worse) => io::Error::other(format!("{error}; and what stood there could not be put back: {worse}")),
        })
    }
}

/// Makes a file that does not exist; not so where one is there by now.
fn make(
    anchor: BorrowedFd<'_>,
    above: &Path,
    folder: Option<OwnedFd>,
    name: &OsStr,
    change: &mut Change<'_>,
    told: &dyn Fn(&io::Error) -> ToolError,
) -> Result<bool, ToolError> {
    let update = change(None)?;
    let Some(pieces) = update.pieces() else { return Ok(true) };
    let write = || -> io::Result<bool> {
        let folder = match folder {
            Some(folder) => folder,
            None => make_folders(anchor, above)?,
        };
        let temporary = Temporary::new(&folder, name, Mode::from_raw_mode(0o666))?;
        write_all(&temporary.file, &pieces)?;
        temporary.file.sync_data()?;
        temporary.take_free_name(name)
    };
    write().map_err(|error| told(&error))
}

/// The folders of a path, made where they are missing.
fn make_folders(anchor: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(anchor, 0)?;
    for part in path.components() {
        let part = Path::new(part.as_os_str());
        at = match open_path(at.as_fd(), part, OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                open_path(at.as_fd(), part, OFlags::DIRECTORY)?
            }
            opened => opened?,
        };
    }
    Ok(at)
}

/// A file without a name of its own yet; it goes when it is not given one.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: OsString,
    file: File,
    named: bool,
}

impl<'a> Temporary<'a> {
    fn new(folder: &'a OwnedFd, beside: &OsStr, mode: Mode) -> io::Result<Self> {
        let kept = &beside.as_bytes()[..beside.len().min(KEPT_NAME)];
        let mut name = OsString::from(".");
        name.push(OsStr::from_bytes(kept));
        name.push(format!(".toolgate-{}", ids::process_id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(folder, &name, flags, mode)?);
        Ok(Self { folder, name, file, named: false })
    }

    fn take_name(mut self, name: &OsStr) -> io::Result<()> {
        renameat(self.folder, &self.name, self.folder, name)?;
        self.named = true;
        Ok(())
    }

    /// Takes the name only where it is free.
    fn take_free_name(mut self, name: &OsStr) -> io::Result<bool> {
        match renameat_with(self.folder, &self.name, self.folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.named = true,
            Err(Errno::EXIST) => return Ok(false),
            // Some filesystems cannot be asked for that; a second name for the file is as good.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match rustix::fs::linkat(self.folder, &self.name, self.folder, name, AtFlags::empty()) {
                    Ok(()) => {}
                    Err(Errno::EXIST) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.named {
            let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

fn write_all(mut file: &File, pieces: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Access lists and whatever else stands beside a file. What the system sets by itself needs no copy.
fn copy_attributes(old: &File, new: &File) -> io::Result<()> {
    let mut names = vec![0; 64 * 1024];
    let length = match flistxattr(old, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
            continue;
        }
        let name = OsStr::from_bytes(name);
        let mut value = vec![0; 64 * 1024];
        let length = fgetxattr(old, name, &mut value[..])?;
        fsetxattr(new, name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

/// Holds a file against other processes of toolgate. Where the filesystem knows no locks, only this process is kept in order.
fn hold(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LONGEST_WAIT => std::thread::sleep(TRY_AGAIN),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process is changing it; nothing was written"));
            }
            _ => return Ok(()),
        }
    }
}

/// One lock for each real file that is being changed in this process, whatever session changes it.
fn lock_of(real: &Path) -> Arc<Mutex<()>> {
    static LOCKS: Mutex<Option<HashMap<PathBuf, Arc<Mutex<()>>>>> = Mutex::new(None);
    let mut locks: MutexGuard<'_, _> = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let locks = locks.get_or_insert_default();
    // Who is not here has nobody who waits for it.
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    locks.entry(real.to_owned()).or_default().clone()
}
