//! From a recorded answer to the next request: what the provider must get back stands in it.

use serde_json::{Value, json};
use toolgate_agent::provider::{Api, ModelEvent, Withdrawn};
use toolgate_core::message::ModelMessage;

use crate::{
    provider::{Reply, Server, collect, message, model_message, request, result, user},
    recordings::recordings,
};

/// The messages that an answer becomes, as a session makes them.
fn messages_of(events: Vec<ModelEvent>) -> Vec<ModelMessage> {
    let mut blocks: Vec<(Value, Option<String>)> = Vec::new();
    let mut open = "";
    for event in events {
        let (kind, more) = match event {
            ModelEvent::Text(more) | ModelEvent::Refusal(more) => ("text", more),
            ModelEvent::Thinking(more) => ("thinking", more),
            ModelEvent::Native(own) if open.is_empty() => panic!("{own} belongs to no block"),
            ModelEvent::Native(own) => {
                blocks.last_mut().unwrap().1 = Some(own.to_string());
                open = "";
                continue;
            }
            ModelEvent::Opaque(own) => {
                blocks.push((json!({ "type": "thinking", "thinking": "" }), Some(own.to_string())));
                open = "";
                continue;
            }
            ModelEvent::CallStart { index, .. } => {
                blocks.push((json!({ "place": index }), None));
                open = "";
                continue;
            }
            ModelEvent::Call { index, call, native, .. } => {
                let place = blocks.iter_mut().find(|(block, _)| block["place"] == index).unwrap();
                let value = json!({ "type": "tool_call", "name": call.name, "arguments": call.arguments, "tool_call_id": call.id });
                *place = (value, native.map(|own| own.to_string()));
                continue;
            }
            ModelEvent::Withdrawn(Withdrawn::Answer) => {
                blocks.clear();
                open = "";
                continue;
            }
            ModelEvent::Withdrawn(Withdrawn::Block) => {
                blocks.pop();
                open = "";
                continue;
            }
            ModelEvent::CallArguments { .. } | ModelEvent::Usage(_) | ModelEvent::End(_) => continue,
        };
        if open != kind {
            blocks.push((json!({ "type": kind, "role": "assistant", kind: "" }), None));
            open = kind;
        }
        let text = &mut blocks.last_mut().unwrap().0[kind];
        *text = format!("{}{more}", text.as_str().unwrap()).into();
    }
    let whole = |(mut block, own): (Value, Option<String>)| {
        // The bytes of what the provider gave may not pass through a parser.
        block["fidelity"] = "HERE".into();
        let line = json!({ "timestamp": "t", "type": "model_msg", "payload": block }).to_string();
        model_message(&line.replace("\"HERE\"", own.as_deref().unwrap_or("null")))
    };
    blocks.into_iter().map(whole).collect()
}

/// All texts of a body's members with this name.
pub fn texts_of(body: &Value, name: &str, found: &mut Vec<String>) {
    match body {
        Value::Object(members) => {
            for (own, value) in members {
                match value.as_str() {
                    Some(text) if own == name && !text.is_empty() => found.push(text.to_owned()),
                    _ => texts_of(value, name, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| texts_of(value, name, found)),
        _ => {}
    }
}

#[tokio::test]
async fn what_an_answer_wants_back_stands_in_the_next_request() {
    let (mut seen, mut failures) = (0, Vec::new());
    for recording in recordings() {
        let replay = &recording.expect["reasoning_replay"];
        // A failed answer does not go back, and neither does reasoning that led to nothing.
        let led_to_nothing = recording.expect["text"] == "" && recording.expect["tool_calls"] == json!([]);
        if !replay.is_object() || recording.expect["stop"] == "error" || led_to_nothing {
            continue;
        }
        let api = Api::ALL.into_iter().find(|api| api.as_str() == recording.api).unwrap();
        let server = Server::start(vec![Reply::stream(recording.body)]);
        let provider = server.provider_of(api);
        let mut history = vec![user("hi")];
        let (events, error) = collect(&mut provider.stream(request(&history)).await.unwrap()).await;
        assert_eq!(error, None, "{}", recording.name);
        let said = messages_of(events);
        let calls = said.iter().filter_map(|message| match message {
            ModelMessage::ToolCall(call) => Some(result(&call.tool_call_id, "done", &[])),
            _ => None,
        });
        let results: Vec<ModelMessage> = calls.collect();
        history.extend(said);
        history.extend(results);
        history.push(message(json!({ "type": "text", "role": "user", "text": "go on" })));
        let body: Value = serde_json::from_slice(&provider.written(&request(&history))).unwrap();
        for (figure, name) in [
            ("signature", if api == Api::GoogleGenerateContent { "thoughtSignature" } else { "signature" }),
            ("encrypted", "encrypted_content"),
            ("redacted", "data"),
        ] {
            let want = replay[figure].as_u64().unwrap_or(0);
            let mut found = Vec::new();
            texts_of(&body, name, &mut found);
            if (found.len() as u64) < want {
                failures.push(format!("{}: {} of {want} {name} in {body}", recording.name, found.len()));
            }
            seen += want;
        }
    }
    assert!(seen >= 12, "{seen} things that must go back");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
