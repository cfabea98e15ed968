//! What planning an edit costs in a file of 100 MB, in each way of matching, and what it costs where nothing matches.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{hint::black_box, sync::OnceLock};

use divan::counter::BytesCount;
use toolgate_runtime::edit::{Edit, difference, plan};

fn main() {
    divan::main();
}

/// 100 MB of lines with tabs and curly quotes, and one that stands once, near the end.
fn file(ends: &'static str) -> &'static [u8] {
    static FILES: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    FILES[usize::from(ends == "\r\n")].get_or_init(|| {
        let line = format!("\tlet value = compute(\u{2018}alpha\u{2019}, 17, \"beta\");{ends}");
        let mut file = line.repeat(100_000_000 / line.len());
        file.push_str(&format!("\tlet once = compute(\u{2018}alpha\u{2019}, 18);{ends}\tdone();{ends}"));
        file.into_bytes()
    })
}

fn planned(bencher: divan::Bencher<'_, '_>, ends: &'static str, old: &str, new: &str) {
    let edits = [Edit { old: old.into(), new: new.into(), all: false }];
    let file = file(ends);
    bencher
        .counter(BytesCount::new(file.len()))
        .bench(|| plan(black_box(file), &edits).map_err(|error| error.explained(file, &edits)).is_ok());
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn exact(bencher: divan::Bencher<'_, '_>) {
    planned(bencher, "\n", "let once = compute(\u{2018}alpha\u{2019}, 18);\n", "let once = 1;\n");
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn with_other_line_ends(bencher: divan::Bencher<'_, '_>) {
    planned(bencher, "\r\n", "let once = compute(\u{2018}alpha\u{2019}, 18);\n", "let once = 1;\n");
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn alike(bencher: divan::Bencher<'_, '_>) {
    planned(bencher, "\n", "let once = compute('alpha', 18);\n", "let once = 1;\n");
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn apart_from_indentation(bencher: divan::Bencher<'_, '_>) {
    planned(bencher, "\r\n", "    let once = compute('alpha', 18);\n    done();\n", "    done();\n");
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn not_found(bencher: divan::Bencher<'_, '_>) {
    planned(bencher, "\n", "\tlet twice = compute(\"alpha\", 18);\n\tdone();\n", "");
}

/// All three parts of a usual call: a source file of a thousand lines.
#[divan::bench]
fn a_small_file_with_its_difference(bencher: divan::Bencher<'_, '_>) {
    let file: String = (0..1000).map(|n| format!("    let value_{n} = compute({n});\n")).collect();
    let edits = [Edit { old: "value_500 = compute(500);".into(), new: "value_500 = 1;".into(), all: false }];
    bencher.bench(|| {
        let plan = plan(black_box(file.as_bytes()), &edits).unwrap();
        difference(file.as_bytes(), &plan.splices).shown(60)
    });
}
