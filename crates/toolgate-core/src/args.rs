//! From a model's text to checked arguments.
//!
//! Strict JSON, mended only where the meaning cannot change: `"42"` where an integer is wanted, `"true"` where a
//! boolean is, a single object where a list is, a JSON string where an object or list is, nothing or `null` for no arguments. Mending
//! comes before the question, so that a person sees, and the digest covers, the bytes that run.

use serde_json::Value;

use crate::{
    call::Args,
    schema::{Schema, is_type, types_of},
};

/// Arguments that fit, and what was changed or left out to make them fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The arguments that run.
    pub args: Args,
    /// Sentences for the model.
    pub notes: Vec<String>,
}

/// Reads, mends and checks a call's arguments.
///
/// # Errors
/// A text for the model that names every place, the reason and what was received. Such a call never runs.
pub fn check(tool: &str, schema: &Schema, text: &str) -> Result<Checked, String> {
    let value = parse(tool, text)?;
    let mut notes = Vec::new();
    let Value::Object(mut args) = value else {
        return Err(format!("Invalid arguments for {tool}: expected one JSON object, got {}.", kind_of(&value)));
    };
    leave_out_unknown(schema, &mut args, &mut notes);
    let mut value = Value::Object(args);
    mend(schema, schema.root(), &mut value, "", &mut notes, 0);
    let violations = schema.check(&value);
    if !violations.is_empty() {
        let reasons = violations.iter().map(|violation| format!("\n- {violation}")).collect::<String>();
        return Err(format!("Invalid arguments for {tool}:{reasons}"));
    }
    match value {
        Value::Object(args) => Ok(Checked { args, notes }),
        _ => Err(format!("Invalid arguments for {tool}: expected one JSON object.")),
    }
}

fn parse(tool: &str, text: &str) -> Result<Value, String> {
    if matches!(text.trim(), "" | "null") {
        return Ok(Value::Object(Args::new()));
    }
    serde_json::from_str(text).map_err(|error| {
        format!(
            "Invalid arguments for {tool}: the text is not valid JSON ({error}). Nothing was run. Send one complete JSON object; inside \
             strings write a line break as \\n and a backslash as \\\\."
        )
    })
}

/// Fields that the schema's root does not describe are ignored, and named.
fn leave_out_unknown(schema: &Schema, args: &mut Args, notes: &mut Vec<String>) {
    let root = schema.follow(schema.root());
    // Only where the root itself lists everything: a combination could describe more fields than `properties` does.
    let open = ["patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"]
        .iter()
        .any(|key| root.get(key).is_some())
        || root.get("additionalProperties").is_some_and(|rest| *rest != Value::Bool(false));
    let Some(known) = root.get("properties").and_then(Value::as_object).filter(|_| !open) else { return };
    let unknown: Vec<String> = args.keys().filter(|name| !known.contains_key(*name)).cloned().collect();
    for name in unknown {
        args.remove(&name);
        notes.push(format!("[unknown argument ignored: {name}]"));
    }
}

/// The deepest place that is mended; deeper values are checked as they are.
const MAX_MENDED_DEPTH: usize = 16;

fn mend(schema: &Schema, at: &Value, value: &mut Value, path: &str, notes: &mut Vec<String>, depth: usize) {
    if depth > MAX_MENDED_DEPTH {
        return;
    }
    let at = schema.follow(at);
    if let Some(wanted) = at.get("type") {
        let fits = |value: &Value| types_of(wanted).any(|name| is_type(value, name));
        if !fits(value)
            && let Some(better) = types_of(wanted).find_map(|name| coerced(value, name)).filter(fits)
        {
            notes.push(format!("[argument {} read as {}]", if path.is_empty() { "/" } else { path }, kind_of(&better)));
            *value = better;
        }
    }
    match value {
        Value::Object(members) => {
            if let Some(own) = at.get("properties").and_then(Value::as_object) {
                for (name, inner) in own {
                    if let Some(member) = members.get_mut(name) {
                        mend(schema, inner, member, &format!("{path}/{name}"), notes, depth + 1);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = at.get("items") {
                for (i, item) in items.iter_mut().enumerate() {
                    mend(schema, inner, item, &format!("{path}/{i}"), notes, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// The same meaning in the wanted type, or nothing. `null` never becomes text.
fn coerced(value: &Value, wanted: &str) -> Option<Value> {
    match (wanted, value) {
        ("integer", Value::String(text)) => {
            let number = text.trim().parse::<i64>().ok()?;
            Some(Value::from(number))
        }
        ("number", Value::String(text)) => {
            // JSON's own grammar, so that "NaN", "1e400" and "0x1" stay what they are: text.
            let number = serde_json::from_str::<Value>(text.trim()).ok()?;
            number.is_number().then_some(number)
        }
        ("boolean", Value::String(text)) => match text.trim() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        ("array" | "object", Value::String(text)) => {
            let inner = serde_json::from_str::<Value>(text).ok()?;
            is_type(&inner, wanted).then_some(inner)
        }
        ("array", Value::Object(_)) => Some(Value::Array(vec![value.clone()])),
        _ => None,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::compile(&json!({
            "type": "object",
            "properties": {
                "cmd": {"type": "string", "minLength": 1},
                "n": {"type": "integer"},
                "f": {"type": "number"},
                "flag": {"type": "boolean"},
                "edits": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                "o": {"type": "object"},
            },
            "required": ["cmd"],
            "additionalProperties": false,
        }))
        .unwrap()
    }

    #[test]
    fn safe_coercion_and_no_other() {
        for (given, wanted) in [
            (json!({"cmd":"a","n":"42"}), json!({"cmd":"a","n":42})),
            (json!({"cmd":"a","f":" 1.5 "}), json!({"cmd":"a","f":1.5})),
            (json!({"cmd":"a","flag":"true"}), json!({"cmd":"a","flag":true})),
            (json!({"cmd":"a","edits":{"n":"1"}}), json!({"cmd":"a","edits":[{"n":1}]})),
            (json!({"cmd":"a","edits":"[{\"n\":1}]"}), json!({"cmd":"a","edits":[{"n":1}]})),
            (json!({"cmd":"a","o":"{\"x\":1}"}), json!({"cmd":"a","o":{"x":1}})),
        ] {
            let checked = check("t", &schema(), &given.to_string()).unwrap();
            assert_eq!(Value::Object(checked.args), wanted);
            assert!(!checked.notes.is_empty(), "{given}: what was changed is said");
        }
        for (given, path) in [
            (json!({"cmd":null}), "/cmd"),
            (json!({"cmd":5}), "/cmd"),
            (json!({"cmd":"a","n":"abc"}), "/n"),
            (json!({"cmd":"a","n":"3.5"}), "/n"),
            (json!({"cmd":"a","f":"NaN"}), "/f"),
            (json!({"cmd":"a","flag":"yes"}), "/flag"),
            (json!({"cmd":"a","flag":1}), "/flag"),
            (json!({"cmd":"a","o":"x"}), "/o"),
            (json!({"cmd":""}), "/cmd"),
            (json!({}), "`cmd` is required"),
        ] {
            let error = check("t", &schema(), &given.to_string()).unwrap_err();
            assert!(error.contains(path), "{given}: {error}");
        }
    }

    #[test]
    fn nothing_and_null_are_no_arguments() {
        for text in ["", "  ", "null", "{}"] {
            assert!(check("t", &schema(), text).unwrap_err().contains("`cmd` is required"), "{text:?}");
        }
        let free = Schema::compile(&json!({"type":"object"})).unwrap();
        assert!(check("t", &free, "").unwrap().args.is_empty());
    }

    #[test]
    fn text_that_is_not_json_never_runs_and_is_never_repaired() {
        for text in [
            "{\"cmd\":\"rm -rf /tmp/x/y  cut here",
            "{\"cmd\":\"grep -E \\d+ C:\\path\"}",
            "{\"cmd\": \"view\", \\n\"n\":1}",
            "{\"cmd\":\"a\nb\"}",
            "{\"cmd\":\"a\"} {\"cmd\":\"b\"}",
            "[object Object]",
        ] {
            let error = check("t", &schema(), text).unwrap_err();
            assert!(error.contains("not valid JSON") && error.contains("Nothing was run"), "{text}: {error}");
        }
        for text in ["[1]", "3", "\"x\""] {
            assert!(check("t", &schema(), text).unwrap_err().contains("expected one JSON object"), "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored_and_named() {
        let checked = check("t", &schema(), r#"{"cmd":"a","colour":1}"#).unwrap();
        assert_eq!(checked.args.len(), 1);
        assert_eq!(checked.notes, ["[unknown argument ignored: colour]"]);
    }
}
