//! Reading a message from a line: what this version cannot name is kept as it stands, and what no JSON reader may read is mended.
//!
//! A writer that cuts text in UTF-16 units can leave half a character behind: the escape of a lone surrogate, which is no text. It is
//! read as U+FFFD here, at the one place where lines become messages; the line itself is never changed.

use std::borrow::Cow;

use serde::{Deserialize, de};
use serde_json::value::RawValue;

use super::{Body, Event, Extra, Message, ModelMessage};

impl Message {
    /// Reads one message from JSON text.
    ///
    /// # Errors
    /// Only when the text is no JSON object with a `type` and a `payload`. A payload that this version cannot read is kept as
    /// [`Body::Other`].
    pub fn from_json(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(&mended(line))
    }

    /// Reads one message from a line of a trace. `None` for bytes that are no message, such as those that a crash tore, inside a
    /// character too.
    pub fn from_line(line: &[u8]) -> Option<Self> {
        Self::from_json(std::str::from_utf8(line).ok()?).ok()
    }
}

/// JSON text in which no escape is half a character: a lone surrogate becomes U+FFFD, in as many bytes.
fn mended(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut better: Option<Vec<u8>> = None;
    let mut at = 0;
    // Nearly every line has no such escape, and then this one search is all.
    if !["\\ud", "\\uD"].iter().any(|escape| memchr::memmem::find(bytes, escape.as_bytes()).is_some()) {
        return Cow::Borrowed(json);
    }
    while let Some(next) = memchr::memchr(b'\\', &bytes[at..]) {
        at += next;
        at += match (surrogate(&bytes[at..]), bytes.get(at + ESCAPE..).and_then(surrogate)) {
            (Some(Half::High), Some(Half::Low)) => 2 * ESCAPE,
            (Some(_), _) => {
                better.get_or_insert_with(|| bytes.to_vec())[at..at + ESCAPE].copy_from_slice(b"\\ufffd");
                ESCAPE
            }
            // Any other escape, of which the second character may be a backslash.
            (None, _) => 2,
        };
        if at >= bytes.len() {
            break;
        }
    }
    match better.map(String::from_utf8) {
        Some(Ok(better)) => Cow::Owned(better),
        _ => Cow::Borrowed(json),
    }
}

/// The length of `\uXXXX`; bytes.
const ESCAPE: usize = 6;

enum Half {
    High,
    Low,
}

/// Which half of a character is escaped at the beginning of these bytes, if one is.
fn surrogate(bytes: &[u8]) -> Option<Half> {
    let digits = std::str::from_utf8(bytes.strip_prefix(b"\\u")?.get(..4)?).ok()?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..=0xDBFF => Some(Half::High),
        0xDC00..=0xDFFF => Some(Half::Low),
        _ => None,
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

    #[test]
    fn half_a_character_is_read_as_the_replacement_character() {
        for (text, wanted) in [
            (r"cut \ud83d", "cut \u{FFFD}"),
            (r"\uD83D\ud83D\uDE00\ude00", "\u{FFFD}\u{1F600}\u{FFFD}"),
            (r"\ud83d\n\ud83d\\ud83d", "\u{FFFD}\n\u{FFFD}\\ud83d"),
            (r"\\ud83d \\\ud83d", "\\ud83d \\\u{FFFD}"),
            (r"whole \ud83d\ude00", "whole \u{1F600}"),
        ] {
            let line = format!(r#"{{"type":"model_msg","payload":{{"type":"text","role":"user","text":"{text}"}}}}"#);
            let Some(Message { body: Body::Model(ModelMessage::Text(read)), .. }) = Message::from_line(line.as_bytes())
            else {
                panic!("{line}")
            };
            assert_eq!(read.text, wanted, "{line}");
        }
    }

    #[test]
    fn torn_bytes_are_no_message() {
        let line = r#"{"type":"model_msg","payload":{"type":"text","role":"user","text":"日\ud83d"}}"#.as_bytes();
        assert!((0..line.len()).all(|cut| Message::from_line(&line[..cut]).is_none()));
        assert!(Message::from_line(line).is_some());
    }
}
