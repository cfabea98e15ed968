//! What a text that was not found may have meant: the windows of the file that are most like it, and where they differ.
//!
//! One pass over the file: each line is summed up in a few hundred bits and compared with a few telling lines of the text, and a window is
//! as good as the lines that agree. So it takes time in proportion to the file, whatever the text, and memory for a few windows.

use std::{
    borrow::Cow,
    fmt::{self, Display, Formatter},
};

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::{
    error::made_visible,
    pieces::{is_blank, is_invisible},
};
use crate::files::text::{Encoding, shown};

/// Windows that are shown.
const MOST_NEAR: usize = 3;

/// Lines of the text that lines of the file are compared with.
const MOST_TELLING: usize = 8;

/// Bytes of one line that are looked at; of a longer one its beginning says what it is.
const LONGEST_LINE: usize = 2000;

/// How much of a telling line a line of the file must have to count for it.
const ALIKE: f32 = 0.5;

/// A window that has less of the best one's score than this is no candidate beside it.
const WORTH_SHOWING: f32 = 0.6;

/// Lines of a window that are compared one by one.
const MOST_COMPARED: usize = 200;

/// Rows that one window is shown in, and characters of a row.
const MOST_ROWS: usize = 12;
const LONGEST_ROW: usize = 160;

/// A place in the file that comes near.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// Its first line, counted from 1.
    pub line: usize,
    /// Lines of the text that are there exactly, and all of its lines.
    pub equal: usize,
    /// All lines of the text.
    pub lines: usize,
    rows: Vec<Row>,
    /// Whether there were more rows.
    cut: bool,
}

/// A line of both, of the text (`-`) or of the file (`+`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    sign: char,
    line: Option<usize>,
    text: String,
}

impl Near {
    pub(super) fn has_marks(&self) -> bool {
        self.rows.iter().any(|row| row.text.contains(['\u{2192}', '\u{b7}']))
    }
}

impl Display for Near {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if self.lines > 1 {
            write!(f, " ({} of {} lines are equal)", self.equal, self.lines)?;
        }
        f.write_str(":")?;
        for Row { sign, line, text } in &self.rows {
            let line = line.map_or_else(String::new, |line| line.to_string());
            write!(f, "\n{sign}{line:>6} | {text}")?;
        }
        if self.cut { f.write_str("\n …") } else { Ok(()) }
    }
}

/// The best places for a text, the best first.
pub(super) fn candidates(file: &[u8], encoding: Encoding, old: &str) -> Vec<Near> {
    let wanted: Vec<&str> = old.lines().collect();
    let telling = telling(&wanted);
    let file: Cow<'_, [u8]> = match encoding.decoder() {
        None => Cow::Borrowed(&file[encoding.mark().min(file.len())..]),
        Some(mut decoder) => {
            let bytes = &file[encoding.mark().min(file.len())..];
            let mut text = String::with_capacity(decoder.max_utf8_buffer_length(bytes.len()).unwrap_or_default());
            let _ = decoder.decode_to_string(bytes, &mut text, true);
            Cow::Owned(text.into_bytes())
        }
    };
    let end = if memchr::memchr(b'\n', &file).is_some() { b'\n' } else { b'\r' };
    let windows = best_windows(&file, end, &telling);
    windows.iter().filter_map(|window| compared(&file, end, &wanted, window)).collect()
}

/// One of the text's lines, by which windows are found.
struct Telling {
    /// Its number in the text.
    at: usize,
    sum: Sum,
    weight: f32,
}

/// The longest lines: they say most.
fn telling(wanted: &[&str]) -> Vec<Telling> {
    let mut lines: Vec<(usize, &str)> =
        wanted.iter().enumerate().map(|(at, line)| (at, line.trim())).filter(|(_, line)| !line.is_empty()).collect();
    lines.sort_by_key(|(at, line)| (std::cmp::Reverse(line.len()), *at));
    lines.truncate(MOST_TELLING);
    let telling = |(at, line): (usize, &str)| {
        let sum = Sum::of(line.as_bytes());
        Telling { at, sum, weight: sum.count() as f32 }
    };
    lines.into_iter().map(telling).collect()
}

/// What a line is made of: one bit for each kind of three bytes in a row, blanks aside.
#[derive(Clone, Copy)]
struct Sum([u64; 4]);

impl Sum {
    fn of(line: &[u8]) -> Self {
        let (mut bits, mut last) = ([0_u64; 4], 0_u32);
        for byte in &line[..line.len().min(LONGEST_LINE)] {
            if byte.is_ascii_whitespace() {
                continue;
            }
            last = (last << 8 | u32::from(*byte)) & 0xff_ffff;
            // The high bits of a product by a large odd number depend on all bits of both.
            let place = last.wrapping_mul(0x9e37_79b1) >> 24;
            bits[place as usize / 64] |= 1 << (place % 64);
        }
        Self(bits)
    }

    fn count(self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }

    /// How much of this line another one has; a little less where the other has much besides.
    fn share(self, other: Self) -> f32 {
        let both: u32 = self.0.iter().zip(other.0).map(|(a, b)| (a & b).count_ones()).sum();
        let (own, its) = (self.count().max(1) as f32, other.count().max(1) as f32);
        both as f32 / own * (0.75 + 0.25 * (own / its).min(1.0))
    }
}

/// Where a window begins and how good it is.
#[derive(Clone, Copy, Default)]
struct Window {
    score: f32,
    line: usize,
    offset: usize,
}

fn best_windows(file: &[u8], end: u8, telling: &[Telling]) -> Vec<Window> {
    let Some(reach) = telling.iter().map(|line| line.at + 1).max() else { return Vec::new() };
    // Windows whose lines have not all come by yet, by their first line.
    let mut open = vec![Window::default(); reach];
    let mut best: Vec<Window> = Vec::new();
    let mut offset = 0;
    for (number, line) in file.split(|byte| *byte == end).enumerate() {
        let slot = number % reach;
        keep(&mut best, open[slot], reach);
        open[slot] = Window { score: 0.0, line: number, offset };
        let sum = Sum::of(line);
        for wanted in telling {
            let share = wanted.sum.share(sum);
            if share >= ALIKE && number >= wanted.at {
                open[(number - wanted.at) % reach].score += share * wanted.weight;
            }
        }
        offset += line.len() + 1;
    }
    open.into_iter().for_each(|window| keep(&mut best, window, reach));
    let least = best.first().map_or(0.0, |window| window.score * WORTH_SHOWING);
    best.retain(|window| window.score >= least);
    best
}

/// Takes a window among the best, where it is one; of two that share lines the better one.
fn keep(best: &mut Vec<Window>, window: Window, reach: usize) {
    if window.score == 0.0 {
        return;
    }
    let shares = |other: &Window| other.line.abs_diff(window.line) < reach;
    if best.iter().any(|other| shares(other) && other.score >= window.score) {
        return;
    }
    best.retain(|other| !shares(other));
    let place = best.partition_point(|other| other.score >= window.score);
    best.insert(place, window);
    best.truncate(MOST_NEAR);
}

/// The window beside the text, and only the rows around a difference.
fn compared(file: &[u8], end: u8, wanted: &[&str], window: &Window) -> Option<Near> {
    let lines = file[window.offset..].split(|byte| *byte == end).take(wanted.len().min(MOST_COMPARED));
    let lines: Vec<String> = lines
        .map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // Beyond what is looked at a line is cut, and so is the other one, so that they stay comparable.
            cut(&shown(&line[..line.len().min(4 * LONGEST_LINE)]).0).to_owned()
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let wanted_lines = wanted.len();
    let wanted: Vec<&str> = wanted.iter().take(MOST_COMPARED).map(|line| cut(line)).collect();
    let (mut rows, mut equal) = (Vec::new(), 0);
    for op in capture_diff_slices(Algorithm::Myers, &wanted, &lines) {
        let (old, new) = (op.old_range(), op.new_range());
        if let DiffOp::Equal { .. } = op {
            equal += new.len();
            rows.extend(new.map(|at| Row { sign: ' ', line: Some(window.line + at + 1), text: lines[at].to_owned() }));
            continue;
        }
        for step in 0..old.len().max(new.len()) {
            let (old, new) = (old.clone().nth(step), new.clone().nth(step));
            let other = |at: Option<usize>, lines: &[&str]| at.map(|at| lines[at].to_owned()).unwrap_or_default();
            if let Some(at) = old {
                rows.push(Row { sign: '-', line: None, text: marked(wanted[at], &other(new, &lines)) });
            }
            if let Some(at) = new {
                let text = marked(lines[at], &other(old, &wanted));
                rows.push(Row { sign: '+', line: Some(window.line + at + 1), text });
            }
        }
    }
    let differs = |rows: &[Row]| rows.iter().any(|row| row.sign != ' ');
    if !differs(&rows) {
        return None;
    }
    let telling: Vec<bool> =
        (0..rows.len()).map(|at| differs(&rows[at.saturating_sub(1)..(at + 2).min(rows.len())])).collect();
    let mut telling = telling.into_iter();
    rows.retain(|_| telling.next().unwrap_or_default());
    let is_cut = rows.len() > MOST_ROWS;
    rows.truncate(MOST_ROWS);
    rows.iter_mut().filter(|row| row.sign == ' ').for_each(|row| row.text = marked(&row.text, &row.text));
    Some(Near { line: window.line + 1, equal, lines: wanted_lines, rows, cut: is_cut })
}

/// The characters of a line that are looked at.
fn cut(line: &str) -> &str {
    line.char_indices().nth(LONGEST_LINE).map_or(line, |(at, _)| &line[..at])
}

/// A line with what cannot be seen made visible, from where it differs from another one if that is far in.
fn marked(line: &str, other: &str) -> String {
    let same = line.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let whole = line.chars().count();
    let skipped = if whole > LONGEST_ROW && same < whole { same.saturating_sub(LONGEST_ROW / 2) } else { 0 };
    let part: String = line.chars().skip(skipped).take(LONGEST_ROW).collect();
    let (before, after) = (if skipped > 0 { "…" } else { "" }, if skipped + LONGEST_ROW < whole { "…" } else { "" });
    // Where both are one to the eye, blanks are named one by one.
    let plain = |text: &str| text.chars().filter(|c| !is_blank(*c) && !is_invisible(*c)).collect::<String>();
    let text = made_visible(&part);
    let text = if line != other && plain(line) == plain(other) { text.replace(' ', "\u{b7}") } else { text };
    format!("{before}{text}{after}")
}
