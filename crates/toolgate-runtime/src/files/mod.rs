//! Files: the port through which tools touch them, and what stands behind it.
//!
//! A spelled path becomes a [`Place`] first, which is what is decided on. What is opened afterwards is that place and nothing else: the
//! kernel opens its real path beneath a root and follows no link on the way, so a link that was put there meanwhile is an error.
//!
//! * this file: the port [`Files`], which in-memory executors implement too; its methods may block, so tools call them from [`blocking`];
//! * [`local`]: this machine; `resolve`: from a spelling to a place; `replace`: how a file is changed, whole or not at all; `walk`: trees;
//!   `ignored`: what is kept out of them;
//! * [`names`]: names that no line of text can hold; `missing`: what stands near a path that does not exist;
//! * [`text`] and [`window`]: what kind of text a file holds, and lines out of it; [`seen`]: what the session has read, by content.

pub(crate) mod ignored;
pub mod local;
mod missing;
pub mod names;
mod replace;
mod resolve;
pub mod seen;
pub mod text;
mod walk;
pub mod window;

use std::{
    ffi::OsString,
    io::{self, Read, Seek},
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
};

use toolgate_core::tool::Place;

use crate::{gate::Permit, tool::ToolError};
pub(crate) use resolve::normalised;

/// What tools do with files. What reads or changes content, or lists names, wants a permit, and only the gate builds one.
pub trait Files: Send + Sync {
    /// The place that a spelling means: links are followed as far as the path exists. Looks at names only.
    ///
    /// # Errors
    /// When the spelling means no single place: links that go round, a name that two files could be meant by.
    fn resolve(&self, spelled: &str) -> Result<Place, FileError>;

    /// The beginning of a file, for whoever decides about a call and for nobody else; no content of it may reach the model.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn preview(&self, place: &Place) -> Result<Box<dyn Source>, FileError>;

    /// Opens a regular file for reading. Never blocks on what it opens.
    ///
    /// # Errors
    /// When there is none, when it is none, or when it may not be read.
    fn open(&self, permit: &Permit, place: &Place) -> Result<Box<dyn Source>, FileError>;

    /// Changes a file, whole or not at all, while nobody else of toolgate changes it. `change` is given what stands there now, or nothing
    /// where no file is, and says what shall stand there. A link stays, and so do mode and owner; folders on the way are made.
    ///
    /// # Errors
    /// What `change` says, or why the file is as it was.
    fn update(&self, permit: &Permit, place: &Place, change: &mut Change<'_>) -> Result<(), ToolError>;

    /// The entries of a folder, in no order. `visit` may stop it.
    ///
    /// # Errors
    /// When it is no folder, or cannot be read.
    fn list(
        &self,
        permit: &Permit,
        place: &Place,
        visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), FileError>;

    /// Walks a tree, or comes by a single file. `visit` is called from several threads at once, and though what comes first by path is
    /// taken up first, in no order that can be relied on. A folder is shown when it would be entered. Links are named and not followed;
    /// repositories' own folders, and what ignore files name in a tree, are passed over.
    ///
    /// # Errors
    /// When the place itself cannot be walked. What cannot be read on the way is counted in the answer.
    fn walk(&self, permit: &Permit, place: &Place, visit: &Visit<'_>) -> Result<Walked, FileError>;

    /// How far a place is held to what was decided on.
    fn containment(&self) -> Containment;
}

/// What shall stand in a file, made from what stands there now.
pub type Change<'a> = dyn FnMut(Option<&mut dyn Source>) -> Result<Update, ToolError> + 'a;

/// Called with each thing that a walk comes by. What it could not read is counted by the walk.
pub type Visit<'a> = dyn Fn(Found<'_>) -> io::Result<Step> + Sync + 'a;

/// How a walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// With everything.
    On,
    /// Without what is in this folder.
    Over,
    /// Not at all.
    Stop,
}

/// An open file.
pub trait Source: Read + Seek + Send {
    /// Its size in bytes when it was opened; none where the system does not say, as for files that are made while they are read.
    fn length(&self) -> Option<u64>;
}

impl Source for io::Cursor<Vec<u8>> {
    fn length(&self) -> Option<u64> {
        Some(self.get_ref().len() as u64)
    }
}

/// What shall stand in a file.
#[derive(Debug)]
pub enum Update {
    /// What stands there.
    Keep,
    /// This and nothing else.
    Whole(Vec<u8>),
    /// What stood there, with some ranges replaced. The ranges are in order and do not overlap.
    Spliced {
        /// All that stood there.
        old: Vec<u8>,
        /// The ranges of it, and what stands in their place.
        splices: Vec<Splice>,
    },
}

/// Bytes that stand in the place of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// The others, in the old content.
    pub range: Range<usize>,
    /// What stands in their place.
    pub with: Vec<u8>,
}

impl Update {
    /// The new content in order, in pieces; none where it is kept.
    pub fn pieces(&self) -> Option<Vec<&[u8]>> {
        match self {
            Self::Keep => None,
            Self::Whole(bytes) => Some(vec![bytes]),
            Self::Spliced { old, splices } => {
                let (mut pieces, mut at) = (Vec::with_capacity(2 * splices.len() + 1), 0);
                for Splice { range, with } in splices {
                    pieces.push(&old[at..range.start]);
                    pieces.push(with);
                    at = range.end;
                }
                pieces.push(&old[at..]);
                Some(pieces)
            }
        }
    }
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; any bytes but `/`.
    pub name: OsString,
    /// What it is, or for a link what it leads to.
    pub kind: Kind,
    /// Whether it is a link.
    pub link: bool,
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link that leads nowhere.
    DeadLink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

impl Kind {
    /// With its article, for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Folder => "a folder",
            Self::DeadLink => "a link that leads nowhere",
            Self::Pipe => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        }
    }
}

/// One thing that a walk came by.
pub struct Found<'a> {
    /// Its path from the place that is walked; empty for the place itself, where it is a file.
    pub path: &'a Path,
    /// What it is; a link is a [`Kind::DeadLink`] whatever it leads to, since it is not followed.
    pub kind: Kind,
    /// Opens it, where it is a file. Any other thing is an error, and is not opened.
    pub open: &'a dyn Fn() -> io::Result<Box<dyn Source>>,
}

/// What a walk has to say at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Things that could not be read: how many, and the first few with the reason.
    pub unreadable: usize,
    /// Some of them, for people and models.
    pub examples: Vec<String>,
    /// Whether ignore files kept something out.
    pub ignored: bool,
}

/// How far a place is held to what was decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// The kernel opens beneath a root and follows no link.
    Kernel,
    /// Each step of the path is opened by itself, and a link on it is refused.
    StepByStep,
    /// The files exist for toolgate alone.
    Own,
}

/// Why something could not be done with a place, for the model to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Nothing is there.
    #[error("{path} does not exist{hint}")]
    Missing {
        /// As it was spelled.
        path: String,
        /// What is there instead; begins with a separator, or is empty.
        hint: String,
    },
    /// Something else is there than what is wanted.
    #[error("{path} is {}, not {}{}", found.as_str(), wanted.as_str(), instead(*found))]
    Kind {
        /// As it was spelled.
        path: String,
        /// What it is.
        found: Kind,
        /// What it would have to be.
        wanted: Kind,
    },
    /// The path is another one than the one that was decided on.
    #[error("{0} leads elsewhere than when the call was decided on (a link on the way has changed); call again")]
    Moved(String),
    /// Links that go round.
    #[error("{0} goes round in links and leads nowhere")]
    Loop(String),
    /// A spelling that two names are equally near to.
    #[error("{path} does not exist, and several names look the same: {}; give the exact one", names.join(", "))]
    Ambiguous {
        /// As it was spelled.
        path: String,
        /// The names.
        names: Vec<String>,
    },
    /// No path can hold it.
    #[error("{0}")]
    Spelling(String),
    /// The system said no.
    #[error("{path}: {reason}")]
    Refused {
        /// As it was spelled.
        path: String,
        /// In the system's words, with its code.
        reason: String,
    },
}

fn instead(found: Kind) -> &'static str {
    match found {
        Kind::Pipe | Kind::Socket | Kind::Device => "; it was not opened, since reading it might never end",
        _ => "",
    }
}

impl From<FileError> for ToolError {
    fn from(error: FileError) -> Self {
        Self(error.to_string())
    }
}

/// The system's words for an error, with its code as people search for it.
pub(crate) fn reason(error: &io::Error) -> String {
    let code = error.raw_os_error().and_then(code);
    let words = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "permission denied".to_owned(),
        Some(libc::ENOSPC) => "no space is left on the filesystem".to_owned(),
        Some(libc::EDQUOT) => "the disk quota is used up".to_owned(),
        Some(libc::EROFS) => "the filesystem is read-only".to_owned(),
        Some(libc::ENAMETOOLONG) => "a name in the path is too long".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_lowercase()
        }
    };
    code.map_or(words.clone(), |code| format!("{words} ({code})"))
}

fn code(number: i32) -> Option<&'static str> {
    const CODES: &[(i32, &str)] = &[
        (libc::ENOENT, "ENOENT"),
        (libc::EACCES, "EACCES"),
        (libc::EPERM, "EPERM"),
        (libc::EISDIR, "EISDIR"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::EROFS, "EROFS"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::EIO, "EIO"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EINVAL, "EINVAL"),
        (libc::EFBIG, "EFBIG"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EXDEV, "EXDEV"),
    ];
    CODES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Does blocking work on a thread that may wait; a panic there is an error of the call.
///
/// # Errors
/// What the work says.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ToolError::new("the work was stopped before it was done")),
    }
}

/// A path as a message shows it: from the workspace where it is inside, else as it stands.
pub fn shown(place: &Place, root: &Path) -> String {
    let path: PathBuf = place.path.strip_prefix(root).map_or_else(|_| place.path.clone(), Path::to_path_buf);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
    names::shown(path.as_os_str())
}
