//! What the subagent tools share, and no tool itself: how they find a child, and what they tell the model about it.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{ToolKind, ToolSpec},
};
use toolgate_runtime::tool::{Done, ToolContext, ToolError};

use super::{Parts, input_subagent};
use crate::subagent::{Child, Seen, Subagents};

/// The shortest window (PenguinHarness's number).
const SHORTEST_WINDOW_MS: u64 = 250;

/// A window ends this long before the time limit, so that the call comes back by itself.
const BEFORE_LIMIT_MS: u64 = 1000;

/// PenguinHarness's time limit of a call that waits for a subagent; milliseconds.
pub(super) const TIMEOUT_MS: i64 = 600_000;

/// What all of them declare.
pub(super) fn declared(spec: &mut ToolSpec) {
    spec.kind = ToolKind::Delegate;
    spec.timeout_ms = TIMEOUT_MS;
}

/// The session's children.
pub(super) fn subagents<'a>(parts: &'a Parts, spec: &ToolSpec) -> Result<&'a Arc<Subagents>, ToolError> {
    let missing = || ToolError(format!("[{} unavailable: this session can start no subagents]", spec.name));
    parts.subagents.as_ref().ok_or_else(missing)
}

/// A text argument; empty where it is missing.
pub(super) fn text(args: &Args, name: &str) -> String {
    args.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// How long a call waits: what was asked for, within the floor and the tool's own time limit.
pub(super) fn window(args: &Args, default_ms: u64, cx: &ToolContext) -> Duration {
    let asked = args.get("yield_time_ms").and_then(Value::as_f64).map_or(default_ms, |ms| ms as u64);
    let most = cx.limits.timeout_ms.map_or(u64::MAX, |limit| limit.saturating_sub(BEFORE_LIMIT_MS));
    Duration::from_millis(asked.max(SHORTEST_WINDOW_MS).min(most.max(SHORTEST_WINDOW_MS)))
}

/// What a call says about a child that it watched.
pub(super) fn report(cx: &ToolContext, child: &Child, seen: Seen, still: &str) -> Done {
    let id = child.id();
    let input = cx.can_call(input_subagent::NAME).then_some(input_subagent::NAME);
    match seen {
        Seen::Ended(ended) => {
            let (failed, detail) = ended.told();
            let more =
                input.map(|tool| format!("[subagent idle with subagent_id {id}; {tool} sends it a follow-up prompt]"));
            let notes: Vec<String> = detail.map(|detail| format!("[{detail}]")).into_iter().chain(more).collect();
            let stop = if failed { StopReason::Failed } else { StopReason::Completed };
            Done { stop: Some(stop), note: (!notes.is_empty()).then(|| notes.join("\n")), ..Done::default() }
        }
        Seen::Running(asks) => {
            let more = input.filter(|_| still == "running");
            let more = more.map(|tool| format!("; use {tool} to poll for progress")).unwrap_or_default();
            let mut note = format!("[subagent {still} with subagent_id {id}{more}]");
            if !asks.is_empty() {
                note.push_str(&format!(
                    "\n[subagent is waiting for approval of {} tool call(s), which the user is asked for: {}]",
                    asks.len(),
                    asks.join("; ")
                ));
            }
            Done::noted(StopReason::Completed, note)
        }
        Seen::Cancelled => Done::default(),
    }
}
