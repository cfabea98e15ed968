//! Arguments that come piece by piece: each piece names its place by a path and gives a value, and a text may come in several.

use serde_json::{Map, Value};

/// The arguments as far as they have come.
#[derive(Default)]
pub(super) struct PartialArguments {
    arguments: Option<Value>,
    /// The text that goes on with the next piece at its place.
    open: Option<String>,
}

/// The largest index in a list that a piece may name. Far above real ones, and small enough that a broken one fills no memory.
const MAX_INDEX: usize = 10_000;

/// One step of a path.
enum Step {
    Name(String),
    Index(usize),
}

impl PartialArguments {
    /// Takes a piece in. What has no place that can be read is left out.
    pub(super) fn take(&mut self, piece: &Value) {
        let Some(path) = piece["jsonPath"].as_str() else { return };
        let Some(steps) = steps_of(path) else { return };
        let place = place_at(self.arguments.get_or_insert_with(|| Value::Object(Map::new())), &steps);
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

    pub(super) fn whole(self) -> Value {
        self.arguments.unwrap_or_else(|| Value::Object(Map::new()))
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
            let index = inner[..end].parse().ok().filter(|index| *index <= MAX_INDEX)?;
            steps.push(Step::Index(index));
            rest = &inner[end + 1..];
        }
    }
    Some(steps)
}

fn place_at<'a>(mut place: &'a mut Value, steps: &[Step]) -> &'a mut Value {
    for step in steps {
        place = match step {
            Step::Name(name) => {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                &mut place[name.as_str()]
            }
            Step::Index(index) => {
                if !place.is_array() {
                    *place = Value::Array(Vec::new());
                }
                if let Some(list) = place.as_array_mut().filter(|list| list.len() <= *index) {
                    list.resize(index + 1, Value::Null);
                }
                &mut place[*index]
            }
        };
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_find_their_places() {
        let mut arguments = PartialArguments::default();
        for piece in [
            json!({ "jsonPath": "$.a[1].b", "stringValue": "x", "willContinue": true }),
            json!({ "jsonPath": "$.a[1].b", "stringValue": "y", "willContinue": true }),
            json!({ "jsonPath": "$.a[1].b", "stringValue": "" }),
            json!({ "jsonPath": "$.a[0]", "numberValue": 1.5 }),
            json!({ "jsonPath": "$['c d']", "boolValue": false }),
            json!({ "jsonPath": "$.n", "nullValue": null }),
            json!({ "jsonPath": "$.a[9999999999]", "numberValue": 1 }),
            json!({ "jsonPath": "a", "numberValue": 1 }),
        ] {
            arguments.take(&piece);
        }
        assert_eq!(arguments.whole(), json!({ "a": [1.5, { "b": "xy" }], "c d": false, "n": null }));
        assert_eq!(PartialArguments::default().whole(), json!({}));
    }
}
