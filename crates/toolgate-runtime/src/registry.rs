//! The tools that exist: the list that the model sees is the list that can be dispatched.

use std::{collections::HashMap, sync::Arc, sync::OnceLock};

use toolgate_core::{schema::Schema, tool::ToolSpec};

use crate::tool::Tool;

/// Tools by name, in the order in which they were added.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Entry>,
    names: HashMap<String, usize>,
}

/// One tool and its effective declaration.
pub struct Entry {
    /// What runs.
    pub tool: Arc<dyn Tool>,
    /// What the model sees and the environment holds it to.
    pub spec: ToolSpec,
    schema: OnceLock<Result<Schema, String>>,
}

/// A tool that cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two tools are named `{0}`")]
pub struct DuplicateTool(pub String);

impl Registry {
    /// Adds a tool under its own declaration.
    ///
    /// # Errors
    /// When its name or one of its aliases is taken.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateTool> {
        let spec = tool.spec().clone();
        let index = self.entries.len();
        for name in std::iter::once(&spec.name).chain(&spec.aliases) {
            if self.names.insert(name.clone(), index).is_some() {
                return Err(DuplicateTool(name.clone()));
            }
        }
        self.entries.push(Entry { tool, spec, schema: OnceLock::new() });
        Ok(())
    }

    /// The tool of this name or alias.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.names.get(name).map(|index| &self.entries[*index])
    }

    /// The declarations, in order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.entries.iter().map(|entry| &entry.spec)
    }
}

impl Entry {
    /// The compiled schema; compiled at the first call, so that a run pays for the tools that it uses.
    ///
    /// # Errors
    /// Why the schema cannot be checked; no call of the tool runs then.
    pub fn schema(&self) -> Result<&Schema, &String> {
        self.schema.get_or_init(|| Schema::compile(&self.spec.parameters)).as_ref()
    }
}
