//! What a gate decision costs: a usual command and 10 KB of shell, with no rules and with fifty.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use toolgate_core::{
    approval::ApprovalMode,
    call::{Args, CheckedCall},
    policy::{Facts, Policy, Rule, SandboxMode, Standing, Tier, decide},
    tool::{Effect, Prepared, ToolSpec},
};

fn main() {
    divan::main();
}

fn call(line: &str) -> CheckedCall {
    let mut spec = ToolSpec::new("exec_command", "", serde_json::json!({}));
    spec.rule_names = vec!["Bash".into()];
    let effects = vec![Effect::Run { line: line.into(), cwd: "/w".into() }];
    CheckedCall::new("1".into(), &spec, Args::new(), vec![], Prepared { effects, ..Prepared::default() })
}

fn standing(rules: usize) -> Standing {
    let tiers = [Tier::Allow, Tier::Ask, Tier::Deny];
    let rule = |i: usize| Rule::parse(tiers[i % 3], &format!("Bash(program{i} sub *)"), "bench").unwrap();
    Standing {
        mode: ApprovalMode::ReadOnly,
        policy: Arc::new(Policy { rules: (0..rules).map(rule).collect() }),
        version: 1,
    }
}

#[divan::bench(args = [0, 50])]
fn usual_command(bencher: divan::Bencher<'_, '_>, rules: usize) {
    let (call, standing) = (call("git commit -m 'say why' --no-verify src/main.rs"), standing(rules));
    bencher.bench(|| decide(divan::black_box(&call), &standing, &Facts { sandbox: SandboxMode::Off }));
}

#[divan::bench(args = [0, 50])]
fn ten_kilobytes_of_shell(bencher: divan::Bencher<'_, '_>, rules: usize) {
    let (call, standing) = (call(&"echo one && cat two | grep three; ".repeat(300)), standing(rules));
    bencher.bench(|| decide(divan::black_box(&call), &standing, &Facts { sandbox: SandboxMode::Off }));
}

#[divan::bench]
fn check_and_digest(bencher: divan::Bencher<'_, '_>) {
    bencher.bench(|| call(divan::black_box("git status")));
}
