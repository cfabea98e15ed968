//! What a model reads or writes, whole or in pieces, and the one gate through which text enters a history.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Extra, Role};
use crate::{outcome::StopReason, tool::ToolCall};

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

/// Text without anything that could drive a terminal or spoil a request: controls other than tab and newline are shown by their
/// pictures, and the characters that turn the reading direction around are marked.
pub fn clean(text: &str) -> Cow<'_, str> {
    let Some(mut at) = first_harmful(text, 0) else { return Cow::Borrowed(text) };
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    let mut from = 0;
    loop {
        shown.push_str(&text[from..at]);
        let Some(c) = text[at..].chars().next() else { break };
        shown.push(match c {
            '\0'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{FFFD}'),
            '\u{7f}' => '\u{2421}',
            _ => '\u{FFFD}',
        });
        from = at + c.len_utf8();
        at = first_harmful(text, from).unwrap_or(text.len());
    }
    Cow::Owned(shown)
}

/// Where the first character stands that must not be shown as it is. Bytes are looked at, since a history can have a hundred million of
/// them: only after the few that can begin such a character is a character read.
fn first_harmful(text: &str, from: usize) -> Option<usize> {
    let may_begin_one =
        |byte: u8| (byte < 0x20 && byte != b'\t' && byte != b'\n') || matches!(byte, 0x7f | 0xC2 | 0xE2);
    let mut from = from;
    loop {
        let at = from + text.as_bytes()[from..].iter().position(|byte| may_begin_one(*byte))?;
        let c = text[at..].chars().next()?;
        if c.is_control() || is_bidi(c) {
            return Some(at);
        }
        from = at + c.len_utf8();
    }
}

/// Characters that make a line read differently from what it is.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

impl ModelMessage {
    /// The message as it may enter a history: what a model, a person or a tool wrote, cleaned, without images that no provider takes. The
    /// trace keeps what was said.
    pub fn cleaned(mut self) -> Self {
        match &mut self {
            Self::Text(text) => clean_in_place(&mut text.text),
            Self::Thinking(thinking) => clean_in_place(&mut thinking.thinking),
            Self::ToolCall(call) => clean_in_place(&mut call.name),
            Self::ToolCallOutput(result) => {
                clean_in_place(&mut result.output);
                let before = result.images.len();
                result.images.retain(|url| url.len() <= LONGEST_IMAGE);
                for _ in result.images.len()..before {
                    result.output.push_str(IMAGE_LEFT_OUT);
                }
            }
            Self::ImageUrl(image) if image.image_url.len() > LONGEST_IMAGE => {
                let role = image.role.unwrap_or(Role::User);
                return Self::Text(Text::new(role, IMAGE_LEFT_OUT.trim_start(), StopReason::Completed));
            }
            _ => {}
        }
        self
    }
}

/// Bytes of the longest image in a history, as a data URL: 5 MiB in base64, and its head. No provider takes a larger one, and one that is
/// refused would be refused with every later request.
const LONGEST_IMAGE: usize = 7 * 1024 * 1024;

/// What stands in for one that is longer.
const IMAGE_LEFT_OUT: &str = "\n[an image was left out: it is larger than 5 MiB]";

fn clean_in_place(text: &mut String) {
    if let Cow::Owned(better) = clean(text) {
        *text = better;
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
