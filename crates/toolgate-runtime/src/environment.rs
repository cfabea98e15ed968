//! The one door: every call of every tool comes through here, and every result leaves here.
//!
//! ```text
//! tool call → registry → arguments against the schema → prepare → gate → permit → run, raced → close-out → result
//! ```
//!
//! This file reads as that line, top to bottom. Nothing throws into the loop above: whatever goes wrong becomes a result that the model
//! can read. The one exception is a trace that cannot be written, which ends the run.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, task::Poll, time::Duration};

use tokio::sync::{Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode},
    args,
    call::CheckedCall,
    message::{CallStarted, Event, Extra, SandboxEvent, ToolCallOutput, ToolListReady},
    outcome::{Ending, StopReason},
    policy::{Facts, Policy, SandboxMode},
    tool::{DEFAULT_MAX_OUTPUT_LENGTH, ExecutionMode, ToolCall, ToolSpec, Truncate},
};

use crate::{
    BoxFuture,
    approver::{Approver, OnAsk, Unattended},
    close_out::{CloseOut, bound, bound_of, close_unrun},
    gate::{Gate, Passage, Permit},
    ids,
    output::{bounded, spill::SpillFolder},
    process::table::{CommandSessions, CommandSetup},
    registry::{Entry, Registry},
    tool::{CheckContext, Done, Limits, ToolContext, ToolError},
    trace::{Journal, TraceError, Unwatched},
    workspace::Workspace,
};

/// Calls of one batch that run at the same time; more would only wait for the same two or eight cores.
const MAX_PARALLEL: usize = 8;

/// How long a tool that was told to stop may take to say its last words, before it is abandoned. Long enough to collect output that is
/// already there, short enough that a person who pressed Ctrl-C does not notice.
const LAST_WORDS: Duration = Duration::from_millis(250);

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
    /// What commands run in.
    pub commands: CommandSetup,
    /// Where outputs go of which the model reads a part; none keeps only that part.
    pub spills: Option<SpillFolder>,
}

impl Setup {
    /// The closed defaults: no tools, no commands, no trace, and every call denied. The caller opens what it wants open.
    pub fn new(workspace: Workspace) -> Self {
        Self {
            session: ids::session_id(),
            registry: Registry::default(),
            approver: Arc::new(Unattended::new(ApprovalMode::DenyAll, Policy::default(), OnAsk::Deny)),
            journal: Arc::new(Journal::new(None, Arc::new(Unwatched))),
            workspace,
            commands: CommandSetup::none(),
            spills: None,
        }
    }
}

/// Runs calls and closes them.
pub struct Environment {
    registry: Registry,
    gate: Gate,
    journal: Arc<Journal>,
    commands: Arc<CommandSessions>,
    workspace: Arc<Workspace>,
    spills: Option<SpillFolder>,
    slots: Semaphore,
    facts: Facts,
}

/// How far a sequential batch has come.
#[derive(Default)]
struct Turn {
    /// Calls that are over.
    done: usize,
    /// One of them waits for its answer.
    held: bool,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum CallEnd {
    /// It has its result.
    Closed(ToolCallOutput),
    /// Its question stays open, and it has no result.
    Waiting(ApprovalKey),
}

impl Environment {
    /// An environment for one session.
    pub fn new(setup: Setup) -> Self {
        // Until a sandbox can be set up, none is in force, and that is what the gate is told.
        let facts = Facts { sandbox: SandboxMode::Off };
        let commands = Arc::new(CommandSessions::new(setup.commands, setup.spills.clone(), setup.journal.clone()));
        Self {
            gate: Gate::new(setup.session, setup.approver, setup.journal.clone(), facts),
            registry: setup.registry,
            journal: setup.journal,
            commands,
            workspace: Arc::new(setup.workspace),
            spills: setup.spills,
            slots: Semaphore::new(MAX_PARALLEL),
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
        match self.check(&call).await? {
            Ok(checked) => match self.gate.pass(checked, interrupt).await? {
                Passage::Permitted(permit) => self.run(*permit, interrupt).await.map(CallEnd::Closed),
                refused => self.close_refused(&call.id, refused),
            },
            Err(closed) => Ok(CallEnd::Closed(closed)),
        }
    }

    /// The calls of one response. Checks run in call order at once, questions are put together, and each call runs on its own answer:
    /// beside the others, or in order when one of their tools is sequential. Results come back in call order.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub async fn call_all(
        &self,
        calls: Vec<ToolCall>,
        interrupt: &CancellationToken,
    ) -> Result<Vec<CallEnd>, TraceError> {
        let sequential = calls
            .iter()
            .filter_map(|call| self.registry.get(&call.name))
            .any(|entry| entry.spec.execution == ExecutionMode::Sequential);
        let mut checked = Vec::with_capacity(calls.len());
        for call in &calls {
            checked.push(self.check(call).await?);
        }
        // Once a turn, beside the commands: a power cut costs at most this one.
        self.journal.sync_beside();
        let (turns, _) = watch::channel(Turn::default());
        let ends = checked.into_iter().zip(&calls).enumerate().map(|(place, (checked, call))| {
            let turns = &turns;
            async move {
                let passage = match checked {
                    Ok(checked) => Ok(self.gate.pass(checked, interrupt).await),
                    Err(closed) => Err(closed),
                };
                let mut held = false;
                if sequential && let Ok(turn) = turns.subscribe().wait_for(|turn| turn.done == place).await {
                    held = turn.held;
                }
                let end = match passage {
                    // What stands behind an open question in a sequential batch stays open with it.
                    Ok(Ok(Passage::Permitted(permit))) if held => Ok(CallEnd::Waiting(self.gate.key(permit.call()))),
                    Ok(Ok(Passage::Permitted(permit))) => {
                        let _slot = self.slots.acquire().await;
                        self.run(*permit, interrupt).await.map(CallEnd::Closed)
                    }
                    Ok(Ok(refused)) => self.close_refused(&call.id, refused),
                    Ok(Err(error)) => Err(error),
                    Err(closed) => Ok(CallEnd::Closed(closed)),
                };
                let waits = matches!(end, Ok(CallEnd::Waiting(_)));
                turns.send_modify(|turn| *turn = Turn { done: turn.done + 1, held: turn.held || waits });
                end
            }
        });
        join_in_order(ends).await
    }

    /// Ends every command that this run started. An interrupt leaves none of them running.
    pub async fn interrupt(&self) {
        self.commands.end_all("the run was interrupted").await;
    }

    /// Ends the session's commands and waits until they are gone.
    pub async fn close(&self) {
        self.commands.close().await;
    }

    /// The command sessions of this environment.
    pub fn commands(&self) -> &Arc<CommandSessions> {
        &self.commands
    }

    /// From the model's words to a call that can be decided on; a call that cannot be is closed here.
    async fn check(&self, call: &ToolCall) -> Result<Result<CheckedCall, ToolCallOutput>, TraceError> {
        let Some(entry) = self.registry.get(&call.name) else {
            return self.close_unchecked(call, format!("Unknown tool: {}", bounded(&call.name))).map(Err);
        };
        match self.prepare(entry, call).await {
            Ok(checked) => Ok(Ok(checked)),
            Err(ToolError(reason)) => self.close_unchecked(call, reason).map(Err),
        }
    }

    async fn prepare(&self, entry: &Entry, call: &ToolCall) -> Result<CheckedCall, ToolError> {
        let schema = entry
            .schema()
            .map_err(|reason| ToolError(format!("The tool {} cannot be called: {reason}", entry.spec.name)))?;
        let checked = args::check(&entry.spec.name, schema, &call.arguments).map_err(ToolError)?;
        let cx = CheckContext { workspace: self.workspace.clone() };
        let prepared = caught(entry.tool.prepare(&checked.args, &cx));
        let prepared = tokio::time::timeout(LONGEST_PREPARE, prepared).await.map_err(|_| {
            ToolError(format!(
                "The tool {} did not say within {LONGEST_PREPARE:?} what the call would do.",
                entry.spec.name
            ))
        })??;
        Ok(CheckedCall::new(call.id.clone(), &entry.spec, checked.args, checked.notes, prepared))
    }

    async fn run(&self, permit: Permit, interrupt: &CancellationToken) -> Result<ToolCallOutput, TraceError> {
        let (call_id, notes) = (permit.call().id().to_owned(), permit.call().notes().to_vec());
        let Some(entry) = self.registry.get(permit.call().tool()) else {
            return close_unrun(&self.journal, &call_id, format!("Unknown tool: {}", permit.call().tool()));
        };
        let summary = Some(permit.call().summary().to_owned());
        self.journal.record(Event::CallStarted(CallStarted {
            tool_call_id: call_id.clone(),
            summary,
            extra: Extra::new(),
        }))?;
        let frame = CloseOut::open(&self.journal, &call_id, bound_of(&entry.spec), self.spills.clone());
        let limits = Limits { timeout_ms: u64::try_from(entry.spec.timeout_ms).ok().filter(|ms| *ms > 0) };
        let cx = ToolContext {
            out: frame.sink(),
            cancel: interrupt.child_token(),
            limits,
            workspace: self.workspace.clone(),
            commands: self.commands.clone(),
        };
        let (ending, done) = race(entry, permit, cx, interrupt).await;
        frame.finish(&ending, notes, done)
    }

    fn close_refused(&self, call_id: &str, passage: Passage) -> Result<CallEnd, TraceError> {
        let text = match passage {
            Passage::Waiting(key) => return Ok(CallEnd::Waiting(key)),
            Passage::Denied(decision) => decision.denial_text(),
            Passage::Permitted(_) | Passage::Interrupted => Ending::Interrupted.marker().unwrap_or_default(),
        };
        close_unrun(&self.journal, call_id, text).map(CallEnd::Closed)
    }

    fn close_unchecked(&self, call: &ToolCall, reason: String) -> Result<ToolCallOutput, TraceError> {
        self.gate.refuse(&call.id, &reason)?;
        let frame = CloseOut::open(&self.journal, &call.id, bound(DEFAULT_MAX_OUTPUT_LENGTH, Truncate::Head), None);
        frame.sink().write(reason.as_bytes());
        frame.finish(&Ending::Returned(StopReason::Failed), Vec::new(), Done::default())
    }
}

/// Runs a tool against its time limit and the person's interrupt. Both win over whatever the tool says, and a tool that ignores them is
/// abandoned: the call still closes on time.
async fn race(entry: &Entry, permit: Permit, cx: ToolContext, interrupt: &CancellationToken) -> (Ending, Done) {
    let (tool, cancel, limit) = (entry.tool.clone(), cx.cancel.clone(), cx.limits.timeout_ms);
    let mut task = AbortOnDropHandle::new(tokio::spawn(async move { tool.run(permit, &cx).await }));
    let time_is_up = async {
        match limit {
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            None => std::future::pending().await,
        }
    };
    let cut_short = tokio::select! {
        biased;
        () = interrupt.cancelled() => Ending::Interrupted,
        joined = &mut task => {
            let (ending, done) = returned(joined);
            // A tool that came back because it was interrupted was interrupted, whatever it says.
            return if interrupt.is_cancelled() { (Ending::Interrupted, done) } else { (ending, done) };
        }
        () = time_is_up => Ending::TimedOut(limit.unwrap_or_default()),
    };
    cancel.cancel();
    let done = match tokio::time::timeout(LAST_WORDS, &mut task).await {
        Ok(Ok(Ok(done))) => done,
        _ => Done::default(),
    };
    (cut_short, done)
}

/// Turns a panic of a tool's own code into an error that the model can read.
async fn caught<T>(mut future: BoxFuture<'_, Result<T, ToolError>>) -> Result<T, ToolError> {
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        polled.unwrap_or_else(|payload| {
            Poll::Ready(Err(ToolError(format!("the tool panicked: {}", panic_text(payload.as_ref())))))
        })
    })
    .await
}

fn returned(joined: Result<Result<Done, ToolError>, tokio::task::JoinError>) -> (Ending, Done) {
    match joined {
        Ok(Ok(done)) => (Ending::Returned(done.stop.unwrap_or(StopReason::Completed)), done),
        Ok(Err(ToolError(message))) => (Ending::Errored(message), Done::default()),
        Err(error) if error.is_panic() => (
            Ending::Errored(format!("the tool panicked: {}", panic_text(error.into_panic().as_ref()))),
            Done::default(),
        ),
        Err(_) => (Ending::Errored("the tool was stopped".into()), Done::default()),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Polls all of them together and returns what they gave in their own order.
async fn join_in_order<T, E>(futures: impl Iterator<Item = impl Future<Output = Result<T, E>>>) -> Result<Vec<T>, E> {
    let mut open: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<Option<Result<T, E>>> = open.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (slot, out) in open.iter_mut().zip(&mut done) {
            if let Some(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *out = Some(value);
                *slot = None;
            }
        }
        if open.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
