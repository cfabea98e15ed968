//! The neutral parse of a recorded answer: what a stream comes to, without a connection.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    Api, ErrorClass, ModelEvent, ModelId, ProviderError, Usage, Withdrawn,
    calls::Calls,
    chat::Chat,
    gemini::Gemini,
    http::{Body, Progress, Wire},
    messages::Messages,
    native::Origin,
    responses::Responses,
};

/// Reads a recorded answer and gives its neutral parse: text, thinking, calls, stop, usage and the
/// class of an error. A call whose arguments are no JSON has `null` for them.
pub fn parse_recording(api: &str, status: u16, bytes: &[u8]) -> Value {
    parse_pieces(api, status, &[bytes])
}

/// The same, of an answer that came in several reads.
pub fn parse_pieces(api: &str, status: u16, pieces: &[&[u8]]) -> Value {
    let mut out = VecDeque::new();
    let result = match Api::ALL.into_iter().find(|known| known.as_str() == api) {
        _ if !(200..300).contains(&status) => Err(ProviderError::from_body(Some(status), &pieces.concat())),
        None => Err(ProviderError::new(ErrorClass::InvalidRequest, format!("no reader for the api {api}"))),
        Some(api) => {
            let id = ModelId { provider: "recording".into(), model: "recording".into() };
            let (calls, origin) = (Calls::default(), Origin::new(api, id));
            match api {
                Api::OpenaiChat => read_whole(Chat::new(calls, origin), pieces, &mut out),
                Api::OpenaiResponses => read_whole(Responses::new(calls, origin), pieces, &mut out),
                Api::AnthropicMessages => read_whole(Messages::new(calls, origin), pieces, &mut out),
                Api::GoogleGenerateContent => read_whole(Gemini::new(calls, origin), pieces, &mut out),
            }
        }
    };
    neutral(out, result)
}

fn read_whole(wire: impl Wire, pieces: &[&[u8]], out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
    let mut body = Body::new(wire);
    for piece in pieces {
        if body.push(piece, out)? == Progress::Done {
            break;
        }
    }
    body.finish(out)
}

fn neutral(events: impl IntoIterator<Item = ModelEvent>, result: Result<(), ProviderError>) -> Value {
    let (mut said, mut stop) = ([const { String::new() }; 3], "error");
    let (mut calls, mut usage) = (Vec::new(), json!({}));
    // Which of the three stands open, and its length before.
    let mut open: Option<(usize, usize)> = None;
    for event in events {
        let part = match &event {
            ModelEvent::Text(_) => Some(0),
            ModelEvent::Thinking(_) => Some(1),
            ModelEvent::Refusal(_) => Some(2),
            _ => None,
        };
        match event {
            ModelEvent::Text(more) | ModelEvent::Thinking(more) | ModelEvent::Refusal(more) => {
                let part = part.unwrap_or_default();
                open = open.filter(|open| open.0 == part).or(Some((part, said[part].len())));
                said[part].push_str(&more);
                continue;
            }
            ModelEvent::Withdrawn(Withdrawn::Block) => {
                if let Some((part, length)) = open {
                    said[part].truncate(length);
                }
            }
            ModelEvent::Withdrawn(Withdrawn::Answer) => said = Default::default(),
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
        open = None;
    }
    let [text, thinking, refusal] = said;
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
