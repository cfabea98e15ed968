//! What real providers were recorded to send, read however the network may cut it.
//!
//! `tests/recordings` holds a folder for each wire: `NAME.sse` or `NAME.json` is the body of an answer, `NAME.expect.json` what it comes
//! to. With `TOOLGATE_RECORDINGS` set, a folder of the same form is read instead.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use toolgate_agent::provider::{Api, parse_pieces, parse_recording};

/// How many places of each stream are cut in two.
const SPLITS: usize = 200;

/// The largest body that is read byte by byte at every one of its cuts, which takes the square of its length.
const EVERY_CUT: usize = 100_000;

pub struct Recording {
    pub name: String,
    pub api: &'static str,
    pub body: Vec<u8>,
    pub expect: Value,
    status: u16,
    stream: bool,
}

pub fn folder() -> PathBuf {
    std::env::var_os("TOOLGATE_RECORDINGS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings"), PathBuf::from)
}

pub fn recordings() -> Vec<Recording> {
    let mut all = Vec::new();
    for api in Api::ALL.map(Api::as_str) {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder().join(api)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_str().unwrap();
            let Some(stem) = name.strip_suffix(".expect.json") else { continue };
            let expect: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let (sse, plain) =
                (file.with_file_name(format!("{stem}.sse")), file.with_file_name(format!("{stem}.json")));
            let stream = sse.exists();
            all.push(Recording {
                name: format!("{api}/{stem}"),
                api,
                status: expect["http"]["status"].as_u64().map_or(200, |status| u16::try_from(status).unwrap()),
                body: fs::read(if stream { sse } else { plain }).unwrap(),
                stream,
                expect,
            });
        }
    }
    assert!(all.len() >= 32, "only {} recordings in {}", all.len(), folder().display());
    all
}

/// Everything in which a parse differs from what is expected.
fn differences(got: &Value, want: &Value) -> Vec<String> {
    let calls = |parse: &Value| -> Vec<Value> {
        let list = parse["tool_calls"].as_array().cloned().unwrap_or_default();
        list.iter().map(|call| json!([call["name"], call["arguments"]])).collect()
    };
    let text = |parse: &Value, key: &str| parse[key].as_str().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    for key in ["text", "thinking"] {
        if text(got, key) != text(want, key) {
            wrong.push(format!("{key}: {:?} for {:?}", text(got, key), text(want, key)));
        }
    }
    if calls(got) != calls(want) {
        wrong.push(format!("calls: {:?} for {:?}", calls(got), calls(want)));
    }
    if got["stop"] != want["stop"] {
        wrong.push(format!("stop: {} for {} ({})", got["stop"], want["stop"], got["error"]));
    }
    if want["error_class"].is_string() && got["error_class"] != want["error_class"] {
        wrong.push(format!("error_class: {} for {}", got["error_class"], want["error_class"]));
    }
    for (name, figure) in want["usage"].as_object().into_iter().flatten() {
        if !figure.is_null() && got["usage"][name] != *figure {
            wrong.push(format!("usage.{name}: {} for {figure}", got["usage"][name]));
        }
    }
    wrong
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} do not hold:\n{}", failures.len(), failures.join("\n"));
}

/// Reads every recording in some way and compares it with what it should come to.
fn each(what: &str, streams_only: bool, read: impl Fn(&Recording) -> Vec<(String, Value)>) {
    let mut failures = Vec::new();
    for recording in recordings() {
        if streams_only && !recording.stream {
            continue;
        }
        for (how, got) in read(&recording) {
            let wrong = differences(&got, &recording.expect);
            if !wrong.is_empty() {
                failures.push(format!("{}, {what}{how}: {}", recording.name, wrong.join("; ")));
                break;
            }
        }
    }
    report(&failures);
}

#[test]
fn every_recording_holds_as_a_whole() {
    each("whole", false, |recording| {
        vec![(String::new(), parse_recording(recording.api, recording.status, &recording.body))]
    });
}

#[test]
fn every_recording_holds_byte_by_byte() {
    each("byte by byte", false, |recording| {
        let pieces: Vec<&[u8]> = recording.body.chunks(1).collect();
        vec![(String::new(), parse_pieces(recording.api, recording.status, &pieces))]
    });
}

#[test]
fn every_recording_holds_in_two_pieces_cut_anywhere() {
    each("cut", false, |recording| {
        let step = (recording.body.len() / SPLITS).max(1);
        let cuts = (0..recording.body.len()).step_by(step);
        cuts.map(|at| {
            let (front, back) = recording.body.split_at(at);
            (format!(" at {at}"), parse_pieces(recording.api, recording.status, &[front, back]))
        })
        .collect()
    });
}

#[test]
fn every_recording_holds_with_other_line_ends() {
    each("line ends", true, |recording| {
        let text = String::from_utf8(recording.body.clone()).unwrap().replace("\r\n", "\n");
        let read = |end: &str| parse_recording(recording.api, recording.status, text.replace('\n', end).as_bytes());
        vec![(" CRLF".into(), read("\r\n")), (" CR".into(), read("\r"))]
    });
}

#[test]
fn every_recording_holds_with_comments_and_pings_between_its_events() {
    each("keep-alives", true, |recording| {
        let mut noisy = String::from(": hello\n\n");
        for event in events(&recording.body) {
            noisy.push_str(&event);
            noisy.push_str(": keep-alive\n\n");
            if recording.api == Api::AnthropicMessages.as_str() {
                noisy.push_str("event: ping\ndata: {\"type\": \"ping\"}\n\n");
            }
        }
        vec![(String::new(), parse_recording(recording.api, recording.status, noisy.as_bytes()))]
    });
}

/// Bytes that a broken network or a broken server changed give an answer or an error, and never a panic.
#[test]
fn a_damaged_recording_is_read_to_its_end() {
    let damages: [&[u8]; 6] = [b"", b"\0", b"\n\n", b"\"}]", b"\\ud83d", &[0xFF, 0xC3]];
    for recording in recordings() {
        let step = (recording.body.len() / SPLITS).max(1);
        for (at, damage) in (0..recording.body.len()).step_by(step).zip(damages.iter().cycle()) {
            let (front, back) = recording.body.split_at(at);
            let got = parse_pieces(recording.api, 200, &[front, damage, &back[1..]]);
            assert!(got["stop"].is_string(), "{} at {at}", recording.name);
        }
    }
}

/// A stream that ends early is no answer, unless its stop reason was there; and no call of it runs.
#[test]
fn a_recording_that_ends_early_is_no_answer() {
    let mut failures = Vec::new();
    for recording in recordings().iter().filter(|recording| recording.stream) {
        let all = events(&recording.body);
        if recording.body.len() > EVERY_CUT && all.len() > SPLITS * 10 {
            continue;
        }
        let mut so_far = String::new();
        let mut stopped = false;
        for (at, event) in all.iter().enumerate() {
            let got = parse_recording(recording.api, recording.status, so_far.as_bytes());
            let (stop, calls) = (got["stop"].as_str().unwrap(), got["tool_calls"].as_array().unwrap().len());
            let broken = matches!(stop, "cut" | "error");
            if !stopped && (!broken || calls > 0) {
                failures.push(format!("{} after {at} events: stop {stop}, {calls} calls", recording.name));
                break;
            }
            so_far.push_str(event);
            stopped |= says_stop(event);
        }
    }
    report(&failures);
}

/// Whether an event holds the reason for which the model stopped.
fn says_stop(event: &str) -> bool {
    let data: String = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    let Ok(data) = serde_json::from_str::<Value>(&data) else { return false };
    let filled = |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    filled(data.pointer("/choices/0/finish_reason"))
        || filled(data.pointer("/delta/stop_reason"))
        || filled(data.pointer("/candidates/0/finishReason"))
        || filled(data.pointer("/promptFeedback/blockReason"))
        || matches!(data["type"].as_str(), Some("response.completed" | "response.incomplete"))
}

/// A stream's events, each with the blank line behind it.
fn events(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8(body.to_vec()).unwrap().replace("\r\n", "\n");
    let mut events: Vec<String> = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        events.push(format!("{}\n\n", block.trim_start_matches('\n')));
    }
    events
}
