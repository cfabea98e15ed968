//! The summary that stands in place of what was said before: how it opens a context, and where it is found in an answer.

use toolgate_core::{
    message::{ModelMessage, Role, Text},
    outcome::StopReason,
};

/// The mark of the summary that opens the new context (PenguinHarness's word).
const SUMMARY: &str = "[context_summary]";

/// The message that opens a context in place of what was said before.
pub(crate) fn opening(summary: &str) -> ModelMessage {
    let said = format!("{SUMMARY}\n{summary}");
    ModelMessage::Text(Text { sender: Some("harness".into()), ..Text::new(Role::User, said, StopReason::Completed) })
}

/// The summary in an answer: what stands between the marks, else what stands outside of them, else all of it.
pub(crate) fn summary_in(answer: &str) -> Option<&str> {
    for (open, close) in [("[summary]", "[/summary]"), ("<summary>", "</summary>")] {
        let Some((before, rest)) = answer.split_once(open) else { continue };
        let (inside, after) = rest.split_once(close).unwrap_or((rest, ""));
        let found = [inside, after, before].into_iter().map(str::trim).find(|part| !part.is_empty());
        if found.is_some() {
            return found;
        }
    }
    Some(answer.trim()).filter(|whole| !whole.is_empty() && !["[summary]", "<summary>"].contains(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_found_wherever_the_model_put_it() {
        for (answer, wanted) in [
            ("[summary]\nwhat was done\n[/summary]", Some("what was done")),
            ("I sum up.\n[summary]a[/summary] b", Some("a")),
            ("<summary>old form</summary>", Some("old form")),
            ("[summary][/summary]\nbehind the marks", Some("behind the marks")),
            ("before [summary][/summary]", Some("before")),
            ("[summary] never closed", Some("never closed")),
            ("no marks at all", Some("no marks at all")),
            ("", None),
            (" \n", None),
            ("[summary] [/summary]", Some("[summary] [/summary]")),
        ] {
            assert_eq!(summary_in(answer), wanted, "{answer}");
        }
    }
}
