//! How a Messages request is written.
//!
//! Caching: a breakpoint stands at the end of the system text, which tools and system share over all conversations, and Anthropic itself
//! sets a second one at the end of the last message where `cache_control` stands at the top of the request. That one moves with the
//! conversation although nothing of what was written is written again; a breakpoint in a message would have to be taken out of it.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use toolgate_core::message::{ModelMessage, Role};

use super::super::{
    ModelId, Request, ThinkingLevel,
    address::ANTHROPIC_HOST,
    calls::IdRule,
    images::Image,
    json::raw_at,
    native::Origin,
    writer::{Block, Form, List, Said, member, write_json},
};

/// The answer's bound where the caller names none; tokens. The wire wants one. All models since Claude 4 take this much, and it holds
/// a long file with the reasoning before it.
const DEFAULT_MAX_TOKENS: u64 = 32_000;

/// The same for older models; tokens. The smallest of them takes no more.
const OLD_MAX_TOKENS: u64 = 4_096;

/// The least that a model can be given to think; tokens.
const LEAST_BUDGET: u64 = 1_024;

/// Writes requests to one model.
pub(in super::super) struct MessagesForm {
    model: String,
    origin: Origin,
    /// Whether it is Anthropic itself, which knows all members of a request.
    own: bool,
}

impl MessagesForm {
    pub(in super::super) fn new(id: &ModelId, origin: Origin, host: &str) -> Self {
        Self { model: id.model.clone(), origin, own: host == ANTHROPIC_HOST }
    }

    /// With a budget, a turn that is under way must have begun with reasoning; one of another model has none that could go back.
    fn may_think(&self, history: &[ModelMessage]) -> bool {
        let asked = |message: &&ModelMessage| matches!(message, ModelMessage::Text(text) if text.role == Role::User);
        let under_way = history.iter().rev().take_while(|message| !asked(message));
        let (mut called, mut thought) = (false, false);
        for message in under_way {
            match message {
                ModelMessage::ToolCall(_) => called = true,
                ModelMessage::Thinking(thinking) => thought |= self.origin.open(thinking.fidelity.as_deref()).is_some(),
                _ => {}
            }
        }
        thought || !called
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a Value,
    description: &'a Value,
    input_schema: &'a Value,
}

impl<'a> Tool<'a> {
    fn of(tool: &'a Value) -> Self {
        Self { name: &tool["name"], description: &tool["description"], input_schema: &tool["parameters"] }
    }
}

#[derive(Serialize)]
struct Message<'a, T> {
    role: &'static str,
    content: &'a [T],
}

/// A block, as it came or as it is made here.
#[derive(Serialize)]
#[serde(untagged)]
enum Written<'a> {
    Native(&'a RawValue),
    Made(Value),
    Call(ToolUse<'a>),
}

#[derive(Serialize)]
struct ToolUse<'a> {
    r#type: &'static str,
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a RawValue>,
}

impl Form for MessagesForm {
    fn open(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"model\":");
        write_json(out, &self.model);
        member(out, "stream", &true);
        if !request.tools.is_empty() {
            let tools: Vec<_> = request.tools.iter().map(Tool::of).collect();
            member(out, "tools", &tools);
        }
        if !request.system.is_empty() {
            let cached = json!({ "type": "text", "text": request.system, "cache_control": { "type": "ephemeral" } });
            member(out, "system", &[cached]);
        }
        out.extend_from_slice(b",\"messages\":[");
    }

    fn assistant(&self, blocks: &[Block<'_>], list: &mut List<'_>) {
        // Reasoning may not be the last thing in a message.
        let says = |block: &Block<'_>| match block {
            Block::Thinking { native, .. } => native.is_some_and(|raw| !is_reasoning(raw)),
            Block::Text { .. } | Block::Call { .. } => true,
        };
        let Some(last) = blocks.iter().rposition(says) else { return };
        let mut content = Vec::new();
        for (at, block) in blocks[..=last].iter().enumerate() {
            match block {
                Block::Thinking { native, .. } => content.extend(native.map(Written::Native)),
                Block::Text { native: Some(native), .. } => content.push(Written::Native(native)),
                Block::Text { text, native: None } => {
                    // Blanks at the end of a last message are refused.
                    let text = if at == last { text.trim_end() } else { text };
                    content.push(Written::Made(json!({ "type": "text", "text": text })));
                }
                Block::Call { call, arguments } => {
                    let caller = call.native.as_ref().and_then(|native| raw_at(native.get(), &["caller"]));
                    let (id, name) = (&call.id, &call.name);
                    content.push(Written::Call(ToolUse { r#type: "tool_use", id, name, input: arguments, caller }));
                }
            }
        }
        list.push(&Message { role: "assistant", content: &content });
    }

    fn user(&self, said: &[Said<'_>], list: &mut List<'_>) {
        let block = |said: &Said<'_>| match said {
            Said::Result { call, output, failed, images } => {
                let mut block = json!({ "type": "tool_result", "tool_use_id": call.id });
                block["content"] = match images.as_slice() {
                    [] => output.as_ref().into(),
                    images => [text_block(output)].into_iter().chain(images.iter().map(image_block)).collect(),
                };
                if *failed {
                    block["is_error"] = true.into();
                }
                block
            }
            Said::Text(text) => text_block(text),
            Said::System(text) => text_block(text),
            Said::Image(image) => image_block(image),
        };
        let content: Vec<Value> = said.iter().map(block).collect();
        list.push(&Message { role: "user", content: &content });
    }

    fn close(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        let version = version_of(&self.model);
        let old = version.is_some_and(|version| version < (3, 7));
        let limit = request.max_tokens.unwrap_or(if old { OLD_MAX_TOKENS } else { DEFAULT_MAX_TOKENS });
        member(out, "max_tokens", &limit);
        if self.own {
            member(out, "cache_control", &json!({ "type": "ephemeral" }));
        }
        let adaptive = version.is_some_and(|version| version >= (4, 6));
        let Some(level) = request.thinking.filter(|_| !old) else { return };
        if level == ThinkingLevel::Off {
            member(out, "thinking", &json!({ "type": "disabled" }));
        } else if adaptive {
            let effort = match level {
                ThinkingLevel::Off | ThinkingLevel::Low => "low",
                ThinkingLevel::Medium => "medium",
                ThinkingLevel::Xhigh if version >= Some((4, 7)) => "xhigh",
                ThinkingLevel::High | ThinkingLevel::Xhigh => "high",
                ThinkingLevel::Max => "max",
            };
            member(out, "thinking", &json!({ "type": "adaptive" }));
            member(out, "output_config", &json!({ "effort": effort }));
        } else if limit > LEAST_BUDGET && self.may_think(request.history) {
            let budget: u64 = match level {
                ThinkingLevel::Off | ThinkingLevel::Low => 4_096,
                ThinkingLevel::Medium => 8_192,
                ThinkingLevel::High => 16_384,
                ThinkingLevel::Xhigh => 24_576,
                ThinkingLevel::Max => 31_999,
            };
            // The budget is part of the bound, and something must be left for the answer.
            let budget = budget.min(limit - 1).max(LEAST_BUDGET);
            member(out, "thinking", &json!({ "type": "enabled", "budget_tokens": budget }));
        }
    }

    fn ids(&self) -> IdRule {
        IdRule::Plain
    }

    fn begins_with_user(&self) -> bool {
        true
    }
}

fn is_reasoning(native: &RawValue) -> bool {
    raw_at(native.get(), &["type"]).is_some_and(|kind| matches!(kind.get(), "\"thinking\"" | "\"redacted_thinking\""))
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image_block(image: &Image<'_>) -> Value {
    let source = match image {
        Image::Data { mime, data } => json!({ "type": "base64", "media_type": mime, "data": data }),
        Image::Url(url) => json!({ "type": "url", "url": url }),
    };
    json!({ "type": "image", "source": source })
}

/// Of `claude-opus-4-6` 4 and 6; absent for the models of others, which speak this wire as it was before Claude 4.6.
fn version_of(model: &str) -> Option<(u32, u32)> {
    let name = &model[model.find("claude")?..];
    let numbers = name.split(['-', '.', '@']).filter(|part| part.len() <= 2).filter_map(|part| part.parse().ok());
    let mut numbers = numbers.fuse();
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names() {
        for (model, want) in [
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("anthropic/claude-sonnet-4.5", Some((4, 5))),
            ("claude-sonnet-5", Some((5, 0))),
            ("MiniMax-M2.7", None),
        ] {
            assert_eq!(version_of(model), want, "{model}");
        }
    }
}
