//! A configuration file as a tree in which every value knows its line. The YAML parser is used here and nowhere else.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};
use serde_saphyr::{Spanned, alias_limits, budget, options};

use super::wrong::Wrong;

/// A configuration's size; bytes. A hand-written one has a few thousand, and nothing that is read at every start may be long.
pub(crate) const LARGEST: u64 = 1024 * 1024;

/// How deep it may nest. A tool's schema is the deepest thing in one.
const DEEPEST: usize = 64;

/// How many values it may hold, those that aliases repeat included. Each costs memory, and a few lines of aliases can ask for billions.
const MOST_VALUES: usize = 100_000;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// Counts from 1; 0 where the value has no file.
    pub(crate) line: u32,
    pub(crate) kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Nothing,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: u32,
    pub(crate) value: Node,
}

impl Node {
    /// Reads a file's text. An empty file is an empty map.
    ///
    /// # Errors
    /// What no YAML parser can read, duplicate keys, several documents, and what is too deep or too much.
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        let options = options! {
            strict_booleans: true,
            with_snippet: false,
            budget: budget! { max_depth: DEEPEST, flow_nesting_limit: DEEPEST, max_events: 2 * MOST_VALUES, max_nodes: MOST_VALUES },
            alias_limits: alias_limits! { max_total_replayed_events: MOST_VALUES, max_replay_stack_depth: DEEPEST },
        };
        serde_saphyr::from_str_with_options::<Option<Self>>(text, options)
            .map(|node| node.unwrap_or(Self { line: 1, kind: Kind::Map(Vec::new()) }))
            .map_err(|error| Wrong::yaml(&error))
    }

    /// A value that stands in no file.
    pub(crate) fn of(value: &Value) -> Self {
        let kind = match value {
            Value::Null => Kind::Nothing,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(value) => Kind::Number(value.clone()),
            Value::String(value) => Kind::Text(value.clone()),
            Value::Array(items) => Kind::List(items.iter().map(Self::of).collect()),
            Value::Object(map) => {
                let entries =
                    map.iter().map(|(key, value)| Entry { key: key.clone(), line: 0, value: Self::of(value) });
                Kind::Map(entries.collect())
            }
        };
        Self { line: 0, kind }
    }

    /// A text that stands in no file.
    pub(crate) fn text(text: &str) -> Self {
        Self { line: 0, kind: Kind::Text(text.to_owned()) }
    }

    /// A number that stands in no file.
    pub(crate) fn number(number: u64) -> Self {
        Self { line: 0, kind: Kind::Number(number.into()) }
    }

    /// A list of texts that stands in no file.
    pub(crate) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self { line: 0, kind: Kind::List(texts.into_iter().map(Self::text).collect()) }
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The keys of a map; none of anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The values of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The value without its places.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Nothing => Value::Null,
            Kind::Bool(value) => (*value).into(),
            Kind::Number(value) => Value::Number(value.clone()),
            Kind::Text(value) => value.as_str().into(),
            Kind::List(items) => items.iter().map(Self::value).collect(),
            Kind::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.value.value())).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Self { line: line(&found), kind: found.value })
    }
}

fn line<T>(found: &Spanned<T>) -> u32 {
    u32::try_from(found.referenced.line()).unwrap_or(u32::MAX)
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Nothing)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Kind, E> {
        Number::from_f64(value)
            .map(Kind::Number)
            .ok_or_else(|| E::custom(format!("`{value}` is no number that can be used")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Kind, E> {
        Ok(Kind::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kind, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Kind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Node>()? {
            entries.push(Entry { line: line(&key), key: key.value, value });
        }
        Ok(Kind::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line() {
        let node = Node::parse("a: 1\nb:\n  - x\n  - y: true\nc: {d: [~, 1.5]}\n").unwrap();
        let b = node.get("b").unwrap();
        assert_eq!((node.get("a").unwrap().line, b.items()[0].line, b.items()[1].get("y").unwrap().line), (1, 3, 4));
        assert_eq!(node.entries()[2].line, 5);
        assert_eq!(node.value(), serde_json::json!({"a": 1, "b": ["x", {"y": true}], "c": {"d": [null, 1.5]}}));
        for empty in ["", "\n# nothing\n"] {
            assert_eq!(Node::parse(empty).unwrap().value(), serde_json::json!({}), "{empty:?}");
        }
    }

    #[test]
    fn only_true_and_false_are_yes_and_no() {
        let node = Node::parse("a: yes\nb: on\nc: true\nd: 'true'\n").unwrap();
        assert_eq!(node.value(), serde_json::json!({"a": "yes", "b": "on", "c": true, "d": "true"}));
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_its_line() {
        let bomb = (0..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
            let alias = format!("*a{i},").repeat(10);
            format!("{text}a{n}: &a{n} [{alias}]\n", n = i + 1)
        });
        for (text, line, part) in [
            ("a: 1\na: 2\n", 2, "`a` stands there twice"),
            ("a:\n\tb: 1\n", 2, "tab"),
            ("a: 1\n---\nb: 2\n", 3, "a second document"),
            ("a: *\n", 1, "quotes"),
            ("a: *x\n", 1, "quotes"),
            ("a: [1, 2\n", 0, ""),
            (&"[".repeat(1000), 1, "deep"),
            (&bomb, 0, "too much"),
            ("a: \"\\q\"\n", 1, ""),
            ("a: .nan\n", 1, ""),
        ] {
            let wrong = Node::parse(text).unwrap_err();
            let shown = text.get(..40).unwrap_or(text);
            assert!(wrong.what.contains(part) && (line == 0 || wrong.line == Some(line)), "{shown:?}: {wrong:?}");
            assert!(!wrong.what.contains('\n'), "{wrong:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reading_panic(text in "[ab:\\-\\[\\]{}&*!|>'\"#\n\t ~,?%@01.<]{0,60}") {
            if let Err(wrong) = Node::parse(&text) {
                assert!(!wrong.what.is_empty() && !wrong.what.contains('\n'), "{text:?}: {wrong:?}");
            }
        }
    }
}
