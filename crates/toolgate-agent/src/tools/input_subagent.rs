//! `input_subagent`: gives a subagent that has finished a further task, or only looks.

use std::sync::Arc;

use serde_json::json;
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
use crate::subagent::Child;

/// How hints name it.
pub(super) const NAME: &str = "input_subagent";

/// How long a call waits with a prompt, and when it only looks; milliseconds (PenguinHarness's numbers).
const WINDOW_MS: u64 = 300_000;
const EMPTY_POLL_MS: u64 = 10_000;

pub(super) struct InputSubagent {
    spec: ToolSpec,
    parts: Parts,
}

impl InputSubagent {
    pub(super) fn new(parts: &Parts) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "subagent_id": { "type": "string", "minLength": 1 },
                "prompt": { "type": "string", "description": "A further task for one that has finished; empty only polls." },
                "yield_time_ms": { "type": "integer", "description": "How long to wait (default 300000 with a prompt, else 10000)." },
            },
            "required": ["subagent_id"],
            "additionalProperties": false,
        });
        let mut spec =
            ToolSpec::new("input_subagent", "Poll a subagent, or send a finished one a follow-up prompt.", parameters);
        declared(&mut spec);
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.snippet = Some("poll a subagent or send it a follow-up".into());
        Self { spec, parts: parts.clone() }
    }
}

impl Tool for InputSubagent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let (id, prompt) = (text(args, "subagent_id"), text(args, "prompt"));
            if prompt.trim().is_empty() {
                let effects = vec![Effect::Feed { process: id.clone(), text: String::new() }];
                return Ok(Prepared { effects, summary: format!("poll {id}"), preview: None });
            }
            let summary = format!("tell {id}: {}", Notice::label(&prompt));
            Ok(Prepared { effects: vec![Effect::Delegate], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let args = permit.call().args();
            let (id, prompt) = (text(args, "subagent_id"), text(args, "prompt"));
            let Some(child) = subagents(&self.parts, &self.spec)?.get(&id) else {
                return Ok(failed(format!("unknown subagent_id {id}; no such subagent is there")));
            };
            let polls = prompt.trim().is_empty();
            if !polls && !child.go_on(Some(&prompt)) {
                return Ok(failed(format!(
                    "subagent {id} is still running; poll with an empty prompt until it has finished"
                )));
            }
            if polls {
                ask_again(&child);
            }
            let window = window(args, if polls { EMPTY_POLL_MS } else { WINDOW_MS }, cx);
            let seen = child.watch(&cx.out, window, &cx.cancel).await;
            Ok(report(cx, &child, seen, if polls { "still running" } else { "running" }))
        })
    }
}

/// One that waits for an answer puts its questions again.
fn ask_again(child: &Arc<Child>) {
    if child.is_waiting() {
        child.go_on(None);
    }
}

fn failed(what: String) -> Done {
    Done::noted(StopReason::Failed, format!("[{NAME} error: {what}]"))
}
