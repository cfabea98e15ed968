//! From a match to splices: what the new text changes, written as the file writes it.
//!
//! Lines that old and new text share keep the file's bytes, and so does what a changed line begins and ends with. The rest gets the line
//! ends of its place, the file's encoding, and after a match apart from indentation the file's indentation.

use std::{borrow::Cow, ops::Range};

use similar::DiffOp;

use super::{
    How, Problem,
    indent::{First, Indents},
    pieces::{Piece, StandsFor, char_at, is_blank},
    unified,
    view::{Form, Hit, within},
};
use crate::{
    diff::line_ops,
    files::{Splice, text::Encoding},
};

/// What is known of a file, found out once.
pub(super) struct Fit<'a> {
    file: &'a [u8],
    encoding: Encoding,
    has_cr: Option<bool>,
    has_lf: Option<bool>,
    eight_bit: Option<bool>,
    /// A place and the number of the line that it is in.
    counted: (usize, usize),
    /// From where to where no line ends, and how the line that is there ends.
    ends: (Range<usize>, &'static str),
}

/// One match and what is asked for there.
struct Job<'j> {
    edit: usize,
    old: &'j str,
    new: &'j str,
    form: &'j Form,
    hit: &'j Hit<'j>,
    indents: Option<Indents>,
}

impl<'a> Fit<'a> {
    pub(super) fn new(file: &'a [u8], encoding: Encoding) -> Self {
        let (counted, ends) = ((encoding.mark(), 1), (0..0, "\n"));
        Self { file, encoding, has_cr: None, has_lf: None, eight_bit: None, counted, ends }
    }

    /// Whether a CR is anywhere in the file, or may be.
    pub(super) fn has_cr(&self) -> bool {
        self.has_cr.unwrap_or_else(|| memchr::memchr(b'\r', self.file).is_some())
    }

    /// The splices of one match, in order.
    pub(super) fn splices(
        &mut self,
        edit: usize,
        old: &str,
        new: &str,
        how: How,
        form: &Form,
        hit: &Hit<'_>,
    ) -> Result<Vec<Splice>, Problem> {
        if unified(old) == unified(new) {
            // Nothing but line ends is to change, so here they are meant as they are written.
            return Ok(vec![Splice { range: hit.range.clone(), with: self.encoded(edit, new, &hit.range)? }]);
        }
        let new = new.replace("\r\n", "\n");
        if how == How::Exact {
            return Ok(vec![Splice { range: hit.range.clone(), with: self.written(edit, &new, &hit.range)? }]);
        }
        let (old, new) = match old.strip_suffix('\n').filter(|_| form.is_open()) {
            Some(open) => (open, new.strip_suffix('\n').unwrap_or(&new)),
            None => (old, new.as_str()),
        };
        let mut job = Job { edit, old, new, form, hit, indents: None };
        let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
        let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
        let starts = line_starts(hit);
        if how == How::Indented {
            job.indents = Some(self.indents(&job, &old_lines, &starts)?);
        }
        let (old_at, new_at) = (offsets(&old_lines), offsets(&new_lines));
        let in_file =
            |line: usize| starts.get(line).copied().filter(|_| line < old_lines.len()).unwrap_or(hit.range.end);
        let mut splices = Vec::new();
        for op in line_ops(&old_lines, &new_lines).iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
            for (gone, come) in paired(&old_lines, &new_lines, op.old_range(), op.new_range()) {
                let region = Region {
                    old: old_at[gone.start]..old_at[gone.end],
                    new: new_at[come.start]..new_at[come.end],
                    file: in_file(gone.start)..in_file(gone.end),
                };
                splices.push(self.region(&job, region)?);
            }
        }
        Ok(splices)
    }

    /// One run of changed lines.
    fn region(&mut self, job: &Job<'_>, region: Region) -> Result<Splice, Problem> {
        let inner = region.inner(job);
        let new = &job.new[inner.new.clone()];
        let text = match &job.indents {
            Some(indents) => {
                let begins_line = inner.new.start == 0 || job.new[..inner.new.start].ends_with('\n');
                let line = self.line_of(job.hit.range.start);
                let unclear = |indentation| Problem::Indentation { edit: job.edit, line, indentation };
                Cow::Owned(indents.applied(new, begins_line, inner.new.start == 0).map_err(unclear)?)
            }
            None => Cow::Borrowed(new),
        };
        let with = self.written(job.edit, &text, &inner.file)?;
        Ok(Splice { range: inner.file, with })
    }

    /// How the indentation of the old text stands in the file.
    fn indents(&mut self, job: &Job<'_>, lines: &[&str], starts: &[usize]) -> Result<Indents, Problem> {
        let mut pairs = Vec::new();
        // The first line may be a whole line without its indentation, or only the end of one.
        let bare = !job.old.starts_with(is_blank);
        for (line, start) in lines.iter().zip(starts).skip(usize::from(bare)) {
            let text = line.trim_start_matches(is_blank);
            if !text.trim_end().is_empty() {
                pairs.push((line[..line.len() - text.len()].to_owned(), self.indentation(*start)));
            }
        }
        let first = match (bare, job.hit.range.start == job.hit.line_start) {
            (false, _) => First::Known,
            (true, true) => First::Whole(self.indentation(job.hit.line_start)),
            (true, false) => First::Rest,
        };
        let line = self.line_of(job.hit.range.start);
        Indents::of(pairs, first).map_err(|indentation| Problem::Indentation { edit: job.edit, line, indentation })
    }

    /// The blanks that begin at a place.
    fn indentation(&self, start: usize) -> String {
        let (mut at, mut blanks) = (start, String::new());
        while let Some((c, length)) = char_at(self.file, at, self.encoding)
            && is_blank(c)
        {
            blanks.push(c);
            at += length;
        }
        blanks
    }

    /// A text with the line ends and in the encoding of the place where it will stand.
    fn written(&mut self, edit: usize, text: &str, place: &Range<usize>) -> Result<Vec<u8>, Problem> {
        let end = if text.contains('\n') { self.line_end(place.start) } else { "\n" };
        if end == "\n" {
            return self.encoded(edit, text, place);
        }
        self.encoded(edit, &text.replace('\n', end), place)
    }

    fn encoded(&mut self, edit: usize, text: &str, place: &Range<usize>) -> Result<Vec<u8>, Problem> {
        match self.encoding {
            Encoding::Utf16Le => return Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Encoding::Utf16Be => return Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Encoding::Utf8 | Encoding::Utf8Marked => {}
        }
        if text.is_ascii() || !self.is_eight_bit(place) {
            return Ok(text.into());
        }
        let (bytes, _, unknown) = encoding_rs::WINDOWS_1252.encode(text);
        if unknown {
            let fits = |c: &char| !encoding_rs::WINDOWS_1252.encode(c.encode_utf8(&mut [0; 4])).2;
            let character = text.chars().find(|c| !fits(c)).unwrap_or(char::REPLACEMENT_CHARACTER);
            return Err(Problem::Unencodable { edit, character });
        }
        Ok(bytes.into_owned())
    }

    /// Whether characters beyond ASCII are single bytes at a place: as they are in what is replaced, else as in most of the file.
    fn is_eight_bit(&mut self, place: &Range<usize>) -> bool {
        let here = &self.file[place.clone()];
        if !here.is_ascii() {
            return std::str::from_utf8(here).is_err();
        }
        *self.eight_bit.get_or_insert_with(|| {
            let (mut bytes, mut characters) = (0, 0);
            for chunk in self.file.utf8_chunks() {
                bytes += usize::from(!chunk.invalid().is_empty());
                characters += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
            }
            bytes > characters
        })
    }

    /// How the line ends that a place is in; the one before it where it is the last one and has no end.
    fn line_end(&mut self, place: usize) -> &'static str {
        if self.ends.0.contains(&place) {
            return self.ends.1;
        }
        let (file, encoding) = (self.file, self.encoding);
        let has_lf = *self.has_lf.get_or_insert_with(|| memchr::memchr(b'\n', file).is_some());
        let has_cr = *self.has_cr.get_or_insert_with(|| memchr::memchr(b'\r', file).is_some());
        if !has_lf || !has_cr {
            return if has_cr { "\r" } else { "\n" };
        }
        let unit = if encoding.name().is_some() { 2 } else { 1 };
        let next = (place..file.len()).step_by(unit).find(|at| is_lf(file, *at, encoding));
        let before = || (encoding.mark()..place).step_by(unit).rev().find(|at| is_lf(file, *at, encoding));
        let found = next.or_else(before);
        let crlf = found.is_some_and(|lf| {
            lf.checked_sub(unit).is_some_and(|at| char_at(file, at, encoding).is_some_and(|(c, _)| c == '\r'))
        });
        self.ends = (place..next.map_or(file.len(), |lf| lf + 1), if crlf { "\r\n" } else { "\n" });
        self.ends.1
    }

    /// The number of the line that a place is in, counted from 1. Cheap where places come in order.
    pub(super) fn line_of(&mut self, place: usize) -> usize {
        if place < self.counted.0 {
            self.counted = (self.encoding.mark(), 1);
        }
        let (from, line) = self.counted;
        self.counted = (place, line + line_ends(self.file, from..place, self.encoding));
        self.counted.1
    }
}

/// Line ends in a range; lone CRs count where the file has no LF.
pub(super) fn line_ends(file: &[u8], range: Range<usize>, encoding: Encoding) -> usize {
    let bytes = &file[range.clone()];
    if encoding.name().is_some() {
        return range.step_by(2).filter(|at| is_lf(file, *at, encoding)).count();
    }
    match memchr::memchr_iter(b'\n', bytes).count() {
        0 if memchr::memchr(b'\n', file).is_none() => memchr::memchr_iter(b'\r', bytes).count(),
        count => count,
    }
}

fn is_lf(file: &[u8], at: usize, encoding: Encoding) -> bool {
    match encoding {
        Encoding::Utf8 | Encoding::Utf8Marked => file[at] == b'\n',
        Encoding::Utf16Le => file[at..].starts_with(b"\n\0"),
        Encoding::Utf16Be => file[at..].starts_with(b"\0\n"),
    }
}

/// Where lines begin in their text, and where the last one ends.
fn offsets(lines: &[&str]) -> Vec<usize> {
    let mut end = 0;
    let ends = lines.iter().map(|line| {
        end += line.len();
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Where the lines of a match begin in the file.
fn line_starts(hit: &Hit<'_>) -> Vec<usize> {
    let inside = hit.pieces.iter().take_while(|(at, _)| *at < hit.viewed.end);
    let ends = inside.filter(|(_, piece)| piece.is_line_end()).map(|(_, piece)| piece.range.end);
    std::iter::once(hit.range.start).chain(ends).collect()
}

/// Changed lines, each beside the one that it became as far as that can be seen from the front and from the back.
fn paired(
    old: &[&str],
    new: &[&str],
    mut gone: Range<usize>,
    mut come: Range<usize>,
) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while !gone.is_empty() && !come.is_empty() && are_kin(old[gone.start], new[come.start]) {
        front.push((gone.start..gone.start + 1, come.start..come.start + 1));
        (gone.start, come.start) = (gone.start + 1, come.start + 1);
    }
    while !gone.is_empty() && !come.is_empty() && are_kin(old[gone.end - 1], new[come.end - 1]) {
        (gone.end, come.end) = (gone.end - 1, come.end - 1);
        back.push((gone.end..gone.end + 1, come.end..come.end + 1));
    }
    if !gone.is_empty() || !come.is_empty() {
        front.push((gone, come));
    }
    front.extend(back.into_iter().rev());
    front
}

/// Whether half of the longer line is what both begin and end with.
fn are_kin(old: &str, new: &str) -> bool {
    let (old, new) = (old.trim().as_bytes(), new.trim().as_bytes());
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let back = old[front..].iter().rev().zip(new[front..].iter().rev()).take_while(|(a, b)| a == b).count();
    2 * (front + back) >= old.len().max(new.len())
}

/// Some lines: in the old text, in the new one, in the file.
struct Region {
    old: Range<usize>,
    new: Range<usize>,
    file: Range<usize>,
}

impl Region {
    /// Less what old and new begin and end with alike, as far as it can be told apart in the file.
    fn inner(&self, job: &Job<'_>) -> Self {
        let (old, new) = (&job.old[self.old.clone()], &job.new[self.new.clone()]);
        let (mut file, mut same, mut tail) = (self.file.clone(), 0, 0);
        let most = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
        for at in edges(&old[..most]).rev() {
            if let Some(place) = job.place_behind(self.old.start + at).filter(|place| *place > self.file.start) {
                (same, file.start) = (at, place);
                break;
            }
        }
        let rest = (&old[same..], &new[same..]);
        let alike = rest.0.chars().rev().zip(rest.1.chars().rev()).take_while(|(a, b)| a == b);
        let most = alike.map(|(a, _)| a.len_utf8()).sum::<usize>();
        for at in edges(&old[old.len() - most..]) {
            let at = old.len() - most + at;
            if let Some(place) = job.place_before(self.old.start + at).filter(|place| *place < self.file.end) {
                (tail, file.end) = (old.len() - at, place);
                break;
            }
        }
        Self { old: self.old.start + same..self.old.end - tail, new: self.new.start + same..self.new.end - tail, file }
    }
}

/// Places between the characters of a text, its ends included.
fn edges(text: &str) -> impl DoubleEndedIterator<Item = usize> + '_ {
    text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len()))
}

impl Job<'_> {
    /// The file's place right behind what stands before a place of the old text.
    fn place_behind(&self, at: usize) -> Option<usize> {
        let before = self.form.pieces.partition_point(|(_, piece)| piece.range.start < at).checked_sub(1)?;
        let viewed = self.hit.viewed.start + viewed(&self.form.pieces[before], at)?;
        let before = self.hit.pieces.partition_point(|(start, _)| *start < viewed).checked_sub(1)?;
        let solid = self.hit.pieces[..=before].iter().rev().find(|(_, piece)| piece.length() > 0)?;
        within(solid, viewed)
    }

    /// The file's place right before what stands at a place of the old text.
    fn place_before(&self, at: usize) -> Option<usize> {
        let behind = self.form.pieces.partition_point(|(_, piece)| piece.range.end <= at);
        let viewed = self.hit.viewed.start + viewed(self.form.pieces.get(behind)?, at)?;
        if viewed >= self.hit.viewed.end {
            return None;
        }
        let behind = self.hit.pieces.partition_point(|(start, piece)| start + piece.length() <= viewed);
        within(self.hit.pieces.get(behind)?, viewed)
    }
}

/// The place in the view for a place of the old text at the edge of a piece that counts, or within one that stands for itself.
fn viewed((view, piece): &(usize, Piece), at: usize) -> Option<usize> {
    match at.checked_sub(piece.range.start)? {
        _ if piece.stands_for == StandsFor::Nothing => None,
        0 => Some(*view),
        _ if at == piece.range.end => Some(view + piece.length()),
        inner if piece.stands_for == StandsFor::Itself => Some(view + inner),
        _ => None,
    }
}
