//! Requests: what real clients were recorded to send is what the writer makes of the same history, and no history spoils a request.

use std::{fs, path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};
use toolgate_agent::provider::{Api, Endpoint, ModelSetup, Provider, Request, connect};
use toolgate_core::message::ModelMessage;

use crate::{
    provider::{assistant, call, message, model_message, result, user},
    recordings::folder,
};

const PROVIDER: &str = "test";

struct Asked<'a> {
    api: Api,
    base_url: &'a str,
    model: &'a str,
    vision: bool,
    system: &'a str,
    tools: &'a [Value],
}

impl<'a> Asked<'a> {
    fn of(api: Api, model: &'a str) -> Self {
        Self { api, base_url: "https://x.test", model, vision: true, system: "", tools: &[] }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        let endpoint = Endpoint { base_url: self.base_url.into(), ..Endpoint::default() };
        let setup = ModelSetup { vision: self.vision, ..ModelSetup::new(self.api, PROVIDER, self.model, endpoint) };
        connect(setup).unwrap()
    }

    fn request(&self, history: &'a [ModelMessage]) -> Request<'a> {
        Request { system: self.system, tools: self.tools, history, max_tokens: None, thinking: None }
    }

    fn body(&self, history: &'a [ModelMessage]) -> Value {
        serde_json::from_slice(&self.provider().written(&self.request(history))).unwrap()
    }

    /// The conversation alone.
    fn written(&self, history: &'a [ModelMessage]) -> Value {
        items_of(&self.body(history)).clone()
    }
}

/// The conversation of a request, whatever its wire calls it.
fn items_of(body: &Value) -> &Value {
    ["messages", "input", "contents"].iter().find_map(|key| body.get(*key)).unwrap()
}

fn fidelity(asked: &Asked<'_>, native: &Value) -> Value {
    json!({ "api": asked.api.as_str(), "provider": PROVIDER, "model": asked.model, "native": native })
}

fn with(asked: &Asked<'_>, native: &Value, mut value: Value) -> ModelMessage {
    value["fidelity"] = fidelity(asked, native);
    message(value)
}

/// The history that a recorded request was written from.
fn history_of(asked: &Asked<'_>, recorded: &Value) -> Vec<ModelMessage> {
    let mut history = Vec::new();
    let items = items_of(recorded);
    let Some(items) = items.as_array() else { return vec![user(items.as_str().unwrap())] };
    for item in items {
        let parts = parts_of(item);
        let role = item["role"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("reasoning") => history.push(with(asked, item, json!({ "type": "thinking", "thinking": "" }))),
            Some("function_call") => {
                let value = json!({ "type": "tool_call", "name": item["name"], "arguments": item["arguments"], "tool_call_id": item["call_id"] });
                history.push(with(asked, &json!({ "id": item["id"] }), value));
            }
            Some("function_call_output") => {
                let (text, images) = texts_and_images(&item["output"]);
                history.push(outcome(&item["call_id"], &text, &images, false));
            }
            _ if role == "tool" => {
                let (text, images) = texts_and_images(&item["content"]);
                history.push(outcome(&item["tool_call_id"], &text, &images, false));
            }
            _ if role == "system" => {
                history.push(message(json!({ "type": "text", "role": "system", "text": parts[0]["text"] })))
            }
            _ if role == "assistant" || role == "model" => {
                if let Some(thinking) = item["reasoning_content"].as_str() {
                    let value = json!({ "type": "thinking", "thinking": thinking });
                    history.push(with(asked, &json!({ "field": "reasoning_content" }), value));
                }
                parts.iter().for_each(|part| history.push(said(asked, part)));
                for call in item["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    let value = json!({ "type": "tool_call", "name": function["name"], "arguments": function["arguments"], "tool_call_id": call["id"] });
                    history.push(message(value));
                }
            }
            _ => parts.iter().for_each(|part| history.push(told(part))),
        }
    }
    history
}

/// A part of what the model said.
fn said(asked: &Asked<'_>, part: &Value) -> ModelMessage {
    let call = &part["functionCall"];
    match part["type"].as_str() {
        Some("tool_use") => message(
            json!({ "type": "tool_call", "name": part["name"], "arguments": part["input"].to_string(), "tool_call_id": part["id"] }),
        ),
        Some("thinking") => with(asked, part, json!({ "type": "thinking", "thinking": part["thinking"] })),
        _ if call.is_object() => with(
            asked,
            part,
            json!({ "type": "tool_call", "name": call["name"], "arguments": call["args"].to_string(), "tool_call_id": call["id"] }),
        ),
        // GLM at Cerebras has its reasoning in the text.
        _ => match part["text"]
            .as_str()
            .unwrap()
            .strip_prefix("<think>\n")
            .and_then(|text| text.split_once("\n</think>\n\n"))
        {
            Some((thinking, _)) => {
                with(asked, &json!({ "field": "reasoning" }), json!({ "type": "thinking", "thinking": thinking }))
            }
            None => assistant(part["text"].as_str().unwrap()),
        },
    }
}

/// A part of what the model was told.
fn told(part: &Value) -> ModelMessage {
    let response = &part["functionResponse"];
    if response.is_object() {
        let images: Vec<String> = response["parts"].as_array().into_iter().flatten().filter_map(url_of).collect();
        return outcome(&response["id"], &response["response"].to_string(), &images, false);
    }
    if part["type"] == "tool_result" {
        let (text, images) = texts_and_images(&part["content"]);
        return outcome(&part["tool_use_id"], &text, &images, part["is_error"] == true);
    }
    match url_of(part) {
        Some(url) => message(json!({ "type": "image_url", "image_url": url })),
        None => user(part["text"].as_str().unwrap()),
    }
}

fn outcome(id: &Value, text: &str, images: &[String], failed: bool) -> ModelMessage {
    let stop = if failed { "failed" } else { "completed" };
    message(
        json!({ "type": "tool_call_output", "output": text, "images": images, "tool_call_id": id, "stop_reason": stop }),
    )
}

fn parts_of(item: &Value) -> Vec<Value> {
    match item.get("content").or(item.get("parts")) {
        Some(Value::String(text)) if !text.is_empty() => match text.split_once("\n</think>\n\n") {
            Some((thinking, said)) => {
                vec![json!({ "text": format!("{thinking}\n</think>\n\n") }), json!({ "text": said })]
            }
            None => vec![json!({ "text": text })],
        },
        Some(Value::Array(parts)) => parts.clone(),
        _ => Vec::new(),
    }
}

fn texts_and_images(content: &Value) -> (String, Vec<String>) {
    match content {
        Value::Array(parts) => {
            (parts.iter().filter_map(|part| part["text"].as_str()).collect(), parts.iter().filter_map(url_of).collect())
        }
        text => (text.as_str().unwrap().to_owned(), Vec::new()),
    }
}

fn url_of(part: &Value) -> Option<String> {
    let source = &part["source"];
    let data = |mime: &Value, data: &Value| Some(format!("data:{};base64,{}", mime.as_str()?, data.as_str()?));
    data(&source["media_type"], &source["data"])
        .or_else(|| data(&part["inlineData"]["mimeType"], &part["inlineData"]["data"]))
        .or_else(|| {
            [&source["url"], &part["image_url"]["url"], &part["image_url"]]
                .iter()
                .find_map(|url| url.as_str().map(str::to_owned))
        })
}

/// One form for what different clients write differently and mean alike.
fn plain(value: &Value) -> Value {
    let as_list = |text: &str| json!([{ "type": "text", "text": text }]);
    match value {
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, value) in members {
                let means_nothing = value.is_null()
                    || value == ""
                    || (value == false && matches!(name.as_str(), "thought" | "is_error"));
                if means_nothing || matches!(name.as_str(), "status" | "cache_control" | "detail") || value == "message"
                {
                    continue;
                }
                let value = match (name.as_str(), value) {
                    ("content" | "output", Value::String(text)) => as_list(text),
                    ("arguments", Value::String(text)) => serde_json::from_str(text).unwrap(),
                    // What a result is called inside is the client's own.
                    ("response", response) => {
                        json!(
                            response.get("output").and_then(Value::as_str).map_or(response.to_string(), str::to_owned)
                        )
                    }
                    ("type", Value::String(kind)) if kind.ends_with("put_text") => json!("text"),
                    (_, value) => plain(value),
                };
                kept.insert(name.clone(), value);
            }
            // Images that come with no text have a note of ours before them.
            let list = if kept.contains_key("output") { "output" } else { "content" };
            if let Some(Value::Array(parts)) = kept.get_mut(list) {
                parts.retain(|part| {
                    part["text"] != "[no output]" && part["text"] != "The images of the tool results above."
                });
            }
            if matches!(kept.get("text"), Some(Value::String(_))) && kept.get("type").is_none() {
                kept.insert("type".into(), "text".into());
            }
            Value::Object(kept)
        }
        other => other.clone(),
    }
}

/// Tools by name, description and schema, wherever the wire has them.
fn tools_of(recorded: &Value) -> Vec<Value> {
    let mut tools = Vec::new();
    for tool in recorded["tools"].as_array().into_iter().flatten() {
        for function in tool["functionDeclarations"].as_array().unwrap_or(&vec![tool.clone()]) {
            let function = if function["function"].is_object() { &function["function"] } else { function };
            let schemas = ["parameters", "input_schema", "parametersJsonSchema"];
            let schema = schemas.iter().map(|name| &function[*name]).find(|schema| schema.is_object());
            if let (Some(name), Some(schema)) = (function["name"].as_str(), schema) {
                tools.push(json!({ "name": name, "description": function["description"], "parameters": schema }));
            }
        }
    }
    tools
}

/// Requests whose clients chose another way: reasoning put into the text for Groq, an image inside a tool message for llama.cpp.
const OTHER_HABITS: [&str; 2] = ["groq-gpt-oss-reasoning-tool.", "llamacpp-image-in-tool-result."];

#[test]
fn what_was_recorded_is_what_is_written() {
    let (mut failures, mut seen) = (Vec::new(), 0);
    for api in Api::ALL {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder().join(api.as_str())).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let other_habit = OTHER_HABITS.iter().any(|habit| name.starts_with(habit));
            // Requests that were refused are no example.
            if !name.ends_with(".request.json") || name.starts_with("error-") || other_habit {
                continue;
            }
            let recorded: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let base_url = match name.split('-').next() {
                Some("glm") => "https://api.z.ai/v4",
                Some("cerebras") => "https://api.cerebras.ai/v1",
                _ => "https://x.test",
            };
            let model = recorded["model"].as_str().unwrap_or("gemini-3-flash-preview");
            let tools = tools_of(&recorded);
            let asked = Asked { base_url, tools: &tools, ..Asked::of(api, model) };
            let history = history_of(&asked, &recorded);
            seen += 1;
            let items = items_of(&recorded);
            let items = if items.is_string() { json!([{ "role": "user", "content": items }]) } else { items.clone() };
            let (got, want) = (plain(&asked.written(&history)), plain(&items));
            if got != want {
                failures.push(format!("{}/{name}:\n  got  {got}\n  want {want}", api.as_str()));
            }
            let sent = tools_of(&asked.body(&history));
            if plain(&json!(sent)) != plain(&json!(tools)) {
                failures.push(format!("{}/{name}: tools {sent:?}", api.as_str()));
            }
        }
    }
    assert!(seen >= 9, "{seen} requests");
    assert!(failures.is_empty(), "{} of {seen} differ:\n{}", failures.len(), failures.join("\n"));
}

const PNG: &str = "data:image/png;base64,AA";

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
        result("functions.read:0#2", "two", &[PNG, "data:image/bmp;base64,BB"]),
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
    let note = "[an image, not shown: this model does not take it]";
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
                text(&two), image(json!({ "type": "base64", "media_type": "image/png", "data": "AA" })),
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
    shown["functionResponse"]["parts"] = json!([{ "inlineData": { "mimeType": "image/png", "data": "AA" } }]);
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
        assert!(!body.contains("AA") && !body.contains("base64"), "{body}");
        assert!(body.contains("[an image, not shown") && body.contains("[2 images, not shown"), "{body}");
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
    let asked = Asked::of(Api::OpenaiResponses, "m");
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
}
