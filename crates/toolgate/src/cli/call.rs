//! `toolgate call TOOL JSON`: one call by hand, through the same door as a model's.

use std::sync::Arc;

use clap::Args;
use serde_json::json;
use toolgate_core::{
    message::{Body, Event, Message},
    outcome::StopReason,
    policy::Policy,
    tool::ToolCall,
};
use toolgate_runtime::{
    approver::OnAsk,
    environment::CallEnd,
    ids,
    trace::{Journal, Observer, TraceFile},
};

use super::{Common, block_on, interruptible, print, state};
use crate::{
    failure::{Failure, INTERRUPTED, RUN_FAILED, TIMEOUT, WAITING},
    surroundings::Surroundings,
    wiring::{self, Wish},
};

/// Arguments of `toolgate call`.
#[derive(Args)]
pub(super) struct Call {
    /// The tool.
    tool: String,
    /// Its arguments: a JSON object.
    #[arg(default_value = "")]
    arguments: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Keeps the decision, for the output.
#[derive(Default)]
struct Watch(std::sync::Mutex<Option<serde_json::Value>>);

impl Observer for Watch {
    fn see(&self, message: &Message, _seq: Option<u64>) {
        if let Body::Event(Event::ApprovalDecision(decided)) = &message.body {
            let decision = json!({
                "decision": decided.decision,
                "source": decided.source,
                "rule": decided.rule,
                "reason": decided.reason,
            });
            *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(decision);
        }
    }
}

impl Call {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        let workspace = wiring::workspace(self.common.workspace.as_deref())?;
        let state = state(surroundings)?;
        let session = ids::session_id();
        let watch = Arc::new(Watch::default());
        let file = TraceFile::create(&state.trace_path(&session), &surroundings.secrets())?;
        let journal = Arc::new(Journal::new(Some(file), watch.clone()));
        let wish = Wish {
            spill: state.spill_folder(&session),
            session: session.clone(),
            mode: self.common.approve,
            policy: Policy::default(),
            on_ask: OnAsk::Deny,
            workspace,
            converses: false,
            login: true,
        };
        let end = block_on(async {
            let interrupt = interruptible()?;
            let environment = wiring::environment(wish, &journal, surroundings)?;
            let call = ToolCall { id: "call_1".into(), name: self.tool, arguments: self.arguments };
            // No model is asked here, so the login shell is read beside the check.
            let (end, ()) = tokio::join!(environment.call(call, &interrupt), environment.commands().prepare());
            environment.close().await;
            Ok((end?, interrupt.is_cancelled()))
        })?;
        journal.seal("completed")?;
        let (CallEnd::Closed(output), interrupted) = end else { return Ok(WAITING) };
        let decision = watch.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take().unwrap_or_default();
        let denied = decision["decision"] == "deny";
        if self.json {
            let mut value = serde_json::to_value(toolgate_core::message::ModelMessage::ToolCallOutput(output.clone()))
                .map_err(|error| Failure::run(format!("the result cannot be printed: {error}")))?;
            value["decision"] = decision.clone();
            print::json(&value);
        } else {
            print::text(&output.output);
        }
        Ok(match output.stop_reason {
            _ if interrupted => INTERRUPTED,
            Some(StopReason::Completed) => 0,
            Some(StopReason::Aborted) if denied => WAITING,
            Some(StopReason::Failed) if timed_out(&output.output) => TIMEOUT,
            _ => RUN_FAILED,
        })
    }
}

/// A call that ran out of time ends with the marker that says so.
fn timed_out(output: &str) -> bool {
    output.lines().last().is_some_and(|last| last.starts_with("[tool timeout: exceeded "))
}
