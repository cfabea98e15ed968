//! The conversation at a terminal: what is shown, how questions are answered, and what Ctrl-C does when.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    pty::Pty,
    support::{Place, outcome, running, until},
};

const ANSWER: &str = "allow? y = yes, n NOTE = no:";

/// A chat over a script, with what is to be different about it.
fn command(place: &Place, steps: &Value, args: &[&str], variables: &[(&str, &str)]) -> Command {
    let script = place.script(steps);
    let mut all = vec!["chat", "--api", "script", "--model", &script];
    all.extend(args);
    let mut command = place.toolgate(&all);
    command.env("TERM", "xterm-256color").envs(variables.iter().copied());
    command
}

fn chat(place: &Place, steps: &Value, args: &[&str]) -> Pty {
    Pty::start(command(place, steps, args, &[]))
}

/// Ends a conversation at its next prompt; while a run is on, Ctrl-D means nothing.
fn leave(chat: &mut Pty) {
    chat.sees(" > ");
    chat.keys("\x04");
    assert_eq!(chat.ends(), 0);
}

fn exec(line: &str) -> Value {
    json!(["exec_command", { "cmd": line }])
}

/// What the model read of its calls, in order.
fn results(place: &Place) -> Vec<String> {
    let outputs = place.records().into_iter().filter(|record| record["payload"]["type"] == "tool_call_output");
    outputs.map(|record| record["payload"]["output"].as_str().unwrap().to_owned()).collect()
}

/// What a trace says of its decisions.
fn decisions(place: &Place) -> Vec<(String, String)> {
    let decisions = place.records().into_iter().filter(|record| record["payload"]["type"] == "approval_decision");
    let word = |record: &Value, name: &str| record["payload"][name].as_str().unwrap_or_default().to_owned();
    decisions.map(|record| (word(&record, "decision"), word(&record, "source"))).collect()
}

#[test]
fn a_prompt_is_answered_and_the_call_is_shown() {
    let place = Place::new();
    let steps = json!([{ "text": "I look **once**.\n", "calls": [exec("seq 20; exit 3")] }, { "text": "# Done\n\nIt is `so`." }]);
    let mut chat = chat(&place, &steps, &[]);
    chat.sees("allow-all > ");
    chat.keys("look around\r");
    for text in [
        "I look once.",
        "> seq 20; exit 3",
        "  1\n",
        "  4\n",
        "... 13 lines not shown",
        "  20",
        "[exit code: 3]",
        "Done",
        "It is so.",
    ] {
        chat.sees(text);
    }
    chat.sees("allow-all > ");
    chat.keys("/quit\r");
    chat.sees("trace: ");
    assert_eq!(chat.ends(), 0);
    assert!(chat.raw().contains("\x1b[1monce\x1b[0m"), "{:?}", chat.raw());
    let (code, out, _) = place.run(&["trace", "verify", place.trace().to_str().unwrap()]);
    assert!(code == 0 && !out.contains("not sealed"), "{out}");
}

#[test]
fn a_yes_allows_and_everything_else_is_a_no_in_the_persons_words() {
    let place = Place::new();
    let calls = json!([{ "calls": [exec("touch one"), exec("touch two"), exec("touch three"), exec("touch four")] }]);
    let mut chat = chat(&place, &calls, &["--approve", "always-ask"]);
    chat.sees("always-ask > ");
    chat.keys("go\r");
    chat.sees("touch one");
    chat.sees("because the mode always-ask asks for every call");
    chat.sees(ANSWER);
    // Neither an empty line nor editing decides.
    chat.keys("\ry\x1b[D\x1b[3~\x7f\r\t\x7f\x1b\x1b[A\r");
    chat.keys("y\r");
    chat.sees("touch two");
    chat.sees(ANSWER);
    chat.keys("n use a folder\r");
    chat.sees("touch three");
    chat.sees(ANSWER);
    chat.keys("yes please\r");
    chat.sees("touch four");
    chat.sees(ANSWER);
    // Ctrl-C denies this call and stops nothing else.
    chat.keys("\x03");
    chat.sees("The script is over.");
    leave(&mut chat);
    assert_eq!(
        decisions(&place),
        ["allow", "deny", "deny", "deny"].map(|decision| (decision.to_owned(), "person".to_owned()))
    );
    let mut results = results(&place);
    results.sort();
    assert_eq!(
        results,
        [
            "Tool call denied by user.",
            "Tool call denied by user.\nuse a folder",
            "Tool call denied by user.\nyes please",
            "[no output]"
        ]
    );
    assert!(place.work().join("one").exists() && !place.work().join("three").exists());
}

#[test]
fn keys_typed_before_a_question_do_not_answer_it() {
    // Where the terminal itself keeps lines: typed together with the prompt.
    let place = Place::new();
    let steps = json!([{ "calls": [exec("touch made")] }]);
    let mut chat = Pty::start(command(&place, &steps, &["--approve", "always-ask"], &[("TERM", "dumb")]));
    chat.sees("always-ask > ");
    chat.keys("go\ry\ryes\r");
    chat.sees(ANSWER);
    chat.keys("no\r");
    chat.sees("over.");
    leave(&mut chat);
    assert_eq!((decisions(&place)[0].0.as_str(), place.work().join("made").exists()), ("deny", false));

    // On a screen: a line that is being typed stays aside and comes back behind the question.
    let place = Place::new();
    let steps =
        json!([{ "calls": [exec("until test -e go; do sleep 0.05; done")] }, { "calls": [exec("touch made")] }]);
    let mut chat = self::chat(&place, &steps, &[]);
    chat.sees("allow-all > ");
    chat.keys("wait\r");
    chat.sees("> until");
    chat.keys("/mode always-ask\ry\ry");
    chat.sees("+ y");
    std::fs::write(place.work().join("go"), "").unwrap();
    chat.sees(ANSWER);
    chat.keys("\r");
    chat.keys("n\r");
    chat.sees("answer  no");
    chat.sees("always-ask > y");
    chat.keys("\x03");
    leave(&mut chat);
    assert_eq!((decisions(&place)[1].0.as_str(), place.work().join("made").exists()), ("deny", false));
}

#[test]
fn a_question_spells_out_what_the_eye_does_not_see() {
    let place = Place::new();
    let steps = json!([{ "calls": [exec("echo 宽字 \u{202e}txt\u{200b} \u{1b}[2J\necho two")] }]);
    let mut chat = chat(&place, &steps, &["--approve", "always-ask"]);
    chat.sees("always-ask > ");
    chat.keys("go\r");
    chat.sees("echo 宽字 \\u{202e}txt\\u{200b} \\u{1b}[2J\n");
    chat.sees("          echo two");
    chat.sees(&format!("in      {}", place.work().display()));
    chat.sees(ANSWER);
    chat.keys("n\r");
    chat.sees("over.");
    leave(&mut chat);
}

#[test]
fn a_changed_mode_judges_the_open_question() {
    let place = Place::new();
    let steps = json!([{ "calls": [exec("touch one")] }, { "calls": [exec("touch two")] }]);
    let mut chat = chat(&place, &steps, &["--approve", "always-ask"]);
    chat.sees("always-ask > ");
    chat.keys("/mdoe\r");
    chat.sees("the nearest is /mode");
    chat.keys("go\r");
    chat.sees(ANSWER);
    chat.keys("/mode allow-all\r");
    chat.sees("the mode is allow-all from now on");
    chat.sees("withdrawn: the changed mode or rules decide it");
    chat.sees("> touch two");
    chat.sees("allow-all > ");
    chat.keys("/quit\r");
    assert_eq!(chat.ends(), 0);
    assert_eq!(decisions(&place), [("allow".into(), "mode".into()), ("allow".into(), "mode".into())]);
}

#[test]
fn ctrl_c_stops_a_run_then_clears_then_confirms_then_quits() {
    let place = Place::new();
    let steps = json!([{ "calls": [exec("echo up; sleep 29173")] }]);
    let mut chat = chat(&place, &steps, &[]);
    chat.sees("allow-all > ");
    chat.keys("go\r");
    chat.sees("  up");
    chat.keys("\x03");
    chat.sees("stopped");
    chat.sees("allow-all > ");
    until("its tree is gone", || running("sleep 29173").is_empty());
    chat.keys("half a line");
    chat.sees("half a line");
    chat.keys("\x03");
    chat.sees("allow-all > ");
    chat.keys("\x03");
    chat.sees("Ctrl-C again quits");
    chat.sees("allow-all > ");
    chat.keys("\x03");
    chat.sees("trace: ");
    assert_eq!(chat.ends(), 0);
}

#[test]
fn what_is_typed_meanwhile_reaches_the_model() {
    let place = Place::new();
    let steps = json!([{ "calls": [exec("until test -e go; do sleep 0.05; done; echo went")] }]);
    let mut chat = chat(&place, &steps, &[]);
    chat.sees("allow-all > ");
    chat.keys("wait\r");
    chat.sees("> until");
    chat.keys("use the\x7f\x7f\x7fall of it\r");
    chat.sees("+ use all of it");
    std::fs::write(place.work().join("go"), "").unwrap();
    chat.sees("over.");
    leave(&mut chat);
    let said = place.records().into_iter().filter_map(|record| record["payload"]["text"].as_str().map(str::to_owned));
    assert!(said.into_iter().any(|text| text.contains("use all of it")));
}

#[test]
fn the_terminal_is_left_as_it_was_and_nothing_goes_on() {
    for (state, signal) in
        [("idle", Signal::TERM), ("running", Signal::TERM), ("running", Signal::HUP), ("asking", Signal::TERM)]
    {
        let place = Place::new();
        let steps = json!([{ "calls": [exec("echo up; sleep 29174")] }]);
        let mode = if state == "asking" { "always-ask" } else { "allow-all" };
        let mut chat = chat(&place, &steps, &["--approve", mode]);
        chat.sees(" > ");
        if state != "idle" {
            chat.keys("go\r");
            chat.sees(if state == "asking" { ANSWER } else { "  up" });
        }
        chat.signal(signal);
        assert_eq!(chat.ends(), 130, "{state} {signal:?}: {}", chat.text());
        until("its tree is gone", || running("sleep 29174").is_empty());
        if state != "idle" {
            let (_, out, _) = place.run(&["trace", "verify", place.trace().to_str().unwrap()]);
            assert!(!out.contains("not sealed"), "{state}: {out}");
        }
    }
}

#[test]
fn nothing_is_drawn_where_nothing_can_be() {
    let steps = json!([{ "text": "**One** and `two`\n\n| a | b |\n|--|--|\n| c | d |", "calls": [exec("echo hi")] }, { "text": "end" }]);
    let place = Place::new();
    let mut chat = Pty::start(command(&place, &steps, &[], &[("TERM", "dumb")]));
    chat.sees("allow-all > ");
    chat.keys("go\r");
    chat.sees("**One** and `two`");
    chat.sees("end");
    leave(&mut chat);
    assert!(!chat.raw().contains('\x1b'), "{:?}", chat.raw());

    let place = Place::new();
    let mut chat = Pty::start(command(&place, &steps, &[], &[("NO_COLOR", "1")]));
    chat.sees("allow-all > ");
    chat.keys("go\r");
    chat.sees("**One** and `two`");
    chat.resize(30, 10);
    chat.sees("end");
    leave(&mut chat);
    let raw = chat.raw();
    let styled = raw
        .split("\x1b[")
        .skip(1)
        .filter_map(|rest| rest.find(|c: char| c.is_ascii_alphabetic()).map(|at| &rest[..=at]));
    let styled: Vec<&str> =
        styled.filter(|sequence| sequence.ends_with('m') && *sequence != "0m" && *sequence != "m").collect();
    assert!(styled.is_empty(), "{styled:?}");
}

#[test]
fn in_a_pipe_each_line_is_a_prompt_and_nobody_is_asked() {
    let place = Place::new();
    let steps = json!([{ "text": "one" }, { "text": "two", "calls": [exec("touch made")] }, { "text": "three" }]);
    let mut command = command(&place, &steps, &["--approve", "always-ask"], &[]);
    let input = place.work().join("input");
    std::fs::write(&input, "first\n\nsecond").unwrap();
    let (code, out, err) = outcome(command.stdin(std::fs::File::open(&input).unwrap()).output().unwrap());
    assert_eq!((code, out.as_str()), (0, "one\ntwo\nthree\n"), "{err}");
    assert!(err.contains("nobody is here to ask") && err.contains("trace: ") && !err.contains('\x1b'), "{err}");
    let styled = {
        let place = Place::new();
        self::command(&place, &json!([{ "text": "a **b**" }]), &[], &[("FORCE_COLOR", "1"), ("NO_COLOR", "1")])
            .stdin(std::fs::File::open(&input).unwrap())
            .output()
            .map(outcome)
            .unwrap()
    };
    assert!(styled.1.starts_with("a \u{1b}[1mb\u{1b}[0m\n"), "{styled:?}");
    let (code, _, err) = {
        let place = Place::new();
        let steps = json!([{ "calls": [exec("touch made")] }]);
        let mut command = self::command(&place, &steps, &["--approve", "always-ask", "--on-ask", "wait"], &[]);
        outcome(command.stdin(std::fs::File::open(&input).unwrap()).output().unwrap())
    };
    assert!(code == 4 && err.contains("waiting for an answer"), "{code} {err}");
}

#[test]
fn sessions_go_on_and_are_switched_in_place() {
    let place = Place::new();
    let steps = json!([{ "text": "one" }, { "text": "two" }, { "text": "three" }]);
    let mut first = chat(&place, &steps, &[]);
    first.sees("allow-all > ");
    first.keys("/trace\r");
    first.sees("nothing is written yet");
    first.keys("first\r");
    first.sees("one");
    leave(&mut first);
    let id = place.trace().file_stem().unwrap().to_str().unwrap().trim_end_matches("_001").to_owned();

    let mut second = chat(&place, &steps, &[]);
    second.sees("allow-all > ");
    second.keys("/resume\r");
    second.sees(&id);
    second.sees("allow-all > ");
    second.keys("/compact\r");
    second.sees("nothing has been said yet");
    second.keys("/tools\r");
    second.sees("exec_command");
    second.sees("allow-all > ");
    second.keys(&format!("/resume {}\r", &id[id.len() - 8..]));
    second.sees("trace: ");
    second.sees(&format!("session {id}"));
    second.keys("more\r");
    second.sees("two");
    leave(&mut second);

    let mut third = chat(&place, &steps, &["-c"]);
    third.sees(&format!("session {id}"));
    third.keys("more\r");
    third.sees("three");
    leave(&mut third);
    let history = place.home().join(".local/state/toolgate/history");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&history).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(history).unwrap().contains("first"));
}

#[test]
fn run_asks_at_a_terminal_too() {
    let place = Place::new();
    let script =
        place.script(&json!([{ "calls": [exec("touch one")] }, { "calls": [exec("touch two")] }, { "text": "end" }]));
    let command = place.toolgate(&["run", "go", "--api", "script", "--model", &script, "--approve", "always-ask"]);
    let mut run = Pty::start(command);
    run.keys("y\r");
    run.sees("touch one");
    run.sees(ANSWER);
    run.keys("y\r");
    run.sees("touch two");
    run.sees(ANSWER);
    run.keys("\x04");
    run.sees("end");
    assert_eq!(run.ends(), 0);
    assert!(place.work().join("one").exists() && !place.work().join("two").exists());
}
