//! What each wire bears in an answer, as short as it can be said; and what all wires have alike: headers, connections, lists of models.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate_agent::provider::{
    Api, Endpoint, ErrorClass, ListedModel, ModelSetup, Request, ThinkingLevel, connect, list_models, parse_recording,
};

use crate::provider::{Reply, Server, ask, request, user};

/// Far above what a busy machine needs for an answer on loopback.
const PATIENCE: Duration = Duration::from_secs(20);

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// What is expected of a parse; everything else is not looked at.
fn holds(api: Api, what: &str, body: &str, want: &Value) {
    let got = parse_recording(api.as_str(), 200, body.as_bytes());
    for (key, value) in want.as_object().unwrap() {
        assert_eq!(got[key], *value, "{}, {what}: {key} in {got}", api.as_str());
    }
}

#[test]
fn responses_bears_what_servers_do() {
    let added =
        |place: u64, item: Value| json!({ "type": "response.output_item.added", "output_index": place, "item": item });
    let done =
        |place: u64, item: Value| json!({ "type": "response.output_item.done", "output_index": place, "item": item });
    let call = |id: &str, arguments: &str| json!({ "type": "function_call", "id": id, "call_id": "c", "name": "a", "arguments": arguments });
    let said = |id: &str, text: &str| json!({ "type": "message", "id": id, "content": [{ "type": "output_text", "text": text }] });
    let text = |id: &str, delta: &str| json!({ "type": "response.output_text.delta", "item_id": id, "output_index": 0, "delta": delta });
    let completed = json!({ "type": "response.completed", "response": { "status": "completed" } });
    let incomplete = json!({ "type": "response.incomplete", "response": { "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" } } });
    let one = |arguments: Value| json!([{ "id": "c", "name": "a", "arguments": arguments }]);
    let cases = [
        (
            "ids that change on the way",
            vec![
                added(0, call("i1", "")),
                json!({ "type": "response.function_call_arguments.delta", "item_id": "i2", "output_index": 0, "delta": "{\"x\":" }),
                done(0, call("i3", "{\"x\":1}")),
                completed.clone(),
            ],
            json!({ "stop": "tool_calls", "tool_calls": one(json!({ "x": 1 })) }),
        ),
        (
            "arguments that were cut",
            vec![added(0, call("i", "")), done(0, call("i", "{\"x\":")), incomplete.clone()],
            json!({ "stop": "max_tokens", "tool_calls": one(Value::Null) }),
        ),
        (
            "text that is another in the end",
            vec![
                added(0, json!({ "type": "message", "id": "m" })),
                text("m", "Hel"),
                text("m", "o"),
                done(0, said("m", "Hello")),
                completed.clone(),
            ],
            json!({ "stop": "end", "text": "Hello" }),
        ),
        (
            "nothing but the last event",
            vec![
                json!({ "type": "response.completed", "response": { "status": "completed", "output": [said("m", "Hi"), call("f", "{}")] } }),
            ],
            json!({ "stop": "tool_calls", "text": "Hi", "tool_calls": one(json!({})) }),
        ),
        (
            "unknown events and items",
            vec![
                json!({ "type": "response.dreaming" }),
                added(0, json!({ "type": "dream", "id": "d" })),
                done(0, json!({ "type": "dream", "id": "d" })),
                completed.clone(),
            ],
            json!({ "stop": "end", "text": "", "tool_calls": [] }),
        ),
        (
            "an error, then the failure",
            vec![
                json!({ "type": "error", "code": "rate_limit_exceeded", "message": "slow" }),
                json!({ "type": "response.failed", "response": { "error": { "code": "server_error" } } }),
            ],
            json!({ "stop": "error", "error_class": "rate_limit" }),
        ),
        (
            "the failure alone",
            vec![
                done(0, call("i", "{}")),
                json!({ "type": "response.failed", "response": { "status": "failed", "error": { "code": "server_error", "message": "x" } } }),
            ],
            json!({ "stop": "error", "error_class": "server", "tool_calls": [] }),
        ),
        ("no end", vec![done(0, call("i", "{}"))], json!({ "stop": "cut", "tool_calls": [] })),
    ];
    for (what, events, want) in cases {
        holds(Api::OpenaiResponses, what, &stream(&events), &want);
    }
    let plain = json!({ "object": "response", "status": "completed", "output": [said("m", "Hi")], "usage": { "input_tokens": 3 } });
    holds(Api::OpenaiResponses, "a plain answer", &plain.to_string(), &json!({ "stop": "end", "text": "Hi" }));
}

#[test]
fn messages_bears_what_servers_do() {
    let start = |id: &str| json!({ "type": "message_start", "message": { "id": id, "usage": { "input_tokens": 1, "cache_read_input_tokens": 2 } } });
    let block = |block: Value| json!({ "type": "content_block_start", "index": 0, "content_block": block });
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let stop = || json!({ "type": "content_block_stop", "index": 0 });
    let end = |reason: &str| json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 4 } });
    let last = || json!({ "type": "message_stop" });
    let tool = || block(json!({ "type": "tool_use", "id": "t", "name": "a", "input": {} }));
    let more = |json: &str| delta(json!({ "type": "input_json_delta", "partial_json": json }));
    let text = |text: &str| delta(json!({ "type": "text_delta", "text": text }));
    let one = |arguments: Value| json!([{ "id": "t", "name": "a", "arguments": arguments }]);
    let cases = [
        (
            "redacted reasoning",
            vec![
                start("m"),
                block(json!({ "type": "redacted_thinking", "data": "D" })),
                stop(),
                block(json!({ "type": "text", "text": "" })),
                text("Hi"),
                stop(),
                end("end_turn"),
                last(),
            ],
            json!({ "stop": "end", "text": "Hi", "thinking": "", "usage": { "input": 3, "output": 4, "cache_read": 2, "cache_write": 0, "reasoning": 0 } }),
        ),
        (
            "arguments that were cut",
            vec![start("m"), tool(), more(""), more("{\"x\""), stop(), end("max_tokens"), last()],
            json!({ "stop": "max_tokens", "tool_calls": one(Value::Null) }),
        ),
        (
            "an error in the middle",
            vec![
                start("m"),
                tool(),
                more("{}"),
                stop(),
                json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }),
            ],
            json!({ "stop": "error", "error_class": "overloaded", "tool_calls": [] }),
        ),
        (
            "another message in the middle",
            vec![
                start("m"),
                block(json!({ "type": "text" })),
                text("void"),
                tool(),
                more("{"),
                start("n"),
                tool(),
                more("{}"),
                stop(),
                end("tool_use"),
                last(),
            ],
            json!({ "stop": "tool_calls", "text": "", "tool_calls": one(json!({})) }),
        ),
        (
            "the same message twice",
            vec![
                start("m"),
                block(json!({ "type": "text" })),
                text("Hi"),
                start("m"),
                text("!"),
                stop(),
                end("end_turn"),
                last(),
            ],
            json!({ "stop": "end", "text": "Hi!" }),
        ),
        (
            "unknown events and blocks",
            vec![
                start("m"),
                json!({ "type": "dream" }),
                block(json!({ "type": "dream" })),
                delta(json!({ "type": "dream_delta", "dream": 1 })),
                stop(),
                end("end_turn"),
                last(),
            ],
            json!({ "stop": "end", "text": "" }),
        ),
        (
            "an end without a reason",
            vec![start("m"), tool(), more("{}"), stop(), last()],
            json!({ "stop": "cut", "tool_calls": [] }),
        ),
    ];
    for (what, events, want) in cases {
        holds(Api::AnthropicMessages, what, &stream(&events), &want);
        let closed = format!("{}data: [DONE]\n\n", stream(&events));
        holds(Api::AnthropicMessages, "with another wire's end marker", &closed, &want);
    }
}

#[test]
fn gemini_bears_what_servers_do() {
    let chunk = |parts: Value| json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }] });
    let end = |parts: Value, reason: &str| json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": reason }] });
    let call = |call: Value| json!([{ "functionCall": call }]);
    let piece =
        |path: &str, value: Value, more: bool| json!({ "jsonPath": path, "stringValue": value, "willContinue": more });
    let one = |arguments: Value| json!([{ "id": "call00001", "name": "a", "arguments": arguments }]);
    let cases = [
        (
            "arguments in pieces",
            vec![
                chunk(call(json!({ "name": "a", "willContinue": true }))),
                chunk(call(json!({ "partialArgs": [piece("$.x[0].y", json!("é"), true)], "willContinue": true }))),
                chunk(call(json!({ "partialArgs": [piece("$.x[0].y", json!("€"), false)], "willContinue": true }))),
                chunk(call(json!({}))),
                end(json!([{ "text": "" }]), "STOP"),
            ],
            json!({ "stop": "tool_calls", "tool_calls": one(json!({ "x": [{ "y": "é€" }] })) }),
        ),
        (
            "numbers as they were written",
            vec![end(call(json!({ "name": "a", "args": { "n": 12_345_678_901_234_567_u64 } })), "STOP")],
            json!({ "stop": "tool_calls", "tool_calls": one(json!({ "n": 12_345_678_901_234_567_u64 })) }),
        ),
        (
            "an end that was none",
            vec![end(json!([{ "text": "A" }]), "STOP"), end(json!([{ "text": "B" }]), "MAX_TOKENS")],
            json!({ "stop": "max_tokens", "text": "AB" }),
        ),
        (
            "nothing at all",
            vec![end(json!([{ "text": "" }]), "STOP")],
            json!({ "stop": "error", "error_class": "server" }),
        ),
        (
            "a malformed call",
            vec![end(json!([]), "MALFORMED_FUNCTION_CALL")],
            json!({ "stop": "error", "error_class": "tool_use_failed" }),
        ),
        (
            "a blocked prompt",
            vec![json!({ "promptFeedback": { "blockReason": "SAFETY" } })],
            json!({ "stop": "filtered" }),
        ),
        (
            "an error in the middle",
            vec![
                chunk(call(json!({ "name": "a", "args": {} }))),
                json!({ "error": { "code": 503, "status": "UNAVAILABLE", "message": "busy" } }),
            ],
            json!({ "stop": "error", "error_class": "overloaded", "tool_calls": [] }),
        ),
        ("no end", vec![chunk(call(json!({ "name": "a", "args": {} })))], json!({ "stop": "cut", "tool_calls": [] })),
    ];
    for (what, chunks, want) in cases {
        holds(Api::GoogleGenerateContent, what, &stream(&chunks), &want);
        holds(Api::GoogleGenerateContent, &format!("{what}, as a list"), &json!(chunks).to_string(), &want);
    }
}

/// A short good answer on each wire, the header that carries the key, and the path.
fn answers() -> [(Api, Value, &'static str, &'static str); 4] {
    [
        (
            Api::OpenaiChat,
            json!({ "choices": [{ "delta": { "content": "Hi" }, "finish_reason": "stop" }] }),
            "authorization: bearer sk-test-0123456789",
            "post /v1/chat/completions ",
        ),
        (
            Api::OpenaiResponses,
            json!({ "type": "response.completed", "response": { "status": "completed", "output": [] } }),
            "authorization: bearer sk-test-0123456789",
            "post /v1/responses ",
        ),
        (
            Api::AnthropicMessages,
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            "x-api-key: sk-test-0123456789\r\n",
            "post /v1/messages ",
        ),
        (
            Api::GoogleGenerateContent,
            json!({ "candidates": [{ "content": { "parts": [{ "text": "Hi" }] }, "finishReason": "STOP" }] }),
            "x-goog-api-key: sk-test-0123456789",
            "post /v1/models/m-1:streamgeneratecontent?alt=sse ",
        ),
    ]
}

#[tokio::test]
async fn every_wire_goes_where_it_should_and_keeps_its_connection() {
    for (api, answer, key, path) in answers() {
        let server = Server::start(vec![Reply::stream(stream(&[answer])); 3]);
        let provider = server.provider_of(api);
        for turn in 1..=3 {
            let (events, error) = ask(&provider, &[user("hi")]).await;
            assert_eq!(error, None, "{} turn {turn}: {events:?}", api.as_str());
        }
        let seen = server.seen();
        assert!(seen.iter().all(|seen| seen.connection == 1), "{}: one connection for all turns", api.as_str());
        assert!(seen[0].head.starts_with(path), "{}", seen[0].head);
        assert!(format!("{}\r\n", seen[0].head).contains(key), "{}", seen[0].head);
        assert_eq!(seen[0].head.contains("anthropic-version: 2023-06-01"), api == Api::AnthropicMessages);
        assert_eq!(
            seen[0].head.contains("authorization: bearer"),
            api != Api::GoogleGenerateContent,
            "{}",
            seen[0].head
        );
    }
}

/// What follows the conversation in a request.
fn settings(api: Api, base_url: &str, model: &str, level: Option<ThinkingLevel>, max_tokens: Option<u64>) -> Value {
    let endpoint = Endpoint { base_url: base_url.into(), ..Endpoint::default() };
    let provider = connect(ModelSetup::new(api, "test", model, endpoint)).unwrap();
    let history = [user("hi")];
    let body = provider.written(&Request { thinking: level, max_tokens, ..request(&history) });
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    let rest = body.as_object_mut().unwrap();
    for known in [
        "model",
        "stream",
        "stream_options",
        "messages",
        "input",
        "contents",
        "system",
        "instructions",
        "systemInstruction",
    ] {
        rest.remove(known);
    }
    body
}

#[test]
fn what_a_caller_wants_is_said_in_each_providers_words() {
    use ThinkingLevel::{High, Low, Max, Medium, Off, Xhigh};
    let (chat, responses) = (Api::OpenaiChat, Api::OpenaiResponses);
    let (messages, gemini) = (Api::AnthropicMessages, Api::GoogleGenerateContent);
    let (openai, anthropic, local) =
        ("https://api.openai.com/v1", "https://api.anthropic.com", "http://127.0.0.1:1/v1");
    let own = json!({ "store": false, "include": ["reasoning.encrypted_content"] });
    let with = |base: &Value, more: Value| {
        let mut all = base.as_object().unwrap().clone();
        all.extend(more.as_object().unwrap().clone());
        Value::Object(all)
    };
    let cached = json!({ "cache_control": { "type": "ephemeral" } });
    let cases = [
        (chat, local, "m", None, None, json!({})),
        (chat, local, "m", Some(Low), Some(9), json!({ "max_tokens": 9, "reasoning_effort": "low" })),
        (chat, openai, "gpt-5", Some(Max), Some(9), json!({ "max_completion_tokens": 9, "reasoning_effort": "xhigh" })),
        (chat, "https://openrouter.ai/api/v1", "m", Some(Off), None, json!({ "reasoning": { "enabled": false } })),
        (chat, "https://api.deepseek.com", "m", Some(High), None, json!({ "thinking": { "type": "enabled" } })),
        (
            chat,
            "https://api.z.ai/v4",
            "glm-4.7",
            Some(High),
            None,
            json!({ "thinking": { "type": "enabled", "clear_thinking": false } }),
        ),
        (responses, local, "m", None, Some(9), json!({ "max_output_tokens": 16 })),
        (
            responses,
            openai,
            "m",
            Some(High),
            None,
            with(&own, json!({ "reasoning": { "effort": "high", "summary": "auto" } })),
        ),
        (messages, local, "m", None, None, json!({ "max_tokens": 32_000 })),
        (
            messages,
            anthropic,
            "claude-3-haiku-20240307",
            Some(High),
            None,
            with(&cached, json!({ "max_tokens": 4_096 })),
        ),
        (
            messages,
            anthropic,
            "claude-opus-4-6",
            Some(Xhigh),
            None,
            with(
                &cached,
                json!({ "max_tokens": 32_000, "thinking": { "type": "adaptive" }, "output_config": { "effort": "high" } }),
            ),
        ),
        (
            messages,
            local,
            "claude-haiku-4-5",
            Some(Medium),
            Some(2_000),
            json!({ "max_tokens": 2_000, "thinking": { "type": "enabled", "budget_tokens": 1_999 } }),
        ),
        (
            messages,
            local,
            "claude-haiku-4-5",
            Some(Off),
            None,
            json!({ "max_tokens": 32_000, "thinking": { "type": "disabled" } }),
        ),
        (gemini, local, "gemini-2.5-flash", None, None, json!({})),
        (
            gemini,
            local,
            "gemini-2.5-flash",
            Some(Off),
            Some(9),
            json!({ "generationConfig": { "maxOutputTokens": 9, "thinkingConfig": { "thinkingBudget": 0, "includeThoughts": false } } }),
        ),
        (
            gemini,
            local,
            "gemini-3-pro-preview",
            Some(Low),
            None,
            json!({ "generationConfig": { "thinkingConfig": { "thinkingLevel": "low", "includeThoughts": true } } }),
        ),
    ];
    for (api, base_url, model, level, max_tokens, want) in cases {
        assert_eq!(settings(api, base_url, model, level, max_tokens), want, "{} {model} at {base_url}", api.as_str());
    }
}

#[tokio::test]
async fn models_are_listed_on_every_wire() {
    let listed = |id: &str, context_window| ListedModel { id: id.into(), context_window };
    let cases = [
        (
            Api::OpenaiChat,
            json!({ "data": [{ "id": "a", "meta": { "n_ctx_train": 8 } }, { "id": "b", "context_length": 9 }] }),
            vec![listed("a", Some(8)), listed("b", Some(9))],
        ),
        (Api::OpenaiResponses, json!({ "object": "list", "data": [{ "id": "a" }] }), vec![listed("a", None)]),
        (
            Api::AnthropicMessages,
            json!({ "data": [{ "type": "model", "id": "c" }], "has_more": false }),
            vec![listed("c", None)],
        ),
        (
            Api::GoogleGenerateContent,
            json!({ "models": [{ "name": "models/g", "inputTokenLimit": 5, "supportedGenerationMethods": ["generateContent"] }, { "name": "models/embed", "supportedGenerationMethods": ["embedContent"] }] }),
            vec![listed("g", Some(5))],
        ),
    ];
    for (api, body, want) in cases {
        let server =
            Server::start(vec![Reply::stream(body.to_string()), Reply::status(401, "", "{}"), Reply::stream("{}")]);
        let endpoint = Endpoint { base_url: server.base.clone(), key: Some("sk-1".into()), proxy: None };
        assert_eq!(list_models(api, &endpoint, PATIENCE).await, Ok(want), "{}", api.as_str());
        assert!(server.seen()[0].head.starts_with("get /v1/models"), "{}", server.seen()[0].head);
        for class in [ErrorClass::Auth, ErrorClass::Malformed] {
            assert_eq!(list_models(api, &endpoint, PATIENCE).await.map_err(|error| error.class), Err(class));
        }
    }
}
