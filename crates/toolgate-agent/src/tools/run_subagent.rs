//! `run_subagent`: hands a task to another agent, and hands back its id when it takes longer than the window.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Effect, Prepared, ToolSet, ToolSpec},
};
use toolgate_runtime::{
    BoxFuture,
    gate::Permit,
    notice::Notice,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

use super::{
    Parts,
    report::{declared, report, subagents, text, window},
};
use crate::{
    provider::ThinkingLevel,
    subagent::{Child, Seen, Subagents, Wish},
};

/// How long a call waits by default; milliseconds (PenguinHarness's number).
const WINDOW_MS: u64 = 300_000;

pub(super) struct RunSubagent {
    spec: ToolSpec,
    parts: Parts,
}

impl RunSubagent {
    pub(super) fn new(parts: &Parts) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "prompt": { "type": "string", "minLength": 1, "description": "The task, with all that it takes to do it." },
                "agent_id": { "type": "string", "description": "A configured agent (default: as this one)." },
                "provider": { "type": "string" },
                "model_id": { "type": "string", "description": "With provider; default: this model." },
                "thinking_level": { "enum": ["low", "medium", "high", "xhigh", "max", null] },
                "yield_time_ms": { "type": "integer", "description": "How long to wait (default 300000)." },
                "run_in_background": { "type": "boolean", "description": "Return at once; a message tells each end." },
            },
            "required": ["prompt"],
            "additionalProperties": false,
        });
        let description = "Delegate a self-contained task to a subagent in the same workspace. Returns its answer; if it is still \
                           running after yield_time_ms, what it said so far and a subagent_id.";
        let mut spec = ToolSpec::new("run_subagent", description, parameters);
        declared(&mut spec);
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.snippet = Some("delegate a task to a subagent".into());
        Self { spec, parts: parts.clone() }
    }
}

impl Tool for RunSubagent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let prompt = text(args, "prompt");
            if prompt.trim().is_empty() {
                return Err(ToolError::new("[run_subagent error: missing required string argument `prompt`]"));
            }
            wish(args)?;
            let summary = format!("delegate: {}", Notice::label(&prompt));
            Ok(Prepared { effects: vec![Effect::Delegate], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let args = permit.call().args();
            let subagents = subagents(&self.parts, &self.spec)?;
            let background = args.get("run_in_background").and_then(Value::as_bool).unwrap_or_default();
            let told = background.then(|| cx.notices.clone());
            let (wish, prompt) = (wish(args)?, text(args, "prompt"));
            let started = tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return Ok(Done::default()),
                started = subagents.start(&wish, &prompt, told) => started,
            };
            let child = match started {
                Ok(child) => child,
                Err(why) => {
                    return Ok(Done::noted(StopReason::Failed, format!("[{} error: {why}]", self.spec.name)));
                }
            };
            if background {
                let id = child.id();
                let note = format!(
                    "[subagent running in the background with subagent_id {id}; a message will tell its end, so there is no need to poll]"
                );
                return Ok(Done::noted(StopReason::Completed, note));
            }
            // Whatever ends this call before it has its answer ends the child too, also when nobody polls it any more.
            let guard = EndUnlessKept { subagents, child: Some(child.clone()) };
            let seen = child.watch(&cx.out, window(args, WINDOW_MS, cx), &cx.cancel).await;
            if seen != Seen::Cancelled {
                guard.keep();
            }
            Ok(report(cx, &child, seen, "running"))
        })
    }

    fn interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(subagents) = &self.parts.subagents {
                subagents.end_all().await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(subagents) = &self.parts.subagents {
                subagents.close().await;
            }
        })
    }
}

struct EndUnlessKept<'a> {
    subagents: &'a Arc<Subagents>,
    child: Option<Arc<Child>>,
}

impl EndUnlessKept<'_> {
    fn keep(mut self) {
        self.child = None;
    }
}

impl Drop for EndUnlessKept<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            let subagents = self.subagents.clone();
            tokio::spawn(async move { subagents.end(child.id()).await });
        }
    }
}

/// What the arguments say of the child.
fn wish(args: &Args) -> Result<Wish, ToolError> {
    let given = |name: &str| Some(text(args, name)).filter(|text| !text.is_empty());
    let model = match (given("provider"), given("model_id")) {
        (Some(provider), Some(model)) => Some((provider, model)),
        (None, None) => None,
        _ => {
            return Err(ToolError::new(
                "[run_subagent error: provider and model_id name a model together; give both or neither]",
            ));
        }
    };
    let thinking = given("thinking_level");
    let thinking = thinking.and_then(|word| ThinkingLevel::ALL.into_iter().find(|level| level.as_str() == word));
    Ok(Wish { agent: given("agent_id"), model, thinking })
}
