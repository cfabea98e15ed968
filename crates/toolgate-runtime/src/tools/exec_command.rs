//! `exec_command`: runs a line of shell, and hands back a process id when it takes longer than the window.

use serde_json::json;
use toolgate_core::{
    call::Args,
    tool::{Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::{
    input_command,
    report::{milliseconds, window},
    shell,
};
use crate::{
    BoxFuture,
    gate::Permit,
    process::table::{Input, Shell, Start},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// How long a call waits in the foreground by default; milliseconds (PenguinHarness's number).
const WINDOW_MS: u64 = 60_000;

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
                "run_in_background": { "type": "boolean", "description": "Return at once; a message tells its end." },
                "tty": { "type": "boolean", "description": "Run in a terminal." },
            },
            "required": ["cmd"],
            "additionalProperties": false,
        });
        let description = "Run a shell command in the workspace. Returns its output and exit code. If it is still running after \
                           yield_time_ms, returns the output so far and a process_id.";
        let mut spec = ToolSpec::new("exec_command", description, parameters);
        spec.kind = ToolKind::Execute;
        spec.rule_names = vec!["Bash".into()];
        spec.bound.keep = Truncate::Middle;
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.snippet = Some("run a shell command".into());
        Self { spec }
    }
}

impl Tool for ExecCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let cwd = cx.workspace.folder(args.get("workdir").and_then(|dir| dir.as_str()).unwrap_or_default());
            shell::prepared(&self.spec, args, "cmd", cwd)
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let (line, cwd) = shell::allowed(&permit)?;
            let args = permit.call().args();
            let input = match args.get("tty").and_then(|tty| tty.as_bool()) {
                Some(true) => Input::Terminal,
                _ if cx.can_call(input_command::NAME) => Input::Typed,
                _ => Input::Nothing,
            };
            let start = Start { shell: Shell::Usual(line), cwd, input };
            let background = args.get("run_in_background").and_then(|wanted| wanted.as_bool()).unwrap_or_default();
            // Where a call is the whole session, nobody is there to be told later.
            if background && cx.commands.yields() {
                return shell::run_in_background(&permit, cx, start).await;
            }
            let asked = milliseconds(args, "yield_time_ms");
            let window = cx.commands.yields().then(|| window(asked, WINDOW_MS, cx.limits.timeout_ms));
            shell::run(&permit, cx, start, window).await
        })
    }
}
