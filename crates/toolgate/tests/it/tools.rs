//! `toolgate tools`: what it says a session would have is what a session has, what it says of the wire is what is sent.

use serde_json::{Value, json};

use crate::support::Place;

fn configured(text: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.home().join(".config/toolgate")).unwrap();
    std::fs::write(place.home().join(".config/toolgate/config.yaml"), text).unwrap();
    place
}

/// What a command prints as JSON.
fn printed(place: &Place, args: &[&str]) -> Value {
    let (code, out, err) = place.run(args);
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

/// The declarations and the instructions that a session begins with.
fn session(place: &Place, args: &[&str]) -> (Vec<Value>, String) {
    let script = place.script(&json!([{ "text": "done" }]));
    let (code, _, err) = place.run(&[&["run", "go", "--api", "script", "--model", &script], args].concat());
    assert_eq!(code, 0, "{err}");
    let records = place.records();
    let payload = |kind: &str| {
        let record = records.iter().find(|record| record["payload"]["type"] == kind || record["type"] == kind);
        record.expect(kind)["payload"].clone()
    };
    let prompt = payload("session_meta")["system_prompt"].as_str().unwrap().to_owned();
    (payload("tool_list_ready")["tools"].as_array().unwrap().clone(), prompt)
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn the_list_is_what_a_session_has_and_says_why_the_others_are_not_there() {
    let place = configured(
        "tools:\n  builtin:\n    - bash\n    - name: kill_command\n      hidden: true\n    - name: input_command\n      execution: sequential\n    \
         - powershell\n  exclude: [bash]\n",
    );
    for args in [&[][..], &["--tools", "all"], &["--tools", "minimal", "--exclude-tools", "input*"], &["--no-tools"]] {
        let listed = printed(&place, &[&["tools", "--json"], args].concat());
        let listed = listed["tools"].as_array().unwrap();
        let offered: Vec<Value> = listed.iter().filter(|tool| tool["offered"] == true).cloned().collect();
        assert_eq!(names(&offered), names(&session(&place, args).0), "{args:?}");
        for tool in listed {
            assert_eq!(tool["offered"], tool["why_not"].is_null(), "{tool}");
        }
    }
    let listed = printed(&place, &["tools", "--json"]);
    let of = |name: &str| listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
    for (name, why) in [
        ("bash", "left out by tools.exclude (bash)"),
        ("kill_command", "hidden"),
        ("exec_command", "not in the list of tools.builtin"),
    ] {
        assert_eq!(of(name)["why_not"], why, "{name}");
    }
    assert_eq!(of("input_command")["execution"], "sequential");
    let (_, out, err) = place.run(&["tools", "--tools", "coding"]);
    let line = |name: &str| out.lines().find(|line| line[2..].starts_with(name)).unwrap();
    assert!(
        line("kill_command").ends_with("[not in the list of tools.builtin]") || line("kill_command").starts_with("  "),
        "{out}"
    );
    assert!(line("read").starts_with("* ") && line("bash").ends_with("[left out by tools.exclude (bash)]"), "{out}");
    assert!(err.contains("bytes of every request over openai-chat, about "), "{err}");
}

#[test]
fn a_set_weighs_what_its_declarations_are_longer_on_the_wire() {
    let weighed = printed(&Place::new(), &["tools", "sets", "--json"]);
    assert_eq!(weighed["wire"], "openai-chat");
    for set in ["minimal", "coding", "read-only", "default", "all"] {
        let (tools, _) = session(&Place::new(), &["--tools", set]);
        let row = &weighed["sets"][set];
        let offered: Vec<&str> = row["tools"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(offered, names(&tools), "{set}");
        let sent: Vec<Value> = tools.iter().map(|tool| json!({ "type": "function", "function": tool })).collect();
        let bytes = ",\"tools\":".len() + json!(sent).to_string().len();
        assert_eq!(
            (row["bytes"].as_u64(), row["tokens"].as_u64()),
            (Some(bytes as u64), Some(bytes.div_ceil(4) as u64)),
            "{set}"
        );
        assert_eq!(row["in_use"], set == "default");
    }
    // Another model's wire has other words around the same declarations.
    let bytes = |api: &str| {
        let place = configured(&format!(
            "default_model: mine/m\nmodels:\n  - {{provider: mine, id: m, api: {api}, base_url: \"http://127.0.0.1:9\"}}\n"
        ));
        let weighed = printed(&place, &["tools", "sets", "--json"]);
        assert_eq!(weighed["wire"], api);
        weighed["sets"]["default"]["bytes"].as_u64().unwrap()
    };
    assert!(bytes("anthropic-messages") < bytes("openai-chat"));
    let place = configured("tools:\n  builtin: [bash]\n");
    let own = printed(&place, &["tools", "sets", "--json"]);
    assert_eq!((&own["sets"]["(list)"]["in_use"], &own["sets"]["(list)"]["tools"]), (&json!(true), &json!(["bash"])));
}

#[test]
fn one_tool_is_shown_with_its_limits_and_what_a_call_would_do() {
    let place = configured("tools:\n  builtin:\n    - name: bash\n      timeoutMs: 5000\n      maxOutputLength: 9\n");
    let shown = printed(&place, &["tools", "show", "bash", "--json"]);
    assert_eq!(shown["limits"], json!({ "timeout_ms": 5000, "result": "9 characters", "keeps": "tail" }));
    assert_eq!(
        shown["example"],
        json!({ "arguments": { "command": "COMMAND" }, "effects": [{ "run": { "line": "COMMAND", "cwd": place.work() } }] })
    );
    assert_eq!(shown["parameters"]["required"], json!(["command"]));
    let (code, out, _) = place.run(&["tools", "show", "exec_command"]);
    assert!(
        code == 0
            && out.contains("why_not: not in the list of tools.builtin\n")
            && out.contains("sets: minimal, default\n"),
        "{out}"
    );
    let (code, out, err) = place.run(&["tools", "show", "bsh"]);
    assert!(code == 2 && out.is_empty() && err.contains("did you mean `bash`?"), "{err}");
    assert_eq!(printed(&place, &["tools", "show", "read_file", "--json"])["aliases"], json!(["read"]), "a second name");
}

#[test]
fn the_instructions_name_only_tools_that_are_there() {
    let place = configured("tools:\n  builtin: [exec_command, {name: kill_command, hidden: true}]\n");
    let guideline = "Start what does not end by itself";
    let (tools, prompt) = session(&place, &[]);
    assert_eq!(names(&tools), ["exec_command"]);
    assert!(prompt.contains("- exec_command: ") && !prompt.contains("kill_command"), "{prompt}");
    assert!(!tools[0].to_string().contains("_command for"), "nor do its declarations: {}", tools[0]);
    assert!(!prompt.contains(guideline));
    let (_, prompt) = session(&place, &["--tools", "coding"]);
    assert!(prompt.contains("- bash: ") && prompt.contains(guideline) && !prompt.contains("exec_command"), "{prompt}");
    let (tools, prompt) = session(&place, &["--no-tools"]);
    assert!(tools.is_empty() && !prompt.contains("Tools:"), "{prompt}");
}
