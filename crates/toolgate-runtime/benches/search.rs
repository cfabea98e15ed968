//! What a search through ten thousand small files costs, from the door to the result.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::{fs, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_core::{approval::ApprovalMode, policy::Policy, tool::ToolCall};
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    environment::{Environment, Setup},
    tools::builtin,
    workspace::Workspace,
};

fn main() {
    divan::main();
}

const FILES: usize = 10_000;

/// The calls: a text that one file has, an expression that none has, names.
const CALLS: &[(&str, &str)] = &[
    ("grep", r#"{"pattern":"the needle"}"#),
    ("grep", r#"{"pattern":"\\w+_\\d+ nothing"}"#),
    ("find", r#"{"pattern":"*7.rs"}"#),
];

#[divan::bench(sample_count = 30, args = 0..CALLS.len())]
fn call(bencher: divan::Bencher<'_, '_>, which: usize) {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..FILES {
        let place = folder.path().join(format!("a{}/b{}", i % 40, i % 7));
        fs::create_dir_all(&place).unwrap();
        let text = "    let value = read(path)?.lines().count();\n".repeat(i % 90);
        let needle = if i == FILES / 2 { "the needle\n" } else { "" };
        fs::write(place.join(format!("{i}.rs")), text + needle).unwrap();
    }
    let mut setup = Setup::new(Workspace::open(folder.path()).unwrap());
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    builtin().into_iter().for_each(|tool| setup.registry.add(tool).unwrap());
    let environment = Environment::new(setup);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (name, arguments) = CALLS[which];
    let interrupt = CancellationToken::new();
    bencher.bench_local(|| {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() };
        runtime.block_on(environment.call(call, &interrupt)).unwrap()
    });
}
