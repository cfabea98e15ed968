//! From a model's text to checked arguments.
//!
//! Strict JSON, mended only where the meaning cannot change: `"42"` where an integer is wanted, `"true"` where a
//! boolean is, `42.0` where an integer is, a single object where a list is, a JSON string where an object or list is (the arguments as a
//! whole included), nothing or `null` for no arguments. Mending
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
    check_mended(tool, schema, text, &|_| Vec::new())
}

/// As [`check`], after the tool itself has mended what no schema knows: older forms of its arguments. It says what it changed.
///
/// # Errors
/// As [`check`].
pub fn check_mended(
    tool: &str,
    schema: &Schema,
    text: &str,
    mended: &dyn Fn(&mut Args) -> Vec<String>,
) -> Result<Checked, String> {
    let mut value = parse(tool, text)?;
    let mut notes = Vec::new();
    if let Some(inner) = coerced(&value, "object") {
        notes.push("[arguments read as an object]".into());
        value = inner;
    }
    let Value::Object(mut args) = value else {
        let kind = kind_of(&value);
        return Err(format!("Invalid arguments for {tool}: expected one JSON object, got {kind}.{}", received(text)));
    };
    notes.extend(mended(&mut args));
    leave_out_unknown(schema, &mut args, &mut notes);
    let mut value = Value::Object(args);
    mend(schema, schema.root(), &mut value, "", &mut notes, 0);
    let violations = schema.check(&value);
    if !violations.is_empty() {
        let reasons = bounded(violations.iter().map(ToString::to_string).collect(), |more| format!("and {more} more"));
        let reasons = reasons.iter().map(|reason| format!("\n- {reason}")).collect::<String>();
        return Err(format!("Invalid arguments for {tool}:{reasons}{}", received(text)));
    }
    match value {
        Value::Object(args) => {
            let notes = bounded(notes, |more| format!("[{more} more notes about the arguments]"));
            Ok(Checked { args, notes })
        }
        _ => Err(format!("Invalid arguments for {tool}: expected one JSON object.")),
    }
}

/// Sentences about arguments as a result may hold them, however many and odd the arguments are: each once, on one line of its own, and no
/// more than anybody reads.
fn bounded(sentences: Vec<String>, rest: fn(usize) -> String) -> Vec<String> {
    /// Sentences. Who makes more mistakes than these makes the same one again and again.
    const MOST: usize = 10;
    /// Characters of a sentence: a name, a path to it, and what is said of it.
    const LONGEST: usize = 200;
    let mut told: Vec<String> = Vec::new();
    let mut more = 0;
    for sentence in sentences {
        let line = sentence.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut line: String = line.take(LONGEST + 1).collect();
        if let Some((cut, _)) = line.char_indices().nth(LONGEST) {
            line.truncate(cut);
            line.push_str(if sentence.starts_with('[') { "…]" } else { "…" });
        }
        match told.contains(&line) {
            true => {}
            false if told.len() < MOST => told.push(line),
            false => more += 1,
        }
    }
    told.extend((more > 0).then(|| rest(more)));
    told
}

fn parse(tool: &str, text: &str) -> Result<Value, String> {
    if matches!(text.trim(), "" | "null") {
        return Ok(Value::Object(Args::new()));
    }
    serde_json::from_str(text).map_err(|error| {
        format!(
            "Invalid arguments for {tool}: the text is not valid JSON ({error}). Nothing was run. Send one complete JSON object; inside \
             strings write a line break as \\n and a backslash as \\\\.{}",
            received(text)
        )
    })
}

/// What came, as far as it helps to see it: the beginning and the end, since a text that was cut off shows it there.
fn received(text: &str) -> String {
    /// Characters of each end.
    const SHOWN: usize = 150;
    let text = text.trim();
    let begin = text.char_indices().nth(SHOWN).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().nth_back(SHOWN - 1).map_or(0, |(at, _)| at).max(begin);
    let gap = if begin < end { " … " } else { "" };
    format!("\nReceived: {}{gap}{}", &text[..begin], &text[end..])
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
    let wanted = wanted_types(schema, at);
    if wanted.contains(&"integer")
        && let Some(whole) = whole_number(value)
    {
        *value = whole;
    }
    let fits = |value: &Value| wanted.iter().any(|name| is_type(value, name));
    if !wanted.is_empty()
        && !fits(value)
        && let Some(better) = wanted.iter().find_map(|name| coerced(value, name)).filter(fits)
    {
        notes.push(format!("[argument {} read as {}]", if path.is_empty() { "/" } else { path }, kind_of(&better)));
        *value = better;
    }
    match value {
        Value::Object(members) => {
            if depth > 0 && at.get("additionalProperties") == Some(&Value::Bool(false)) {
                leave_out_inner(at, members, path, notes);
            }
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

/// Fields of an inner object that its schema forbids are ignored and named like those of the whole.
fn leave_out_inner(at: &Value, members: &mut Args, path: &str, notes: &mut Vec<String>) {
    if at.get("patternProperties").is_some() {
        return;
    }
    let known = at.get("properties").and_then(Value::as_object);
    members.retain(|name, _| {
        let is_known = known.is_some_and(|known| known.contains_key(name));
        if !is_known {
            notes.push(format!("[unknown argument ignored: {path}/{name}]"));
        }
        is_known
    });
}

/// The types that a place takes: its own, or those of its alternatives.
fn wanted_types<'a>(schema: &'a Schema, at: &'a Value) -> Vec<&'a str> {
    if let Some(wanted) = at.get("type") {
        return types_of(wanted).collect();
    }
    let forms = ["anyOf", "oneOf"].into_iter().filter_map(|key| at.get(key).and_then(Value::as_array)).flatten();
    let types: Vec<Option<&Value>> = forms.map(|form| schema.follow(form).get("type")).collect();
    // A form without a type may take anything, so nothing is known to be wrong.
    if types.contains(&None) { Vec::new() } else { types.into_iter().flatten().flat_map(types_of).collect() }
}

/// `42.0` as the integer that it is.
fn whole_number(value: &Value) -> Option<Value> {
    /// Beyond this a float no longer says which integer is meant (2^53).
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_f64().filter(|_| value.is_f64())?;
    (number.fract() == 0.0 && number.abs() <= EXACT).then(|| Value::from(number as i64))
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
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "closed": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false},
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
            (json!({"cmd":"a","maybe":"7"}), json!({"cmd":"a","maybe":7})),
            (json!({"cmd":"a","closed":{"a":"x","b":1}}), json!({"cmd":"a","closed":{"a":"x"}})),
            (json!("{\"cmd\":\"a\"}"), json!({"cmd":"a"})),
        ] {
            let checked = check("t", &schema(), &given.to_string()).unwrap();
            assert_eq!(Value::Object(checked.args), wanted);
            assert!(!checked.notes.is_empty(), "{given}: what was changed is said");
        }
        let whole = check("t", &schema(), r#"{"cmd":"a","n":42.0}"#).unwrap();
        assert!(whole.args["n"].is_i64() && whole.notes.is_empty(), "the same number is no change");
        for (given, path) in [
            (json!({"cmd":"a","maybe":"x"}), "/maybe"),
            (json!({"cmd":"a","n":42.5}), "/n"),
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
            assert!(error.ends_with(&format!("\nReceived: {given}")), "{given}: {error}");
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

    #[test]
    fn what_is_said_of_arguments_is_short_whatever_they_are() {
        let mut odd = json!({"cmd": "a", "x\n[exit code: 0]\n": 1, "y".repeat(60_000): 1});
        (0..3000).for_each(|n| odd[format!("x{n}")] = json!(1));
        let notes = check("t", &schema(), &odd.to_string()).unwrap().notes;
        assert!(notes.len() == 11 && notes[10] == "[2992 more notes about the arguments]", "{notes:?}");
        assert!(notes.iter().all(|note| note.chars().count() <= 202 && note.ends_with(']') && !note.contains('\n')));
        let again =
            check("t", &schema(), &json!({"cmd": "a", "edits": vec![json!({"n": "1"}); 2]}).to_string()).unwrap();
        assert_eq!(again.notes, ["[argument /edits/0/n read as a number]", "[argument /edits/1/n read as a number]"]);
        let wrong = json!({"cmd": "a", "edits": vec!["x"; 5000]}).to_string();
        let error = check("t", &schema(), &wrong).unwrap_err();
        assert!(error.contains("\n- /edits/9: ") && error.contains("\n- and 4990 more\nReceived: "), "{error}");
        let same = check_mended("t", &schema(), r#"{"cmd":"a"}"#, &|_| vec!["[the same]".into(); 1000]).unwrap();
        assert_eq!(same.notes, ["[the same]"]);
    }
}
