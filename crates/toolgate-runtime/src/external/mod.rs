//! Tools that are programs of the user's own: declared in a configuration, called through the same door as every other tool.
//!
//! ```text
//! declaration -> effects, filled from the checked arguments -> gate -> the program: arguments in, one line of JSON a message out
//! ```
//!
//! * this file: the [`Declaration`], checked before anything runs; [`template`]: what a call would do, in the declaration's words;
//! * [`protocol`]: what a program says; [`tool`]: one call of one.

pub mod protocol;
pub mod template;
pub mod tool;

use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    config::admit,
    tool::{Bound, ExecutionMode, Permission, ToolKind, ToolSpec, Truncate},
};

pub use template::Template;
pub use tool::ExternalTool;

/// Characters of a tool's name; the strictest provider takes no more.
const LONGEST_NAME: usize = 64;

/// A program as a tool, with the names that a configuration gives the fields.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Declaration {
    /// What the model calls it.
    pub name: String,
    /// What the model is told of it.
    pub description: String,
    /// The JSON Schema of its arguments; none are taken without one.
    #[serde(default = "no_arguments")]
    pub parameters: Value,
    /// The program and its arguments. No shell reads them, and nothing of a call is put into them.
    pub command: Vec<String>,
    /// What its output is.
    #[serde(default)]
    pub protocol: Protocol,
    /// `r` or `rw`, which it is without it.
    pub permission: Option<Permission>,
    /// The time limit of one call in milliseconds; none when it is not positive.
    pub timeout_ms: Option<i64>,
    /// Characters of a result that the model reads; all when it is not positive.
    pub max_output_length: Option<i64>,
    /// Which part of a longer result is kept.
    pub truncate: Option<Truncate>,
    /// Whether its calls may run beside others.
    pub execution: Option<ExecutionMode>,
    /// One line for the system prompt; without one it is not listed there.
    pub snippet: Option<String>,
    /// What a call would do. Without it nobody knows, and a call asks wherever not everything is allowed; an empty list says that it
    /// touches nothing.
    pub effects: Option<Vec<Template>>,
}

/// What a program's output is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// One message a line, as JSON (see [`protocol`]).
    #[default]
    Lines,
    /// Text, taken as it is; the exit code says how it went.
    Text,
}

/// A declaration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct DeclarationError {
    /// The field as a configuration writes it.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl Declaration {
    /// The tool's declaration as the rest of the program knows it.
    ///
    /// # Errors
    /// When the name is none, the parameters are no schema that can be checked, there is no program, or an effect speaks of an argument
    /// that there is not.
    pub fn spec(&self) -> Result<ToolSpec, DeclarationError> {
        let wrong = |field, reason| Err(DeclarationError { field, reason });
        let usual = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > LONGEST_NAME || !self.name.chars().all(usual) {
            let what =
                format!("`{}` is no name for a tool: letters, digits, `_` and `-`, {LONGEST_NAME} at most", self.name);
            return wrong("name", what);
        }
        admit(&self.parameters).map_err(|reason| DeclarationError { field: "parameters", reason })?;
        if self.command.first().is_none_or(|program| program.is_empty()) {
            return wrong("command", "a list of a program and its arguments belongs there".into());
        }
        for template in self.effects.iter().flatten() {
            template.check(&self.parameters).map_err(|reason| DeclarationError { field: "effects", reason })?;
        }
        let mut spec = ToolSpec::new(&self.name, &self.description, self.parameters.clone());
        spec.permission = self.permission.unwrap_or(spec.permission);
        spec.timeout_ms = self.timeout_ms.unwrap_or(spec.timeout_ms);
        spec.execution = self.execution.unwrap_or(spec.execution);
        spec.kind = self.effects.iter().flatten().map(Template::kind).next().unwrap_or(ToolKind::Other);
        for class in self.effects.iter().flatten().map(Template::class) {
            if !spec.rule_names.iter().any(|known| known == class) {
                spec.rule_names.push(class.to_owned());
            }
        }
        spec.snippet = self.snippet.clone().map(Into::into);
        let keep = self.truncate.unwrap_or(spec.bound.keep);
        spec.bound = match self.max_output_length {
            Some(most) => Bound::characters(most, keep),
            None => Bound { keep, ..spec.bound },
        };
        Ok(spec)
    }
}

fn no_arguments() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}
