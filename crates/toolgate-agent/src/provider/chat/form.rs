//! How a Chat Completions request is written, with the differences between the servers that take it.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{
        ModelId, Request, ThinkingLevel,
        address::OPENAI_HOST,
        calls::IdRule,
        writer::{Block, Form, List, Said, member, write_json},
    },
    PART, REASONING_FIELDS,
};

/// Writes requests to one model.
pub(in super::super) struct ChatForm {
    model: String,
    vendor: Vendor,
    ids: IdRule,
}

/// In the names of Mistral's models, whose templates check ids wherever they run.
const MISTRAL: [&str; 7] = ["mistral", "ministral", "magistral", "devstral", "codestral", "mixtral", "pixtral"];

/// Whose dialect the host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    OpenAi,
    OpenRouter,
    Mistral,
    DeepSeek,
    /// Z.AI's GLM and Moonshot's Kimi, which want all of their reasoning back.
    GlmOrKimi,
    Qwen,
    /// GLM at Cerebras, which wants its reasoning back between tags in the text.
    CerebrasGlm,
    Other,
}

impl Vendor {
    fn of(host: &str, model: &str) -> Self {
        let host = host.split(':').next().unwrap_or_default();
        let at = |domains: &[&str]| {
            domains
                .iter()
                .any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
        };
        match () {
            () if host == OPENAI_HOST || at(&["openai.azure.com"]) => Self::OpenAi,
            () if at(&["openrouter.ai"]) => Self::OpenRouter,
            () if at(&["cerebras.ai"]) && model.to_lowercase().contains("glm") => Self::CerebrasGlm,
            () if at(&["deepseek.com"]) => Self::DeepSeek,
            () if at(&["aliyuncs.com"]) => Self::Qwen,
            () if at(&["mistral.ai"]) => Self::Mistral,
            () if at(&["z.ai", "bigmodel.cn", "moonshot.ai", "moonshot.cn"]) => Self::GlmOrKimi,
            () => Self::Other,
        }
    }
}

impl ChatForm {
    pub(in super::super) fn new(id: &ModelId, host: &str) -> Self {
        let vendor = Vendor::of(host, &id.model);
        let model = id.model.to_lowercase();
        let strict = vendor == Vendor::Mistral || MISTRAL.iter().any(|name| model.contains(name));
        Self { model: id.model.clone(), vendor, ids: if strict { IdRule::Nine } else { IdRule::Given } }
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: &'a Value,
}

impl Form for ChatForm {
    fn open(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"model\":");
        write_json(out, &self.model);
        member(out, "stream", &true);
        // Mistral refuses what it does not know, and sends the usage anyway.
        if self.vendor != Vendor::Mistral {
            member(out, "stream_options", &json!({ "include_usage": true }));
        }
        if !request.tools.is_empty() {
            let tools: Vec<_> = request.tools.iter().map(|function| Tool { r#type: "function", function }).collect();
            member(out, "tools", &tools);
        }
        out.extend_from_slice(b",\"messages\":[");
        if !request.system.is_empty() {
            List::new(out).push(&json!({ "role": "system", "content": request.system }));
        }
    }

    fn assistant(&self, blocks: &[Block<'_>], list: &mut List<'_>) {
        let (mut calls, mut text, mut parts) = (Vec::new(), String::new(), Vec::new());
        let (mut reasoning, mut details): (Option<(&str, String)>, Vec<Value>) = (None, Vec::new());
        let mut in_parts = false;
        for block in blocks {
            match block {
                Block::Text { text: more, .. } => {
                    text.push_str(more);
                    parts.push(json!({ "type": "text", "text": more }));
                }
                Block::Thinking { text: thinking, native } => {
                    let native: Value = native.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
                    details.extend(native["reasoning_details"].as_array().into_iter().flatten().cloned());
                    if native["field"] == PART {
                        in_parts = true;
                        let inner = [json!({ "type": "text", "text": thinking })];
                        parts.push(json!({ "type": "thinking", "thinking": inner }));
                    } else if let Some(field) = REASONING_FIELDS.into_iter().find(|field| native["field"] == **field) {
                        reasoning.get_or_insert_with(|| (field, String::new())).1.push_str(thinking);
                    }
                }
                Block::Call { call, arguments } => {
                    let function = json!({ "name": call.name, "arguments": arguments.get() });
                    calls.push(json!({ "id": call.id, "type": "function", "function": function }));
                }
            }
        }
        if calls.is_empty() && text.is_empty() {
            return;
        }
        let mut wire = json!({ "role": "assistant", "content": null });
        // Without calls the reasoning is over and done with; old models even refuse it.
        let wanted = !calls.is_empty() || matches!(self.vendor, Vendor::GlmOrKimi | Vendor::CerebrasGlm);
        if let (Vendor::CerebrasGlm, Some((_, thinking))) = (self.vendor, &reasoning) {
            text = format!("<think>\n{thinking}\n</think>\n\n{text}");
        } else if !details.is_empty() {
            wire["reasoning_details"] = details.into();
        } else if let Some((field, thinking)) = reasoning.filter(|_| wanted) {
            wire[field] = thinking.into();
        }
        if in_parts {
            wire["content"] = parts.into();
        } else if !text.is_empty() {
            wire["content"] = text.into();
        }
        if !calls.is_empty() {
            wire["tool_calls"] = calls.into();
        }
        list.push(&wire);
    }

    fn user(&self, said: &[Said<'_>], list: &mut List<'_>) {
        let mut images = Vec::new();
        for said in said {
            let Said::Result { call, output, images: shown, .. } = said else { continue };
            list.push(&json!({ "role": "tool", "tool_call_id": call.id, "content": output }));
            images.extend(shown.iter().map(|image| image_part(&image.url())));
        }
        // Only text may stand in a tool message, and nothing may stand between two of them.
        if !images.is_empty() {
            images.insert(0, json!({ "type": "text", "text": "The images of the tool results above." }));
        }
        let mut texts: Vec<&str> = Vec::new();
        let mut parts = images;
        let mut pictures = !parts.is_empty();
        for said in said {
            match said {
                Said::Result { .. } => {}
                Said::System(text) => {
                    push_user(list, &mut texts, &mut parts, &mut pictures);
                    list.push(&json!({ "role": "system", "content": text }));
                }
                Said::Text(text) => {
                    texts.push(text);
                    parts.push(json!({ "type": "text", "text": text }));
                }
                Said::Image(image) => {
                    parts.push(image_part(&image.url()));
                    pictures = true;
                }
            }
        }
        push_user(list, &mut texts, &mut parts, &mut pictures);
    }

    fn close(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        if let Some(limit) = request.max_tokens {
            // OpenAI's reasoning models refuse the old name, most compatible servers know no other.
            let name = if self.vendor == Vendor::OpenAi { "max_completion_tokens" } else { "max_tokens" };
            member(out, name, &limit);
        }
        let Some(level) = request.thinking else { return };
        let on = level != ThinkingLevel::Off;
        match self.vendor {
            Vendor::Mistral => {}
            Vendor::DeepSeek | Vendor::GlmOrKimi => {
                let mut thinking = json!({ "type": if on { "enabled" } else { "disabled" } });
                if on && self.model.to_lowercase().contains("glm") {
                    // What is sent back would be cleared otherwise.
                    thinking["clear_thinking"] = false.into();
                }
                member(out, "thinking", &thinking);
            }
            Vendor::Qwen => member(out, "enable_thinking", &on),
            Vendor::OpenRouter if !on => member(out, "reasoning", &json!({ "enabled": false })),
            Vendor::OpenRouter => member(out, "reasoning", &json!({ "effort": effort(level) })),
            Vendor::OpenAi | Vendor::CerebrasGlm | Vendor::Other => member(out, "reasoning_effort", effort(level)),
        }
    }

    fn ids(&self) -> IdRule {
        self.ids
    }
}

/// The word that OpenAI's two wires have for a level.
pub(in super::super) fn effort(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off => "none",
        ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Xhigh | ThinkingLevel::Max => "xhigh",
    }
}

/// Plain text where there is nothing else, since not every server takes a list.
fn push_user(list: &mut List<'_>, texts: &mut Vec<&str>, parts: &mut Vec<Value>, pictures: &mut bool) {
    let content = match std::mem::take(pictures) {
        true => std::mem::take(parts).into(),
        false => Value::from(texts.join("\n\n")),
    };
    texts.clear();
    parts.clear();
    if content != "" {
        list.push(&json!({ "role": "user", "content": content }));
    }
}

fn image_part(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_models_tell_the_dialect() {
        for (host, model, vendor, ids) in [
            ("api.openai.com", "gpt-5", Vendor::OpenAi, IdRule::Given),
            ("my.openai.azure.com", "gpt-5", Vendor::OpenAi, IdRule::Given),
            ("api.z.ai", "glm-4.7", Vendor::GlmOrKimi, IdRule::Given),
            ("fizz.ai", "glm-4.7", Vendor::Other, IdRule::Given),
            ("api.cerebras.ai", "zai-glm-4.7", Vendor::CerebrasGlm, IdRule::Given),
            ("api.cerebras.ai", "gpt-oss-120b", Vendor::Other, IdRule::Given),
            ("api.mistral.ai", "open-nemo", Vendor::Mistral, IdRule::Nine),
            ("127.0.0.1:8080", "Mistral-Small-Q4", Vendor::Other, IdRule::Nine),
            ("dashscope-intl.aliyuncs.com", "qwen3-max", Vendor::Qwen, IdRule::Given),
        ] {
            let form = ChatForm::new(&ModelId { provider: "p".into(), model: model.into() }, host);
            assert_eq!((form.vendor, form.ids()), (vendor, ids), "{model} at {host}");
        }
    }
}
