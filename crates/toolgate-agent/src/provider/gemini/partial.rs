//! Arguments that come piece by piece: each piece names its place by a path and gives a value, and a text may come in several.

use serde_json::{Map, Value};

/// The arguments as far as they have come.
#[derive(Default)]
pub(super) struct PartialArguments {
    arguments: Option<Value>,
    /// The text that goes on with the next piece at its place.
    open: Option<String>,
    /// A piece had no place that could be found, so that what is there is not what the model meant.
    broken: bool,
}

/// The longest path; steps. No schema nests deeper, and what is nested without end overflows the stack of whoever reads it.
const LONGEST_PATH: usize = 64;

/// One step of a path.
enum Step {
    Name(String),
    Index(usize),
}

impl PartialArguments {
    /// Takes a piece in.
    pub(super) fn take(&mut self, piece: &Value) {
        let path = piece["jsonPath"].as_str().unwrap_or_default();
        let root = self.arguments.get_or_insert_with(|| Value::Object(Map::new()));
        let Some(place) = steps_of(path).and_then(|steps| place_at(root, &steps)) else {
            self.broken = true;
            return;
        };
        let goes_on = self.open.as_deref() == Some(path);
        match (&piece["stringValue"], place) {
            (Value::String(more), Value::String(text)) if goes_on => text.push_str(more),
            (Value::String(text), place) => *place = text.clone().into(),
            (_, place) => {
                let value = ["numberValue", "boolValue"].iter().find_map(|kind| piece.get(*kind));
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    *place = value.clone();
                } else if piece.get("nullValue").is_some() {
                    *place = Value::Null;
                }
            }
        }
        self.open = (piece["willContinue"] == true).then(|| path.to_owned());
    }

    /// The arguments, unless a piece of them is lost.
    pub(super) fn whole(self) -> Option<Value> {
        (!self.broken).then(|| self.arguments.unwrap_or_else(|| Value::Object(Map::new())))
    }
}

/// `$.a[0]['b c']` in steps.
fn steps_of(path: &str) -> Option<Vec<Step>> {
    let (mut steps, mut rest) = (Vec::new(), path.strip_prefix('$')?);
    while !rest.is_empty() {
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            steps.push(Step::Name(name[..end].to_owned()));
            rest = &name[end..];
            continue;
        }
        let inner = rest.strip_prefix('[')?;
        if let Some(quote) = inner.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let name = &inner[1..];
            let end = name.find(quote)?;
            steps.push(Step::Name(name[..end].to_owned()));
            rest = name[end + 1..].strip_prefix(']')?;
        } else {
            let end = inner.find(']')?;
            steps.push(Step::Index(inner[..end].parse().ok()?));
            rest = &inner[end + 1..];
        }
    }
    (steps.len() <= LONGEST_PATH).then_some(steps)
}

/// The place where a path leads. A list grows by one element at a time.
fn place_at<'a>(mut place: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    for step in steps {
        let empty = match step {
            Step::Name(_) => Value::Object(Map::new()),
            Step::Index(_) => Value::Array(Vec::new()),
        };
        if place.is_null() {
            *place = empty;
        }
        place = match (step, place) {
            (Step::Name(name), Value::Object(members)) => members.entry(name.clone()).or_insert(Value::Null),
            (Step::Index(index), Value::Array(list)) => {
                if *index == list.len() {
                    list.push(Value::Null);
                }
                list.get_mut(*index)?
            }
            _ => return None,
        };
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_find_their_places() {
        let whole = |pieces: &[Value]| {
            let mut arguments = PartialArguments::default();
            pieces.iter().for_each(|piece| arguments.take(piece));
            arguments.whole()
        };
        let good = [
            json!({ "jsonPath": "$.a[0]", "numberValue": 1.5 }),
            json!({ "jsonPath": "$.a[1].b", "stringValue": "x", "willContinue": true }),
            json!({ "jsonPath": "$.a[1].b", "stringValue": "y", "willContinue": true }),
            json!({ "jsonPath": "$.a[1].b", "stringValue": "" }),
            json!({ "jsonPath": "$['c d']", "boolValue": false }),
            json!({ "jsonPath": "$.n", "nullValue": null }),
        ];
        assert_eq!(whole(&good), Some(json!({ "a": [1.5, { "b": "xy" }], "c d": false, "n": null })));
        assert_eq!(whole(&[]), Some(json!({})));
        let deep = format!("$.d{}", "[0]".repeat(LONGEST_PATH));
        for path in ["a", "$.a[9]", "$.a.b", "$[0]", "$.x[", deep.as_str()] {
            let lost = json!({ "jsonPath": path, "numberValue": 1 });
            assert_eq!(whole(&[&good[..], &[lost]].concat()), None, "{path}");
        }
    }
}
