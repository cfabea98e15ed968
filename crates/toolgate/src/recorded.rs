//! A session's record: its trace, its place in the index, and the seal that ends each run.

use std::{path::PathBuf, sync::Arc};

use toolgate_runtime::{
    ids,
    trace::{Journal, Observer, TraceFile},
    workspace::Workspace,
};

use crate::{
    failure::Failure,
    state::{Indexed, State},
};

/// A session that is being written down.
pub(crate) struct Recorded {
    state: State,
    pub(crate) entry: Indexed,
    pub(crate) journal: Arc<Journal>,
}

impl Recorded {
    /// A new session's trace and entry.
    pub(crate) fn begin(
        state: State,
        kind: &str,
        workspace: &Workspace,
        observer: Arc<dyn Observer>,
        secrets: &[String],
    ) -> Result<Self, Failure> {
        let session_id = ids::session_id();
        let trace = state.trace_path(&session_id);
        let file = TraceFile::create(&trace, secrets)?;
        let entry = Indexed::new(kind, session_id, workspace.root().to_owned(), trace);
        Self::go_on(state, entry, file, observer)
    }

    /// Goes on in a trace that is there.
    pub(crate) fn go_on(
        state: State,
        mut entry: Indexed,
        file: TraceFile,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Failure> {
        entry.status = "running".into();
        state.index(&mut entry)?;
        Ok(Self { state, entry, journal: Arc::new(Journal::new(Some(file), observer)) })
    }

    /// The session's id.
    pub(crate) fn id(&self) -> String {
        self.entry.session_id.clone()
    }

    /// Where outputs go of which the model reads a part.
    pub(crate) fn spill_folder(&self) -> PathBuf {
        self.state.spill_folder(&self.entry.session_id)
    }

    /// A further run begins: until its seal the index says so.
    pub(crate) fn reopen(&mut self) -> Result<(), Failure> {
        self.entry.status = "running".into();
        self.state.index(&mut self.entry)
    }

    /// The run is over: its records are whole and on disk, and the index knows its last hash.
    pub(crate) fn seal(&mut self, status: &str) -> Result<(), Failure> {
        self.entry.head = self.journal.seal(status)?;
        // A compaction has gone on in a file of its own.
        self.entry.trace = self.journal.path().unwrap_or_else(|| std::mem::take(&mut self.entry.trace));
        status.clone_into(&mut self.entry.status);
        self.state.index(&mut self.entry)
    }
}
