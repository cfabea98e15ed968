//! OmniMessage: one form for the stream, the trace and the model's context.
//!
//! A message is an envelope `{timestamp, type, payload, origin?}`. Reading keeps every field that this version does not know
//! (`extra`) and every payload that it cannot name ([`Body::Other`]), so that writing it again loses nothing. The form is
//! PenguinHarness's; the fields and events that toolgate adds are optional, and a reader that does not know them may skip them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

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
            pub(super) fn read(tag: &str, raw: &str) -> Option<Result<Self, serde_json::Error>> {
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

mod event;
mod model;
mod read;

pub use event::*;
pub use model::*;

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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

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
        assert_eq!(clean("\u{85}\u{c2}\u{a9}\u{e2}\u{20ac}\u{2066}"), "\u{FFFD}\u{c2}\u{a9}\u{e2}\u{20ac}\u{FFFD}");
        assert!(matches!(clean("\u{a0}\u{2019}\u{20ac}\u{2028}"), Cow::Borrowed(_)), "neighbours of what is harmful");
        assert_eq!(
            clean("a\u{1b}[2J\0\u{7f}\u{9b}b\u{202e}c\r\n"),
            "a\u{241b}[2J\u{2400}\u{2421}\u{FFFD}b\u{FFFD}c\u{240d}\n"
        );
    }

    #[test]
    fn what_enters_a_history_is_clean_whoever_wrote_it() {
        let cleaned = |payload: serde_json::Value| {
            let record = serde_json::json!({"timestamp": "", "type": "model_msg", "payload": payload}).to_string();
            match Message::from_json(&record).unwrap().body {
                Body::Model(message) => message.cleaned(),
                _ => panic!("it is what a model reads"),
            }
        };
        let (small, large) = ("data:image/png;base64,AA==", "x".repeat(8 * 1024 * 1024));
        let result = cleaned(serde_json::json!({
            "type": "tool_call_output", "output": "a\0b", "images": [small, large], "tool_call_id": "c", "stop_reason": "completed",
        }));
        let ModelMessage::ToolCallOutput(output) = result else { panic!("a result stays one") };
        assert_eq!(output.output, "a\u{2400}b\n[an image was left out: it is larger than 5 MiB]");
        assert_eq!(output.images, [small]);
        let image = cleaned(serde_json::json!({"type": "image_url", "role": "user", "image_url": large}));
        let ModelMessage::Text(text) = image else { panic!("words stand in for it") };
        assert!(text.text.starts_with("[an image was left out"));
    }
}
