//! What a program says: one JSON object a line.
//!
//! | line | what it is |
//! |---|---|
//! | `{"type":"text","text":"..."}` | a piece of the output; pieces are joined as they are, and the model reads them |
//! | `{"type":"image","data":"BASE64","mime_type":"image/png"}` | an image for the model |
//! | `{"type":"note","text":"..."}` | a line outside the output, such as how far it came |
//! | `{"type":"end","status":"completed"}` | the last line; `failed` with a `reason` where it did not go well |
//!
//! Whatever else stands there is an error that names the line: what cannot be understood must not be passed off as a result.

use serde::Deserialize;

/// Bytes of one line. An image of 5 MiB, the largest that a provider takes, is 7 MiB in base64.
pub const LONGEST_LINE: usize = 8 * 1024 * 1024;

/// Images of one call.
const MOST_IMAGES: usize = 8;

/// Notes of one call.
const MOST_NOTES: usize = 16;

/// Characters of a line that an error shows.
const SHOWN: usize = 200;

/// The kinds of images that models take.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Text {
        text: String,
    },
    Image {
        data: String,
        mime_type: String,
    },
    Note {
        text: String,
    },
    End {
        status: EndStatus,
        #[serde(default)]
        reason: Option<String>,
    },
}

/// How a program says that it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    /// Well.
    Completed,
    /// Not well.
    Failed,
}

/// Reads a program's output as it comes.
#[derive(Debug, Default)]
pub struct Reader {
    /// A line without its end.
    rest: Vec<u8>,
    /// Lines so far.
    lines: u64,
    /// Data URLs.
    /// In base64.
    images: Vec<String>,
    notes: Vec<String>,
    end: Option<(EndStatus, Option<String>)>,
}

/// What a program said in all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Data URLs.
    pub images: Vec<String>,
    /// Lines outside the output.
    pub notes: Vec<String>,
    /// How it says that it went, and why; none where it did not say.
    pub end: Option<(EndStatus, Option<String>)>,
}

impl Reader {
    /// Takes a piece of output. Text is given to `text` at once.
    ///
    /// # Errors
    /// What is no such line, with its number and its beginning.
    pub fn push(&mut self, mut bytes: &[u8], text: &mut dyn FnMut(&str)) -> Result<(), String> {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (line, behind) = bytes.split_at(at);
            bytes = &behind[1..];
            self.hold(line)?;
            let line = std::mem::take(&mut self.rest);
            self.line(&line, text)?;
        }
        self.hold(bytes)
    }

    /// Whether the last line has come.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// The output has ended: a last line needs no line end.
    ///
    /// # Errors
    /// As [`Reader::push`].
    pub fn finish(&mut self, text: &mut dyn FnMut(&str)) -> Result<(), String> {
        let line = std::mem::take(&mut self.rest);
        self.line(&line, text)
    }

    /// Everything but the text.
    pub fn into_said(self) -> Said {
        Said { images: self.images, notes: self.notes, end: self.end }
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.rest.len() + bytes.len() > LONGEST_LINE {
            return Err(format!("line {} of its output is longer than {LONGEST_LINE} bytes", self.lines + 1));
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8], text: &mut dyn FnMut(&str)) -> Result<(), String> {
        self.lines += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let number = self.lines;
        if self.end.is_some() {
            return Err(format!("line {number} of its output stands behind its `end`: {}", beginning(line)));
        }
        let read = serde_json::from_slice(line);
        let wrong = |what: String| format!("line {number} of its output {what}; received: {}", beginning(line));
        match read.map_err(|error| wrong(format!("is no message of the protocol ({error})")))? {
            Line::Text { text: piece } => text(&piece),
            Line::Note { .. } if self.notes.len() == MOST_NOTES => {
                return Err(wrong(format!("is one note too many, {MOST_NOTES} may be sent")));
            }
            Line::Note { text } => self.notes.push(text),
            Line::Image { .. } if self.images.len() == MOST_IMAGES => {
                return Err(wrong(format!("is one image too many, {MOST_IMAGES} may be sent")));
            }
            Line::Image { data, mime_type } => {
                if !IMAGES.contains(&mime_type.as_str()) {
                    return Err(wrong(format!("has no `mime_type` of {}", IMAGES.join(", "))));
                }
                if !is_base64(&data) {
                    return Err(wrong("has no base64 in `data`".into()));
                }
                self.images.push(data);
            }
            Line::End { status, reason } => self.end = Some((status, reason)),
        }
        Ok(())
    }
}

/// Whether a text is base64 with its padding, as far as its letters can tell.
fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !body.is_empty() && data.len().is_multiple_of(4) && data.len() - body.len() <= 2 && body.bytes().all(letter)
}

/// The beginning of a line, for an error.
fn beginning(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    let shown: String = line.chars().take(SHOWN).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
    if shown.len() < line.len() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Result<(String, Said), String> {
        let (mut reader, mut text) = (Reader::default(), String::new());
        reader.push(output.as_bytes(), &mut |piece| text.push_str(piece))?;
        reader.finish(&mut |piece| text.push_str(piece))?;
        Ok((text, reader.into_said()))
    }

    #[test]
    fn each_kind_of_line_is_taken_for_what_it_is() {
        let output = concat!(
            r#"{"type":"text","text":"a\n"}"#,
            "\n\r\n",
            r#" {"text":"b","type":"text"} "#,
            "\r\n",
            r#"{"type":"note","text":"n"}"#,
            "\n",
            r#"{"type":"image","data":"aGk=","mime_type":"image/png"}"#,
            "\n",
            r#"{"type":"end","status":"failed","reason":"r"}"#,
        );
        let (text, said) = read(output).unwrap();
        let images = vec!["aGk=".to_owned()];
        let end = Some((EndStatus::Failed, Some("r".into())));
        assert_eq!((text.as_str(), said), ("a\nb", Said { images, notes: vec!["n".into()], end }));
    }

    #[test]
    fn what_is_no_line_is_named_with_its_number() {
        let end = r#"{"type":"end","status":"completed"}"#;
        let text = r#"{"type":"text","text":"x"}"#;
        let image = |data: &str, kind: &str| format!(r#"{{"type":"image","data":"{data}","mime_type":"{kind}"}}"#);
        let note = "{\"type\":\"note\",\"text\":\"n\"}\n";
        for (output, part) in [
            (format!("{text}\nhello\n"), "line 2 of its output is no message of the protocol"),
            (format!("{text}\n{{\"type\":\"te"), "line 2 of its output is no message"),
            (r#"{"type":"text"}"#.into(), "missing field `text`"),
            (r#"{"type":"text","text":"x","colour":1}"#.into(), "unknown field `colour`"),
            (r#"{"type":"sing"}"#.into(), "unknown variant `sing`"),
            (r#"{"type":"end","status":"fine"}"#.into(), "unknown variant `fine`"),
            ("[1]".into(), "line 1"),
            (format!("{end}\n\n{text}"), "line 3 of its output stands behind its `end`"),
            (image("a b", "image/png"), "no base64"),
            (image("aGk", "image/png"), "no base64"),
            (image("aGk=", "text/html"), "no `mime_type` of image/png"),
            (image("aGk=", "image/png\n").repeat(2), "line 1"),
            (note.repeat(17), "line 17 of its output is one note too many"),
            ("x".repeat(LONGEST_LINE + 1), "line 1 of its output is longer than 8388608 bytes"),
        ] {
            let error = read(&output).unwrap_err();
            assert!(error.contains(part) && error.len() < 1000, "{part}: {error}");
        }
    }
}
