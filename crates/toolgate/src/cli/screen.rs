//! What a terminal shows while a run is on: finished lines above, and below them a few that change until they are replaced.
//!
//! Finished lines are written once and never touched again, so the terminal's own scrolling and copying work. What changes (the block of
//! text that is not whole yet, a command's last line, how long something takes, what is being typed) stands below them in rows that are
//! cut to the terminal's width, so it is known how many there are when they are taken away.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use toolgate_core::message::clean;
use unicode_width::UnicodeWidthChar;

use super::{
    ink::{BOLD, DIM, Ink, Style, YELLOW, columns_of},
    markdown::Markdown,
    terminal,
};

/// What turns while something is waited for.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// What Ctrl-C does while a run is on, and while it is being stopped.
const STOPS: &str = "Ctrl-C stops";
const QUITS: &str = "stopping; Ctrl-C again quits at once";

/// Columns of a tab in rows that are cut; the width of the next stop is not known there.
const TAB: &str = "    ";

/// A terminal's screen.
pub(super) struct Screen {
    ink: Ink,
    state: Mutex<State>,
}

struct State {
    text: Markdown,
    /// The last line of a command that runs.
    last_line: String,
    /// What is waited for, and since when.
    waits: Option<(String, Instant)>,
    /// What stands before the line that is being typed, and the line.
    typed: (String, String),
    turns: usize,
    /// Whether a run is on: only then is there anything that changes.
    is_on: bool,
    /// What Ctrl-C does now.
    ctrl_c: &'static str,
    /// Finished lines that wait while an editor has the terminal.
    held: Option<String>,
    /// Finished lines that wait while a question stands: nothing must come between it and its answer.
    behind: Option<String>,
    /// Columns of each row below the finished lines, as they were drawn.
    drawn: Vec<usize>,
}

impl Screen {
    pub(super) fn new(ink: Ink) -> Self {
        let (last_line, typed, drawn) = (String::new(), (String::new(), String::new()), Vec::new());
        let state = State {
            text: Markdown::new(ink),
            last_line,
            waits: None,
            typed,
            turns: 0,
            is_on: false,
            ctrl_c: STOPS,
            held: None,
            behind: None,
            drawn,
        };
        Self { ink, state: Mutex::new(state) }
    }

    /// More of the model's words.
    pub(super) fn say(&self, more: &str) {
        let mut state = self.state();
        let finished = state.text.push(&clean(more));
        self.draw(&mut state, &finished);
    }

    /// The model's words are whole.
    pub(super) fn said(&self) {
        let mut state = self.state();
        let rest = state.text.finish();
        self.draw(&mut state, &rest);
    }

    /// A line that stays.
    pub(super) fn line(&self, line: &str) {
        self.styled(line, None);
    }

    /// A line that stays and is less important than the others.
    pub(super) fn aside(&self, line: &str) {
        self.styled(line, Some(DIM));
    }

    /// A line that stays and says what is done.
    pub(super) fn act(&self, line: &str) {
        self.styled(line, Some(BOLD));
    }

    /// A question, with a bell for who looks elsewhere.
    pub(super) fn question(&self, lines: &[String]) {
        let mut state = self.state();
        let mut finished = state.text.finish();
        finished.push('\x07');
        for (number, line) in lines.iter().enumerate() {
            let line = clean(line);
            let line = if number == 0 { self.ink.paint(YELLOW, &line) } else { line };
            finished.push_str(&line);
            finished.push('\n');
        }
        self.draw(&mut state, &finished);
        state.behind = Some(String::new());
    }

    /// The question is over, with this line; what waited behind it follows.
    pub(super) fn answered(&self, line: &str) {
        let behind = self.state().behind.take().unwrap_or_default();
        self.line(line);
        self.draw(&mut self.state(), &behind);
    }

    /// A line that answers what the person typed, also while a question stands.
    pub(super) fn reply(&self, line: &str) {
        let behind = self.state().behind.take();
        self.line(line);
        self.state().behind = behind;
    }

    /// A command's last line, for as long as it is the last.
    pub(super) fn last_line(&self, line: &str) {
        let mut state = self.state();
        line.clone_into(&mut state.last_line);
        self.draw(&mut state, "");
    }

    /// What is waited for from now on.
    pub(super) fn waits_for(&self, what: &str) {
        let mut state = self.state();
        if state.waits.as_ref().is_none_or(|(now, _)| now != what) {
            state.waits = Some((what.to_owned(), Instant::now()));
        }
        self.draw(&mut state, "");
    }

    /// What is being typed, and what stands before it.
    pub(super) fn type_line(&self, label: &str, text: &str) {
        let mut state = self.state();
        if state.typed.0 != label || state.typed.1 != text {
            state.typed = (label.to_owned(), text.to_owned());
            self.draw(&mut state, "");
        }
    }

    /// A run begins.
    pub(super) fn wake(&self) {
        let mut state = self.state();
        (state.is_on, state.ctrl_c) = (true, STOPS);
    }

    /// The run is being stopped.
    pub(super) fn stops(&self) {
        let mut state = self.state();
        state.ctrl_c = QUITS;
        self.draw(&mut state, "");
    }

    /// Time passes.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        state.turns += 1;
        if state.waits.is_some() {
            self.draw(&mut state, "");
        }
    }

    /// Nothing is going on: what is not whole is written as it is, and nothing that changes is left.
    pub(super) fn rest(&self) {
        let mut state = self.state();
        let rest = state.text.finish();
        (state.is_on, state.waits) = (false, None);
        state.last_line.clear();
        state.typed = (String::new(), String::new());
        self.draw(&mut state, &rest);
    }

    /// An editor has the terminal: what is to be written waits.
    pub(super) fn hold(&self) {
        self.state().held.get_or_insert_default();
    }

    /// The terminal is free again.
    pub(super) fn release(&self) {
        let mut state = self.state();
        let held = state.held.take().unwrap_or_default();
        self.draw(&mut state, &held);
    }

    fn styled(&self, line: &str, style: Option<Style>) {
        let mut state = self.state();
        let mut finished = state.text.finish();
        let line = clean(line);
        for line in line.split('\n') {
            match style {
                Some(style) => finished.push_str(&self.ink.paint(style, line)),
                None => finished.push_str(line),
            }
            finished.push('\n');
        }
        self.draw(&mut state, &finished);
    }

    /// Writes finished lines in the place of the rows below, then those rows again. One write, so that nothing flickers.
    fn draw(&self, state: &mut State, finished: &str) {
        if let Some(held) = &mut state.held {
            held.push_str(finished);
            return;
        }
        let finished = match &mut state.behind {
            Some(behind) => {
                behind.push_str(finished);
                ""
            }
            None => finished,
        };
        let (columns, rows) = terminal::size();
        let mut out = String::new();
        take_away(&mut out, &state.drawn, columns);
        out.push_str(finished);
        let below = self.below(state, columns, rows);
        state.drawn = below.iter().map(|(_, width)| *width).collect();
        for (number, (row, _)) in below.iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            out.push_str(row);
        }
        if !out.is_empty() {
            let mut stdout = io::stdout().lock();
            let _ = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush());
        }
    }

    /// The rows that change, each with its width.
    fn below(&self, state: &State, columns: usize, rows: usize) -> Vec<(String, usize)> {
        let width = columns.saturating_sub(1).max(1);
        let mut below: Vec<(String, usize)> = Vec::new();
        if !state.is_on {
            return below;
        }
        let open: Vec<&str> = state.text.open().split('\n').filter(|line| !line.is_empty()).collect();
        let open: Vec<String> = open.into_iter().flat_map(|line| folded(line, width)).collect();
        for row in open.iter().skip(open.len().saturating_sub((rows / 2).max(1))) {
            below.push((row.clone(), columns_of(row)));
        }
        let mut small = |text: &str| {
            let row = cut(text, width);
            below.push((self.ink.paint(DIM, &row).into_owned(), columns_of(&row)));
        };
        if !state.last_line.is_empty() {
            small(&format!("  {}", clean(&state.last_line)));
        }
        let (label, typed) = &state.typed;
        if let Some((what, since)) = state.waits.as_ref().filter(|_| label.is_empty()) {
            let turn = SPINNER[state.turns % SPINNER.len()];
            small(&format!("{turn} {} s {} ({})", since.elapsed().as_secs(), clean(what), state.ctrl_c));
        }
        if !label.is_empty() || !typed.is_empty() {
            let label = if label.is_empty() { "+ " } else { label };
            let room = width.saturating_sub(columns_of(label));
            let row = format!("{label}{}", end_of(&clean(typed), room));
            let row = cut(&row, width);
            let columns = columns_of(&row);
            below.push((row, columns));
        }
        below
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes rows away that were drawn; the cursor stands at the end of the last. A terminal that became narrower has folded them.
fn take_away(out: &mut String, drawn: &[usize], columns: usize) {
    if drawn.is_empty() {
        return;
    }
    let rows: usize = drawn.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
    out.push('\r');
    if rows > 1 {
        out.push_str(&format!("\x1b[{}A", rows - 1));
    }
    out.push_str("\x1b[J");
}

/// A text in rows of this width.
fn folded(text: &str, width: usize) -> Vec<String> {
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    for c in text.replace('\t', TAB).chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns > width {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        row.push(c);
        used += columns;
    }
    rows.push(row);
    rows
}

/// The beginning of a text, on one row.
fn cut(text: &str, width: usize) -> String {
    folded(&text.replace('\n', " "), width).swap_remove(0)
}

/// The end of a text that is being typed.
fn end_of(text: &str, width: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= width
    };
    let end: Vec<char> = text.chars().rev().take_while(fits).collect();
    end.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_never_wider_than_the_terminal() {
        for (text, width, rows) in [
            ("abcdef", 3, vec!["abc", "def"]),
            ("a字b", 2, vec!["a", "字", "b"]),
            ("", 5, vec![""]),
            ("e\u{301}e\u{301}x", 2, vec!["e\u{301}e\u{301}", "x"]),
        ] {
            assert_eq!(folded(text, width), rows, "{text:?}");
        }
        assert_eq!((cut("one\ntwo three", 7), end_of("typed 字字", 4)), ("one two".into(), "字字".into()));
    }

    #[test]
    fn what_was_drawn_is_taken_away_also_in_a_narrower_terminal() {
        for (drawn, columns, sequence) in [
            (vec![], 80, ""),
            (vec![10], 80, "\r\x1b[J"),
            (vec![10, 0, 7], 80, "\r\x1b[2A\x1b[J"),
            (vec![79, 10], 40, "\r\x1b[2A\x1b[J"),
        ] {
            let mut out = String::new();
            take_away(&mut out, &drawn, columns);
            assert_eq!(out, sequence, "{drawn:?} in {columns}");
        }
    }
}
