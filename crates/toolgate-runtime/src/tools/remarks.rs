//! What a search says about itself behind what it found: one line, as far as there is anything to say. Shared by the tools that
//! search; no tool itself.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use toolgate_core::outcome::StopReason;

use crate::{
    files::{Walked, names},
    tool::Done,
};

/// Binary files that are named.
const NAMED: usize = 3;

/// Sentences, in the order in which they are read.
#[derive(Default)]
pub(super) struct Remarks(Vec<String>);

/// How a search ended.
pub(super) struct End {
    /// What it looks for: one, and several.
    pub(super) things: [&'static str; 2],
    /// What to say where nothing was found.
    pub(super) nothing: Option<String>,
    pub(super) shown: usize,
    pub(super) limit: usize,
    /// Whether there is more than is shown.
    pub(super) more: bool,
    pub(super) cancelled: bool,
}

impl Remarks {
    pub(super) fn add(&mut self, remark: impl Into<String>) {
        self.0.push(remark.into());
    }

    /// Whether everything was seen and, where nothing was found, what was not looked at.
    pub(super) fn end(&mut self, end: &End, walked: &Walked) {
        let shown = match (end.shown, end.things) {
            (1, [one, _]) => format!("the first {one} is shown"),
            (shown, [_, several]) => format!("the first {shown} {several} are shown"),
        };
        if end.cancelled {
            self.add("the search was cut short; what it had found by then stands above");
        } else if end.more && end.shown >= end.limit {
            self.add(format!("{shown} and there are more; limit={} shows more", end.limit.saturating_mul(2)));
        } else if end.more {
            self.add(format!("{shown} and there are more, too much text for one search; narrow it"));
        } else if let Some(nothing) = &end.nothing {
            self.add(nothing);
            if walked.ignored {
                self.add("what ignore files name was not searched; give such a path to search it");
            }
        }
        if walked.unreadable > 0 {
            let more = if walked.unreadable > walked.examples.len() { ", …" } else { "" };
            self.add(format!("{} could not be read: {}{more}", walked.unreadable, walked.examples.join(", ")));
        }
    }

    /// Files that are no text.
    pub(super) fn binary(&mut self, files: &Binary) {
        let names: Vec<String> = files.first.iter().map(|path| names::shown(path.as_os_str())).collect();
        match (files.count, names.join(", ")) {
            (0, _) => {}
            (1, name) if name.is_empty() && files.matches => self.add("it is a binary file, and it matches"),
            (1, name) if name.is_empty() => self.add("it is a binary file"),
            (1, name) => self.add(format!("1 binary file was not searched: {name}")),
            (count, names) => {
                let more = if count > files.first.len() { ", …" } else { "" };
                self.add(format!("{count} binary files were not searched: {names}{more}"));
            }
        }
    }
}

/// Files that turned out to be no text.
#[derive(Default)]
pub(super) struct Binary {
    count: usize,
    /// Whether one of them is known to match.
    pub(super) matches: bool,
    first: BTreeSet<PathBuf>,
}

impl Binary {
    pub(super) fn add(&mut self, path: &Path, matches: bool) {
        self.count += 1;
        self.matches |= matches;
        self.first.insert(path.to_owned());
        if self.first.len() > NAMED {
            self.first.pop_last();
        }
    }
}

impl From<Remarks> for Done {
    fn from(remarks: Remarks) -> Self {
        if remarks.0.is_empty() {
            return Self::default();
        }
        Self::noted(StopReason::Completed, format!("[{}]", remarks.0.join("; ")))
    }
}
