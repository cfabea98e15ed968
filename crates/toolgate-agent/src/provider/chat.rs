//! OpenAI Chat Completions and the many servers that speak it, each a little differently.
//!
//! `Chat` reads answers; the deviations it bears are those that real servers were recorded with: calls without
//! index or id, names that come late, whole calls in one piece, usage in several places, content as a list, reasoning under two
//! names or between `<think>` tags, errors in the middle and after the end.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use reqwest::header;
use serde_json::{Value, json, value::to_raw_value};
use toolgate_core::tool::ToolCall;
use toolgate_runtime::BoxFuture;

use super::{
    Answer, Endpoint, ErrorClass, ModelEvent, ModelId, Provider, ProviderError, Request, Stop, Usage,
    http::{HttpAnswer, Line, Progress, Wire},
    writer::{REASONING_FIELDS, Writer, is_json},
};

/// A model behind a Chat Completions endpoint.
pub struct ChatProvider {
    id: ModelId,
    line: Line,
    writer: Mutex<Writer>,
}

impl ChatProvider {
    /// Connects to nothing yet: the HTTP client is made for the first request.
    ///
    /// # Errors
    /// An address that is none, a key that no header can carry.
    pub fn new(id: ModelId, endpoint: Endpoint) -> Result<Self, ProviderError> {
        let line = Line::new(endpoint, "/chat/completions", (header::AUTHORIZATION, "Bearer "))?;
        let writer = Mutex::new(Writer::new(&id, &line.host()));
        Ok(Self { id, line, writer })
    }
}

impl Provider for ChatProvider {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Box<dyn Answer>, ProviderError>> {
        Box::pin(async move {
            let (body, ids) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).write(&request);
            let response = self.line.post(body).await?;
            let wire = Chat { model: self.id.to_string(), taken: ids, ..Chat::default() };
            Ok(Box::new(HttpAnswer::new(&self.line, response, wire)) as Box<dyn Answer>)
        })
    }
}

/// Reads an answer.
#[derive(Default)]
pub(crate) struct Chat {
    model: String,
    taken: Arc<HashSet<String>>,
    /// Ids that calls of this answer have, and how often each given id was asked for.
    given_out: HashSet<String>,
    numbers: HashMap<String, usize>,
    calls: Vec<Call>,
    think: ThinkTags,
    reasoning_field: Option<&'static str>,
    stop: Option<Stop>,
    /// The length limit was hit, whatever the stop reason says.
    cut: bool,
    usage: Option<Usage>,
}

/// A call as far as it has come.
struct Call {
    /// The provider's index.
    key: Option<u64>,
    /// The provider's id; may be empty.
    given: String,
    /// The id in the session; empty until the call has a name.
    id: String,
    name: String,
    arguments: String,
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
        let cut = self.cut || stop == Stop::MaxTokens;
        let last = self.calls.len().wrapping_sub(1);
        for index in 0..self.calls.len() {
            self.announce(index, out);
            let Call { id, name, arguments, .. } = &self.calls[index];
            let arguments = if matches!(arguments.trim(), "" | "null") { "{}" } else { arguments };
            let whole = is_json(arguments);
            let call = ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.to_owned() };
            // A limit can fall inside a number, and what is left still parses.
            let valid = whole && !(cut && index == last);
            out.push_back(ModelEvent::Call { index, call, valid, native: None });
        }
        out.push_back(ModelEvent::End(match (stop, self.calls.is_empty()) {
            // Some servers say `stop` where they mean their calls, and the other way round.
            (Stop::End | Stop::StopSequence, false) => Stop::ToolCalls,
            (Stop::ToolCalls, true) => Stop::End,
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
                self.reasoning_field = self.reasoning_field.or(Some(field));
                out.push_back(ModelEvent::Thinking(text.to_owned()));
                break;
            }
        }
        let speaks = filled(&delta["content"]).is_some() || delta["tool_calls"].is_array();
        if speaks {
            self.end_reasoning(out);
        }
        match &delta["content"] {
            Value::String(text) => self.think.push(text, out),
            Value::Array(parts) => parts.iter().for_each(|part| take_part(part, out)),
            _ => {}
        }
        if let Some(text) = filled(&delta["refusal"]) {
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
        if let Some(field) = self.reasoning_field.take()
            && let Ok(raw) = to_raw_value(&json!({ "model": self.model, "field": field }))
        {
            out.push_back(ModelEvent::Native(raw));
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
        let index = self.call_for(key, id, name, &arguments).unwrap_or_else(|| {
            self.calls.push(Call {
                key,
                given: String::new(),
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[index];
        // Later fragments repeat the name as "" or null, and some the id as another one: the first stands.
        if call.name.is_empty() {
            call.name = name.to_owned();
        }
        if call.given.is_empty() {
            call.given = id.to_owned();
        }
        call.arguments.push_str(&arguments);
        if call.id.is_empty() {
            if !call.name.is_empty() {
                self.announce(index, out);
            }
        } else if !arguments.is_empty() {
            out.push_back(ModelEvent::CallArguments { index, delta: arguments });
        }
    }

    /// The call that a fragment goes on with; `None` when it begins one.
    fn call_for(&self, key: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let at = match key {
            Some(_) => self.calls.iter().rposition(|call| call.key == key)?,
            None if !id.is_empty() => {
                let named = self.calls.iter().rposition(|call| call.given == id);
                return named.or_else(|| self.calls.len().checked_sub(1).filter(|_| name.is_empty()));
            }
            None => self.calls.len().checked_sub(1)?,
        };
        let call = &self.calls[at];
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

    /// Gives a call its id and tells of it, once.
    fn announce(&mut self, index: usize, out: &mut VecDeque<ModelEvent>) {
        if !self.calls[index].id.is_empty() {
            return;
        }
        let given = self.calls[index].given.clone();
        let id = self.unique(&given);
        let call = &mut self.calls[index];
        call.id.clone_from(&id);
        out.push_back(ModelEvent::CallStart { index, id, name: call.name.clone() });
        if !call.arguments.is_empty() {
            out.push_back(ModelEvent::CallArguments { index, delta: call.arguments.clone() });
        }
    }

    /// An id that no other call of the session has. The next number of each id is remembered, so that an answer full of equal ids costs
    /// no more than one of different ones.
    fn unique(&mut self, given: &str) -> String {
        loop {
            let next = self.numbers.entry(given.to_owned()).or_insert(0);
            *next += 1;
            let id = match (given.is_empty(), *next) {
                // Nine letters and digits: what the strictest server (Mistral) takes back.
                (true, number) => format!("call{:05}", self.taken.len() + number),
                (false, 1) => given.to_owned(),
                (false, number) => format!("{given}#{number}"),
            };
            if !self.taken.contains(&id) && self.given_out.insert(id.clone()) {
                return id;
            }
        }
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

/// A part of Mistral's content lists.
fn take_part(part: &Value, out: &mut VecDeque<ModelEvent>) {
    match part["type"].as_str() {
        Some("text") => out.extend(filled(&part["text"]).map(|text| ModelEvent::Text(text.to_owned()))),
        Some("thinking") => {
            let inner = part["thinking"].as_array().into_iter().flatten().filter_map(|piece| filled(&piece["text"]));
            out.extend(inner.chain(filled(&part["thinking"])).map(|text| ModelEvent::Thinking(text.to_owned())));
        }
        _ => {}
    }
}

/// A text with something in it.
fn filled(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
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

/// JSON, also where a character outside the basic plane was cut into two halves: each becomes U+FFFD.
fn parse(data: &str) -> Option<Value> {
    serde_json::from_str(data).ok().or_else(|| {
        let mut mended = String::with_capacity(data.len());
        let mut rest = data;
        while let Some(at) = rest.find('\\') {
            let (before, escape) = rest.split_at(at);
            mended.push_str(before);
            let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
            let pair = matches!(unit(escape), Some(0xD800..0xDC00))
                && matches!(escape.get(6..).and_then(unit), Some(0xDC00..0xE000));
            let length = match unit(escape) {
                Some(0xD800..0xE000) if !pair => {
                    mended.push_str("\\ufffd");
                    rest = &escape[6..];
                    continue;
                }
                Some(_) if pair => 12,
                Some(_) => 6,
                // Two bytes at most are taken, and never half a character.
                None => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
            };
            mended.push_str(&escape[..length]);
            rest = &escape[length..];
        }
        mended.push_str(rest);
        serde_json::from_str(&mended).ok()
    })
}

/// Takes reasoning out of a text that opens with `<think>`, as small local models write it. The tags may be cut anywhere.
#[derive(Default)]
struct ThinkTags {
    state: Think,
    /// What may turn out to be a tag.
    held: String,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Think {
    /// Nothing but blanks and perhaps the beginning of a tag has come.
    #[default]
    Undecided,
    Inside,
    /// Behind the closing tag; blanks before the text are the template's.
    Behind,
    Text,
}

const OPEN_TAG: &str = "<think>";
const CLOSE_TAG: &str = "</think>";

impl ThinkTags {
    fn push(&mut self, text: &str, out: &mut VecDeque<ModelEvent>) {
        if self.state == Think::Text {
            if !text.is_empty() {
                out.push_back(ModelEvent::Text(text.to_owned()));
            }
            return;
        }
        self.held.push_str(text);
        if self.state == Think::Undecided {
            let lead = self.held.trim_start();
            if let Some(inside) = lead.strip_prefix(OPEN_TAG) {
                (self.state, self.held) = (Think::Inside, inside.to_owned());
            } else if !OPEN_TAG.starts_with(lead) {
                self.state = Think::Text;
            }
        }
        if self.state == Think::Inside {
            let (end, behind) = match self.held.find(CLOSE_TAG) {
                Some(end) => (end, Some(end + CLOSE_TAG.len())),
                // The tag's beginning may stand at the end of what has come.
                None => (
                    (1..CLOSE_TAG.len())
                        .rev()
                        .find(|&n| self.held.ends_with(&CLOSE_TAG[..n]))
                        .map_or(self.held.len(), |n| self.held.len() - n),
                    None,
                ),
            };
            if end > 0 {
                out.push_back(ModelEvent::Thinking(self.held[..end].to_owned()));
            }
            self.held.drain(..behind.unwrap_or(end));
            if behind.is_some() {
                self.state = Think::Behind;
            }
        }
        if self.state == Think::Behind && !self.held.trim_start().is_empty() {
            self.held = self.held.trim_start().to_owned();
            self.state = Think::Text;
        }
        if self.state == Think::Text && !self.held.is_empty() {
            out.push_back(ModelEvent::Text(std::mem::take(&mut self.held)));
        }
    }

    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            _ if held.is_empty() => {}
            Think::Inside => out.push_back(ModelEvent::Thinking(held)),
            Think::Behind => {}
            Think::Undecided | Think::Text => out.push_back(ModelEvent::Text(held)),
        }
    }
}
