//! The tools that need a model: one file each, one line each.

mod describe_image;
mod input_subagent;
mod kill_subagent;
mod report;
mod run_subagent;

use std::sync::Arc;

use toolgate_runtime::tool::Tool;

use crate::{provider::Provider, subagent::Subagents};

/// What the tools of this crate work with. A tool whose part is missing can be declared and chosen, and says so when it is called.
#[derive(Clone, Default)]
pub struct Parts {
    /// The session's children.
    pub subagents: Option<Arc<Subagents>>,
    /// A model that sees images.
    pub vision: Option<Arc<dyn Provider>>,
}

/// The tools that this crate brings, in the order in which a model sees them.
pub fn builtin(parts: &Parts) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(describe_image::DescribeImage::new(parts)),
        Arc::new(run_subagent::RunSubagent::new(parts)),
        Arc::new(input_subagent::InputSubagent::new(parts)),
        Arc::new(kill_subagent::KillSubagent::new(parts)),
    ]
}
