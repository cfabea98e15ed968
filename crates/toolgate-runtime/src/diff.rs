//! What changed in a file, as a unified diff: for the model in a result, and for the one who decides in a question.
//!
//! A change is known by its splices, so only the lines around them are compared, however large the file is.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use toolgate_core::{
    digest::{Digest, Hasher},
    tool::Preview,
};

use crate::files::{
    Splice,
    text::{pictured, shown},
};

/// Unchanged lines that are shown around a change.
const CONTEXT: usize = 3;

/// Lines of one region that are compared one by one; a larger one is shown as all removed and all added, since comparing takes time that
/// grows with the square of what differs.
const MOST_COMPARED: usize = 4_000;

/// Lines of a diff that a question shows; a person reads no more before saying yes.
const MOST_PREVIEWED: usize = 1000;

/// Bytes of one line that are shown; of a longer one, those around what changed in it. A person reads no more, and a program that was made
/// to be small is one line of many megabytes.
const LONGEST_LINE: usize = 2_000;

/// Bytes that are shown of such a line before what changed in it.
const BEFORE_CHANGE: usize = 200;

/// What changed.
#[derive(Debug, Clone, Default)]
pub struct Diff {
    /// Lines of a unified diff, without file names.
    lines: Vec<String>,
    /// Of the removed and added lines alone, byte for byte and in order.
    changes: Hasher,
    /// Lines that are gone.
    pub removed: usize,
    /// Lines that are new.
    pub added: usize,
    /// The first line that changed, as the new file counts.
    pub first: usize,
}

impl Diff {
    /// What splices, in order and apart from each other, change in a content.
    pub fn of(old: &[u8], splices: &[Splice]) -> Self {
        let mut diff = Self::default();
        let (mut counted, mut old_line, mut shift) = (0, 0, 0_isize);
        for (range, splices) in regions(old, splices) {
            old_line += lines_in(&old[counted..range.start]);
            counted = range.start;
            let new = spliced(old, &range, splices);
            let (old_lines, new_lines) = (split(&old[range.clone()]), split(&new));
            let new_line = old_line.saturating_add_signed(shift);
            let crlf = only_crlf(&old[range.clone()]) && only_crlf(&new);
            diff.compare(&old_lines, &new_lines, old_line, new_line, crlf);
            shift += new_lines.len() as isize - old_lines.len() as isize;
        }
        diff
    }

    /// What another content in the place of the whole changes.
    pub fn between(old: &[u8], new: &[u8]) -> Self {
        // What both begin and end with need not be compared.
        let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let most = old.len().min(new.len()) - same;
        let tail = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
        if same == old.len() && same == new.len() {
            return Self::default();
        }
        Self::of(old, &[Splice { range: same..old.len() - tail, with: new[same..new.len() - tail].to_vec() }])
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.removed + self.added == 0
    }

    /// What it removes and adds, wherever that stands by now. What a person saw and what is done are held against each other by this.
    pub fn digest(&self) -> Digest {
        self.changes.clone().finish()
    }

    /// For the one who decides.
    pub fn preview(&self) -> Preview {
        Preview { text: self.shown(MOST_PREVIEWED), digest: self.digest() }
    }

    /// At most so many lines of it; how many more there are stands behind them.
    pub fn shown(&self, most: usize) -> String {
        let mut text = self.lines[..self.lines.len().min(most)].join("\n");
        if self.lines.len() > most {
            text.push_str(&format!("\n… {} more lines of the diff", self.lines.len() - most));
        }
        text
    }

    /// In one phrase.
    pub fn summary(&self) -> String {
        format!("+{}/−{} lines", self.added, self.removed)
    }

    fn compare(&mut self, old: &[&[u8]], new: &[&[u8]], old_line: usize, new_line: usize, crlf: bool) {
        for group in group_diff_ops(line_ops(old, new), CONTEXT) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let old_range = first.old_range().start..last.old_range().end;
            let new_range = first.new_range().start..last.new_range().end;
            self.lines.push(format!("@@ -{} +{} @@", place(old_line, &old_range), place(new_line, &new_range)));
            for op in group {
                let (old, new) = (&old[op.old_range()], &new[op.new_range()]);
                if let DiffOp::Equal { .. } = op {
                    old.iter().for_each(|line| self.push(' ', line, 0, crlf));
                    continue;
                }
                if self.removed + self.added == 0 {
                    self.first = new_line + op.new_range().start + 1;
                }
                self.removed += old.len();
                self.added += new.len();
                for (sign, lines, others) in [('-', old, new), ('+', new, old)] {
                    for (number, line) in lines.iter().enumerate() {
                        let changed = others.get(number).map_or(0, |other| first_difference(line, other));
                        self.push(sign, line, changed, crlf);
                    }
                }
            }
        }
    }

    /// One line, of which what stands at `changed` is shown where not all of it can be.
    fn push(&mut self, sign: char, line: &[u8], changed: usize, crlf: bool) {
        if sign != ' ' {
            self.changes.update(&[sign as u8]);
            self.changes.update(line);
        }
        let end = if crlf && line.ends_with(b"\r\n") { 2 } else { usize::from(line.ends_with(b"\n")) };
        let window = window(&line[..line.len() - end], changed);
        let (text, _) = shown(&line[window.clone()]);
        let mut text = pictured(&text).unwrap_or(text);
        if window.start > 0 {
            text.insert_str(0, &format!("[{} bytes] … ", window.start));
        }
        if window.end < line.len() - end {
            text.push_str(&format!(" … [{} bytes]", line.len() - end - window.end));
        }
        self.lines.push(format!("{sign}{text}"));
        if end == 0 {
            self.lines.push("\\ No newline at end of file".into());
        }
    }
}

/// Where two lines begin to differ; nothing that needs to be known of lines that are shown whole.
fn first_difference(line: &[u8], other: &[u8]) -> usize {
    match line.len() > LONGEST_LINE {
        true => line.iter().zip(other).take_while(|(a, b)| a == b).count(),
        false => 0,
    }
}

/// What is shown of a line, between whole characters.
fn window(line: &[u8], changed: usize) -> Range<usize> {
    if line.len() <= LONGEST_LINE {
        return 0..line.len();
    }
    let whole = |at: usize| (at.saturating_sub(3)..=at).rev().find(|at| line.get(*at).is_none_or(|b| b & 0xc0 != 0x80));
    let start = changed.saturating_sub(BEFORE_CHANGE).min(line.len() - LONGEST_LINE);
    let start = whole(start).unwrap_or(start);
    let end = whole(start + LONGEST_LINE).unwrap_or(start + LONGEST_LINE);
    start..end
}

/// Lines and their number as a hunk's head gives them.
fn place(line: usize, range: &Range<usize>) -> String {
    match range.len() {
        // A range without lines stands behind the line that it names.
        0 => format!("{},0", line + range.start),
        1 => format!("{}", line + range.start + 1),
        count => format!("{},{count}", line + range.start + 1),
    }
}

/// What is equal in two runs of lines and what is not, in order. Bounded in time.
pub(crate) fn line_ops<L: Eq + std::hash::Hash + Ord>(old: &[L], new: &[L]) -> Vec<DiffOp> {
    if old.len() + new.len() > MOST_COMPARED {
        all_changed(old, new)
    } else {
        capture_diff_slices(Algorithm::Myers, old, new)
    }
}

/// What both begin and end with is equal, and what lies between has changed.
fn all_changed<L: Eq>(old: &[L], new: &[L]) -> Vec<DiffOp> {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - front;
    let back = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let (old_len, new_len) = (old.len() - front - back, new.len() - front - back);
    let equal = |old_index, new_index, len| DiffOp::Equal { old_index, new_index, len };
    let changed = match (old_len, new_len) {
        (0, _) => DiffOp::Insert { old_index: front, new_index: front, new_len },
        (_, 0) => DiffOp::Delete { old_index: front, old_len, new_index: front },
        _ => DiffOp::Replace { old_index: front, old_len, new_index: front, new_len },
    };
    let ops = [equal(0, 0, front), changed, equal(front + old_len, front + new_len, back)];
    ops.into_iter().filter(|op| !(op.old_range().is_empty() && op.new_range().is_empty())).collect()
}

/// The lines around the splices, and the splices in each: what is near enough to share a hunk is one region.
fn regions<'a>(old: &[u8], splices: &'a [Splice]) -> Vec<(Range<usize>, &'a [Splice])> {
    let mut regions: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for (number, Splice { range, .. }) in splices.iter().enumerate() {
        let (start, end) = (lines_before(old, range.start), lines_behind(old, range.end));
        match regions.last_mut() {
            Some((around, inside)) if start <= around.end => {
                around.end = around.end.max(end);
                inside.end = number + 1;
            }
            _ => regions.push((start..end, number..number + 1)),
        }
    }
    regions.into_iter().map(|(around, inside)| (around, &splices[inside])).collect()
}

/// Where the lines begin that are shown before a place.
fn lines_before(old: &[u8], at: usize) -> usize {
    memchr::memrchr_iter(b'\n', &old[..at]).nth(CONTEXT).map_or(0, |end| end + 1)
}

/// Where the lines end that are shown behind a place.
fn lines_behind(old: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &old[at..]).nth(CONTEXT).map_or(old.len(), |end| at + end + 1)
}

fn spliced(old: &[u8], range: &Range<usize>, splices: &[Splice]) -> Vec<u8> {
    let (mut new, mut at) = (Vec::with_capacity(range.len()), range.start);
    for Splice { range: cut, with } in splices {
        new.extend_from_slice(&old[at..cut.start]);
        new.extend_from_slice(with);
        at = cut.end;
    }
    new.extend_from_slice(&old[at..range.end]);
    new
}

fn split(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

fn lines_in(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// Whether no line ends otherwise than with CR LF, so that showing the CR would say nothing.
fn only_crlf(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).all(|at| at > 0 && bytes[at - 1] == b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hunks_have_the_numbers_and_lines_that_patch_wants() {
        let ten: String = (1..=10).map(|n| format!("{n}\n")).collect();
        let between = |new: &str| Diff::between(ten.as_bytes(), new.as_bytes()).shown(100);
        assert_eq!(between(&ten.replace("5\n", "five\n")), "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8");
        assert_eq!(between(&ten.replace("1\n2\n", "2\n")), "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4");
        assert_eq!(between(&format!("0\n{ten}")), "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3");
        assert_eq!(between(ten.trim_end()), "@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n+10\n\\ No newline at end of file");
        assert_eq!(between(""), format!("@@ -1,10 +0,0 @@\n-{}", ten.trim_end().replace('\n', "\n-")));
        assert_eq!(Diff::between(b"", b"a\n").shown(9), "@@ -0,0 +1 @@\n+a");
        assert!(Diff::between(b"a\n", b"a\n").is_empty());
        assert_eq!(Diff::between(b"a\r\nb\r\n", b"a\r\nc\r\n").shown(9), "@@ -1,2 +1,2 @@\n a\n-b\n+c");
        assert_eq!(Diff::between(b"a\r\n", b"a\n").shown(9), "@@ -1 +1 @@\n-a\u{240d}\n+a");
        assert_eq!(Diff::between(b"caf\xe9\n", b"caf\xe9s\n").shown(9), "@@ -1 +1 @@\n-caf\u{e9}\n+caf\u{e9}s");
        let far = Diff::between(ten.as_bytes(), ten.replace("1\n", "x\n").as_bytes());
        assert_eq!((far.first, far.summary().as_str()), (1, "+1/−1 lines"));
        assert_eq!(far.shown(1), "@@ -1,4 +1,4 @@\n… 5 more lines of the diff");
    }

    #[test]
    fn of_a_long_line_what_changed_in_it_is_shown() {
        let old = format!("{}é{}", "a".repeat(10_000), "b".repeat(10_000));
        let diff = Diff::between(old.as_bytes(), old.replace('é', "ü").as_bytes()).shown(9);
        let line = |sign: char, c: char| {
            let (front, back) = ("a".repeat(BEFORE_CHANGE - 1), "b".repeat(LONGEST_LINE - BEFORE_CHANGE - 1));
            format!("{sign}[9801 bytes] … {front}{c}{back} … [8201 bytes]\n\\ No newline at end of file")
        };
        assert_eq!(diff, format!("@@ -1 +1 @@\n{}\n{}", line('-', 'é'), line('+', 'ü')));
        let behind = |text: &str| Diff::between(old.as_bytes(), format!("{old}{text}").as_bytes());
        assert!(
            behind("z")
                .shown(9)
                .ends_with(&format!("+[18003 bytes] … {}z\n\\ No newline at end of file", "b".repeat(1999)))
        );
        assert_ne!(behind("z").digest(), behind("zz").digest(), "all of it counts");
    }

    #[test]
    fn the_same_change_elsewhere_is_the_same_and_another_is_not() {
        let one = Diff::between(b"a\nb\nc\n", b"a\nB\nc\n");
        let same = |other: Diff| one.digest() == other.digest();
        assert!(same(Diff::between(b"new\na\nb\nc\n", b"new\na\nB\nc\n")));
        assert!(!same(Diff::between(b"a\nb\nc\n", b"a\nB \nc\n")));
        assert!(!same(Diff::between(b"a\nb\r\nc\n", b"a\nB\nc\n")));
    }

    /// Applies hunks by their own numbers.
    fn patched(old: &str, diff: &Diff) -> String {
        let old: Vec<&str> = old.split_inclusive('\n').collect();
        let (mut new, mut at) = (String::new(), 0);
        for line in &diff.lines {
            if let Some(head) = line.strip_prefix("@@ -") {
                let (start, count) =
                    head.split_once(' ').unwrap().0.split_once(',').unwrap_or((head.split(' ').next().unwrap(), "1"));
                let start = start.parse::<usize>().unwrap() - usize::from(count != "0");
                old[at..start].iter().for_each(|line| new.push_str(line));
                at = start;
            } else if line.starts_with('\\') {
                new.pop();
            } else {
                let (sign, text) = line.split_at(1);
                if sign != "+" {
                    assert_eq!(old[at].trim_end_matches('\n'), text);
                    at += 1;
                }
                if sign != "-" {
                    new.push_str(text);
                    new.push('\n');
                } else if at == old.len() && !old[at - 1].ends_with('\n') {
                    new.push('?');
                }
            }
        }
        old[at..].iter().for_each(|line| new.push_str(line));
        new
    }

    proptest! {
        #[test]
        fn applied_to_the_old_it_gives_the_new(old in "([ab]{0,2}\n){0,40}", cuts in proptest::collection::vec((0usize..120, 0usize..6, "[abc\n]{0,4}"), 0..5)) {
            let (mut splices, mut at) = (Vec::new(), 0);
            let mut cuts = cuts;
            cuts.sort();
            for (start, length, with) in cuts {
                let start = start.max(at).min(old.len());
                let end = (start + length).min(old.len());
                if start == end && with.is_empty() { continue; }
                splices.push(Splice { range: start..end, with: with.into_bytes() });
                at = end + 1;
                if at > old.len() { break; }
            }
            let new = String::from_utf8(spliced(old.as_bytes(), &(0..old.len()), &splices)).unwrap();
            prop_assume!(new.is_empty() || new.ends_with('\n'));
            prop_assert_eq!(patched(&old, &Diff::of(old.as_bytes(), &splices)), new.clone());
            prop_assert_eq!(patched(&old, &Diff::between(old.as_bytes(), new.as_bytes())), new);
        }
    }
}
