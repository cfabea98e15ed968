//! What writing and verifying ten thousand records costs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::sync::Arc;

use divan::counter::ItemsCount;
use toolgate_core::{
    message::{Extra, ModelMessage, Role, ToolCallOutput},
    outcome::StopReason,
    trace::verify,
};
use toolgate_runtime::trace::{Journal, TraceFile, Unwatched};

fn main() {
    divan::main();
}

const RECORDS: usize = 10_000;

fn output() -> ModelMessage {
    ModelMessage::ToolCallOutput(ToolCallOutput {
        role: Some(Role::User),
        output: "a line of output as a command prints it\n".repeat(8),
        images: Vec::new(),
        tool_call_id: "call_1".into(),
        stop_reason: Some(StopReason::Completed),
        extra: Extra::new(),
    })
}

fn write(path: &std::path::Path) {
    let journal = Journal::new(Some(TraceFile::create(path, &[]).unwrap()), Arc::new(Unwatched));
    for _ in 0..RECORDS {
        journal.record(output()).unwrap();
    }
}

#[divan::bench(sample_count = 20)]
fn write_records(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    let paths = || {
        number += 1;
        folder.path().join(format!("{number}.jsonl"))
    };
    bencher.with_inputs(paths).counter(ItemsCount::new(RECORDS)).bench_local_values(|path| write(&path));
}

#[divan::bench(sample_count = 20)]
fn verify_records(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    write(&path);
    let bytes = std::fs::read(path).unwrap();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| verify(divan::black_box(&bytes)).unwrap());
}
