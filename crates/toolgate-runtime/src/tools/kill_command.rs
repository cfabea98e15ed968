//! `kill_command`: ends a running command and everything that it started.

use std::time::Duration;

use serde_json::json;
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Effect, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::report::report_gone;
use crate::{
    BoxFuture,
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// The time limit of one call; milliseconds.
const TIMEOUT_MS: i64 = 30_000;

/// SIGTERM, a second, SIGKILL: a tree that can be ended is gone by then.
const ENDED_WITHIN: Duration = Duration::from_millis(2000);

/// Its name, for the hints of the tools whose commands it drives.
pub(super) const NAME: &str = "kill_command";

pub(super) struct KillCommand {
    spec: ToolSpec,
}

impl KillCommand {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "process_id": { "type": "string", "minLength": 1 } },
            "required": ["process_id"],
            "additionalProperties": false,
        });
        let description = "End a running command and everything it started. Returns the output that was not read yet.";
        let mut spec = ToolSpec::new("kill_command", description, parameters);
        spec.kind = ToolKind::Execute;
        spec.bound.keep = Truncate::Middle;
        spec.sets = &[ToolSet::Default];
        spec.timeout_ms = TIMEOUT_MS;
        spec.snippet = Some("end a running command".into());
        Self { spec }
    }
}

impl Tool for KillCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let process = args.get("process_id").and_then(|id| id.as_str()).unwrap_or_default().to_owned();
            let summary = format!("end {process}");
            Ok(Prepared { effects: vec![Effect::End { process }], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let [Effect::End { process: id }] = permit.call().effects() else {
                return Err(ToolError::new("the permit does not name one process"));
            };
            let session = match cx.commands.get(id) {
                Ok(session) => session,
                Err(gone) => return Ok(report_gone(NAME, id, gone)),
            };
            let before = session.exit();
            session.end();
            // Its last words, and the truth about whether it is gone.
            session.watch(&cx.out, Some(ENDED_WITHIN), &cx.cancel).await;
            let after = session.exit();
            cx.commands.kill(id, "by kill_command");
            Ok(Done::noted(
                StopReason::Completed,
                match (before, after) {
                    (Some(exit), _) => format!("[process {id} had already exited ({}); session removed]", exit.status),
                    (None, Some(_)) => {
                        format!("[process {id} killed with everything it started (SIGTERM, SIGKILL after a second)]")
                    }
                    (None, None) => {
                        format!("[process {id} is being killed (SIGTERM, then SIGKILL) and has not ended yet]")
                    }
                },
            ))
        })
    }
}
