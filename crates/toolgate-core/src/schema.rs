//! JSON Schema (2020-12) for a tool's arguments: compiled once, checked with every reason at once.
//!
//! It stands here, and not in a library, because the check also mends (see [`crate::args`]): a safe coercion needs to know, at each
//! place, which types the schema would take there. Its results are held against a full validator in the tests. A keyword that would
//! need more than this module does is refused when the tool is registered, never skipped: an unchecked rule is an open door.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::{Map, Value};

/// How deep a schema may nest or refer to itself; deeper is a mistake or an attack.
const MAX_DEPTH: usize = 64;

/// A schema that can be checked against.
#[derive(Debug)]
pub struct Schema {
    root: Value,
    patterns: BTreeMap<String, Regex>,
}

/// One thing that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a JSON pointer; empty for the whole object.
    pub path: String,
    /// What would fit, and what was there.
    pub reason: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.path, self.reason) }
    }
}

/// Keywords that say something about a value and demand nothing.
const ANNOTATIONS: &[&str] = &[
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "$anchor",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "nullable",
];

/// Keywords that are checked.
const CHECKED: &[&str] = &[
    "$ref",
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "items",
    "prefixItems",
    "additionalItems",
    "maxItems",
    "minItems",
    "uniqueItems",
    "contains",
    "maxContains",
    "minContains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "maxProperties",
    "minProperties",
    "dependentRequired",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// A sentence naming the keyword and its place, when it cannot be checked.
    pub fn compile(root: &Value) -> Result<Self, String> {
        let mut schema = Self { root: root.clone(), patterns: BTreeMap::new() };
        schema.admit(root, "#", 0)?;
        Ok(schema)
    }

    fn admit(&mut self, schema: &Value, at: &str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("{at}: the schema nests deeper than {MAX_DEPTH} levels"));
        }
        let object = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(object) => object,
            other => return Err(format!("{at}: a schema is an object or a boolean, not {other}")),
        };
        for (keyword, value) in object {
            let at = format!("{at}/{keyword}");
            match keyword.as_str() {
                "$ref" => {
                    let target = value.as_str().and_then(|name| self.resolve(name));
                    if target.is_none() {
                        return Err(format!("{at}: {value} does not lead to a place inside this schema"));
                    }
                }
                "pattern" => {
                    let text = value.as_str().ok_or_else(|| format!("{at}: a pattern is a string"))?;
                    self.pattern(text, &at)?;
                }
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => {
                    let map = value.as_object().ok_or_else(|| format!("{at}: it is an object of schemas"))?;
                    for (name, inner) in map {
                        if keyword == "patternProperties" {
                            self.pattern(name, &at)?;
                        }
                        self.admit(inner, &format!("{at}/{name}"), depth + 1)?;
                    }
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                    let list = value.as_array().ok_or_else(|| format!("{at}: it is a list of schemas"))?;
                    for (i, inner) in list.iter().enumerate() {
                        self.admit(inner, &format!("{at}/{i}"), depth + 1)?;
                    }
                }
                "items"
                | "additionalItems"
                | "contains"
                | "additionalProperties"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else" => {
                    self.admit(value, &at, depth + 1)?;
                }
                known if CHECKED.contains(&known) || ANNOTATIONS.contains(&known) || known.starts_with("x-") => {}
                _ => {
                    return Err(format!(
                        "{at}: this keyword cannot be checked; leave it out or write the rule another way"
                    ));
                }
            }
        }
        Ok(())
    }

    fn pattern(&mut self, text: &str, at: &str) -> Result<(), String> {
        if !self.patterns.contains_key(text) {
            let regex = Regex::new(text).map_err(|error| format!("{at}: the pattern cannot be read: {error}"))?;
            self.patterns.insert(text.to_owned(), regex);
        }
        Ok(())
    }

    /// The schema that a local reference means.
    fn resolve(&self, reference: &str) -> Option<&Value> {
        let pointer = reference.strip_prefix('#')?;
        if pointer.is_empty() { Some(&self.root) } else { self.root.pointer(pointer) }
    }

    /// The root, for walking beside a value.
    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// Follows `$ref` to the schema that says something itself.
    pub(crate) fn follow<'a>(&'a self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..MAX_DEPTH {
            match schema.get("$ref").and_then(Value::as_str).and_then(|name| self.resolve(name)) {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    /// Everything about the value that does not fit.
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        self.walk(&self.root, value, &mut String::new(), 0, &mut found);
        found
    }

    fn fits(&self, schema: &Value, value: &Value, depth: usize) -> bool {
        let mut found = Vec::new();
        self.walk(schema, value, &mut String::new(), depth, &mut found);
        found.is_empty()
    }

    fn walk(&self, schema: &Value, value: &Value, path: &mut String, depth: usize, found: &mut Vec<Violation>) {
        let mut fail = |path: &str, reason: String| found.push(Violation { path: path.to_owned(), reason });
        if depth > MAX_DEPTH {
            return fail(path, format!("it nests deeper than {MAX_DEPTH} levels"));
        }
        let object = match schema {
            Value::Bool(true) => return,
            Value::Object(object) => object,
            _ => return fail(path, "nothing is allowed here".into()),
        };
        if let Some(target) = object.get("$ref").and_then(Value::as_str).and_then(|name| self.resolve(name)) {
            self.walk(target, value, path, depth + 1, found);
        }
        let mut fail = |path: &str, reason: String| found.push(Violation { path: path.to_owned(), reason });
        if let Some(wanted) = object.get("type")
            && !types_of(wanted).any(|name| is_type(value, name))
        {
            let names = types_of(wanted).collect::<Vec<_>>().join(" or ");
            return fail(path, format!("expected {names}, got {}", shown(value)));
        }
        if let Some(allowed) = object.get("enum").and_then(Value::as_array)
            && !allowed.iter().any(|one| same(one, value))
        {
            fail(path, format!("expected one of {}, got {}", Value::Array(allowed.clone()), shown(value)));
        }
        if let Some(wanted) = object.get("const").filter(|wanted| !same(wanted, value)) {
            fail(path, format!("expected {wanted}, got {}", shown(value)));
        }
        match value {
            Value::Number(_) => numbers(object, value, path, &mut fail),
            Value::String(text) => self.strings(object, text, path, &mut fail),
            Value::Array(items) => self.arrays(object, items, path, depth, found),
            Value::Object(members) => self.objects(object, members, path, depth, found),
            _ => {}
        }
        self.combinations(object, value, path, depth, found);
    }

    fn strings(&self, schema: &Map<String, Value>, text: &str, path: &str, fail: &mut dyn FnMut(&str, String)) {
        let length = text.chars().count() as u64;
        if let Some(least) = bound(schema, "minLength").filter(|least| length < *least) {
            fail(path, format!("expected at least {least} characters, got {length}"));
        }
        if let Some(most) = bound(schema, "maxLength").filter(|most| length > *most) {
            fail(path, format!("expected at most {most} characters, got {length}"));
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && !self.patterns.get(pattern).is_some_and(|regex| regex.is_match(text))
        {
            fail(path, format!("expected text that matches {pattern}, got {}", shown(&Value::String(text.to_owned()))));
        }
    }

    fn arrays(
        &self,
        schema: &Map<String, Value>,
        items: &[Value],
        path: &mut String,
        depth: usize,
        found: &mut Vec<Violation>,
    ) {
        let mut fail = |reason: String| found.push(Violation { path: path.clone(), reason });
        let length = items.len() as u64;
        if let Some(least) = bound(schema, "minItems").filter(|least| length < *least) {
            fail(format!("expected at least {least} items, got {length}"));
        }
        if let Some(most) = bound(schema, "maxItems").filter(|most| length > *most) {
            fail(format!("expected at most {most} items, got {length}"));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true))
            && let Some(i) = (1..items.len()).find(|i| items[..*i].iter().any(|other| same(other, &items[*i])))
        {
            fail(format!("expected different items, but item {i} is there twice"));
        }
        if let Some(inner) = schema.get("contains") {
            let hits = items.iter().filter(|item| self.fits(inner, item, depth + 1)).count() as u64;
            let (least, most) =
                (bound(schema, "minContains").unwrap_or(1), bound(schema, "maxContains").unwrap_or(u64::MAX));
            if hits < least || hits > most {
                fail(format!("{hits} of its items are of the kind that must be there {least} times or more"));
            }
        }
        let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (i, item) in items.iter().enumerate() {
            if let Some(inner) = first.get(i).or_else(|| schema.get("items")) {
                self.enter(inner, item, &i.to_string(), path, depth, found);
            }
        }
    }

    fn objects(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        path: &mut String,
        depth: usize,
        found: &mut Vec<Violation>,
    ) {
        let mut fail = |reason: String| found.push(Violation { path: path.clone(), reason });
        let length = members.len() as u64;
        if let Some(least) = bound(schema, "minProperties").filter(|least| length < *least) {
            fail(format!("expected at least {least} fields, got {length}"));
        }
        if let Some(most) = bound(schema, "maxProperties").filter(|most| length > *most) {
            fail(format!("expected at most {most} fields, got {length}"));
        }
        let names = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        for name in schema.get("required").map(names).unwrap_or_default() {
            if !members.contains_key(&name) {
                fail(format!("`{name}` is required"));
            }
        }
        for (name, needed) in schema.get("dependentRequired").and_then(Value::as_object).into_iter().flatten() {
            for needed in
                names(needed).into_iter().filter(|needed| members.contains_key(name) && !members.contains_key(needed))
            {
                fail(format!("`{needed}` is required beside `{name}`"));
            }
        }
        let own = schema.get("properties").and_then(Value::as_object);
        let by_pattern = schema.get("patternProperties").and_then(Value::as_object);
        for (name, member) in members {
            let mut described = false;
            if let Some(inner) = own.and_then(|own| own.get(name)) {
                described = true;
                self.enter(inner, member, name, path, depth, found);
            }
            for (pattern, inner) in by_pattern.into_iter().flatten() {
                if self.patterns.get(pattern).is_some_and(|regex| regex.is_match(name)) {
                    described = true;
                    self.enter(inner, member, name, path, depth, found);
                }
            }
            if let Some(inner) = schema.get("additionalProperties").filter(|_| !described) {
                self.enter(inner, member, name, path, depth, found);
            }
            if let Some(inner) = schema.get("propertyNames") {
                self.enter(inner, &Value::String(name.clone()), name, path, depth, found);
            }
        }
        for (name, inner) in schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flatten() {
            if members.contains_key(name) {
                self.walk(inner, &Value::Object(members.clone()), path, depth + 1, found);
            }
        }
    }

    fn combinations(
        &self,
        schema: &Map<String, Value>,
        value: &Value,
        path: &mut String,
        depth: usize,
        found: &mut Vec<Violation>,
    ) {
        let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for inner in list("allOf") {
            self.walk(inner, value, path, depth + 1, found);
        }
        let fitting = |list: &[Value]| list.iter().filter(|inner| self.fits(inner, value, depth + 1)).count();
        let mut fail = |reason: String| found.push(Violation { path: path.clone(), reason });
        if schema.contains_key("anyOf") && fitting(list("anyOf")) == 0 {
            fail(format!("it fits none of the {} forms allowed here, got {}", list("anyOf").len(), shown(value)));
        }
        if schema.contains_key("oneOf") {
            let hits = fitting(list("oneOf"));
            if hits != 1 {
                fail(format!(
                    "it must fit exactly one of {} forms and fits {hits}, got {}",
                    list("oneOf").len(),
                    shown(value)
                ));
            }
        }
        if schema.get("not").is_some_and(|inner| self.fits(inner, value, depth + 1)) {
            fail(format!("{} is not allowed here", shown(value)));
        }
        if let Some(condition) = schema.get("if") {
            let branch = if self.fits(condition, value, depth + 1) { "then" } else { "else" };
            if let Some(inner) = schema.get(branch) {
                self.walk(inner, value, path, depth + 1, found);
            }
        }
    }

    fn enter(
        &self,
        schema: &Value,
        value: &Value,
        name: &str,
        path: &mut String,
        depth: usize,
        found: &mut Vec<Violation>,
    ) {
        let length = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        self.walk(schema, value, path, depth + 1, found);
        path.truncate(length);
    }
}

fn numbers(schema: &Map<String, Value>, value: &Value, path: &str, fail: &mut dyn FnMut(&str, String)) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    let of = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let mut demand = |keyword: &str, words: &str, holds: &dyn Fn(f64) -> bool| {
        if let Some(limit) = of(keyword).filter(|limit| !holds(*limit)) {
            fail(path, format!("expected {words} {limit}, got {value}"));
        }
    };
    demand("minimum", "at least", &|limit| number >= limit);
    demand("exclusiveMinimum", "more than", &|limit| number > limit);
    demand("maximum", "at most", &|limit| number <= limit);
    demand("exclusiveMaximum", "less than", &|limit| number < limit);
    demand("multipleOf", "a multiple of", &|step| (number / step).fract() == 0.0);
}

fn bound(schema: &Map<String, Value>, keyword: &str) -> Option<u64> {
    schema.get(keyword).and_then(|value| value.as_u64().or_else(|| value.as_f64().map(|f| f as u64)))
}

/// The type names of a `type` keyword, one or a list.
pub(crate) fn types_of(value: &Value) -> impl Iterator<Item = &str> {
    let one = value.as_str();
    let many = value.as_array().map_or(&[][..], Vec::as_slice);
    one.into_iter().chain(many.iter().filter_map(Value::as_str))
}

/// Whether a value is of a JSON Schema type.
pub(crate) fn is_type(value: &Value, name: &str) -> bool {
    match (value, name) {
        (Value::Null, "null") | (Value::Bool(_), "boolean") | (Value::String(_), "string") => true,
        (Value::Array(_), "array") | (Value::Object(_), "object") | (Value::Number(_), "number") => true,
        (Value::Number(number), "integer") => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|f| f.fract() == 0.0)
        }
        _ => false,
    }
}

/// Equality as JSON Schema has it: 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// A value as an error shows it, never longer than a line.
fn shown(value: &Value) -> String {
    /// Characters of a received value that an error repeats: enough to recognise it.
    const SHOWN: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Schemas and values; what this module says is held against a full validator.
    #[test]
    fn it_agrees_with_a_full_validator() {
        let schemas = [
            json!({"type":"object","properties":{"a":{"type":"integer","minimum":1,"maximum":9},"b":{"type":["string","null"],"minLength":2,"maxLength":3}},"required":["a"],"additionalProperties":false}),
            json!({"type":"array","items":{"type":"number","multipleOf":0.5},"minItems":1,"maxItems":3,"uniqueItems":true}),
            json!({"anyOf":[{"type":"string","pattern":"^a+$"},{"const":1},{"enum":[null,[1]]}]}),
            json!({"oneOf":[{"type":"integer"},{"type":"number","exclusiveMinimum":2}]}),
            json!({"not":{"type":"object","required":["x"]},"minProperties":1,"maxProperties":1}),
            json!({"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"required":["v"]},"else":{"propertyNames":{"maxLength":1}}}),
            json!({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"patternProperties":{"^n":{"type":"integer"}},"additionalProperties":{"type":"array"}}}}),
            json!({"prefixItems":[{"type":"string"}],"items":{"type":"integer"},"contains":{"const":2},"minContains":1,"maxContains":2}),
            json!({"dependentRequired":{"a":["b"]},"dependentSchemas":{"v":{"required":["w"]}},"allOf":[{"maxProperties":2},true]}),
        ];
        let values = [
            json!(null),
            json!(true),
            json!(1),
            json!(1.0),
            json!(2.5),
            json!(3),
            json!("a"),
            json!("aaa"),
            json!("é"),
            json!("bcde"),
            json!([]),
            json!([1]),
            json!([1, 1.0]),
            json!([1, 2, 3, 4]),
            json!([0.5, 0.25]),
            json!(["s", 2]),
            json!(["s", 2, 2, 2]),
            json!([2, "s"]),
            json!({}),
            json!({"a":1}),
            json!({"a":1,"b":null}),
            json!({"a":1,"b":"xyzw"}),
            json!({"a":10,"c":1}),
            json!({"a":"1"}),
            json!({"x":1}),
            json!({"k":1}),
            json!({"k":1,"v":2}),
            json!({"k":2,"long":1}),
            json!({"v":1,"w":2}),
            json!({"v":1}),
            json!({"kids":[{"kids":[{"n":1}]}]}),
            json!({"kids":[{"kids":[{"n":"1"}]}]}),
            json!({"other":1}),
            json!({"other":[]}),
        ];
        for schema in &schemas {
            let ours = Schema::compile(schema).unwrap();
            let theirs = jsonschema::draft202012::new(schema).unwrap();
            for value in &values {
                assert_eq!(
                    ours.check(value).is_empty(),
                    theirs.is_valid(value),
                    "{schema} {value}: {:?}",
                    ours.check(value)
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_checked_is_refused_at_registration() {
        for (schema, part) in [
            (json!({"properties":{"a":{"unevaluatedProperties":false}}}), "#/properties/a/unevaluatedProperties"),
            (json!({"$ref":"https://example.com/x"}), "#/$ref"),
            (json!({"pattern":"("}), "#/pattern"),
            (json!({"$dynamicRef":"#x"}), "$dynamicRef"),
            (json!(3), "#"),
        ] {
            let error = Schema::compile(&schema).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let endless = Schema::compile(&json!({"$ref":"#"})).unwrap();
        assert!(!endless.check(&json!(1)).is_empty(), "a schema that only refers to itself ends");
    }

    #[test]
    fn every_reason_is_named_with_its_place() {
        let schema = Schema::compile(&json!({"type":"object","properties":{"a":{"type":"integer"},"b":{"items":{"type":"string"}}},"required":["c"]})).unwrap();
        let found: Vec<String> = schema.check(&json!({"a":"x","b":["y",1]})).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["`c` is required", "/a: expected integer, got \"x\"", "/b/1: expected string, got 1"]);
    }
}
