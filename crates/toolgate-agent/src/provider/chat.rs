//! OpenAI Chat Completions and the many servers that speak it, each a little differently.
//!
//! `Writer` turns a conversation into a request: it keeps the bytes of what it has encoded and appends what is new, so a turn costs
//! what the turn adds. `Chat` reads answers; the deviations it bears are those that real servers were recorded with: calls without
//! index or id, names that come late, whole calls in one piece, usage in several places, content as a list, reasoning under two
//! names or between `<think>` tags, errors in the middle and after the end.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
};

use reqwest::header;
use serde::Serialize;
use serde_json::{Value, json, value::to_raw_value};
use toolgate_core::{
    message::{ModelMessage, Role},
    tool::ToolCall,
};
use toolgate_runtime::BoxFuture;

use super::{
    Answer, Endpoint, ErrorClass, HttpAnswer, Line, ModelEvent, ModelId, Progress, Provider, ProviderError, Request,
    Stop, Usage, Wire,
};

/// How many conversations' encodings are kept: a session, its eight subagents at most, and one for a request aside.
const KEPT_CONVERSATIONS: usize = 10;

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

// ---------------------------------------------------------------------------------------------------------------- requests

/// Writes requests. The bytes depend on the request alone; what is kept only saves the work.
struct Writer {
    model: String,
    id: String,
    limit_field: &'static str,
    hash: RandomState,
    kept: Vec<Conversation>,
}

/// The encoded beginning of a conversation.
struct Conversation {
    /// Of everything that `bytes` was made from.
    fingerprint: u64,
    /// How many messages of the history `bytes` holds.
    count: usize,
    /// From the opening brace to the last message, with no bracket closed.
    bytes: Vec<u8>,
    /// The last group: what it is, its first message, its first byte. What comes next may belong to it.
    group: Option<(Group, usize, usize)>,
    /// The ids of all calls, as they stand in the session.
    ids: Arc<HashSet<String>>,
}

/// Messages that one wire message holds, or, for results, that belong together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    System,
    User,
    Assistant,
    Results,
}

impl Writer {
    fn new(id: &ModelId, host: &str) -> Self {
        // OpenAI's reasoning models refuse the old name, most compatible servers know no other.
        let own = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let limit_field = if own { "max_completion_tokens" } else { "max_tokens" };
        Self { model: id.model.clone(), id: id.to_string(), limit_field, hash: RandomState::new(), kept: Vec::new() }
    }

    /// The request's body, and the ids that its history uses.
    fn write(&mut self, request: &Request<'_>) -> (Vec<u8>, Arc<HashSet<String>>) {
        let (found, fingerprint) = self.find(request);
        let mut conversation = match found {
            Some(at) => self.kept.remove(at),
            None => self.open(request),
        };
        conversation.append(request.history, &self.id);
        conversation.fingerprint = fingerprint;
        let mut body = Vec::with_capacity(conversation.bytes.len() + 64);
        body.extend_from_slice(&conversation.bytes);
        body.push(b']');
        if let Some(limit) = request.max_tokens {
            body.extend_from_slice(format!(",\"{}\":{limit}", self.limit_field).as_bytes());
        }
        body.push(b'}');
        let ids = conversation.ids.clone();
        if self.kept.len() == KEPT_CONVERSATIONS {
            self.kept.remove(0);
        }
        self.kept.push(conversation);
        (body, ids)
    }

    /// The longest kept beginning of this very conversation, and the fingerprint of all of it. Hashing reads the history once, a
    /// small part of what encoding it costs, and makes a changed one (a compaction, another session) safe.
    fn find(&self, request: &Request<'_>) -> (Option<usize>, u64) {
        let mut hasher = self.hash.build_hasher();
        (request.system, request.tools).hash(&mut hasher);
        let (mut found, mut fingerprint) = (None, hasher.finish());
        for count in 0..=request.history.len() {
            if count > 0 {
                hash_message(&request.history[count - 1], &mut hasher);
                fingerprint = hasher.finish();
            }
            let same = |kept: &Conversation| kept.count == count && kept.fingerprint == fingerprint;
            found = self.kept.iter().position(same).or(found);
        }
        (found, fingerprint)
    }

    fn open(&self, request: &Request<'_>) -> Conversation {
        let mut bytes = b"{\"model\":".to_vec();
        write_json(&mut bytes, &self.model);
        bytes.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        for (at, tool) in request.tools.iter().enumerate() {
            bytes.extend_from_slice(if at == 0 { b",\"tools\":[" } else { b"," });
            bytes.extend_from_slice(b"{\"type\":\"function\",\"function\":");
            write_json(&mut bytes, tool);
            bytes.push(b'}');
        }
        if !request.tools.is_empty() {
            bytes.push(b']');
        }
        bytes.extend_from_slice(b",\"messages\":[");
        if !request.system.is_empty() {
            write_message(&mut bytes, &json!({ "role": "system", "content": request.system }));
        }
        Conversation { fingerprint: 0, count: 0, bytes, group: None, ids: Arc::default() }
    }
}

impl Conversation {
    fn append(&mut self, history: &[ModelMessage], model: &str) {
        let mut at = self.count;
        // A group that grows is the one thing that is written again.
        if let (Some((kind, first, offset)), Some(next)) = (self.group, history[at..].iter().find_map(group_of))
            && kind == next
        {
            self.bytes.truncate(offset);
            at = first;
        }
        while at < history.len() {
            let Some(kind) = group_of(&history[at]) else {
                at += 1;
                continue;
            };
            let rest = &history[at..];
            let length = rest
                .iter()
                .position(|message| group_of(message).is_some_and(|group| group != kind))
                .unwrap_or(rest.len());
            self.group = Some((kind, at, self.bytes.len()));
            self.write_group(kind, &rest[..length], model);
            at += length;
        }
        self.count = history.len();
    }

    fn write_group(&mut self, kind: Group, messages: &[ModelMessage], model: &str) {
        match kind {
            Group::System => {
                write_message(&mut self.bytes, &json!({ "role": "system", "content": texts(messages, "\n\n") }))
            }
            Group::User => {
                write_message(&mut self.bytes, &json!({ "role": "user", "content": user_content(messages) }))
            }
            Group::Assistant => self.write_assistant(messages, model),
            Group::Results => {
                let mut images = Vec::new();
                for message in messages {
                    let ModelMessage::ToolCallOutput(result) = message else { continue };
                    let id = outbound(&result.tool_call_id);
                    write_message(
                        &mut self.bytes,
                        &json!({ "role": "tool", "tool_call_id": id, "content": result.output }),
                    );
                    images.extend(result.images.iter().map(|url| image_part(url)));
                }
                // Only text may stand in a tool message, and nothing may stand between two of them.
                if !images.is_empty() {
                    images.insert(0, json!({ "type": "text", "text": "The images of the tool results above." }));
                    write_message(&mut self.bytes, &json!({ "role": "user", "content": images }));
                }
            }
        }
    }

    fn write_assistant(&mut self, messages: &[ModelMessage], model: &str) {
        let mut calls = Vec::new();
        for message in messages {
            let ModelMessage::ToolCall(call) = message else { continue };
            Arc::make_mut(&mut self.ids).insert(call.tool_call_id.clone());
            // Many servers parse the arguments of the past, so a text that is no object would spoil every later request. The call's
            // result tells the model what was wrong with it.
            let whole = call.arguments.trim_start().starts_with('{') && is_json(&call.arguments);
            let function = json!({ "name": call.name, "arguments": if whole { &call.arguments } else { "{}" } });
            calls.push(json!({ "id": outbound(&call.tool_call_id), "type": "function", "function": function }));
        }
        let text = texts(messages, "");
        if calls.is_empty() && text.is_empty() {
            return;
        }
        let mut wire =
            json!({ "role": "assistant", "content": if text.is_empty() { Value::Null } else { text.into() } });
        if !calls.is_empty() {
            if let Some((field, thinking)) = replayed_thinking(messages, model) {
                wire[field] = thinking.into();
            }
            wire["tool_calls"] = calls.into();
        }
        write_message(&mut self.bytes, &wire);
    }
}

/// Where a message goes; nowhere for pieces.
fn group_of(message: &ModelMessage) -> Option<Group> {
    match message {
        ModelMessage::Text(text) => Some(match text.role {
            Role::System => Group::System,
            Role::User => Group::User,
            Role::Assistant => Group::Assistant,
        }),
        ModelMessage::Thinking(_) | ModelMessage::InlineThinking(_) | ModelMessage::ToolCall(_) => {
            Some(Group::Assistant)
        }
        ModelMessage::ToolCallOutput(_) => Some(Group::Results),
        ModelMessage::ImageUrl(_) | ModelMessage::InlineData(_) => Some(Group::User),
        ModelMessage::PartialText(_)
        | ModelMessage::PartialThinking(_)
        | ModelMessage::PartialToolCall(_)
        | ModelMessage::PartialToolCallOutput(_) => None,
    }
}

/// Takes in what of a message can reach the wire.
fn hash_message(message: &ModelMessage, hasher: &mut impl Hasher) {
    message.tag().hash(hasher);
    match message {
        ModelMessage::Text(text) => (text.role as u8, &text.text).hash(hasher),
        ModelMessage::Thinking(thinking) => {
            (&thinking.thinking, thinking.fidelity.as_ref().map(|raw| raw.get())).hash(hasher);
        }
        ModelMessage::ToolCall(call) => (&call.tool_call_id, &call.name, &call.arguments).hash(hasher),
        ModelMessage::ToolCallOutput(result) => (&result.tool_call_id, &result.output, &result.images).hash(hasher),
        ModelMessage::ImageUrl(image) => image.image_url.hash(hasher),
        ModelMessage::InlineData(data) => (&data.mime_type, &data.data).hash(hasher),
        _ => {}
    }
}

fn texts(messages: &[ModelMessage], between: &str) -> String {
    let mut all = messages.iter().filter_map(|message| match message {
        ModelMessage::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let mut joined = all.next().unwrap_or_default().to_owned();
    for text in all {
        joined.push_str(between);
        joined.push_str(text);
    }
    joined
}

/// Plain text where there is nothing else, since not every server takes a list.
fn user_content(messages: &[ModelMessage]) -> Value {
    if messages.iter().all(|message| matches!(message, ModelMessage::Text(_))) {
        return texts(messages, "\n\n").into();
    }
    let part = |message: &ModelMessage| match message {
        ModelMessage::Text(text) => Some(json!({ "type": "text", "text": text.text })),
        ModelMessage::ImageUrl(image) => Some(image_part(&image.image_url)),
        ModelMessage::InlineData(data) if data.mime_type.starts_with("image/") => {
            Some(image_part(&format!("data:{};base64,{}", data.mime_type, data.data)))
        }
        ModelMessage::InlineData(data) => {
            Some(json!({ "type": "text", "text": format!("[{} data, not shown]", data.mime_type) }))
        }
        _ => None,
    };
    messages.iter().filter_map(part).collect()
}

fn image_part(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

/// The reasoning that goes back with a turn's calls, under the name that it came with, to the model that it came from.
fn replayed_thinking(messages: &[ModelMessage], model: &str) -> Option<(&'static str, String)> {
    let (mut field, mut text) = (None, String::new());
    for message in messages {
        let ModelMessage::Thinking(thinking) = message else { continue };
        text.push_str(&thinking.thinking);
        let own: Option<Value> = thinking.fidelity.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        if let Some(own) = own.filter(|own| own["model"] == model) {
            field = REASONING_FIELDS.into_iter().find(|name| own["field"] == **name).or(field);
        }
    }
    field.map(|field| (field, text))
}

/// The id that the provider gave: what made it unique in the session is taken off.
fn outbound(id: &str) -> &str {
    match id.rsplit_once('#') {
        Some((own, number)) if !own.is_empty() && number.parse::<u32>().is_ok_and(|n| n >= 2) => own,
        _ => id,
    }
}

fn write_message(out: &mut Vec<u8>, message: &Value) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
    write_json(out, message);
}

fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Writing to memory does not fail, and neither do texts and values.
    let _ = serde_json::to_writer(out, value);
}

// ----------------------------------------------------------------------------------------------------------------- answers

/// The names under which reasoning comes, the more usual one first.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Reads an answer.
#[derive(Default)]
pub(crate) struct Chat {
    model: String,
    taken: Arc<HashSet<String>>,
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
        if let Some(field) = self.reasoning_field
            && let Ok(raw) = to_raw_value(&json!({ "model": self.model, "field": field }))
        {
            out.push_back(ModelEvent::Fidelity(raw));
        }
        let cut = self.cut || stop == Stop::MaxTokens;
        let last = self.calls.len().wrapping_sub(1);
        for index in 0..self.calls.len() {
            self.announce(index, out);
            let Call { id, name, arguments, .. } = &self.calls[index];
            let arguments = if matches!(arguments.trim(), "" | "null") { "{}" } else { arguments };
            let whole = is_json(arguments);
            let call = ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.to_owned() };
            // A limit can fall inside a number, and what is left still parses.
            out.push_back(ModelEvent::Call { call, valid: whole && !(cut && index == last) });
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
        let id = self.unique(&self.calls[index].given);
        let call = &mut self.calls[index];
        call.id.clone_from(&id);
        out.push_back(ModelEvent::CallStart { index, id, name: call.name.clone() });
        if !call.arguments.is_empty() {
            out.push_back(ModelEvent::CallArguments { index, delta: call.arguments.clone() });
        }
    }

    fn unique(&self, given: &str) -> String {
        let is_free = |id: &String| !self.taken.contains(id) && self.calls.iter().all(|call| call.id != *id);
        if given.is_empty() {
            // Nine letters and digits: what the strictest server (Mistral) takes back.
            let made = (self.taken.len() + 1..).map(|n| format!("call{n:05}"));
            return made.into_iter().find(is_free).unwrap_or_default();
        }
        let numbered = (2u32..).map(|n| format!("{given}#{n}"));
        std::iter::once(given.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
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

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
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
