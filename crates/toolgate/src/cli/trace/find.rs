//! Which files a session's trace consists of.
#![allow(clippy::disallowed_methods)] // Traces are read here.

use std::path::{Path, PathBuf};

use super::super::state;
use crate::{failure::Failure, state::Indexed, surroundings::Surroundings};

/// The files of one session, in order. There is at least one.
pub(super) struct Files {
    pub(super) each: Vec<File>,
    /// Its place in the index, where it has one.
    pub(super) entry: Option<Indexed>,
}

/// One of them, read.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl Files {
    /// Reads what was named: one session's id, or files in order.
    pub(super) fn read(names: &[String], surroundings: &Surroundings) -> Result<Self, Failure> {
        let (paths, entry) = named(names, surroundings);
        let each: Result<_, _> = paths.into_iter().map(File::read).collect();
        Ok(Self { each: each?, entry })
    }

    /// The file that a session goes on in.
    pub(super) fn newest(&self) -> &File {
        &self.each[self.each.len() - 1]
    }

    /// The session's id, as the newest file's name has it.
    pub(super) fn session(&self) -> String {
        let name = self.newest().path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        name.rsplit_once('_').map_or_else(|| name.clone(), |(session, _)| session.to_owned())
    }

    /// The head that the last record must have, where the index knows it.
    pub(super) fn known_head(&self) -> Option<&str> {
        // While a run is on, or after one crashed, the index knows an older head.
        let entry = self.entry.as_ref().filter(|entry| entry.status != "running" && entry.trace == self.newest().path);
        entry.and_then(|entry| entry.head.as_deref())
    }
}

impl File {
    fn read(path: PathBuf) -> Result<Self, Failure> {
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self { path, bytes }),
            Err(error) => Err(Failure::usage(format!("the trace {} cannot be read: {error}", path.display()))
                .hint("toolgate trace list shows the sessions")),
        }
    }
}

/// Where what was named stands: one session's id, or files in order.
pub(super) fn named(names: &[String], surroundings: &Surroundings) -> (Vec<PathBuf>, Option<Indexed>) {
    let sessions = match surroundings.state_folder() {
        Some(_) => state(surroundings).map(|state| state.sessions()).unwrap_or_default(),
        None => Vec::new(),
    };
    if let [name] = names
        && let Some(entry) = sessions.iter().find(|entry| entry.session_id == *name)
    {
        return (all_of(&entry.trace), Some(entry.clone()));
    }
    let paths: Vec<PathBuf> = names.iter().map(|name| Path::new(name).canonicalize().unwrap_or(name.into())).collect();
    let entry = sessions.into_iter().find(|entry| paths.last() == Some(&entry.trace));
    (paths, entry)
}

/// The files of the session that one of them belongs to: `<session>_001.jsonl` and what compactions made to follow it.
pub(super) fn all_of(one: &Path) -> Vec<PathBuf> {
    toolgate_runtime::trace::files_of(one)
}
