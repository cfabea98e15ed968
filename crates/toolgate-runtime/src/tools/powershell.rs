//! `powershell`: runs a line of PowerShell to its end, where there is one. As `bash`, but for the program and what it is started with.

use std::{ffi::OsString, path::Path};

use serde_json::Value;
use toolgate_core::{
    call::Args,
    tool::{Bound, Prepared, ToolSpec, Truncate},
};

use super::shell;
use crate::{
    BoxFuture,
    gate::Permit,
    process::table::{Input, Shell, Start},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// The program, the newer one first.
const PROGRAMS: &[&str] = &["pwsh", "powershell"];

/// Stands before every line: older versions write the system's code page, which is not UTF-8. It changes nothing else.
const IN_UTF8: &str = "[Console]::OutputEncoding=[Text.UTF8Encoding]::new($false); ";

pub(super) struct PowerShell {
    spec: ToolSpec,
}

impl PowerShell {
    pub(super) fn new() -> Self {
        let description = "Run a PowerShell command in the workspace, without input, to its end. Returns its output (of a long one the \
                           end, and where all of it is) and its exit code.";
        let mut spec = ToolSpec::new("powershell", description, Value::Null);
        shell::in_pis_form(&mut spec);
        // A rule about commands holds for every shell; one under this shell's own name for it alone.
        spec.rule_names = vec!["Bash".into(), "PowerShell".into()];
        spec.bound = Bound::lines(Truncate::Tail);
        spec.programs = PROGRAMS;
        spec.snippet = Some("run a PowerShell command to its end".into());
        Self { spec }
    }
}

impl Tool for PowerShell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async { shell::prepared_in_pis_form(&self.spec, args, cx.workspace.folder("")) })
    }

    fn time_limit(&self, args: &Args) -> Option<u64> {
        shell::asked_limit(args)
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let (line, cwd) = shell::allowed(&permit)?;
            let Some(program) = cx.commands.program(PROGRAMS) else {
                return Err(ToolError::new(
                    "PowerShell is not installed: neither pwsh nor powershell was found on PATH",
                ));
            };
            let shell = Shell::Program(program, arguments(program, line));
            shell::run(&permit, cx, Start { shell, cwd, input: Input::Nothing }, None).await
        })
    }
}

/// What the program is started with: no profile, no questions, whatever the policy for scripts in files says, and the line.
fn arguments(program: &Path, line: &str) -> Vec<OsString> {
    let mut arguments = vec![program.as_os_str().to_owned()];
    arguments.extend(["-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-Command"].map(OsString::from));
    arguments.push(format!("{IN_UTF8}{line}").into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_one_argument_whatever_is_in_it() {
        for line in ["Get-ChildItem", "'a b' | % { \"$_\" }; exit 3", "-Command x", "€\n\t\"quoted\""] {
            let arguments = arguments(Path::new("/opt/pwsh"), line);
            let arguments: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
            let (last, before) = arguments.split_last().unwrap();
            assert_eq!(
                before,
                ["/opt/pwsh", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-Command"]
            );
            assert_eq!(*last, format!("[Console]::OutputEncoding=[Text.UTF8Encoding]::new($false); {line}"));
        }
    }
}
