//! What lasts between runs: where traces stand, and which session is whose.
//!
//! ```text
//! traces/<date>/<session>_001.jsonl       the trace itself; nothing else here ends in .jsonl
//! sessions/<workspace>/<session>.json     the index: where the trace is, its head's hash, how the last run ended
//! spill/<session>/                        outputs of which the model read a part
//! ```
#![allow(clippy::disallowed_methods)] // What lasts between runs is kept here.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toolgate_core::{
    approval::ApprovalMode,
    call::Digest,
    message::{Body, Message},
};
use toolgate_runtime::trace::{files_of, now};

use crate::failure::Failure;

/// How long the first record of a trace may be; bytes. It holds the instructions, and a file that is no trace is not read to its end.
const LONGEST_HEAD: u64 = 16 * 1024 * 1024;

/// The folder of everything that lasts.
#[derive(Debug, Clone)]
pub(crate) struct State {
    root: PathBuf,
}

/// One session in the index.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Indexed {
    pub(crate) session_id: String,
    /// `run`, `call` or `demo`. Only a run is a conversation that can go on.
    pub(crate) kind: String,
    pub(crate) workspace: PathBuf,
    pub(crate) trace: PathBuf,
    /// The hash of the last record; a trace that ends elsewhere has lost its tail.
    pub(crate) head: Option<String>,
    /// How the last run ended; `running` while one runs, and after a crash.
    pub(crate) status: String,
    /// When that was written.
    pub(crate) updated: String,
    /// What a run goes on with when nothing else is asked for.
    #[serde(default)]
    pub(crate) kept: Kept,
}

/// The choices of a run that the next one keeps: an open question must not be answered, and a conversation must not go elsewhere, because
/// a flag was left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) approve: Option<ApprovalMode>,
    pub(crate) waits: bool,
    pub(crate) base_url: Option<String>,
    /// The wire that was asked for.
    #[serde(default)]
    pub(crate) api: Option<String>,
}

impl Indexed {
    /// A session that has not done anything yet.
    pub(crate) fn new(kind: &str, session_id: String, workspace: PathBuf, trace: PathBuf) -> Self {
        let (head, status, updated) = (None, "running".into(), String::new());
        Self { session_id, kind: kind.to_owned(), workspace, trace, head, status, updated, kept: Kept::default() }
    }

    /// A trace that no index knows, such as one that came from elsewhere: it goes on where it stands.
    pub(crate) fn of_file(name: &str) -> Result<Self, Failure> {
        let path = Path::new(name).canonicalize().map_err(|_| {
            Failure::usage(format!("there is no session {name}"))
                .hint("toolgate trace list shows the sessions that there are; the path of a trace will do too")
        })?;
        let files = files_of(&path);
        let newest = files.last().unwrap_or(&path);
        let no_session = |what: String| {
            Failure::run(format!("{what}, so there is no session to go on with"))
                .hint("toolgate trace show FILE shows what is there")
        };
        let head = head_of(newest).or_else(|bytes| {
            // toolgate writes a new file's head before anything counts on it, so a torn one costs nothing and the file before goes on.
            // Another program's torn head is all that is left of what it went on with.
            let before = files.iter().rev().skip(1).find_map(|file| head_of(file).ok());
            before.filter(|head| head.extra.contains_key("hash")).ok_or_else(|| {
                let place = newest.display();
                no_session(format!("the first record of {place} (line 1, {bytes} bytes) is torn, or none at all"))
            })
        })?;
        match head.body {
            Body::SessionMeta(meta) => Ok(Self::new("run", meta.session_id, meta.workspace.into(), path)),
            _ => Err(no_session(format!("the first record of {} is no session_meta", newest.display()))),
        }
    }
}

impl State {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Where a new session's trace goes. The date is the session's own, so that an id leads to its file.
    pub(crate) fn trace_path(&self, session_id: &str) -> PathBuf {
        let date =
            session_id.get("session-".len()..).and_then(|rest| rest.get(.."2026-01-01".len())).unwrap_or("undated");
        self.root.join("traces").join(date).join(format!("{session_id}_001.jsonl"))
    }

    pub(crate) fn spill_folder(&self, session_id: &str) -> PathBuf {
        self.root.join("spill").join(session_id)
    }

    /// Where prompts are remembered that were typed at a terminal.
    pub(crate) fn history_file(&self) -> PathBuf {
        self.root.join("history")
    }

    fn workspace_folder(&self, workspace: &Path) -> PathBuf {
        let digest = Digest::of(workspace.as_os_str().as_encoded_bytes());
        self.root.join("sessions").join(&digest.as_str()[..16])
    }

    /// Writes a session's entry, whole or not at all.
    pub(crate) fn index(&self, entry: &mut Indexed) -> Result<(), Failure> {
        entry.updated = now();
        let folder = self.workspace_folder(&entry.workspace);
        let path = folder.join(format!("{}.json", entry.session_id));
        let write = || -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let new = path.with_extension("new");
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(entry).map_err(io::Error::other)?)?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| {
            Failure::run(format!("the session index {} cannot be written: {error}", path.display()))
                .hint("free space, or set XDG_STATE_HOME to a folder that can be written")
        })
    }

    /// The runs of a workspace, newest first.
    pub(crate) fn runs_of(&self, workspace: &Path) -> Vec<Indexed> {
        let mut found = read_folder(&self.workspace_folder(workspace));
        found.retain(|entry| entry.kind == "run");
        found.sort_by(|a, b| b.updated.cmp(&a.updated));
        found
    }

    /// All sessions, newest first.
    pub(crate) fn sessions(&self) -> Vec<Indexed> {
        let folders = fs::read_dir(self.root.join("sessions")).into_iter().flatten().flatten();
        let mut found: Vec<_> = folders.flat_map(|folder| read_folder(&folder.path())).collect();
        found.sort_by(|a, b| b.updated.cmp(&a.updated));
        found
    }

    /// The session of this id.
    pub(crate) fn session(&self, id: &str) -> Option<Indexed> {
        self.sessions().into_iter().find(|entry| entry.session_id == id)
    }
}

/// The first record of a file, or how many bytes stand in its place.
fn head_of(path: &Path) -> Result<Message, usize> {
    let mut first = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        let _ = BufReader::new(file.take(LONGEST_HEAD)).read_until(b'\n', &mut first);
    }
    Message::from_line(first.trim_ascii_end()).ok_or(first.len())
}

fn read_folder(folder: &Path) -> Vec<Indexed> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let entries = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    entries.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect()
}
