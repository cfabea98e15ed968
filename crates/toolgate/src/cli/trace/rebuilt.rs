//! `trace show --json`: what a session that goes on would know, as one JSON object.

use serde_json::{Value, json};
use toolgate_agent::history::{NoSession, Rebuilt};
use toolgate_core::message::ModelMessage;

use super::{super::print, find::Files};
use crate::failure::Failure;

/// Prints the history, what would go before the next prompt, and the decisions.
///
/// A session that cannot go on is printed too, as far as it is known, with the reason as `error`.
pub(super) fn show(files: &Files) -> Result<u8, Failure> {
    let bytes: Vec<&[u8]> = files.each.iter().map(|file| file.bytes.as_slice()).collect();
    match Rebuilt::read_files(&bytes) {
        Ok(rebuilt) => {
            print::json(&object(&rebuilt));
            Ok(0)
        }
        Err(error) => {
            print::json(&without_context(&bytes, files, &error));
            Err(Failure::run(format!("{}: {error}", files.newest().path.display())).hint(
                "the files before it can be shown by themselves, and `toolgate trace verify` says what they hold",
            ))
        }
    }
}

fn object(rebuilt: &Rebuilt) -> Value {
    let decisions = rebuilt.decisions.iter();
    let decisions = decisions.map(|made| json!({"tool_call_id": made.tool_call_id, "decision": made.verdict()}));
    json!({
        "session_id": rebuilt.meta.session_id,
        "provider": rebuilt.meta.provider,
        "model_id": rebuilt.meta.model_id,
        "torn": rebuilt.torn,
        "history": items(&rebuilt.committed()),
        "carry_over": items(&rebuilt.carry_over()),
        "decisions": decisions.collect::<Vec<_>>(),
        "turns": rebuilt.turns,
        "used": rebuilt.usage,
        "last_request": rebuilt.last_request,
        "skipped_lines": rebuilt.skipped,
        "dangling_compaction": rebuilt.dangling_compaction.is_some(),
        "closed": rebuilt.closed.is_some(),
    })
}

/// A session whose newest file has no head: the older files still say which one it is.
fn without_context(bytes: &[&[u8]], files: &Files, error: &NoSession) -> Value {
    let older = bytes[..bytes.len() - 1].iter().find_map(|bytes| Rebuilt::read(bytes).ok());
    json!({
        "session_id": older.map_or_else(|| files.session(), |older| older.meta.session_id),
        "provider": null,
        "model_id": null,
        "torn": bytes.last().and_then(|newest| newest.last()).is_some_and(|last| *last != b'\n'),
        "history": [],
        "carry_over": [],
        "decisions": [],
        "error": error.to_string(),
    })
}

/// Messages as they stand in the trace; who speaks is named where the trace leaves it out.
fn items(messages: &[ModelMessage]) -> Vec<Value> {
    let item = |message: &ModelMessage| {
        let mut value = serde_json::to_value(message).unwrap_or_default();
        if let Value::Object(members) = &mut value {
            let speaker = match message {
                ModelMessage::Thinking(_) | ModelMessage::InlineThinking(_) | ModelMessage::ToolCall(_) => "assistant",
                _ => "user",
            };
            members.entry("role").or_insert_with(|| speaker.into());
        }
        value
    };
    messages.iter().map(item).collect()
}
