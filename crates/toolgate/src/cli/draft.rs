//! The line that is being typed while a run is on: a few editing keys, and nothing of it is lost to a question in between.

/// What came of some keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// A whole line.
    Line(String),
    /// Ctrl-D on an empty line.
    End,
}

/// The longest line that is kept; characters. More than anybody types while something runs.
const LONGEST: usize = 10_000;

/// A line that is being typed.
#[derive(Debug, Default)]
pub(super) struct Draft {
    text: String,
    /// What was typed before a question came.
    aside: Option<String>,
    /// Bytes of a character or of a key's sequence that is not whole yet.
    begun: Vec<u8>,
}

impl Draft {
    /// What is typed so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Takes what is typed away.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.begun.clear();
    }

    /// A question comes: what was typed waits for its end.
    pub(super) fn set_aside(&mut self) {
        let text = self.take();
        if !text.is_empty() {
            self.aside.get_or_insert_default().push_str(&text);
        }
    }

    /// The question is over.
    pub(super) fn take_back(&mut self) {
        self.clear();
        self.text = self.aside.take().unwrap_or_default();
    }

    /// Keys as the terminal sends them, in whatever pieces.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut typed = Vec::new();
        for &byte in bytes {
            self.begun.push(byte);
            match self.begun[0] {
                0x1b => self.sequence(),
                0x80.. => self.character(),
                _ => {
                    self.begun.clear();
                    typed.extend(self.key(byte));
                }
            }
        }
        typed
    }

    fn key(&mut self, key: u8) -> Option<Typed> {
        match key {
            b'\r' | b'\n' => return Some(Typed::Line(self.take())),
            0x04 if self.text.is_empty() => return Some(Typed::End),
            0x7f | 0x08 => drop(self.text.pop()),
            0x15 => self.text.clear(),
            0x17 => {
                let rest = self.text.trim_end().rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
                self.text.truncate(rest);
            }
            b'\t' | b' '..=b'~' => self.push(char::from(key)),
            _ => {}
        }
        None
    }

    fn push(&mut self, c: char) {
        if self.text.len() < LONGEST {
            self.text.push(c);
        }
    }

    /// Cursor and function keys do nothing here, and must not be taken for text.
    fn sequence(&mut self) {
        // Escape before a key that has a sequence of its own.
        if self.begun == [0x1b, 0x1b] {
            self.begun.pop();
        }
        let is_whole = match self.begun[..] {
            [_] => false,
            [_, b'[' | b'O'] => false,
            [_, b'[', .., last] => (0x40..=0x7e).contains(&last),
            _ => true,
        };
        if is_whole {
            self.begun.clear();
        }
    }

    fn character(&mut self) {
        match std::str::from_utf8(&self.begun) {
            Ok(text) => {
                let c = text.chars().next().filter(|c| !c.is_control());
                self.begun.clear();
                c.into_iter().for_each(|c| self.push(c));
            }
            Err(error) if error.error_len().is_none() => {}
            Err(_) => self.begun.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_make_lines_however_they_are_cut() {
        let line = |text: &str| Typed::Line(text.into());
        for (keys, typed, rest) in [
            ("abc\r", vec![line("abc")], ""),
            ("one\ntwo", vec![line("one")], "two"),
            ("wörd 字\x7f\x7f!", vec![], "wörd!"),
            ("one two three\x17\x17x", vec![], "one x"),
            ("gone\x15here", vec![], "here"),
            ("\x04", vec![Typed::End], ""),
            ("a\x04", vec![], "a"),
            ("a\x1b[3~b\x1bOAc\x1b[1;5Dd\x1bxe", vec![], "abcde"),
            ("a\x1b\x1b[Ab", vec![], "ab"),
            ("\x1b[200~y\x1b[201~", vec![], "y"),
        ] {
            for size in [1, 2, 3, 100] {
                let mut draft = Draft::default();
                let found: Vec<Typed> = keys.as_bytes().chunks(size).flat_map(|piece| draft.feed(piece)).collect();
                assert_eq!((&found, draft.text()), (&typed, rest), "{keys:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_question_leaves_what_was_typed() {
        let mut draft = Draft::default();
        draft.feed(b"half a th");
        draft.set_aside();
        assert_eq!(draft.feed(b"y\r"), [Typed::Line("y".into())]);
        draft.take_back();
        draft.feed(b"ought");
        assert_eq!(draft.text(), "half a thought");
    }
}
