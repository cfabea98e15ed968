//! What a command tool tells the model about a command that it watched. Shared by the command tools; no tool itself.

use std::time::Duration;

use serde_json::Value;
use toolgate_core::{call::Args, outcome::StopReason};

use super::{input_command, kill_command};
use crate::{
    process::{
        Living, Status,
        session::{CommandSession, Seen},
        signal_name,
        table::Gone,
    },
    tool::{Done, ToolContext},
};

/// The shortest window: less would only poll faster than anything can happen (PenguinHarness's number).
const SHORTEST_WINDOW_MS: u64 = 250;

/// A window ends this long before the time limit, so that the call comes back by itself.
const BEFORE_LIMIT_MS: u64 = 1000;

/// Living processes that a note names; the rest are counted.
const MOST_NAMED: usize = 8;

/// The window of a call: what was asked for, within the floor and the tool's own time limit.
pub(super) fn window(asked_ms: Option<u64>, default_ms: u64, timeout_ms: Option<u64>) -> Duration {
    let most = timeout_ms.map_or(u64::MAX, |limit| limit.saturating_sub(BEFORE_LIMIT_MS).max(SHORTEST_WINDOW_MS));
    Duration::from_millis(asked_ms.unwrap_or(default_ms).max(SHORTEST_WINDOW_MS).min(most))
}

/// A time as the arguments give it, whether a configured schema says integer or number; below zero is zero.
pub(super) fn milliseconds(args: &Args, name: &str) -> Option<u64> {
    args.get(name).and_then(Value::as_f64).map(|ms| ms as u64)
}

/// What a call says that left a command alone.
pub(super) fn in_background(cx: &ToolContext, id: &str) -> String {
    let ways = Hints::of(cx).in_background();
    format!(
        "[command running in the background with process_id {id}; a message will tell its end, so there is no need to poll{ways}]"
    )
}

/// Turns what a call saw into its end.
pub(super) fn report(cx: &ToolContext, session: &CommandSession, seen: Seen, still: &str) -> Done {
    let (id, commands, hints) = (&session.id, &cx.commands, Hints::of(cx));
    match seen {
        Seen::Exited { exit, still_printing } => {
            // Looked at now and not at the exit: some have ended meanwhile, and the others have their own names by now.
            let living = if exit.living.is_empty() { Vec::new() } else { session.living() };
            commands.finish(session, exit.status, living.is_empty());
            let (stop, status) = ended(exit.status, session.was_signalled());
            let mut notes: Vec<String> = status.into_iter().collect();
            if still_printing {
                notes.push(
                    "[the shell has ended; a process that it started goes on printing, and was waited for for 2 s]"
                        .into(),
                );
            }
            if !living.is_empty() {
                notes.push(format!(
                    "[{} started by it still running: {}; {}]",
                    counted(living.len(), "process", "processes"),
                    named(&living),
                    hints.after_exit(id)
                ));
            }
            Done { stop: Some(stop), note: (!notes.is_empty()).then(|| notes.join("\n")), ..Done::default() }
        }
        Seen::WantsInput => {
            commands.yielded(session);
            Done::noted(
                StopReason::Completed,
                format!("[process waits for input; process_id {id}{}]", hints.while_it_waits()),
            )
        }
        Seen::Running => {
            commands.yielded(session);
            Done::noted(
                StopReason::Completed,
                // After the first window the model is told how to go on; later it knows.
                format!(
                    "[process {still} with process_id {id}{}]",
                    if still == "running" { hints.while_it_runs() } else { String::new() }
                ),
            )
        }
        Seen::Cancelled => Done::default(),
    }
}

/// What the model is told to do with a command that goes on, by the tools that it has.
struct Hints {
    input: Option<&'static str>,
    kill: Option<&'static str>,
}

impl Hints {
    fn of(cx: &ToolContext) -> Self {
        let there = |name| cx.can_call(name).then_some(name);
        Self { input: there(input_command::NAME), kill: there(kill_command::NAME) }
    }

    fn in_background(&self) -> String {
        let input = self.input.map(|tool| format!("{tool} interacts with it"));
        let kill = self.kill.map(|tool| format!("{tool} ends it"));
        let ways: Vec<String> = input.into_iter().chain(kill).collect();
        if ways.is_empty() { String::new() } else { format!("; {}", ways.join(", ")) }
    }

    fn while_it_waits(&self) -> String {
        let input = self.input.map(|tool| format!("{tool} to send it (eof: true ends the input)"));
        let kill = self.kill.map(|tool| format!("{tool} to end it"));
        let ways: Vec<String> = input.into_iter().chain(kill).collect();
        if ways.is_empty() { String::new() } else { format!("; use {}", ways.join(" or ")) }
    }

    fn while_it_runs(&self) -> String {
        match (self.input, self.kill) {
            (Some(tool), _) => format!("; use {tool} to send input or poll for output"),
            (None, Some(tool)) => format!("; use {tool} to end it and read its output"),
            (None, None) => "; it is ended with the session".into(),
        }
    }

    fn after_exit(&self, id: &str) -> String {
        let kill = self.kill.map(|tool| format!(", or by {tool}")).unwrap_or_default();
        let input = self.input.map(|tool| format!("; {tool} reads what they print")).unwrap_or_default();
        let id = if self.kill.or(self.input).is_some() { format!(" (process_id {id})") } else { String::new() };
        format!("ended with the session{kill}{input}{id}")
    }
}

/// The answer about a session that is no longer there.
pub(super) fn report_gone(tool: &str, id: &str, gone: Option<Gone>) -> Done {
    match gone {
        Some(Gone::Exited(status)) => {
            let (stop, _) = ended(status, false);
            Done::noted(stop, format!("[process {id} had exited ({status}); all of its output was read]"))
        }
        Some(Gone::Killed(why)) => {
            Done::noted(StopReason::Failed, format!("[{tool} error: process {id} was killed: {why}]"))
        }
        Some(Gone::Evicted) => Done::noted(
            StopReason::Failed,
            format!("[{tool} error: process {id} was ended to make room: at most 64 command sessions are kept]"),
        ),
        None => Done::noted(
            StopReason::Failed,
            format!("[{tool} error: unknown process_id {id}; no such process was started here]"),
        ),
    }
}

/// The stop reason and the note of a status. An exit code of zero needs no note.
fn ended(status: Status, by_toolgate: bool) -> (StopReason, Option<String>) {
    match status {
        Status::Code(0) => (StopReason::Completed, None),
        Status::Code(code) => (StopReason::Failed, Some(format!("[exit code: {code}]"))),
        Status::Signal(signal) if is_external(signal) && !by_toolgate => (
            StopReason::Failed,
            Some(format!(
                "[terminated by signal {} (external signal {signal}: toolgate did not send it)]",
                signal_name(signal)
            )),
        ),
        Status::Signal(signal) => (StopReason::Failed, Some(format!("[terminated by signal {}]", signal_name(signal)))),
        Status::Lost => {
            (StopReason::Failed, Some("[outcome unknown: the supervisor died while the command ran]".into()))
        }
    }
}

/// Signals that a program does not get by its own fault.
fn is_external(signal: i32) -> bool {
    matches!(signal, libc::SIGTERM | libc::SIGKILL | libc::SIGHUP | libc::SIGINT | libc::SIGQUIT)
}

/// `1 process`, `2 processes`.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Living processes by id and name.
pub(super) fn named(living: &[Living]) -> String {
    let mut names: Vec<String> =
        living.iter().take(MOST_NAMED).map(|process| format!("{} {}", process.pid, process.name)).collect();
    if living.len() > MOST_NAMED {
        names.push(format!("and {} more", living.len() - MOST_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_keeps_to_the_floor_and_to_the_time_limit() {
        let ms = |asked, limit| window(asked, 60_000, limit).as_millis();
        assert_eq!(ms(None, Some(120_000)), 60_000);
        assert_eq!(ms(Some(1), Some(120_000)), 250);
        assert_eq!(ms(Some(500_000), Some(120_000)), 119_000);
        assert_eq!(ms(None, Some(2_000)), 1_000);
        assert_eq!(ms(None, Some(500)), 250);
        assert_eq!(ms(Some(500_000), None), 500_000);
    }

    #[test]
    fn the_four_ways_to_be_gone_read_differently() {
        let texts = [
            report_gone("t", "p", Some(Gone::Exited(Status::Code(3)))),
            report_gone("t", "p", Some(Gone::Killed("by kill_command"))),
            report_gone("t", "p", Some(Gone::Evicted)),
            report_gone("t", "p", None),
        ]
        .map(|done| done.note.unwrap());
        assert!(
            texts[0].contains("exit code 3")
                && texts[1].contains("killed")
                && texts[2].contains("make room")
                && texts[3].contains("unknown")
        );
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(ended(Status::Signal(libc::SIGSEGV), false).1.unwrap(), "[terminated by signal SIGSEGV]");
        assert!(ended(Status::Signal(libc::SIGTERM), false).1.unwrap().contains("SIGTERM (external signal 15"));
        assert_eq!(ended(Status::Signal(libc::SIGINT), true).1.unwrap(), "[terminated by signal SIGINT]");
    }
}
