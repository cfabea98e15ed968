//! A run is killed right after each of its records and resumed. Nothing may be lost, run twice or left running.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::support::{Place, outcome, running, until};

const KILLED: i32 = -9;

/// Two turns with two commands each; every command leaves its mark in a file, and one leaves a process behind.
fn script(place: &Place, unique: &str) -> String {
    let run = |line: &str| json!(["exec_command", { "cmd": line }]);
    place.script(&json!([
        { "text": "first", "calls": [run("echo a >> ran"), run(&format!("echo b >> ran; sleep 1{unique} >/dev/null 2>&1 &"))] },
        { "text": "second", "calls": [run("echo c >> ran; exit 3"), run("echo d >> ran")] },
        { "text": "done" },
        { "text": "done again" },
    ]))
}

fn run(place: &Place, args: &[&str], kill_after: Option<u64>) -> (i32, String, String) {
    let mut command = place.toolgate(args);
    if let Some(seq) = kill_after {
        command.env("TOOLGATE_FAULT", format!("kill-after-record:{seq}"));
    }
    outcome(command.output().unwrap())
}

/// What a trace must be whatever happened: it verifies, and every complete call has one result and at most one start.
fn check_trace(place: &Place, context: &str) -> Vec<Value> {
    let (code, out, err) = place.run(&["trace", "verify", place.trace().to_str().unwrap()]);
    assert_eq!(code, 0, "{context}: {out}{err}");
    let records = place.records();
    let mut results: HashMap<String, u32> = HashMap::new();
    let mut starts: HashMap<String, u32> = HashMap::new();
    let payloads = || records.iter().map(|record| &record["payload"]);
    for payload in payloads() {
        let id = payload["tool_call_id"].as_str().unwrap_or_default().to_owned();
        match payload["type"].as_str() {
            Some("tool_call_output") => *results.entry(id).or_default() += 1,
            Some("call_started") => *starts.entry(id).or_default() += 1,
            _ => {}
        }
    }
    assert!(starts.values().all(|count| *count == 1), "{context}: nothing starts twice: {starts:?}");
    assert!(results.values().all(|count| *count == 1), "{context}: one result each: {results:?}");
    records
}

#[test]
fn killed_after_any_record_a_run_goes_on_with_nothing_lost_and_nothing_run_twice() {
    let mut seq = 1;
    loop {
        let place = Place::new();
        let unique = format!("{}{seq:03}", std::process::id() % 1000);
        let script = script(&place, &unique);
        let (code, out, err) = run(&place, &["run", "go", "--api", "script", "--model", &script], Some(seq));
        let context = format!("killed after record {seq}");
        if code != KILLED {
            assert_eq!(code, 0, "{context}: {out}{err}");
            assert!(seq > 30, "a run of two turns has more records than {seq}");
            break;
        }
        until("nothing runs on", || running(&format!("sleep 1{unique}")).is_empty());

        let (code, out, err) = run(&place, &["run", "go on", "-c", "--api", "script", "--model", &script], None);
        assert_eq!(code, 0, "{context}: {out}{err}");
        let records = check_trace(&place, &context);
        let calls = records.iter().filter(|record| record["payload"]["type"] == "tool_call").count();
        let results: Vec<&Value> = records
            .iter()
            .map(|record| &record["payload"])
            .filter(|payload| payload["type"] == "tool_call_output")
            .collect();
        assert!(results.len() >= 4, "{context}: every call is answered: {}", results.len());
        // An answer that was not committed may have been asked for again; its calls never ran.
        assert!(calls >= results.len(), "{context}");
        let ran = std::fs::read_to_string(place.work().join("ran")).unwrap_or_default();
        for mark in ["a", "b", "c", "d"] {
            let times = ran.lines().filter(|line| *line == mark).count();
            let unknown =
                results.iter().filter(|result| result["output"].as_str().unwrap().contains("outcome unknown")).count();
            assert!(
                times == 1 || (times == 0 && unknown > 0),
                "{context}: {mark} ran {times} times, {unknown} unknown"
            );
        }
        until("nothing runs on", || running(&format!("sleep 1{unique}")).is_empty());
        seq += 1;
    }
}

#[test]
fn killed_after_any_record_an_open_question_stays_open_under_its_key() {
    let digests = |records: &[Value]| -> Vec<String> {
        let asked =
            records.iter().map(|record| &record["payload"]).filter(|payload| payload["type"] == "approval_request");
        asked.map(|payload| payload["args_digest"].as_str().unwrap().to_owned()).collect()
    };
    let mut seq = 2;
    loop {
        let place = Place::new();
        let script = place.script(&json!([
            { "calls": [["exec_command", { "cmd": "echo a >> ran" }]] },
            { "text": "done" },
        ]));
        let ask = ["--api", "script", "--model", &script, "--approve", "always-ask", "--on-ask", "wait"];
        let (code, out, err) = run(&place, &[&["run", "go"][..], &ask].concat(), Some(seq));
        let context = format!("killed after record {seq}");
        if code != KILLED {
            assert_eq!(code, 4, "{context}: {out}{err}");
            assert!(!place.work().join("ran").exists());
            break;
        }
        let (code, out, err) = run(&place, &[&["run", "-c", "go on"][..], &ask].concat(), None);
        assert_eq!(code, 4, "{context}: {out}{err}");
        assert!(!place.work().join("ran").exists(), "{context}: nothing runs before its answer");
        let asked = digests(&check_trace(&place, &context));
        assert!(asked.iter().all(|digest| *digest == asked[0]), "{context}: the same key is the same question");

        let (code, out, err) =
            run(&place, &["run", "-c", "go on", "--approve", "allow-all", "--api", "script", "--model", &script], None);
        assert_eq!(code, 0, "{context}: {out}{err}");
        assert_eq!(std::fs::read_to_string(place.work().join("ran")).unwrap(), "a\n", "{context}");
        let records = check_trace(&place, &context);
        let decisions = records.iter().filter(|record| record["payload"]["type"] == "approval_decision").count();
        assert_eq!(decisions, 1, "{context}: one call, one decision");
        seq += 1;
    }
    assert!(seq > 5);
}

#[test]
fn a_record_that_a_crash_tore_costs_itself_and_is_covered() {
    let place = Place::new();
    let script = script(&place, "000000");
    let (code, _, err) = run(&place, &["run", "go", "--api", "script", "--model", &script], Some(14));
    assert_eq!(code, KILLED, "{err}");
    let trace = place.trace();
    let whole = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &whole[..whole.len() - 40]).unwrap();
    let (code, out, _) = place.run(&["trace", "verify", trace.to_str().unwrap()]);
    assert!(code == 0 && out.contains("were torn by a crash and are not covered yet"), "{out}");
    let (code, _, err) = run(&place, &["run", "go on", "-c", "--api", "script", "--model", &script], None);
    assert_eq!(code, 0, "{err}");
    let (code, out, _) = place.run(&["trace", "verify", trace.to_str().unwrap()]);
    assert!(code == 0 && out.contains("are covered by a repair"), "{out}");
    check_trace(&place, "torn");
}

#[test]
fn killed_after_any_record_of_a_compaction_nothing_that_was_said_is_lost() {
    // The second run goes on counting in the first file and begins anew in the second, so low numbers crash in the new context.
    for (crashes, seq) in (1..).enumerate() {
        let place = Place::new();
        let config = place.work().join("short.yaml");
        std::fs::write(&config, "compaction:\n  max_turns: 1\n").unwrap();
        let script = place.script(&json!([{ "text": "first" }, { "text": "[summary]they said one[/summary]" }]));
        let go = |prompt: &str, continued: &[&str], kill_after| {
            let args = ["run", prompt, "--api", "script", "--model", &script, "--config", config.to_str().unwrap()];
            run(&place, &[&args[..], continued].concat(), kill_after)
        };
        assert_eq!(go("one", &[], None).0, 0);
        let (code, _, err) = go("two", &["-c"], Some(seq));
        if code != KILLED {
            assert!(code == 0 && crashes > 12, "{crashes} crashes: {code} {err}");
            break;
        }
        let (code, out, err) = go("three", &["-c"], None);
        assert_eq!(code, 0, "killed after record {seq}: {out}{err}");
        let id = place.records()[0]["payload"]["session_id"].as_str().unwrap().to_owned();
        let (code, out, err) = place.run(&["trace", "verify", &id]);
        assert_eq!(code, 0, "{seq}: {out}{err}");
        let newest = place.records();
        let said: Vec<&str> = newest.iter().filter_map(|record| record["payload"]["text"].as_str()).collect();
        let opened =
            said.first().is_some_and(|text| text.starts_with("[context_summary]") && text.contains("said one"));
        assert!(opened && said.contains(&"three"), "killed after record {seq}: {said:?}");
    }
}
