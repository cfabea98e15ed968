//! What a call of a program would do, in the words of its declaration: `read: "{path}"`.
//!
//! A template is filled from checked arguments and never by a shell, so what stands in an argument cannot become more than its text.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use toolgate_core::{
    call::Args,
    tool::{Effect, ToolKind},
};

use crate::tool::{CheckContext, ToolError};

/// Effects of one call. A list in an argument gives one each, and nobody reads more than this in a question.
const MOST_EFFECTS: usize = 256;

/// One effect, with places for arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<Act, String>")]
pub struct Template {
    act: Act,
    pieces: Vec<Piece>,
}

/// What kind of effect; the word that a configuration writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Act {
    Read,
    Write,
    Search,
    Connect,
    Run,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument(String),
}

impl TryFrom<BTreeMap<Act, String>> for Template {
    type Error = String;

    fn try_from(map: BTreeMap<Act, String>) -> Result<Self, String> {
        let mut entries = map.into_iter();
        match (entries.next(), entries.next()) {
            (Some((act, text)), None) => Ok(Self { act, pieces: pieces(&text)? }),
            _ => Err("an effect is one word and what it is about, such as `read: \"{path}\"`".into()),
        }
    }
}

/// Takes a text apart: `{name}` is an argument, `{{` and `}}` are braces.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let (brace, behind) = rest[at..].split_at(1);
        if let Some(behind) = behind.strip_prefix(brace) {
            plain.push_str(brace);
            rest = behind;
            continue;
        }
        let Some((name, behind)) = behind.split_once('}').filter(|(name, _)| brace == "{" && !name.is_empty()) else {
            return Err(format!(
                "`{text}` holds a brace that belongs to no argument; write {{{{ or }}}} for a brace itself"
            ));
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Argument(name.to_owned()));
        rest = behind;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    if pieces.is_empty() { Err("an effect is about something, and this text is empty".into()) } else { Ok(pieces) }
}

impl Template {
    /// What a front end shows a call with such an effect as.
    pub(super) fn kind(&self) -> ToolKind {
        match self.act {
            Act::Read => ToolKind::Read,
            Act::Write => ToolKind::Edit,
            Act::Search => ToolKind::Search,
            Act::Connect => ToolKind::Fetch,
            Act::Run => ToolKind::Execute,
        }
    }

    /// The class of rules that speak of such an effect.
    pub(super) fn class(&self) -> &'static str {
        match self.act {
            Act::Read | Act::Search => "Read",
            Act::Write => "Edit",
            Act::Connect => "WebFetch",
            Act::Run => "Bash",
        }
    }

    /// Whether the parameters have every argument that it names.
    pub(super) fn check(&self, parameters: &Value) -> Result<(), String> {
        let known = |name: &str| parameters["properties"].get(name).is_some();
        match self.arguments().find(|name| !known(name)) {
            Some(name) => Err(format!("`{{{name}}}` is no argument: `parameters` has no property of that name")),
            None => Ok(()),
        }
    }

    fn arguments(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The effects of a call: one; one for each entry where an argument is a list; none where an argument is not given and has no default.
    pub(super) fn fill(&self, args: &Args, parameters: &Value, cx: &CheckContext) -> Result<Vec<Effect>, ToolError> {
        let mut texts = vec![String::new()];
        for piece in &self.pieces {
            let values = match piece {
                Piece::Text(text) => vec![text.clone()],
                Piece::Argument(name) => {
                    let given = args.get(name).filter(|value| !value.is_null());
                    match given.or_else(|| parameters["properties"][name].get("default")) {
                        Some(value) => words(name, value)?,
                        None => Vec::new(),
                    }
                }
            };
            if texts.len() * values.len() > MOST_EFFECTS {
                return Err(ToolError(format!("one call may touch {MOST_EFFECTS} things at most")));
            }
            texts = texts.iter().flat_map(|text| values.iter().map(move |value| format!("{text}{value}"))).collect();
        }
        texts.into_iter().map(|text| self.effect(text, cx)).collect()
    }

    fn effect(&self, text: String, cx: &CheckContext) -> Result<Effect, ToolError> {
        Ok(match self.act {
            Act::Read => Effect::Read(cx.files.resolve(&text)?),
            Act::Write => Effect::Write(cx.files.resolve(&text)?),
            Act::Search => Effect::Search(cx.files.resolve(&text)?),
            Act::Connect => Effect::Connect(host(&text)?),
            Act::Run => Effect::Run { line: text, cwd: cx.workspace.root().to_owned() },
        })
    }
}

/// The texts of an argument's value.
fn words(name: &str, value: &Value) -> Result<Vec<String>, ToolError> {
    Ok(match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(_) | Value::Bool(_) => vec![value.to_string()],
        Value::Array(items) => {
            let texts: Result<Vec<_>, _> = items.iter().map(|item| words(name, item)).collect();
            texts?.concat()
        }
        Value::Null | Value::Object(_) => {
            return Err(ToolError(format!(
                "what this call would do cannot be said: /{name} is no text, number or list of such"
            )));
        }
    })
}

/// The host of a name or an address, in small letters: what is compared with rules.
fn host(text: &str) -> Result<String, ToolError> {
    let behind_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = behind_scheme.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let name = authority.rsplit_once('@').map_or(authority, |(_, name)| name);
    let name = match name.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => name,
    };
    let usual = |c: char| c.is_alphanumeric() || "-._[]:".contains(c);
    if name.is_empty() || !name.chars().all(usual) {
        return Err(ToolError(format!("`{text}` names no host")));
    }
    Ok(name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(word: &str, text: &str) -> Result<Template, String> {
        serde_json::from_value(serde_json::json!({ word: text })).map_err(|error| error.to_string())
    }

    #[test]
    fn braces_are_arguments_and_doubled_ones_are_braces() {
        use Piece::{Argument, Text};
        let (text, argument) = (|text: &str| Text(text.into()), |name: &str| Argument(name.into()));
        for (written, wanted) in [
            ("{path}", vec![argument("path")]),
            ("a/{b}.{c}/", vec![text("a/"), argument("b"), text("."), argument("c"), text("/")]),
            ("{{x}} {y}", vec![text("{x} "), argument("y")]),
            ("plain", vec![text("plain")]),
        ] {
            assert_eq!(template("read", written).unwrap().pieces, wanted, "{written}");
        }
        for (word, written, part) in [
            ("read", "{path", "belongs to no argument"),
            ("read", "path}", "belongs to no argument"),
            ("read", "{}", "belongs to no argument"),
            ("read", "", "about something"),
            ("erase", "{path}", "unknown variant `erase`, expected one of `read`, `write`"),
        ] {
            let error = template(word, written).unwrap_err();
            assert!(error.contains(part), "{written}: {error}");
        }
    }

    #[test]
    fn an_address_is_held_to_its_host() {
        for (text, wanted) in [
            ("example.org", "example.org"),
            ("https://Example.ORG/a?b#c", "example.org"),
            ("https://good.org@evil.org:8443/good.org", "evil.org"),
            ("http://evil.org\\@good.org/", "evil.org"),
            ("[::1]:80", "[::1]"),
        ] {
            assert_eq!(host(text).unwrap(), wanted, "{text}");
        }
        for text in ["", "https://", "a b", "http:///x"] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
