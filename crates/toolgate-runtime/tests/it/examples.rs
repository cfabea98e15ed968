//! The examples run as tests: what they print is what they promise.

use std::process::Command;

#[test]
fn the_examples_run() {
    for (name, part) in [
        ("call", "hi"),
        ("custom_tool", "4 words"),
        ("custom_approver", "Tool call denied by user."),
        ("own_executors", "exec_command: a fine day"),
    ] {
        // Cargo builds examples beside the tests, so they stand next to this binary's folder.
        let binary = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples").join(name);
        let output =
            Command::new(&binary).env("SUPERVISOR", env!("CARGO_BIN_EXE_toolgate-supervisor")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains(part),
            "{name}: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
