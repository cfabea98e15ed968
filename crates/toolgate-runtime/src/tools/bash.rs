//! `bash`: runs a line of shell to its end, in Pi's form. It has no input, and no call of it is left running.

use serde_json::Value;
use toolgate_core::{
    call::Args,
    tool::{Bound, Prepared, ToolSet, ToolSpec, Truncate},
};

use super::shell;
use crate::{
    BoxFuture,
    gate::Permit,
    process::table::{Input, Shell, Start},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

pub(super) struct Bash {
    spec: ToolSpec,
}

impl Bash {
    pub(super) fn new() -> Self {
        let description = "Run a bash command in the workspace, without input, to its end. Returns its output (of a long one the end, \
                           and where all of it is) and its exit code.";
        let mut spec = ToolSpec::new("bash", description, Value::Null);
        shell::in_pis_form(&mut spec);
        spec.rule_names = vec!["Bash".into()];
        spec.bound = Bound::lines(Truncate::Tail);
        spec.sets = &[ToolSet::Coding];
        spec.snippet = Some("run a bash command to its end".into());
        spec.guidelines = &["Start what does not end by itself, such as a server, with & and its output in a file."];
        Self { spec }
    }
}

impl Tool for Bash {
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
            shell::run(&permit, cx, Start { shell: Shell::Usual(line), cwd, input: Input::Nothing }, None).await
        })
    }
}
