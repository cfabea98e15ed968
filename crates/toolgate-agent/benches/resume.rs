//! What it costs to go on with a session whose trace has grown to 100 MB: verifying the file and rebuilding the history.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::{io::Write, path::Path};

use divan::counter::BytesCount;
use toolgate_agent::history::Rebuilt;
use toolgate_core::trace::{Head, seal_line, verify};
use toolgate_runtime::trace::TraceFile;

fn main() {
    divan::main();
}

/// The size of the trace; bytes.
const SIZE: usize = 100_000_000;

/// A conversation whose commands print about ten kilobytes each, as toolgate writes it.
fn trace() -> Vec<u8> {
    let output = "   Compiling a-crate v1.2.3 (\\u001b[32m/w/crates/a\\u001b[0m) \\\"quoted\\\"\\n".repeat(150);
    let (mut head, mut seq, mut bytes) = (Head::empty(), 0, Vec::with_capacity(SIZE + 100_000));
    let mut add = |kind: &str, payload: &str| {
        seq += 1;
        let object = format!(r#"{{"timestamp":"2026-01-01T00:00:00.000Z","type":"{kind}","payload":{payload}}}"#);
        bytes.extend_from_slice(seal_line(&mut head, seq, &object).as_bytes());
        bytes.len()
    };
    add("session_meta", r#"{"session_id":"s","provider":"p","model_id":"m","workspace":"/w"}"#);
    add("model_msg", r#"{"type":"text","role":"user","text":"go"}"#);
    for turn in 0.. {
        let id = format!("call_{turn}");
        add("event_msg", r#"{"type":"request_begin"}"#);
        add("model_msg", r#"{"type":"text","role":"assistant","text":"Next I build it.","stop_reason":"completed"}"#);
        let call = r#""type":"tool_call","role":"assistant","name":"exec_command","arguments":"{\"cmd\":\"make\"}""#;
        add("model_msg", &format!(r#"{{{call},"tool_call_id":"{id}","stop_reason":"completed"}}"#));
        add("event_msg", r#"{"type":"request_end","status":"completed"}"#);
        add("event_msg", &format!(r#"{{"type":"approval_decision","decision":"allow","tool_call_id":"{id}"}}"#));
        add("event_msg", &format!(r#"{{"type":"call_started","tool_call_id":"{id}"}}"#));
        let result = r#""type":"tool_call_output","role":"user""#;
        let length = add("model_msg", &format!(r#"{{{result},"output":"{output}","tool_call_id":"{id}"}}"#));
        if length >= SIZE {
            break;
        }
    }
    bytes
}

fn written(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("s_001.jsonl");
    std::fs::File::create(&path).unwrap().write_all(&trace()).unwrap();
    path
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn verify_100_mb(bencher: divan::Bencher<'_, '_>) {
    let bytes = trace();
    bencher.counter(BytesCount::new(SIZE)).bench_local(|| verify(divan::black_box(&bytes)).unwrap());
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn rebuild_100_mb(bencher: divan::Bencher<'_, '_>) {
    let bytes = trace();
    bencher.counter(BytesCount::new(SIZE)).bench_local(|| Rebuilt::read(divan::black_box(&bytes)).unwrap());
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn resume_100_mb(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    bencher.counter(BytesCount::new(SIZE)).bench_local(|| {
        let resumed = TraceFile::resume_session(&path, &[]).unwrap();
        let files: Vec<&[u8]> = resumed.files.iter().map(Vec::as_slice).collect();
        Rebuilt::read_files(&files).unwrap().take_history().len()
    });
}
