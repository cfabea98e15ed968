//! The built-in tools: one file each, one line each.

mod bash;
mod edit;
mod exec_command;
mod find;
mod first;
mod grep;
mod input_command;
mod kill_command;
mod lines;
mod ls;
mod paths;
mod powershell;
mod read;
mod read_image;
mod remarks;
mod report;
mod shell;
mod write;

use std::sync::Arc;

use toolgate_core::tool::ToolSet;

use crate::{registry::forms, tool::Tool};

/// The tools that this crate brings, in the order in which a model sees them. One that wants a program runs only where
/// [`programs`](crate::process::table::CommandSetup::programs) has it.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(exec_command::ExecCommand::new()),
        Arc::new(input_command::InputCommand::new()),
        Arc::new(kill_command::KillCommand::new()),
        Arc::new(bash::Bash::new()),
        Arc::new(powershell::PowerShell::new()),
        Arc::new(read::Read::new()),
        Arc::new(edit::EditTool::new()),
        Arc::new(write::Write::new()),
        Arc::new(grep::Grep::new()),
        Arc::new(find::Find::new()),
        Arc::new(ls::Ls::new()),
        Arc::new(read_image::ReadImage::new()),
    ]
}

/// Those of them that belong to a set.
pub fn of_set(set: ToolSet) -> Vec<Arc<dyn Tool>> {
    builtin().into_iter().filter(|tool| set.holds(tool.spec())).collect()
}

/// The names under which the tools of this crate can be configured, aliases included.
pub fn builtin_names() -> Vec<String> {
    builtin().iter().flat_map(|tool| forms(tool.as_ref()).map(|form| form.name.clone()).collect::<Vec<_>>()).collect()
}
