//! `toolgate config show|check|path|reference`: what is set, where it came from, and whether it can be read.
#![allow(clippy::disallowed_methods)] // Whether a configuration is there is looked up here.

use std::path::Path;

use clap::Subcommand;
use serde_json::{Map, Value, json};
use toolgate_runtime::process::command_env::is_secret_name;

use super::{Common, print};
use crate::{
    config::{self, KEYS, Layer, Settings},
    failure::Failure,
    models::{HIDDEN, without_password},
    surroundings::Surroundings,
    wiring,
};

/// Keys of servers under which values are secrets more often than not.
const SECRET_PARTS: &[&str] = &["env", "headers"];

/// Subcommands of `toolgate config`.
#[derive(Subcommand)]
pub(super) enum Config {
    /// Print each value and where it came from.
    Show {
        /// Print one JSON object: key by key, value and source.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Read everything and say what is wrong.
    Check {
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Print where the files stand, and which of them are there.
    Path {
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Print the page that explains every key.
    Reference,
}

impl Config {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        match self {
            Self::Show { json, common } => {
                let settings = load(&common, surroundings)?;
                if json {
                    print::json(&shown(&settings))
                } else {
                    show(&settings)
                }
                settings.notes.iter().for_each(|note| print::to_person(&format!("note: {note}")));
            }
            Self::Check { common } => {
                let workspace = wiring::workspace(common.workspace.as_deref())?;
                let settings = common.settings(Vec::new(), workspace.root(), surroundings)?;
                let (rules, tests) = (settings.permissions.rules.len(), settings.permissions.tests.len());
                print::data(&format!("the configuration holds; rules: {rules}, tests of them: {tests}"));
            }
            Self::Path { common } => {
                let workspace = wiring::workspace(common.workspace.as_deref())?;
                for (layer, path) in files(surroundings, workspace.root()) {
                    let state = if path.exists() { "there" } else { "not there" };
                    print::data(&format!("{layer:<9} {}  {state}", path.display()));
                }
            }
            Self::Reference => print::text(&config::page()),
        }
        Ok(0)
    }
}

fn load(common: &Common, surroundings: &Surroundings) -> Result<Settings, Failure> {
    let workspace = wiring::workspace(common.workspace.as_deref())?;
    config::load(&common.given(), workspace.root(), surroundings)
}

/// The files that are looked for, the weakest layer first.
pub(super) fn files(surroundings: &Surroundings, workspace: &Path) -> Vec<(&'static str, std::path::PathBuf)> {
    let paths = config::paths(surroundings, workspace);
    let user = paths.user.map(|path| (Layer::User.as_str(), path));
    let rest = [(Layer::Project.as_str(), paths.project), (Layer::Managed.as_str(), paths.managed)];
    user.into_iter().chain(rest).chain(paths.keys.map(|path| ("keys", path))).collect()
}

fn show(settings: &Settings) {
    for key in KEYS {
        let mut said: Vec<_> = settings.record.of(key.path).collect();
        if !adds_up(key.path) {
            said.drain(..said.len().saturating_sub(1));
        }
        if said.is_empty() {
            print::data(&format!("{}: {}  (built in)", key.path, key.default));
        }
        for (value, source) in said {
            print::data(&format!("{}: {}  ({source})", key.path, without_secrets(key.path, value)));
        }
    }
}

fn shown(settings: &Settings) -> Value {
    let each = KEYS.iter().map(|key| {
        let said = settings.record.of(key.path);
        let mut said: Vec<Value> = said
            .map(|(value, source)| json!({ "value": without_secrets(key.path, value), "source": source.to_string() }))
            .collect();
        let value = match said.pop() {
            None => json!({ "default": key.default, "source": "built in" }),
            Some(last) if !adds_up(key.path) => last,
            Some(last) => {
                said.push(last);
                Value::Array(said)
            }
        };
        (key.path.to_owned(), value)
    });
    Value::Object(each.collect::<Map<_, _>>())
}

/// Whether all that was said of a key counts, and not only the last.
fn adds_up(key: &str) -> bool {
    key.starts_with("permissions.") && !matches!(key, "permissions.mode" | "permissions.policy")
}

/// A value with everything hidden that could be a secret.
fn without_secrets(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("env.set", Value::Object(set)) => set
            .iter()
            .map(|(name, value)| (name.clone(), if is_secret_name(name) { HIDDEN.into() } else { value.clone() }))
            .collect(),
        ("tools.mcpServers", value) => servers_without_secrets(value),
        (_, value) => addresses_without_secrets(value),
    }
}

fn servers_without_secrets(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(servers_without_secrets).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| match value {
                Value::Object(inner) if SECRET_PARTS.contains(&name.as_str()) => {
                    (name.clone(), inner.keys().map(|name| (name.clone(), Value::from(HIDDEN))).collect())
                }
                Value::String(_) if is_secret_name(name) => (name.clone(), HIDDEN.into()),
                value => (name.clone(), servers_without_secrets(value)),
            })
            .collect(),
        other => addresses_without_secrets(other),
    }
}

/// A password in an address is one too.
fn addresses_without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => without_password(text).into(),
        Value::Array(items) => items.iter().map(addresses_without_secrets).collect(),
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), addresses_without_secrets(value))).collect()
        }
        other => other.clone(),
    }
}
