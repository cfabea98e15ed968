//! What can be wrong with edits, for the model to read: what was found, where, and what helps.

use std::fmt::{self, Display, Formatter};

use super::{How, indent::Unclear, near::Near, pieces::is_blank};
use crate::files::names;

/// Everything that is wrong with some edits, none of which was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditError {
    /// In the order of the edits.
    pub problems: Vec<Problem>,
    /// How many edits there were; where there is one, no message numbers it.
    pub edits: usize,
}

/// What is wrong with one edit, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// There are none.
    NoEdits,
    /// Nothing is looked for.
    Empty {
        /// Which.
        edit: usize,
    },
    /// Nothing is to be changed.
    Same {
        /// Which.
        edit: usize,
    },
    /// The old text is not there.
    Missing {
        /// Which.
        edit: usize,
        /// Whether it holds pictures of control characters, as reading shows them.
        pictured: bool,
        /// What it may have meant.
        near: Vec<Near>,
    },
    /// The old text is there more than once.
    Ambiguous {
        /// Which.
        edit: usize,
        /// How often.
        count: usize,
        /// Whether it was not counted any further.
        more: bool,
        /// The lines of some matches.
        lines: Vec<usize>,
        /// How it matched.
        how: How,
    },
    /// Two edits want the same bytes.
    Overlap {
        /// The one that begins first in the file.
        edit: usize,
        /// The other.
        other: usize,
        /// The line where they meet.
        line: usize,
    },
    /// The old text is there but for its indentation, which does not say how the new text is to be indented.
    Indentation {
        /// Which.
        edit: usize,
        /// The line of the match.
        line: usize,
        /// What is unclear.
        indentation: Unclear,
    },
    /// The file's encoding has no such character.
    Unencodable {
        /// Which.
        edit: usize,
        /// The first such character.
        character: char,
    },
    /// More is to be replaced than one call may.
    TooMuch {
        /// Which.
        edit: usize,
    },
    /// All is found, and the file already reads so.
    NoChange,
}

/// What helps where an old text was taken from what reading shows.
const PICTURED: &str = "\nreading shows control characters as pictures, such as \u{241b} for ESC; write the characters themselves, such as \\u001b in JSON";

impl Problem {
    /// The edit that it is about, where it is one.
    pub fn edit(&self) -> Option<usize> {
        match self {
            Self::NoEdits | Self::NoChange => None,
            Self::Empty { edit }
            | Self::Same { edit }
            | Self::Missing { edit, .. }
            | Self::Ambiguous { edit, .. }
            | Self::Overlap { edit, .. }
            | Self::Indentation { edit, .. }
            | Self::Unencodable { edit, .. }
            | Self::TooMuch { edit } => Some(*edit),
        }
    }
}

impl std::error::Error for EditError {}

impl Display for EditError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            if let Some(edit) = problem.edit().filter(|_| self.edits > 1) {
                write!(f, "edits[{edit}]: ")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEdits => f.write_str("no edits are given; give at least one"),
            Self::Empty { .. } => f.write_str(
                "the old text is empty, so it stands nowhere; give the text to replace, or write the whole file with the tool for that",
            ),
            Self::Same { .. } => f.write_str("the old and the new text are the same, so nothing would change"),
            Self::Missing { near, pictured, .. } => {
                missing(f, near)?;
                f.write_str(if *pictured { PICTURED } else { "" })
            }
            Self::Ambiguous { count, more, lines, how, .. } => ambiguous(f, *count, *more, lines, *how),
            Self::Overlap { other, line, .. } => {
                write!(f, "it overlaps with edits[{other}] in line {line}; make one edit of both, or shorten their old texts")
            }
            Self::Indentation { line, indentation, .. } => unclear(f, *line, indentation),
            Self::Unencodable { character, .. } => write!(
                f,
                "the file is in an 8-bit encoding (Windows-1252) that has no {character:?} (U+{:04X}); use other characters, or convert the file first",
                *character as u32
            ),
            Self::TooMuch { .. } => f.write_str("it would replace more than one call can hold; use a command for this"),
            Self::NoChange => f.write_str("the file already reads so; nothing would change"),
        }
    }
}

fn missing(f: &mut Formatter<'_>, near: &[Near]) -> fmt::Result {
    f.write_str("the old text is not in the file")?;
    if near.is_empty() {
        return f.write_str("; read it again");
    }
    f.write_str(if near.len() == 1 { "; what comes nearest:" } else { "; what comes nearest, the best first:" })?;
    let mut legend = false;
    for near in near {
        write!(f, "\n{near}")?;
        legend |= near.has_marks();
    }
    f.write_str("\n(- your text, + the file")?;
    f.write_str(if legend { "; \u{2192} a tab, \u{b7} a blank, other marks as named)" } else { ")" })
}

fn ambiguous(f: &mut Formatter<'_>, count: usize, more: bool, lines: &[usize], how: How) -> fmt::Result {
    let named: Vec<String> = lines.iter().map(usize::to_string).collect();
    let (than, rest) = (if more { "more than " } else { "" }, if count > lines.len() { ", …" } else { "" });
    let count = if more { count - 1 } else { count };
    write!(f, "the old text occurs {than}{count} times (lines {}{rest})", named.join(", "))?;
    match how {
        How::Exact => {}
        How::Shown => f.write_str(", whatever ends the lines")?,
        How::Alike => f.write_str(", apart from trailing blanks and characters that look alike, and never exactly")?,
        How::Indented => f.write_str(", apart from indentation, and never exactly")?,
    }
    f.write_str("; it must be unique: add lines around it")
}

fn unclear(f: &mut Formatter<'_>, line: usize, indentation: &Unclear) -> fmt::Result {
    write!(f, "the old text matches at line {line} but for its indentation, ")?;
    match &indentation.new {
        None => f.write_str("which is not the file's in any one way")?,
        Some(new) => write!(f, "and nothing says what the new text's {} would be in the file", blanks(new))?,
    }
    /// Indentations that a message names.
    const MOST_PAIRS: usize = 6;
    for (number, (old, file)) in indentation.pairs.iter().take(MOST_PAIRS).enumerate() {
        let lead = if number == 0 { ": " } else { ", " };
        write!(f, "{lead}your {} is the file's {}", blanks(old), blanks(file))?;
    }
    f.write_str("; give old and new text with the file's own indentation")
}

/// Blanks in words.
fn blanks(text: &str) -> String {
    const NAMES: [(char, &str); 2] = [('\t', "tab"), (' ', "blank")];
    if text.is_empty() {
        return "no indentation".into();
    }
    let mut runs: Vec<(char, usize)> = Vec::new();
    for c in text.chars() {
        match runs.last_mut() {
            Some((last, count)) if *last == c => *count += 1,
            _ => runs.push((c, 1)),
        }
    }
    let run = |(c, count): (char, usize)| {
        let name = NAMES.iter().find(|(known, _)| *known == c).map_or_else(
            || format!("U+{:04X}", c as u32),
            |(_, name)| if count == 1 { (*name).to_owned() } else { format!("{name}s") },
        );
        format!("{count} {name}")
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(" + ")
}

/// Text of a file in which what cannot be seen can: tabs, blanks at both ends of a line, odd blanks, what takes no room, and controls.
pub(super) fn made_visible(line: &str) -> String {
    let (start, end) = (line.len() - line.trim_start_matches(is_blank).len(), line.trim_end_matches(is_blank).len());
    let mut shown = String::with_capacity(line.len());
    for (at, c) in line.char_indices() {
        match c {
            '\t' => shown.push('\u{2192}'),
            ' ' if at < start || at >= end => shown.push('\u{b7}'),
            ' ' => shown.push(' '),
            c if is_blank(c) || super::pieces::is_invisible(c) || names::is_invisible(c) => {
                shown.push_str(&format!("<U+{:04X}>", c as u32))
            }
            '\r' => shown.push('\u{240d}'),
            c if c.is_control() => shown.push_str(&format!("<U+{:04X}>", c as u32)),
            c => shown.push(c),
        }
    }
    shown
}
