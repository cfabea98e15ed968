//! Whatever stands in a history, the request that is made of it is one that its provider takes.

use serde_json::{Value, json};
use toolgate_agent::provider::Api;
use toolgate_core::message::ModelMessage;

use crate::{
    provider::{assistant, call, message, model_message, result, user},
    requests::{Asked, PROVIDER, items_of, with},
};

const PNG: &str = concat!("data:image/png;base64,", pixel!());

/// Everything that a history can hold and a provider refuses.
fn odd_history() -> Vec<ModelMessage> {
    vec![
        assistant("Hello."),
        message(json!({ "type": "thinking", "thinking": "hm", "fidelity": { "signature": "of another program" } })),
        user("  "),
        user("look"),
        result("nobody", "stray", &[]),
        assistant("So. "),
        call("functions.read:0", "read", "{\"n\":1.0}"),
        call("functions.read:0#2", "mcp.read it", "{\"cut"),
        call("gone", "", "[]"),
        user("stop"),
        result("functions.read:0#2", "two", &[PNG, "data:image/bmp;base64,Qk06AAAA"]),
        result("functions.read:0", "one", &[]),
        result("functions.read:0", "one again", &[]),
        message(json!({ "type": "thinking", "thinking": "only thought" })),
        user("and now?"),
        message(json!({ "type": "image_url", "image_url": "https://x.test/a.png" })),
        message(json!({ "type": "inline_data", "mime_type": "audio/wav", "data": "AA" })),
        call("last", "ls", ""),
    ]
}

/// Ids that the session gave where the provider takes no such characters.
const PLAIN: [&str; 2] = ["call_5b4c7fc9f36ea68e", "call_7e942d1067ddc3bf"];

#[test]
fn no_history_spoils_a_request() {
    let note = "[an image, not shown: Unsupported image type \"BMP\": only png, jpeg, gif and webp are supported]";
    let (no_result, two) = ("[no result: the call did not come to an end]", format!("two\n{note}"));
    let wav = "[audio/wav data, not shown]";
    let chat = json!([
        { "role": "assistant", "content": "Hello." },
        { "role": "user", "content": "look" },
        { "role": "assistant", "content": "So. ", "tool_calls": [
            { "id": "functions.read:0", "type": "function", "function": { "name": "read", "arguments": "{\"n\":1.0}" } },
            { "id": "functions.read:0_2", "type": "function", "function": { "name": "mcp_read_it", "arguments": "{}" } },
            { "id": "gone", "type": "function", "function": { "name": "nameless", "arguments": "{}" } },
        ] },
        { "role": "tool", "tool_call_id": "functions.read:0", "content": "one" },
        { "role": "tool", "tool_call_id": "functions.read:0_2", "content": two },
        { "role": "tool", "tool_call_id": "gone", "content": no_result },
        { "role": "user", "content": [
            { "type": "text", "text": "The images of the tool results above." },
            { "type": "image_url", "image_url": { "url": PNG } },
            { "type": "text", "text": "stop" },
            { "type": "text", "text": "and now?" },
            { "type": "image_url", "image_url": { "url": "https://x.test/a.png" } },
            { "type": "text", "text": wav },
        ] },
        { "role": "assistant", "content": null, "tool_calls": [
            { "id": "last", "type": "function", "function": { "name": "ls", "arguments": "{}" } },
        ] },
        { "role": "tool", "tool_call_id": "last", "content": no_result },
    ]);
    let text = |text: &str| json!({ "type": "input_text", "text": text });
    let said = |text: &str| json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] });
    let function = |id: &str, name: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments });
    let output = |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
    let responses = json!([
        said("Hello."),
        { "type": "message", "role": "user", "content": [text("look")] },
        said("So. "),
        function(PLAIN[0], "read", "{\"n\":1.0}"),
        function(PLAIN[1], "mcp_read_it", "{}"),
        function("gone", "nameless", "{}"),
        output(PLAIN[0], json!("one")),
        output(PLAIN[1], json!([text(&two), { "type": "input_image", "detail": "auto", "image_url": PNG }])),
        output("gone", json!(no_result)),
        { "type": "message", "role": "user", "content": [
            text("stop"), text("and now?"), { "type": "input_image", "detail": "auto", "image_url": "https://x.test/a.png" }, text(wav),
        ] },
        function("last", "ls", "{}"),
        output("last", json!(no_result)),
    ]);
    let text = |text: &str| json!({ "type": "text", "text": text });
    let used =
        |id: &str, name: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    let failed = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": no_result, "is_error": true });
    let image = |source: Value| json!({ "type": "image", "source": source });
    let messages = json!([
        { "role": "user", "content": [text("[the conversation goes on]")] },
        { "role": "assistant", "content": [text("Hello.")] },
        { "role": "user", "content": [text("look")] },
        { "role": "assistant", "content": [
            text("So. "), used(PLAIN[0], "read", json!({ "n": 1.0 })), used(PLAIN[1], "mcp_read_it", json!({})), used("gone", "nameless", json!({})),
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": PLAIN[0], "content": "one" },
            { "type": "tool_result", "tool_use_id": PLAIN[1], "content": [
                text(&two), image(json!({ "type": "base64", "media_type": "image/png", "data": pixel!() })),
            ] },
            failed("gone"), text("stop"), text("and now?"), image(json!({ "type": "url", "url": "https://x.test/a.png" })), text(wav),
        ] },
        { "role": "assistant", "content": [used("last", "ls", json!({}))] },
        { "role": "user", "content": [failed("last")] },
    ]);
    let text = |text: &str| json!({ "text": text });
    let function = |name: &str, args: Value| json!({ "functionCall": { "name": name, "args": args } });
    let output = |name: &str, response: Value| json!({ "functionResponse": { "name": name, "response": response } });
    let mut first = function("read", json!({ "n": 1.0 }));
    first["thoughtSignature"] = "skip_thought_signature_validator".into();
    let mut last = function("ls", json!({}));
    last["thoughtSignature"] = "skip_thought_signature_validator".into();
    let mut shown = output("mcp_read_it", json!({ "output": two }));
    shown["functionResponse"]["parts"] = json!([{ "inlineData": { "mimeType": "image/png", "data": pixel!() } }]);
    let gemini = json!([
        { "role": "user", "parts": [text("[the conversation goes on]")] },
        { "role": "model", "parts": [text("Hello.")] },
        { "role": "user", "parts": [text("look")] },
        { "role": "model", "parts": [text("So. "), first, function("mcp_read_it", json!({})), function("nameless", json!({}))] },
        { "role": "user", "parts": [
            output("read", json!({ "output": "one" })), shown, output("nameless", json!({ "error": no_result })),
            text("stop"), text("and now?"), text("[an image at https://x.test/a.png]"), text(wav),
        ] },
        { "role": "model", "parts": [last] },
        { "role": "user", "parts": [output("ls", json!({ "error": no_result }))] },
    ]);
    for (api, want) in Api::ALL.into_iter().zip([chat, responses, messages, gemini]) {
        let got = Asked::of(api, "gemini-3-x").written(&odd_history());
        let pairs = want.as_array().unwrap().iter().zip(got.as_array().unwrap());
        pairs.enumerate().for_each(|(at, (want, got))| assert_eq!(got, want, "{} at {at}", api.as_str()));
        assert_eq!(got, want, "{}", api.as_str());
    }
}

/// Whatever a conversation is written from, a writer that has seen its beginning writes the same bytes as one that has not.
#[test]
fn what_is_kept_changes_nothing() {
    let mut history = odd_history();
    history.extend([result("last", "files", &[PNG]), assistant(""), user("go on"), assistant("Done."), user("thanks")]);
    for api in Api::ALL {
        let asked = Asked::of(api, "m");
        let growing = asked.provider();
        for count in (0..=history.len()).chain([3, 9, history.len()]) {
            let fresh = asked.provider().written(&asked.request(&history[..count]));
            let kept = growing.written(&asked.request(&history[..count]));
            let [fresh, kept] = [fresh, kept].map(|body| String::from_utf8(body).unwrap());
            assert_eq!(kept, fresh, "{} after {count} messages", api.as_str());
        }
    }
}

#[test]
fn a_model_without_sight_is_told_of_images() {
    let history = [
        user("look"),
        message(json!({ "type": "image_url", "image_url": PNG })),
        call("a", "read", "{}"),
        result("a", "one", &[PNG, PNG]),
    ];
    for api in Api::ALL {
        let body = Asked { vision: false, ..Asked::of(api, "m") }.written(&history).to_string();
        assert!(!body.contains(pixel!()) && !body.contains("base64"), "{body}");
        assert_eq!(body.matches("[an image, not shown: this model sees none]").count(), 3, "{body}");
    }
}

#[test]
fn what_a_model_gave_goes_back_to_it_in_its_place_and_to_no_other() {
    let reasoning = r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E","n":1.0e1}"#;
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"S","n":1.0e1}"#;
    let redacted = r#"{"type":"redacted_thinking","data":"D"}"#;
    let search = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{"n":1.0e1}}"#;
    let signed = r#"{"functionCall":{"name":"ls","args":{"n":1.0e1},"id":"g1"},"thoughtSignature":"T"}"#;
    let empty = r#"{"text":"","thoughtSignature":"U"}"#;
    let cases: [(Api, &[&str], &str, &[&str]); 5] = [
        (
            Api::OpenaiResponses,
            &[reasoning],
            r#"{"id":"fc_1"}"#,
            &[reasoning, r#""call_id":"a","name":"ls","arguments":"{}","id":"fc_1""#],
        ),
        (
            Api::AnthropicMessages,
            &[thinking, redacted, search],
            r#"{"caller":{"type":"direct"}}"#,
            &[thinking, redacted, search, r#""input":{},"caller":{"type":"direct"}}"#],
        ),
        (Api::GoogleGenerateContent, &[empty], signed, &[empty, signed, r#""name":"ls","id":"g1""#]),
        (
            Api::OpenaiChat,
            &[r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"D","index":0}]}"#],
            "{}",
            &[r#""reasoning_details":[{"type":"reasoning.encrypted","data":"D","index":0}]"#],
        ),
        (
            Api::OpenaiChat,
            &[r#"{"field":"part"}"#],
            "{}",
            &[r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"shown"}]}]"#],
        ),
    ];
    for (api, blocks, with_call, want) in cases {
        let at = |model: &str| {
            let kept = |native: &str| {
                format!(
                    r#"{{"api":"{}","provider":"{PROVIDER}","model":"m-1-20250101","native":{native}}}"#,
                    api.as_str()
                )
            };
            let line = |rest: &str, native: &str| {
                let line = format!(
                    r#"{{"timestamp":"t","type":"model_msg","payload":{{{rest},"fidelity":{}}}}}"#,
                    kept(native)
                );
                model_message(&line)
            };
            let mut history = vec![user("look")];
            history.extend(blocks.iter().map(|native| line(r#""type":"thinking","thinking":"shown""#, native)));
            history.push(line(r#""type":"tool_call","name":"ls","arguments":"{}","tool_call_id":"a""#, with_call));
            history.push(result("a", "one", &[]));
            let asked = Asked::of(api, model);
            String::from_utf8(asked.provider().written(&asked.request(&history))).unwrap()
        };
        let (own, other) = (at("m-1"), at("m-2"));
        let mut rest = own.as_str();
        for piece in want {
            let found = rest.find(piece).unwrap_or_else(|| panic!("{piece} is not in its place in {own}"));
            rest = &rest[found + piece.len()..];
            assert!(!other.contains(piece), "{piece} went to another model: {other}");
        }
        assert!(!other.contains("shown") && other.contains("ls"), "the call stays and the reasoning goes: {other}");
    }
}

#[test]
fn reasoning_stands_before_its_own_item_or_nowhere() {
    let asked = Asked { base_url: "https://api.openai.com/v1", ..Asked::of(Api::OpenaiResponses, "m") };
    let reasoning = |id: &str| {
        let native = json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": "E" });
        with(&asked, &native, json!({ "type": "thinking", "thinking": "" }))
    };
    let own = |id: &str| {
        with(
            &asked,
            &json!({ "id": id, "phase": "commentary" }),
            json!({ "type": "text", "role": "assistant", "text": id }),
        )
    };
    let stateful = with(
        &asked,
        &json!({ "type": "reasoning", "id": "rs_9", "summary": [] }),
        json!({ "type": "thinking", "thinking": "" }),
    );
    let history = [
        user("1"),
        reasoning("rs_1"),
        own("msg_1"),
        user("2"),
        reasoning("rs_2"),
        assistant("foreign"),
        user("3"),
        reasoning("rs_3"),
        user("4"),
        stateful,
        own("msg_4"),
    ];
    let written = asked.written(&history);
    let kinds: Vec<String> = written
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            format!("{} {}", item["type"].as_str().unwrap(), item["id"].as_str().or(item["role"].as_str()).unwrap())
        })
        .collect();
    let want = [
        "message user",
        "reasoning rs_1",
        "message msg_1",
        "message user",
        "message assistant",
        "message user",
        "message assistant",
    ];
    assert_eq!(kinds, want, "{written}");
    assert_eq!(written[2]["phase"], "commentary");
    // A router's signature of a whole answer comes behind it.
    let behind = [user("1"), own("msg_1"), reasoning("rs_1"), user("2")];
    let routed = Asked { base_url: "https://x.test", ..asked };
    assert_eq!(
        (routed.written(&behind)[2]["id"].as_str(), asked.written(&behind)[2]["id"].as_str()),
        (Some("rs_1"), None)
    );
}

/// The messages of which [`every_short_history_makes_a_request_that_holds`] makes histories.
fn alphabet(asked: &Asked<'_>) -> Vec<ModelMessage> {
    let native = match asked.api {
        Api::OpenaiChat => json!({ "field": "reasoning_content" }),
        Api::OpenaiResponses => json!({ "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E" }),
        Api::AnthropicMessages => json!({ "type": "thinking", "thinking": "hm", "signature": "S" }),
        Api::GoogleGenerateContent => json!({ "text": "hm", "thought": true, "thoughtSignature": "S" }),
    };
    vec![
        user("u"),
        message(json!({ "type": "text", "role": "system", "text": "s" })),
        assistant("m"),
        with(asked, &native, json!({ "type": "thinking", "thinking": "hm" })),
        call("a", "x", "{}"),
        call("b", "y", "{\"cut"),
        result("a", "A", &[PNG]),
        result("b", "", &[]),
    ]
}

/// What each provider holds a conversation to; calls as (id, name), in order.
pub fn broken_rule(api: Api, items: &[Value]) -> Option<&'static str> {
    let (mut open, mut used): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut before = Value::Null;
    for item in items {
        let parts = item["content"].as_array().or(item["parts"].as_array()).cloned().unwrap_or_default();
        let role = item["role"].clone();
        let blank = |part: &Value| part["text"].as_str().is_some_and(|text| text.trim().is_empty());
        if parts.iter().any(blank) || item["content"].as_str().is_some_and(|text| text.trim().is_empty()) {
            return Some("a blank text");
        }
        let (asks, answers): (Vec<Value>, Vec<Value>) = match api {
            Api::OpenaiChat => (
                item["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].clone()).collect(),
                (role == "tool").then(|| item["tool_call_id"].clone()).into_iter().collect(),
            ),
            Api::OpenaiResponses => (
                (item["type"] == "function_call").then(|| item["call_id"].clone()).into_iter().collect(),
                (item["type"] == "function_call_output").then(|| item["call_id"].clone()).into_iter().collect(),
            ),
            Api::AnthropicMessages => (
                parts.iter().filter(|part| part["type"] == "tool_use").map(|part| part["id"].clone()).collect(),
                parts
                    .iter()
                    .take_while(|part| part["type"] == "tool_result")
                    .map(|part| part["tool_use_id"].clone())
                    .collect(),
            ),
            Api::GoogleGenerateContent => {
                let names = |kind: &str| {
                    parts.iter().filter_map(|part| part.get(kind)).map(|call| call["name"].clone()).collect()
                };
                (names("functionCall"), names("functionResponse"))
            }
        };
        for answer in &answers {
            if open.is_empty() || open.remove(0) != *answer {
                return Some("a result that answers no call, or out of order");
            }
        }
        let is_call = item["type"] == "function_call";
        if !open.is_empty() && answers.is_empty() && !is_call && item["type"] != "reasoning" && role != "assistant" {
            return Some("something before all results are there");
        }
        if matches!(api, Api::AnthropicMessages | Api::GoogleGenerateContent) {
            if role == before {
                return Some("the same side twice");
            }
            if before.is_null() && role != "user" {
                return Some("the model begins");
            }
            if parts.is_empty() {
                return Some("nothing said");
            }
            let results = parts.iter().filter(|part| part["type"] == "tool_result").count();
            if api == Api::AnthropicMessages && results != answers.len() {
                return Some("a result behind something else");
            }
            if role == "assistant" && parts.last().is_some_and(|part| part["type"] == "thinking") {
                return Some("reasoning at the end");
            }
        }
        if api == Api::AnthropicMessages || api == Api::OpenaiResponses {
            if asks.iter().any(|id| used.contains(id)) {
                return Some("an id twice");
            }
            used.extend(asks.clone());
        }
        if before == "reasoning" && item["type"] == "message" && role == "user" {
            return Some("reasoning that leads to nothing");
        }
        before = if item["type"] == "reasoning" { "reasoning".into() } else { role };
        open.extend(asks);
    }
    if before == "reasoning" {
        Some("reasoning that leads to nothing")
    } else {
        (!open.is_empty()).then_some("a call without a result")
    }
}

#[test]
fn every_short_history_makes_a_request_that_holds() {
    for api in Api::ALL {
        let asked = Asked { base_url: "https://api.openai.com/v1", ..Asked::of(api, "gemini-3-x") };
        let letters = alphabet(&asked);
        let (growing, fresh) = (asked.provider(), asked.provider());
        let mut indices = vec![0_usize; 4];
        loop {
            let history: Vec<ModelMessage> = indices.iter().map(|at| letters[*at].clone()).collect();
            for count in 1..history.len() {
                growing.written(&asked.request(&history[..count]));
            }
            let body = growing.written(&asked.request(&history));
            assert_eq!(fresh.written(&asked.request(&history)), body, "{} {indices:?}", api.as_str());
            let body: Value = serde_json::from_slice(&body).unwrap();
            let items = items_of(&body).as_array().unwrap();
            if let Some(rule) = broken_rule(api, items) {
                panic!("{} {indices:?}: {rule}: {body}", api.as_str());
            }
            let Some(next) = indices.iter().rposition(|at| at + 1 < letters.len()) else { break };
            indices[next] += 1;
            indices[next + 1..].fill(0);
        }
    }
}
