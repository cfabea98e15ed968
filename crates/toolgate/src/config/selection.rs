//! Which tools there are: a named set, or a list whose entries are names or definitions.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, de::Error};
use toolgate_core::{
    config::ToolDefinition,
    tool::{ToolSet, ToolSpec},
};
use toolgate_runtime::{
    registry::{Registry, forms, named},
    tool::Tool,
    tools::{NOT_BUILT, builtin},
};

use super::{
    node::{Kind, Node},
    wrong::Wrong,
};
use crate::nearest::nearest;

/// How names of tools begin that servers bring; the servers are not asked what they have while a configuration is read.
const OF_A_SERVER: &str = "mcp__";

/// Which tools a session has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Selection {
    Set(ToolSet),
    List(Vec<ToolDefinition>),
}

impl Default for Selection {
    fn default() -> Self {
        Self::Set(ToolSet::Default)
    }
}

impl Selection {
    /// Reads a set's name or a list, and checks that every entry can be applied.
    pub(crate) fn read(node: &Node) -> Result<Self, Wrong> {
        if let Kind::Text(word) = &node.kind {
            let set: ToolSet = word.parse().map_err(|what: String| Wrong::new(what).at(node.line))?;
            // A session without a tool is asked for with an empty list, and never had by surprise.
            if !builtin().iter().any(|tool| set.holds(tool.spec())) {
                return Err(Wrong::new(format!("the tools of the set `{word}` are not built yet")).at(node.line));
            }
            return Ok(Self::Set(set));
        }
        if !matches!(node.kind, Kind::List(_)) {
            return Err(Wrong::new("a list of tools, or the name of a set, belongs there").at(node.line));
        }
        let tools = builtin();
        let mut list: Vec<ToolDefinition> = Vec::new();
        for item in node.items() {
            let definition: ToolDefinition = item.read()?;
            let wrong = |what: String| Wrong::new(what).at(item.line);
            if list.iter().any(|known| known.name == definition.name) {
                return Err(wrong(format!("two tools are named `{}`", definition.name)));
            }
            match named(&tools, &definition.name) {
                Some((_, spec)) => drop(definition.applied_to(spec).map_err(|error| wrong(error.to_string()))?),
                None if is_known(&definition.name) => {}
                None => return Err(wrong(unknown(&definition.name, &tools))),
            }
            list.push(definition);
        }
        Ok(Self::List(list))
    }

    /// Names in a list that no tool of this program has.
    pub(crate) fn missing(&self) -> Vec<&str> {
        let Self::List(list) = self else { return Vec::new() };
        let tools = builtin();
        list.iter().map(|entry| entry.name.as_str()).filter(|name| named(&tools, name).is_none()).collect()
    }

    /// The tools with their declarations, for a model that sees images or does not.
    pub(crate) fn registry(&self, vision: bool) -> Result<Registry, String> {
        let (tools, mut registry) = (builtin(), Registry::default());
        let is_wanted = |spec: &ToolSpec| spec.only_for.is_none_or(|kind| kind.is(vision));
        match self {
            Self::Set(set) => {
                for tool in tools.iter().filter(|tool| set.holds(tool.spec()) && is_wanted(tool.spec())) {
                    registry.add(tool.clone()).map_err(|error| error.to_string())?;
                }
            }
            Self::List(list) => {
                for definition in list {
                    let Some((tool, built_in)) = named(&tools, &definition.name) else { continue };
                    let spec = definition.applied_to(built_in).map_err(|error| error.to_string())?;
                    if is_wanted(&spec) {
                        registry.add_as(tool.clone(), spec).map_err(|error| error.to_string())?;
                    }
                }
            }
        }
        Ok(registry)
    }
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let node = Node::of(&value);
        Self::read(&node).map_err(D::Error::custom)
    }
}

/// Reads what a flag says: a set's name, or names with commas between them.
pub(crate) fn of_flag(text: &str) -> Node {
    match text.parse::<ToolSet>() {
        Ok(_) => Node::text(text),
        Err(_) => Node::texts(text.split(',').map(str::trim).filter(|name| !name.is_empty())),
    }
}

/// Whether it is a tool's name, although this program may not have that tool.
fn is_known(name: &str) -> bool {
    NOT_BUILT.contains(&name) || name.starts_with(OF_A_SERVER)
}

/// Names that a rule may speak of: tools, the classes that they answer to, and what servers bring.
pub(crate) fn may_be_in_a_rule(name: &str) -> bool {
    /// The classes of rules, beside those that a tool of this program declares.
    const CLASSES: &[&str] = &["Bash", "Read", "Edit", "WebFetch", "*"];
    /// Made once: a configuration has many rules.
    static DECLARED: LazyLock<Vec<String>> = LazyLock::new(|| {
        let tools = builtin();
        let specs = tools.iter().flat_map(|tool| forms(tool.as_ref()));
        specs.flat_map(|spec| spec.rule_names.iter().chain([&spec.name]).cloned()).collect()
    });
    is_known(name) || CLASSES.contains(&name) || DECLARED.iter().any(|known| known == name)
}

fn unknown(name: &str, tools: &[Arc<dyn Tool>]) -> String {
    let known = tools
        .iter()
        .flat_map(|tool| forms(tool.as_ref()))
        .map(|spec| spec.name.as_str())
        .chain(NOT_BUILT.iter().copied());
    let known: Vec<&str> = known.collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("there is no tool `{name}`; did you mean `{near}`?"),
        None => format!("there is no tool `{name}`; there is {}", known.join(", ")),
    }
}
