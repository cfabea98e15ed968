//! Every tool on executors that touch nothing: what the example brings drives all of them, so no tool reaches past its ports.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::{approval::ApprovalMode, policy::Policy, tool::ToolCall};
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    environment::{CallEnd, Environment, Setup},
    process::{command_env::EnvPolicy, login_env::EnvSource, table::CommandSetup},
    tools::{builtin, builtin_names},
    workspace::Workspace,
};

use example::{MemoryFiles, ToldProcesses};

#[allow(dead_code)] // The example is a program; here its executors are used.
#[path = "../../examples/own_executors.rs"]
mod example;

fn told(line: &str) -> (&'static str, i32) {
    match line {
        "good" => ("all is well\n", 0),
        line if line.contains("Get-Date") => ("a fine day\n", 0),
        _ => ("never heard of it\n", 127),
    }
}

#[tokio::test]
async fn every_tool_works_on_executors_of_ones_own() {
    // A place that holds nothing, so that a tool that looked at the machine would find nothing.
    let empty = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(empty.path()).unwrap();
    let files = Arc::new(MemoryFiles::new(
        workspace.root(),
        &[("src/a.rs", "fn one() {}\nfn two() {}\n"), ("notes.md", "one\n")],
    ));
    let mut setup = Setup::new(workspace);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    setup.files = files.clone();
    let variables = EnvSource::new(Vec::new(), None, EnvPolicy::default());
    setup.commands = CommandSetup::new(Arc::new(ToldProcesses(told)), variables);
    setup.commands.programs.insert("pwsh".into(), "/pwsh".into());
    builtin().into_iter().for_each(|tool| setup.registry.add(tool).unwrap());
    let environment = Environment::new(setup);
    let mut driven = BTreeSet::new();
    for (tool, arguments, wanted) in [
        ("exec_command", json!({"cmd": "good"}), "all is well\n"),
        ("exec_command", json!({"cmd": "bad"}), "never heard of it\n[exit code: 127]"),
        (
            "input_command",
            json!({"process_id": "proc-0"}),
            "[input_command error: unknown process_id proc-0; no such process was started here]",
        ),
        (
            "kill_command",
            json!({"process_id": "proc-0"}),
            "[kill_command error: unknown process_id proc-0; no such process was started here]",
        ),
        ("bash", json!({"command": "good"}), "all is well\n"),
        ("powershell", json!({"command": "Get-Date"}), "a fine day\n"),
        (
            "read",
            json!({"path": "src/a.rs", "limit": 1}),
            "fn one() {}\n[lines 1-1 of 2; 1 more line; go on with offset 2]",
        ),
        ("read_file", json!({"file_path": "notes.md"}), "     1\tone"),
        ("write", json!({"path": "new/b.rs", "content": "x\n"}), "Created new/b.rs (1 lines, 2 bytes)"),
        (
            "write_file",
            json!({"file_path": "notes.md", "content": "two\n"}),
            "Overwrote notes.md (1 lines, 4 bytes)\n@@ -1 +1 @@\n-one\n+two",
        ),
        ("grep", json!({"pattern": "fn t"}), "src/a.rs:2: fn two() {}\n"),
        ("find", json!({"pattern": "*.rs"}), "new/b.rs\nsrc/a.rs\n"),
        ("ls", json!({}), "new/\nnotes.md\nsrc/\n"),
    ] {
        driven.insert(tool.to_owned());
        let output = call(&environment, tool, &arguments).await;
        assert_eq!(output, wanted, "{tool} {arguments}");
    }
    for (tool, arguments, wanted) in [
        ("edit", json!({"path": "src/a.rs", "edits": [{"oldText": "one", "newText": "eins"}]}), "+fn eins() {}"),
        ("edit_file", json!({"file_path": "src/a.rs", "old_string": "two", "new_string": "zwei"}), "+fn zwei() {}"),
    ] {
        driven.insert(tool.to_owned());
        let output = call(&environment, tool, &arguments).await;
        assert!(output.contains(wanted), "{tool}: {output}");
    }
    driven.insert("read_image".to_owned());
    let output = call(&environment, "read_image", &json!({"source": "src/a.rs"})).await;
    assert_eq!(
        output,
        "[tool error] Unsupported image type \"no known image\": only png, jpeg, gif and webp are supported."
    );
    assert_eq!(driven, builtin_names().into_iter().collect(), "every tool is driven");
    assert_eq!(files.content("src/a.rs").unwrap(), b"fn eins() {}\nfn zwei() {}\n");
    assert_eq!(std::fs::read_dir(Path::new(empty.path())).unwrap().count(), 0, "nothing was made on this machine");
    environment.close().await;
}

async fn call(environment: &Environment, tool: &str, arguments: &Value) -> String {
    let call = ToolCall { id: format!("{tool} {arguments}"), name: tool.into(), arguments: arguments.to_string() };
    match environment.call(call, &CancellationToken::new()).await.unwrap() {
        CallEnd::Closed(output, _) => output.output,
        CallEnd::Waiting(_) => panic!("a question is open"),
    }
}
