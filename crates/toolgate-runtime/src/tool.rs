//! What a tool is: it declares itself, says what a call would do, and runs with a permit.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Bound, Effect, Prepared, ToolSpec},
};

use crate::{
    BoxFuture,
    fetch::Fetch,
    files::{Files, seen::Seen},
    gate::Permit,
    image::Picture,
    notice::Notices,
    output::Sink,
    process::table::CommandSessions,
    workspace::Workspace,
};

/// A tool. One file, one line in [`crate::tools::builtin`]; no other code knows its name.
pub trait Tool: Send + Sync {
    /// What it is called, what it takes, how long and how much. The registry entry holds the effective spec.
    fn spec(&self) -> &ToolSpec;

    /// Other names under which it is called, each with parameters and limits of its own. `prepare` and `run` take the arguments of all.
    fn aliases(&self) -> &[ToolSpec] {
        &[]
    }

    /// Puts arguments that mean the same in another way into the form that is declared, before they are checked, and says so in notes
    /// for the model. What it leaves as it is, the check judges.
    fn mend(&self, _form: &ToolSpec, _args: &mut Args) -> Vec<String> {
        Vec::new()
    }

    /// Says what a call would do. It changes nothing and asks nobody.
    ///
    /// # Errors
    /// When the call cannot be described, which the model reads; such a call never runs.
    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>>;

    /// A time limit that this call asks for itself, in milliseconds. It only shortens the one that the tool is held to.
    fn time_limit(&self, _args: &Args) -> Option<u64> {
        None
    }

    /// Does what the permit allows. Text goes through `cx.out` only, so that nothing is returned that was not streamed.
    ///
    /// # Errors
    /// What went wrong, for the model to read.
    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>>;

    /// The run was interrupted: what the tool has started besides commands, and what runs on by itself, ends. The session goes on.
    fn interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// The session is over: everything that the tool has started ends.
    fn close(&self) -> BoxFuture<'_, ()> {
        self.interrupt()
    }
}

/// What a tool may look at to say what a call would do.
pub struct CheckContext {
    /// The folder that paths are relative to.
    pub workspace: Arc<Workspace>,
    /// What paths mean, and what a decision about a file looks at.
    pub files: Arc<dyn Files>,
    /// What fetches, where anything does.
    pub fetch: Option<Arc<dyn Fetch>>,
}

/// What a tool may use while it runs: no session, no registry and no way to another permit.
pub struct ToolContext {
    /// Where its text goes.
    pub out: Arc<Sink>,
    /// Cancelled when the call is to end: interrupt, time limit, end of the session.
    pub cancel: CancellationToken,
    /// The call's own limits.
    pub limits: Limits,
    /// The folder that it is bound to.
    pub workspace: Arc<Workspace>,
    /// Files and folders.
    pub files: Arc<dyn Files>,
    /// What fetches, where anything does.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// Whether the model sees images.
    pub vision: bool,
    /// What the session knows of files.
    pub seen: Arc<Seen>,
    /// Command sessions.
    pub commands: Arc<CommandSessions>,
    /// Where the end of what runs in the background is told.
    pub notices: Arc<Notices>,
    /// The names of the tools that can be called.
    pub callable: Arc<[String]>,
}

impl ToolContext {
    /// Whether a tool of this name can be called: a hint names no other.
    pub fn can_call(&self, name: &str) -> bool {
        self.callable.iter().any(|callable| callable == name)
    }
}

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In milliseconds; none without a limit.
    pub timeout_ms: Option<u64>,
    /// How much of its output the model reads. A tool that can leave out something better than the end keeps to it by itself.
    pub bound: Bound,
}

/// How a tool came back.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// What the tool says of itself; completed when it says nothing. The weakest of all reasons.
    pub stop: Option<StopReason>,
    /// One line outside the bound: an exit code, a process id.
    pub note: Option<String>,
    /// Images, outside the bound.
    pub images: Vec<Picture>,
    /// What the tool lacked. The next check of such a call asks for exactly that.
    pub blocked: Vec<Blocked>,
}

impl Done {
    /// Done with a note.
    pub fn noted(stop: StopReason, note: impl Into<String>) -> Self {
        Self { stop: Some(stop), note: Some(note.into()), ..Self::default() }
    }
}

/// An effect that a call needed and its permit did not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// What it needed.
    pub effect: Effect,
    /// What stood in the way.
    pub by: String,
}

/// What went wrong in a tool, for the model to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

impl ToolError {
    /// An error from anything that can be shown.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
