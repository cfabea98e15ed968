//! What closing out one megabyte of output costs: clean text, coloured text, progress; with everything left out kept on disk.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use divan::counter::BytesCount;
use toolgate_core::{
    outcome::{Ending, StopReason},
    tool::{Bound, Truncate},
};
use toolgate_runtime::{
    close_out::CloseOut,
    output::spill::SpillFolder,
    tool::Done,
    trace::{Journal, Unwatched},
};

fn main() {
    divan::main();
}

const MEGABYTE: usize = 1_000_000;

fn text(kind: &str) -> Vec<u8> {
    let line = match kind {
        "clean" => "   Compiling something v1.2.3 (a path of usual length)\n",
        "coloured" => "\x1b[1m\x1b[32m   Compiling\x1b[0m something v1.2.3 (a path)\n",
        "progress" => "\r[=========>          ] 47/100 some crate",
        _ => "   Übersetze etwas — größer als ASCII, 文字 und mehr\n",
    };
    line.bytes().cycle().take(MEGABYTE).collect()
}

#[divan::bench(args = ["clean", "coloured", "progress", "other letters"])]
fn one_megabyte(bencher: divan::Bencher<'_, '_>, kind: &str) {
    let (bytes, folder) = (text(kind), tempfile::tempdir().unwrap());
    let journal = Arc::new(Journal::new(None, Arc::new(Unwatched)));
    bencher.counter(BytesCount::new(MEGABYTE)).bench(|| {
        let spills = SpillFolder::new(folder.path().join("spill"));
        let frame =
            CloseOut::open(&journal, "call_1", Bound { keep: Truncate::Middle, ..Bound::default() }, Some(spills));
        let sink = frame.sink();
        for chunk in bytes.chunks(64 * 1024) {
            sink.write(chunk);
        }
        frame.finish(&Ending::Returned(StopReason::Completed), Vec::new(), Done::default()).unwrap()
    });
}
