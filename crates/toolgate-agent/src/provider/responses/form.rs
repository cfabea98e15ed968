//! How a Responses request is written: what was said, what was thought and each call are items of one list.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::super::{
    ModelId, Request, ThinkingLevel,
    address::OPENAI_HOST,
    calls::IdRule,
    chat::effort,
    images::Image,
    json::filled,
    writer::{Block, Form, List, Said, member, write_json},
};

/// Writes requests to one model.
pub(in super::super) struct ResponsesForm {
    model: String,
    /// Whether it is OpenAI itself, which knows all members of a request.
    own: bool,
}

impl ResponsesForm {
    pub(in super::super) fn new(id: &ModelId, host: &str) -> Self {
        Self { model: id.model.clone(), own: host == OPENAI_HOST || host.ends_with(".openai.azure.com") }
    }
}

#[derive(Serialize)]
struct Function<'a> {
    r#type: &'static str,
    name: &'a Value,
    description: &'a Value,
    parameters: &'a Value,
    /// The default is true, and the schemas of tools that others wrote seldom fit what it asks of them.
    strict: bool,
}

impl<'a> Function<'a> {
    fn of(tool: &'a Value) -> Self {
        let [name, description, parameters] = ["name", "description", "parameters"].map(|field| &tool[field]);
        Self { r#type: "function", name, description, parameters, strict: false }
    }
}

impl Form for ResponsesForm {
    fn open(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"model\":");
        write_json(out, &self.model);
        member(out, "stream", &true);
        if self.own {
            // Nothing stays with the provider, so what it must know again comes back to it with each request.
            member(out, "store", &false);
            member(out, "include", &["reasoning.encrypted_content"]);
        }
        if !request.system.is_empty() {
            member(out, "instructions", request.system);
        }
        if !request.tools.is_empty() {
            let tools: Vec<_> = request.tools.iter().map(Function::of).collect();
            member(out, "tools", &tools);
        }
        out.extend_from_slice(b",\"input\":[");
    }

    fn assistant(&self, blocks: &[Block<'_>], list: &mut List<'_>) {
        // Reasoning must stand right before the item that it led to, and that item must be the very one. What lost its item, or comes
        // without what the provider needs to read it again, is left out, and with it the ids that would ask for it.
        let mut reasoning: Vec<&RawValue> = Vec::new();
        let (mut lost, mut said) = (false, false);
        for block in blocks {
            match block {
                Block::Thinking { native: None, .. } => {}
                Block::Thinking { native: Some(raw), .. } => {
                    let item: Value = serde_json::from_str(raw.get()).unwrap_or_default();
                    if item["type"] != "reasoning" {
                        reasoning.drain(..).for_each(|raw| list.push(raw));
                        list.push(raw);
                    } else if filled(&item["encrypted_content"]).is_some()
                        || item["content"].as_array().is_some_and(|content| !content.is_empty())
                    {
                        reasoning.push(raw);
                    } else {
                        lost = true;
                    }
                }
                Block::Text { text, native } => {
                    said = true;
                    let own = own_item(*native, &mut reasoning, &mut lost, list);
                    // Each message is an item of its own; one that the provider gave has its id and its phase.
                    let mut item = json!({ "type": "message", "role": "assistant" });
                    for field in ["id", "phase"] {
                        if let Some(value) = filled(&own[field]) {
                            item[field] = value.into();
                        }
                    }
                    if !text.is_empty() {
                        item["content"] = json!([{ "type": "output_text", "text": text }]);
                        list.push(&item);
                    }
                }
                Block::Call { call, arguments } => {
                    said = true;
                    let own = own_item(call.native.as_deref(), &mut reasoning, &mut lost, list);
                    let mut item = json!({ "type": "function_call", "call_id": call.id, "name": call.name });
                    item["arguments"] = arguments.get().into();
                    if let Some(id) = filled(&own["id"]) {
                        item["id"] = id.into();
                    }
                    list.push(&item);
                }
            }
        }
        // Routers put the signature of another provider's whole answer behind it.
        if said && !self.own {
            reasoning.drain(..).for_each(|raw| list.push(raw));
        }
    }

    fn user(&self, said: &[Said<'_>], list: &mut List<'_>) {
        let mut parts: Vec<Value> = Vec::new();
        for said in said {
            match said {
                Said::Result { call, output, images, .. } => {
                    let mut item = json!({ "type": "function_call_output", "call_id": call.id });
                    item["output"] = match images.as_slice() {
                        [] => output.as_ref().into(),
                        images => {
                            let text = json!({ "type": "input_text", "text": output });
                            [text].into_iter().chain(images.iter().map(image_part)).collect()
                        }
                    };
                    list.push(&item);
                }
                Said::Text(text) => parts.push(json!({ "type": "input_text", "text": text })),
                Said::Image(image) => parts.push(image_part(image)),
                Said::System(text) => {
                    push_message("user", &mut parts, list);
                    push_message("system", &mut vec![json!({ "type": "input_text", "text": text })], list);
                }
            }
        }
        push_message("user", &mut parts, list);
    }

    fn close(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        if let Some(limit) = request.max_tokens {
            member(out, "max_output_tokens", &limit.max(LEAST_TOKENS));
        }
        match request.thinking {
            None => {}
            Some(level) if self.own && level != ThinkingLevel::Off => {
                member(out, "reasoning", &json!({ "effort": effort(level), "summary": "auto" }));
            }
            Some(level) => member(out, "reasoning", &json!({ "effort": effort(level) })),
        }
    }

    fn ids(&self) -> IdRule {
        IdRule::Plain
    }
}

/// The smallest bound of an answer that OpenAI takes; tokens.
const LEAST_TOKENS: u64 = 16;

/// What the provider gave with an item, once the reasoning before it is written. Without that reasoning the item goes back as one that
/// the provider has never seen.
fn own_item(native: Option<&RawValue>, reasoning: &mut Vec<&RawValue>, lost: &mut bool, list: &mut List<'_>) -> Value {
    let own: Option<Value> = native.and_then(|raw| serde_json::from_str(raw.get()).ok());
    match own {
        Some(own) if !std::mem::take(lost) => {
            reasoning.drain(..).for_each(|raw| list.push(raw));
            own
        }
        _ => {
            reasoning.clear();
            Value::Null
        }
    }
}

fn push_message(role: &str, parts: &mut Vec<Value>, list: &mut List<'_>) {
    if !parts.is_empty() {
        list.push(&json!({ "type": "message", "role": role, "content": std::mem::take(parts) }));
    }
}

fn image_part(image: &Image<'_>) -> Value {
    json!({ "type": "input_image", "detail": "auto", "image_url": image.url() })
}
