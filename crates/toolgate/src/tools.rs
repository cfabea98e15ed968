//! The tools of this program: the runtime's, and those that need a model.

use std::sync::Arc;

use toolgate_agent::tools::Parts;
use toolgate_runtime::tool::Tool;

/// All of them, in the order in which a model sees them, with what those of a session work with.
pub(crate) fn with(parts: &Parts) -> Vec<Arc<dyn Tool>> {
    let mut tools = toolgate_runtime::tools::builtin();
    tools.extend(toolgate_agent::tools::builtin(parts));
    tools
}

/// All of them, to look at what they declare.
pub(crate) fn builtin() -> Vec<Arc<dyn Tool>> {
    with(&Parts::default())
}
