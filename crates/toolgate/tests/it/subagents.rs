//! Subagents through the binary: a scripted model that hands work on.

use serde_json::{Value, json};

use crate::support::Place;

/// A parent that does this, and a child that answers the task `look` so.
fn script(place: &Place, parent: Value, child: Value) -> String {
    let mut items = vec![json!({ "told": "look", "steps": child })];
    items.extend(parent.as_array().unwrap().clone());
    place.script(&items.into())
}

fn run(place: &Place, script: &str, more: &[&str]) -> (i32, String, String) {
    let mut args = vec!["run", "go", "--api", "script", "--model", script];
    args.extend(more);
    place.run(&args)
}

#[test]
fn a_child_has_a_trace_of_its_own_and_its_answer_is_the_result() {
    let place = Place::new();
    let script = script(
        &place,
        json!([{ "calls": [["run_subagent", { "prompt": "look" }]] }, { "text": "done" }]),
        json!([{ "text": "looking", "calls": [["exec_command", { "cmd": "echo from the child" }], ["run_subagent", { "prompt": "look" }]] }, { "text": "seen" }]),
    );
    let (code, out, error) = run(&place, &script, &["--output-format", "stream-json"]);
    assert_eq!(code, 0, "{error}");
    let seen: Vec<Value> = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_child = seen.iter().filter(|message| message["origin"].is_array()).count();
    assert!(of_child > 10, "what the child does is seen with its origin: {of_child}");
    let results: Vec<&Value> = seen
        .iter()
        .filter(|message| message["payload"]["type"] == "tool_call_output" && message["origin"].is_null())
        .map(|message| &message["payload"]["output"])
        .collect();
    let [result] = results[..] else { panic!("{results:?}") };
    let result = result.as_str().unwrap();
    assert!(result.starts_with("lookingseen\n[subagent idle with subagent_id subagent-"), "{result}");
    let unknown = seen.iter().any(|message| message["payload"]["output"] == "Unknown tool: run_subagent");
    assert!(unknown, "a child starts no children");
    let mut heads: Vec<Vec<Value>> = place.traces().into_iter().map(|file| place.records_of(&file)).collect();
    heads.sort_by_key(|records| records[0]["payload"]["source"].is_string());
    let [parent, child] = &heads[..] else { panic!("{}", heads.len()) };
    let pointer = parent.iter().find(|record| record["payload"]["type"] == "subagent").expect("a pointer");
    assert_eq!(pointer["payload"]["session_id"], child[0]["payload"]["session_id"]);
    assert!(
        parent.iter().all(|record| record["origin"].is_null()),
        "nothing of the child stands in the parent's trace"
    );
    assert_eq!(child[0]["payload"]["source"], "subagent");
    let said = child.iter().find(|record| record["payload"]["type"] == "text").unwrap();
    assert_eq!((&said["payload"]["text"], &said["payload"]["sender"]), (&json!("look"), &json!("parent_agent")));
}

#[test]
fn a_childs_calls_stand_under_the_parents_rules() {
    let place = Place::new();
    let script = script(
        &place,
        json!([{ "calls": [["run_subagent", { "prompt": "look" }]] }, { "text": "done" }]),
        json!([{ "calls": [["exec_command", { "cmd": "touch made" }]] }, { "text": "tried" }]),
    );
    let (code, out, _) = run(&place, &script, &["--output-format", "stream-json", "--deny", "Bash(touch *)"]);
    assert!(code == 0 && out.contains("Tool call denied by policy: the rule `Bash(touch *)`"), "{out}");
    assert!(!place.work().join("made").exists());
}

#[test]
fn a_childs_question_that_nobody_can_answer_is_denied_at_once() {
    let place = Place::new();
    let script = script(
        &place,
        json!([{ "calls": [["run_subagent", { "prompt": "look" }]] }, { "text": "done" }]),
        json!([{ "calls": [["exec_command", { "cmd": "touch made" }]] }, { "text": "tried" }]),
    );
    let (code, out, _) =
        run(&place, &script, &["--output-format", "stream-json", "--approve", "read-only", "--allow", "run_subagent"]);
    assert!(code == 0 && out.contains("nobody is here to ask"), "{out}");
    assert!(!place.work().join("made").exists());
}

#[test]
fn what_a_child_cannot_be_is_said() {
    let place = Place::new();
    let config = place.home().join(".config/toolgate");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("config.yaml"),
        "agents:\n  reviewer:\n    system_prompt: You review.\n    tools: read-only\n",
    )
    .unwrap();
    for (arguments, part) in [
        (json!({ "prompt": " " }), "missing required string argument `prompt`"),
        (json!({ "prompt": "look", "provider": "openai" }), "give both or neither"),
        (json!({ "prompt": "look", "model_id": "gpt" }), "give both or neither"),
        (json!({ "prompt": "look", "thinking_level": "a lot" }), "Invalid arguments for run_subagent"),
        (json!({ "prompt": "look", "agent_id": "revewer" }), "there is no agent `revewer`; did you mean `reviewer`?"),
        (json!({ "prompt": "look", "agent_id": "reviewer" }), "[subagent idle"),
        (json!({ "prompt": "look", "thinking_level": null }), "[subagent idle"),
    ] {
        let script = script(
            &place,
            json!([{ "calls": [["run_subagent", arguments]] }, { "text": "done" }]),
            json!([{ "text": "ok" }]),
        );
        let (_, out, _) = run(&place, &script, &["--output-format", "stream-json"]);
        assert!(out.contains(part), "{arguments}: {out}");
    }
}

#[test]
fn what_runs_in_the_background_is_told_and_lengthens_the_run() {
    let place = Place::new();
    let script = script(
        &place,
        json!([
            { "calls": [["run_subagent", { "prompt": "look", "run_in_background": true }], ["exec_command", { "cmd": "exit 3", "run_in_background": true }]] },
            { "calls": [["exec_command", { "cmd": "sleep 1" }]] },
            { "text": "one" }, { "text": "two" }, { "text": "three" }
        ]),
        json!([{ "text": "seen" }]),
    );
    let (code, _, error) = run(&place, &script, &[]);
    assert_eq!(code, 0, "{error}");
    let records: Vec<Value> = place.traces().into_iter().flat_map(|file| place.records_of(&file)).collect();
    let told: Vec<&str> = records
        .iter()
        .filter(|record| record["payload"]["sender"] == "harness")
        .filter_map(|record| record["payload"]["text"].as_str())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|text| text.starts_with("[background_task_done]\n")));
    assert!(told.iter().any(|text| text.contains("kind: subagent") && text.ends_with("seen")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("status: failed\ndetail: exit code 3")), "{told:?}");
}
