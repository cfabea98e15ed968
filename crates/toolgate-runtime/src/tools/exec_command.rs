//! `exec_command`: runs a line of shell, and hands back a process id when it takes longer than the window.

use std::path::PathBuf;

use serde_json::json;
use toolgate_core::{
    call::Args,
    tool::{Effect, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::report::{milliseconds, report, window};
use crate::{
    BoxFuture,
    gate::Permit,
    process::{session::Seen, table::CommandSessions},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// How long a call waits in the foreground by default; milliseconds (PenguinHarness's number).
const WINDOW_MS: u64 = 60_000;

/// Characters of a command line that its summary shows.
const SUMMARY: usize = 120;

pub(super) struct ExecCommand {
    spec: ToolSpec,
}

impl ExecCommand {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "cmd": { "type": "string", "minLength": 1, "description": "Shell command (bash)." },
                "workdir": { "type": "string", "description": "Directory; relative to the workspace, which is the default." },
                "yield_time_ms": { "type": "integer", "description": "How long to wait in the foreground (default 60000)." },
                "tty": { "type": "boolean", "description": "Run in a terminal." },
            },
            "required": ["cmd"],
            "additionalProperties": false,
        });
        let description = "Run a shell command in the workspace. Returns its output and exit code. If it is still running after \
                           yield_time_ms, returns the output so far and a process_id for input_command.";
        let mut spec = ToolSpec::new("exec_command", description, parameters);
        spec.kind = ToolKind::Execute;
        spec.rule_names = vec!["Bash".into()];
        spec.bound.keep = Truncate::Middle;
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.snippet = Some("run a shell command");
        Self { spec }
    }
}

impl Tool for ExecCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let line = args.get("cmd").and_then(|cmd| cmd.as_str()).unwrap_or_default().to_owned();
            if line.trim().is_empty() || line.contains('\0') {
                return Err(ToolError::new(
                    "Invalid arguments for exec_command: /cmd: expected a command without NUL characters",
                ));
            }
            let cwd = cx.workspace.folder(args.get("workdir").and_then(|dir| dir.as_str()).unwrap_or_default());
            let summary = summary(&line);
            Ok(Prepared { effects: vec![Effect::Run { line, cwd }], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let (line, cwd) = allowed(&permit)?;
            let args = permit.call().args();
            let terminal = args.get("tty").and_then(|tty| tty.as_bool()).unwrap_or_default();
            let asked = milliseconds(args, "yield_time_ms");
            let window = cx.commands.yields().then(|| window(asked, WINDOW_MS, cx.limits.timeout_ms));
            let session = tokio::select! {
                session = cx.commands.start(&permit, &line, &cwd, terminal) => session.map_err(|error| ToolError(error.to_string()))?,
                () = cx.cancel.cancelled() => return Ok(Done::default()),
            };
            // Whatever ends this call before it has its answer ends the command too, also when nobody polls it any more.
            let guard = EndUnlessYielded { commands: &cx.commands, id: Some(session.id.clone()) };
            let seen = session.watch(&cx.out, window, &cx.cancel).await;
            if seen != Seen::Cancelled {
                guard.keep();
            }
            Ok(report(&cx.commands, &session, seen, "running"))
        })
    }
}

struct EndUnlessYielded<'a> {
    commands: &'a CommandSessions,
    id: Option<String>,
}

impl EndUnlessYielded<'_> {
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for EndUnlessYielded<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.commands.kill(id, "its call was interrupted or ran out of time");
        }
    }
}

/// The line and the directory that were decided on: what runs is the permit's effect and nothing else.
fn allowed(permit: &Permit) -> Result<(String, PathBuf), ToolError> {
    match permit.call().effects() {
        [Effect::Run { line, cwd }] => Ok((line.clone(), cwd.clone())),
        _ => Err(ToolError::new("the permit does not name one command")),
    }
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
