//! How a generateContent request is written.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::super::{
    ModelId, Request, ThinkingLevel,
    calls::IdRule,
    images::Image,
    json::{filled, raw_at},
    writer::{Block, Form, List, Said, member, write_json},
};

/// Stands for the signature of a call that another model made; Google documents it for histories that moved.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// Writes requests to one model.
pub(in super::super) struct GeminiForm {
    /// 3 of `gemini-3-flash`; absent where the name does not say it, as in `gemini-flash-latest`, which is the newest.
    generation: Option<u32>,
    /// Whether it is a model that cannot be told not to think.
    always_thinks: bool,
}

impl GeminiForm {
    pub(in super::super) fn new(id: &ModelId) -> Self {
        let number = id.model.split_once("gemini-").and_then(|(_, rest)| rest.split(['-', '.']).next()?.parse().ok());
        Self { generation: number, always_thinks: id.model.contains("pro") }
    }

    fn since_three(&self) -> bool {
        self.generation.is_none_or(|number| number >= 3)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Function<'a> {
    name: &'a Value,
    description: &'a Value,
    parameters_json_schema: &'a Value,
}

impl<'a> Function<'a> {
    fn of(tool: &'a Value) -> Self {
        Self { name: &tool["name"], description: &tool["description"], parameters_json_schema: &tool["parameters"] }
    }
}

#[derive(Serialize)]
struct Content<'a, T> {
    role: &'static str,
    parts: &'a [T],
}

/// A part, as it came or as it is made here.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Native(&'a RawValue),
    Made(Value),
    #[serde(rename_all = "camelCase")]
    Call {
        function_call: FunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: &'a str,
    args: &'a RawValue,
}

impl Form for GeminiForm {
    fn open(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        if !request.system.is_empty() {
            out.extend_from_slice(b"\"systemInstruction\":");
            write_json(out, &json!({ "parts": [{ "text": request.system }] }));
            out.push(b',');
        }
        if !request.tools.is_empty() {
            let functions: Vec<_> = request.tools.iter().map(Function::of).collect();
            out.extend_from_slice(b"\"tools\":[{\"functionDeclarations\":");
            write_json(out, &functions);
            out.extend_from_slice(b"}],");
        }
        out.extend_from_slice(b"\"contents\":[");
    }

    fn assistant(&self, blocks: &[Block<'_>], list: &mut List<'_>) {
        let signed = |block: &Block<'_>| {
            matches!(block, Block::Call { call, .. }
                if call.native.as_ref().is_some_and(|raw| raw_at(raw.get(), &["thoughtSignature"]).is_some()))
        };
        // Of the calls of one step the first must be signed, and a history of another model has no signatures.
        let mut wants_signature = self.since_three() && !blocks.iter().any(signed);
        let mut parts = Vec::new();
        for block in blocks {
            parts.push(match block {
                Block::Text { native: Some(native), .. } | Block::Thinking { native: Some(native), .. } => {
                    Part::Native(native)
                }
                Block::Text { text, native: None } => Part::Made(json!({ "text": text })),
                // Summaries of reasoning go nowhere; what must come back is a signature.
                Block::Thinking { native: None, .. } => continue,
                Block::Call { call, arguments } => match &call.native {
                    Some(native) if !wants_signature => Part::Native(native),
                    _ => Part::Call {
                        function_call: FunctionCall { name: &call.name, args: arguments },
                        thought_signature: std::mem::take(&mut wants_signature).then_some(FOREIGN_SIGNATURE),
                    },
                },
            });
        }
        if !parts.is_empty() {
            list.push(&Content { role: "model", parts: &parts });
        }
    }

    fn user(&self, said: &[Said<'_>], list: &mut List<'_>) {
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for said in said {
            match said {
                Said::Result { call, output, failed, images } => {
                    let mut response = json!({ "name": call.name });
                    // The id that Gemini gave; ours says nothing to it.
                    let native: Option<Value> =
                        call.native.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
                    if let Some(id) = native.as_ref().and_then(|native| filled(&native["functionCall"]["id"])) {
                        response["id"] = id.into();
                    }
                    response["response"] = json!({ (if *failed { "error" } else { "output" }): output });
                    let shown = images.iter().map(image_part);
                    if self.since_three() && !images.is_empty() {
                        response["parts"] = shown.collect();
                    } else {
                        others.extend(shown);
                    }
                    parts.push(json!({ "functionResponse": response }));
                }
                Said::Text(text) => others.push(json!({ "text": text })),
                Said::System(text) => others.push(json!({ "text": text })),
                Said::Image(image) => others.push(image_part(image)),
            }
        }
        parts.append(&mut others);
        list.push(&Content { role: "user", parts: &parts });
    }

    fn close(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        let mut config = json!({});
        if let Some(limit) = request.max_tokens {
            config["maxOutputTokens"] = limit.into();
        }
        match request.thinking {
            None => {}
            Some(level) if self.since_three() => {
                let word = match level {
                    ThinkingLevel::Off if !self.always_thinks => "minimal",
                    ThinkingLevel::Off | ThinkingLevel::Low => "low",
                    ThinkingLevel::Medium if !self.always_thinks => "medium",
                    _ => "high",
                };
                config["thinkingConfig"] =
                    json!({ "thinkingLevel": word, "includeThoughts": level != ThinkingLevel::Off });
            }
            Some(level) => {
                // 2.5 Pro cannot do without; 128 is the least that it takes, and 24,576 the most that all of the generation take.
                let budget = match level {
                    ThinkingLevel::Off if self.always_thinks => 128,
                    ThinkingLevel::Off => 0,
                    ThinkingLevel::Low => 1_024,
                    ThinkingLevel::Medium => 8_192,
                    ThinkingLevel::High => 16_384,
                    ThinkingLevel::Xhigh | ThinkingLevel::Max => 24_576,
                };
                config["thinkingConfig"] =
                    json!({ "thinkingBudget": budget, "includeThoughts": level != ThinkingLevel::Off });
            }
        }
        if config != json!({}) {
            member(out, "generationConfig", &config);
        }
    }

    fn ids(&self) -> IdRule {
        // Ours are not sent at all.
        IdRule::Given
    }

    /// GIF is not among the kinds of images that this API names.
    fn takes_gif(&self) -> bool {
        false
    }

    fn begins_with_user(&self) -> bool {
        true
    }
}

/// Addresses are not fetched by this API, so the model reads where the image is.
fn image_part(image: &Image<'_>) -> Value {
    match image {
        Image::Data { mime, data } => json!({ "inlineData": { "mimeType": mime, "data": data } }),
        Image::Url(url) => json!({ "text": format!("[an image at {url}]") }),
    }
}
