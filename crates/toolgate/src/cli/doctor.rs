//! `toolgate doctor`: whether everything that a run needs is there, and what to do where it is not.
#![allow(clippy::disallowed_methods)] // Programs and folders are looked up here.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use toolgate_runtime::process::{
    command_env::EnvPolicy,
    login_env::{EnvSource, LoginShell},
    table::DEFAULT_SHELL,
};

use super::{Common, block_on, config::files, print, terminal};
use crate::{
    config::{self, LoginUse, Settings},
    failure::{Failure, RUN_FAILED},
    models::{Asked, find},
    surroundings::Surroundings,
    wiring,
};

/// Arguments of `toolgate doctor`.
#[derive(Args)]
pub(super) struct Doctor {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Box<Common>,
}

/// What was found about one thing.
struct Finding {
    about: &'static str,
    /// False where a run would fail or be less than it seems.
    good: bool,
    what: String,
}

impl Doctor {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        let workspace = wiring::workspace(self.common.workspace.as_deref())?;
        let mut findings = vec![
            good("version", env!("CARGO_PKG_VERSION")),
            good("platform", &format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
            good("sandbox", "tier C: none yet; commands have the user's own rights"),
        ];
        for (layer, path) in files(surroundings, workspace.root()) {
            let state = if path.exists() { "there" } else { "not there" };
            findings.push(good("configuration", &format!("{layer} {} {state}", path.display())));
        }
        match config::load(&self.common.given(), workspace.root(), surroundings) {
            Ok(settings) => findings.extend(of_settings(&settings, surroundings)),
            Err(failure) => findings.push(bad("configuration", &failure)),
        }
        findings.push(state_folder(surroundings));
        findings.extend(commands(surroundings)?);
        findings.push(programs(surroundings));
        findings.push(terminal(surroundings));
        let is_well = findings.iter().all(|finding| finding.good);
        if self.json {
            let each: Vec<Value> = findings
                .iter()
                .map(|found| json!({ "about": found.about, "good": found.good, "what": found.what }))
                .collect();
            print::json(&json!({ "good": is_well, "findings": each }));
        } else {
            for found in &findings {
                print::data(&format!(
                    "{:<4} {:<14} {}",
                    if found.good { "ok" } else { "BAD" },
                    found.about,
                    found.what
                ));
            }
        }
        Ok(if is_well { 0 } else { RUN_FAILED })
    }
}

fn good(about: &'static str, what: &str) -> Finding {
    Finding { about, good: true, what: what.to_owned() }
}

fn bad(about: &'static str, failure: &Failure) -> Finding {
    Finding { about, good: false, what: failure.on_one_line() }
}

fn of_settings(settings: &Settings, surroundings: &Surroundings) -> Vec<Finding> {
    let mut findings: Vec<Finding> = settings.notes.iter().map(|note| good("configuration", note)).collect();
    if let Err(failure) = settings.refuse_what_is_not_built() {
        findings.push(bad("configuration", &failure));
    }
    findings.push(match find(&Asked::default(), settings, surroundings) {
        Ok(found) => {
            let key = found.key_from.as_ref().map_or_else(|| "no key".into(), |from| format!("key from {from}"));
            good("model", &format!("{} over {} ({}; {key})", found.id, found.api.as_str(), found.why))
        }
        Err(failure) => bad("model", &failure),
    });
    for (_, spec) in settings.own_tools(surroundings) {
        findings.push(good("tool", &format!("{} is a program of your own", spec.name)));
    }
    for hook in &settings.hooks {
        findings.push(good("hook", &hook.shown()));
    }
    for name in settings.tools.servers.keys() {
        findings.push(good("mcp", &format!("{name} is configured; servers are not started yet")));
    }
    for name in settings.agents.keys() {
        findings.push(good("agent", &format!("{name} is configured; subagents are not built yet")));
    }
    if !settings.sandbox.writable.is_empty() {
        findings.push(good("sandbox", "sandbox.writable is set; without a sandbox it limits nothing"));
    }
    let how = match settings.login_shell {
        LoginUse::Once => "read once a session",
        LoginUse::PerCommand => "read by every command",
        LoginUse::Off => "not read",
    };
    findings.push(good("login shell", how));
    findings
}

fn state_folder(surroundings: &Surroundings) -> Finding {
    let Some(folder) = surroundings.state_folder() else {
        let failure = Failure::configuration("neither HOME nor XDG_STATE_HOME is set").hint("set XDG_STATE_HOME");
        return bad("state", &failure);
    };
    let probe = folder.join(format!(".doctor-{}", std::process::id()));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&probe, b""));
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => good("state", &format!("{} can be written", folder.display())),
        Err(error) => {
            let failure = Failure::configuration(format!("{} cannot be written: {error}", folder.display()));
            bad("state", &failure.hint("free space, or set XDG_STATE_HOME to a folder that can be written"))
        }
    }
}

/// Whether the supervisor starts programs, and whether the user's profile can be read.
fn commands(surroundings: &Surroundings) -> Result<Vec<Finding>, Failure> {
    let plain = LoginShell { shell: DEFAULT_SHELL.into(), home: "/".into(), cache: None };
    let own = surroundings.login_shell().map(|login| LoginShell { cache: None, ..login });
    let shells = [("supervisor", Some(plain)), ("profile", own)];
    block_on(async {
        let mut findings = Vec::new();
        for (about, shell) in shells {
            let Some(shell) = shell else { continue };
            let path = shell.shell.display().to_string();
            let source = EnvSource::new(surroundings.vars(), Some(shell), EnvPolicy::default());
            let supervisor = wiring::supervisor();
            let captured = source.captured(supervisor.as_ref()).await;
            findings.push(match &captured.warning {
                None => good(about, &format!("{path} starts and prints {} variables", captured.vars.len())),
                Some(warning) => {
                    bad(about, &Failure::run(warning.clone()).hint("login_shell: off does without the profile"))
                }
            });
        }
        Ok(findings)
    })
}

fn programs(surroundings: &Surroundings) -> Finding {
    let shown =
        |name: &str| surroundings.program(name).map_or_else(|| format!("no {name}"), |path| path.display().to_string());
    let line = ["bash", "pwsh", "git"].map(shown).join(", ");
    match Path::new(DEFAULT_SHELL).is_file() {
        true => good("programs", &line),
        false => bad("programs", &Failure::run(format!("there is no {DEFAULT_SHELL}; {line}")).hint("install bash")),
    }
}

fn terminal(surroundings: &Surroundings) -> Finding {
    let each = [
        ("input", terminal::stdin_is_terminal()),
        ("output", terminal::stdout_is_terminal()),
        ("error", terminal::stderr_is_terminal()),
    ];
    let on: Vec<&str> = each.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    let on = if on.is_empty() { "none of the streams".into() } else { on.join(", ") };
    let term = surroundings.get("TERM").unwrap_or_else(|| "not set".into());
    let colour = if surroundings.get("NO_COLOR").is_some() { ", no colour wanted" } else { "" };
    good("terminal", &format!("{on}; TERM {term}{colour}"))
}
