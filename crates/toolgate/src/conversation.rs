//! A conversation with a model: which session it is, how it is opened, and its runs. `run` and `chat` are two ways of having one.

use std::{path::Path, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    history::Rebuilt,
    session::{RunEnd, Session, SessionSetup},
    subagent::Subagents,
    tools::Parts,
};
use toolgate_core::{approval::ApprovalMode, trace::check_head};
use toolgate_runtime::{
    approver::Approver,
    environment::Environment,
    ids,
    trace::{Observer, Resumed, TraceError, TraceFile},
    workspace::Workspace,
};

use crate::{
    children::Children,
    config::Settings,
    failure::Failure,
    models::{self, Chosen},
    recorded::Recorded,
    state::{Indexed, Kept, State},
    surroundings::Surroundings,
    wiring::{self, Wish},
};

/// A session that was found or made, before anything about it is decided.
pub(crate) struct Opened {
    state: State,
    /// Its newest file; a new session has none until it begins, so that what was only tried leaves nothing behind.
    file: Option<TraceFile>,
    secrets: Vec<String>,
    entry: Indexed,
    /// What its trace says; a new session has none.
    pub(crate) rebuilt: Option<Rebuilt>,
    /// Whether what its trace says is another session's, which this new one begins with.
    forked: bool,
    pub(crate) workspace: Workspace,
}

/// What a conversation is had with.
pub(crate) struct With {
    pub(crate) model: Chosen,
    pub(crate) settings: Arc<Settings>,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) observer: Arc<dyn Observer>,
    /// What the next run of this session goes on with when nothing else is asked for.
    pub(crate) kept: Kept,
}

/// A conversation that can run.
pub(crate) struct Conversation {
    recorded: Recorded,
    pub(crate) session: Session,
    pub(crate) environment: Arc<Environment>,
}

impl Opened {
    /// A new session of a workspace.
    pub(crate) fn new(state: State, workspace: Workspace, secrets: &[String]) -> Self {
        let session_id = ids::session_id();
        let trace = state.trace_path(&session_id);
        let entry = Indexed::new("run", session_id, workspace.root().to_owned(), trace);
        Self { state, file: None, secrets: secrets.to_owned(), entry, rebuilt: None, forked: false, workspace }
    }

    /// The newest session of a workspace; none when it has none.
    pub(crate) fn newest(state: State, workspace: &Workspace, secrets: &[String]) -> Option<Result<Self, Failure>> {
        let entry = state.runs_of(workspace.root()).into_iter().next()?;
        Some(Self::entry(state, entry, None, secrets))
    }

    /// The session of an id, or of a trace file; `folder` says where the tools are bound to when not where they were.
    pub(crate) fn named(state: State, name: &str, folder: Option<&Path>, secrets: &[String]) -> Result<Self, Failure> {
        let entry = state.session(name).map_or_else(|| Indexed::of_file(name), Ok)?;
        Self::entry(state, entry, folder, secrets)
    }

    fn entry(state: State, mut entry: Indexed, folder: Option<&Path>, secrets: &[String]) -> Result<Self, Failure> {
        if entry.kind != "run" {
            return Err(Failure::usage(format!(
                "session {} is a `{}`, which cannot go on",
                entry.session_id, entry.kind
            ))
            .hint("toolgate trace list shows the sessions; those of kind `run` go on"));
        }
        let workspace = wiring::workspace(Some(folder.unwrap_or(&entry.workspace)))?;
        let Resumed { file, files, found } = TraceFile::resume_session(&entry.trace, secrets)?;
        file.path().clone_into(&mut entry.trace);
        let bytes: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        // After a crash the index knows an older head than the file; after an orderly end the two must agree.
        if let Some(head) = entry.head.as_ref().filter(|_| entry.status != "running") {
            let path = entry.trace.clone();
            check_head(&found, head).map_err(|broken| Failure::from(TraceError::Broken { path, broken }))?;
        }
        let rebuilt = Rebuilt::read_files(&bytes).map_err(|error| Failure::run(error.to_string()))?;
        let (file, secrets) = (Some(file), secrets.to_owned());
        Ok(Self { state, file, secrets, entry, rebuilt: Some(rebuilt), forked: false, workspace })
    }

    /// A new session that begins with what this one has said. This one stays as it is.
    pub(crate) fn fork(self, secrets: &[String]) -> Self {
        let mut new = Self::new(self.state, self.workspace, secrets);
        new.entry.kept = self.entry.kept;
        (new.forked, new.rebuilt) = (self.rebuilt.is_some(), self.rebuilt);
        new
    }

    /// The session's id.
    pub(crate) fn id(&self) -> &str {
        &self.entry.session_id
    }

    /// From here on these values are redacted.
    pub(crate) fn hide(&mut self, secrets: &[String]) {
        self.secrets.extend_from_slice(secrets);
    }

    /// What the session was begun with.
    pub(crate) fn kept(&self) -> &Kept {
        &self.entry.kept
    }

    /// Whether a run without a prompt has something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.rebuilt.as_ref().is_some_and(|rebuilt| !rebuilt.is_answered() || !rebuilt.unanswered().is_empty())
    }
}

impl Conversation {
    /// Makes a session of what was opened.
    pub(crate) fn begin(opened: Opened, with: With, surroundings: &Surroundings) -> Result<Self, Failure> {
        let Opened { state, file, mut secrets, mut entry, rebuilt, forked, workspace } = opened;
        entry.kept = with.kept;
        let (model, settings) = (with.model, with.settings);
        secrets.extend(model.key.clone());
        let file = match file {
            Some(mut file) => {
                file.hide(&secrets);
                file
            }
            None => TraceFile::create(&entry.trace, &secrets)?,
        };
        let children_state = state.clone();
        let recorded = Recorded::go_on(state, entry, file, with.observer)?;
        let vision = models::vision(model.vision, &settings, surroundings)?;
        let children = Children {
            state: children_state,
            settings: settings.clone(),
            surroundings: surroundings.clone(),
            workspace: workspace.clone(),
            model: model.clone(),
            secrets,
        };
        let subagents = Subagents::new(Arc::new(children), with.approver.clone(), recorded.journal.clone());
        let wish = Wish {
            approver: with.approver,
            workspace: workspace.clone(),
            converses: true,
            vision: model.vision,
            tools: None,
            parts: Parts { subagents: Some(subagents), vision },
            settings: settings.clone(),
        };
        let mut setup = SessionSetup::new(model.provider, wiring::environment(wish, &recorded, surroundings)?);
        setup.options = settings.run_options(model.context_window, model.max_tokens, model.thinking);
        if let Some(rebuilt) = &rebuilt {
            // The instructions of a session stay byte for byte what they were: providers cache by prefix.
            setup.system.clone_from(&rebuilt.meta.system_prompt);
        } else if let Some(prompt) = &settings.system_prompt {
            setup.system = wiring::instructions(prompt, &workspace);
        }
        let session = match rebuilt {
            Some(rebuilt) if forked => Session::fork(setup, rebuilt)?,
            Some(rebuilt) => Session::resume(setup, rebuilt)?,
            None => Session::begin(setup)?,
        };
        let environment = session.environment().clone();
        Ok(Self { recorded, session, environment })
    }

    /// The session in the index.
    pub(crate) fn entry(&self) -> &Indexed {
        &self.recorded.entry
    }

    /// One run. The caller ends what is to end with it, then calls [`Self::seal`].
    pub(crate) async fn run(&mut self, prompt: Option<&str>, interrupt: &CancellationToken) -> Result<RunEnd, Failure> {
        self.recorded.reopen()?;
        Ok(self.session.run(prompt, interrupt).await?)
    }

    /// What went wrong with the login shell, if anything.
    pub(crate) fn warning(&self) -> Option<String> {
        let warning = self.environment.commands().warning()?;
        Some(format!("warning: {warning}; commands saw toolgate's own environment"))
    }

    /// The run is over, written down and on disk.
    pub(crate) fn seal(&mut self, end: &RunEnd) -> Result<(), Failure> {
        self.recorded.seal(end.status.as_str())
    }

    /// Something was recorded outside a run: it is sealed, and the session stays open.
    pub(crate) fn written(&mut self) -> Result<(), Failure> {
        self.recorded.seal("completed")
    }

    /// What a later run goes on with.
    pub(crate) fn keep_mode(&mut self, mode: ApprovalMode) {
        self.recorded.entry.kept.approve = Some(mode);
    }

    /// The session is over for now. What its end wrote is sealed too.
    pub(crate) fn close(&mut self, status: &str) -> Result<(), Failure> {
        self.recorded.seal(status)
    }
}
