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

/// One name of a tool and the effective declaration under it.
pub struct Entry {
    /// What runs.
    pub tool: Arc<dyn Tool>,
    /// What the environment holds it to, and what the model sees where it is listed.
    pub spec: ToolSpec,
    /// A second name of a listed tool is accepted and not listed.
    listed: bool,
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
    /// When one of its names is another tool's.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateTool> {
        let spec = tool.spec().clone();
        self.add_as(tool, spec)
    }

    /// Adds a tool under an effective declaration, which stands for one of its names. Its other names are accepted beside it, each with
    /// its own declaration, and listed only where they are added themselves. A hidden tool is neither listed nor accepted.
    ///
    /// # Errors
    /// When the name is listed already, or one of its names is another tool's.
    pub fn add_as(&mut self, tool: Arc<dyn Tool>, spec: ToolSpec) -> Result<(), DuplicateTool> {
        let mut others: Vec<ToolSpec> = forms(tool.as_ref()).filter(|form| form.name != spec.name).cloned().collect();
        for other in &mut others {
            other.hidden = spec.hidden;
        }
        self.enter(&tool, spec, true)?;
        others.into_iter().try_for_each(|other| self.enter(&tool, other, false))
    }

    fn enter(&mut self, tool: &Arc<dyn Tool>, mut spec: ToolSpec, listed: bool) -> Result<(), DuplicateTool> {
        // A rule that names a tool speaks of it under all its names.
        for form in forms(tool.as_ref()) {
            if !spec.rule_names.contains(&form.name) {
                spec.rule_names.push(form.name.clone());
            }
        }
        let name = spec.name.clone();
        let known = self.names.get(&name).map(|index| &self.entries[*index]);
        match known {
            Some(known) if known.tool.spec().name != tool.spec().name || (known.listed && listed) => {
                return Err(DuplicateTool(name));
            }
            Some(_) if !listed => return Ok(()),
            _ => {}
        }
        self.names.insert(name, self.entries.len());
        self.entries.push(Entry { tool: tool.clone(), spec, listed, schema: OnceLock::new() });
        Ok(())
    }

    /// What can be called under this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.names.get(name).map(|index| &self.entries[*index]).filter(|entry| !entry.spec.hidden)
    }

    /// Everything that can be called, second names included.
    pub fn callable(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| !entry.spec.hidden).map(|entry| entry.spec.name.as_str())
    }

    /// The tools themselves, each once.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.entries.iter().filter(|entry| entry.listed).map(|entry| &entry.tool)
    }

    /// The declarations that a model is sent, in order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.entries.iter().filter(|entry| entry.listed && !entry.spec.hidden).map(|entry| &entry.spec)
    }
}

/// A tool's declarations: its own, then those of its aliases.
pub fn forms(tool: &dyn Tool) -> impl Iterator<Item = &ToolSpec> {
    std::iter::once(tool.spec()).chain(tool.aliases())
}

/// The tool of this name or alias, and its declaration under it.
pub fn named<'a>(tools: &'a [Arc<dyn Tool>], name: &str) -> Option<(&'a Arc<dyn Tool>, &'a ToolSpec)> {
    tools.iter().find_map(|tool| forms(tool.as_ref()).find(|form| form.name == name).map(|form| (tool, form)))
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
