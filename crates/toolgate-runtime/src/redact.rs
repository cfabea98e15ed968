//! Keeps known secrets out of what is written and out of what people see while it comes.
//!
//! A whole text is searched once. A text that comes in pieces is searched across their borders: only an end that could begin a secret is
//! held back, so the pieces joined read exactly like the whole.

use std::borrow::Cow;

use serde_json::Value;

/// What stands for a secret.
const REDACTED: &str = "[redacted]";

/// A shorter secret would tear ordinary words apart, and is none; bytes.
const SHORTEST: usize = 8;

/// The members of a record that hold what somebody wrote, and not a word of the protocol.
const FREE_TEXT: &[&str] = &[
    "text",
    "thinking",
    "arguments",
    "output",
    "summary",
    "reason",
    "rule",
    "detail",
    "error_message",
    "system_prompt",
    "images",
    "image_url",
    "data",
];

/// Known secrets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor {
    /// In every form in which they may stand in a text, the longest first.
    forms: Vec<String>,
}

impl Redactor {
    /// From here on these values are redacted too.
    pub(crate) fn add(&mut self, secrets: &[String]) {
        for secret in secrets.iter().filter(|secret| secret.len() >= SHORTEST) {
            // As it is, as it stands inside a call's arguments, and as those stand in a line of the trace.
            let mut forms = vec![secret.clone()];
            for _ in 0..2 {
                let quoted = forms.last().and_then(|form| serde_json::to_string(form).ok()).unwrap_or_default();
                forms.push(quoted.trim_matches('"').to_owned());
            }
            self.forms.extend(forms.into_iter().filter(|form| form.len() >= SHORTEST));
        }
        self.forms.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        self.forms.dedup();
    }

    /// Whether there is anything to look for.
    pub(crate) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// A text without secrets: the first one is taken out, and of those that begin at the same place the longest.
    pub(crate) fn whole<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.first_in(text).is_none() {
            return Cow::Borrowed(text);
        }
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((at, length)) = self.first_in(rest) {
            out.push_str(&rest[..at]);
            out.push_str(REDACTED);
            rest = &rest[at + length..];
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// A text that goes on: what may be the beginning of a secret at its end is left out.
    pub(crate) fn so_far(&self, text: &str) -> String {
        Pieces::default().push(self, text)
    }

    /// A record's JSON without secrets, and whether it held any. Only what people, models and commands wrote is touched: a secret that
    /// reads like a word of the protocol must not change what a record says.
    pub(crate) fn record(&self, object: String) -> (String, bool) {
        if !self.forms.iter().any(|form| object.contains(form.as_str())) {
            return (object, false);
        }
        let Ok(mut value) = serde_json::from_str::<Value>(&object) else { return (object, false) };
        if let Some(payload) = value.get_mut("payload") {
            self.value(payload, false);
        }
        (value.to_string(), true)
    }

    fn value(&self, value: &mut Value, free: bool) {
        match value {
            Value::String(text) if free => {
                if let Cow::Owned(better) = self.whole(text) {
                    *text = better;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item, free)),
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    self.value(member, free || FREE_TEXT.contains(&name.as_str()));
                }
            }
            _ => {}
        }
    }

    /// Where the first secret begins, and its length.
    fn first_in(&self, text: &str) -> Option<(usize, usize)> {
        let found = self.forms.iter().filter_map(|form| Some((text.find(form.as_str())?, form.len())));
        found.min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)))
    }

    /// Where the end begins that could be the beginning of a secret; the text's length when it could not.
    fn open_end(&self, text: &str) -> usize {
        let longest = self.forms.first().map_or(0, String::len);
        let from = text.len().saturating_sub(longest.saturating_sub(1));
        let ends = (from..text.len()).filter(|at| text.is_char_boundary(*at));
        let could_begin = |at: &usize| self.forms.iter().any(|form| form.starts_with(&text[*at..]));
        ends.into_iter().find(could_begin).unwrap_or(text.len())
    }
}

/// A text that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    held: String,
}

impl Pieces {
    /// What of the text so far can be shown now.
    pub(crate) fn push(&mut self, redactor: &Redactor, more: &str) -> String {
        if redactor.is_empty() {
            return more.to_owned();
        }
        self.held.push_str(more);
        let mut out = String::new();
        loop {
            let open = redactor.open_end(&self.held);
            match redactor.first_in(&self.held) {
                // What begins before the open end is complete: nothing that comes can make it another one.
                Some((at, length)) if at < open => {
                    out.push_str(&self.held[..at]);
                    out.push_str(REDACTED);
                    self.held.drain(..at + length);
                }
                _ => {
                    out.push_str(&self.held[..open]);
                    self.held.drain(..open);
                    return out;
                }
            }
        }
    }

    /// The text is over: the rest of it.
    pub(crate) fn finish(self, redactor: &Redactor) -> String {
        redactor.whole(&self.held).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.add(&secrets.iter().map(|secret| (*secret).to_owned()).collect::<Vec<_>>());
        redactor
    }

    /// Short secrets over few letters, which overlap, begin each other and stand in each other.
    fn small_world() -> Redactor {
        Redactor { forms: ["ababa", "aba", "éb", "bb", "cab"].map(String::from).to_vec() }
    }

    fn in_pieces(redactor: &Redactor, pieces: &[String]) -> String {
        let (mut stream, mut out) = (Pieces::default(), String::new());
        for piece in pieces {
            out.push_str(&stream.push(redactor, piece));
            let longest = redactor.forms.iter().map(String::len).max().unwrap_or(0);
            assert!(stream.held.len() < longest.max(1), "no more is held back than could begin a secret");
        }
        out + &stream.finish(redactor)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn pieces_joined_read_like_the_whole(pieces in prop::collection::vec("[abcé]{0,6}", 0..8)) {
            let redactor = small_world();
            prop_assert_eq!(in_pieces(&redactor, &pieces), redactor.whole(&pieces.concat()).into_owned());
        }

        #[test]
        fn no_text_so_far_shows_a_part_of_a_secret(before in "[x ]{0,9}", after in "[x ]{0,9}", to in 0_usize..40) {
            let redactor = redactor(&["sk-secret-0123456789"]);
            let text = format!("{before}sk-secret-0123456789{after}");
            let shown = redactor.so_far(&text[..to.min(text.len())]);
            prop_assert!(!shown.replace(REDACTED, "").contains(['s', 'k', '-', '0', '9', 'e']), "{}", shown);
        }
    }

    #[test]
    fn a_text_so_far_waits_for_the_longer_of_two_secrets_that_begin_alike() {
        let redactor = redactor(&["sk-12345", "sk-12345-and-more"]);
        for (text, shown) in [
            ("a sk-12345", "a "),
            ("a sk-12345-and-mo", "a "),
            ("a sk-12345-and-more", "a [redacted]"),
            ("a sk-12345-and no", "a [redacted]-and no"),
        ] {
            assert_eq!(redactor.so_far(text), shown, "{text}");
        }
    }

    #[test]
    fn a_secret_is_found_in_every_form_and_short_ones_are_none() {
        let redactor = redactor(&["sk-\"quoted\"-1234", "short"]);
        for text in ["sk-\"quoted\"-1234", r#"sk-\"quoted\"-1234"#, r#"sk-\\\"quoted\\\"-1234"#] {
            assert_eq!(redactor.whole(text), REDACTED);
        }
        assert!(matches!(redactor.whole("short and nothing else"), Cow::Borrowed(_)));
    }
}
