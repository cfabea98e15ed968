//! A text as it is compared, and where in the file a match of it stands.
//!
//! The view is searched as one run of bytes, in linear time. It keeps no map of every byte: from a mark, of which there is one every few
//! thousand bytes, the pieces are cut again as far as a match needs. So it takes about as much memory as the file, and nothing where the
//! file is compared as it is.

use std::{
    borrow::Cow,
    collections::VecDeque,
    ops::{ControlFlow, Range},
};

use memchr::memmem::Finder;

use super::{
    How,
    pieces::{Piece, Pieces, StandsFor, char_at, is_blank, is_invisible, plain_line},
};
use crate::files::text::Encoding;

/// Bytes of a view from one mark to the next, or more where lines are longer. Cutting so many again takes microseconds, and the marks of
/// 100 MB take half a megabyte.
const MARK_EVERY: usize = 4096;

/// A file's text as it is compared in one way.
pub(super) struct View<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
    how: How,
    text: Cow<'a, [u8]>,
    /// Line starts: in the view, in the file.
    marks: Vec<(usize, usize)>,
}

/// A match: its place in the file and in the view, and the pieces that it is made of, the first and last of which may reach beyond it.
pub(super) struct Hit<'a> {
    pub range: Range<usize>,
    pub viewed: Range<usize>,
    /// Each with its place in the view.
    pub pieces: &'a [(usize, Piece)],
    /// Where its first line begins in the file.
    pub line_start: usize,
}

/// What is looked for, in the ways in which it may end.
pub(super) struct Needle {
    /// Whether it begins with blanks that the comparison passes over, so that it can only begin a line.
    begins_line: bool,
    pub forms: Vec<Form>,
}

/// One way in which a needle may end.
pub(super) struct Form {
    pub pieces: Vec<(usize, Piece)>,
    text: Vec<u8>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Anywhere,
    /// Blanks at its end were left out.
    OfLine,
    /// The line end at its end was left out.
    OfText,
}

impl<'a> View<'a> {
    pub(super) fn of(bytes: &'a [u8], encoding: Encoding, how: How) -> Self {
        let start = encoding.mark();
        if how == How::Exact {
            return Self { bytes, encoding, how, text: Cow::Borrowed(&bytes[start..]), marks: vec![(0, start)] };
        }
        let (mut text, mut marks) = (Vec::with_capacity(bytes.len()), vec![(0, start)]);
        let mut at = start;
        while at < bytes.len() {
            let line_end = memchr::memchr(b'\n', &bytes[at..]).map(|end| at + end);
            let plain = line_end.filter(|_| encoding.name().is_none()).and_then(|end| plain_line(&bytes[at..end], how));
            if let (Some(end), Some(plain)) = (line_end, plain) {
                text.extend_from_slice(plain);
                text.push(b'\n');
                at = end + 1;
                mark(&mut marks, text.len(), at);
                continue;
            }
            for piece in Pieces::new(bytes, at, encoding, how) {
                piece.write(bytes, &mut text);
                at = piece.range.end;
                if piece.is_line_end() {
                    mark(&mut marks, text.len(), at);
                }
                if line_end.is_some_and(|end| at > end) && piece.is_line_end() {
                    break;
                }
            }
        }
        Self { bytes, encoding, how, text: Cow::Owned(text), marks }
    }

    /// Comes by the matches in order: those that do not overlap where `apart`, else all. Says which form of the needle they are of.
    pub(super) fn search<'n>(
        &self,
        needle: &'n Needle,
        apart: bool,
        visit: &mut dyn FnMut(&Form, Hit<'_>) -> ControlFlow<()>,
    ) -> Option<&'n Form> {
        needle.forms.iter().find(|form| self.search_form(needle, form, apart, visit))
    }

    fn search_form(
        &self,
        needle: &Needle,
        form: &Form,
        apart: bool,
        visit: &mut dyn FnMut(&Form, Hit<'_>) -> ControlFlow<()>,
    ) -> bool {
        let finder = Finder::new(&form.text);
        let (mut from, mut found, mut walk) = (0, false, Walk::new(self));
        while let Some(at) = finder.find(&self.text[from..]) {
            let viewed = from + at..from + at + form.text.len();
            from = viewed.start + 1;
            if !self.may_stand(needle, form, &viewed) {
                continue;
            }
            let Some(range) = walk.range_of(&viewed) else { continue };
            let line_start = walk.line_start;
            let mut range = range;
            if self.how == How::Indented && self.blanks_end(line_start) >= range.start {
                range.start = line_start;
            }
            if form.end == End::OfLine {
                range.end = self.blanks_end(range.end);
            }
            if apart {
                from = viewed.end;
            }
            found = true;
            let pieces = walk.window.make_contiguous();
            let hit = Hit { range, viewed, pieces, line_start };
            if visit(form, hit).is_break() {
                break;
            }
        }
        found
    }

    fn may_stand(&self, needle: &Needle, form: &Form, viewed: &Range<usize>) -> bool {
        let begins = !needle.begins_line || viewed.start == 0 || self.text[viewed.start - 1] == b'\n';
        let next = self.text.get(viewed.end);
        begins
            && match form.end {
                End::Anywhere => true,
                End::OfLine => next.is_none_or(|byte| *byte == b'\n'),
                End::OfText => next.is_none(),
            }
    }

    fn blanks_end(&self, mut at: usize) -> usize {
        while let Some((c, length)) = char_at(self.bytes, at, self.encoding)
            && (is_blank(c) || is_invisible(c))
        {
            at += length;
        }
        at
    }
}

impl Needle {
    /// None where nothing but blanks would be looked for.
    pub(super) fn of(old: &str, how: How) -> Option<Self> {
        let begins_line = how == How::Indented && old.starts_with(is_blank);
        let cut = |old: &str, end| {
            // A letter behind it keeps blanks at the end from being taken for those at the end of a line.
            let padded = format!("{old}x");
            let bytes = if end == End::Anywhere { padded.as_bytes() } else { old.as_bytes() };
            let (mut pieces, mut text) = (Vec::new(), Vec::new());
            for mut piece in Pieces::new(bytes, 0, Encoding::Utf8, how) {
                piece.range.end = piece.range.end.min(old.len());
                if piece.range.is_empty() {
                    break;
                }
                let at = text.len();
                piece.write(bytes, &mut text);
                pieces.push((at, piece));
            }
            Form { pieces, text, end }
        };
        let mut forms = vec![cut(old, End::Anywhere)];
        if matches!(how, How::Alike | How::Indented) {
            if old.ends_with(|c| is_blank(c) || is_invisible(c)) {
                forms.push(cut(old, End::OfLine));
            }
            if let Some(open) = old.strip_suffix('\n') {
                forms.push(cut(open.strip_suffix('\r').unwrap_or(open), End::OfText));
            }
            forms.retain(|form| form.text.iter().any(|byte| !byte.is_ascii_whitespace()));
        }
        (!forms.is_empty()).then_some(Self { begins_line, forms })
    }
}

impl Form {
    /// Whether the needle's last line end is not part of it.
    pub(super) fn is_open(&self) -> bool {
        self.end == End::OfText
    }
}

/// Marks a line start where the last mark is far enough away.
fn mark(marks: &mut Vec<(usize, usize)>, viewed: usize, at: usize) {
    if marks.last().is_none_or(|(last, _)| viewed >= last + MARK_EVERY) {
        marks.push((viewed, at));
    }
}

/// Follows the matches through the file.
struct Walk<'v, 'a> {
    view: &'v View<'a>,
    pieces: Pieces<'a>,
    /// The pieces of the match at hand, each with its place in the view.
    window: VecDeque<(usize, Piece)>,
    /// How far pieces have been cut, in the view.
    reached: usize,
    line_start: usize,
}

impl<'v, 'a> Walk<'v, 'a> {
    fn new(view: &'v View<'a>) -> Self {
        let start = view.encoding.mark();
        let pieces = Pieces::new(view.bytes, start, view.encoding, view.how);
        Self { view, pieces, window: VecDeque::new(), reached: 0, line_start: start }
    }

    /// Where a match stands in the file; none where it begins or ends within what a piece stands for. Matches come in order.
    fn range_of(&mut self, viewed: &Range<usize>) -> Option<Range<usize>> {
        let mark = self.view.marks.partition_point(|(at, _)| *at <= viewed.start) - 1;
        let (at, place) = self.view.marks[mark];
        if at > self.reached {
            self.pieces = Pieces::new(self.view.bytes, place, self.view.encoding, self.view.how);
            self.window.clear();
            (self.reached, self.line_start) = (at, place);
        }
        loop {
            while let Some((at, piece)) = self.window.front()
                && at + piece.length() <= viewed.start
            {
                if piece.is_line_end() {
                    self.line_start = piece.range.end;
                }
                self.window.pop_front();
            }
            if self.reached >= viewed.end {
                break;
            }
            let piece = self.pieces.next()?;
            let length = piece.length();
            self.window.push_back((self.reached, piece));
            self.reached += length;
        }
        let count = self.window.partition_point(|(at, _)| *at < viewed.end);
        let (first, last) = (self.window.front()?, self.window.get(count.checked_sub(1)?)?);
        Some(within(first, viewed.start)?..within(last, viewed.end)?)
    }
}

/// The file's place for a place in the view at the edge of a piece, or within one that stands for itself.
pub(super) fn within((at, piece): &(usize, Piece), viewed: usize) -> Option<usize> {
    match viewed.checked_sub(*at)? {
        0 => Some(piece.range.start),
        inner if inner == piece.length() => Some(piece.range.end),
        inner if piece.stands_for == StandsFor::Itself => Some(piece.range.start + inner),
        _ => None,
    }
}
