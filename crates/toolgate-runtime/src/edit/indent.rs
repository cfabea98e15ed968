//! How the indentation of an old text stands in the file, and how that of the new one will.
//!
//! Each indentation of the old text must stand for one of the file, and no two for the same: otherwise nobody can say what a new line's
//! indentation means, and the edit fails. One that the old text does not hold follows the rule of those that it does, such as four blanks
//! a tab, where there is one.

use super::pieces::is_blank;

/// Indentations of the old text and what they are in the file.
pub(super) struct Indents {
    pairs: Vec<(String, String)>,
    first: First,
}

/// The first line of an old text.
pub(super) enum First {
    /// With its indentation.
    Known,
    /// A whole line of the file, which has this indentation there and none in the old text.
    Whole(String),
    /// The end of a line.
    Rest,
}

/// Why an indentation has no one meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// Indentations of the old text and what they are in the file.
    pub pairs: Vec<(String, String)>,
    /// The new text's indentation that follows from none of them; none where they contradict each other.
    pub new: Option<String>,
}

impl Indents {
    pub(super) fn of(found: Vec<(String, String)>, first: First) -> Result<Self, Unclear> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in found {
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
        if contradict(&pairs) {
            return Err(Unclear { pairs, new: None });
        }
        // A first line without indentation counts where that fits to the others; else the model has left it out there alone.
        if let First::Whole(first) = &first {
            let pair = (String::new(), first.clone());
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
            if contradict(&pairs) {
                pairs.pop();
            }
        }
        Ok(Self { pairs, first })
    }

    /// A new text with the file's indentation; whether it begins a line, and whether it is the beginning of
    /// the whole new text.
    pub(super) fn applied(&self, text: &str, begins_line: bool, is_first: bool) -> Result<String, Unclear> {
        let mut with = String::with_capacity(text.len());
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let inner = line.trim_start_matches(is_blank);
            let blanks = &line[..line.len() - inner.len()];
            let is_empty = inner.trim_end_matches(['\n', '\r']).is_empty() && line.ends_with('\n');
            if is_empty || (number == 0 && !begins_line) {
                with.push_str(line);
                continue;
            }
            match &self.first {
                First::Whole(own) if number == 0 && is_first && blanks.is_empty() => {
                    with.push_str(own);
                    with.push_str(inner);
                    continue;
                }
                First::Rest if number == 0 && is_first => {
                    with.push_str(line);
                    continue;
                }
                _ => {}
            }
            let Some(own) = self.in_file(blanks) else {
                return Err(Unclear { pairs: self.pairs.clone(), new: Some(blanks.to_owned()) });
            };
            with.push_str(&own);
            with.push_str(inner);
        }
        Ok(with)
    }

    fn in_file(&self, blanks: &str) -> Option<String> {
        let known = self.pairs.iter().find(|(old, _)| old == blanks).map(|(_, file)| file.clone());
        known.or_else(|| self.by_rule(blanks))
    }

    /// All known indentations on one line: so many of one blank for so many of another, and so many more.
    fn by_rule(&self, blanks: &str) -> Option<String> {
        let old_blank = the_blank(self.pairs.iter().map(|(old, _)| old.as_str()).chain([blanks]))?;
        let file_blank = the_blank(self.pairs.iter().map(|(_, file)| file.as_str()))?.or(old_blank);
        let point = |(old, file): &(String, String)| (old.chars().count() as i64, file.chars().count() as i64);
        let points: Vec<(i64, i64)> = self.pairs.iter().map(point).collect();
        let (x, y) = *points.first()?;
        // How much further the file goes (`rise`) for how much of the old text (`run`).
        let (rise, run) = match points.iter().find(|(other, _)| *other != x) {
            Some((other_x, other_y)) => (other_y - y, other_x - x),
            None if old_blank == file_blank => (1, 1),
            None => (y, x),
        };
        let on_line = |(px, py): &(i64, i64)| (py - y) * run == (px - x) * rise;
        if run == 0 || rise == 0 || !points.iter().all(on_line) {
            return None;
        }
        let more = (blanks.chars().count() as i64 - x) * rise;
        let count = usize::try_from(y + more / run).ok().filter(|_| more % run == 0)?;
        match file_blank {
            Some(blank) => Some(std::iter::repeat_n(blank, count).collect()),
            None => (count == 0).then(String::new),
        }
    }
}

/// Whether one indentation stands for two, or two for one.
fn contradict(pairs: &[(String, String)]) -> bool {
    pairs.iter().enumerate().any(|(number, (old, file))| {
        pairs[..number].iter().any(|(other_old, other_file)| (other_old == old) != (other_file == file))
    })
}

/// The one kind of blank that some indentations consist of; the outer none where there are several, the inner one where there is none.
fn the_blank<'b>(indentations: impl IntoIterator<Item = &'b str>) -> Option<Option<char>> {
    let mut blanks = indentations.into_iter().flat_map(str::chars);
    let first = blanks.next();
    blanks.all(|blank| Some(blank) == first).then_some(first)
}
