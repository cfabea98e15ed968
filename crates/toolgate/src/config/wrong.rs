//! What is wrong with a value, in words for the person who wrote it.

use std::fmt::Display;

use serde::de::{Error, Expected, Unexpected};

use crate::nearest::nearest;

/// What is wrong, and on which line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) line: Option<u32>,
    pub(crate) what: String,
}

impl Wrong {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { line: None, what: what.into() }
    }

    /// At this line, where no closer one is known.
    pub(crate) fn at(mut self, line: u32) -> Self {
        self.line = self.line.or((line > 0).then_some(line));
        self
    }

    /// Of this key.
    pub(crate) fn of(mut self, key: &str) -> Self {
        self.what = format!("{key}: {}", self.what);
        self
    }

    /// What the YAML parser says, in the words of this program where it has some.
    pub(crate) fn yaml(error: &serde_saphyr::Error) -> Self {
        use serde_saphyr::Error as Yaml;
        let line = error.location().and_then(|location| u32::try_from(location.line()).ok()).filter(|line| *line > 0);
        let what = match error.without_snippet() {
            Yaml::DuplicateMappingKey { key, .. } => {
                let key = key.as_deref().unwrap_or("a key");
                format!("`{key}` stands there twice, and only one of the two could count")
            }
            Yaml::UnknownAnchor { .. } => "a `*` outside of quotes stands for another value, and there is none of that name; put the text in quotes".into(),
            Yaml::MultipleDocuments { .. } => "a second document begins here, and a configuration is one".into(),
            _ if bare(error).contains("limit") => {
                format!("it is too much or too deep for a configuration ({})", bare(error))
            }
            _ if bare(error).contains("anchor") => {
                format!("{}; put a text that begins with `*` or `&` in quotes", bare(error))
            }
            _ => bare(error),
        };
        Self { line, what }
    }
}

/// The parser's own words on one line, without the place, which is said elsewhere.
fn bare(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = text.split(" at line ").next().unwrap_or(text);
    text.split_once(": line ").map_or(text, |(text, _)| text).to_owned()
}

/// What to write instead of a word that is not known: the one that was meant, else all.
pub(crate) fn instead(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "nothing can stand there".into(),
        None => format!("there is {}", known.join(", ")),
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Wrong {}

impl Error for Wrong {
    fn custom<T: Display>(what: T) -> Self {
        Self::new(what.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(value) => format!("`{value}` without quotes, a yes or no,"),
            Unexpected::Unsigned(value) => format!("the number {value}"),
            Unexpected::Signed(value) => format!("the number {value}"),
            Unexpected::Float(value) => format!("the number {value}"),
            Unexpected::Str(value) => format!("the text \"{value}\""),
            Unexpected::Unit | Unexpected::Option => "nothing".into(),
            Unexpected::Seq => "a list".into(),
            Unexpected::Map => "a map".into(),
            other => other.to_string(),
        };
        Self::new(format!("{found} stands where {wanted} belongs"))
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::new(format!("{found} is not {wanted}"))
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("`{word}` is not known here; {}", instead(word, known)))
    }

    fn unknown_field(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("`{word}` is no key here; {}", instead(word, known)))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(format!("the key `{name}` is missing"))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::new(format!("`{name}` stands there twice"))
    }
}
