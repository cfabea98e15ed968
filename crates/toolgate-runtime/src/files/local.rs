//! The files of this machine. What was decided on is opened beneath a root by the kernel, which follows no link on the way.
#![allow(clippy::disallowed_methods)] // Files are opened here.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    ops::ControlFlow,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};
use toolgate_core::tool::Place;

use super::{
    Change, Containment, Entry, FileError, Files, Kind, Source, Visit, Walked, missing, reason, replace,
    resolve::{Base, real},
    walk,
};
use crate::{gate::Permit, tool::ToolError, workspace::Workspace};

/// Files of the proc filesystem that look regular and are none: reading one empties the kernel's own log, or goes through all memory.
const NO_CONTENT: &[&str] = &["/proc/kmsg", "/proc/kcore"];

/// Whether a file that is made while it is read is one of those.
pub(super) fn is_without_content(name: &OsStr) -> bool {
    NO_CONTENT.iter().any(|path| Path::new(path).file_name() == Some(name))
}

/// Whether a place is not one of those.
fn has_content(place: &Place) -> Result<(), FileError> {
    if NO_CONTENT.iter().any(|path| place.real == Path::new(path)) {
        let path = place.spelled.clone();
        return Err(FileError::Kind { path, found: Kind::Device, wanted: Kind::File });
    }
    Ok(())
}

/// The files of this machine, seen from one workspace.
pub struct LocalFiles {
    base: Base,
    /// The folder itself, so that it stays the same one when its name is given to another.
    root: OnceLock<io::Result<OwnedFd>>,
}

impl LocalFiles {
    /// Paths start from the workspace; `home` is what `~` means.
    pub fn new(workspace: &Workspace, home: Option<PathBuf>) -> Self {
        Self { base: Base { root: workspace.root().to_owned(), home }, root: OnceLock::new() }
    }

    /// The folder that a place is opened beneath, and the path from there.
    fn beneath<'a>(&self, place: &'a Place) -> io::Result<(Anchor<'_>, &'a Path)> {
        if let Some(inner) = place.inside.then(|| place.real.strip_prefix(&self.base.root).ok()).flatten() {
            let root = self.root.get_or_init(|| open_root(&self.base.root));
            let root = root.as_ref().map_err(|error| io::Error::from(error.kind()))?;
            return Ok((Anchor::Kept(root.as_fd()), inner));
        }
        let inner = place.real.strip_prefix("/").unwrap_or(&place.real);
        Ok((Anchor::Own(open_root(Path::new("/"))?), inner))
    }

    /// The thing itself, opened without touching its content.
    fn handle(&self, place: &Place) -> Result<OwnedFd, FileError> {
        let opened = self.beneath(place).and_then(|(anchor, inner)| open_path(anchor.as_fd(), inner, OFlags::empty()));
        opened.map_err(|error| self.told(place, &error))
    }

    fn open_file(&self, place: &Place) -> Result<Box<dyn Source>, FileError> {
        has_content(place)?;
        let handle = self.handle(place)?;
        let opened = open_regular(&handle).map_err(|error| self.told(place, &error))?;
        opened.map_err(|found| FileError::Kind { path: place.spelled.clone(), found, wanted: Kind::File })
    }

    /// An error of the system in words, and what stands near what does not exist.
    fn told(&self, place: &Place, error: &io::Error) -> FileError {
        let path = place.spelled.clone();
        match error.raw_os_error() {
            // What was no link when it was decided on is one now.
            Some(libc::ENOENT | libc::ENOTDIR) if real(&place.real).is_none_or(|now| now != place.real) => {
                FileError::Moved(path)
            }
            Some(libc::ENOENT | libc::ENOTDIR) => {
                FileError::Missing { hint: missing::hint(place, &self.base.root), path }
            }
            Some(libc::ELOOP) => FileError::Moved(path),
            _ => FileError::Refused { path, reason: reason(error) },
        }
    }
}

/// A folder to open beneath.
pub(super) enum Anchor<'a> {
    Kept(BorrowedFd<'a>),
    Own(OwnedFd),
}

impl AsFd for Anchor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(fd) => *fd,
            Self::Own(fd) => fd.as_fd(),
        }
    }
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A path beneath a folder, as a mere handle: no content is touched, no link followed, and nothing above the folder reached.
pub(super) fn open_path(beneath: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if kernel_resolves() {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let handle = openat2(beneath, path, flags, Mode::empty(), resolve)?;
        // With O_NOFOLLOW the kernel hands out the link itself.
        return if is_link(&handle)? { Err(Errno::LOOP.into()) } else { Ok(handle) };
    }
    let mut at = rustix::io::fcntl_dupfd_cloexec(beneath, 0)?;
    for part in path.components() {
        at = openat(&at, part.as_os_str(), OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        if is_link(&at)? {
            return Err(Errno::LOOP.into());
        }
    }
    Ok(at)
}

fn is_link(handle: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode) == FileType::Symlink)
}

/// Whether the kernel has `openat2` (5.6 and later) and lets it be used; else each step is opened by itself.
pub(super) fn kernel_resolves() -> bool {
    static RESOLVES: OnceLock<bool> = OnceLock::new();
    *RESOLVES.get_or_init(|| {
        openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS).is_ok()
    })
}

/// Opens what a handle stands for, for reading, when it is a regular file; else says what it is. Nothing but a regular file is ever
/// opened: to open some devices is to act on them.
pub(super) fn open_regular(handle: &OwnedFd) -> io::Result<Result<Box<dyn Source>, Kind>> {
    let found = rustix::fs::fstat(handle)?;
    let kind = kind(FileType::from_raw_mode(found.st_mode));
    if kind != Kind::File {
        return Ok(Err(kind));
    }
    opened(reopened(handle, OFlags::RDONLY | OFlags::NONBLOCK)?)
}

/// A file that was just opened, when it is a regular file; else says what it is.
pub(super) fn opened(file: File) -> io::Result<Result<Box<dyn Source>, Kind>> {
    let found = rustix::fs::fstat(&file)?;
    let kind = kind(FileType::from_raw_mode(found.st_mode));
    if kind != Kind::File {
        return Ok(Err(kind));
    }
    // The system says no size of what it makes while it is read.
    let length = u64::try_from(found.st_size).ok().filter(|length| *length > 0 || !is_made_while_read(&file));
    Ok(Ok(Box::new(Opened { file, length })))
}

/// The same file again, with other rights. By the handle, so that it is the same one.
pub(super) fn reopened(handle: &OwnedFd, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(File::from(openat(CWD, path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?))
}

/// Files of `/proc` and `/sys` say that they are empty.
fn is_made_while_read(file: &File) -> bool {
    // proc, sysfs, cgroup 1 and 2, debugfs, tracefs, securityfs.
    const PSEUDO: &[u32] = &[0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673];
    rustix::fs::fstatfs(file).is_ok_and(|filesystem| PSEUDO.contains(&(filesystem.f_type as u32)))
}

/// What a file type of the system is called here.
pub(super) fn kind(found: FileType) -> Kind {
    match found {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::DeadLink,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        _ => Kind::Device,
    }
}

/// An open file of this machine.
struct Opened {
    file: File,
    length: Option<u64>,
}

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for Opened {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Source for Opened {
    fn length(&self) -> Option<u64> {
        self.length
    }
}

impl Files for LocalFiles {
    fn resolve(&self, spelled: &str) -> Result<Place, FileError> {
        self.base.resolve(spelled)
    }

    fn preview(&self, place: &Place) -> Result<Box<dyn Source>, FileError> {
        self.open_file(place)
    }

    fn open(&self, _permit: &Permit, place: &Place) -> Result<Box<dyn Source>, FileError> {
        self.open_file(place)
    }

    fn update(&self, _permit: &Permit, place: &Place, change: &mut Change<'_>) -> Result<(), ToolError> {
        has_content(place)?;
        let told = |error: &io::Error| ToolError::from(self.told(place, error));
        let (anchor, inner) = self.beneath(place).map_err(|error| told(&error))?;
        replace::update(anchor.as_fd(), inner, place, change, &told)
    }

    fn list(
        &self,
        _permit: &Permit,
        place: &Place,
        visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), FileError> {
        let handle = self.handle(place)?;
        let found = rustix::fs::fstat(&handle).map_err(|error| self.told(place, &error.into()))?;
        let found = kind(FileType::from_raw_mode(found.st_mode));
        if found != Kind::Folder {
            return Err(FileError::Kind { path: place.spelled.clone(), found, wanted: Kind::Folder });
        }
        let mut read = || -> io::Result<()> {
            let folder = openat(&handle, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            for entry in Dir::new(folder)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                let name = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
                let link = entry.file_type() == FileType::Symlink;
                let kind = match entry.file_type() {
                    FileType::Symlink | FileType::Unknown => led_to(&handle, name),
                    known => kind(known),
                };
                if visit(Entry { name: name.to_owned(), kind, link }).is_break() {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|error| self.told(place, &error))
    }

    fn walk(&self, _permit: &Permit, place: &Place, visit: &Visit<'_>) -> Result<Walked, FileError> {
        has_content(place)?;
        let handle = self.handle(place)?;
        walk::walk(&handle, place, &self.base.root, visit)
    }

    fn containment(&self) -> Containment {
        if kernel_resolves() { Containment::Kernel } else { Containment::StepByStep }
    }
}

/// What a name leads to, links followed.
fn led_to(folder: &OwnedFd, name: &OsStr) -> Kind {
    rustix::fs::statat(folder, name, rustix::fs::AtFlags::empty())
        .map_or(Kind::DeadLink, |found| kind(FileType::from_raw_mode(found.st_mode)))
}

/// Whether something stands at a path; for messages.
pub(super) fn stands(path: &Path) -> Option<Kind> {
    fs::symlink_metadata(path).ok().map(|found| {
        if found.is_dir() {
            Kind::Folder
        } else if found.is_symlink() {
            Kind::DeadLink
        } else {
            Kind::File
        }
    })
}
