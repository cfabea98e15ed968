//! `trace show`: a trace as people read it.

use toolgate_core::message::{Body, Event, Message, ModelMessage, Role};

use super::{super::print, find::Files};
use crate::failure::Failure;

/// Shows the files one after the other.
pub(super) fn show(files: &Files) -> Result<u8, Failure> {
    for file in &files.each {
        for (number, line) in (1..).zip(file.bytes.split(|byte| *byte == b'\n')) {
            match Message::from_line(line) {
                Some(message) => print::data(&told(&message)),
                None if line.is_empty() => {}
                None => print::data(&format!("(line {number} is no record: {} bytes)", line.len())),
            }
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
