//! `toolgate trace list|show|verify`: what was written down, for people and for checks.
#![allow(clippy::disallowed_methods)] // Traces are read here.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;
use toolgate_core::{
    message::{Body, Event, Message, ModelMessage, Role},
    trace::{Verified, check_head, verify},
};

use super::{print, state};
use crate::{
    failure::{Failure, VERIFICATION},
    surroundings::Surroundings,
};

/// Subcommands of `toolgate trace`.
#[derive(Subcommand)]
pub(super) enum Trace {
    /// List sessions, newest first.
    List {
        /// Print JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Show a trace.
    Show {
        /// A file or a session's id.
        trace: String,
    },
    /// Check that no record of a trace was changed, added or removed.
    Verify {
        /// A file or a session's id.
        trace: String,
        /// The hash that the last record must have; finds a removed tail. By default the one in the session's index.
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
}

impl Trace {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        match self {
            Self::List { json } => list(json, surroundings),
            Self::Show { trace } => show(&trace, surroundings),
            Self::Verify { trace, head } => check(&trace, head, surroundings),
        }
    }
}

fn list(as_json: bool, surroundings: &Surroundings) -> Result<u8, Failure> {
    for entry in state(surroundings)?.sessions() {
        if as_json {
            print::json(&json!(entry));
        } else {
            print::data(&format!(
                "{}  {:4}  {:9}  {}  {}",
                entry.session_id,
                entry.kind,
                entry.status,
                entry.updated,
                entry.workspace.display()
            ));
        }
    }
    Ok(0)
}

/// The bytes of a trace, its path, and the head that its index knows.
fn find(name: &str, surroundings: &Surroundings) -> Result<(PathBuf, Vec<u8>, Option<String>), Failure> {
    let path = PathBuf::from(name);
    let path = path.canonicalize().unwrap_or(path);
    let entry = surroundings
        .state_folder()
        .and_then(|_| state(surroundings).ok())
        .and_then(|state| state.sessions().into_iter().find(|entry| entry.session_id == name || entry.trace == path));
    let path = entry.as_ref().filter(|entry| entry.session_id == name).map_or(path, |entry| entry.trace.clone());
    let bytes = std::fs::read(&path).map_err(|error| {
        Failure::usage(format!("the trace {} cannot be read: {error}", path.display()))
            .hint("toolgate trace list shows the sessions")
    })?;
    // While a run is on, or after one crashed, the index knows an older head.
    let head = entry.filter(|entry| entry.status != "running").and_then(|entry| entry.head);
    Ok((path, bytes, head))
}

fn check(name: &str, head: Option<String>, surroundings: &Surroundings) -> Result<u8, Failure> {
    let (path, bytes, known) = find(name, surroundings)?;
    let verified = verify(&bytes).and_then(|verified| match head.or(known) {
        Some(wanted) => check_head(&verified, &wanted).map(|()| verified),
        None => Ok(verified),
    });
    match verified {
        Ok(Verified { records: 0, .. }) => {
            print::data(&format!("{}: does not hold: it has no records", path.display()));
            Ok(VERIFICATION)
        }
        Ok(verified) => {
            print::data(&format!("{}: {}", path.display(), described(&verified)));
            Ok(0)
        }
        Err(broken) => {
            print::data(&format!("{}: does not hold: {broken}", path.display()));
            Ok(VERIFICATION)
        }
    }
}

fn described(verified: &Verified) -> String {
    let mut parts = vec![format!("{} records", verified.records)];
    if !verified.chained {
        parts.push("unchained: the records carry no hashes, so nothing can be proved".into());
        return parts.join(", ");
    }
    parts.push(format!("holds, head {}", verified.head.to_hex()));
    if verified.repaired > 0 {
        parts.push(format!("{} bytes torn by a crash are covered by a repair", verified.repaired));
    }
    if let Some((offset, length)) = verified.torn {
        parts.push(format!("{length} bytes at offset {offset} were torn by a crash and are not covered yet"));
    }
    if !verified.sealed {
        parts.push("not sealed: its last run did not end by itself, or is still on".into());
    }
    parts.join(", ")
}

fn show(name: &str, surroundings: &Surroundings) -> Result<u8, Failure> {
    let (_, bytes, _) = find(name, surroundings)?;
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.is_empty() {
            continue;
        }
        let message = std::str::from_utf8(line).ok().and_then(|line| Message::from_json(line).ok());
        match message {
            Some(message) => print::data(&told(&message)),
            None => print::data(&format!("(line {number} is no record: {} bytes)", line.len())),
        }
    }
    Ok(0)
}

/// One message as people read it.
fn told(message: &Message) -> String {
    let time = message.timestamp.get(11..23).unwrap_or(&message.timestamp);
    let what = match &message.body {
        Body::SessionMeta(meta) => {
            format!("session {} with {}/{} in {}", meta.session_id, meta.provider, meta.model_id, meta.workspace)
        }
        Body::Model(ModelMessage::Text(text)) => {
            format!("{}: {}", if text.role == Role::User { "user" } else { "assistant" }, text.text)
        }
        Body::Model(ModelMessage::Thinking(thinking)) => format!("thinking: {}", thinking.thinking),
        Body::Model(ModelMessage::ToolCall(call)) => {
            format!("call {} {} {}", call.tool_call_id, call.name, call.arguments)
        }
        Body::Model(ModelMessage::ToolCallOutput(output)) => {
            let stop = output.stop_reason.map_or("", |stop| stop.as_str());
            format!("result {} ({stop}):\n{}", output.tool_call_id, output.output)
        }
        Body::Model(other) => other.tag().to_owned(),
        Body::Event(Event::ApprovalDecision(decided)) => {
            let reason = decided.reason.as_deref().unwrap_or("no reason recorded");
            format!("{} {}: {reason}", decided.decision, decided.tool_call_id)
        }
        Body::Event(Event::ApprovalRequest(asked)) => {
            format!("asks {}: {} ({})", asked.tool_call_id, asked.summary, asked.reason)
        }
        Body::Event(Event::Seal(seal)) => format!("sealed: {}", seal.status),
        // The tools' declarations are long and the same each time; of everything else all is shown.
        Body::Event(Event::ToolListReady(list)) => format!("tool_list_ready: {} tools", list.tools.len()),
        Body::Event(event) => serde_json::to_string(event).unwrap_or_else(|_| event.tag().to_owned()),
        Body::Other { kind, .. } => kind.clone(),
    };
    format!("{time}  {what}")
}
