//! A session: prompts go in, runs come out, and everything that happens stands in one trace.
//!
//! A **run** is one prompt until the agent stops; a **turn** is one model request and its calls. A session that a crash cut off goes on
//! from its trace: committed turns only, nothing run twice, an open question still open under its key.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::ApprovalKey,
    message::{Abort, Event, Extra, ModelMessage, Role, SessionMeta, Text, Tokens, ToolCallOutput},
    outcome::StopReason,
    tool::ToolCall,
};
use toolgate_runtime::{
    close_out::result,
    environment::{CallEnd, Environment},
    trace::{Journal, TraceError},
};

use crate::{
    history::Rebuilt,
    provider::{Provider, ProviderError, Request, Stop, ThinkingLevel},
    turn::{Answered, TurnEnd, ask},
};

/// How long the first request has to leave before anything else may take the processor: the login shell is read beside the model's
/// answer and must not delay the question.
const AFTER_FIRST_REQUEST: std::time::Duration = std::time::Duration::from_millis(2);

/// What the model reads about a call that a crash cut off.
const OUTCOME_UNKNOWN: &str =
    "[interrupted: outcome unknown; toolgate ended while this call ran, so it may have taken effect in part]";

/// What the model reads about the calls of an answer that was cut off or held back.
const CUT: &str = "[not run: the answer was cut off by its length limit or held back by the provider; send the call again, in smaller \
                   parts if it is long]";

/// Everything that a session is made of.
pub struct SessionSetup {
    /// Its id, which names its trace.
    pub id: String,
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The door.
    pub environment: Arc<Environment>,
    /// The writer; the environment's own.
    pub journal: Arc<Journal>,
    /// The instructions.
    pub system: String,
    /// The folder, for the trace's head.
    pub workspace: String,
    /// How its runs go.
    pub options: RunOptions,
}

/// How the runs of a session go.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Model requests of one run; none without a limit.
    pub max_turns: Option<u32>,
    /// The bound of one answer, in tokens; the provider's own when absent.
    pub max_tokens: Option<u64>,
    /// How much the model is to think.
    pub thinking: Option<ThinkingLevel>,
    /// What the model can read, in tokens; unknown when absent.
    pub context_window: Option<u64>,
    /// When and how the conversation is made shorter.
    pub compaction: CompactionOptions,
}

/// When and how a conversation is made shorter.
#[derive(Debug, Clone, Default)]
pub struct CompactionOptions {
    /// Tokens of one request from which on it happens; at most what the window leaves.
    pub max_context: Option<u64>,
    /// Turns from which on it happens; none without a limit.
    pub max_turns: Option<u32>,
    /// What becomes of what was said.
    pub mode: CompactionMode,
    /// What the model is asked to write; the built-in words when absent.
    pub prompt: Option<String>,
}

/// What becomes of what was said when a conversation is made shorter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CompactionMode {
    /// The model sums it up, and the summary opens the new context.
    #[default]
    Summarize,
    /// It is dropped at the end of the run.
    Discard,
}

/// A session with a model.
pub struct Session {
    setup: SessionSetup,
    tools: Vec<serde_json::Value>,
    history: Vec<ModelMessage>,
    used: Tokens,
    /// Calls of the last answer that have no result yet.
    open: Vec<ToolCall>,
    /// Results of that answer that are there already.
    answered: Vec<ToolCallOutput>,
    /// The calls of that answer, in order.
    batch: Vec<String>,
    announced: bool,
    started: bool,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct RunEnd {
    /// Why.
    pub status: RunStatus,
    /// The last thing that the model said.
    pub text: String,
    /// Tokens of the session so far.
    pub used: Tokens,
    /// Model requests of this run.
    pub turns: u32,
}

/// Why a run ended.
#[derive(Debug, Clone)]
pub enum RunStatus {
    /// The model had no more calls.
    Completed,
    /// Questions stay open.
    Waiting(Vec<ApprovalKey>),
    /// The turn limit was reached.
    Limit(u32),
    /// The model could not be asked.
    Failed(ProviderError),
    /// A person stopped it.
    Interrupted,
}

impl RunStatus {
    /// The word in the seal.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Waiting(_) => "waiting",
            Self::Limit(_) => "limit",
            Self::Failed(_) => "failed",
            Self::Interrupted => "aborted",
        }
    }
}

impl Session {
    /// Begins a session and writes its head.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn begin(setup: SessionSetup) -> Result<Self, TraceError> {
        let model = setup.provider.model();
        setup.journal.record(SessionMeta {
            session_id: setup.id.clone(),
            provider: model.provider.clone(),
            model_id: model.model.clone(),
            model_context_window: "unknown".into(),
            system_prompt: setup.system.clone(),
            agent_state: serde_json::Value::Null,
            workspace: setup.workspace.clone(),
            source: None,
            extra: Extra::new(),
        })?;
        Ok(Self::new(setup, Vec::new(), Tokens::default()))
    }

    /// Goes on with a session. Calls that may have started before a crash are closed as unknown; the others pass the gate again when the
    /// next run begins.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn resume(setup: SessionSetup, mut rebuilt: Rebuilt) -> Result<Self, TraceError> {
        let mut open = Vec::new();
        for (call, may_run) in rebuilt.unanswered() {
            if may_run && !rebuilt.started.contains(&call.id) {
                open.push(call);
                continue;
            }
            let output = result(&call.id, OUTCOME_UNKNOWN.into(), Vec::new(), StopReason::Aborted);
            setup.journal.record(ModelMessage::ToolCallOutput(output.clone()))?;
            rebuilt.outputs.insert(call.id, output);
        }
        let mut session = Self::new(setup, rebuilt.history(), rebuilt.usage);
        if !open.is_empty() {
            session.reopen(open);
        }
        Ok(session)
    }

    fn new(setup: SessionSetup, history: Vec<ModelMessage>, used: Tokens) -> Self {
        let tools = setup.environment.specs().map(|spec| spec.for_model()).collect();
        let (open, answered, batch) = (Vec::new(), Vec::new(), Vec::new());
        Self { setup, tools, history, used, open, answered, batch, announced: false, started: false }
    }

    /// Takes the results of an unfinished batch off the history again: they enter it together, in call order.
    fn reopen(&mut self, open: Vec<ToolCall>) {
        while let Some(ModelMessage::ToolCallOutput(output)) = self.history.last() {
            self.answered.push(output.clone());
            self.history.pop();
        }
        let calls = self.history.iter().rev().map_while(|message| match message {
            ModelMessage::ToolCall(call) => Some(call.tool_call_id.clone()),
            _ => None,
        });
        self.batch = calls.collect();
        self.batch.reverse();
        self.open = open;
    }

    /// Runs until the model has no more calls, a question stays open, a limit is reached or something ends it. The caller then ends what
    /// is to end with the run and calls [`Session::seal`].
    ///
    /// Open calls of an earlier run come first; while one of them still waits, the prompt is not taken and the run ends waiting.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub async fn run(&mut self, prompt: Option<&str>, interrupt: &CancellationToken) -> Result<RunEnd, TraceError> {
        let mut progress = Progress::default();
        let status = self.advance(prompt, interrupt, &mut progress).await?;
        match &status {
            RunStatus::Interrupted => {
                self.setup.environment.interrupt().await;
                self.abort("aborted by user".into())?;
            }
            RunStatus::Failed(error) => self.abort(format!("llm request error: {error}"))?,
            RunStatus::Completed | RunStatus::Waiting(_) | RunStatus::Limit(_) => {}
        }
        Ok(RunEnd { status, text: progress.text, used: self.used, turns: progress.turns })
    }

    /// Seals a run: its records are whole and on disk. Returns the hash of the last one.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn seal(&self, end: &RunEnd) -> Result<Option<String>, TraceError> {
        self.setup.journal.seal(end.status.as_str())
    }

    async fn advance(
        &mut self,
        prompt: Option<&str>,
        interrupt: &CancellationToken,
        progress: &mut Progress,
    ) -> Result<RunStatus, TraceError> {
        if !self.open.is_empty() {
            self.announce()?;
            let open = std::mem::take(&mut self.open);
            if let Some(waiting) = self.call(open, interrupt).await? {
                return Ok(RunStatus::Waiting(waiting));
            }
        }
        if let Some(prompt) = prompt {
            self.say(prompt)?;
        }
        self.announce()?;
        loop {
            if interrupt.is_cancelled() {
                return Ok(RunStatus::Interrupted);
            }
            if let Some(limit) = self.setup.options.max_turns.filter(|limit| progress.turns >= *limit) {
                self.notice(&format!("[reached max turns ({limit}); stopping]"))?;
                return Ok(RunStatus::Limit(limit));
            }
            progress.turns += 1;
            let answered = match self.ask(interrupt).await? {
                TurnEnd::Answered(answered) => answered,
                TurnEnd::Failed(error) => return Ok(RunStatus::Failed(error)),
                TurnEnd::Interrupted => return Ok(RunStatus::Interrupted),
            };
            let Answered { messages, text, calls, cut, stop } = answered;
            self.history.extend(messages.into_iter().map(ModelMessage::cleaned));
            if !text.is_empty() {
                progress.text = text;
            }
            if calls.is_empty() {
                return Ok(RunStatus::Completed);
            }
            self.batch = calls.iter().map(|call| call.id.clone()).collect();
            let (cut, whole): (Vec<_>, Vec<_>) = calls
                .into_iter()
                .partition(|call| matches!(stop, Stop::MaxTokens | Stop::Filtered) || cut.contains(&call.id));
            self.refuse(&cut)?;
            if let Some(waiting) = self.call(whole, interrupt).await? {
                return Ok(RunStatus::Waiting(waiting));
            }
        }
    }

    async fn ask(&mut self, interrupt: &CancellationToken) -> Result<TurnEnd, TraceError> {
        if !std::mem::replace(&mut self.started, true) {
            let commands = self.setup.environment.commands().clone();
            tokio::spawn(async move {
                tokio::time::sleep(AFTER_FIRST_REQUEST).await;
                commands.prepare().await;
            });
        }
        let request = Request {
            system: &self.setup.system,
            tools: &self.tools,
            history: &self.history,
            max_tokens: self.setup.options.max_tokens,
            thinking: self.setup.options.thinking,
        };
        ask(self.setup.provider.as_ref(), request, &self.setup.journal, &mut self.used, interrupt).await
    }

    /// Runs calls; their results enter the history once all of them are there. Returns the open questions, if any.
    async fn call(
        &mut self,
        calls: Vec<ToolCall>,
        interrupt: &CancellationToken,
    ) -> Result<Option<Vec<ApprovalKey>>, TraceError> {
        let ends = self.setup.environment.call_all(calls.clone(), interrupt).await?;
        let mut waiting = Vec::new();
        for (end, call) in ends.into_iter().zip(calls) {
            match end {
                CallEnd::Closed(output, _) => self.answered.push(output),
                CallEnd::Waiting(key) => {
                    waiting.push(key);
                    self.open.push(call);
                }
            }
        }
        if !waiting.is_empty() {
            return Ok(Some(waiting));
        }
        self.commit_results();
        Ok(None)
    }

    fn commit_results(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        let place = |output: &ToolCallOutput| self.batch.iter().position(|id| *id == output.tool_call_id);
        answered.sort_by_key(place);
        self.history.extend(answered.into_iter().map(ModelMessage::ToolCallOutput));
    }

    /// Closes calls that were cut off: none of them runs.
    fn refuse(&mut self, calls: &[ToolCall]) -> Result<(), TraceError> {
        for call in calls {
            let output = result(&call.id, CUT.into(), Vec::new(), StopReason::Failed);
            self.setup.journal.record(ModelMessage::ToolCallOutput(output.clone()))?;
            self.answered.push(output);
        }
        Ok(())
    }

    /// Says once a run which tools there are and what confines commands.
    fn announce(&mut self) -> Result<(), TraceError> {
        if std::mem::replace(&mut self.announced, true) {
            return Ok(());
        }
        self.setup.environment.announce()
    }

    fn say(&mut self, prompt: &str) -> Result<(), TraceError> {
        let message = text(Role::User, prompt, StopReason::Completed);
        self.setup.journal.record(message.clone())?;
        self.history.push(message.cleaned());
        Ok(())
    }

    /// A line for people, outside the history.
    fn notice(&self, notice: &str) -> Result<(), TraceError> {
        self.setup.journal.record(text(Role::Assistant, notice, StopReason::Failed))
    }

    fn abort(&self, reason: String) -> Result<(), TraceError> {
        self.setup.journal.record(Event::Abort(Abort { reason: Some(reason), extra: Extra::new() }))
    }
}

#[derive(Default)]
struct Progress {
    turns: u32,
    text: String,
}

fn text(role: Role, text: &str, stop: StopReason) -> ModelMessage {
    ModelMessage::Text(Text::new(role, text, stop))
}
