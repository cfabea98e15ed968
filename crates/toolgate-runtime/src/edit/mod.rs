//! Edits: which bytes of a file an old text means, and what stands in their place. Pure: from bytes and texts to splices.
//!
//! All edits of a call are matched against the file as it stands, and all of them or none are planned. An old text is looked for in the
//! ways of [`How`], the strictest first, and one that is found in one way is not looked for in a looser one: only matches of the same way
//! compete. What a match is replaced by keeps the file's own bytes wherever the new text says the same as the old one.
//!
//! * this file: [`plan`]; [`error`]: what can be wrong, in words that help;
//! * `pieces`, `view`: a text as it is compared, and where a match of it stands in the file;
//! * `fit`: from a match to splices, with the place's own line ends and encoding; `indent`: with the file's own indentation;
//! * [`difference`]: what the splices change, as lines; `near`: what a text that was not found may have meant.

mod difference;
pub mod error;
mod fit;
mod indent;
mod near;
mod pieces;
mod view;

use std::{
    borrow::Cow,
    ops::{ControlFlow, Range},
};

use crate::files::{Splice, text::Encoding};
pub use difference::difference;
pub use error::{EditError, Problem};
use fit::Fit;
use view::{Needle, View};

/// Places that one edit may replace; each takes some dozens of bytes of memory, and who wants more wants a program.
pub const MOST_REPLACED: usize = 1_000_000;

/// Bytes that all edits together may insert, beyond the size of the file: what is planned is held in memory.
pub const MOST_INSERTED: usize = 64 * 1024 * 1024;

/// Matches of an ambiguous text that are counted; nobody needs to know how many more there are.
const MOST_COUNTED: usize = 1000;

/// Texts of one call that were not found and for which the file is searched for what comes near; each takes another pass.
const MOST_EXPLAINED: usize = 3;

/// Lines of an ambiguous text's matches that are named.
const MOST_NAMED: usize = 5;

/// One replacement that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What stands in the file.
    pub old: String,
    /// What shall stand there.
    pub new: String,
    /// Whether every match is replaced; otherwise there must be one.
    pub all: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In order and apart from each other.
    pub splices: Vec<Splice>,
    /// What each edit matched, in the order of the edits.
    pub matched: Vec<Matched>,
}

/// What one edit matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matched {
    /// Places.
    pub count: usize,
    /// In which way.
    pub how: How,
    /// The line of the first one, counted from 1.
    pub line: usize,
}

/// How a text is compared with a file, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Byte for byte.
    Exact,
    /// As the file is shown: its characters whatever the encoding, and its lines whatever ends them.
    Shown,
    /// Apart from blanks at the ends of lines and from characters that look alike: quotes, dashes, kinds of blanks, ways of writing an
    /// accent.
    Alike,
    /// Apart from all that, and from the blanks that lines begin with.
    Indented,
}

impl How {
    const ALL: [Self; 4] = [Self::Exact, Self::Shown, Self::Alike, Self::Indented];
}

impl Plan {
    /// What a model should know of the matches that were not of what it wrote.
    pub fn notes(&self) -> Vec<String> {
        let several = self.matched.len() > 1;
        let note = |(number, matched): (usize, &Matched)| {
            let edit = if several { format!("edits[{number}] ") } else { String::new() };
            match matched.how {
                How::Exact | How::Shown => None,
                How::Alike => Some(format!(
                    "[{edit}matched apart from trailing blanks or characters that look alike; unchanged text keeps the file's own]"
                )),
                How::Indented => {
                    Some(format!("[{edit}matched apart from indentation; the new lines are indented as the file is]"))
                }
            }
        };
        self.matched.iter().enumerate().filter_map(note).collect()
    }
}

/// Plans all edits of a file, or says everything that is wrong with them.
///
/// # Errors
/// When one of them cannot be done, or all of them would change nothing. [`EditError::explained`] adds what the file holds instead.
pub fn plan(file: &[u8], edits: &[Edit]) -> Result<Plan, EditError> {
    Planner::new(file, edits).plan().map_err(|problems| EditError { problems, edits: edits.len() })
}

impl EditError {
    /// The same error with parts of the file that come near to what was not found, for whoever may read the file.
    #[must_use]
    pub fn explained(mut self, file: &[u8], edits: &[Edit]) -> Self {
        let missing = self.problems.iter_mut().filter_map(|problem| match problem {
            Problem::Missing { edit, near, .. } => Some((*edit, near)),
            _ => None,
        });
        for (edit, near) in missing.take(MOST_EXPLAINED) {
            *near = near::candidates(file, Encoding::of(file), &edits[edit].old);
        }
        self
    }
}

/// Whether edits can be done in some file at all.
///
/// # Errors
/// What can be said without a look at the file.
pub fn sensible(edits: &[Edit]) -> Result<(), EditError> {
    let problems = senseless(edits);
    if problems.is_empty() { Ok(()) } else { Err(EditError { problems, edits: edits.len() }) }
}

fn senseless(edits: &[Edit]) -> Vec<Problem> {
    if edits.is_empty() {
        return vec![Problem::NoEdits];
    }
    let check = |(edit, asked): (usize, &Edit)| match asked {
        Edit { old, .. } if old.is_empty() => Some(Problem::Empty { edit }),
        Edit { old, new, .. } if old == new => Some(Problem::Same { edit }),
        _ => None,
    };
    edits.iter().enumerate().filter_map(check).collect()
}

/// A match and what it turns into.
struct Place {
    edit: usize,
    range: Range<usize>,
    splices: Vec<Splice>,
}

struct Planner<'a> {
    file: &'a [u8],
    encoding: Encoding,
    /// As they are asked for, without byte order marks where the file has one of its own.
    edits: Vec<Edit>,
    fit: Fit<'a>,
    places: Vec<Place>,
    matched: Vec<Option<Matched>>,
    inserted: usize,
}

impl<'a> Planner<'a> {
    fn new(file: &'a [u8], edits: &[Edit]) -> Self {
        let encoding = Encoding::of(file);
        let unmarked = |text: &str| match encoding.mark() {
            0 => text.to_owned(),
            _ => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
        };
        let edits: Vec<Edit> = edits
            .iter()
            .map(|edit| Edit { old: unmarked(&edit.old), new: unmarked(&edit.new), all: edit.all })
            .collect();
        let matched = vec![None; edits.len()];
        Self { file, encoding, edits, fit: Fit::new(file, encoding), places: Vec::new(), matched, inserted: 0 }
    }

    fn plan(mut self) -> Result<Plan, Vec<Problem>> {
        let mut problems = senseless(&self.edits);
        if !problems.is_empty() {
            return Err(problems);
        }
        for how in How::ALL {
            self.match_all(how, &mut problems);
        }
        let missing: Vec<usize> = (0..self.edits.len()).filter(|edit| self.matched[*edit].is_none()).collect();
        let wrong = |edit: usize| problems.iter().any(|problem| problem.edit() == Some(edit));
        let missing: Vec<usize> = missing.into_iter().filter(|edit| !wrong(*edit)).collect();
        for edit in missing {
            let pictured = self.edits[edit].old.contains(|c| ('\u{2400}'..='\u{2421}').contains(&c));
            problems.push(Problem::Missing { edit, pictured, near: Vec::new() });
        }
        self.overlaps(&mut problems);
        if !problems.is_empty() {
            problems.sort_by_key(Problem::edit);
            return Err(problems);
        }
        let file = self.file;
        let splices = self.places.into_iter().flat_map(|place| place.splices);
        let splices: Vec<Splice> = splices.filter(|splice| file[splice.range.clone()] != splice.with[..]).collect();
        if splices.is_empty() {
            return Err(vec![Problem::NoChange]);
        }
        Ok(Plan { splices, matched: self.matched.into_iter().flatten().collect() })
    }

    /// Matches in one way all edits that have matched in no stricter one.
    fn match_all(&mut self, how: How, problems: &mut Vec<Problem>) {
        let mut view = None;
        for edit in 0..self.edits.len() {
            let wrong = problems.iter().any(|problem| problem.edit() == Some(edit));
            if wrong || self.matched[edit].is_some() || !self.is_worth_a_look(how, edit) {
                continue;
            }
            let view = view.get_or_insert_with(|| View::of(self.file, self.encoding, how));
            if let Err(problem) = self.match_one(view, how, edit) {
                problems.push(problem);
            }
        }
    }

    /// Line ends are no part of what a model sees of a file, so where several kinds are possible a text that holds one is never compared
    /// byte for byte: its twin with other ends would not be counted.
    fn is_worth_a_look(&self, how: How, edit: usize) -> bool {
        let old = &self.edits[edit].old;
        let bytes_show = matches!(self.encoding, Encoding::Utf8 | Encoding::Utf8Marked);
        let ends_differ = || old.contains(['\n', '\r']) && (old.contains('\r') || self.fit.has_cr());
        match how {
            How::Exact => bytes_show && !ends_differ(),
            How::Shown => !bytes_show || ends_differ() || !old.is_ascii(),
            How::Alike | How::Indented => true,
        }
    }

    fn match_one(&mut self, view: &View<'_>, how: How, edit: usize) -> Result<(), Problem> {
        let Edit { old, new, all } = self.edits[edit].clone();
        // Beyond the first way, all line ends are alike, so the needle has one kind too.
        let (old, new) =
            if how == How::Exact { (Cow::Owned(old), Cow::Owned(new)) } else { (unified(&old), Cow::Owned(new)) };
        let Some(needle) = Needle::of(&old, how) else { return Ok(()) };
        let (mut count, mut lines, mut problem) = (0, Vec::new(), None);
        let first_place = self.places.len();
        view.search(&needle, all, &mut |form, hit| {
            count += 1;
            if count == 1 || (!all && lines.len() < MOST_NAMED) {
                lines.push(self.fit.line_of(hit.range.start));
            }
            if !all && count > 1 {
                return if count > MOST_COUNTED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            let splices = match self.fit.splices(edit, &old, &new, how, form, &hit) {
                Ok(splices) => splices,
                Err(wrong) => {
                    problem = Some(wrong);
                    return if all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                }
            };
            self.inserted += splices.iter().map(|splice| splice.with.len()).sum::<usize>();
            self.places.push(Place { edit, range: hit.range, splices });
            if count > MOST_REPLACED || self.inserted > self.file.len().saturating_add(MOST_INSERTED) {
                problem = Some(Problem::TooMuch { edit });
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if !all && count > 1 {
            self.places.truncate(first_place);
            return Err(Problem::Ambiguous { edit, count, more: count > MOST_COUNTED, lines, how });
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
        if let Some(line) = lines.first() {
            self.matched[edit] = Some(Matched { count, how, line: *line });
        }
        Ok(())
    }

    /// Puts the places in order, and finds those that share bytes.
    fn overlaps(&mut self, problems: &mut Vec<Problem>) {
        self.places.sort_by_key(|place| (place.range.start, place.range.end));
        for pair in self.places.windows(2) {
            let [first, second] = pair else { continue };
            if first.range.end > second.range.start && first.edit != second.edit {
                let line = self.fit.line_of(second.range.start);
                problems.push(Problem::Overlap { edit: first.edit, other: second.edit, line });
                return;
            }
        }
    }
}

/// A text whose lines all end with LF.
fn unified(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")) } else { Cow::Borrowed(text) }
}
