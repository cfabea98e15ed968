//! Anthropic Messages: an answer is a list of blocks, one after the other.
//!
//! `Messages` reads answers. A block that can go back only as it was (reasoning with its signature, what the provider's own tools did,
//! text with citations) is put together from its pieces and kept whole. `form` writes requests.

mod form;

use std::collections::VecDeque;

use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

pub(super) use form::MessagesForm;

use super::{
    ErrorClass, ModelEvent, ProviderError, Stop, Usage, Withdrawn,
    calls::{Call, Calls},
    http::{Progress, Wire},
    json::{Members, filled, parse, raw_at, raw_list},
    native::Origin,
};

/// Reads an answer.
pub(super) struct Messages {
    origin: Origin,
    calls: Calls,
    /// The message that is being sent; absent before its first event.
    id: Option<String>,
    block: Option<BlockSoFar>,
    stop: Option<Stop>,
    usage: Counts,
    /// Whether anything was handed out.
    began: bool,
}

/// A block as far as it has come.
struct BlockSoFar {
    kind: Kind,
    /// As it began.
    start: Box<RawValue>,
    /// What its pieces add, joined: text, reasoning or JSON.
    text: String,
    signature: String,
    /// What a piece of another kind sets, by name.
    set: Vec<(String, Box<RawValue>)>,
    citations: Vec<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call(usize),
    /// Anything else. It is never run, and goes back as it was.
    Other,
}

/// What the events say of tokens; the last word counts.
#[derive(Default)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl Messages {
    pub(super) fn new(calls: Calls, origin: Origin) -> Self {
        Self { origin, calls, id: None, block: None, stop: None, usage: Counts::default(), began: false }
    }
}

impl Wire for Messages {
    fn event(&mut self, name: &str, data: &str, out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError> {
        // Gateways put another wire's end marker behind the answer.
        if matches!(data.trim(), "" | "[DONE]") {
            return Ok(if self.stop.is_some() { Progress::Stopped } else { Progress::Open });
        }
        let Some(event) = parse(data) else {
            return Err(ProviderError::new(ErrorClass::Malformed, "sent a piece of the answer that is no JSON"));
        };
        match filled(&event["type"]).unwrap_or(name) {
            "error" => return Err(ProviderError::from_body(None, data.as_bytes())),
            _ if !event["error"].is_null() => return Err(ProviderError::from_body(None, data.as_bytes())),
            "message_start" => {
                self.take_start(&event["message"], out);
            }
            "content_block_start" => {
                if let Some(raw) = raw_at(data, &["content_block"]) {
                    self.end_block(out);
                    self.begin_block(raw, &event["content_block"], out);
                }
            }
            "content_block_delta" => self.take_delta(&event["delta"], data, out),
            "content_block_stop" => self.end_block(out),
            "message_delta" => {
                self.usage.take(&event["usage"]);
                self.take_stop(&event["delta"]);
            }
            "message_stop" => {
                self.end_block(out);
                return Ok(if self.stop.is_some() { Progress::Done } else { Progress::Open });
            }
            // A plain answer.
            "message" => {
                let raws = raw_list(raw_at(data, &["content"]));
                for (block, raw) in event["content"].as_array().into_iter().flatten().zip(raws) {
                    self.begin_block(raw, block, out);
                    self.end_block(out);
                }
                self.usage.take(&event["usage"]);
                self.take_stop(&event);
            }
            _ => {}
        }
        Ok(if self.stop.is_some() { Progress::Stopped } else { Progress::Open })
    }

    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
        out.extend(self.usage.total().map(ModelEvent::Usage));
        let Some(stop) = self.stop else {
            return Err(ProviderError::new(ErrorClass::Cut, "ended the answer without a stop reason"));
        };
        self.end_block(out);
        // A refusal can come in the middle of a call.
        self.calls.finish(stop == Stop::MaxTokens, stop != Stop::Filtered, out);
        out.push_back(ModelEvent::End(match (stop, self.calls.is_empty()) {
            (Stop::End | Stop::StopSequence, false) => Stop::ToolCalls,
            (Stop::ToolCalls, true) => Stop::End,
            _ => stop,
        }));
        Ok(())
    }
}

impl Messages {
    /// A proxy that tried again splices another message into the stream: the first one is void. The same one twice is one.
    fn take_start(&mut self, message: &Value, out: &mut VecDeque<ModelEvent>) {
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        if self.id.as_ref().is_some_and(|first| *first != id) {
            if self.began {
                out.push_back(ModelEvent::Withdrawn(Withdrawn::Answer));
            }
            self.calls.clear();
            (self.block, self.stop, self.usage, self.began) = (None, None, Counts::default(), false);
        }
        self.id = Some(id);
        self.usage.take(&message["usage"]);
    }

    fn begin_block(&mut self, raw: &RawValue, block: &Value, out: &mut VecDeque<ModelEvent>) {
        self.began = true;
        let kind = match block["type"].as_str() {
            Some("text") => Kind::Text,
            Some("thinking") => Kind::Thinking,
            Some("tool_use") => {
                let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
                Kind::Call(self.calls.begin(Call { given: text("id"), name: text("name"), ..Call::default() }, out))
            }
            _ => Kind::Other,
        };
        let text = match kind {
            Kind::Text => filled(&block["text"]),
            Kind::Thinking => filled(&block["thinking"]),
            Kind::Call(_) | Kind::Other => None,
        };
        let signature = block["signature"].as_str().unwrap_or_default().to_owned();
        let (text, start) = (text.unwrap_or_default().to_owned(), raw.to_owned());
        if !text.is_empty() {
            out.push_back(if kind == Kind::Text {
                ModelEvent::Text(text.clone())
            } else {
                ModelEvent::Thinking(text.clone())
            });
        }
        self.block = Some(BlockSoFar { kind, start, text, signature, set: Vec::new(), citations: Vec::new() });
    }

    fn take_delta(&mut self, delta: &Value, data: &str, out: &mut VecDeque<ModelEvent>) {
        let Some(block) = &mut self.block else { return };
        match delta["type"].as_str() {
            Some("text_delta") => {
                if let Some(more) = filled(&delta["text"]) {
                    block.text.push_str(more);
                    out.push_back(ModelEvent::Text(more.to_owned()));
                }
            }
            Some("thinking_delta") => {
                if let Some(more) = filled(&delta["thinking"]) {
                    block.text.push_str(more);
                    out.push_back(ModelEvent::Thinking(more.to_owned()));
                }
            }
            Some("signature_delta") => block.signature.push_str(delta["signature"].as_str().unwrap_or_default()),
            Some("input_json_delta") => {
                let more = delta["partial_json"].as_str().unwrap_or_default();
                block.text.push_str(more);
                if let Kind::Call(index) = block.kind {
                    self.calls.push(index, more, out);
                }
            }
            Some("citations_delta") => {
                block.citations.extend(raw_at(data, &["delta", "citation"]).map(ToOwned::to_owned));
            }
            // A piece of a kind that is not known sets what it names (a compaction its content).
            Some(_) => {
                let members: Members<'_> =
                    raw_at(data, &["delta"]).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
                let named = members.0.into_iter().filter(|(name, _)| name != "type");
                block.set.extend(named.map(|(name, raw)| (name, raw.to_owned())));
            }
            None => {}
        }
    }

    fn end_block(&mut self, out: &mut VecDeque<ModelEvent>) {
        let Some(block) = self.block.take() else { return };
        let start: Value = serde_json::from_str(block.start.get()).unwrap_or_default();
        match block.kind {
            Kind::Call(index) => {
                let call = self.calls.get_mut(index);
                if block.text.is_empty() && start["input"].as_object().is_some_and(|input| !input.is_empty()) {
                    call.arguments =
                        raw_at(block.start.get(), &["input"]).map(|raw| raw.get().to_owned()).unwrap_or_default();
                }
                // Who called it goes back with it; everything else of a call the session has.
                if let Some(caller) = raw_at(block.start.get(), &["caller"]) {
                    call.native = self.origin.wrap(&Members(vec![("caller".to_owned(), caller)]));
                }
            }
            Kind::Text if block.citations.is_empty() && start["citations"].as_array().is_none_or(Vec::is_empty) => {}
            Kind::Text => {
                let native = self.origin.wrap(&block.whole());
                if !block.text.is_empty() {
                    out.extend(native.map(ModelEvent::Native));
                }
            }
            Kind::Thinking => {
                let native = self.origin.wrap(&block.whole());
                out.extend(native.map(if block.text.is_empty() { ModelEvent::Opaque } else { ModelEvent::Native }));
            }
            Kind::Other => out.extend(self.origin.wrap(&block.whole()).map(ModelEvent::Opaque)),
        }
    }

    fn take_stop(&mut self, holder: &Value) {
        let Some(reason) = filled(&holder["stop_reason"]) else { return };
        self.stop = Some(match reason {
            "tool_use" => Stop::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => Stop::MaxTokens,
            "stop_sequence" => Stop::StopSequence,
            "refusal" => Stop::Filtered,
            "pause_turn" | "compaction" => Stop::Pause,
            _ => Stop::End,
        });
    }
}

impl BlockSoFar {
    /// The block as a plain answer would have it, with the bytes of everything that was not put together.
    fn whole(&self) -> Box<RawValue> {
        let mut members: Vec<(String, Box<RawValue>)> = serde_json::from_str::<Members<'_>>(self.start.get())
            .map(|members| members.0.into_iter().map(|(name, raw)| (name, raw.to_owned())).collect())
            .unwrap_or_default();
        let mut set = |name: &str, value: Option<Box<RawValue>>| {
            let Some(value) = value else { return };
            match members.iter_mut().find(|(own, _)| own == name) {
                Some(member) => member.1 = value,
                None => members.push((name.to_owned(), value)),
            }
        };
        match self.kind {
            Kind::Text => {
                set("text", to_raw_value(&self.text).ok());
                if !self.citations.is_empty() {
                    set("citations", to_raw_value(&self.citations).ok());
                }
            }
            Kind::Thinking => {
                set("thinking", to_raw_value(&self.text).ok());
                if !self.signature.is_empty() {
                    set("signature", to_raw_value(&self.signature).ok());
                }
            }
            Kind::Call(_) | Kind::Other if self.text.is_empty() => {}
            Kind::Call(_) | Kind::Other => set("input", RawValue::from_string(self.text.clone()).ok()),
        }
        for (name, value) in &self.set {
            set(name, Some(value.clone()));
        }
        let members = Members(members.iter().map(|(name, raw)| (name.clone(), &**raw)).collect());
        to_raw_value(&members).unwrap_or_else(|_| self.start.clone())
    }
}

impl Counts {
    fn take(&mut self, usage: &Value) {
        let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
        for (own, path) in [
            (&mut self.input, "/input_tokens"),
            (&mut self.output, "/output_tokens"),
            (&mut self.cache_read, "/cache_read_input_tokens"),
            (&mut self.cache_write, "/cache_creation_input_tokens"),
            (&mut self.reasoning, "/output_tokens_details/thinking_tokens"),
        ] {
            *own = number(path).or(*own);
        }
    }

    /// Anthropic counts what was cached beside the input.
    fn total(&self) -> Option<Usage> {
        let (input, output) = (self.input, self.output);
        if input.is_none() && output.is_none() {
            return None;
        }
        let [cache_read, cache_write] = [self.cache_read, self.cache_write].map(Option::unwrap_or_default);
        Some(Usage {
            input: input.unwrap_or(0) + cache_read + cache_write,
            output: output.unwrap_or(0),
            cache_read,
            cache_write,
            reasoning: self.reasoning.unwrap_or(0),
        })
    }
}
