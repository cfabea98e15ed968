//! Commands that run to their end in Pi's form, in bash and in PowerShell, and hints that name only tools that are there.

use std::{
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::json;
use toolgate_core::{
    message::ToolCallOutput,
    outcome::{Ending, StopReason},
    policy::Tier,
};
use toolgate_runtime::{
    environment::CallEnd,
    registry::{Registry, named},
    tools::builtin,
};

use crate::support::{House, Plan, lives, process_id, running, until};

/// A house with some of the tools only.
fn with(names: &[&str], plan: Plan) -> House {
    let (tools, mut registry) = (builtin(), Registry::default());
    for name in names {
        registry.add(named(&tools, name).unwrap().0.clone()).unwrap();
    }
    House::build(Plan { registry: Some(registry), ..plan })
}

fn bash() -> House {
    with(&["bash"], Plan::default())
}

async fn run(house: &House, command: &str) -> ToolCallOutput {
    house.call("bash", json!({ "command": command })).await
}

#[tokio::test]
async fn a_line_runs_to_its_end_and_its_exit_code_says_how() {
    let house = bash();
    for (command, stop, output) in [
        ("echo out; echo err >&2; printf end", StopReason::Completed, "out\nerr\nend"),
        ("true", StopReason::Completed, "[no output]"),
        ("echo x; exit 7", StopReason::Failed, "x\n[exit code: 7]"),
        ("kill -SEGV $$", StopReason::Failed, "[terminated by signal SIGSEGV]"),
        ("cat; read -r x; echo rc=$?", StopReason::Completed, "rc=1\n"),
        ("[[ a == a ]] && echo \"${BASH_VERSION:+bash}\"", StopReason::Completed, "bash\n"),
    ] {
        let found = run(&house, command).await;
        assert_eq!((found.output.as_str(), found.stop_reason), (output, Some(stop)), "{command}");
    }
    let root = house.work().canonicalize().unwrap();
    assert_eq!(run(&house, "cd /; pwd").await.output, "/\n");
    assert_eq!(run(&house, "pwd").await.output.trim(), root.to_str().unwrap(), "each call begins in the workspace");
    house.env.close().await;
}

#[tokio::test]
async fn a_call_that_cannot_be_meant_never_runs() {
    let house = bash();
    for (arguments, part) in [
        (json!({"command": "touch made", "timeout": 0}), "/timeout: expected more than 0 seconds"),
        (json!({"command": "touch made", "timeout": -1}), "/timeout: expected more than 0 seconds"),
        (json!({"command": "touch made", "timeout": "NaN"}), "/timeout: expected number"),
        (json!({"command": "touch made\u{0}"}), "/command: expected a command without NUL characters"),
        (json!({"command": " "}), "/command: expected a command"),
        (json!({"cmd": "touch made"}), "`command` is required"),
    ] {
        let found = house.call("bash", arguments.clone()).await;
        assert!(found.output.contains(part) && found.stop_reason == Some(StopReason::Failed), "{}", found.output);
    }
    assert!(!house.work().join("made").exists());
    std::fs::remove_dir_all(house.work()).unwrap();
    let deleted = run(&house, "echo hi").await;
    assert!(deleted.output.contains("work does not exist"), "{}", deleted.output);
    house.env.close().await;

    let house = with(&["bash"], Plan { shell: "/no/such/shell".into(), ..Plan::default() });
    assert!(run(&house, "echo hi").await.output.contains("/no/such/shell does not exist"));
    house.env.close().await;
}

/// The spill file that a marker names.
fn kept(output: &str) -> String {
    let path = output.split("complete output: ").nth(1).and_then(|rest| rest.split(" ...]").next()).expect(output);
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn of_a_long_output_the_end_is_read_and_all_of_it_kept() {
    let house = bash();
    let found = run(&house, "seq 4000; exit 3").await.output;
    let (marker, rest) = found.split_once('\n').unwrap();
    assert!(marker.starts_with("[... 2000 lines (8893 bytes) left out here; complete output: "), "{marker}");
    assert!(rest.starts_with("2001\n") && rest.ends_with("4000\n[exit code: 3]"));
    assert!(kept(&found).starts_with("1\n2\n") && kept(&found).lines().count() == 4000);
    // By bytes, and never inside a character.
    let found = run(&house, "for i in $(seq 1000); do printf 'é%.0s' $(seq 50); echo $i; done").await.output;
    let (_, rest) = found.split_once('\n').unwrap();
    assert!(rest.len() <= 51_200 && rest.starts_with('é') && rest.ends_with("é1000\n"), "{}", rest.len());
    let found = run(&house, "printf '%060000d' 7").await.output;
    assert!(
        found.ends_with("0007") && found.contains("8800 bytes left out here"),
        "the end of one line without an end"
    );
    house.env.close().await;
}

#[tokio::test]
async fn a_time_limit_of_ones_own_ends_the_tree_and_keeps_what_was_printed() {
    let house = bash();
    for (limit, shown) in [(json!(0.3), "300ms"), (json!(1), "1000ms")] {
        let line = "seq 3000; setsid sh -c 'trap : TERM; sleep 71; sleep 71' & sleep 71";
        let call = house.tool_call("bash", &json!({"command": line, "timeout": limit}).to_string());
        let end = house.env.call(call, &house.interrupt).await.unwrap();
        let CallEnd::Closed(output, ending) = end else { panic!("a question is open") };
        assert!(matches!(ending, Ending::TimedOut(_)));
        assert!(output.output.contains(&format!("3000\n[tool timeout: exceeded {shown}]")), "{}", output.output);
        assert_eq!(output.stop_reason, Some(StopReason::Failed));
        let whole = kept(&output.output);
        assert!(whole.starts_with("1\n") && whole.ends_with("\n3000\n"));
        until("the tree is gone", || running("sleep 71").is_empty()).await;
    }
    // The tool's own limit holds for a call that asks for a longer one.
    let (tools, mut registry) = (builtin(), Registry::default());
    let (tool, form) = named(&tools, "bash").unwrap();
    let mut spec = form.clone();
    spec.timeout_ms = 200;
    registry.add_as(tool.clone(), spec).unwrap();
    let held = House::build(Plan { registry: Some(registry), ..Plan::default() });
    for arguments in [json!({"command": "sleep 72"}), json!({"command": "sleep 72", "timeout": 600})] {
        assert_eq!(held.call("bash", arguments).await.output, "[tool timeout: exceeded 200ms]");
    }
    until("all are gone", || running("sleep 72").is_empty()).await;
    held.env.close().await;
    house.env.close().await;
}

#[tokio::test]
async fn an_interrupt_ends_the_tree_and_keeps_what_was_printed() {
    let house = bash();
    let call = house.tool_call("bash", &json!({"command": "seq 3000; touch printed; sleep 73 & sleep 73"}).to_string());
    let interrupt = async {
        until("it has printed", || house.work().join("printed").exists()).await;
        house.interrupt.cancel();
    };
    let (end, ()) = tokio::join!(house.env.call(call, &house.interrupt), interrupt);
    let CallEnd::Closed(output, Ending::Interrupted) = end.unwrap() else { panic!("it was interrupted") };
    assert_eq!(output.stop_reason, Some(StopReason::Aborted));
    assert!(output.output.ends_with("3000\n[interrupted: tool aborted by user]"), "{}", output.output);
    assert!(kept(&output.output).starts_with("1\n"));
    until("the tree is gone", || running("sleep 73").is_empty()).await;
    house.env.close().await;
}

#[tokio::test]
async fn a_background_process_does_not_hold_the_call_and_lives_until_the_session_ends() {
    let house = bash();
    let start = Instant::now();
    for line in ["sleep 74 & echo up", "nohup sleep 74 2>&1 & echo up", "(setsid sleep 74 &) ; echo up"] {
        let found = run(&house, line).await;
        assert!(found.output.starts_with("up\n[1 process started by it still running: "), "{}", found.output);
        assert!(found.output.ends_with("; ended with the session]"), "{}", found.output);
        assert_eq!(found.stop_reason, Some(StopReason::Completed));
    }
    assert!(start.elapsed() < Duration::from_secs(60), "nobody waited for `sleep 74`");
    assert_eq!(running("sleep 74").len(), 3);
    house.env.close().await;
    until("all are gone", || running("sleep 74").is_empty()).await;
}

#[tokio::test]
async fn no_hint_names_a_tool_that_is_not_there() {
    let leaves_one = "sleep 75 & echo up";
    for (tools, after_exit, while_it_runs) in [
        (
            &["bash", "exec_command", "input_command", "kill_command"][..],
            "; ended with the session, or by kill_command; input_command reads what they print (process_id ID)]",
            "[process running with process_id ID; use input_command to send input or poll for output]",
        ),
        (
            &["bash", "exec_command", "kill_command"],
            "; ended with the session, or by kill_command (process_id ID)]",
            "[process running with process_id ID; use kill_command to end it and read its output]",
        ),
        (
            &["bash", "exec_command", "input_command"],
            "; ended with the session; input_command reads what they print (process_id ID)]",
            "[process running with process_id ID; use input_command to send input or poll for output]",
        ),
        (
            &["bash", "exec_command"],
            "; ended with the session]",
            "[process running with process_id ID; it is ended with the session]",
        ),
    ] {
        let house = with(tools, Plan::default());
        let without_id = |output: &str| match output.contains("proc-") {
            true => output.replace(&process_id(output), "ID"),
            false => output.to_owned(),
        };
        for found in [run(&house, leaves_one).await, house.sh(leaves_one).await] {
            assert!(without_id(&found.output).ends_with(after_exit), "{tools:?}: {}", found.output);
        }
        let found = house.call("exec_command", json!({"cmd": "exec sleep 75", "yield_time_ms": 250})).await;
        assert_eq!(without_id(&found.output), while_it_runs, "{tools:?}");
        // Who cannot be typed to reads end-of-file, and nobody waits for what cannot come.
        let found = house.sh("read -r x; echo rc=$?").await.output;
        match tools.contains(&"input_command") {
            true => assert!(found.starts_with("[process waits for input; process_id "), "{found}"),
            false => assert_eq!(found, "rc=1\n"),
        }
        house.env.close().await;
    }
}

/// A program in PowerShell's place that says what it was given and does its last argument.
fn fake_powershell(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("pwsh");
    std::fs::write(&path, "#!/bin/bash\nprintf '%s|' \"${@:1:5}\"\necho\nline=\"${@: -1}\"\neval \"${line#*; }\"\n")
        .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn powershell_is_run_as_bash_is_and_rules_about_commands_hold_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let house = |rules: Vec<(Tier, &'static str)>| {
        let programs = vec![("pwsh", fake_powershell(&folder))];
        with(&["powershell"], Plan { programs, rules, ..Plan::default() })
    };
    let plain = house(Vec::new());
    let found = plain.call("powershell", json!({"command": "echo hi; cat; exit 3", "timeout": 60})).await;
    let output = found.output.split_once('\n').unwrap();
    assert_eq!(output.0, "-NoProfile|-NonInteractive|-ExecutionPolicy|Bypass|-Command|");
    assert!(output.1 == "hi\n[exit code: 3]", "{}", found.output);
    let found = plain.call("powershell", json!({"command": "sleep 76 & echo $! > pids; wait", "timeout": 1})).await;
    assert!(found.output.ends_with("[tool timeout: exceeded 1000ms]"), "{}", found.output);
    let pids = std::fs::read_to_string(plain.work().join("pids")).unwrap();
    until("it is gone", || !lives(pids.trim())).await;
    plain.env.close().await;

    for rule in ["Bash(git push *)", "PowerShell(git push *)", "powershell"] {
        let house = house(vec![(Tier::Deny, rule)]);
        let found = house.call("powershell", json!({"command": "git push origin"})).await;
        assert!(found.output.starts_with("Tool call denied by policy: "), "{rule}: {}", found.output);
        house.env.close().await;
    }
    let without = with(&["powershell"], Plan::default());
    let found = without.call("powershell", json!({"command": "Get-Date"})).await;
    assert_eq!(found.output, "[tool error] PowerShell is not installed: neither pwsh nor powershell was found on PATH");
    without.env.close().await;
}
