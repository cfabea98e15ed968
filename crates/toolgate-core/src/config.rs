//! What a configuration says of one tool, and the declaration that comes of it.
//!
//! An entry of `tools.builtin` is a bare name, or an object whose fields replace those of the built-in declaration. An entry with its
//! own `parameters` is a full one, as PenguinHarness writes them: it is honoured as written.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use crate::{
    schema::Schema,
    tool::{Bound, ExecutionMode, ForModel, Permission, ToolSpec, Truncate},
};

/// One entry of `tools.builtin`, with the names that PenguinHarness gives the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolDefinition {
    /// The tool's name, or one of its aliases; it is listed under this one.
    pub name: String,
    /// What the model is told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// `r` or `rw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// `vision` or `text-only`; every model without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_model: Option<ForModel>,
    /// The time limit of one call in milliseconds; none when it is not positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// Characters of a result that the model reads; all when it is not positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_length: Option<i64>,
    /// Which part of a longer result is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate: Option<Truncate>,
    /// `sequential` where its calls must not run beside others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionMode>,
    /// `false` takes the argument `description`, a sentence for people, out of the parameters.
    #[serde(default, rename = "call_description", skip_serializing_if = "Option::is_none")]
    pub call_description: Option<bool>,
    /// `true` switches it off: it is neither sent to a model nor taken from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
}

/// An entry that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool `{tool}`: {field}: {reason}")]
pub struct DefinitionError {
    /// The entry's name.
    pub tool: String,
    /// The field as a configuration writes it.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl ToolDefinition {
    /// The entry that only names a tool.
    pub fn bare(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The effective declaration: what the entry says, and the built-in declaration for the rest.
    ///
    /// # Errors
    /// When the entry names another tool, or its parameters are no schema that can be checked.
    pub fn applied_to(&self, built_in: &ToolSpec) -> Result<ToolSpec, DefinitionError> {
        let wrong = |field, reason| DefinitionError { tool: self.name.clone(), field, reason };
        if self.name != built_in.name {
            return Err(wrong("name", format!("it is applied to the tool `{}`", built_in.name)));
        }
        let mut spec = built_in.clone();
        if let Some(parameters) = &self.parameters {
            admit(parameters).map_err(|reason| wrong("parameters", reason))?;
            spec.parameters = parameters.clone();
            // A full entry is written for a harness that keeps the beginning.
            spec.bound.keep = Truncate::Head;
        }
        if self.call_description == Some(false) {
            leave_out_description(&mut spec.parameters);
        }
        if let Some(description) = &self.description {
            spec.description.clone_from(description);
        }
        let keep = self.truncate.unwrap_or(spec.bound.keep);
        spec.bound = match self.max_output_length {
            Some(most) => Bound::characters(most, keep),
            None => Bound { keep, ..spec.bound },
        };
        spec.permission = self.permission.unwrap_or(spec.permission);
        spec.only_for = self.for_model.or(spec.only_for);
        spec.timeout_ms = self.timeout_ms.unwrap_or(spec.timeout_ms);
        spec.execution = self.execution.unwrap_or(spec.execution);
        spec.hidden = self.hidden.unwrap_or(spec.hidden);
        Ok(spec)
    }
}

/// Whether arguments can be checked against it. Seen here, where the entry's place in its file is known, and not at the first call.
///
/// # Errors
/// Why they cannot.
pub fn admit(parameters: &Value) -> Result<(), String> {
    match parameters.get("type") {
        Some(Value::String(name)) if name == "object" => Schema::compile(parameters).map(|_| ()),
        Some(other) => Err(format!("arguments are an object, so `type` is \"object\" and not {other}")),
        None if parameters.is_object() => Schema::compile(parameters).map(|_| ()),
        None => Err("it is a JSON Schema, which is an object".into()),
    }
}

fn leave_out_description(parameters: &mut Value) {
    /// The argument in which a model says to people what a call is for.
    const ARGUMENT: &str = "description";
    if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove(ARGUMENT);
    }
    if let Some(required) = parameters.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != ARGUMENT);
    }
}

// The derived functions read and write the object form, where an unknown field is an error at its own place.
impl Serialize for ToolDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ToolDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Entry)
    }
}

/// Reads both forms of an entry.
struct Entry;

impl<'de> Visitor<'de> for Entry {
    type Value = ToolDefinition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tool's name, or an object with its name and what differs")
    }

    fn visit_str<E>(self, name: &str) -> Result<ToolDefinition, E> {
        Ok(ToolDefinition::bare(name))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ToolDefinition, A::Error> {
        ToolDefinition::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Most;
    use serde_json::json;

    fn built_in() -> ToolSpec {
        let parameters = json!({
            "type": "object",
            "properties": { "description": { "type": "string" }, "cmd": { "type": "string" } },
            "required": ["description", "cmd"],
        });
        let mut spec = ToolSpec::new("shell", "Run a line.", parameters);
        spec.bound = Bound::lines(Truncate::Tail);
        spec
    }

    fn applied(entry: Value) -> Result<ToolSpec, String> {
        let definition: ToolDefinition = serde_json::from_value(entry).map_err(|error| error.to_string())?;
        definition.applied_to(&built_in()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_an_entry_leaves_out_is_the_built_in_declaration() {
        for entry in [json!("shell"), json!({"name": "shell"})] {
            assert_eq!(applied(entry).unwrap(), built_in());
        }
        let parameters = json!({"type": "object", "properties": {"cmd": {"type": "string"}}});
        let characters = |most, keep| Bound { most: Most::Characters(most), keep };
        type Change = fn(&mut ToolSpec);
        let only: [(Value, Change); 7] = [
            (json!({"description": "Other."}), |spec| spec.description = "Other.".into()),
            (json!({"permission": "r"}), |spec| spec.permission = Permission::Read),
            (json!({"forModel": "text-only"}), |spec| spec.only_for = Some(ForModel::TextOnly)),
            (json!({"timeoutMs": 0}), |spec| spec.timeout_ms = 0),
            (json!({"truncate": "middle"}), |spec| spec.bound = Bound::lines(Truncate::Middle)),
            (json!({"execution": "sequential"}), |spec| spec.execution = ExecutionMode::Sequential),
            (json!({"hidden": true}), |spec| spec.hidden = true),
        ];
        for (mut entry, change) in only {
            entry["name"] = "shell".into();
            let mut wanted = built_in();
            change(&mut wanted);
            assert_eq!(applied(entry.clone()).unwrap(), wanted, "{entry}");
        }
        for (entry, bound) in [
            (json!({"maxOutputLength": 5}), characters(5, Truncate::Tail)),
            (json!({"maxOutputLength": 0}), Bound { most: Most::Everything, keep: Truncate::Tail }),
            (json!({"maxOutputLength": -1, "truncate": "head"}), Bound::NONE),
            (json!({"parameters": parameters}), Bound::lines(Truncate::Head)),
            (json!({"parameters": parameters, "maxOutputLength": 9}), characters(9, Truncate::Head)),
            (
                json!({"parameters": parameters, "maxOutputLength": 9, "truncate": "tail"}),
                characters(9, Truncate::Tail),
            ),
        ] {
            let mut entry = entry;
            entry["name"] = "shell".into();
            let spec = applied(entry.clone()).unwrap();
            assert_eq!(spec.bound, bound, "{entry}");
            assert_eq!(spec.parameters == parameters, entry.get("parameters").is_some(), "{entry}");
        }
    }

    #[test]
    fn the_sentence_for_people_can_be_taken_out() {
        let without = json!({"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
        let of = |keep: bool| applied(json!({"name": "shell", "call_description": keep})).unwrap().parameters;
        assert_eq!((of(false), of(true)), (without, built_in().parameters));
    }

    #[test]
    fn what_cannot_be_meant_is_an_error_that_names_the_field() {
        for (entry, part) in [
            (json!({"name": "shell", "timeout_ms": 1}), "unknown field `timeout_ms`"),
            (json!({"name": "shell", "timeoutMs": "1"}), "invalid type: string \"1\""),
            (json!({"name": "shell", "permission": "w"}), "unknown variant `w`"),
            (json!({"name": "shell", "forModel": "any"}), "unknown variant `any`"),
            (json!({"name": "shell", "execution": "serial"}), "unknown variant `serial`"),
            (json!({"description": "x"}), "missing field `name`"),
            (json!(["shell"]), "a tool's name, or an object"),
            (json!({"name": "other"}), "`other`: name: it is applied to the tool `shell`"),
            (json!({"name": "shell", "parameters": "x"}), "`shell`: parameters: it is a JSON Schema"),
            (json!({"name": "shell", "parameters": {"type": "array"}}), "`shell`: parameters: arguments are an object"),
            (
                json!({"name": "shell", "parameters": {"unevaluatedProperties": false}}),
                "unevaluatedProperties: this keyword cannot be checked",
            ),
        ] {
            let error = applied(entry.clone()).unwrap_err();
            assert!(error.contains(part), "{entry}: {error}");
        }
    }

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        let entry = json!({"name": "shell", "forModel": "vision", "timeoutMs": 1, "call_description": false});
        let definition: ToolDefinition = serde_json::from_value(entry.clone()).unwrap();
        assert_eq!(serde_json::to_value(definition).unwrap(), entry);
    }
}
