//! Server-sent events, read as they arrive.
//!
//! WHATWG's rules: a line ends in LF, CRLF or a lone CR; a BOM may open the stream; several `data` lines join with a line feed; a
//! line that starts with a colon is a comment. Reads may end anywhere, also inside a character, so bytes become text only once
//! their line is whole. Every byte is looked at once, whatever the sizes of the reads.

/// The longest event, its lines together; bytes. Servers that send a call in one piece put a whole written file into one line, and
/// a line beyond this is no answer but a fault that must not fill the memory.
pub(super) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// U+FEFF in UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// The `event` field; empty where the server names none.
    pub(super) name: String,
    /// The `data` lines, joined.
    pub(super) data: String,
}

/// An event that passes [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// The reader's state between two reads.
#[derive(Debug, Default)]
pub(super) struct Reader {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    began: bool,
    after_cr: bool,
}

impl Reader {
    /// Takes the next bytes of the stream and appends the events that they complete.
    ///
    /// # Errors
    /// [`TooLong`]; the stream is then of no further use.
    pub(super) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.keep(bytes);
            };
            self.keep(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, events)?;
            // The buffer goes on to serve the next line.
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    /// The event that the end of the stream cut short, if it has data. WHATWG drops it; some servers leave out the last blank line,
    /// so the caller judges whether what is there is whole.
    pub(super) fn finish(mut self) -> Option<Event> {
        let (line, mut events) = (std::mem::take(&mut self.line), Vec::new());
        self.take_line(&line, &mut events).ok()?;
        self.take_line(b"", &mut events).ok()?;
        events.pop()
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + part.len() > MAX_EVENT_BYTES {
            return Err(TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn take_line(&mut self, mut line: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        if !std::mem::replace(&mut self.began, true) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                events.push(event);
            }
            return Ok(());
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"data" => {
                if self.event.data.len() + value.len() > MAX_EVENT_BYTES {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&value);
            }
            b"event" => self.event.name = value.into_owned(),
            // `id` and `retry` serve reconnecting, which a model's answer never does; an empty field is a comment.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let (mut reader, mut events) = (Reader::default(), Vec::new());
        for piece in pieces {
            assert_eq!(reader.push(piece, &mut events), Ok(()));
        }
        events.extend(reader.finish());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn every_line_end_and_every_split_gives_the_same_events() {
        let lines = "\u{FEFF}: hello\n\ndata: {\"a\":\"é€😀\"}\n\nevent: error\ndata:  two\ndata\ndata:lines\nid: 7\nretry: 1\n\nevent: lost\n\ndata: tail\n\n";
        let want = vec![event("", "{\"a\":\"é€😀\"}"), event("error", " two\n\nlines"), event("", "tail")];
        for end in ["\n", "\r\n", "\r"] {
            let bytes = lines.replace('\n', end).into_bytes();
            assert_eq!(read(&[&bytes]), want, "whole, {end:?}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single), want, "one byte a read, {end:?}");
            for at in 0..=bytes.len() {
                assert_eq!(read(&[&bytes[..at], &bytes[at..]]), want, "split at {at}, {end:?}");
            }
        }
    }

    #[test]
    fn the_end_of_the_stream_gives_what_is_there() {
        assert_eq!(read(&[b"data: a\n\ndata: b\n"]), [event("", "a"), event("", "b")]);
        assert_eq!(read(&[b"data: a\n\ndata: {\"b"]), [event("", "a"), event("", "{\"b")]);
        assert_eq!(read(&[b"data: a\n\n: bye\n"]), [event("", "a")]);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn broken_utf8_costs_one_character() {
        assert_eq!(read(&[b"data: a\xFFb\n\n"]), [event("", "a\u{FFFD}b")]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let (mut reader, mut events) = (Reader::default(), Vec::new());
        let piece = vec![b'x'; 1024 * 1024];
        let taken = (0..).take_while(|_| reader.push(&piece, &mut events).is_ok()).count();
        assert_eq!(taken, MAX_EVENT_BYTES / piece.len());
    }
}
