//! The request writer: keeps the encoded beginning of a conversation and appends what is new, so that a turn never encodes its history
//! again. The bytes depend on the request alone.

use std::{
    collections::HashSet,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::Arc,
};

use serde::Serialize;
use serde_json::{Value, json};
use toolgate_core::message::{ModelMessage, Role};

use super::{ModelId, Request};

/// The names under which reasoning comes, the more usual one first.
pub(super) const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Stands for the name of a call that had none: servers refuse a request with an empty one.
const NAMELESS: &str = "nameless";

/// How many conversations' encodings are kept: a session, its eight subagents at most, and one for a request aside.
const KEPT_CONVERSATIONS: usize = 10;

/// Writes requests. The bytes depend on the request alone; what is kept only saves the work.
pub(super) struct Writer {
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
    /// Those of the last answer, in order.
    batch: Vec<String>,
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
    pub(super) fn new(id: &ModelId, host: &str) -> Self {
        // OpenAI's reasoning models refuse the old name, most compatible servers know no other.
        let own = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let limit_field = if own { "max_completion_tokens" } else { "max_tokens" };
        Self { model: id.model.clone(), id: id.to_string(), limit_field, hash: RandomState::new(), kept: Vec::new() }
    }

    /// The request's body, and the ids that its history uses.
    pub(super) fn write(&mut self, request: &Request<'_>) -> (Vec<u8>, Arc<HashSet<String>>) {
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
        Conversation { fingerprint: 0, count: 0, bytes, group: None, ids: Arc::default(), batch: Vec::new() }
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
                    let id = outbound(&result.tool_call_id, &self.batch);
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
        let ids = messages.iter().filter_map(|message| match message {
            ModelMessage::ToolCall(call) => Some(call.tool_call_id.clone()),
            _ => None,
        });
        self.batch = ids.collect();
        for message in messages {
            let ModelMessage::ToolCall(call) = message else { continue };
            Arc::make_mut(&mut self.ids).insert(call.tool_call_id.clone());
            // Many servers parse the arguments of the past, so a text that is no object would spoil every later request. The call's
            // result tells the model what was wrong with it.
            let whole = call.arguments.trim_start().starts_with('{') && is_json(&call.arguments);
            let name = if call.name.is_empty() { NAMELESS } else { &call.name };
            let function = json!({ "name": name, "arguments": if whole { &call.arguments } else { "{}" } });
            calls.push(
                json!({ "id": outbound(&call.tool_call_id, &self.batch), "type": "function", "function": function }),
            );
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

/// The id that the provider gave: what made it unique in the session is taken off. Where one answer gave the same id to several calls,
/// the later ones keep their number, since each result must find its own.
fn outbound(id: &str, batch: &[String]) -> String {
    let own = given(id);
    let twins_before = batch.iter().take_while(|other| *other != id).any(|other| given(other) == own);
    if twins_before { id.replace('#', "_") } else { own.to_owned() }
}

fn given(id: &str) -> &str {
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

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
