//! The neutral parse of a recorded answer: what a stream comes to, without a connection.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    ErrorClass, ModelEvent, ProviderError, Usage, chat,
    http::{Body, Wire},
};

/// Reads a recorded answer and gives its neutral parse: text, thinking, calls, stop, usage and the
/// class of an error. A call whose arguments are no JSON has `null` for them.
pub fn parse_recording(api: &str, status: u16, bytes: &[u8]) -> Value {
    let mut out = VecDeque::new();
    let result = match api {
        _ if !(200..300).contains(&status) => Err(ProviderError::from_body(Some(status), bytes)),
        "openai-chat" => read_whole(chat::Chat::default(), bytes, &mut out),
        _ => Err(ProviderError::new(ErrorClass::InvalidRequest, format!("no reader for the api {api}"))),
    };
    neutral(out, result)
}

fn read_whole(wire: impl Wire, bytes: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
    let mut body = Body::new(wire);
    body.push(bytes, out)?;
    body.finish(out)
}

fn neutral(events: impl IntoIterator<Item = ModelEvent>, result: Result<(), ProviderError>) -> Value {
    let (mut text, mut thinking, mut refusal, mut stop) = (String::new(), String::new(), String::new(), "error");
    let (mut calls, mut usage) = (Vec::new(), json!({}));
    for event in events {
        match event {
            ModelEvent::Text(more) => text.push_str(&more),
            ModelEvent::Thinking(more) => thinking.push_str(&more),
            ModelEvent::Refusal(more) => refusal.push_str(&more),
            ModelEvent::Call { call, .. } => {
                let arguments = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
                calls.push(json!({ "id": call.id, "name": call.name, "arguments": arguments }));
            }
            ModelEvent::Usage(Usage { input, output, cache_read, cache_write, reasoning }) => {
                usage = json!({ "input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write, "reasoning": reasoning });
            }
            ModelEvent::End(reason) => stop = reason.as_str(),
            ModelEvent::Native(_)
            | ModelEvent::Opaque(_)
            | ModelEvent::CallStart { .. }
            | ModelEvent::CallArguments { .. } => {}
        }
    }
    let mut parse = json!({ "text": text, "thinking": thinking, "tool_calls": calls, "stop": stop, "usage": usage });
    if !refusal.is_empty() {
        parse["refusal"] = refusal.into();
    }
    if let Err(error) = result {
        parse["stop"] = if error.class == ErrorClass::Cut { "cut" } else { "error" }.into();
        parse["error_class"] = error.class.as_str().into();
        parse["error"] = error.message.into();
    }
    parse
}
