//! `toolgate call TOOL JSON`: one call by hand, through the same door as a model's.

use std::sync::Arc;

use clap::Args;
use serde_json::json;
use toolgate_agent::tools::Parts;
use toolgate_core::{
    message::{Body, Event, Extra, Message, ModelMessage, SessionMeta, ToolCallMessage, ToolCallOutput},
    outcome::{Ending, StopReason},
    tool::{ToolCall, ToolSet},
};
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    environment::{CallEnd, Environment},
    trace::Observer,
    workspace::Workspace,
};

use super::{
    Common, block_on,
    deadline::{Deadline, reached},
    interruptible, print, state,
};
use crate::{
    config::Selection,
    failure::{Failure, INTERRUPTED, RUN_FAILED, TIMEOUT, WAITING},
    recorded::Recorded,
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
        let watch = Arc::new(Watch::default());
        let mut settings = self.common.settings(Vec::new(), workspace.root(), surroundings)?;
        // A person names the tool, so none is left out unless somebody said so.
        if settings.record.of("tools.builtin").next().is_none() {
            settings.tools.builtin = Selection::Set(ToolSet::All);
        }
        let settings = Arc::new(settings);
        let secrets = settings.secrets(surroundings);
        let mut recorded = Recorded::begin(state(surroundings)?, "call", &workspace, watch.clone(), &secrets)?;
        let call = ToolCall { id: "call_1".into(), name: self.tool, arguments: self.arguments };
        begin(&recorded, &workspace, &call)?;
        let approver = Arc::new(Unattended::new(settings.mode(None), settings.policy(), OnAsk::Deny));
        let limit = settings.timeout_ms;
        let wish = Wish {
            approver,
            workspace,
            converses: false,
            vision: true,
            tools: None,
            parts: Parts::default(),
            settings,
        };
        let (end, timed_out) = block_on(async {
            let interrupt = interruptible()?;
            let deadline = Deadline::start(limit, &interrupt);
            let environment = Environment::new(wiring::environment(wish, &recorded, surroundings)?);
            environment.announce()?;
            // No model is asked here, so the login shell is read beside the check; a call that never starts does not wait for it.
            let commands = environment.commands().clone();
            tokio::spawn(async move { commands.prepare().await });
            let end = environment.call(call, &interrupt).await;
            if let Some(warning) = environment.commands().warning() {
                print::to_person(&format!("warning: {warning}; the command saw toolgate's own environment"));
            }
            environment.close().await;
            Ok((end?, deadline.passed()))
        })?;
        let status = match &end {
            CallEnd::Closed(_, ending) => ending.stop_reason().as_str(),
            CallEnd::Waiting(_) => "waiting",
        };
        recorded.seal(status)?;
        let CallEnd::Closed(output, ending) = end else { return Ok(WAITING) };
        let decision = watch.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take().unwrap_or_default();
        self::show(&output, &decision, self.json)?;
        Ok(match ending {
            Ending::Returned(StopReason::Completed) => 0,
            Ending::Denied => WAITING,
            Ending::TimedOut(_) => TIMEOUT,
            Ending::Interrupted if timed_out => {
                print::to_person(&reached(limit));
                TIMEOUT
            }
            Ending::Interrupted => INTERRUPTED,
            Ending::Errored(_) | Ending::Returned(_) => RUN_FAILED,
        })
    }
}

/// The trace of a call by hand: a session without a model, in which a person wrote the call.
fn begin(recorded: &Recorded, workspace: &Workspace, call: &ToolCall) -> Result<(), Failure> {
    recorded.journal.record(SessionMeta {
        session_id: recorded.id(),
        provider: "none".into(),
        model_id: "none".into(),
        model_context_window: "unknown".into(),
        system_prompt: String::new(),
        agent_state: serde_json::Value::Null,
        workspace: workspace.root().display().to_string(),
        source: None,
        extra: Extra::new(),
    })?;
    recorded.journal.record(ModelMessage::ToolCall(ToolCallMessage::new(call)))?;
    Ok(())
}

fn show(output: &ToolCallOutput, decision: &serde_json::Value, as_json: bool) -> Result<(), Failure> {
    if !as_json {
        print::text(&output.output);
        return Ok(());
    }
    let mut value = serde_json::to_value(ModelMessage::ToolCallOutput(output.clone()))
        .map_err(|error| Failure::run(format!("the result cannot be printed: {error}")))?;
    value["decision"] = decision.clone();
    print::json(&value);
    Ok(())
}
