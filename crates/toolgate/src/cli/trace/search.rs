//! `trace search`: where something was said or done, over all sessions or one. Files are read record by record.
#![allow(clippy::disallowed_methods)] // Traces are read here.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate_core::message::{Message, clean};

use super::{
    super::{print, state},
    find::{all_of, named},
    told::told,
};
use crate::{failure::Failure, surroundings::Surroundings};

/// How long one record may be to be looked into; bytes. A longer line is passed over, and said to be.
const LONGEST_RECORD: u64 = 64 * 1024 * 1024;

/// Characters that are shown on each side of what was found.
const AROUND: usize = 50;

/// What is looked for, and how it is told.
pub(super) struct Search {
    /// In lower case: case makes no difference.
    pub(super) text: String,
    pub(super) most: usize,
    pub(super) json: bool,
}

impl Search {
    /// Searches the named session, or all of them, newest first.
    pub(super) fn run(&self, names: &[String], surroundings: &Surroundings) -> Result<u8, Failure> {
        if self.text.trim().is_empty() {
            return Err(Failure::usage("there is nothing to look for").hint("toolgate trace search TEXT"));
        }
        let paths: Vec<PathBuf> = match names {
            [] => state(surroundings)?.sessions().iter().flat_map(|entry| all_of(&entry.trace)).collect(),
            names => named(names, surroundings).0,
        };
        let mut found = 0;
        for path in paths {
            // One session's missing file must not hide what the others say.
            if let Err(error) = self.file(&path, &mut found) {
                print::to_person(&format!("warning: the trace {} cannot be read: {error}", path.display()));
            }
            if found > self.most {
                print::to_person(&format!("hint: more than {0} records hold it; --most N shows more", self.most));
                break;
            }
        }
        if found == 0 {
            print::to_person("no record holds it");
        }
        Ok(0)
    }

    fn file(&self, path: &Path, found: &mut usize) -> std::io::Result<()> {
        let mut reader = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        let mut session = String::new();
        for number in 1_u64.. {
            line.clear();
            if reader.by_ref().take(LONGEST_RECORD).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.len() as u64 == LONGEST_RECORD && line.last() != Some(&b'\n') {
                reader.skip_until(b'\n')?;
                print::to_person(&format!("warning: {} line {number} is too long to be searched", path.display()));
                continue;
            }
            let Some(message) = Message::from_line(line.trim_ascii_end()) else { continue };
            if let toolgate_core::message::Body::SessionMeta(meta) = &message.body {
                session.clone_from(&meta.session_id);
            }
            let told = told(&message);
            let Some(excerpt) = [&told.line, &told.text].into_iter().find_map(|text| self.excerpt(text)) else {
                continue;
            };
            *found += 1;
            if *found > self.most {
                break;
            }
            if self.json {
                print::json(&json!({
                    "session_id": session, "file": path, "line": number, "timestamp": message.timestamp,
                    "kind": told.who, "excerpt": excerpt,
                }));
            } else {
                print::data(&format!("{session}  {number:5}  {}  {:8}  {excerpt}", message.timestamp, told.who));
            }
        }
        Ok(())
    }

    /// What stands around the first place, on one line.
    fn excerpt(&self, text: &str) -> Option<String> {
        let lower = text.to_lowercase();
        let at = lower.find(&self.text)?;
        // Lower case may have more characters, so each of them remembers the one that it came from.
        let origins = text.chars().enumerate().flat_map(|(place, c)| c.to_lowercase().map(move |_| place));
        let origins: Vec<usize> = origins.collect();
        let first = lower[..at].chars().count();
        let last = first + self.text.chars().count().saturating_sub(1);
        let from = origins.get(first)?.saturating_sub(AROUND);
        let length = origins.get(last)? + 1 + AROUND - from;
        let shown: String = text.chars().skip(from).take(length).collect();
        let shown = clean(&shown).replace(['\n', '\t'], " ");
        let (open, close) =
            (if from > 0 { "…" } else { "" }, if text.chars().nth(from + length).is_some() { "…" } else { "" });
        Some(format!("{open}{shown}{close}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_short_line_around_what_was_found() {
        let search = |text: &str| Search { text: text.to_lowercase(), most: 1, json: false };
        assert_eq!(search("NEEDLE").excerpt("a\nneedle\tb").as_deref(), Some("a needle b"));
        let long = format!("{}Needle{}", "é".repeat(200), "x".repeat(200));
        let found = search("needle").excerpt(&long).unwrap();
        assert!(
            found.starts_with('…') && found.ends_with('…') && found.chars().count() == 2 + 2 * AROUND + 6,
            "{found}"
        );
        let turkish = format!("{}needle", "İ".repeat(200));
        assert!(search("needle").excerpt(&turkish).unwrap().ends_with("İneedle"), "it grows in lower case");
        assert_eq!(search("not there").excerpt(&long), None);
    }
}
