//! What one call of a file tool costs through the door, trace included, and what files of unusual size cost.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use toolgate_core::{approval::ApprovalMode, outcome::StopReason, policy::Policy, tool::ToolCall};
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    environment::{CallEnd, Environment, Setup},
    process::{
        command_env::EnvPolicy,
        login_env::EnvSource,
        supervisor::{Program, Supervisor},
        table::CommandSetup,
    },
    tools::builtin,
    trace::{Journal, TraceFile, Unwatched},
    workspace::Workspace,
};

fn main() {
    divan::main();
}

/// A folder and an environment over it.
struct House {
    folder: tempfile::TempDir,
    runtime: Runtime,
    environment: Environment,
}

impl House {
    /// In memory where the system has such a place, so that the disk's own time is not what is measured; else on disk.
    fn new(on_disk: bool) -> Self {
        let memory = Path::new("/dev/shm");
        let folder =
            if on_disk || !memory.is_dir() { tempfile::tempdir() } else { tempfile::tempdir_in(memory) }.unwrap();
        fs::create_dir(folder.path().join("w")).unwrap();
        let mut setup = Setup::new(Workspace::open(&folder.path().join("w")).unwrap());
        setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
        let trace = TraceFile::create(&folder.path().join("trace.jsonl"), &[]).unwrap();
        setup.journal = Arc::new(Journal::new(Some(trace), Arc::new(Unwatched)));
        builtin().into_iter().for_each(|tool| setup.registry.add(tool).unwrap());
        setup.commands = commands();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { folder, runtime, environment: Environment::new(setup) }
    }

    fn with_a_hundred_files() -> Self {
        let house = Self::new(true);
        (0..100).for_each(|number| house.file(&format!("{number}.rs"), &source()));
        house.file("a.rs", &source());
        house
    }

    fn file(&self, name: &str, content: &[u8]) {
        fs::write(self.folder.path().join("w").join(name), content).unwrap();
    }

    fn call(&self, tool: &str, arguments: &Value) -> String {
        let call = ToolCall { id: "1".into(), name: tool.into(), arguments: arguments.to_string() };
        let end = self.runtime.block_on(self.environment.call(call, &CancellationToken::new())).unwrap();
        let CallEnd::Closed(output, _) = end else { panic!("a question is open") };
        assert_eq!(output.stop_reason, Some(StopReason::Completed), "{}", output.output);
        output.output
    }
}

/// Commands run under the supervisor that the program has too.
fn commands() -> CommandSetup {
    let variables = ["PATH", "HOME"].map(|name| (name.into(), std::env::var_os(name).unwrap())).into();
    let supervisor = Supervisor::new(Program { path: env!("CARGO_BIN_EXE_toolgate-supervisor").into(), args: vec![] });
    CommandSetup::new(Arc::new(supervisor), EnvSource::new(variables, None, EnvPolicy::default()))
}

/// Twenty calls of tools of many kinds, each on a file of its own; the commands are the slowest of them.
fn mixed_calls() -> Vec<(&'static str, Value)> {
    let of_each = |number: usize| {
        [
            ("exec_command", json!({"cmd": "sleep 0.1; cat a.rs | wc -l"})),
            ("read", json!({"path": "a.rs"})),
            ("write", json!({"path": format!("new_{number}"), "content": "one\ntwo\n"})),
            ("grep", json!({"pattern": "value_99"})),
            ("find", json!({"pattern": "*.rs"})),
        ]
    };
    (0..4).flat_map(of_each).collect()
}

/// A file of a thousand lines.
fn source() -> Vec<u8> {
    (0..1000).flat_map(|n| format!("    let value_{n} = compute({n});\n").into_bytes()).collect()
}

#[divan::bench]
fn read_a_small_file(bencher: divan::Bencher<'_, '_>) {
    let house = House::new(false);
    house.file("a.rs", &source());
    bencher.bench(|| house.call("read", &json!({"path": "a.rs"})));
}

#[divan::bench(args = [false, true])]
fn write_a_small_file(bencher: divan::Bencher<'_, '_>, on_disk: bool) {
    let house = House::new(on_disk);
    let content = String::from_utf8(source()).unwrap();
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        house.call("write", &json!({"path": "a.rs", "content": format!("{number}\n{content}")}))
    });
}

#[divan::bench]
fn list_a_folder_of_100(bencher: divan::Bencher<'_, '_>) {
    let house = House::new(false);
    (0..100).for_each(|n| house.file(&n.to_string(), b""));
    bencher.bench(|| house.call("ls", &json!({})));
}

/// At most 50 ms.
#[divan::bench(sample_count = 5, sample_size = 1, max_time = Duration::from_secs(5))]
fn a_window_near_the_start_of_10_gb(bencher: divan::Bencher<'_, '_>) {
    let house = House::new(true);
    let mut file = File::create(house.folder.path().join("w/big")).unwrap();
    let lines: Vec<u8> =
        (0..400_000).flat_map(|n| format!("line {n} of a file that goes on and on\n").into_bytes()).collect();
    file.write_all(&lines).unwrap();
    // The rest is a hole: it is ten gigabytes to whoever reads it, and nothing to the disk.
    file.set_len(10_000_000_000).unwrap();
    bencher.bench(|| house.call("read", &json!({"path": "big", "offset": 1000})));
}

/// Each of the twenty alone, one after the other: the slowest of them is what the next one is measured by.
#[divan::bench(args = ["exec_command", "read", "write", "grep", "find"], sample_count = 20, sample_size = 1)]
fn one_of_twenty_mixed_calls(bencher: divan::Bencher<'_, '_>, tool: &str) {
    let house = House::with_a_hundred_files();
    let (_, arguments) = mixed_calls().into_iter().find(|(name, _)| *name == tool).unwrap();
    bencher.bench(|| house.call(tool, &arguments));
}

/// All of them in one answer: at most one and a half times the slowest.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn twenty_mixed_calls_at_once(bencher: divan::Bencher<'_, '_>) {
    let house = House::with_a_hundred_files();
    bencher.bench(|| {
        let calls = mixed_calls().into_iter().enumerate().map(|(number, (name, arguments))| ToolCall {
            id: number.to_string(),
            name: name.into(),
            arguments: arguments.to_string(),
        });
        let interrupt = CancellationToken::new();
        for end in house.runtime.block_on(house.environment.call_all(calls.collect(), &interrupt)).unwrap() {
            let CallEnd::Closed(output, _) = end else { panic!("a question is open") };
            assert_eq!(output.stop_reason, Some(StopReason::Completed), "{}", output.output);
        }
    });
}
