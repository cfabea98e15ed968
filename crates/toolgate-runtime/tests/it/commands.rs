//! Commands as a model drives them: windows, input, terminals, endings, floods, broken surroundings. Real shells, real processes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use toolgate_core::{
    call::Args,
    message::{Event, ToolCallOutput},
    outcome::StopReason,
    tool::{Prepared, ToolSpec},
};
use toolgate_runtime::{
    BoxFuture,
    environment::CallEnd,
    gate::Permit,
    process::command_env::EnvPolicy,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

use crate::support::{House, Plan, lives, process_id, running, until};

/// Well above what a prompt return takes on a loaded machine, and well below the sleeps that must not be waited for.
const PROMPTLY: Duration = Duration::from_secs(10);

fn is(output: &ToolCallOutput, stop: StopReason, text: &str) {
    assert_eq!((output.output.as_str(), output.stop_reason), (text, Some(stop)));
}

async fn poll(house: &House, id: &str, ms: u64) -> ToolCallOutput {
    house.call("input_command", json!({ "process_id": id, "yield_time_ms": ms })).await
}

async fn type_into(house: &House, id: &str, chars: &str) -> ToolCallOutput {
    house.call("input_command", json!({ "process_id": id, "chars": chars, "yield_time_ms": 5000 })).await
}

/// A line that runs on after its window.
async fn in_background(house: &House, line: &str) -> (String, ToolCallOutput) {
    let output = house.call("exec_command", json!({ "cmd": line, "yield_time_ms": 250 })).await;
    (process_id(&output.output), output)
}

#[tokio::test]
async fn output_and_exit_codes() {
    let house = House::new();
    is(&house.sh("echo out; echo err >&2; printf end").await, StopReason::Completed, "out\nerr\nend");
    is(&house.sh("echo x; exit 7").await, StopReason::Failed, "x\n[exit code: 7]");
    is(&house.sh("true").await, StopReason::Completed, "[no output]");
    let killed = house.sh("kill -SEGV $$").await;
    is(&killed, StopReason::Failed, "[terminated by signal SIGSEGV]");
    house.env.close().await;
}

#[tokio::test]
async fn a_command_runs_in_the_workspace_or_where_it_is_told() {
    let house = House::new();
    std::fs::create_dir(house.work().join("sub")).unwrap();
    let root = house.work().canonicalize().unwrap();
    assert_eq!(house.sh("pwd").await.output.trim(), root.to_str().unwrap());
    let output = house.call("exec_command", json!({"cmd": "pwd", "workdir": "sub"})).await;
    assert_eq!(output.output.trim(), root.join("sub").to_str().unwrap());
    house.env.close().await;
}

#[tokio::test]
async fn missing_deleted_and_false_surroundings_are_clear_errors() {
    let house = House::new();
    let missing = house.call("exec_command", json!({"cmd": "echo hi", "workdir": "does/not/exist"})).await;
    assert!(
        missing.output.contains("does/not/exist") && missing.output.contains("does not exist"),
        "{}",
        missing.output
    );
    std::fs::write(house.work().join("file"), "").unwrap();
    let file = house.call("exec_command", json!({"cmd": "echo hi", "workdir": "file"})).await;
    assert!(file.output.contains("file") && file.output.starts_with("[tool error]"), "{}", file.output);
    std::fs::remove_dir_all(house.work()).unwrap();
    let deleted = house.sh("echo hi").await;
    assert!(deleted.output.contains("work does not exist"), "{}", deleted.output);
    house.env.close().await;

    let house = House::build(Plan { shell: "/no/such/shell".into(), ..Plan::default() });
    let output = house.sh("echo hi").await;
    assert!(output.output.contains("/no/such/shell does not exist"), "{}", output.output);
    assert_eq!(output.stop_reason, Some(StopReason::Failed));
    house.env.close().await;
}

#[tokio::test]
async fn no_descriptor_and_no_terminal_leaks_into_a_command() {
    let house = House::new();
    assert_eq!(house.sh("ls -1 /proc/self/fd | tr '\\n' ' '").await.output, "0 1 2 3 ", "3 is the listing itself");
    let output = house.sh("sudo -k 2>/dev/null; (exec </dev/tty) 2>&1; echo rc=$?").await;
    assert!(output.output.ends_with("rc=1\n"), "{}", output.output);
    let output = house.sh("head -c1 /dev/tty; echo rc=$?").await;
    assert!(output.output.ends_with("rc=1\n"), "{}", output.output);
    house.env.close().await;
}

#[tokio::test]
async fn the_call_ends_with_its_shell_whoever_holds_the_pipes() {
    let house = House::new();
    for line in [
        "sleep 61 &",
        "sleep 61 </dev/null >/dev/null &",
        "sleep 61 </dev/null >/dev/null 2>&1 & echo $!",
        "nohup sleep 61 & echo done",
        "(setsid sleep 61 3>&1 4>&2 </dev/null >/dev/null 2>&1 &) ; echo up",
        "nohup sleep 61 >/dev/null 2>&1 & echo launched",
        "timeout 1 setsid sh -c 'sleep 61 & sleep 61'; echo code=$?",
    ] {
        let start = Instant::now();
        let output = house.sh(line).await;
        assert!(start.elapsed() < PROMPTLY, "{line}: {:?}", start.elapsed());
        assert_eq!(output.stop_reason, Some(StopReason::Completed), "{line}: {}", output.output);
        assert!(output.output.contains("started by it still running: "), "{line}: {}", output.output);
        is(&house.sh("echo second").await, StopReason::Completed, "second\n");
    }
    let output = house.sh("true && echo 'x &'").await;
    is(&output, StopReason::Completed, "x &\n");
    house.env.close().await;
    until("nothing lives on", || running("sleep 61").is_empty()).await;
}

#[tokio::test]
async fn what_was_printed_before_the_end_arrives_although_a_descendant_holds_the_pipe() {
    let house = House::new();
    let output = house.sh("sleep 62 & seq 1 200000; echo TAIL_MARK").await;
    let path = output.output.split("complete output: ").nth(1).unwrap().split(" ...]").next().unwrap().to_owned();
    let saved = std::fs::read_to_string(path).unwrap();
    assert!(saved.ends_with("TAIL_MARK\n") && saved.lines().count() == 200_001);
    assert!(output.output.contains("TAIL_MARK"));
    house.env.close().await;
}

#[tokio::test]
async fn a_descendant_that_goes_on_printing_is_not_waited_for_for_ever() {
    let house = House::new();
    let start = Instant::now();
    let output = house.sh("yes late & echo done").await;
    assert!(
        start.elapsed() < PROMPTLY && output.output.contains("goes on printing, and was waited for for 2 s"),
        "{}",
        output.output
    );
    house.env.close().await;
}

#[tokio::test]
async fn five_megabytes_on_standard_error_alone_do_not_block() {
    let house = House::new();
    let output = house.sh("head -c 5000000 /dev/zero | tr '\\0' e >&2; echo ok").await;
    assert!(output.output.contains("ok\n") && output.stop_reason == Some(StopReason::Completed));
    house.env.close().await;
}

#[tokio::test]
async fn past_its_window_a_command_can_be_polled_fed_and_interrupted() {
    let house = House::new();
    let (id, output) =
        in_background(&house, "echo first; trap 'echo caught; exit 5' INT; while :; do sleep 0.1; done").await;
    assert!(output.output.starts_with("first\n[process running with process_id proc-"), "{}", output.output);
    assert_eq!(output.stop_reason, Some(StopReason::Completed));
    let still = poll(&house, &id, 250).await;
    assert_eq!(still.output, format!("[process still running with process_id {id}]"));
    let mixed = type_into(&house, &id, "x\u{3}").await;
    assert!(mixed.output.contains("mixes U+0003"), "{}", mixed.output);
    let caught = type_into(&house, &id, "\u{3}").await;
    is(&caught, StopReason::Failed, "caught\n[exit code: 5]");
    house.env.close().await;
}

#[tokio::test]
async fn a_server_is_interrupted_by_ctrl_c() {
    let house = House::new();
    let output = house
        .call("exec_command", json!({"cmd": "python3 -u -m http.server 0 --bind 127.0.0.1", "yield_time_ms": 3000}))
        .await;
    assert!(output.output.contains("Serving HTTP"), "{}", output.output);
    let id = process_id(&output.output);
    let mut ended = type_into(&house, &id, "\u{3}").await;
    if ended.output.contains("still running") {
        ended = poll(&house, &id, 20_000).await;
    }
    assert!(!ended.output.contains("still running"), "{}", ended.output);
    house.env.close().await;
}

#[tokio::test]
async fn a_poll_is_woken_by_the_exit() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 1; echo out").await;
    let start = Instant::now();
    is(&poll(&house, &id, 60_000).await, StopReason::Completed, "out\n");
    assert!(start.elapsed() < PROMPTLY);
    house.env.close().await;
}

#[tokio::test]
async fn silence_ends_the_wait_and_never_the_command() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 2; echo finished").await;
    let (mut seen, mut window) = (String::new(), 250);
    loop {
        let output = poll(&house, &id, window).await;
        seen.push_str(&output.output);
        if !output.output.contains("still running") {
            assert_eq!(output.stop_reason, Some(StopReason::Completed));
            break;
        }
        window = 500;
    }
    // The last words may come with the look before the one that sees the end.
    assert!(seen.contains("finished\n"), "{seen}");
    house.env.close().await;
}

#[tokio::test]
async fn input_reaches_the_program_and_end_of_file_ends_it() {
    let house = House::new();
    let (id, output) = in_background(&house, "read -r name; echo hello $name; cat").await;
    assert!(output.output.contains("waits for input"), "{}", output.output);
    let output = type_into(&house, &id, "world\n").await;
    assert!(output.output.starts_with("hello world\n[process waits for input"), "{}", output.output);
    let output = house
        .call("input_command", json!({"process_id": id, "chars": "last", "eof": true, "yield_time_ms": 10000}))
        .await;
    is(&output, StopReason::Completed, "last");
    house.env.close().await;
}

#[tokio::test]
async fn a_foreground_program_that_waits_for_input_yields_at_once() {
    let house = House::new();
    for line in ["cat", "python3 -c 'input()'", "read x", "echo a; cat > file"] {
        let start = Instant::now();
        let output = house.call("exec_command", json!({"cmd": line})).await;
        assert!(output.output.contains("waits for input"), "{line}: {}", output.output);
        assert!(start.elapsed() < PROMPTLY, "{line}");
        let id = process_id(&output.output);
        house.call("kill_command", json!({"process_id": id})).await;
    }
    is(&house.sh("sleep 1 | cat; echo ok").await, StopReason::Completed, "ok\n");
    house.env.close().await;
}

#[tokio::test]
async fn where_nothing_can_be_sent_input_is_at_its_end() {
    let house = House::build(Plan { takes_input: false, ..Plan::default() });
    is(&house.sh("cat; echo rc=$?").await, StopReason::Completed, "rc=0\n");
    let output = house.sh("python3 -c 'import getpass; getpass.getpass()' 2>&1 | tail -1").await;
    assert!(output.output.contains("EOFError"), "{}", output.output);
    is(&house.sh("seq 2 | cat < /dev/stdin; cat /dev/stdin").await, StopReason::Completed, "1\n2\n");
    house.env.close().await;
}

#[tokio::test]
async fn input_to_a_program_that_has_ended_gives_its_last_words() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 0.5; echo x; exit 3").await;
    until("it ends", || house.env.commands().get(&id).is_ok_and(|session| session.exit().is_some())).await;
    is(&type_into(&house, &id, "\u{3}").await, StopReason::Failed, "x\n[exit code: 3]");
    let (id, _) = in_background(&house, "exec <&-; sleep 1; echo y").await;
    let output = type_into(&house, &id, "text\n").await;
    assert!(output.output.contains('y') || output.output.contains("closed"), "{}", output.output);
    house.env.close().await;
}

#[tokio::test]
async fn ended_killed_evicted_and_unknown_are_four_answers() {
    let house = House::new();
    let (ended, _) = in_background(&house, "sleep 0.4; exit 3").await;
    assert!(poll(&house, &ended, 20_000).await.output.contains("[exit code: 3]"));
    let again = poll(&house, &ended, 250).await;
    assert!(
        again.output.contains("had exited (exit code 3)") && again.stop_reason == Some(StopReason::Failed),
        "{}",
        again.output
    );

    let (killed, _) = in_background(&house, "echo bye; sleep 63").await;
    let output = house.call("kill_command", json!({"process_id": killed})).await;
    assert!(output.output.contains("killed with everything it started"), "{}", output.output);
    assert!(poll(&house, &killed, 250).await.output.contains("was killed: by kill_command"));
    until("it is gone", || running("sleep 63").is_empty()).await;

    let unknown = poll(&house, "nope", 250).await;
    assert!(unknown.output.contains("unknown process_id nope") && unknown.stop_reason == Some(StopReason::Failed));
    house.env.close().await;
}

#[tokio::test]
async fn the_sixty_fifth_session_makes_room_for_itself() {
    let house = House::new();
    let mut ids = Vec::new();
    for _ in 0..65 {
        let calls = house.tool_call("exec_command", &json!({"cmd": "sleep 64", "yield_time_ms": 250}).to_string());
        let CallEnd::Closed(output, _) = house.env.call(calls, &house.interrupt).await.unwrap() else { panic!() };
        ids.push(process_id(&output.output));
    }
    assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 65, "ids are never used twice");
    assert!(poll(&house, &ids[0], 250).await.output.contains("ended to make room"));
    assert!(poll(&house, &ids[64], 250).await.output.contains("still running"));
    until("one was ended", || running("sleep 64").len() < 2 * 65).await;
    house.env.close().await;
    until("all are gone", || running("sleep 64").is_empty()).await;
}

#[tokio::test]
async fn who_ended_it_is_said() {
    let house = House::new();
    let (id, _) = in_background(&house, "echo $$; exec sleep 65").await;
    until("it runs", || !running("sleep 65").is_empty()).await;
    for pid in running("sleep 65") {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid as i32).unwrap(),
            rustix::process::Signal::TERM,
        )
        .unwrap();
    }
    let output = poll(&house, &id, 20_000).await;
    assert!(output.output.contains("external signal 15"), "{}", output.output);
    house.env.close().await;
}

/// The command tools with another time limit, as a configuration will set it.
fn limited(timeout_ms: i64, yields: bool) -> House {
    let tools = toolgate_runtime::tools::builtin().into_iter().map(|tool| Limited::wrap(tool, timeout_ms));
    House::build(Plan { tools: tools.collect(), yields, ..Plan::default() })
}

struct Limited(Arc<dyn Tool>, ToolSpec);

impl Limited {
    fn wrap(tool: Arc<dyn Tool>, timeout_ms: i64) -> Arc<dyn Tool> {
        let spec = ToolSpec { timeout_ms, ..tool.spec().clone() };
        Arc::new(Self(tool, spec))
    }
}

impl Tool for Limited {
    fn spec(&self) -> &ToolSpec {
        &self.1
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        self.0.prepare(args, cx)
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        self.0.run(permit, cx)
    }
}

#[tokio::test]
async fn a_time_limit_ends_the_whole_tree() {
    let house = limited(1000, false);
    for line in [
        "sh -c \"sh -c 'sleep 66 & sleep 66'\"",
        "sleep 66 & wait",
        "setsid sh -c 'trap : TERM; sleep 66; sleep 66' & wait",
    ] {
        let output = house.sh(&format!("echo so far; {line}")).await;
        is(&output, StopReason::Failed, "so far\n[tool timeout: exceeded 1000ms]");
        until("the tree is gone", || running("sleep 66").is_empty()).await;
    }
    house.env.close().await;
}

#[tokio::test]
async fn a_window_ends_before_the_time_limit_so_that_the_call_comes_back_by_itself() {
    let house = limited(2000, true);
    let output = house.sh("sleep 100000").await;
    assert!(output.output.starts_with("[process running with process_id "), "{}", output.output);
    assert_eq!(output.stop_reason, Some(StopReason::Completed));
    house.env.close().await;
}

#[tokio::test]
async fn a_dropped_call_ends_its_tree() {
    let house = House::new();
    let call = house.tool_call("exec_command", &json!({"cmd": "sh -c 'sleep 67 & sleep 67'"}).to_string());
    tokio::select! {
        _ = house.env.call(call, &house.interrupt) => panic!("it sleeps"),
        () = until("it runs", || running("sleep 67").len() >= 2) => {}
    }
    until("the tree is gone", || running("sleep 67").is_empty()).await;
    house.env.close().await;
}

#[tokio::test]
async fn an_interrupted_run_leaves_nothing_running() {
    let house = House::new();
    in_background(&house, "sleep 68 & setsid sleep 68 & sleep 68").await;
    house.env.interrupt().await;
    until("all are gone", || running("sleep 68").is_empty()).await;
    house.env.close().await;
}

#[tokio::test]
async fn nothing_outlives_the_session() {
    let house = House::new();
    house.sh("for i in 1 2 3; do yes tg_orphan >/dev/null & done; setsid sleep 69 & echo ok").await;
    let line = "python3 -c \"import subprocess;print(subprocess.Popen(['sleep','69'],start_new_session=True,stdin=-3,stdout=-3,stderr=-3).pid)\"";
    let output = house.sh(line).await;
    let pid = output.output.lines().next().unwrap().to_owned();
    assert!(lives(&pid));
    house.env.close().await;
    until("all are gone", || running("sleep 69").is_empty() && running("yes tg_orphan").is_empty()).await;
}

#[tokio::test]
async fn a_terminal_of_its_own() {
    let house = House::new();
    let output =
        house.call("exec_command", json!({"cmd": "stty size; test -t 0 && echo tty; echo $TERM", "tty": true})).await;
    assert_eq!(output.output, "24 120\ntty\nxterm-256color\n");
    let output =
        house.call("exec_command", json!({"cmd": "read -r x; stty size; echo got $x; read -r y", "tty": true})).await;
    assert!(output.output.contains("waits for input"), "{}", output.output);
    let id = process_id(&output.output);
    let output = house
        .call(
            "input_command",
            json!({"process_id": id, "chars": "hi", "keys": ["enter"], "cols": 99, "rows": 50, "yield_time_ms": 5000}),
        )
        .await;
    assert!(output.output.contains("50 99\ngot hi\n"), "{}", output.output);
    let output =
        house.call("input_command", json!({"process_id": id, "keys": ["ctrl_c"], "yield_time_ms": 10000})).await;
    assert!(output.output.contains("SIGINT") || output.output.contains("exit code: 130"), "{}", output.output);
    house.env.close().await;
}

#[tokio::test]
async fn editors_and_pagers_fail_loudly_and_rewrite_nothing() {
    let house =
        House::build(Plan { base_env: vec![("EDITOR".into(), "sh -c 'cat >/dev/null'".into())], ..Plan::default() });
    let git = "git -c user.name=t -c user.email=t@t.example";
    let output = house.sh(&format!("git init -q r && cd r && {git} commit --allow-empty; echo rc=$?")).await;
    assert!(output.output.ends_with("rc=1\n"), "{}", output.output);
    let output = house
        .sh(&format!(
            "cd r && for i in 1 2 3; do echo $i > f$i; git add .; {git} commit -qm $i; done; H=$(git rev-parse HEAD); \
             {git} rebase -i HEAD~2 >/dev/null 2>&1; echo rc=$?; test $H = $(git rev-parse HEAD) && echo unchanged"
        ))
        .await;
    assert!(output.output.contains("rc=1") && output.output.contains("unchanged"), "{}", output.output);
    house.env.close().await;
}

#[tokio::test]
async fn secrets_do_not_reach_commands() {
    let base_env = vec![("SOME_API_KEY".into(), "sk-hidden".into()), ("PLAIN".into(), "seen".into())];
    let env = EnvPolicy { pass: vec![], drop: vec![], set: vec![("VAULT_TOKEN".into(), "from the vault".into())] };
    let house = House::build(Plan { base_env, env, ..Plan::default() });
    is(&house.sh("echo \"$SOME_API_KEY|$PLAIN|$VAULT_TOKEN\"").await, StopReason::Completed, "|seen|from the vault\n");
    house.env.close().await;
}

#[tokio::test]
async fn the_text_of_a_command_stands_in_no_process_but_its_shell() {
    let house = House::new();
    in_background(&house, ": tg_unique_7f3; sleep 73; true").await;
    assert_eq!(running("tg_unique_7f3").len(), 1, "pkill -f finds the shell and nothing of toolgate's");
    house.env.close().await;
}

#[tokio::test]
async fn broken_text_colours_and_progress_are_clean_for_the_model() {
    let house = House::new();
    is(
        &house
            .sh("printf '\\033[2mx\\033[0m\\n\\r1%%\\r100%%\\na\\0b\\n\\xa4\\xa4\\nabc\\b\\bX\\033[2K\\rdone\\n'")
            .await,
        StopReason::Completed,
        "x\n100%\na\u{2400}b\n\u{FFFD}\u{FFFD}\ndone\n",
    );
    is(&house.sh("printf 'ä€😀\\n'").await, StopReason::Completed, "ä€😀\n");
    let output = house.sh("head -c 3000 /bin/ls").await;
    assert!(!output.output.contains(['\0', '\u{1b}']));
    house.env.close().await;
}

#[tokio::test]
async fn lines_of_a_hundred_megabytes_and_floods_stay_within_the_bound() {
    let house = House::new();
    for line in ["seq 1 100000", "head -c 100000000 /dev/zero | tr '\\0' x", "yes err | head -c 1000000000 >&2"] {
        let output = house.sh(line).await;
        let length = output.output.chars().count();
        assert!(length < 16_000 + 500, "{line}: {length}");
        assert!(output.output.contains("characters left out here; "), "{line}");
    }
    house.env.close().await;
}

#[tokio::test]
async fn eight_floods_at_once() {
    let house = House::new();
    let calls =
        (0..8).map(|_| house.tool_call("exec_command", r#"{"cmd":"yes err | head -c 50000000 >&2"}"#)).collect();
    let ends = house.env.call_all(calls, &house.interrupt).await.unwrap();
    assert!(
        ends.iter()
            .all(|end| matches!(end, CallEnd::Closed(output, _) if output.stop_reason == Some(StopReason::Completed)))
    );
    let peak = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak: u64 = peak
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak < 200 * 1024, "peak memory {peak} KiB for 400 MB of output");
    house.env.close().await;
}

#[tokio::test]
async fn unread_output_is_bounded_and_all_of_it_is_kept() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 0.5; seq 1 1000000; echo TAIL; sleep 0.2").await;
    until("it ends", || house.env.commands().get(&id).is_ok_and(|session| session.exit().is_some())).await;
    let output = poll(&house, &id, 5000).await;
    assert!(
        output.output.contains("bytes of earlier output dropped; all of it: ") && output.output.ends_with("TAIL\n"),
        "{}",
        &output.output[..300]
    );
    let path = output.output.split("all of it: ").nth(1).unwrap().split(" ...]").next().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1_000_001);
    house.env.close().await;
}

#[tokio::test]
async fn a_command_that_reads_the_spill_folder_does_not_feed_itself() {
    let folder = tempfile::tempdir().unwrap();
    let spill = folder.path().join("spill");
    let env = EnvPolicy { pass: vec![], drop: vec![], set: vec![("SPILL_DIR".into(), spill.display().to_string())] };
    let house = House::build(Plan { spill_folder: Some(spill.clone()), env, ..Plan::default() });
    house.sh("seq 1 500000").await;
    let line = "while :; do cat \"$SPILL_DIR\"/* 2>/dev/null; done";
    let (id, _) = in_background(&house, line).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let size: u64 = std::fs::read_dir(&spill).unwrap().flatten().map(|entry| entry.metadata().unwrap().len()).sum();
    assert!(size <= 3 * 64 * 1024 * 1024, "{size}: one file for each of the outputs, each within its bound");
    assert!(poll(&house, &id, 250).await.output.contains("still running"), "it is not ended for it");
    house.call("kill_command", json!({"process_id": id})).await;
    house.env.close().await;
}

#[tokio::test]
async fn a_full_disk_costs_the_spill_and_never_the_call() {
    // A folder below a device that is always full stands in for a full file system.
    let house = House::build(Plan { spill_folder: Some("/dev/full/spill".into()), ..Plan::default() });
    let output = house.sh("seq 1 50000; echo ok").await;
    assert_eq!(output.stop_reason, Some(StopReason::Completed));
    assert!(
        output.output.ends_with("ok\n") && output.output.contains("could not be kept: "),
        "{}",
        &output.output[output.output.len() - 200..]
    );
    house.env.close().await;
}

#[tokio::test]
async fn a_supervisor_that_dies_is_said_and_the_next_command_runs() {
    let house = House::new();
    let (id, _) = in_background(&house, "echo up; sleep 71").await;
    let output = house.sh("kill -9 $(ps -o ppid= -p $(ps -o ppid= -p $$))").await;
    let told = [output, poll(&house, &id, 10_000).await];
    assert!(told.iter().any(|output| output.output.contains("the supervisor died")), "{told:?}");
    until("its trees are gone", || running("sleep 71").is_empty()).await;
    is(&house.sh("echo again").await, StopReason::Completed, "again\n");
    house.env.close().await;
}

#[tokio::test]
async fn the_life_of_a_command_session_is_in_the_trace() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 72").await;
    house.call("kill_command", json!({"process_id": id})).await;
    let states: Vec<String> = house
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::CommandSession(session) if session.process_id == id => Some(session.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, ["started", "yielded", "killed"]);
    house.env.close().await;
}

#[tokio::test]
async fn after_the_end_of_the_session_nothing_starts() {
    let house = House::new();
    house.env.close().await;
    assert!(house.sh("echo hi").await.output.contains("the session has ended"));
}

#[tokio::test]
async fn two_polls_of_one_command_share_its_output_and_lose_none() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 1; echo one; sleep 1; echo last").await;
    let poll =
        |ms: u32| house.tool_call("input_command", &json!({ "process_id": id, "yield_time_ms": ms }).to_string());
    let ends = house.env.call_all(vec![poll(500), poll(8000), poll(8000)], &house.interrupt).await.unwrap();
    let said: String = ends
        .iter()
        .map(|end| if let CallEnd::Closed(output, _) = end { output.output.clone() } else { String::new() })
        .collect();
    assert!(said.contains("one\nlast\n"), "{said}");
    house.env.close().await;
}

#[tokio::test]
async fn kill_command_brings_the_last_words_and_says_what_is_true() {
    let house = House::new();
    let (id, _) = in_background(&house, "trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done").await;
    let output = house.call("kill_command", json!({ "process_id": id })).await;
    assert!(
        output.output.contains("bye\n[process ") && output.output.contains(" killed with everything"),
        "{}",
        output.output
    );
    let (id, _) = in_background(&house, "trap '' TERM; sleep 74; sleep 74").await;
    let output = house.call("kill_command", json!({ "process_id": id })).await;
    assert!(output.output.contains(" killed with everything"), "{}", output.output);
    assert!(running("sleep 74").is_empty(), "killed means gone");
    house.env.close().await;
}

#[tokio::test]
async fn a_signal_of_toolgates_own_is_not_called_external() {
    let house = House::new();
    let (id, _) = in_background(&house, "sleep 75").await;
    let mut output = type_into(&house, &id, "\u{3}").await;
    if output.output.contains("still running") {
        output = poll(&house, &id, 10_000).await;
    }
    is(&output, StopReason::Failed, "[terminated by signal SIGINT]");
    house.env.close().await;
}

#[tokio::test]
async fn a_command_that_stops_its_keeper_is_ended_all_the_same() {
    let house = House::new();
    let call =
        house.tool_call("exec_command", &json!({ "cmd": "setsid sleep 76 & kill -STOP $PPID; sleep 76" }).to_string());
    let interrupt = house.interrupt.child_token();
    let (end, ()) = tokio::join!(house.env.call(call, &interrupt), async {
        until("it runs", || running("sleep 76").len() >= 2).await;
        interrupt.cancel();
    });
    assert!(matches!(end.unwrap(), CallEnd::Closed(..)));
    until("its tree is gone", || running("sleep 76").is_empty()).await;
    house.env.close().await;
}

#[tokio::test]
async fn the_end_of_a_background_command_is_told_once() {
    let house = House::new();
    let start = async |line: &str| {
        let output = house.call("exec_command", json!({"cmd": line, "run_in_background": true})).await;
        assert!(
            output.output.starts_with("[command running in the background with process_id proc-"),
            "{}",
            output.output
        );
        process_id(&output.output)
    };
    let notices = house.env.notices().clone();
    let failing = start("read -r line; echo got $line; exit 3").await;
    assert!(!notices.is_waiting());
    let typed =
        house.call("input_command", json!({"process_id": failing, "chars": "it\n", "yield_time_ms": 5000})).await;
    assert!(typed.output.ends_with("got it\n[exit code: 3]"), "{}", typed.output);
    let quiet = start("echo out; echo err >&2").await;
    until("the end is told", || notices.is_waiting()).await;
    let told = notices.take();
    let [last] = &told[..] else { panic!("what was read of its end by looking is not told again: {told:?}") };
    assert_eq!((last.id.as_str(), last.failed, last.label.as_str()), (quiet.as_str(), false, "echo out; echo err >&2"));
    assert_eq!((last.output.as_str(), last.detail.as_deref()), ("out\nerr\n", Some("exit code 0")));
    let after = poll(&house, &quiet, 250).await;
    assert!(after.output.contains("had exited (exit code 0); all of its output was read"), "{}", after.output);
    let long = start("seq 100000; exec sleep 1000").await;
    house.call("kill_command", json!({"process_id": long})).await;
    let ended = start("exec sleep 1000").await;
    house.env.interrupt().await;
    until("both are gone", || crate::support::running("sleep 1000").is_empty()).await;
    assert!(!notices.is_waiting(), "who ended it needs no telling: {long} {ended}");
    start("true").await;
    house.env.close().await;
    start_refused(&house).await;
    assert!(!notices.is_waiting());
}

/// After its end a session starts nothing.
async fn start_refused(house: &House) {
    let output = house.call("exec_command", json!({"cmd": "true", "run_in_background": true})).await;
    assert!(output.output.contains("the session has ended"), "{}", output.output);
}
