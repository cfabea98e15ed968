//! Which tools there are: a named set, or a list whose entries are names or definitions.

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Deserializer, de::Error};
use toolgate_agent::tools::Parts;
use toolgate_core::{
    config::{DefinitionError, ToolDefinition},
    tool::{ForModel, Permission, ToolKind, ToolSet, ToolSpec},
};
use toolgate_runtime::{
    registry::{Registry, forms, named},
    tool::Tool,
};

use super::{
    node::{Kind, Node},
    wrong::Wrong,
};
use crate::{
    nearest::nearest,
    tools::{builtin, with},
};

/// How names of tools begin that servers bring; the servers are not asked what they have while a configuration is read.
const OF_A_SERVER: &str = "mcp__";

/// Why tools that start other sessions are not there.
const NO_DELEGATES: &str = "only a session that people began starts others";

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
    /// Reads a set's name or a list, and checks that every entry can be applied. `own` are the names of the user's own tools.
    pub(crate) fn read(node: &Node, own: &[String]) -> Result<Self, Wrong> {
        if let Kind::Text(word) = &node.kind {
            return word.parse().map(Self::Set).map_err(|what: String| Wrong::new(what).at(node.line));
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
                None if own.contains(&definition.name) => {
                    if definition != ToolDefinition::bare(&definition.name) {
                        return Err(wrong(format!(
                            "`{}` is declared in tools.external; here it is only named",
                            definition.name
                        )));
                    }
                }
                None => return Err(wrong(unknown(&definition.name, &tools))),
            }
            list.push(definition);
        }
        Ok(Self::List(list))
    }

    /// Whether a tool of the user's own is there beside what was chosen: in a list where it is named, in a set always, but for the set of
    /// what only reads.
    pub(crate) fn takes(&self, own: &ToolSpec) -> bool {
        match self {
            Self::List(list) => list.iter().any(|entry| entry.name == own.name),
            Self::Set(ToolSet::ReadOnly) => own.permission == Permission::Read,
            Self::Set(_) => true,
        }
    }

    /// Names in a list that neither a tool of this program nor one of the user's own has.
    pub(crate) fn missing(&self, own: &[String]) -> Vec<&str> {
        let Self::List(list) = self else { return Vec::new() };
        let tools = builtin();
        let names = list.iter().map(|entry| entry.name.as_str());
        names.filter(|name| named(&tools, name).is_none() && !own.iter().any(|own| own == name)).collect()
    }

    /// Names in a list of tools that have to do without their program.
    pub(crate) fn without_program(&self, program: &Lookup<'_>) -> Vec<String> {
        let Self::List(list) = self else { return Vec::new() };
        let tools = builtin();
        let specs = list.iter().filter_map(|entry| named(&tools, &entry.name)).map(|(_, spec)| spec);
        specs.filter_map(|spec| Some(format!("{} {}", spec.name, needs(spec, program)?))).collect()
    }

    /// The tools that were chosen, with their declarations; whether each of them is there is for [`Offer`] to say.
    pub(crate) fn chosen(&self, parts: &Parts) -> Result<Vec<Declared>, String> {
        let tools = with(parts);
        match self {
            Self::Set(set) => {
                let of_set = tools.into_iter().filter(|tool| set.holds(tool.spec()));
                Ok(of_set.map(|tool| (tool.clone(), tool.spec().clone())).collect())
            }
            Self::List(list) => {
                let there = list.iter().filter_map(|entry| Some((entry, named(&tools, &entry.name)?)));
                let applied = there.map(|(entry, (tool, built_in))| Ok((tool.clone(), entry.applied_to(built_in)?)));
                applied.collect::<Result<_, DefinitionError>>().map_err(|error| error.to_string())
            }
        }
    }

    /// The tools of a session with their declarations: the chosen ones, then the user's own.
    pub(crate) fn registry(&self, parts: &Parts, own: Vec<Declared>, offer: &Offer<'_>) -> Result<Registry, String> {
        let mut registry = Registry::default();
        let own = own.into_iter().filter(|(_, spec)| self.takes(spec));
        for (tool, spec) in self.chosen(parts)?.into_iter().chain(own) {
            if offer.refusal(tool.as_ref(), &spec).is_none() {
                registry.add_as(tool, spec).map_err(|error| error.to_string())?;
            }
        }
        Ok(registry)
    }
}

/// A tool and the declaration that holds for it.
pub(crate) type Declared = (Arc<dyn Tool>, ToolSpec);

/// Where a program is, by its name.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<PathBuf> + 'a;

/// What decides, beside being chosen, whether a tool is there.
pub(crate) struct Offer<'a> {
    /// Whether the model sees images.
    pub(crate) vision: bool,
    /// Whether it can hand work to other sessions.
    pub(crate) delegates: bool,
    /// Names and patterns of tools that are left out.
    pub(crate) exclude: &'a [String],
    pub(crate) program: &'a Lookup<'a>,
}

impl Offer<'_> {
    /// Why a tool that was chosen is not there all the same.
    pub(crate) fn refusal(&self, tool: &dyn Tool, spec: &ToolSpec) -> Option<String> {
        let excluded = self.exclude.iter().find(|pattern| forms(tool).any(|form| matches(pattern, &form.name)));
        let of_the_model = || match spec.only_for? {
            kind if kind.is(self.vision) => None,
            ForModel::Vision => Some("for models that see images".to_owned()),
            ForModel::TextOnly => Some("for models that see no images".to_owned()),
        };
        excluded
            .map(|pattern| format!("left out by tools.exclude ({pattern})"))
            .or_else(|| spec.hidden.then(|| "hidden".to_owned()))
            .or_else(of_the_model)
            .or_else(|| (spec.kind == ToolKind::Delegate && !self.delegates).then(|| NO_DELEGATES.to_owned()))
            .or_else(|| needs(spec, self.program))
    }
}

/// What a tool lacks that runs a program.
fn needs(spec: &ToolSpec, program: &Lookup<'_>) -> Option<String> {
    let lacks = !spec.programs.is_empty() && spec.programs.iter().all(|name| program(name).is_none());
    lacks.then(|| format!("needs {} on PATH", spec.programs.join(" or ")))
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let node = Node::of(&value);
        Self::read(&node, &[]).map_err(D::Error::custom)
    }
}

/// Reads what a flag says: a set's name; or names, patterns and sets with commas between them, each tool once.
pub(crate) fn of_flag(text: &str) -> Node {
    if text.parse::<ToolSet>().is_ok() {
        return Node::text(text);
    }
    let tools = builtin();
    let mut names: Vec<&str> = Vec::new();
    for word in words(text) {
        let set: Option<ToolSet> = word.parse().ok();
        let is_meant = |tool: &&Arc<dyn Tool>| match set {
            Some(set) => set.holds(tool.spec()),
            None => word.contains('*') && matches(word, &tool.spec().name),
        };
        let meant: Vec<&str> = tools.iter().filter(is_meant).map(|tool| tool.spec().name.as_str()).collect();
        // A word that means no tool is an error with the word in it, once it is looked up.
        let meant = if meant.is_empty() && set.is_none() { vec![word] } else { meant };
        meant.into_iter().for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
    }
    Node::texts(names)
}

/// The words of a flag that takes a list.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Reads names and patterns of tools, `own` ones included. One that means no tool is an error: what it should have kept out would be there.
pub(crate) fn read_patterns(node: &Node, own: &[String]) -> Result<Vec<String>, Wrong> {
    let (patterns, tools): (Vec<String>, _) = (node.read()?, builtin());
    let known: Vec<&str> = tools
        .iter()
        .flat_map(|tool| forms(tool.as_ref()))
        .map(|form| form.name.as_str())
        .chain(own.iter().map(String::as_str))
        .collect();
    for (pattern, item) in patterns.iter().zip(node.items()) {
        if !pattern.starts_with(OF_A_SERVER) && !known.iter().any(|name| matches(pattern, name)) {
            return Err(Wrong::new(unknown(pattern, &tools)).at(item.line));
        }
    }
    Ok(patterns)
}

/// Whether a pattern means a name; `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => {
            let ends = |name: &str| {
                name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
            };
            name.strip_prefix(start).is_some_and(ends)
        }
    }
}

/// Whether it is the name of a tool that a server may have.
fn is_known(name: &str) -> bool {
    name.starts_with(OF_A_SERVER)
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
    let known = tools.iter().flat_map(|tool| forms(tool.as_ref())).map(|spec| spec.name.as_str());
    let known: Vec<&str> = known.collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("there is no tool `{name}`; did you mean `{near}`?"),
        None => format!("there is no tool `{name}`; there is {}", known.join(", ")),
    }
}
