//! OpenAI Chat Completions and the many servers that speak it, each a little differently.
//!
//! `Chat` reads answers; the deviations it bears are those that real servers were recorded with: calls without
//! index or id, names that come late, whole calls in one piece, usage in several places, content as a list, reasoning under two
//! names or between `<think>` tags, errors in the middle and after the end. How requests are written is in `form`.

mod form;
mod think;

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

pub(super) use form::{ChatForm, effort};

use super::{
    ErrorClass, ModelEvent, ProviderError, Stop, Usage,
    calls::{Call, Calls, is_json},
    http::{Progress, Wire},
    json::{filled, parse},
    native::Origin,
};
use think::ThinkTags;

/// The names under which reasoning comes, the more usual one first.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Reads an answer.
pub(super) struct Chat {
    origin: Origin,
    calls: Calls,
    think: ThinkTags,
    /// Under which name the reasoning that stands open came, or [`PART`].
    reasoning: Option<&'static str>,
    /// OpenRouter's own form of the reasoning, pieces with the same index joined.
    details: Vec<Map<String, Value>>,
    stop: Option<Stop>,
    refused: bool,
    /// The length limit was hit, whatever the stop reason says.
    cut: bool,
    usage: Option<Usage>,
}

/// Reasoning that came as a part of a content list, as Mistral sends it.
const PART: &str = "part";

impl Chat {
    pub(super) fn new(calls: Calls, origin: Origin) -> Self {
        Self {
            origin,
            calls,
            think: ThinkTags::default(),
            reasoning: None,
            details: Vec::new(),
            stop: None,
            refused: false,
            cut: false,
            usage: None,
        }
    }
}

impl Wire for Chat {
    fn event(&mut self, name: &str, data: &str, out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError> {
        match data.trim() {
            "" => return Ok(Progress::Open),
            "[DONE]" => return Ok(Progress::Done),
            _ => {}
        }
        let Some(chunk) = parse(data) else {
            return Err(ProviderError::new(ErrorClass::Malformed, "sent a piece of the answer that is no JSON"));
        };
        if name == "error" || is_error(&chunk) {
            return Err(ProviderError::from_body(None, data.as_bytes()));
        }
        for holder in [chunk.pointer("/x_groq/usage"), chunk.pointer("/choices/0/usage"), chunk.get("usage")] {
            self.usage = holder.and_then(usage_of).or(self.usage);
        }
        // Where several answers were asked for they interleave; ours is the first.
        let choices = chunk["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            // Perplexity repeats the whole message beside each delta; only a plain JSON answer has the message alone.
            let delta = choice.get("delta").filter(|delta| delta.is_object()).unwrap_or(&choice["message"]);
            self.take_delta(delta, out);
            self.take_finish(choice)?;
        }
        Ok(if self.stop.is_some() { Progress::Stopped } else { Progress::Open })
    }

    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
        self.think.finish(out);
        out.extend(self.usage.map(ModelEvent::Usage));
        let Some(stop) = self.stop else {
            return Err(ProviderError::new(ErrorClass::Cut, "ended the answer without a stop reason"));
        };
        self.end_reasoning(out);
        if !self.details.is_empty() {
            let details = json!({ "reasoning_details": std::mem::take(&mut self.details) });
            out.extend(self.origin.wrap(&details).map(ModelEvent::Opaque));
        }
        self.calls.finish(self.cut || stop == Stop::MaxTokens, stop != Stop::Filtered, out);
        out.push_back(ModelEvent::End(match (stop, self.calls.is_empty()) {
            // Some servers say `stop` where they mean their calls, and the other way round.
            (Stop::End | Stop::StopSequence, false) => Stop::ToolCalls,
            (Stop::ToolCalls, true) => Stop::End,
            (Stop::End, true) if self.refused => Stop::Filtered,
            _ => stop,
        }));
        Ok(())
    }
}

impl Chat {
    fn take_delta(&mut self, delta: &Value, out: &mut VecDeque<ModelEvent>) {
        for field in REASONING_FIELDS {
            // Some gateways send both names with the same text.
            if let Some(text) = filled(&delta[field]) {
                self.reasoning = self.reasoning.or(Some(field));
                out.push_back(ModelEvent::Thinking(text.to_owned()));
                break;
            }
        }
        for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
            self.take_detail(detail);
        }
        let speaks =
            filled(&delta["content"]).is_some() || delta["tool_calls"].as_array().is_some_and(|list| !list.is_empty());
        if speaks {
            self.end_reasoning(out);
        }
        match &delta["content"] {
            Value::String(text) => self.think.push(text, out),
            Value::Array(parts) => parts.iter().for_each(|part| self.take_part(part, out)),
            _ => {}
        }
        if let Some(text) = filled(&delta["refusal"]) {
            self.refused = true;
            out.push_back(ModelEvent::Refusal(text.to_owned()));
        }
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            self.take_fragment(fragment, out);
        }
        if delta["function_call"].is_object() {
            self.take_fragment(&json!({ "index": 0, "function": delta["function_call"] }), out);
        }
    }

    /// The reasoning is over: under which name it came is kept with it, so that it can go back.
    fn end_reasoning(&mut self, out: &mut VecDeque<ModelEvent>) {
        if let Some(field) = self.reasoning.take()
            && self.details.is_empty()
        {
            out.extend(self.origin.wrap(&json!({ "field": field })).map(ModelEvent::Native));
        }
    }

    /// A piece of OpenRouter's reasoning. All of it stays together until the end, since a signature may come late.
    fn take_detail(&mut self, detail: &Value) {
        let Some(piece) = detail.as_object() else { return };
        let own = |held: &&mut Map<String, Value>| {
            held.get("index") == piece.get("index") && held.get("type") == piece.get("type")
        };
        let Some(held) = self.details.iter_mut().rfind(own).filter(|_| piece.contains_key("index")) else {
            self.details.push(piece.clone());
            return;
        };
        for (name, value) in piece {
            match (held.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more))
                    if matches!(name.as_str(), "text" | "summary" | "data") =>
                {
                    text.push_str(more);
                }
                (Some(_), Value::Null) => {}
                (Some(_), Value::String(empty)) if empty.is_empty() => {}
                _ => drop(held.insert(name.clone(), value.clone())),
            }
        }
    }

    /// A part of Mistral's content lists.
    fn take_part(&mut self, part: &Value, out: &mut VecDeque<ModelEvent>) {
        match part["type"].as_str() {
            Some("text") => {
                if let Some(text) = filled(&part["text"]) {
                    self.end_reasoning(out);
                    out.push_back(ModelEvent::Text(text.to_owned()));
                }
            }
            Some("thinking") => {
                let inner =
                    part["thinking"].as_array().into_iter().flatten().filter_map(|piece| filled(&piece["text"]));
                for text in inner.chain(filled(&part["thinking"])) {
                    self.reasoning = Some(PART);
                    out.push_back(ModelEvent::Thinking(text.to_owned()));
                }
            }
            _ => {}
        }
    }

    fn take_fragment(&mut self, fragment: &Value, out: &mut VecDeque<ModelEvent>) {
        let function = &fragment["function"];
        let (key, id) = (fragment["index"].as_u64(), filled(&fragment["id"]).unwrap_or_default());
        let name = filled(&function["name"]).unwrap_or_default();
        let arguments = match &function["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            // Some servers send the object itself.
            other => other.to_string(),
        };
        let index = match self.call_for(key, id, name, &arguments) {
            Some(index) => index,
            None => self.calls.begin(Call { key, ..Call::default() }, out),
        };
        let call = self.calls.get_mut(index);
        // Later fragments repeat the name as "" or null, and some the id as another one: the first stands.
        if call.name.is_empty() {
            call.name = name.to_owned();
        }
        if call.given.is_empty() {
            call.given = id.to_owned();
        }
        let named = !call.name.is_empty();
        self.calls.push(index, &arguments, out);
        if named {
            self.calls.announce(index, out);
        }
    }

    /// The call that a fragment goes on with; `None` when it begins one.
    fn call_for(&self, key: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let at = match key {
            Some(_) => self.calls.list().iter().rposition(|call| call.key == key)?,
            None if !id.is_empty() => {
                let named = self.calls.list().iter().rposition(|call| call.given == id);
                return named.or_else(|| self.calls.list().len().checked_sub(1).filter(|_| name.is_empty()));
            }
            None => self.calls.list().len().checked_sub(1)?,
        };
        let call = &self.calls.list()[at];
        if name.is_empty() || call.name.is_empty() {
            return Some(at);
        }
        // A used index with a name is a new call (Gemini behind a façade), unless a server repeats the name in each fragment.
        let other_id = !id.is_empty() && !call.given.is_empty() && id != call.given;
        let other_name = id.is_empty() && name != call.name;
        let whole = || call.arguments.ends_with('}') && is_json(&call.arguments);
        let again = id.is_empty() && !arguments.is_empty() && whole();
        (!(other_id || other_name || again)).then_some(at)
    }

    fn take_finish(&mut self, choice: &Value) -> Result<(), ProviderError> {
        let Some(reason) = filled(&choice["finish_reason"]) else { return Ok(()) };
        // OpenRouter says `tool_calls` where the model behind it ran into its limit.
        let native = choice["native_finish_reason"].as_str().unwrap_or_default().to_lowercase();
        self.cut |= matches!(native.as_str(), "length" | "max_tokens");
        self.stop = Some(match reason {
            "tool_calls" | "function_call" | "tool_use" => Stop::ToolCalls,
            "length" | "model_length" | "max_tokens" => Stop::MaxTokens,
            "content_filter" | "safety" => Stop::Filtered,
            "stop_sequence" => Stop::StopSequence,
            "error" => return Err(ProviderError::from_body(None, choice.to_string().as_bytes())),
            "insufficient_system_resource" => {
                return Err(ProviderError::new(ErrorClass::Overloaded, "broke the answer off for want of room"));
            }
            _ => Stop::End,
        });
        Ok(())
    }
}

/// Errors come as `error`, as a flat object, in a choice, and under any of these with a good status.
fn is_error(chunk: &Value) -> bool {
    let named = chunk.get("error").is_some_and(|error| !error.is_null() && error != "");
    let flat = chunk.get("choices").is_none() && (chunk["message"].is_string() || !chunk["detail"].is_null());
    named || flat || chunk["object"] == "error" || chunk["type"] == "error"
}

fn usage_of(value: &Value) -> Option<Usage> {
    let number = |path: &str| value.pointer(path).and_then(Value::as_u64);
    let first = |paths: &[&str]| paths.iter().find_map(|path| number(path)).unwrap_or(0);
    if number("/prompt_tokens").is_none() && number("/completion_tokens").is_none() {
        return None;
    }
    let (input, mut output) = (first(&["/prompt_tokens"]), first(&["/completion_tokens"]));
    let reasoning = first(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    // xAI leaves the reasoning out of what was written; its total tells.
    if reasoning > 0 && number("/total_tokens") == Some(input + output + reasoning) {
        output += reasoning;
    }
    Some(Usage {
        input,
        output,
        cache_read: first(&[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cached_tokens",
            "/cache_read_input_tokens",
        ]),
        cache_write: first(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]),
        reasoning,
    })
}
