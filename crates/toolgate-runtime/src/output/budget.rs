//! How much of a text fits: characters, or whole lines and bytes. One measure serves both, so the sink knows one way only.

use std::ops::{AddAssign, Sub};

use toolgate_core::tool::{Bound, Most, Truncate};

/// Bytes of the longest character of UTF-8.
const CHARACTER: usize = 4;

/// How large a text is, or may be; `usize::MAX` does not limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) chars: usize,
    /// Line ends.
    pub(super) lines: usize,
    pub(super) bytes: usize,
}

/// What may still be taken of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    left: Size,
    /// Cuts stand between lines where they can.
    by_lines: bool,
    /// Nothing was taken so far.
    fresh: bool,
}

/// The end of a text, as much of it as fits.
#[derive(Debug)]
pub(super) struct Tail {
    budget: Budget,
    /// Between one and two times what fits, so that dropping is rare.
    text: String,
    held: Size,
    /// All that was ever pushed, or counted without being seen.
    came: Size,
    /// The beginning of the first line was dropped.
    torn: bool,
}

/// The budgets for the beginning and for the end of an output.
pub(super) fn split(bound: Bound) -> (Budget, Budget) {
    let whole = match bound.most {
        Most::Everything => return (Budget::of(Size::UNLIMITED, false), Budget::of(Size::default(), false)),
        Most::Characters(chars) => Size { chars, ..Size::UNLIMITED },
        Most::Lines { lines, bytes } => Size { lines, bytes, ..Size::UNLIMITED },
    };
    let (head, tail) = match bound.keep {
        Truncate::Head => (whole, Size::default()),
        Truncate::Tail => (Size::default(), whole),
        Truncate::Middle => (whole.larger_half(), whole.smaller_half()),
    };
    let by_lines = matches!(bound.most, Most::Lines { .. });
    (Budget::of(head, by_lines), Budget::of(tail, by_lines))
}

impl Budget {
    fn of(left: Size, by_lines: bool) -> Self {
        Self { left, by_lines, fresh: true }
    }

    /// Whether nothing fits any more.
    pub(super) fn is_spent(&self) -> bool {
        self.left.chars == 0 || self.left.lines == 0 || self.left.bytes == 0
    }

    /// Whether something did not fit.
    pub(super) fn is_closed(&self) -> bool {
        self.left == Size::default()
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.left == Size::UNLIMITED
    }

    pub(super) fn by_lines(&self) -> bool {
        self.by_lines
    }

    /// The most bytes that can fit, whatever the text.
    pub(super) fn most_bytes(&self) -> usize {
        self.left.bytes.min(self.left.chars.saturating_mul(CHARACTER))
    }

    /// Takes as much of the beginning of a text as fits; returns it and the rest. Where there is a rest nothing fits any more, and the
    /// heir gets what was not used: what fits into both together is never cut.
    pub(super) fn take<'a>(&mut self, text: &'a str, heir: Option<&mut Self>) -> (&'a str, &'a str) {
        if self.is_unlimited() {
            return (text, "");
        }
        let size = Size::of(text);
        let begins_line = usize::from(!text.ends_with('\n'));
        let fits = size.fits(self.left) && size.lines.saturating_add(begins_line) <= self.left.lines;
        let (now, rest) = text.split_at(if fits { text.len() } else { self.prefix(text) });
        self.left = self.left - if rest.is_empty() { size } else { Size::of(now) };
        self.fresh &= now.is_empty();
        if !rest.is_empty() {
            let unused = std::mem::take(&mut self.left);
            if let Some(heir) = heir {
                heir.left += unused;
            }
        }
        (now, rest)
    }

    fn prefix(&self, text: &str) -> usize {
        if !self.by_lines {
            let end = text.char_indices().nth(self.left.chars).map_or(text.len(), |(at, _)| at);
            return before_joined(text, end);
        }
        let (mut end, mut lines) = (0, self.left.lines);
        for line in text.split_inclusive('\n') {
            if lines == 0 || end + line.len() > self.left.bytes {
                break;
            }
            end += line.len();
            lines -= 1;
        }
        // Half a line says more than nothing.
        if end == 0 && self.fresh && lines > 0 { before_joined(text, floor(text, self.left.bytes)) } else { end }
    }

    fn suffix(&self, text: &str, torn: bool) -> usize {
        if !self.by_lines {
            return after_joined(text, text.len() - last_chars(text, self.left.chars).len());
        }
        let first_whole = if torn { memchr::memchr(b'\n', text.as_bytes()).map_or(text.len(), |at| at + 1) } else { 0 };
        let (mut start, mut lines) = (text.len(), self.left.lines);
        for line in text[first_whole..].split_inclusive('\n').rev() {
            if lines == 0 || text.len() - start + line.len() > self.left.bytes {
                break;
            }
            start -= line.len();
            lines -= 1;
        }
        if start == text.len() && lines > 0 {
            return after_joined(text, ceil(text, text.len().saturating_sub(self.left.bytes)));
        }
        start
    }
}

impl Tail {
    pub(super) fn new(budget: Budget) -> Self {
        Self { budget, text: String::new(), held: Size::default(), came: Size::default(), torn: false }
    }

    pub(super) fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    pub(super) fn push(&mut self, text: &str) {
        let size = Size::of(text);
        self.came += size;
        if self.budget.is_spent() {
            return;
        }
        self.text.push_str(text);
        self.held += size;
        if !self.held.fits(self.kept().twice()) {
            self.drop_oldest();
        }
    }

    /// Counts what nobody looked at.
    pub(super) fn count_unseen(&mut self, size: Size) {
        self.came += size;
    }

    /// Forgets what is held: something was left out behind it. `torn` says whether what comes now begins inside a line.
    pub(super) fn restart(&mut self, torn: bool) {
        self.text.clear();
        self.held = Size::default();
        self.torn = torn;
    }

    /// The end that fits, and how much came before it.
    pub(super) fn finish(&mut self) -> (String, Size) {
        if self.budget.by_lines || !self.held.fits(self.budget.left) {
            let start = self.budget.suffix(&self.text, self.torn);
            self.text.drain(..start);
        }
        let text = std::mem::take(&mut self.text);
        let left_out = self.came - Size::of(&text);
        (text, left_out)
    }

    /// What is held at least: a little more than fits, so that the last cut sees what stands before it.
    fn kept(&self) -> Size {
        let mut kept = self.budget.left;
        kept += Size { chars: 2 * LONGEST_JOIN, lines: 0, bytes: 2 * LONGEST_JOIN * CHARACTER };
        kept
    }

    /// Drops what cannot be part of the end any more, whatever comes.
    fn drop_oldest(&mut self) {
        let kept = self.kept();
        let by_bytes = ceil(&self.text, self.text.len().saturating_sub(kept.bytes));
        let by_chars = self.text.len() - last_chars(&self.text, kept.chars).len();
        let mut cut = by_bytes.max(by_chars);
        let mut torn = cut > 0 && self.text.as_bytes()[cut - 1] != b'\n';
        if self.held.lines > kept.lines {
            let surplus = memchr::memchr_iter(b'\n', self.text.as_bytes()).nth(self.held.lines - kept.lines - 1);
            if let Some(at) = surplus.filter(|at| *at >= cut) {
                (cut, torn) = (at + 1, false);
            }
        }
        if cut > 0 {
            self.text.drain(..cut);
            self.held = Size::of(&self.text);
            self.torn = torn;
        }
    }
}

impl Size {
    const UNLIMITED: Self = Self { chars: usize::MAX, lines: usize::MAX, bytes: usize::MAX };

    /// The size of text, or of bytes that are mostly text.
    pub(super) fn of(text: impl AsRef<[u8]>) -> Self {
        let bytes = text.as_ref();
        Self { chars: count_chars(bytes), lines: memchr::memchr_iter(b'\n', bytes).count(), bytes: bytes.len() }
    }

    fn fits(self, most: Self) -> bool {
        self.chars <= most.chars && self.lines <= most.lines && self.bytes <= most.bytes
    }

    fn each(self, change: impl Fn(usize) -> usize) -> Self {
        Self { chars: change(self.chars), lines: change(self.lines), bytes: change(self.bytes) }
    }

    fn smaller_half(self) -> Self {
        self.each(|most| if most == usize::MAX { most } else { most / 2 })
    }

    fn larger_half(self) -> Self {
        self.each(|most| if most == usize::MAX { most } else { most - most / 2 })
    }

    fn twice(self) -> Self {
        self.each(|most| most.saturating_mul(2))
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.chars = self.chars.saturating_add(other.chars);
        self.lines = self.lines.saturating_add(other.lines);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Sub for Size {
    type Output = Self;

    /// What is not limited stays so.
    fn sub(self, other: Self) -> Self {
        let less = |most: usize, by: usize| if most == usize::MAX { most } else { most.saturating_sub(by) };
        Self {
            chars: less(self.chars, other.chars),
            lines: less(self.lines, other.lines),
            bytes: less(self.bytes, other.bytes),
        }
    }
}

/// Characters of UTF-8. A flood is counted byte by byte here, so the sums are short enough for the compiler to keep many of them
/// in one vector register.
fn count_chars(bytes: &[u8]) -> usize {
    /// A sum of this many ones still fits into a byte.
    const BLOCK: usize = 192;
    let ones = |block: &[u8]| usize::from(block.iter().map(|byte| u8::from(!is_continuation(*byte))).sum::<u8>());
    bytes.chunks(BLOCK).map(ones).sum()
}

/// Bytes without the end of a character that began before them.
pub(super) fn from_character(bytes: &[u8]) -> &[u8] {
    let torn = bytes.iter().take(CHARACTER - 1).take_while(|byte| is_continuation(**byte)).count();
    &bytes[torn..]
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The last `wanted` characters.
fn last_chars(text: &str, wanted: usize) -> &str {
    if wanted == 0 {
        return "";
    }
    // Mostly it is plain ASCII, where characters need not be walked.
    match text.len().checked_sub(wanted) {
        None => text,
        Some(at) if text.as_bytes()[at..].is_ascii() => &text[at..],
        Some(_) => text.char_indices().nth_back(wanted - 1).map_or(text, |(at, _)| &text[at..]),
    }
}

/// The last border of a character that is not behind a place, and the first that is not before it.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Characters that a cut moves at most to spare one that is drawn as one: enough for a family of emoji, and a bound on what a text that
/// only piles up marks can cost.
const LONGEST_JOIN: usize = 16;

/// A cut that does not part characters which are drawn as one, at or before this one.
fn before_joined(text: &str, cut: usize) -> usize {
    let mut at = cut;
    for _ in 0..LONGEST_JOIN {
        if !is_joined(text, at) {
            return at;
        }
        at -= text[..at].chars().next_back().map_or(0, char::len_utf8);
    }
    cut
}

/// The same, at or behind this one.
fn after_joined(text: &str, cut: usize) -> usize {
    let mut at = cut;
    for _ in 0..LONGEST_JOIN {
        if !is_joined(text, at) {
            return at;
        }
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    cut
}

/// Whether the characters on both sides of a place are drawn as one: marks, joiners, skin tones, the two letters of a flag.
fn is_joined(text: &str, at: usize) -> bool {
    let (Some(before), Some(after)) = (text[..at].chars().next_back(), text[at..].chars().next()) else { return false };
    let joiner = |c| c == '\u{200D}';
    let is_mark = matches!(after, '\u{300}'..='\u{36F}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5BD}' | '\u{610}'..='\u{61A}'
        | '\u{64B}'..='\u{65F}' | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}' | '\u{20D0}'..='\u{20FF}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FE20}'..='\u{FE2F}' | '\u{1F3FB}'..='\u{1F3FF}' | '\u{E0020}'..='\u{E007F}');
    let letter = |c| matches!(c, '\u{1F1E6}'..='\u{1F1FF}');
    let flag = letter(before)
        && letter(after)
        && text[..at].chars().rev().take(LONGEST_JOIN).take_while(|c| letter(*c)).count() % 2 == 1;
    !before.is_control() && (is_mark || joiner(before) || joiner(after) || flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a text that comes in pieces of so many characters.
    fn kept(bound: Bound, text: &str, size: usize) -> (String, String, Size) {
        let (mut head, tail) = split(bound);
        let (mut begin, mut tail) = (String::new(), Tail::new(tail));
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(size) {
            let piece: String = piece.iter().collect();
            let (now, rest) =
                head.take(&piece, (bound.keep == Truncate::Middle && !head.is_closed()).then_some(tail.budget()));
            begin.push_str(now);
            tail.push(rest);
        }
        let (end, left_out) = tail.finish();
        (begin, end, left_out)
    }

    fn lines(lines: usize, bytes: usize, keep: Truncate) -> Bound {
        Bound { most: Most::Lines { lines, bytes }, keep }
    }

    #[test]
    fn whole_lines_at_both_ends_and_half_a_line_rather_than_nothing() {
        use Truncate::{Head, Middle, Tail};
        let text = "1\n22\n333\n4444\n55555\n";
        for (bound, text, begin, end) in [
            (lines(2, 100, Head), text, "1\n22\n", ""),
            (lines(5, 100, Head), text, text, ""),
            (lines(9, 6, Head), text, "1\n22\n", ""),
            (lines(9, 4, Head), "12345\n6\n", "1234", ""),
            (lines(2, 100, Tail), text, "", "4444\n55555\n"),
            (lines(5, 100, Tail), text, "", text),
            (lines(9, 7, Tail), text, "", "55555\n"),
            (lines(9, 4, Tail), text, "", "555\n"),
            (lines(9, 4, Tail), "1\n12345", "", "2345"),
            (lines(2, 100, Tail), "1\n2\n3", "", "2\n3"),
            (lines(3, 100, Middle), text, "1\n22\n", "55555\n"),
            (lines(9, 20, Middle), text, text, ""),
            (lines(9, 12, Middle), text, "1\n22\n", "55555\n"),
        ] {
            // Lines, or pieces of lines as long as the whole, as the fold gives them.
            let (got_begin, got_end, left_out) = kept(bound, text, text.chars().count());
            let whole = got_begin.clone() + &got_end;
            if left_out == Size::default() {
                assert_eq!(whole, begin.to_owned() + end, "{bound:?}");
            } else {
                assert_eq!((got_begin.as_str(), got_end.as_str()), (begin, end), "{bound:?}");
            }
            assert_eq!(left_out.bytes, text.len() - whole.len(), "{bound:?}");
        }
    }

    #[test]
    fn what_is_drawn_as_one_is_not_parted() {
        let family = "ab\u{1F469}\u{200D}\u{1F467}e\u{301}\u{1F1E9}\u{1F1EA}z";
        for (most, keep, shown) in [
            (3, Truncate::Head, "ab"),
            (5, Truncate::Head, "ab\u{1F469}\u{200D}\u{1F467}"),
            (6, Truncate::Head, "ab\u{1F469}\u{200D}\u{1F467}"),
            (8, Truncate::Head, "ab\u{1F469}\u{200D}\u{1F467}e\u{301}"),
            (2, Truncate::Tail, "z"),
            (3, Truncate::Tail, "\u{1F1E9}\u{1F1EA}z"),
            (4, Truncate::Tail, "\u{1F1E9}\u{1F1EA}z"),
        ] {
            for size in [1, 3, 100] {
                let (begin, end, _) = kept(Bound::characters(most, keep), family, size);
                if size == 100 || keep == Truncate::Tail {
                    assert_eq!(begin + &end, shown, "{most} {keep:?} in {size}");
                }
            }
        }
        let marks = "a".to_owned() + &"\u{301}".repeat(100);
        let (begin, _, _) = kept(Bound::characters(50, Truncate::Head), &marks, 1000);
        assert_eq!(begin.chars().count(), 50, "a pile of marks is cut all the same");
    }
}
