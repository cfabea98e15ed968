//! Effective declarations: what a configuration says of a tool is what the model sees, what arguments are checked against and what
//! limits the call; second names and tools that are switched off.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    config::ToolDefinition,
    outcome::StopReason,
    policy::Tier,
    tool::{Bound, Effect, Prepared, ToolSet, ToolSpec, Truncate},
};
use toolgate_runtime::{
    BoxFuture,
    gate::Permit,
    registry::{Registry, named},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
    tools::{builtin, builtin_names},
};

use crate::support::{House, Plan};

/// Says what it was given and how long it may take. Its second name takes another argument.
struct Echo {
    spec: ToolSpec,
    aliases: Vec<ToolSpec>,
}

impl Echo {
    fn tool() -> Arc<dyn Tool> {
        let takes = |name: &str, argument: &str| {
            let parameters =
                json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]});
            ToolSpec::new(name, "Says it.", parameters)
        };
        Arc::new(Self { spec: takes("echo", "text"), aliases: vec![takes("say", "words")] })
    }
}

impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &[ToolSpec] {
        &self.aliases
    }

    fn prepare<'a>(&'a self, _args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let effects = vec![Effect::Unknown("echo".into())];
        Box::pin(async { Ok(Prepared { effects, ..Prepared::default() }) })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let args = Value::Object(permit.call().args().clone());
            cx.out.write(format!("{args} {:?}", cx.limits.timeout_ms).as_bytes());
            Ok(Done::default())
        })
    }
}

fn registry(entries: &[Value]) -> Result<Registry, String> {
    let (mut registry, tools) = (Registry::default(), [Echo::tool()]);
    for entry in entries {
        let definition: ToolDefinition = serde_json::from_value(entry.clone()).unwrap();
        let (tool, form) = named(&tools, &definition.name).unwrap();
        let spec = definition.applied_to(form).map_err(|error| error.to_string())?;
        registry.add_as(tool.clone(), spec).map_err(|error| error.to_string())?;
    }
    Ok(registry)
}

fn house(entries: &[Value]) -> House {
    House::build(Plan { registry: Some(registry(entries).unwrap()), ..Plan::default() })
}

#[tokio::test]
async fn the_entry_owns_what_the_call_is_held_to() {
    let house = house(&[json!({
        "name": "echo",
        "description": "Other.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}, "loud": {"type": "boolean"}}},
        "timeoutMs": 7000,
        "maxOutputLength": 12,
    })]);
    let sent: Vec<Value> = house.env.specs().map(ToolSpec::for_model).collect();
    assert_eq!((sent.len(), &sent[0]["description"]), (1, &json!("Other.")));
    let output = house.call("echo", json!({"loud": "true"})).await.output;
    assert!(
        output.starts_with(
            "{\"loud\":true
[output truncated: exceeded 12 chars]
"
        ),
        "{output}"
    );
    assert!(
        output.ends_with(
            "
[argument /loud read as a boolean]"
        ),
        "{output}"
    );
    let output = house.call("echo", json!({"loud": 3})).await;
    assert!(output.output.contains("/loud: expected boolean"), "{}", output.output);
    for (limit, shown) in [(9000, "Some(9000)"), (0, "None"), (-1, "None")] {
        let house = self::house(&[json!({"name": "echo", "timeoutMs": limit})]);
        let output = house.call("echo", json!({"text": "x"})).await.output;
        assert_eq!(output, format!("{{\"text\":\"x\"}} {shown}"));
    }
}

/// A command tool under a declaration of one's own.
fn shell(change: impl FnOnce(&mut ToolSpec)) -> House {
    let (tools, mut registry) = (builtin(), Registry::default());
    let (tool, form) = named(&tools, "exec_command").unwrap();
    let mut spec = form.clone();
    change(&mut spec);
    registry.add_as(tool.clone(), spec).unwrap();
    House::build(Plan { registry: Some(registry), ..Plan::default() })
}

#[tokio::test]
async fn a_full_entry_of_a_command_tool_is_honoured_and_what_it_does_not_ask_for_is_explained() {
    let entry: ToolDefinition = serde_json::from_value(json!({
        "name": "exec_command",
        "description": "Run it.",
        "permission": "rw",
        "timeoutMs": 120_000,
        "maxOutputLength": 40,
        "call_description": false,
        "parameters": {
            "type": "object",
            "properties": {
                "description": {"type": "string"},
                "cmd": {"type": "string"},
                "yield_time_ms": {"type": "number"},
            },
            "required": ["description"],
        },
    }))
    .unwrap();
    let house = shell(|spec| *spec = entry.applied_to(spec).unwrap());
    let output = house.call("exec_command", json!({"cmd": "seq 100", "yield_time_ms": 30_000.5})).await.output;
    assert!(output.starts_with("1\n2\n") && output.contains("\n[output truncated: exceeded 40 chars]\n"), "{output}");
    let missing = house.call("exec_command", json!({})).await;
    assert!(missing.output.contains("/cmd: expected a command"), "{}", missing.output);
    house.env.close().await;
}

#[tokio::test]
async fn a_bound_in_lines_keeps_whole_lines_and_the_file_keeps_all_of_them() {
    let house = shell(|spec| spec.bound = Bound::lines(Truncate::Tail));
    assert_eq!(house.sh("seq 2000").await.output.lines().count(), 2000, "what fits is whole");
    let output = house.sh("seq 4000; exit 3").await;
    let (marker, rest) = output.output.split_once('\n').unwrap();
    assert!(marker.starts_with("[... 2000 lines (8893 bytes) left out here; complete output: "), "{marker}");
    assert!(rest.starts_with("2001\n") && rest.ends_with("4000\n[exit code: 3]"), "also of a command that failed");
    let path = marker.split("complete output: ").nth(1).unwrap().split(" ...]").next().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 4000);
    house.env.close().await;
}

#[tokio::test]
async fn a_second_name_is_accepted_with_its_own_parameters_and_listed_only_where_it_is_named() {
    for (entries, listed) in [
        (vec![json!("echo")], vec!["echo"]),
        (vec![json!("say")], vec!["say"]),
        (vec![json!("echo"), json!("say")], vec!["echo", "say"]),
        (vec![json!({"name": "echo", "hidden": true})], vec![]),
    ] {
        let house = house(&entries);
        assert_eq!(house.env.specs().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), listed);
        for (name, arguments) in [("echo", json!({"text": "x"})), ("say", json!({"words": "x"}))] {
            let output = house.call(name, arguments.clone()).await;
            match listed.is_empty() {
                true => assert_eq!(output.output, format!("Unknown tool: {name}")),
                false => assert!(output.output.starts_with(&arguments.to_string()), "{}", output.output),
            }
        }
        if !listed.is_empty() {
            let wrong = house.call("say", json!({"text": "x"})).await;
            assert_eq!(wrong.stop_reason, Some(StopReason::Failed), "{}", wrong.output);
        }
    }
    assert_eq!(registry(&[json!("echo"), json!("echo")]).err().unwrap(), "two tools are named `echo`");
}

#[tokio::test]
async fn a_rule_speaks_of_a_tool_under_all_its_names() {
    let rules = vec![(Tier::Deny, "echo")];
    let house = House::build(Plan { rules, registry: Some(registry(&[json!("echo")]).unwrap()), ..Plan::default() });
    for (name, arguments) in [("echo", json!({"text": "x"})), ("say", json!({"words": "x"}))] {
        let output = house.call(name, arguments).await;
        assert_eq!(output.stop_reason, Some(StopReason::Aborted), "{name}: {}", output.output);
    }
}

#[test]
fn built_in_names_are_known_and_sets_hold_what_says_so() {
    let names = builtin_names();
    assert!(names.iter().any(|name| name == "exec_command"));
    let tools = builtin();
    let of =
        |set: ToolSet| tools.iter().filter(move |tool| set.holds(tool.spec())).map(|tool| tool.spec().name.clone());
    assert_eq!(of(ToolSet::Minimal).collect::<Vec<_>>(), ["exec_command", "input_command", "read_image"]);
    assert_eq!(of(ToolSet::All).count(), tools.len());
    assert_eq!(("read-only".parse::<ToolSet>(), "x".parse::<ToolSet>().is_err()), (Ok(ToolSet::ReadOnly), true));
}
