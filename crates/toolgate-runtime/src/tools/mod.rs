//! The built-in tools: one file each, one line each.

mod exec_command;
mod input_command;
mod kill_command;
mod report;

use std::sync::Arc;

use crate::tool::Tool;

/// The tools that this crate brings, in the order in which a model sees them.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(exec_command::ExecCommand::new()),
        Arc::new(input_command::InputCommand::new()),
        Arc::new(kill_command::KillCommand::new()),
    ]
}
