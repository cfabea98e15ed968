//! A session: prompts go in, runs come out, and everything that happens stands in one trace.
//!
//! A **run** is one prompt until the agent stops; a **turn** is one model request and its calls. A session that a crash cut off goes on
//! from its trace: committed turns only, nothing run twice, an open question still open under its key.
//!
//! Beside the loop stand what a person says meanwhile ([`Steering`]), making a conversation shorter ([`CompactionOptions`]), and what a
//! provider refuses for ever (`quarantine`).

mod compaction;
mod hooked;
mod quarantine;
mod steering;

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::ApprovalKey,
    message::{
        Abort, CompactionEnd, Event, Extra, ModelMessage, RequestBegin, Role, SessionMeta, Text, Tokens, ToolCallOutput,
    },
    outcome::StopReason,
    tool::ToolCall,
};
use toolgate_runtime::{
    close_out::result,
    environment::{CallEnd, Environment, Setup},
    trace::{Journal, TraceError, now},
};

use crate::{
    history::{Item, Rebuilt, calls_of},
    prompt::{Surroundings, system_prompt},
    provider::{ErrorClass, Provider, ProviderError, Request, Stop, ThinkingLevel},
    retry::{Attempts, aborted, broken_off},
    turn::{Answered, Asking, TurnEnd, ask, request_end},
};

pub use compaction::{Compacted, CompactionMode, CompactionOptions};
use quarantine::{Suspicion, take_out};
pub use steering::{Steering, Ticket};

/// How long the first request has to leave before anything else may take the processor: the login shell is read beside the model's
/// answer and must not delay the question.
const AFTER_FIRST_REQUEST: std::time::Duration = std::time::Duration::from_millis(2);

/// What the model reads about a call that a crash cut off.
const OUTCOME_UNKNOWN: &str =
    "[interrupted: outcome unknown; toolgate ended while this call ran, so it may have taken effect in part]";

/// What the model reads about the calls of an answer that was cut off or held back.
const CUT: &str = "[not run: the answer was cut off by its length limit or held back by the provider; send the call again, in smaller \
                   parts if it is long]";

/// What the model reads, in a session that was forked, about the calls that were still open in the other one.
const FORKED: &str = "[not run: this session was forked from another one while the call was open there]";

/// Who speaks in a person's place: toolgate, or the session that this one works for (PenguinHarness's words).
const FROM_TOOLGATE: &str = "harness";
const FROM_PARENT: &str = "parent_agent";

/// How often a provider may want a turn back before it is taken for an answer; a server-side tool that never comes to an end must not
/// keep a run for ever.
const MAX_PAUSES: u32 = 16;

/// The bound of an answer where a window is known and nothing else is said; tokens (PenguinHarness's number).
const DEFAULT_MAX_TOKENS: u64 = 32_000;

/// What an estimate may be wrong by; tokens (PenguinHarness's number).
const ESTIMATE_SLACK: u64 = 1_024;

/// A shorter answer is of no use, so an overfull window is left to the provider to refuse; tokens (PenguinHarness's number).
const SHORTEST_ANSWER: u64 = 512;

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
    /// Whether another session speaks to it and no person.
    pub is_child: bool,
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

impl SessionSetup {
    /// A session whose environment is made of this, with instructions that name its tools. Its journal is the environment's.
    pub fn new(provider: Arc<dyn Provider>, setup: Setup) -> Self {
        let (id, journal, folder) = (setup.session.clone(), setup.journal.clone(), setup.workspace.root().to_owned());
        let environment = Arc::new(Environment::new(setup));
        let now = now();
        let date = now.get(.."2026-01-01".len()).unwrap_or_default();
        let surroundings = Surroundings { workspace: &folder, platform: std::env::consts::OS, date };
        let system = system_prompt(environment.specs(), &surroundings);
        let (workspace, options) = (folder.display().to_string(), RunOptions::default());
        Self { id, provider, environment, journal, system, workspace, is_child: false, options }
    }

    /// The head of each of its trace files.
    fn meta(&self) -> SessionMeta {
        let model = self.provider.model();
        SessionMeta {
            session_id: self.id.clone(),
            provider: model.provider.clone(),
            model_id: model.model.clone(),
            model_context_window: self.options.context_window.map_or_else(|| "unknown".into(), Into::into),
            system_prompt: self.system.clone(),
            agent_state: serde_json::Value::Null,
            workspace: self.workspace.clone(),
            source: self.is_child.then(|| "subagent".to_owned()),
            extra: Extra::new(),
        }
    }
}

/// A session with a model.
pub struct Session {
    setup: SessionSetup,
    tools: Vec<serde_json::Value>,
    history: Vec<ModelMessage>,
    /// How much of the history a provider has accepted.
    accepted: usize,
    suspicion: Suspicion,
    /// Tokens of the session and of its last request.
    used: Tokens,
    last: Tokens,
    /// Answered requests since the context began.
    turns: u32,
    /// The ids of all calls: no context of a session may use one twice, since questions are keyed by them.
    ids: HashSet<String>,
    /// Calls of the last answer that have no result yet.
    open: Vec<ToolCall>,
    /// Results of that answer that are there already.
    answered: Vec<ToolCallOutput>,
    /// The calls of that answer, in order.
    batch: Vec<String>,
    steering: Steering,
    announced: bool,
    started: bool,
    /// Whether it goes on from a trace.
    resumed: bool,
    /// Whether hooks know of it.
    greeted: bool,
    /// What hooks want the model to know and it was not told yet.
    unsaid: Vec<String>,
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
    /// Why the last answer ended: a cut or withheld one is an answer too, and people should know.
    pub stop: Option<Stop>,
    /// Texts that were said into the run and that no request took along.
    pub unheard: usize,
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
    /// A hook stopped it, or did not let it begin; why.
    Stopped(String),
}

impl RunStatus {
    /// The word in the seal.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Waiting(_) => "waiting",
            Self::Limit(_) => "limit",
            Self::Failed(_) => "failed",
            Self::Interrupted | Self::Stopped(_) => "aborted",
        }
    }
}

impl Session {
    /// Begins a session and writes its head.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn begin(setup: SessionSetup) -> Result<Self, TraceError> {
        setup.journal.record(setup.meta())?;
        Ok(Self::new(setup, Vec::new()))
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
        let mut session = Self::new(setup, rebuilt.take_history());
        (session.used, session.last, session.turns) = (rebuilt.usage, rebuilt.last_request, rebuilt.turns);
        session.ids.extend(rebuilt.ids);
        session.resumed = true;
        if !open.is_empty() {
            session.reopen(open);
        }
        if let Some(begin) = rebuilt.dangling_compaction {
            session.setup.journal.record(Event::CompactionEnd(CompactionEnd {
                reason: begin.reason,
                mode: begin.mode,
                status: StopReason::Failed.as_str().into(),
                error_message: Some("toolgate ended while it was on".into()),
                attempt: None,
                extra: Extra::new(),
            }))?;
        }
        if let Some(summary) = rebuilt.closed {
            // The crash came between the end of the old context and the file of the new one.
            session.begin_context(Some(summary).filter(|summary| !summary.is_empty()))?;
        }
        Ok(session)
    }

    /// Begins a session with what another one has said so far. Its trace holds all of that, so it stands alone; what was still open in
    /// the other one stays there.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn fork(setup: SessionSetup, mut rebuilt: Rebuilt) -> Result<Self, TraceError> {
        let mut meta = setup.meta();
        meta.extra.insert("forked_from".into(), rebuilt.meta.session_id.clone().into());
        setup.journal.record(meta)?;
        for (call, _) in rebuilt.unanswered() {
            let output = result(&call.id, FORKED.into(), Vec::new(), StopReason::Aborted);
            rebuilt.outputs.insert(call.id, output);
        }
        for item in &rebuilt.items {
            match item {
                Item::Input(message) => setup.journal.record(ModelMessage::clone(message))?,
                Item::Answer(messages) => {
                    setup.journal.record(Event::RequestBegin(RequestBegin {
                        provider: None,
                        model_id: None,
                        extra: Extra::new(),
                    }))?;
                    for message in messages {
                        setup.journal.record(message.clone())?;
                    }
                    request_end(&setup.journal, StopReason::Completed, None, 1, None)?;
                    for output in calls_of(messages).filter_map(|call| rebuilt.outputs.get(&call.id)) {
                        setup.journal.record(ModelMessage::ToolCallOutput(output.clone()))?;
                    }
                }
            }
        }
        let mut session = Self::new(setup, rebuilt.take_history());
        (session.last, session.turns) = (rebuilt.last_request, rebuilt.turns);
        Ok(session)
    }

    fn new(setup: SessionSetup, history: Vec<ModelMessage>) -> Self {
        let tools = setup.environment.specs().map(|spec| spec.for_model()).collect();
        let ids = history.iter().filter_map(|message| match message {
            ModelMessage::ToolCall(call) => Some(call.tool_call_id.clone()),
            _ => None,
        });
        Self {
            tools,
            ids: ids.collect(),
            setup,
            history,
            accepted: 0,
            suspicion: Suspicion::None,
            used: Tokens::default(),
            last: Tokens::default(),
            turns: 0,
            open: Vec::new(),
            answered: Vec::new(),
            batch: Vec::new(),
            steering: Steering::default(),
            announced: false,
            started: false,
            resumed: false,
            greeted: false,
            unsaid: Vec::new(),
        }
    }

    /// The door that its calls go through.
    pub fn environment(&self) -> &Arc<Environment> {
        &self.setup.environment
    }

    /// Speaks into its runs from outside.
    pub fn steering(&self) -> Steering {
        self.steering.clone()
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
        self.steering.open();
        // What a hook ended an earlier run for is not to end this one.
        self.setup.environment.hooks().take_stop();
        let status = self.advance(prompt, interrupt, &mut progress).await;
        let unheard = self.steering.close();
        let status = status?;
        match &status {
            RunStatus::Interrupted => {
                self.setup.environment.interrupt().await;
                self.abort("aborted by user".into())?;
            }
            RunStatus::Failed(error) => self.abort(format!("llm request error: {error}"))?,
            RunStatus::Stopped(reason) => self.abort(format!("stopped by a hook: {reason}"))?,
            RunStatus::Completed | RunStatus::Waiting(_) | RunStatus::Limit(_) => {}
        }
        let Progress { turns, text, stop } = progress;
        Ok(RunEnd { status, text, used: self.used, turns, stop, unheard })
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
        if let Some(end) = self.greet(interrupt).await {
            return Ok(end);
        }
        if !self.open.is_empty() {
            self.announce()?;
            let open = std::mem::take(&mut self.open);
            if let Some(waiting) = self.call(open, interrupt).await? {
                return Ok(RunStatus::Waiting(waiting));
            }
        } else if let Some(reason) = self.compaction_due(true)
            && let Some(end) = ended_by(self.shorten(reason, interrupt).await?)
        {
            // The prompt is kept for the next run, as everything that was said is.
            if let Some(prompt) = prompt {
                self.take_prompt(prompt, interrupt).await?;
            }
            return Ok(end);
        }
        if let Some(prompt) = prompt
            && let Some(end) = self.take_prompt(prompt, interrupt).await?
        {
            return Ok(end);
        }
        self.announce()?;
        let (mut pauses, mut overflowed, mut kept) = (0, false, 0);
        loop {
            if interrupt.is_cancelled() {
                return Ok(RunStatus::Interrupted);
            }
            if let Some(limit) = self.setup.options.max_turns.filter(|limit| progress.turns >= *limit) {
                self.notice(&format!("[reached max turns ({limit}); stopping]"))?;
                return Ok(RunStatus::Limit(limit));
            }
            if let Some(reason) = self.compaction_due(false)
                && let Some(end) = ended_by(self.shorten(reason, interrupt).await?)
            {
                return Ok(end);
            }
            self.tell_notices()?;
            let mut end = None;
            for said in self.steering.take() {
                end = end.or(self.take_prompt(&said, interrupt).await?);
            }
            if let Some(end) = end {
                return Ok(end);
            }
            self.tell_context()?;
            progress.turns += 1;
            let answered = match self.answer(interrupt).await? {
                TurnEnd::Answered(answered) => answered,
                TurnEnd::Interrupted { partial } => {
                    // What had arrived is told to the model with the next prompt; the trace has it as what it was, unfinished.
                    if !partial.is_empty() {
                        self.history.push(aborted(&partial));
                    }
                    return Ok(RunStatus::Interrupted);
                }
                TurnEnd::Failed { error, .. } if error.class == ErrorClass::ContextOverflow && !overflowed => {
                    overflowed = true;
                    progress.turns -= 1;
                    match self.shorten(compaction::Reason::Context, interrupt).await? {
                        Compacted::Interrupted => return Ok(RunStatus::Interrupted),
                        Compacted::Done => continue,
                        Compacted::Failed(_) | Compacted::Nothing(_) => return Ok(RunStatus::Failed(error)),
                    }
                }
                TurnEnd::Failed { error, partial, .. } => {
                    if !partial.is_empty() {
                        self.history.push(broken_off(&partial));
                    }
                    return Ok(RunStatus::Failed(error));
                }
            };
            overflowed = false;
            let Answered { messages, text, calls, cut, stop, .. } = answered;
            self.history.extend(messages.into_iter().map(ModelMessage::cleaned));
            progress.stop = Some(stop);
            if !text.is_empty() {
                progress.text = text;
            }
            if calls.is_empty() {
                pauses += u32::from(stop == Stop::Pause);
                let more_to_hear = self.steering.is_waiting() || self.setup.environment.notices().is_waiting();
                if (stop == Stop::Pause && pauses <= MAX_PAUSES) || more_to_hear {
                    continue;
                }
                match self.stop_or_go_on(&progress.text, &mut kept, interrupt).await? {
                    Some(end) => return Ok(end),
                    None => continue,
                }
            }
            self.batch = calls.iter().map(|call| call.id.clone()).collect();
            let (cut, whole): (Vec<_>, Vec<_>) = calls
                .into_iter()
                .partition(|call| matches!(stop, Stop::MaxTokens | Stop::Filtered) || cut.contains(&call.id));
            self.refuse(&cut)?;
            if let Some(waiting) = self.call(whole, interrupt).await? {
                return Ok(RunStatus::Waiting(waiting));
            }
            if let Some(end) = self.stopped() {
                return Ok(end);
            }
        }
    }

    /// The answer to the history as it stands, asked for again as long as that makes sense.
    async fn answer(&mut self, interrupt: &CancellationToken) -> Result<TurnEnd, TraceError> {
        if !std::mem::replace(&mut self.started, true) {
            let commands = self.setup.environment.commands().clone();
            tokio::spawn(async move {
                tokio::time::sleep(AFTER_FIRST_REQUEST).await;
                commands.prepare().await;
            });
        }
        let mut attempts = Attempts::default();
        loop {
            let mut history = std::mem::take(&mut self.history);
            let length = history.len();
            history.extend(attempts.told());
            let end = self.ask(&history, &attempts, interrupt).await;
            history.truncate(length);
            self.history = history;
            match end? {
                TurnEnd::Failed { error, partial, retry_in: None } => {
                    if !take_out(&error, &mut self.suspicion, &mut self.history, self.accepted) {
                        return Ok(TurnEnd::Failed { error, partial: attempts.arrived(partial), retry_in: None });
                    }
                }
                TurnEnd::Failed { partial, retry_in: Some(wait), .. } => {
                    attempts.fail(partial);
                    if !self.wait(wait, interrupt).await {
                        return Ok(TurnEnd::Interrupted { partial: attempts.arrived(String::new()) });
                    }
                }
                TurnEnd::Answered(answered) => {
                    (self.accepted, self.suspicion) = (length, Suspicion::None);
                    self.last = answered.usage;
                    self.turns += 1;
                    return Ok(TurnEnd::Answered(answered));
                }
                interrupted @ TurnEnd::Interrupted { .. } => return Ok(interrupted),
            }
        }
    }

    /// One request about a history.
    async fn ask(
        &mut self,
        history: &[ModelMessage],
        attempts: &Attempts,
        interrupt: &CancellationToken,
    ) -> Result<TurnEnd, TraceError> {
        let options = &self.setup.options;
        let request = Request {
            system: &self.setup.system,
            tools: &self.tools,
            history,
            max_tokens: self.answer_bound(history),
            thinking: options.thinking,
        };
        let asking = Asking { provider: self.setup.provider.as_ref(), journal: &self.setup.journal, attempts };
        ask(asking, request, &mut self.used, &mut self.ids, interrupt).await
    }

    /// How long the answer may be: what was configured, and never more than the window has left. Unknown windows bound nothing.
    fn answer_bound(&self, history: &[ModelMessage]) -> Option<u64> {
        let options = &self.setup.options;
        let Some(window) = options.context_window else { return options.max_tokens };
        let known = self.accepted.min(history.len());
        let before = if known == 0 { estimate_text(&self.setup.system) } else { self.last.total };
        let asked = before + history[known..].iter().map(estimate).sum::<u64>();
        let left = window.saturating_sub(asked + ESTIMATE_SLACK).max(SHORTEST_ANSWER);
        Some(options.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS).min(left))
    }

    /// Waits before the next attempt; false when the person stopped it.
    async fn wait(&self, wait: Duration, interrupt: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = interrupt.cancelled() => false,
            () = self.steering.hurried() => true,
            () = tokio::time::sleep(wait) => true,
        }
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
        self.history.extend(answered.into_iter().map(|output| ModelMessage::ToolCallOutput(output).cleaned()));
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
        let sender = self.setup.is_child.then(|| FROM_PARENT.to_owned());
        self.hear(Text { sender, ..Text::new(Role::User, prompt, StopReason::Completed) })
    }

    fn hear(&mut self, text: Text) -> Result<(), TraceError> {
        let message = ModelMessage::Text(text);
        self.setup.journal.record(message.clone())?;
        self.history.push(message.cleaned());
        Ok(())
    }

    /// Tells the model what ended in the background since it was last told.
    fn tell_notices(&mut self) -> Result<(), TraceError> {
        for notice in self.setup.environment.notices().take() {
            let sender = Some(FROM_TOOLGATE.to_owned());
            self.hear(Text { sender, ..Text::new(Role::User, notice.text(), StopReason::Completed) })?;
        }
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
    stop: Option<Stop>,
}

/// How a compaction ends the run, if it does.
fn ended_by(compacted: Compacted) -> Option<RunStatus> {
    match compacted {
        Compacted::Done | Compacted::Nothing(_) => None,
        Compacted::Failed(error) => Some(RunStatus::Failed(error)),
        Compacted::Interrupted => Some(RunStatus::Interrupted),
    }
}

/// Tokens of a message, roughly and rather too many than too few.
fn estimate(message: &ModelMessage) -> u64 {
    /// What providers count for an image of usual size.
    const IMAGE: u64 = 1_600;
    match message {
        ModelMessage::Text(text) => estimate_text(&text.text),
        ModelMessage::Thinking(thinking) => estimate_text(&thinking.thinking),
        ModelMessage::ToolCall(call) => estimate_text(&call.arguments),
        ModelMessage::ToolCallOutput(output) => estimate_text(&output.output) + IMAGE * output.images.len() as u64,
        ModelMessage::ImageUrl(_) | ModelMessage::InlineData(_) => IMAGE,
        _ => 0,
    }
}

/// Four ASCII characters make about one token, any other character about one of its own.
fn estimate_text(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().filter(|c| !c.is_ascii()).count();
    (ascii / 4 + others) as u64
}

fn text(role: Role, text: &str, stop: StopReason) -> ModelMessage {
    ModelMessage::Text(Text::new(role, text, stop))
}
