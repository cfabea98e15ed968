//! The command line as people and scripts meet it: what it prints where, and how it ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::Stdio,
    thread,
};

use serde_json::{Value, json};

use crate::support::{Place, outcome, running, until};

#[test]
fn one_call_by_hand() {
    let place = Place::new();
    let (code, out, _) = place.run(&["call", "exec_command", r#"{"cmd":"echo hi"}"#, "--json"]);
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, result["type"].as_str(), result["output"].as_str()), (0, Some("tool_call_output"), Some("hi\n")));
    assert_eq!(
        (result["stop_reason"].as_str(), result["decision"]["decision"].as_str()),
        (Some("completed"), Some("allow"))
    );
    assert_eq!(result["decision"]["source"], "mode");
    assert!(result.get("arguments").is_none());

    assert_eq!(
        place.run(&["call", "exec_command", r#"{"cmd":"exit 3"}"#]),
        (1, "[exit code: 3]\n".into(), String::new())
    );
    let (code, out, _) = place.run(&["call", "exec_command", r#"{"cmd":"touch made"}"#, "--approve", "deny-all"]);
    assert!(code == 4 && out.starts_with("Tool call denied by policy: ") && !place.work().join("made").exists());
    let (code, out, _) = place.run(&["call", "exec_command", r#"{"cmd":"#]);
    assert!(code == 1 && out.contains("not valid JSON"), "{out}");
    let (code, out, _) = place.run(&["call", "exec_command", r#"{"cmd":"cat; echo end"}"#]);
    assert_eq!((code, out.as_str()), (0, "end\n"), "a single call has no input");
}

#[test]
fn a_call_ends_what_is_left_and_leaves_a_trace_that_verifies() {
    let place = Place::new();
    let (code, out, _) = place.run(&["call", "exec_command", r#"{"cmd":"setsid sleep 18273 & echo up"}"#]);
    assert!(code == 0 && out.starts_with("up\n"), "{out}");
    until("it is gone", || running("sleep 18273").is_empty());
    let (code, out, _) = place.run(&["trace", "verify", place.trace().to_str().unwrap()]);
    assert!(code == 0 && out.contains("holds, head "), "{out}");
}

#[test]
fn the_demo_is_a_whole_session_with_one_call_denied() {
    let place = Place::new();
    let (code, out, err) = place.run(&["demo"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("Tool call denied by policy: the rule `Bash(rm *)`")
            && out.contains("cat: missing.txt: No such file"),
        "{out}"
    );
    let trace = out.lines().last().unwrap();
    assert!(trace.starts_with('/') && !trace.contains(' '), "{trace}");
    let (code, out, _) = place.run(&["trace", "verify", trace]);
    assert!(code == 0 && !out.contains("not sealed"), "{out}");
    let (code, out, _) = place.run(&["trace", "show", trace]);
    assert!(
        code == 0
            && out.contains("[call_3_1] deny (rule)")
            && out.contains("sandbox")
            && out.contains("sealed: completed"),
        "{out}"
    );
    assert_eq!(
        place.records().iter().find(|record| record["payload"]["type"] == "sandbox").unwrap()["payload"]["mode"],
        "off"
    );
}

#[test]
fn a_changed_trace_is_found_and_so_is_a_removed_tail() {
    let place = Place::new();
    let script = place.script(&json!([{ "text": "hello" }]));
    assert_eq!(place.run(&["run", "go", "--api", "script", "--model", &script]).0, 0);
    let trace = place.trace();
    let whole = std::fs::read_to_string(&trace).unwrap();
    std::fs::write(&trace, whole.replacen("hello", "hullo", 1)).unwrap();
    let (code, out, _) = place.run(&["trace", "verify", trace.to_str().unwrap()]);
    assert!(code == 6 && out.contains("does not hold: line "), "{out}");
    let shorter: Vec<&str> = whole.split_inclusive('\n').collect();
    std::fs::write(&trace, shorter[..shorter.len() - 1].concat()).unwrap();
    let (code, out, _) = place.run(&["trace", "verify", trace.to_str().unwrap()]);
    assert!(code == 6 && out.contains("records are missing at its end"), "{out}");
}

#[test]
fn usage_and_configuration_errors_say_what_to_do() {
    let place = Place::new();
    for (args, code, part) in [
        (&["run"][..], 2, "hint: toolgate run"),
        (&["run", "go"], 3, "hint: --model NAME"),
        (&["run", "go", "--model", "m"], 3, "hint: set OPENAI_API_KEY"),
        (&["run", "go", "--model", "m", "--base-url", "nonsense"], 3, "not an http:// or https:// address"),
        (&["run", "go", "--approve", "maybe"], 2, "is no approval mode"),
        (&["run", "go", "--api", "telepathy"], 2, "possible values"),
        (&["run", "go", "-C", "/no/such/folder"], 2, "/no/such/folder cannot be opened"),
        (&["run", "-r", "session-none"], 2, "hint: toolgate trace list"),
        (&["run", "-c"], 2, "no session of this workspace can be continued"),
        (&["trace", "show", "nothing"], 2, "cannot be read"),
        (&["nonsense"], 2, "unrecognized"),
    ] {
        let (found, out, err) = place.run(args);
        assert!(found == code && err.contains(part) && out.is_empty(), "{args:?}: {found} {out} {err}");
    }
    let output = place.toolgate(&["run", "go"]).env_remove("HOME").output().unwrap();
    let (code, _, err) = outcome(output);
    assert!(code == 3 && err.contains("XDG_STATE_HOME"), "{err}");
}

#[test]
fn the_last_session_goes_on_and_without_one_a_new_one_says_so() {
    let place = Place::new();
    let script = place.script(&json!([{ "text": "one" }, { "text": "two" }]));
    let (code, out, err) = place.run(&["run", "go", "-c", "--api", "script", "--model", &script]);
    assert!(code == 0 && out == "one\n" && err.contains("this is a new one"), "{out}{err}");
    let (code, out, _) = place.run(&["run", "more", "-c", "--api", "script", "--model", &script]);
    assert_eq!((code, out.as_str()), (0, "two\n"));
    let (code, out, _) = place.run(&["trace", "list", "--json"]);
    let entry: Value = serde_json::from_str(out.trim()).unwrap();
    assert!(code == 0 && entry["status"] == "completed");
    let id = entry["session_id"].as_str().unwrap();
    let (code, out, _) =
        place.run(&["run", "more", "-r", id, "--api", "script", "--model", &script, "--output-format", "json"]);
    let end: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && end["text"] == "The script is over." && end["session_id"] == id);
}

#[test]
fn what_was_left_out_is_kept_and_never_answers_a_question() {
    let place = Place::new();
    let script = place.script(&json!([{ "calls": [["exec_command", { "cmd": "touch made" }]] }, { "text": "b" }]));
    let model = ["--api", "script", "--model", &script];
    let (code, ..) = place.run(&[&["run", "go", "--approve", "always-ask", "--on-ask", "wait"][..], &model].concat());
    assert_eq!(code, 4);
    for args in [&["run", "-c"][..], &["run", "-c", "something else"]] {
        let (code, _, err) = place.run(&[args, &model].concat());
        assert!(code == 4 && !place.work().join("made").exists(), "the mode stays what it was: {err}");
    }
    let (code, ..) = place.run(&[&["run", "-c", "--approve", "allow-all"][..], &model].concat());
    assert!(code == 0 && place.work().join("made").exists());
}

#[test]
fn no_session_goes_on_in_a_trace_that_lost_its_end_or_is_no_conversation() {
    let place = Place::new();
    let script = place.script(&json!([{ "text": "a" }, { "text": "b" }]));
    let model = ["--api", "script", "--model", &script];
    assert_eq!(place.run(&[&["run", "go"][..], &model].concat()).0, 0);
    let trace = place.trace();
    let whole = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    std::fs::write(&trace, lines[..lines.len() - 1].concat()).unwrap();
    let (_, out, _) = place.run(&["trace", "list", "--json"]);
    let entry: Value = serde_json::from_str(out.trim()).unwrap();
    let (code, _, err) =
        place.run(&[&["run", "more", "-r", entry["session_id"].as_str().unwrap()][..], &model].concat());
    assert!(code == 1 && err.contains("records are missing at its end"), "{err}");
    let (code, _, err) = place.run(&[&["run", "more", "-c"][..], &model].concat());
    assert!(code == 0 && err.contains("this is a new one"), "{err}");

    place.run(&["call", "exec_command", r#"{"cmd":"true"}"#]);
    let (_, out, _) = place.run(&["trace", "list", "--json"]);
    let entry: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let (code, _, err) =
        place.run(&[&["run", "more", "-r", entry["session_id"].as_str().unwrap()][..], &model].concat());
    assert!(code == 2 && err.contains("is a `call`"), "{err}");
}

#[test]
fn formats_limits_and_waiting() {
    let place = Place::new();
    let script =
        place.script(&json!([{ "text": "a", "calls": [["exec_command", { "cmd": "echo hi" }]] }, { "text": "b" }]));
    let model = ["--api", "script", "--model", &script];
    let (code, out, _) = place.run(&[&["run", "go", "--output-format", "stream-json"][..], &model].concat());
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        code == 0
            && lines.first().unwrap()["type"] == "session_meta"
            && lines.last().unwrap()["payload"]["type"] == "seal"
    );
    let recorded: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(recorded, (1..=recorded.len() as u64).collect::<Vec<_>>());

    let (code, _, err) = place.run(&[&["run", "go", "--max-turns", "1"][..], &model].concat());
    assert!(code == 5 && err.contains("--max-turns"), "{err}");
    let wait = ["run", "go", "--approve", "always-ask", "--on-ask", "wait", "--output-format", "json"];
    let (code, out, err) = place.run(&[&wait[..], &model].concat());
    let end: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 4 && end["waiting"][0]["call"] == "call_1_1" && err.contains("toolgate run -r "), "{out}{err}");
}

/// Answers one request with fixed bytes, on a port of its own.
fn server(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        // The body's length is known from its header; reading less would reset the connection under the client.
        loop {
            let read = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..read]);
            let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
            if let Some((head, rest)) = text.split_once("\r\n\r\n") {
                let length: usize =
                    head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
                if rest.len() >= length || read == 0 {
                    break;
                }
            }
        }
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
    });
    format!("http://{address}/v1")
}

#[test]
fn a_wrong_key_and_an_unreachable_host_are_clear_and_resumable() {
    let place = Place::new();
    let url = server(
        "401 Unauthorized",
        r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#,
    );
    let mut command = place.toolgate(&["run", "go", "--model", "m", "--base-url", &url]);
    let (code, _, err) = outcome(command.env("OPENAI_API_KEY", "sk-wrong-key-1234567").output().unwrap());
    assert!(
        code == 1 && err.contains("Incorrect API key") && err.contains("hint: ") && !err.contains("sk-wrong"),
        "{err}"
    );
    assert!(!std::fs::read_to_string(place.trace()).unwrap().contains("sk-wrong-key"));

    // Nothing listens there, which may change: it is tried again, and said to be.
    let mut child = place
        .toolgate(&["run", "go", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = lines.by_ref().map(Result::unwrap).find(|line| line.contains("retrying in 2 s")).unwrap();
    assert!(told.contains("127.0.0.1:9"), "{told}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "a person need not wait for it");
    drop(lines);
    let script = place.script(&json!([{ "text": "here" }]));
    let (code, out, _) = place.run(&["run", "again", "-c", "--api", "script", "--model", &script]);
    assert_eq!((code, out.as_str()), (0, "here\n"), "the prompt was not lost with the failure");
    assert!(place.records().iter().any(|record| record["payload"]["text"] == "go"));
}

#[test]
fn a_trace_that_cannot_be_written_ends_the_run_before_anything_happens() {
    let place = Place::new();
    std::fs::write(place.home().join(".local"), "in the way").unwrap();
    let (code, _, err) = place.run(&["call", "exec_command", r#"{"cmd":"touch made"}"#]);
    assert!(code == 1 && err.contains("cannot be created") && err.contains("hint: "), "{err}");
    assert!(!place.work().join("made").exists());
}

#[test]
fn ctrl_c_ends_the_run_and_what_it_started() {
    let place = Place::new();
    let script = place.script(&json!([{ "calls": [["exec_command", { "cmd": "setsid sleep 18274 & sleep 18274" }]] }]));
    let child = place
        .toolgate(&["run", "go", "--api", "script", "--model", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it runs", || running("sleep 18274").len() >= 2);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let (code, _, err) = outcome(child.wait_with_output().unwrap());
    assert!(code == 130 && err.contains("interrupted; -c goes on from here"), "{code} {err}");
    until("nothing runs on", || running("sleep 18274").is_empty());
    let records = place.records();
    let result = records.iter().find(|record| record["payload"]["type"] == "tool_call_output").unwrap();
    assert_eq!(result["payload"]["output"], "[interrupted: tool aborted by user]");
    assert!(records.iter().any(|record| record["payload"]["reason"] == "aborted by user"));
    let (code, out, err) = place.run(&["run", "-c", "go on", "--api", "script", "--model", &script]);
    assert_eq!((code, out.as_str()), (0, "The script is over.\n"), "the next task is taken as usual: {err}");
}

#[test]
fn a_killed_toolgate_leaves_nothing_running() {
    let place = Place::new();
    let script = place.script(
        &json!([{ "calls": [["exec_command", { "cmd": "nohup setsid sleep 18275 & trap '' TERM; sleep 18275" }]] }]),
    );
    let mut child = place
        .toolgate(&["run", "go", "--api", "script", "--model", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it runs", || running("sleep 18275").len() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    until("nothing runs on", || running("sleep 18275").is_empty());
}

#[test]
fn a_profile_that_hangs_prints_or_fails_costs_no_command() {
    let place = Place::new();
    let line = r#"{"cmd":"echo $FROM_PROFILE"}"#;
    std::fs::write(place.home().join(".bash_profile"), "echo noise; export FROM_PROFILE=yes\n").unwrap();
    assert_eq!(place.run(&["call", "exec_command", line]).1, "yes\n");
    std::fs::write(place.home().join(".bash_profile"), "export FROM_PROFILE=yes; exit 3\n").unwrap();
    assert_eq!(place.run(&["call", "exec_command", line]).1, "\n");
    std::fs::write(place.home().join(".bash_profile"), "sleep 18276\n").unwrap();
    assert_eq!(place.run(&["call", "exec_command", line]).1, "\n");
    until("it is gone", || running("sleep 18276").is_empty());
}

/// Runs a line of an interactive bash in a terminal of its own, with toolgate in its path, and returns what the terminal showed.
fn in_terminal(place: &Place, line: &str) -> String {
    let toolgate = std::path::Path::new(env!("CARGO_BIN_EXE_toolgate")).parent().unwrap();
    let script = "import pty, sys; pty.spawn(['bash', '--norc', '-ic', sys.argv[1]])";
    let output = std::process::Command::new("python3")
        .args(["-c", script, line])
        .current_dir(place.work())
        .env("HOME", place.home())
        .env("PATH", format!("{}:{}", toolgate.display(), std::env::var("PATH").unwrap()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

#[test]
fn the_terminal_that_toolgate_runs_in_is_left_alone_and_never_stops_it() {
    let place = Place::new();
    std::fs::write(place.home().join(".bash_profile"), "stty -echo 2>/dev/null; read -t 1 x </dev/tty 2>/dev/null\n")
        .unwrap();
    let line = "stty -g > before; toolgate call exec_command '{\"cmd\":\"stty -echo </dev/tty; (read x </dev/tty); sleep 0.3; echo over\"}'; \
                echo code=$?; stty -g > after; cmp before after && echo same";
    let shown = in_terminal(&place, line);
    assert!(shown.contains("over\n") && shown.contains("code=0") && shown.contains("same"), "{shown}");
    assert!(!shown.contains("Stopped"), "{shown}");
}

#[test]
fn a_standard_error_that_is_gone_ends_no_run() {
    let place = Place::new();
    let script =
        place.script(&json!([{ "text": "a", "calls": [["exec_command", { "cmd": "echo hi" }]] }, { "text": "b" }]));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.toolgate(&["run", "go", "--api", "script", "--model", &script]).stderr(full).output().unwrap();
    let (code, out, _) = outcome(output);
    assert_eq!((code, out.as_str()), (0, "a\nb\n"));
    assert_eq!(place.records().last().unwrap()["payload"]["type"], "seal");
}

#[test]
fn nothing_that_a_model_writes_drives_the_terminal() {
    let place = Place::new();
    let script = place.script(&json!([
        { "text": "\u{1b}[31mred\u{7}\u{9b}2J", "calls": [["exec_command", { "cmd": "printf '\u{1b}]0;t\u{7}\u{202e}x'" }]] },
        { "text": "b" }
    ]));
    let (code, out, err) = place.run(&["run", "go", "--api", "script", "--model", &script]);
    let drives = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    assert!(code == 0 && !out.contains(drives) && !err.contains(drives), "{out:?} {err:?}");
    assert!(out.starts_with("\u{241b}[31mred"), "{out:?}");
}

#[test]
fn a_trace_is_the_same_by_any_name() {
    let place = Place::new();
    let script = place.script(&json!([{ "text": "hello" }]));
    assert_eq!(place.run(&["run", "go", "--api", "script", "--model", &script]).0, 0);
    let trace = place.trace();
    let whole = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    std::fs::write(&trace, lines[..3].concat()).unwrap();
    let name = trace.file_name().unwrap().to_str().unwrap();
    let output = place.toolgate(&["trace", "verify", name]).current_dir(trace.parent().unwrap()).output().unwrap();
    assert_eq!(outcome(output).0, 6);
}

#[test]
fn a_fork_begins_with_what_was_said_and_leaves_the_other_session_alone() {
    let place = Place::new();
    let script = place.script(&json!([{ "text": "one" }, { "text": "two" }, { "text": "three" }]));
    let with = |args: &[&str]| place.run(&[&["run", "--api", "script", "--model", &script], args].concat());
    assert_eq!(with(&["first"]).1, "one\n");
    let (first, before) = (place.trace(), std::fs::read(place.trace()).unwrap());
    assert_eq!(with(&["-c", "--fork", "second"]).1, "two\n", "the model has been asked once before");
    assert_eq!(std::fs::read(&first).unwrap(), before);
    let fork = place.trace();
    assert_ne!(fork, first);
    let (code, out, _) = place.run(&["trace", "verify", fork.to_str().unwrap()]);
    assert!(code == 0 && out.contains("holds"), "{out}");
    assert_eq!(with(&["-c", "third"]).1, "three\n", "the fork goes on by itself");
    let (code, _, err) = with(&["--fork", "x"]);
    assert!(code == 2 && err.contains("-r ID"), "{err}");
}

#[test]
fn many_at_once_share_a_home() {
    let place = Place::new();
    let script = place.script(&json!([{ "calls": [["exec_command", { "cmd": "echo hi" }]] }, { "text": "done" }]));
    let args = ["run", "go", "--api", "script", "--model", &script];
    let start = |_| place.toolgate(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..12).map(start).collect();
    for child in children {
        let (code, out, err) = outcome(child.wait_with_output().unwrap());
        assert_eq!((code, out.as_str()), (0, "done\n"), "{err}");
    }
    let (_, listed, _) = place.run(&["trace", "list", "--json"]);
    assert_eq!(listed.lines().count(), 12, "each has its place in the index");
}

#[test]
fn a_summary_is_no_answer_and_stands_on_no_output() {
    let place = Place::new();
    let config = place.work().join("short.yaml");
    std::fs::write(&config, "compaction:\n  max_turns: 1\n").unwrap();
    let script = place.script(&json!([{ "text": "an answer" }, { "text": "[summary]hidden[/summary]" }]));
    let args = ["run", "go", "--api", "script", "--model", &script, "--config", config.to_str().unwrap()];
    assert_eq!(place.run(&args).1, "an answer\n");
    let (code, out, err) = place.run(&[&args[..], &["-c"]].concat());
    assert_eq!((code, out.as_str()), (0, "an answer\n"), "{err}");
    assert!(err.contains("making the conversation shorter\nthe conversation is shorter now\n"), "{err}");
}
