//! `trace show`: a trace as people read it.

use std::io::IsTerminal;

use toolgate_core::message::{Message, clean};

use super::{
    super::print,
    find::Files,
    told::{Told, told},
};
use crate::{failure::Failure, surroundings::Surroundings};

/// Lines of one text that are shown unless all are asked for: enough to see what it is.
const SHOWN_LINES: usize = 12;

/// Characters of one line that are shown unless all are asked for; a line of a minified file can have millions.
const SHOWN_CHARACTERS: usize = 400;

/// How texts are shown.
pub(super) struct Style {
    /// All of it.
    full: bool,
    /// With colours, and with nothing in it that could drive a terminal: a pipe gets what stands in the trace.
    terminal: bool,
    colours: bool,
}

impl Style {
    pub(super) fn new(full: bool, surroundings: &Surroundings) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let plain =
            surroundings.get("NO_COLOR").is_some() || surroundings.get("TERM").is_none_or(|term| term == "dumb");
        Self { full, terminal, colours: terminal && !plain }
    }
}

/// Shows the files one after the other.
pub(super) fn show(files: &Files, style: &Style) -> Result<u8, Failure> {
    for file in &files.each {
        if files.each.len() > 1 {
            print::data(&format!("-- {}", file.path.display()));
        }
        for (number, line) in (1..).zip(file.bytes.split(|byte| *byte == b'\n')) {
            match Message::from_line(line) {
                Some(message) => print::data(&style.shown(&told(&message))),
                None if line.is_empty() => {}
                None => print::data(&format!("(line {number} is no record: {} bytes)", line.len())),
            }
        }
    }
    Ok(0)
}

impl Style {
    fn shown(&self, told: &Told) -> String {
        let who = format!("{:8}", told.who);
        let who = if self.colours { format!("\x1b[{}m{who}\x1b[0m", colour(told.who)) } else { who };
        let mut shown = format!("{}  {who}  {}", told.time, self.line(&told.line));
        let lines: Vec<&str> = told.text.lines().collect();
        if let ([only], true) = (lines.as_slice(), told.line.is_empty()) {
            shown.push_str(&self.line(only));
            return shown;
        }
        let kept = if self.full { lines.len() } else { SHOWN_LINES };
        for line in lines.iter().take(kept) {
            shown.push_str("\n    ");
            shown.push_str(&self.line(line));
        }
        if lines.len() > kept {
            shown.push_str(&format!("\n    ({} more lines; --full shows them)", lines.len() - kept));
        }
        shown.truncate(shown.trim_end().len());
        shown
    }

    fn line(&self, line: &str) -> String {
        let kept = match line.char_indices().nth(SHOWN_CHARACTERS) {
            Some((end, _)) if !self.full => {
                format!("{} ({} more characters; --full shows them)", &line[..end], line[end..].chars().count())
            }
            _ => line.to_owned(),
        };
        if self.terminal { clean(&kept).into_owned() } else { kept }
    }
}

/// The colour of a kind of record, as a terminal's number.
fn colour(who: &str) -> u8 {
    match who {
        "user" => 36,
        "model" => 32,
        "call" | "result" => 33,
        "question" | "decision" => 35,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, text: &str, full: bool, terminal: bool) -> String {
        let told = Told { time: "t".into(), who: "result", line: line.into(), text: text.into() };
        Style { full, terminal, colours: false }.shown(&told)
    }

    #[test]
    fn long_texts_are_folded_unless_all_is_asked_for() {
        let text = "x\n".repeat(20);
        let folded = shown("[a]", &text, false, false);
        assert!(folded.ends_with("(8 more lines; --full shows them)") && folded.lines().count() == 14, "{folded}");
        assert_eq!(shown("[a]", &text, true, false).lines().count(), 21);
        let long = shown("", &"é".repeat(1_000), false, false);
        assert!(long.ends_with("(600 more characters; --full shows them)"), "{long}");
    }

    #[test]
    fn a_terminal_gets_nothing_that_drives_it_and_a_pipe_what_stands_there() {
        assert!(!shown("", "\x1b[2J", false, true).contains('\x1b'));
        assert!(shown("", "\x1b[2J", false, false).contains("\x1b[2J"));
    }
}
