//! What the tools that run commands share, and no tool itself: how a line is read from the arguments, what is started, and that it
//! ends with its call.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Effect, Prepared, ToolKind, ToolSpec},
};

use super::report::{in_background, report};
use crate::{
    gate::Permit,
    notice::Notice,
    process::{
        session::Seen,
        table::{CommandSessions, Held, Start},
    },
    tool::{Done, ToolContext, ToolError},
};

/// Characters of a command line that its summary shows.
const SUMMARY: usize = 120;

/// The time limit of a command that is run to its end; milliseconds. Pi has none; ten minutes are enough for a build, and end what
/// would never come back.
const TO_THE_END_MS: i64 = 600_000;

/// What a call would do: run this line there.
pub(super) fn prepared(spec: &ToolSpec, args: &Args, argument: &str, cwd: PathBuf) -> Result<Prepared, ToolError> {
    let line = args.get(argument).and_then(Value::as_str).unwrap_or_default().to_owned();
    if line.trim().is_empty() || line.contains('\0') {
        return Err(invalid(spec, argument, "expected a command without NUL characters"));
    }
    let summary = summary(&line);
    Ok(Prepared { effects: vec![Effect::Run { line, cwd }], summary, preview: None })
}

/// The line and the directory that were decided on: what runs is the permit's effect and nothing else.
pub(super) fn allowed(permit: &Permit) -> Result<(&str, &Path), ToolError> {
    match permit.call().effects() {
        [Effect::Run { line, cwd }] => Ok((line, cwd)),
        _ => Err(ToolError::new("the permit does not name one command")),
    }
}

/// Starts a command that nobody waits for: its end is told.
pub(super) async fn run_in_background(permit: &Permit, cx: &ToolContext, start: Start<'_>) -> Result<Done, ToolError> {
    let Some(session) = started(permit, cx, start).await? else { return Ok(Done::default()) };
    let (line, _) = allowed(permit)?;
    cx.commands.tell_end(&session, Notice::label(line));
    cx.commands.yielded(&session);
    Ok(Done::noted(StopReason::Completed, in_background(cx, &session.id)))
}

/// Starts it, unless the call is cancelled first.
async fn started<'a>(permit: &Permit, cx: &'a ToolContext, start: Start<'_>) -> Result<Option<Held<'a>>, ToolError> {
    tokio::select! {
        session = cx.commands.start(permit, start) => session.map(Some).map_err(|error| ToolError(error.to_string())),
        () = cx.cancel.cancelled() => Ok(None),
    }
}

/// Starts a command and watches it to its end, or for a window.
pub(super) async fn run(
    permit: &Permit,
    cx: &ToolContext,
    start: Start<'_>,
    window: Option<std::time::Duration>,
) -> Result<Done, ToolError> {
    let Some(session) = started(permit, cx, start).await? else { return Ok(Done::default()) };
    // Whatever ends this call before it has its answer ends the command too, also when nobody polls it any more.
    let guard = EndUnlessKept { commands: &cx.commands, id: Some(session.id.clone()) };
    let seen = session.watch(&cx.out, window, &cx.cancel).await;
    if seen != Seen::Cancelled {
        guard.keep();
    }
    Ok(report(cx, &session, seen, "running"))
}

struct EndUnlessKept<'a> {
    commands: &'a CommandSessions,
    id: Option<String>,
}

impl EndUnlessKept<'_> {
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for EndUnlessKept<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.commands.kill(id, "its call was interrupted or ran out of time");
        }
    }
}

/// Pi's form of a command tool: `command`, and `timeout` in seconds.
pub(super) fn in_pis_form(spec: &mut ToolSpec) {
    spec.parameters = json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "minLength": 1 },
            "timeout": { "type": "number", "description": "Seconds after which it is ended." },
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    spec.kind = ToolKind::Execute;
    spec.timeout_ms = TO_THE_END_MS;
}

/// What a call in Pi's form would do.
pub(super) fn prepared_in_pis_form(spec: &ToolSpec, args: &Args, cwd: PathBuf) -> Result<Prepared, ToolError> {
    let seconds = args.get("timeout").and_then(Value::as_f64);
    if seconds.is_some_and(|seconds| seconds <= 0.0 || !seconds.is_finite()) {
        return Err(invalid(spec, "timeout", "expected more than 0 seconds"));
    }
    prepared(spec, args, "command", cwd)
}

/// The time limit that a call in Pi's form asks for; milliseconds, begun ones included.
pub(super) fn asked_limit(args: &Args) -> Option<u64> {
    args.get("timeout").and_then(Value::as_f64).map(|seconds| (seconds * 1000.0).ceil() as u64)
}

fn invalid(spec: &ToolSpec, argument: &str, what: &str) -> ToolError {
    ToolError(format!("Invalid arguments for {}: /{argument}: {what}", spec.name))
}

/// The line as a front end shows it.
fn summary(line: &str) -> String {
    let first = line.trim().lines().next().unwrap_or_default();
    match first.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None if first.len() < line.trim().len() => format!("{first} …"),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_and_fractions_of_them() {
        let spec = ToolSpec::new("t", "", Value::Null);
        for (timeout, wanted) in [
            (json!(5), Ok(Some(5000))),
            (json!(0.01), Ok(Some(10))),
            (json!(0.0001), Ok(Some(1))),
            (json!(1e300), Ok(Some(u64::MAX))),
            (Value::Null, Ok(None)),
            (json!(0), Err("Invalid arguments for t: /timeout: expected more than 0 seconds")),
            (json!(-1.5), Err("Invalid arguments for t: /timeout: expected more than 0 seconds")),
        ] {
            let Value::Object(args) = json!({ "command": "true", "timeout": timeout }) else { unreachable!() };
            let found = prepared_in_pis_form(&spec, &args, "/".into()).map(|_| asked_limit(&args));
            assert_eq!(found, wanted.map_err(|what: &str| ToolError::new(what)), "{timeout}");
        }
    }
}
