//! Traces as people meet them: listed, shown, searched, given away, checked; and those that PenguinHarness wrote.

use serde_json::{Value, json};

use crate::support::{Place, outcome};

/// A session whose model and command say what must not become markup.
fn hostile() -> Place {
    let place = Place::new();
    let script = place.script(&json!([
        { "text": "</script><img src=x onerror=alert(1)>", "calls": [
            ["exec_command", { "cmd": "printf '%s' '<b onclick=1>\"&'; seq 100; touch \u{1b}[31mred" }],
            ["exec_command", { "cmd": "exit 3" }],
        ] },
        { "text": "The needle is in here." },
    ]));
    let (code, _, err) = place.run(&["run", "find the Needle", "--api", "script", "--model", &script]);
    assert_eq!(code, 0, "{err}");
    place
}

fn id(place: &Place) -> String {
    place.records()[0]["payload"]["session_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_page_holds_everything_and_nothing_that_runs() {
    let place = hostile();
    let (code, page, err) = place.run(&["trace", "export", &id(&place), "--html"]);
    assert_eq!((code, err.as_str()), (0, ""));
    // The one script and the one style are the page's own; every text of the trace is text.
    for (what, count) in
        [("<script", 1), ("</script", 1), ("<style", 1), ("<img", 0), ("<b onclick", 0), ("http:", 0), ("https:", 0)]
    {
        assert_eq!(page.matches(what).count(), count, "{what}");
    }
    assert!(page.contains("default-src 'none'; img-src data:; style-src 'sha256-"), "its policy");
    assert!(
        page.contains("&lt;img src=x onerror=alert(1)&gt;") && page.contains("&lt;b onclick=1&gt;&quot;&amp;1\n2\n")
    );
    assert!(!page.contains('\u{1b}') && page.contains("holds, head "));
    assert!(page.contains("<rect class=\"model\"") && page.contains("<rect class=\"tool\""));
    assert_eq!(page.matches("<article").count(), place.records().len(), "each record");

    let out = place.work().join("page.html");
    let (code, stdout, err) = place.run(&["trace", "export", &id(&place), "--html", "-o", out.to_str().unwrap()]);
    assert!(code == 0 && stdout.is_empty() && err.starts_with("written: "), "{err}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), page);
    let before = std::fs::read(place.trace()).unwrap();
    for there in [&out, &place.trace()] {
        let (code, _, err) = place.run(&["trace", "export", &id(&place), "--html", "-o", there.to_str().unwrap()]);
        assert!(code == 1 && err.contains("hint: nothing that is there is written over"), "{err}");
    }
    assert_eq!(std::fs::read(place.trace()).unwrap(), before, "a trace least of all");
    let mut full = place.toolgate(&["trace", "export", &id(&place), "--jsonl"]);
    let (code, _, err) = outcome(full.stdout(std::fs::File::create("/dev/full").unwrap()).output().unwrap());
    assert!(code == 1 && err.contains("cannot be written to standard output"), "{code} {err}");
    let (_, lines, _) = place.run(&["trace", "export", &id(&place), "--jsonl"]);
    assert_eq!(lines.into_bytes(), std::fs::read(place.trace()).unwrap());
    assert_eq!(place.run(&["trace", "export", &id(&place)]).0, 2, "which form is the user's to say");
}

#[test]
fn sessions_are_listed_newest_first() {
    let place = Place::new();
    assert_eq!(place.run(&["call", "exec_command", r#"{"cmd":"true"}"#]).0, 0);
    let script = place.script(&json!([{ "text": "done" }]));
    assert_eq!(place.run(&["run", "go", "--api", "script", "--model", &script]).0, 0);
    let (code, out, _) = place.run(&["trace", "list", "--json"]);
    let listed: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = listed.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!((code, kinds), (0, vec!["run", "call"]));
    let (_, out, _) = place.run(&["trace", "list"]);
    assert!(out.contains(&id(&place)) && out.contains("completed"), "{out}");
}

#[test]
fn waiting_for_a_person_has_a_lane_of_its_own() {
    let place = Place::new();
    let script = place.script(&json!([{ "calls": [["exec_command", { "cmd": "true" }]] }, { "text": "done" }]));
    let run = |args: &[&str]| place.run(&[&["run", "--api", "script", "--model", &script], args].concat());
    assert_eq!(run(&["go", "--approve", "always-ask", "--on-ask", "wait"]).0, 4);
    assert_eq!(run(&["-c", "--approve", "deny-all"]).0, 0);
    let (_, page, _) = place.run(&["trace", "export", &id(&place), "--html"]);
    assert!(page.contains("<rect class=\"person\"") && !page.contains("<rect class=\"tool\""), "nothing ran");
}

#[test]
fn what_was_said_is_found_wherever_it_stands() {
    let place = hostile();
    let (code, out, _) = place.run(&["trace", "search", "NEEDLE"]);
    assert!(code == 0 && out.lines().count() == 2 && out.contains("user") && out.contains("model"), "{out}");
    let (_, out, _) = place.run(&["trace", "search", "needle", "--json", "--most", "1"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((found["kind"].as_str(), found["session_id"].as_str()), (Some("user"), Some(id(&place).as_str())));
    let (code, out, err) = place.run(&["trace", "search", "not there"]);
    assert!(code == 0 && out.is_empty() && err.contains("no record holds it"));
}

#[test]
fn a_trace_is_shown_folded_or_whole() {
    let place = hostile();
    let (_, folded, _) = place.run(&["trace", "show", &id(&place)]);
    let (_, whole, _) = place.run(&["trace", "show", &id(&place), "--full"]);
    assert!(folded.contains("--full shows them") && !folded.contains("\n    99\n") && whole.contains("\n    99\n"));
    assert!(folded.contains("decision") && folded.contains("allow") && folded.contains("mode allow-all"), "{folded}");
    assert!(!folded.contains("\u{1b}[32m"), "no colours in a pipe");
}

/// A session of PenguinHarness's, in its form: no numbers, no hashes.
fn penguin(place: &Place, name: &str, rest: &[&str]) -> String {
    let meta =
        json!({ "session_id": name, "provider": "p", "model_id": "m", "system_prompt": "x", "workspace": "/nowhere" });
    let head = json!({ "timestamp": "2026-01-01T00:00:00.000Z", "type": "session_meta", "payload": meta });
    let mut text = format!("{head}\n");
    for payload in rest {
        let kind = if payload.contains("request_") { "event_msg" } else { "model_msg" };
        text.push_str(&format!(
            "{{\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"type\":\"{kind}\",\"payload\":{payload}}}\n"
        ));
    }
    let path = place.work().join(format!("{name}_001.jsonl"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn what_penguin_harness_wrote_goes_on_without_changing_a_byte_of_it() {
    let place = Place::new();
    let begin = r#"{"type":"request_begin"}"#;
    let done = r#"{"type":"request_end","status":"completed"}"#;
    let user = r#"{"type":"text","role":"user","text":"go","stop_reason":"completed"}"#;
    let said = r#"{"type":"text","role":"assistant","text":"first","stop_reason":"completed"}"#;
    let call = r#"{"type":"tool_call","role":"assistant","name":"exec_command","arguments":"{\"cmd\":\"touch ran\"}","tool_call_id":"a","stop_reason":"completed"}"#;
    let script = place.script(&json!([{ "text": "one" }, { "text": "two" }]));
    for (name, rest, torn) in [
        ("whole", &[user, begin, said, done][..], ""),
        ("torn", &[user, begin, said, done][..], "{\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"type\":\"model_m"),
        ("killed", &[user, begin, call, done][..], ""),
    ] {
        let path = penguin(&place, name, rest);
        let before = std::fs::read_to_string(&path).unwrap() + torn;
        std::fs::write(&path, &before).unwrap();
        let work = place.work().display().to_string();
        let args = ["run", "next", "-r", &path, "-C", &work, "--api", "script", "--model", &script];
        let (code, out, err) = place.run(&args);
        assert!(code == 0 && out == "two\n", "{name}: {code} {out}{err}");
        let after = std::fs::read_to_string(&path).unwrap();
        assert!(after.starts_with(&before) && after.len() > before.len(), "{name}");
        assert!(!place.work().join("ran").exists(), "{name}: nothing of theirs runs again");
        let (code, out, _) = place.run(&["trace", "verify", &path]);
        assert_eq!(code, 0, "{name}: {out}");
    }
}

#[test]
fn a_session_whose_head_is_torn_says_which_record_it_is() {
    let place = Place::new();
    let path = place.work().join("s_001.jsonl");
    std::fs::write(&path, "{\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"session_me").unwrap();
    let (code, _, err) = place.run(&["trace", "show", "--json", path.to_str().unwrap()]);
    assert!(code != 0 && err.contains("is torn (line 1, 58 bytes)"), "{code} {err}");
    let (code, _, err) = place.run(&["run", "x", "-r", path.to_str().unwrap(), "-C", "."]);
    assert!(code == 1 && err.contains("s_001.jsonl (line 1, 58 bytes) is torn") && err.contains("hint: "), "{err}");

    // The same where the torn file goes on from a whole one of the same program.
    let first = penguin(&place, "t", &[r#"{"type":"text","role":"user","text":"go","stop_reason":"completed"}"#]);
    std::fs::write(place.work().join("t_002.jsonl"), "{\"timest").unwrap();
    let (code, _, err) = place.run(&["run", "x", "-r", &first, "-C", "."]);
    assert!(code == 1 && err.contains("t_002.jsonl (line 1, 8 bytes) is torn"), "{err}");
}
