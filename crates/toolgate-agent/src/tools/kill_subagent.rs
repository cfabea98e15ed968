//! `kill_subagent`: ends a subagent.

use std::time::Duration;

use serde_json::json;
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Effect, Prepared, ToolSet, ToolSpec},
};
use toolgate_runtime::{
    BoxFuture,
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

use super::{
    Parts,
    report::{declared, subagents, text},
};

/// PenguinHarness's time limit of one call; milliseconds.
const TIMEOUT_MS: i64 = 30_000;

pub(super) struct KillSubagent {
    spec: ToolSpec,
    parts: Parts,
}

impl KillSubagent {
    pub(super) fn new(parts: &Parts) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "subagent_id": { "type": "string", "minLength": 1 } },
            "required": ["subagent_id"],
            "additionalProperties": false,
        });
        let description = "End a subagent and everything it started. Returns what it said that was not read yet.";
        let mut spec = ToolSpec::new("kill_subagent", description, parameters);
        declared(&mut spec);
        spec.timeout_ms = TIMEOUT_MS;
        spec.sets = &[ToolSet::Default];
        spec.snippet = Some("end a subagent".into());
        Self { spec, parts: parts.clone() }
    }
}

impl Tool for KillSubagent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let process = text(args, "subagent_id");
            let summary = format!("end {process}");
            Ok(Prepared { effects: vec![Effect::End { process }], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let [Effect::End { process: id }] = permit.call().effects() else {
                return Err(ToolError::new("the permit does not name one subagent"));
            };
            let subagents = subagents(&self.parts, &self.spec)?;
            let Some(child) = subagents.get(id) else {
                let note = format!("[kill_subagent error: unknown subagent_id {id}; no such subagent is there]");
                return Ok(Done::noted(StopReason::Failed, note));
            };
            let was_idle = child.is_idle();
            // Its last words first: what it says while it ends is in its own trace.
            child.watch(&cx.out, Duration::ZERO, &cx.cancel).await;
            subagents.end(id).await;
            let note = if was_idle {
                format!("[subagent {id} was idle; session removed]")
            } else {
                format!("[subagent {id} aborted and removed; its own trace keeps the work done so far]")
            };
            Ok(Done::noted(StopReason::Completed, note))
        })
    }
}
