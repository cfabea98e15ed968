//! OmniMessage: one form for the stream, the trace and the model's context.
//!
//! A message is an envelope `{timestamp, type, payload, origin?}`. Reading keeps every field that this version does not know
//! (`extra`) and every payload that it cannot name ([`Body::Other`]), so that writing it again loses nothing. The form is
//! PenguinHarness's; the fields and events that toolgate adds are optional, and a reader that does not know them may skip them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, de};
use serde_json::{Map, Value, value::RawValue};

use crate::{outcome::StopReason, tool::ToolCall};

/// Fields that a reader did not know, kept in their order.
pub type Extra = Map<String, Value>;

/// One message: what happened, when, and through which child sessions it came.
#[derive(Debug, Clone)]
pub struct Message {
    /// ISO 8601 in UTC. Text, because a trace written elsewhere must come back byte for byte.
    pub timestamp: String,
    /// What happened.
    pub body: Body,
    /// Child sessions that the message passed through, outermost first. Empty for the session's own messages.
    pub origin: Vec<String>,
    /// Envelope fields of later versions.
    pub extra: Extra,
}

/// The three kinds of messages, and room for kinds that do not exist yet.
#[derive(Debug, Clone)]
pub enum Body {
    /// The head of a trace file.
    SessionMeta(Box<SessionMeta>),
    /// What the model reads or wrote.
    Model(ModelMessage),
    /// What happened around it.
    Event(Event),
    /// A type or a payload of another version, kept as it stands.
    Other {
        /// The envelope's `type`.
        kind: String,
        /// The payload, untouched.
        payload: Box<RawValue>,
    },
}

/// Who speaks in a model message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or whoever speaks in their place (see [`Text::sender`]).
    User,
    /// The model.
    Assistant,
    /// Instructions that stand before the conversation.
    System,
}

macro_rules! payloads {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident($ty:ty) = $tag:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Serialize)]
        #[serde(tag = "type")]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $tag)] $variant($ty),)* }

        impl $name {
            /// The payload's `type` on the wire.
            pub fn tag(&self) -> &'static str {
                match self { $(Self::$variant(_) => $tag,)* }
            }

            /// `None` when this version has no payload of that name. The raw text goes straight to the concrete type,
            /// since a tagged enum would buffer it and so rewrite the opaque parts.
            fn read(tag: &str, raw: &str) -> Option<Result<Self, serde_json::Error>> {
                match tag {
                    $($tag => Some(serde_json::from_str::<$ty>(raw).map(|mut payload| { payload.extra.remove("type"); Self::$variant(payload) })),)*
                    _ => None,
                }
            }
        }
    };
}

macro_rules! payload {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            /// Fields of later versions.
            #[serde(flatten)]
            pub extra: Extra,
        }
    };
}

payload! {
    /// The head of a trace file: who talks to which model about which folder.
    SessionMeta {
        /// The session's id.
        session_id: String,
        /// The provider's name; half of the model's identity.
        provider: String,
        /// The model's name at that provider.
        model_id: String,
        /// In tokens; a word where it is unknown.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        model_context_window: Value,
        /// The instructions as they were sent.
        #[serde(default)]
        system_prompt: String,
        /// PenguinHarness's agent state; kept as it stands.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        agent_state: Value,
        /// The folder that the tools are bound to.
        #[serde(default)]
        workspace: String,
        /// `subagent` or `schedule`; absent for a person's session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
    }
}

payloads! {
    /// What a model reads or writes, whole or in parts.
    ModelMessage {
        /// Text of either side.
        Text(Text) = "text",
        /// The model's reasoning, as far as it is shown.
        Thinking(Thinking) = "thinking",
        /// Reasoning in a form of the provider's own.
        InlineThinking(InlineData) = "inline_thinking",
        /// A complete call.
        ToolCall(ToolCallMessage) = "tool_call",
        /// A complete result.
        ToolCallOutput(ToolCallOutput) = "tool_call_output",
        /// An image by URL, data URLs included.
        ImageUrl(ImageUrl) = "image_url",
        /// Data of another kind.
        InlineData(InlineData) = "inline_data",
        /// A piece of text; never in a trace.
        PartialText(Partial) = "partial_text",
        /// A piece of reasoning; never in a trace.
        PartialThinking(Partial) = "partial_thinking",
        /// A piece of a call; never in a trace.
        PartialToolCall(Partial) = "partial_tool_call",
        /// A piece of a result; never in a trace.
        PartialToolCallOutput(Partial) = "partial_tool_call_output",
    }
}

payload! {
    /// Text of either side.
    Text {
        /// Who speaks.
        role: Role,
        /// What is said.
        text: String,
        /// `user`, `parent_agent`, `harness` or `server`; absent for a person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sender: Option<String>,
        /// The provider's own form of this block, replayed untouched to the same model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fidelity: Option<Box<RawValue>>,
        /// How the message ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

payload! {
    /// The model's reasoning.
    Thinking {
        /// Always the assistant, and absent in some traces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// What may be shown of it.
        thinking: String,
        /// Signatures and encrypted parts, replayed untouched to the same model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fidelity: Option<Box<RawValue>>,
        /// How the message ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

payload! {
    /// A complete call, as the model wrote it.
    ToolCallMessage {
        /// Always the assistant, and absent in some traces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// The tool's name.
        name: String,
        /// The arguments as the model wrote them: JSON text, not always valid.
        arguments: String,
        /// Unique in the session.
        tool_call_id: String,
        /// The provider's own form of this block.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fidelity: Option<Box<RawValue>>,
        /// Only a `completed` call may run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

payload! {
    /// The one result of a call.
    ToolCallOutput {
        /// Always the user, and absent in some traces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// What the model reads.
        output: String,
        /// Data URLs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<String>,
        /// The call that this answers.
        tool_call_id: String,
        /// How the call ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

payload! {
    /// An image by URL.
    ImageUrl {
        /// Who shows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// `http(s)` or `data:`.
        image_url: String,
        /// How the message ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

payload! {
    /// Data with a type of its own.
    InlineData {
        /// Who sends it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// Base64.
        data: String,
        /// The data's MIME type.
        #[serde(default)]
        mime_type: String,
        /// How the message ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

/// Where a piece stands in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartialEvent {
    /// The message opens.
    Start,
    /// More of it.
    Delta,
    /// It is whole; the complete message follows.
    Stop,
}

payload! {
    /// A piece of a message. Pieces are shown and never recorded: the complete message follows.
    Partial {
        /// Where it stands.
        event_type: PartialEvent,
        /// More text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// More reasoning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        /// The tool's name, on the start of a call only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// More of a call's arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        /// More of a result. Joined, the deltas equal the complete output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
        /// Data URLs, in one delta before the stop.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<String>,
        /// The call that this belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<String>,
        /// On the stop only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
    }
}

payloads! {
    /// What happened around the conversation.
    Event {
        /// The tools that the model can see, which are those that can be dispatched.
        ToolListReady(ToolListReady) = "tool_list_ready",
        /// Servers start.
        McpConnectBegin(Plain) = "mcp_connect_begin",
        /// Servers have started, or not.
        McpConnectEnd(Plain) = "mcp_connect_end",
        /// A model request leaves.
        RequestBegin(RequestBegin) = "request_begin",
        /// A model request is over; only a `completed` one commits its turn.
        RequestEnd(RequestEnd) = "request_end",
        /// A question that a person must answer.
        ApprovalRequest(ApprovalRequested) = "approval_request",
        /// The one decision on a call.
        ApprovalDecision(ApprovalDecided) = "approval_decision",
        /// From here on the call may have changed the world.
        CallStarted(CallStarted) = "call_started",
        /// A command session's way: started, yielded, exited, killed.
        CommandSession(CommandSessionEvent) = "command_session",
        /// What confines commands, and how far.
        Sandbox(SandboxEvent) = "sandbox",
        /// Tokens used.
        TokenUsage(TokenUsage) = "token_usage",
        /// A compaction starts.
        CompactionBegin(Plain) = "compaction_begin",
        /// A compaction is over.
        CompactionEnd(Plain) = "compaction_end",
        /// The run ended before its answer was whole.
        Abort(Abort) = "abort",
        /// A child session, whose trace stands beside this one.
        Subagent(SubagentPointer) = "subagent",
        /// A goal is over.
        GoalFinished(Plain) = "goal_finished",
        /// A record that a crash tore is covered.
        Repair(Repair) = "repair",
        /// The run is over and its records are whole.
        Seal(Seal) = "seal",
    }
}

payload! {
    /// An event with no fields that toolgate reads.
    Plain {}
}

impl Plain {
    /// An event with nothing to say but that it happened.
    pub fn new() -> Self {
        Self { extra: Extra::new() }
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self::new()
    }
}

payload! {
    /// The tools of the session.
    ToolListReady {
        /// As the model sees them: name, description, parameters.
        tools: Vec<Value>,
    }
}

payload! {
    /// A model request leaves. A session may go on with another model than it began with.
    RequestBegin {
        /// The provider that is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The model that is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model_id: Option<String>,
    }
}

payload! {
    /// A model request's end.
    RequestEnd {
        /// `completed`, `timeout`, `malformed`, `aborted`, `failed` or `auth`.
        status: String,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// 1-based; absent on a clean first try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        /// Only when a retry follows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    }
}

payload! {
    /// A question, as it was put.
    ApprovalRequested {
        /// The call.
        tool_call_id: String,
        /// What the question is bound to: the bytes that run.
        args_digest: String,
        /// What was shown.
        summary: String,
        /// Why it asks.
        reason: String,
    }
}

payload! {
    /// A decision, and who made it.
    ApprovalDecided {
        /// `allow` or `deny`; PenguinHarness's `forbidden` is a deny.
        decision: String,
        /// The call.
        tool_call_id: String,
        /// The approval mode in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// `mode`, `rule`, `grant`, `person`, `default` or `hook`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// The rule that decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decider: Option<String>,
        /// What the decision is bound to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args_digest: Option<String>,
        /// How long a person was waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    }
}

payload! {
    /// The call passed the gate and starts now.
    CallStarted {
        /// The call.
        tool_call_id: String,
        /// One line for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    }
}

payload! {
    /// One step in a command session's life.
    CommandSessionEvent {
        /// `started`, `yielded`, `exited` or `killed`.
        state: String,
        /// The session.
        process_id: String,
        /// The call that caused it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<String>,
        /// How it ended, or who ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    }
}

payload! {
    /// What confines commands in this session.
    SandboxEvent {
        /// `A`, `B` or `C` (none).
        tier: String,
        /// `read-only`, `workspace-write` or `off`.
        mode: String,
    }
}

/// Tokens of one request or of a whole session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Read from the provider's cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Sent, and not read from the cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Written by the model.
    #[serde(default)]
    pub output: u64,
    /// All of them.
    #[serde(default)]
    pub total: u64,
}

payload! {
    /// Tokens used.
    TokenUsage {
        /// By the session so far.
        session: Tokens,
        /// By the last request.
        request: Tokens,
    }
}

payload! {
    /// The run ended early.
    Abort {
        /// A sentence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }
}

payload! {
    /// A child session.
    SubagentPointer {
        /// The child's id, which names its trace.
        session_id: String,
    }
}

payload! {
    /// Bytes that a crash left behind, covered so that the chain goes on.
    Repair {
        /// Where the torn bytes begin in the file.
        offset: u64,
        /// How many there are, the newline that now ends them not counted.
        bytes: u64,
        /// SHA-256 of the torn bytes.
        sha256: String,
    }
}

payload! {
    /// The end of a run.
    Seal {
        /// Records before this one.
        records: u64,
        /// `completed`, `failed`, `aborted`, `waiting` or `limit`.
        status: String,
    }
}

/// Text without anything that could drive a terminal or spoil a request: controls other than tab and newline are shown by their
/// pictures, and the characters that turn the reading direction around are marked.
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| matches!(c, '\t' | '\n') || !(c.is_control() || is_bidi(c));
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        c if harmless(c) => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{FFFD}'),
        '\u{7f}' => '\u{2421}',
        _ => '\u{FFFD}',
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Characters that make a line read differently from what it is.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

impl ModelMessage {
    /// The message as it may enter a history: what a model or a person wrote, cleaned. The trace keeps what was said.
    pub fn cleaned(mut self) -> Self {
        let text = match &mut self {
            Self::Text(text) => &mut text.text,
            Self::Thinking(thinking) => &mut thinking.thinking,
            _ => return self,
        };
        if let Cow::Owned(better) = clean(text) {
            *text = better;
        }
        self
    }
}

impl Partial {
    /// A piece with nothing in it yet.
    pub fn new(event_type: PartialEvent) -> Self {
        Self {
            event_type,
            text: None,
            thinking: None,
            name: None,
            arguments: None,
            output: None,
            images: Vec::new(),
            tool_call_id: None,
            stop_reason: None,
            extra: Extra::new(),
        }
    }
}

impl Text {
    /// Plain text that is whole.
    pub fn new(role: Role, text: impl Into<String>, stop: StopReason) -> Self {
        Self { role, text: text.into(), sender: None, fidelity: None, stop_reason: Some(stop), extra: Extra::new() }
    }
}

impl ToolCallMessage {
    /// A complete call.
    pub fn new(call: &ToolCall) -> Self {
        Self {
            role: Some(Role::Assistant),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            tool_call_id: call.id.clone(),
            fidelity: None,
            stop_reason: Some(StopReason::Completed),
            extra: Extra::new(),
        }
    }
}

impl Message {
    /// A message of the session itself.
    pub fn new(timestamp: impl Into<String>, body: impl Into<Body>) -> Self {
        Self { timestamp: timestamp.into(), body: body.into(), origin: Vec::new(), extra: Extra::new() }
    }

    /// Whether the message belongs in a trace: whole messages and events of the session itself.
    pub fn is_recorded(&self) -> bool {
        let partial = matches!(
            &self.body,
            Body::Model(
                ModelMessage::PartialText(_)
                    | ModelMessage::PartialThinking(_)
                    | ModelMessage::PartialToolCall(_)
                    | ModelMessage::PartialToolCallOutput(_)
            )
        );
        !partial && self.origin.is_empty()
    }

    /// Reads one message from JSON text.
    ///
    /// # Errors
    /// Only when the text is no JSON object with a `type` and a `payload`. A payload that this version cannot read is kept as
    /// [`Body::Other`].
    pub fn from_json(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }
}

impl From<ModelMessage> for Body {
    fn from(message: ModelMessage) -> Self {
        Self::Model(message)
    }
}

impl From<Event> for Body {
    fn from(event: Event) -> Self {
        Self::Event(event)
    }
}

impl From<SessionMeta> for Body {
    fn from(meta: SessionMeta) -> Self {
        Self::SessionMeta(Box::new(meta))
    }
}

impl Serialize for Message {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("timestamp", &self.timestamp)?;
        match &self.body {
            Body::SessionMeta(meta) => {
                map.serialize_entry("type", "session_meta")?;
                map.serialize_entry("payload", meta)?;
            }
            Body::Model(message) => {
                map.serialize_entry("type", "model_msg")?;
                map.serialize_entry("payload", message)?;
            }
            Body::Event(event) => {
                map.serialize_entry("type", "event_msg")?;
                map.serialize_entry("payload", event)?;
            }
            Body::Other { kind, payload } => {
                map.serialize_entry("type", kind)?;
                map.serialize_entry("payload", payload)?;
            }
        }
        if !self.origin.is_empty() {
            map.serialize_entry("origin", &self.origin)?;
        }
        for (key, value) in &self.extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            timestamp: String,
            #[serde(rename = "type")]
            kind: String,
            payload: Box<RawValue>,
            #[serde(default)]
            origin: Vec<String>,
            #[serde(flatten)]
            extra: Extra,
        }
        #[derive(Deserialize)]
        struct Tag<'a> {
            #[serde(rename = "type", borrow)]
            tag: Cow<'a, str>,
        }
        let Envelope { timestamp, kind, payload, origin, extra } = Envelope::deserialize(deserializer)?;
        if !payload.get().starts_with('{') {
            return Err(de::Error::custom("a message's payload is an object"));
        }
        let tag = serde_json::from_str::<Tag>(payload.get()).ok();
        let tag = tag.as_ref().map_or("", |tag| tag.tag.as_ref());
        let read = match kind.as_str() {
            "session_meta" => serde_json::from_str(payload.get()).ok().map(Body::SessionMeta),
            "model_msg" => ModelMessage::read(tag, payload.get()).and_then(Result::ok).map(Body::Model),
            "event_msg" => Event::read(tag, payload.get()).and_then(Result::ok).map(Body::Event),
            _ => None,
        };
        let body = read.unwrap_or(Body::Other { kind, payload });
        Ok(Self { timestamp, body, origin, extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as PenguinHarness writes them, records of our own, and records of versions that do not exist yet.
    const RECORDS: &[&str] = &[
        r#"{"timestamp":"2026-11-30T20:52:05.234Z","type":"session_meta","payload":{"session_id":"s","provider":"p","model_id":"m","model_context_window":200000,"system_prompt":"x","agent_state":{"a":[1,null]},"workspace":"/w","later":1}}"#,
        r#"{"timestamp":"t","type":"session_meta","payload":{"session_id":"s","provider":"p","model_id":"m","model_context_window":"unknown","system_prompt":"","workspace":"/w","source":"subagent"}}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"text","role":"user","text":"a\u2028\u0000\u001b","sender":"harness","stop_reason":"completed"},"origin":["session-a","session-b"]}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"thinking","role":"assistant","thinking":"","fidelity":{"n":12345678901234567000,"f":1e+21,"z":-0.0,"k":{"b":1,"a":2}},"stop_reason":"completed"}}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"tool_call","role":"assistant","name":"n","arguments":"{not json","tool_call_id":"x#2","stop_reason":"malformed"}}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"tool_call_output","role":"user","output":"o","images":["data:image/png;base64,AA"],"tool_call_id":"x","stop_reason":"failed"}}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"inline_thinking","data":"AA","mime_type":"x/y"}}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"partial_tool_call_output","event_type":"delta","output":"d","tool_call_id":"x"}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"request_begin"}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"request_end","status":"timeout","error_message":"e","attempt":2,"retry_in_ms":4000}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"approval_decision","decision":"forbidden","tool_call_id":"x"}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"compaction_begin","reason":"context","mode":"summarize","context":199900,"turns":2}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"mcp_connect_end","status":"failed","results":[{"server":"a","duration_ms":44}]}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"token_usage","session":{"cache_read":1,"cache_write":2,"output":3,"total":6},"request":{"cache_read":0,"cache_write":0,"output":0,"total":0}}}"#,
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"something_new","a":{"type":"text"}},"seq":5,"hash":"00"}"#,
        r#"{"timestamp":"t","type":"model_msg","payload":{"type":"text","role":"a_new_role","text":"x"}}"#,
        r#"{"timestamp":"t","type":"a_new_type","payload":{"deep":[{"x":1.5}]}}"#,
    ];

    #[test]
    fn reading_and_writing_again_loses_nothing() {
        for record in RECORDS {
            let written = serde_json::to_string(&Message::from_json(record).unwrap()).unwrap();
            let (before, after): (Value, Value) =
                (serde_json::from_str(record).unwrap(), serde_json::from_str(&written).unwrap());
            assert_eq!(before, after, "{record}");
        }
    }

    #[test]
    fn what_a_provider_gave_opaquely_comes_back_byte_for_byte() {
        let record = RECORDS[3];
        let written = serde_json::to_string(&Message::from_json(record).unwrap()).unwrap();
        let opaque = r#"{"n":12345678901234567000,"f":1e+21,"z":-0.0,"k":{"b":1,"a":2}}"#;
        assert!(record.contains(opaque) && written.contains(opaque), "{written}");
    }

    #[test]
    fn only_whole_messages_of_the_session_itself_are_recorded() {
        let recorded: Vec<bool> =
            RECORDS.iter().map(|record| Message::from_json(record).unwrap().is_recorded()).collect();
        assert!(!recorded[2] && !recorded[7], "a child's message and a piece are not");
        assert_eq!(recorded.iter().filter(|recorded| **recorded).count(), RECORDS.len() - 2);
        for bad in ["", "[]", "{}", r#"{"type":"x","payload":3}"#, "null"] {
            assert!(Message::from_json(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn clean_text_drives_no_terminal() {
        assert!(matches!(clean("plain\ttext\n\u{e9}\u{1F600}"), Cow::Borrowed(_)));
        assert_eq!(
            clean("a\u{1b}[2J\0\u{7f}\u{9b}b\u{202e}c\r\n"),
            "a\u{241b}[2J\u{2400}\u{2421}\u{FFFD}b\u{FFFD}c\u{240d}\n"
        );
    }
}
