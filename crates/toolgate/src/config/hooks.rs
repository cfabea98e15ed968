//! Hooks as configurations write them: lists by event, in the form of this program or in the nested one that others use.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use toolgate_runtime::hooks::{DEFAULT_TIMEOUT, Hook, HookCommand, HookEvent, Matcher, OnFailure};

use super::{
    layers::Source,
    node::{Kind, Node},
    wrong::{Wrong, instead},
};
use crate::surroundings::Surroundings;

/// A hook as a file declares it.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    hook: Hook,
    /// The folder of the file, from which a path of the program leads on.
    folder: PathBuf,
}

/// One hook.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    matcher: String,
    command: HookCommand,
    /// Seconds, as other programs have it.
    timeout: Option<f64>,
    on_failure: Option<OnFailure>,
}

/// A hook inside of a list of its matcher, as other programs write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nested {
    #[serde(rename = "type")]
    _kind: Option<CommandOnly>,
    command: HookCommand,
    timeout: Option<f64>,
    on_failure: Option<OnFailure>,
}

/// The one kind of hook that there is.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CommandOnly {
    Command,
}

/// Reads the hooks of a file, in the order of their events and then of their lists.
pub(super) fn read(node: &Node, from: &Source) -> Result<Vec<Configured>, Wrong> {
    let names = HookEvent::ALL.map(HookEvent::as_str);
    if !matches!(node.kind, Kind::Map(_)) {
        let what = format!("a map of lists by event belongs there; the events are {}", names.join(", "));
        return Err(Wrong::new(what).at(node.line));
    }
    let mut hooks = Vec::new();
    for entry in node.entries() {
        let Some(event) = HookEvent::ALL.into_iter().find(|event| event.as_str() == entry.key) else {
            let what = format!("`{}` is no event; {}", entry.key, instead(&entry.key, &names));
            return Err(Wrong::new(what).at(entry.line));
        };
        if !matches!(entry.value.kind, Kind::List(_)) {
            return Err(Wrong::new(format!("{}: a list of hooks belongs there", entry.key)).at(entry.value.line));
        }
        for item in entry.value.items() {
            read_item(event, item, from, &mut hooks).map_err(|wrong| wrong.at(item.line).of(&entry.key))?;
        }
    }
    Ok(hooks)
}

fn read_item(event: HookEvent, item: &Node, from: &Source, hooks: &mut Vec<Configured>) -> Result<(), Wrong> {
    let Some(nested) = item.get("hooks") else {
        let Written { matcher, command, timeout, on_failure } = item.read()?;
        hooks.push(configured(event, &matcher, command, timeout, on_failure, &from.on_line(item.line))?);
        return Ok(());
    };
    if let Some(odd) = item.entries().iter().find(|entry| !matches!(entry.key.as_str(), "matcher" | "hooks")) {
        return Err(Wrong::new(format!("`{}` counts for nothing beside `hooks`", odd.key)).at(odd.line));
    }
    let matcher: String = item.get("matcher").map_or_else(|| Ok(String::new()), Node::read)?;
    for inner in nested.items() {
        let Nested { _kind: _, command, timeout, on_failure } = inner.read()?;
        hooks.push(configured(event, &matcher, command, timeout, on_failure, &from.on_line(inner.line))?);
    }
    Ok(())
}

fn configured(
    event: HookEvent,
    matcher: &str,
    command: HookCommand,
    timeout: Option<f64>,
    on_failure: Option<OnFailure>,
    place: &Source,
) -> Result<Configured, Wrong> {
    let matches_nothing = matches!(event, HookEvent::UserPromptSubmit | HookEvent::Stop);
    if matches_nothing && !matcher.is_empty() {
        return Err(Wrong::new("a matcher counts for nothing here, since there is nothing to match"));
    }
    let is_empty = match &command {
        HookCommand::Line(line) => line.trim().is_empty(),
        HookCommand::Program(argv) => argv.first().is_none_or(String::is_empty),
    };
    if is_empty {
        return Err(Wrong::new("command: a line of shell belongs there, or a list of a program and its arguments"));
    }
    let timeout = match timeout {
        None => DEFAULT_TIMEOUT,
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|timeout| !timeout.is_zero())
            .ok_or_else(|| Wrong::new("timeout: seconds from above 0 belong there"))?,
    };
    let matcher = Matcher::parse(matcher).map_err(|what| Wrong::new(format!("matcher: {what}")))?;
    let on_failure = on_failure.unwrap_or(event.default_on_failure());
    let hook = Hook { event, matcher, command, timeout, on_failure, place: place.to_string() };
    Ok(Configured { hook, folder: place.folder().map_or_else(|| "/".into(), |folder| folder.to_path_buf()) })
}

impl Configured {
    /// The hook, with its program where it is. One that is nowhere stays as it is written, and fails when it is asked.
    pub(crate) fn hook(&self, surroundings: &Surroundings) -> Hook {
        let mut hook = self.hook.clone();
        if let HookCommand::Program(argv) = &mut hook.command
            && let Some(path) = argv.first().and_then(|written| surroundings.program_from(&self.folder, written))
            && let Ok(path) = path.into_os_string().into_string()
        {
            argv[0] = path;
        }
        hook
    }

    /// Names in its matcher that no tool has and no rule knows: it would never be asked.
    pub(super) fn unknown_names<'a>(&'a self, known: &'a dyn Fn(&str) -> bool) -> impl Iterator<Item = &'a str> {
        let names = self.hook.event.is_about_a_tool().then(|| self.hook.matcher.plain_names());
        names.into_iter().flatten().filter(|name| !known(name))
    }

    /// What it is asked about, what runs and where it stands.
    pub(crate) fn shown(&self) -> String {
        format!("{}: {} ({})", self.hook.event.as_str(), self.hook.command.shown(), self.hook.place)
    }

    /// Where it stands.
    pub(super) fn place(&self) -> &str {
        &self.hook.place
    }
}
