//! Requests: what real clients were recorded to send is what the writer makes of the same history.

use std::{fs, path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};
use toolgate_agent::provider::{Api, Endpoint, ModelSetup, Provider, Request, connect};
use toolgate_core::message::ModelMessage;

use crate::{
    provider::{assistant, message, user},
    recordings::folder,
};

pub const PROVIDER: &str = "test";

/// Who is asked, and with what beside the history.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub api: Api,
    pub base_url: &'a str,
    pub model: &'a str,
    pub vision: bool,
    pub system: &'a str,
    pub tools: &'a [Value],
}

impl<'a> Asked<'a> {
    pub fn of(api: Api, model: &'a str) -> Self {
        Self { api, base_url: "https://x.test", model, vision: true, system: "", tools: &[] }
    }

    pub fn provider(&self) -> Arc<dyn Provider> {
        let endpoint = Endpoint { base_url: self.base_url.into(), ..Endpoint::default() };
        let setup = ModelSetup { vision: self.vision, ..ModelSetup::new(self.api, PROVIDER, self.model, endpoint) };
        connect(setup).unwrap()
    }

    pub fn request(&self, history: &'a [ModelMessage]) -> Request<'a> {
        Request { system: self.system, tools: self.tools, history, max_tokens: None, thinking: None }
    }

    fn body(&self, history: &'a [ModelMessage]) -> Value {
        serde_json::from_slice(&self.provider().written(&self.request(history))).unwrap()
    }

    /// The conversation alone.
    pub fn written(&self, history: &'a [ModelMessage]) -> Value {
        items_of(&self.body(history)).clone()
    }
}

/// The conversation of a request, whatever its wire calls it.
pub fn items_of(body: &Value) -> &Value {
    ["messages", "input", "contents"].iter().find_map(|key| body.get(*key)).unwrap()
}

fn fidelity(asked: &Asked<'_>, native: &Value) -> Value {
    json!({ "api": asked.api.as_str(), "provider": PROVIDER, "model": asked.model, "native": native })
}

pub fn with(asked: &Asked<'_>, native: &Value, mut value: Value) -> ModelMessage {
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
