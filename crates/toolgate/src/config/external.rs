//! Programs of the user's own as tools: their declarations, where their programs are, and the tools that come of them.

use std::{path::Path, sync::Arc};

use toolgate_runtime::{
    external::{Declaration, ExternalTool},
    registry::named,
    tool::Tool,
};

use super::{
    layers::Source,
    node::{Kind, Node},
    selection::Declared,
    wrong::Wrong,
};
use crate::{surroundings::Surroundings, tools::builtin};

/// A program as a tool, as a file declares it.
#[derive(Debug, Clone)]
pub(crate) struct External {
    declaration: Declaration,
    /// The folder of the file, from which a path of the program leads on; none where a flag says it.
    folder: Option<Arc<Path>>,
}

/// Reads the list, and checks that every tool of it can be made.
pub(super) fn read(node: &Node, from: &Source) -> Result<Vec<External>, Wrong> {
    if !matches!(node.kind, Kind::List(_)) {
        return Err(Wrong::new("a list of tools belongs there").at(node.line));
    }
    let (tools, folder) = (builtin(), from.folder());
    let mut list: Vec<External> = Vec::new();
    for item in node.items() {
        let declaration: Declaration = item.read()?;
        let name = &declaration.name;
        let at = |field: &str| item.get(field).map_or(item.line, |value| value.line);
        if named(&tools, name).is_some() {
            return Err(Wrong::new(format!("`{name}` is the name of a built-in tool")).at(at("name")));
        }
        if list.iter().any(|known| known.declaration.name == *name) {
            return Err(Wrong::new(format!("two tools are named `{name}`")).at(at("name")));
        }
        declaration.spec().map_err(|wrong| Wrong::new(format!("{name}: {wrong}")).at(at(wrong.field)))?;
        list.push(External { declaration, folder: folder.clone() });
    }
    Ok(list)
}

/// The names that a file's list has, whatever else is wrong with it. Rules speak of tools that are declared further down, or elsewhere.
pub(super) fn names(file: &Node) -> Vec<String> {
    let list = file.get("tools").and_then(|tools| tools.get("external")).map_or(&[][..], Node::items);
    list.iter().filter_map(|item| item.get("name")?.read().ok()).collect()
}

impl External {
    /// The tool, or what it lacks.
    pub(crate) fn tool(&self, surroundings: &Surroundings) -> Result<Declared, String> {
        let name = &self.declaration.name;
        let written = self.declaration.command.first().map_or("", String::as_str);
        let program = surroundings.program_from(self.folder.as_deref().unwrap_or(Path::new("/")), written);
        let program = program.ok_or_else(|| format!("{name} needs {written} on PATH"))?;
        let tool = ExternalTool::new(&self.declaration, program).map_err(|wrong| format!("{name}: {wrong}"))?;
        let spec = tool.spec().clone();
        Ok((Arc::new(tool), spec))
    }
}
