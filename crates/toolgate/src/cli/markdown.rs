//! The model's Markdown on a terminal, as it comes: the source with styles laid over it.
//!
//! The text is not laid out anew. Its own characters are written in their own order; styles are added, marks that a style replaces are
//! left out, the cells of a table get blanks. So no word can be lost or moved, whatever a parser makes of a text. A block is written once,
//! when the next one has begun; a fenced block of code line by line.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};

use super::ink::{CYAN, DIM, Ink, columns_of};

/// Styles that can lie over each other, as bits.
const BOLD: u8 = 1;
const ITALIC: u8 = 2;
const UNDERLINED: u8 = 4;
const STRUCK: u8 = 8;
const CODE: u8 = 16;
const FAINT: u8 = 32;
/// Left out.
const HIDDEN: u8 = 64;

/// A text that comes in pieces.
pub(super) struct Markdown {
    ink: Ink,
    /// What is not finished.
    open: String,
    /// The mark that ends the fenced block that the text stands in.
    fence: Option<String>,
}

impl Markdown {
    pub(super) fn new(ink: Ink) -> Self {
        Self { ink, open: String::new(), fence: None }
    }

    /// What is not finished, as it came.
    pub(super) fn open(&self) -> &str {
        &self.open
    }

    /// Takes more text, and gives what is finished by it: whole lines. Each line is looked at when it ends, so that the pieces in which a
    /// text comes make no difference.
    pub(super) fn push(&mut self, more: &str) -> String {
        let mut out = String::new();
        for piece in more.split_inclusive('\n') {
            self.open.push_str(piece);
            if piece.ends_with('\n') {
                self.line_ended(&mut out);
            }
        }
        out
    }

    fn line_ended(&mut self, out: &mut String) {
        let done = if !self.ink.is_used() {
            out.push_str(&self.open);
            self.open.len()
        } else if self.fence.is_some() {
            self.code_line(out)
        } else {
            self.blocks(out)
        };
        self.open.drain(..done);
    }

    /// The text is whole: gives the rest of it, ended by a newline.
    pub(super) fn finish(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.open);
        if rest.is_empty() {
            self.fence = None;
            return rest;
        }
        if !rest.ends_with('\n') {
            rest.push('\n');
        }
        let mut out = self.push(&rest);
        let last = std::mem::take(&mut self.open);
        if self.ink.is_used() {
            self.render(&last, &mut out);
        } else {
            out.push_str(&last);
        }
        self.fence = None;
        out
    }

    /// A line of a fenced block, or its end.
    fn code_line(&mut self, out: &mut String) -> usize {
        let line = self.open.trim_end_matches('\n');
        let ends = self.fence.as_deref().is_some_and(|fence| closes(line, fence));
        out.push_str(&self.ink.paint(if ends { DIM } else { CYAN }, line));
        out.push('\n');
        if ends {
            self.fence = None;
        }
        self.open.len()
    }

    /// Every block but the last, which may go on. A fenced one is handed over to [`Self::code_line`].
    fn blocks(&mut self, out: &mut String) -> usize {
        let text = self.open.as_str();
        let mut depth = 0;
        let mut last = None;
        for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
            match event {
                Event::Start(tag) => {
                    if depth == 0 {
                        let is_fenced = matches!(tag, Tag::CodeBlock(pulldown_cmark::CodeBlockKind::Fenced(_)));
                        last = Some((range, is_fenced));
                    }
                    depth += 1;
                }
                Event::End(_) => depth -= 1,
                _ if depth == 0 => last = Some((range, false)),
                _ => {}
            }
        }
        let Some((last, is_fenced)) = last else { return 0 };
        let start = text[..last.start].rfind('\n').map_or(0, |end| end + 1);
        if !is_fenced {
            let before = text[..start].to_owned();
            self.render(&before, out);
            return start;
        }
        let line = text[start..].split_inclusive('\n').next().unwrap_or_default();
        let mark = line.trim_start();
        let first = mark.chars().next().unwrap_or('`');
        self.fence = Some(mark.chars().take_while(|c| *c == first).collect());
        let (before, line) = (text[..start].to_owned(), line.to_owned());
        self.render(&before, out);
        out.push_str(&self.ink.paint(DIM, line.trim_end_matches('\n')));
        out.push('\n');
        start + line.len()
    }

    /// Whole blocks with their styles.
    fn render(&self, text: &str, out: &mut String) {
        let mut layer = Layer { text, style: vec![0; text.len()], instead: Vec::new() };
        let mut tables = Vec::new();
        for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
            layer.lay(&event, range, &mut tables);
        }
        for table in tables {
            layer.align(&table);
        }
        layer.write(out);
    }
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// Whether a line ends a fenced block that began with this mark.
fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim_end();
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mark = &line[indent..];
    indent < 4 && mark.len() >= fence.len() && mark.starts_with(fence) && mark.chars().all(|c| fence.starts_with(c))
}

/// A text, a style for each byte, and what stands in the place of some of them.
struct Layer<'a> {
    text: &'a str,
    style: Vec<u8>,
    /// Where, how many bytes, and what: in no order.
    instead: Vec<(usize, usize, String)>,
}

/// The rows of a table, each with the places of its cells.
type Table = Vec<(Range<usize>, Vec<Range<usize>>)>;

impl Layer<'_> {
    fn lay(&mut self, event: &Event<'_>, range: Range<usize>, tables: &mut Vec<Table>) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                self.add(range.clone(), BOLD);
                let marks = self.text[range.clone()].bytes().take_while(|byte| *byte == b'#').count();
                if marks > 0 {
                    let blanks = self.text[range.start + marks..range.end].bytes().take_while(|b| *b == b' ').count();
                    self.add(range.start..range.start + marks + blanks, HIDDEN);
                }
            }
            Event::Start(Tag::Emphasis) => self.between(range, 1, ITALIC),
            Event::Start(Tag::Strong) => self.between(range, 2, BOLD),
            Event::Start(Tag::Strikethrough) => {
                let marks = if self.text[range.clone()].starts_with("~~") { 2 } else { 1 };
                self.between(range, marks, STRUCK);
            }
            Event::Code(_) => {
                let marks = self.text[range.clone()].bytes().take_while(|byte| *byte == b'`').count();
                self.between(range, marks, CODE);
            }
            Event::Start(Tag::CodeBlock(_)) => self.add(range, CODE),
            Event::Start(Tag::Link { link_type, .. }) => self.link(range, *link_type),
            Event::Start(Tag::Item) => {
                let mark = self.text[range.start..].chars().next().unwrap_or(' ');
                if matches!(mark, '-' | '*' | '+') {
                    self.instead.push((range.start, 1, "\u{2022}".into()));
                }
            }
            Event::Start(Tag::BlockQuote(_)) => {
                for (at, c) in self.text[range.clone()].match_indices('>') {
                    let line = self.text[..range.start + at].rfind('\n').map_or(0, |end| end + 1);
                    if self.text[line..range.start + at].bytes().all(|byte| matches!(byte, b' ' | b'>')) {
                        self.add(range.start + at..range.start + at + c.len(), FAINT);
                    }
                }
            }
            Event::Rule => self.add(range, FAINT),
            Event::Start(Tag::Table(_)) => tables.push(Vec::new()),
            Event::Start(Tag::TableHead) => {
                tables.last_mut().into_iter().for_each(|table| table.push((range.clone(), Vec::new())));
            }
            Event::Start(Tag::TableRow) => {
                tables.last_mut().into_iter().for_each(|table| table.push((range.clone(), Vec::new())));
            }
            Event::Start(Tag::TableCell) => {
                let Some(table) = tables.last_mut() else { return };
                if table.len() == 1 {
                    let text = &self.text[range.clone()];
                    let start = range.start + text.len() - text.trim_start().len();
                    self.add(start..start + text.trim().len(), BOLD);
                }
                table.last_mut().into_iter().for_each(|(_, cells)| cells.push(range.clone()));
            }
            Event::Text(_) => {
                // A backslash that made the next character plain has done its work.
                let before = &self.text.as_bytes()[..range.start];
                if before.ends_with(b"\\") && self.style[range.start - 1] & (CODE | HIDDEN) == 0 {
                    self.add(range.start - 1..range.start, HIDDEN);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, range: Range<usize>, style: u8) {
        self.style[range].iter_mut().for_each(|byte| *byte |= style);
    }

    /// A style for what stands between marks, which are left out.
    fn between(&mut self, range: Range<usize>, marks: usize, style: u8) {
        if range.len() < 2 * marks {
            return;
        }
        self.add(range.clone(), style);
        self.add(range.start..range.start + marks, HIDDEN);
        self.add(range.end - marks..range.end, HIDDEN);
    }

    /// `[text](where)` reads as `text (where)`; other links stay as they are.
    fn link(&mut self, range: Range<usize>, link_type: LinkType) {
        let source = &self.text[range.clone()];
        match link_type {
            LinkType::Inline if source.starts_with('[') && source.ends_with(')') => {
                let Some(middle) = source.rfind("](") else { return };
                self.add(range.start..range.start + middle, UNDERLINED);
                self.add(range.start..range.start + 1, HIDDEN);
                self.add(range.start + middle + 1..range.end, FAINT);
                self.instead.push((range.start + middle, 1, " ".into()));
            }
            _ => self.add(range, UNDERLINED),
        }
    }

    /// Blanks that put the cells of a table below each other.
    fn align(&mut self, table: &Table) {
        let shown = |layer: &Self, cell: &Range<usize>| {
            let mut text = String::new();
            layer.write_range(cell.clone(), &mut text, false);
            columns_of(text.trim())
        };
        let most = table.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
        let width = |layer: &Self, column: usize| {
            let cells = table.iter().filter_map(|(_, cells)| cells.get(column));
            cells.map(|cell| shown(layer, cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..most).map(|column| width(self, column)).collect();
        self.rule_below_head(table, &widths);
        for (_, cells) in table {
            for (cell, width) in cells.iter().zip(&widths) {
                let end = cell.start + self.text[cell.clone()].trim_end().len();
                let missing = width - shown(self, cell);
                self.instead.push((end, 0, " ".repeat(missing)));
            }
        }
    }

    /// The line below a table's head grows with its columns.
    fn rule_below_head(&mut self, table: &Table, widths: &[usize]) {
        let Some((head, _)) = table.first() else { return };
        let from = self.text[head.end..].find(|c| c != '\n').map_or(head.end, |at| head.end + at);
        let line = self.text[from..].split('\n').next().unwrap_or_default();
        let (mut at, mut widths) = (from, widths.iter());
        for part in line.split('|') {
            let marks = part.trim();
            if !marks.is_empty() && marks.chars().all(|c| matches!(c, '-' | ':')) {
                // A blank stands on each side of a cell's text.
                let missing = (widths.next().unwrap_or(&0) + 2).saturating_sub(part.len());
                let end = at + part.trim_end().trim_end_matches(':').len();
                self.instead.push((end, 0, "-".repeat(missing)));
            }
            at += part.len() + 1;
        }
    }

    fn write(mut self, out: &mut String) {
        self.instead.sort_by_key(|(at, ..)| *at);
        self.write_range(0..self.text.len(), out, true);
    }

    fn write_range(&self, range: Range<usize>, out: &mut String, styled: bool) {
        let mut at = range.start;
        let mut instead = self.instead.iter().filter(|(place, ..)| styled && range.contains(place)).peekable();
        let mut now = 0;
        while at < range.end {
            while let Some((_, length, text)) = instead.next_if(|(place, ..)| *place <= at) {
                let wanted = if *length > 0 { self.style[at] & !HIDDEN } else { 0 };
                if wanted != now {
                    turn(now, wanted, out);
                    now = wanted;
                }
                out.push_str(text);
                at += length;
            }
            let Some(c) = self.text[at..range.end].chars().next() else { break };
            let style = self.style[at];
            if style & HIDDEN == 0 {
                // A style never crosses a line's end, so that what else is written between lines is not styled by it.
                let wanted = if c == '\n' { 0 } else { style };
                if styled && wanted != now {
                    turn(now, wanted, out);
                    now = wanted;
                }
                out.push(c);
            }
            at += c.len_utf8();
        }
        if styled && now != 0 {
            turn(now, 0, out);
        }
        instead.for_each(|(_, _, text)| out.push_str(text));
    }
}

/// From one style to another.
fn turn(now: u8, wanted: u8, out: &mut String) {
    if now != 0 {
        out.push_str("\x1b[0m");
    }
    for (bit, parameter) in [(BOLD, 1), (FAINT, 2), (ITALIC, 3), (UNDERLINED, 4), (STRUCK, 9), (CODE, 36)] {
        if wanted & bit != 0 {
            out.push_str(&format!("\x1b[{parameter}m"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(ink: Ink, text: &str, cuts: &[usize]) -> String {
        let mut markdown = Markdown::new(ink);
        let (mut out, mut from) = (String::new(), 0);
        for at in cuts.iter().copied().chain([text.len()]) {
            let at = (from..=at.clamp(from, text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            out.push_str(&markdown.push(&text[from..at]));
            from = at;
        }
        out.push_str(&markdown.finish());
        out
    }

    /// Without the sequences that turn styles on and off.
    fn plain(text: &str) -> String {
        let mut parts = text.split("\x1b[");
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |all, part| all + part.split_once('m').unwrap().1)
    }

    #[test]
    fn marks_become_styles() {
        for (source, shown) in [
            ("# Title\n", "\x1b[1mTitle\x1b[0m\n"),
            ("a **b** c\n", "a \x1b[1mb\x1b[0m c\n"),
            ("a *b* and `c`\n", "a \x1b[3mb\x1b[0m and \x1b[36mc\x1b[0m\n"),
            ("- one\n- two\n  - three\n", "\u{2022} one\n\u{2022} two\n  \u{2022} three\n"),
            ("1. one\n2. two\n", "1. one\n2. two\n"),
            ("> said\n", "\x1b[2m>\x1b[0m said\n"),
            ("[toolgate](https://x.y)\n", "\x1b[4mtoolgate\x1b[0m \x1b[2m(https://x.y)\x1b[0m\n"),
            (
                "```rust\nlet a = \"*b*\";\n```\n",
                "\x1b[2m```rust\x1b[0m\n\x1b[36mlet a = \"*b*\";\x1b[0m\n\x1b[2m```\x1b[0m\n",
            ),
            (
                "| a | b |\n|---|---|\n| long | x |\n",
                "| \x1b[1ma\x1b[0m    | \x1b[1mb\x1b[0m |\n|------|---|\n| long | x |\n",
            ),
            ("a | b\n:-|-:\nlong | x\n", "\x1b[1ma\x1b[0m    | \x1b[1mb\x1b[0m\n:-----|--:\nlong | x\n"),
            ("2 \\* 3 \\* 4\n", "2 * 3 * 4\n"),
            ("snake_case_name and 2 * 3 * 4\n", "snake_case_name and 2 * 3 * 4\n"),
        ] {
            let found = rendered(Ink::ON, source, &[]);
            assert_eq!(found, shown, "{source:?}");
            assert_eq!(rendered(Ink::OFF, source, &[]), source);
        }
    }

    #[test]
    fn a_block_is_written_when_the_next_one_begins_and_code_line_by_line() {
        let mut markdown = Markdown::new(Ink::ON);
        assert_eq!(markdown.push("Hello *wo"), "");
        assert_eq!(markdown.push("rld*.\n\n"), "");
        assert_eq!(markdown.push("Next\n"), "Hello \x1b[3mworld\x1b[0m.\n\n");
        assert_eq!(markdown.push("===\n\n```\n"), "\x1b[1mNext\x1b[0m\n\x1b[1m===\x1b[0m\n\n\x1b[2m```\x1b[0m\n");
        assert_eq!(markdown.push("one\ntw"), "\x1b[36mone\x1b[0m\n");
        assert_eq!(markdown.open(), "tw");
        assert_eq!(markdown.push("o\n"), "\x1b[36mtwo\x1b[0m\n");
        assert_eq!(markdown.push("```\nafter"), "\x1b[2m```\x1b[0m\n");
        assert_eq!((markdown.finish().as_str(), markdown.open()), ("after\n", ""));
    }

    proptest! {
        /// Whatever is written and however it comes in: every word is there, in its order, and the pieces change nothing.
        #[test]
        fn no_word_is_lost_or_moved(
            lines in prop::collection::vec("([-*+>#|`~ ]{0,4}|[0-9]\\. )([a-zé字]{1,4}[ *_`|\\[\\]()!\\\\<&]{1,2}){0,5}(```)?", 0..12),
            cuts in prop::collection::vec(0usize..200, 0..20),
        ) {
            let text = lines.join("\n");
            let mut cuts = cuts;
            cuts.sort_unstable();
            let whole = rendered(Ink::ON, &text, &[]);
            prop_assert_eq!(&rendered(Ink::ON, &text, &cuts), &whole);
            let words = |text: &str| text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect::<String>();
            prop_assert_eq!(words(&plain(&whole)), words(&text));
        }
    }
}
