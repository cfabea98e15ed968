//! The one door: every call of every tool comes through here, and every result leaves here.
//!
//! ```text
//! tool call → registry → arguments against the schema → prepare → gate → permit → run, raced → close-out → result
//! ```
//!
//! This file reads as that line, top to bottom. Nothing throws into the loop above: whatever goes wrong becomes a result that the model
//! can read. The one exception is a trace that cannot be written, which ends the run.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode},
    args,
    call::CheckedCall,
    message::{CallStarted, Event, Extra, SandboxEvent, ToolCallOutput, ToolListReady},
    outcome::{Ending, StopReason},
    policy::{Advice, Facts, Policy, SandboxMode},
    tool::{Bound, ExecutionMode, ToolCall, ToolSpec},
};

use crate::{
    approver::{Approver, OnAsk, Unattended},
    batch::{Batch, join_in_order},
    close_out::{CloseOut, close_unrun},
    fetch::Fetch,
    files::{Files, local::LocalFiles, seen::Seen},
    gate::{Gate, Passage, Permit},
    hooks::{Attended, Hook, HookEvent, Hooks, Occasion},
    ids,
    notice::Notices,
    output::{bounded, spill::SpillFolder},
    process::table::{CommandSessions, CommandSetup},
    race::{caught, race},
    registry::{Entry, Registry},
    tool::{CheckContext, Done, Limits, ToolContext, ToolError},
    trace::{Journal, TraceError, Unwatched},
    workspace::Workspace,
};

/// Calls of one batch that run at the same time by default; more would only wait for the same two or eight cores.
pub const MAX_PARALLEL: usize = 8;

/// Calls of one answer that are looked at. Each of them is checked, asked about and kept in memory at once; no model that works needs
/// half as many, and one that fell into a loop must not put a thousand questions.
const MOST_CALLS: usize = 128;

/// How long a tool may take to say what a call would do. It looks at files at most; a person who pressed Ctrl-C must not wait for it.
const LONGEST_PREPARE: Duration = Duration::from_secs(5);

/// Everything that an environment is made of. Nothing is looked up elsewhere.
pub struct Setup {
    /// The session that the calls belong to.
    pub session: String,
    /// The tools.
    pub registry: Registry,
    /// Who gives the rules and answers questions.
    pub approver: Arc<dyn Approver>,
    /// Where everything is written.
    pub journal: Arc<Journal>,
    /// The folder that tools are bound to.
    pub workspace: Workspace,
    /// Files and folders, as tools see them from there.
    pub files: Arc<dyn Files>,
    /// What fetches; none where nothing comes from elsewhere.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// Whether the model sees images; a tool that reads anything shows one only then.
    pub vision: bool,
    /// What commands run in.
    pub commands: CommandSetup,
    /// Programs that are asked about calls, in their order.
    pub hooks: Vec<Hook>,
    /// Where outputs go of which the model reads a part; none keeps only that part.
    pub spills: Option<SpillFolder>,
    /// Whether calls of one answer may run beside each other; else every batch runs in call order.
    pub parallel: bool,
    /// How many of them run at the same time; at least one does.
    pub max_parallel: usize,
}

impl Setup {
    /// The closed defaults: no tools, no commands, no trace, and every call denied. The caller opens what it wants open.
    pub fn new(workspace: Workspace) -> Self {
        let files = Arc::new(LocalFiles::new(&workspace, None));
        Self {
            session: ids::session_id(),
            registry: Registry::default(),
            approver: Arc::new(Unattended::new(ApprovalMode::DenyAll, Policy::default(), OnAsk::Deny)),
            journal: Arc::new(Journal::new(None, Arc::new(Unwatched))),
            workspace,
            files,
            fetch: None,
            vision: false,
            commands: CommandSetup::none(),
            hooks: Vec::new(),
            spills: None,
            parallel: true,
            max_parallel: MAX_PARALLEL,
        }
    }
}

/// Runs calls and closes them.
pub struct Environment {
    registry: Registry,
    callable: Arc<[String]>,
    gate: Gate,
    hooks: Arc<Hooks>,
    journal: Arc<Journal>,
    commands: Arc<CommandSessions>,
    workspace: Arc<Workspace>,
    files: Arc<dyn Files>,
    fetch: Option<Arc<dyn Fetch>>,
    vision: bool,
    seen: Arc<Seen>,
    notices: Arc<Notices>,
    spills: Option<SpillFolder>,
    parallel: bool,
    slots: Semaphore,
    facts: Facts,
}

/// What came of a call's check.
enum Checked {
    /// It can be decided on, with what hooks said of it.
    Call(Box<CheckedCall>, Option<Advice>),
    /// It cannot, and has its result.
    Closed(CallEnd),
}

/// Whether a call would come out differently if it overtook the other.
fn must_follow(call: &Checked, before: &Checked) -> bool {
    matches!((call, before), (Checked::Call(call, _), Checked::Call(before, _)) if call.disturbs(before))
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum CallEnd {
    /// It has its result, and this is what ended it.
    Closed(ToolCallOutput, Ending),
    /// Its question stays open, and it has no result.
    Waiting(ApprovalKey),
}

impl Environment {
    /// An environment for one session.
    pub fn new(setup: Setup) -> Self {
        // Until a sandbox can be set up, none is in force, and that is what the gate is told.
        let facts = Facts { sandbox: SandboxMode::Off };
        let notices = Arc::new(Notices::default());
        let commands =
            CommandSessions::new(setup.commands, setup.spills.clone(), setup.journal.clone(), notices.clone());
        let commands = Arc::new(commands);
        let folder = setup.workspace.root();
        let hooks = Hooks::new(setup.hooks, commands.clone(), setup.journal.clone(), setup.session.clone(), folder);
        let hooks = Arc::new(hooks);
        let approver = Arc::new(Attended { hooks: hooks.clone(), behind: setup.approver });
        Self {
            gate: Gate::new(setup.session, approver, setup.journal.clone(), facts),
            hooks,
            callable: setup.registry.callable().map(str::to_owned).collect(),
            registry: setup.registry,
            journal: setup.journal,
            commands,
            workspace: Arc::new(setup.workspace),
            files: setup.files,
            fetch: setup.fetch,
            vision: setup.vision,
            seen: Arc::default(),
            notices,
            spills: setup.spills,
            parallel: setup.parallel,
            slots: Semaphore::new(setup.max_parallel.clamp(1, Semaphore::MAX_PERMITS)),
            facts,
        }
    }

    /// The tools that can be called, which are those that the model is told of.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.registry.specs()
    }

    /// Records what can be called and what confines commands. A trace says both before its first call.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn announce(&self) -> Result<(), TraceError> {
        let tools = self.specs().map(ToolSpec::for_model).collect();
        self.journal.record(Event::ToolListReady(ToolListReady { tools, extra: Extra::new() }))?;
        let mode = self.facts.sandbox.as_str().into();
        self.journal.record(Event::Sandbox(SandboxEvent { tier: "C".into(), mode, extra: Extra::new() }))
    }

    /// One call, from the model's words to its result.
    ///
    /// # Errors
    /// When the trace cannot be written; nothing more may run then.
    pub async fn call(&self, call: ToolCall, interrupt: &CancellationToken) -> Result<CallEnd, TraceError> {
        let checked = self.check(&call, interrupt).await?;
        self.journal.sync_beside();
        self.pass_and_run(&call, checked, &Batch::new(1, |_, _| false), 0, interrupt).await
    }

    /// The calls of one response. Checks run in call order at once, questions are put together, and each call runs on its own answer:
    /// beside the others, or in order when one of their tools is sequential or they touch the same place. Results come back in call order.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub async fn call_all(
        &self,
        calls: Vec<ToolCall>,
        interrupt: &CancellationToken,
    ) -> Result<Vec<CallEnd>, TraceError> {
        let is_sequential = |entry: &Entry| entry.spec.execution == ExecutionMode::Sequential;
        let sequential = calls.iter().filter_map(|call| self.registry.get(&call.name)).any(is_sequential);
        let mut checked = Vec::with_capacity(calls.len());
        for (number, call) in calls.iter().enumerate() {
            checked.push(if number < MOST_CALLS {
                self.check(call, interrupt).await?
            } else {
                self.close_surplus(call)?
            });
        }
        let sequential = sequential || !self.parallel;
        let batch = Batch::new(calls.len(), |call, before| sequential || must_follow(&checked[call], &checked[before]));
        // Once a turn, beside the commands: a power cut costs at most this one.
        self.journal.sync_beside();
        let ends = calls.iter().zip(checked).enumerate();
        join_in_order(ends.map(|(number, (call, checked))| self.pass_and_run(call, checked, &batch, number, interrupt)))
            .await
    }

    /// Gate and run: what a checked call has still before it.
    async fn pass_and_run(
        &self,
        call: &ToolCall,
        checked: Checked,
        batch: &Batch,
        number: usize,
        interrupt: &CancellationToken,
    ) -> Result<CallEnd, TraceError> {
        let passage = match checked {
            Checked::Call(checked, advice) => self.gate.pass(*checked, advice, interrupt).await,
            Checked::Closed(closed) => {
                batch.place(number).await;
                return Ok(closed);
            }
        };
        let mut place = batch.place(number).await;
        let end = match passage? {
            // What stands behind an open question in a sequential batch stays open with it.
            Passage::Permitted(permit) if place.behind_question => CallEnd::Waiting(self.gate.key(permit.call())),
            Passage::Permitted(permit) => {
                let _slot = self.slots.acquire().await;
                // Nothing starts that was interrupted before.
                if interrupt.is_cancelled() {
                    self.close_interrupted(&call.id)?
                } else {
                    self.run(*permit, interrupt).await?
                }
            }
            Passage::Denied(decision) => self.close_unrun(&call.id, decision.denial_text(), Ending::Denied)?,
            Passage::Interrupted => self.close_interrupted(&call.id)?,
            Passage::Waiting(key) => CallEnd::Waiting(key),
        };
        place.question_open = matches!(end, CallEnd::Waiting(_));
        Ok(end)
    }

    /// Ends everything that this run started. An interrupt leaves nothing running.
    pub async fn interrupt(&self) {
        for tool in self.registry.tools() {
            tool.interrupt().await;
        }
        self.commands.end_all("the run was interrupted").await;
    }

    /// Ends everything that the session started and waits until it is gone.
    pub async fn close(&self) {
        self.notices.close();
        for tool in self.registry.tools() {
            tool.close().await;
        }
        self.commands.close().await;
    }

    /// What ended in the background and was not told yet.
    pub fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// The command sessions of this environment.
    pub fn commands(&self) -> &Arc<CommandSessions> {
        &self.commands
    }

    /// The hooks of this environment. The loop above asks them about what is no call.
    pub fn hooks(&self) -> &Arc<Hooks> {
        &self.hooks
    }

    /// From the model's words to a call that can be decided on; a call that cannot be is closed here.
    async fn check(&self, call: &ToolCall, interrupt: &CancellationToken) -> Result<Checked, TraceError> {
        let Some(entry) = self.registry.get(&call.name) else {
            return self.close_unchecked(call, format!("Unknown tool: {}", bounded(&call.name)));
        };
        let checked = match self.prepare(entry, call, None).await {
            Ok(checked) => self.consult(entry, call, checked, interrupt).await,
            Err(error) => Err(error),
        };
        match checked {
            Ok((checked, advice)) => Ok(Checked::Call(Box::new(checked), advice)),
            Err(ToolError(reason)) => self.close_unchecked(call, reason),
        }
    }

    /// Hooks speak of the call. Arguments that one of them changed are checked like the model's own, and it is that call which is decided
    /// on.
    async fn consult(
        &self,
        entry: &Entry,
        call: &ToolCall,
        checked: CheckedCall,
        interrupt: &CancellationToken,
    ) -> Result<(CheckedCall, Option<Advice>), ToolError> {
        let heard = self.hooks.hear(Occasion::BeforeCall(&checked), interrupt).await;
        let Some((args, hook)) = heard.input.filter(|(args, _)| args != checked.args()) else {
            return Ok((checked, heard.advice));
        };
        let changed = ToolCall { arguments: Value::Object(args).to_string(), ..call.clone() };
        let again = self.prepare(entry, &changed, Some((&hook, &checked))).await;
        let again = again.map_err(|error| ToolError(format!("The hook {hook} changed the arguments. {error}")))?;
        Ok((again, heard.advice))
    }

    /// `changed` names the hook whose arguments these are, where they are not the model's, and the call as the model wanted it.
    async fn prepare(
        &self,
        entry: &Entry,
        call: &ToolCall,
        changed: Option<(&str, &CheckedCall)>,
    ) -> Result<CheckedCall, ToolError> {
        let schema = entry
            .schema()
            .map_err(|reason| ToolError(format!("The tool {} cannot be called: {reason}", entry.spec.name)))?;
        let mut checked =
            args::check_mended(&entry.spec.name, schema, &call.arguments, &|args| entry.tool.mend(&entry.spec, args))
                .map_err(ToolError)?;
        let cx =
            CheckContext { workspace: self.workspace.clone(), files: self.files.clone(), fetch: self.fetch.clone() };
        let prepared = caught(Box::pin(async { entry.tool.prepare(&checked.args, &cx).await }));
        let mut prepared = tokio::time::timeout(LONGEST_PREPARE, prepared).await.map_err(|_| {
            ToolError(format!(
                "The tool {} did not say within {LONGEST_PREPARE:?} what the call would do.",
                entry.spec.name
            ))
        })??;
        if let Some((hook, wanted)) = changed {
            // Who decides sees it, and so does the model.
            let what = format!("[arguments changed by the hook {hook}]");
            prepared.summary = format!("{} {what}", prepared.summary);
            checked.notes = [wanted.notes(), &checked.notes, &[what]].concat();
        }
        Ok(CheckedCall::new(call.id.clone(), &entry.spec, checked.args, checked.notes, prepared))
    }

    async fn run(&self, permit: Permit, interrupt: &CancellationToken) -> Result<CallEnd, TraceError> {
        let (call_id, mut notes) = (permit.call().id().to_owned(), permit.call().notes().to_vec());
        let call = self.hooks.hear_of(HookEvent::PostToolUse).then(|| permit.call().clone());
        let Some(entry) = self.registry.get(permit.call().tool()) else {
            let text = format!("Unknown tool: {}", permit.call().tool());
            return self.close_unrun(&call_id, text, Ending::Denied);
        };
        let summary = Some(permit.call().summary().to_owned());
        self.journal.record(Event::CallStarted(CallStarted {
            tool_call_id: call_id.clone(),
            summary,
            extra: Extra::new(),
        }))?;
        let frame = CloseOut::open(&self.journal, &call_id, entry.spec.bound, self.spills.clone());
        let limits = Limits { timeout_ms: time_limit(entry, permit.call()), bound: entry.spec.bound };
        let cx = ToolContext {
            out: frame.sink(),
            cancel: interrupt.child_token(),
            limits,
            workspace: self.workspace.clone(),
            files: self.files.clone(),
            fetch: self.fetch.clone(),
            vision: self.vision,
            seen: self.seen.clone(),
            notices: self.notices.clone(),
            commands: self.commands.clone(),
            callable: self.callable.clone(),
        };
        let (mut ending, done) = race(entry, permit, cx, interrupt).await;
        if let Some(call) = call {
            ending = self.hear_after(&call, &frame, &done, ending, &mut notes, interrupt).await;
        }
        let output = frame.finish(&ending, notes, done)?;
        Ok(CallEnd::Closed(output, ending))
    }

    /// Hooks speak of a call that ran: what they say stands in its result, and one that blocks makes a success a failure.
    async fn hear_after(
        &self,
        call: &CheckedCall,
        frame: &CloseOut,
        done: &Done,
        ending: Ending,
        notes: &mut Vec<String>,
        interrupt: &CancellationToken,
    ) -> Ending {
        let (output, stop) = (frame.output(), ending.stop_reason());
        let after = Occasion::AfterCall { call, output: &output, note: done.note.as_deref(), stop };
        let heard = self.hooks.hear(after, interrupt).await;
        notes.extend_from_slice(&heard.context);
        let Some(reason) = heard.blocked() else { return ending };
        notes.push(format!("[{reason}]"));
        match ending {
            Ending::Returned(StopReason::Completed) => Ending::Returned(StopReason::Failed),
            worse => worse,
        }
    }

    fn close_interrupted(&self, call_id: &str) -> Result<CallEnd, TraceError> {
        self.close_unrun(call_id, Ending::Interrupted.marker().unwrap_or_default(), Ending::Interrupted)
    }

    fn close_unrun(&self, call_id: &str, text: String, ending: Ending) -> Result<CallEnd, TraceError> {
        Ok(CallEnd::Closed(close_unrun(&self.journal, call_id, text)?, ending))
    }

    fn close_surplus(&self, call: &ToolCall) -> Result<Checked, TraceError> {
        let reason = format!("Not run: an answer may hold {MOST_CALLS} calls. Send this call again in a later answer.");
        self.close_unchecked(call, reason)
    }

    fn close_unchecked(&self, call: &ToolCall, reason: String) -> Result<Checked, TraceError> {
        self.gate.refuse(&call.id, &reason)?;
        let frame = CloseOut::open(&self.journal, &call.id, Bound::default(), None);
        frame.sink().write(reason.as_bytes());
        let ending = Ending::Returned(StopReason::Failed);
        let output = frame.finish(&ending, Vec::new(), Done::default())?;
        Ok(Checked::Closed(CallEnd::Closed(output, ending)))
    }
}

/// The tool's own limit, or the shorter one that the call asks for; none without either.
fn time_limit(entry: &Entry, call: &CheckedCall) -> Option<u64> {
    let own = u64::try_from(entry.spec.timeout_ms).ok().filter(|ms| *ms > 0);
    own.into_iter().chain(entry.tool.time_limit(call.args())).min()
}
