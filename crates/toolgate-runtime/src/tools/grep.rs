//! `grep`: lines that match, in a file or in all files of a tree. Built on ripgrep's libraries; no program is started.
//!
//! Files are searched by several threads and in no order; what is shown is what lies first by path ([`First`]), so the same call shows the
//! same lines. The search ends as soon as the limit is reached by files in front of everything that is left.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    call::Args,
    tool::{Bound, Effect, Permission, Place, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::{
    first::First,
    lines::{Aim, InFile, Line, SHOWN, Search},
    paths::{count_of, place_of, resolved, the_place},
    remarks::{Binary, End, Remarks},
};
use crate::{
    BoxFuture,
    files::{FileError, Found, Kind, Step, Walked, blocking, ignored::Rules, ignored::Says, names},
    gate::Permit,
    output::Sink,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// Matches that are shown by default (Pi's number).
const MATCHES: usize = 100;

/// Lines around a match at most; more than a screen is read with the file itself.
const MOST_CONTEXT: usize = 100;

/// Bytes that a compiled pattern may take. Patterns that people write take kilobytes; repetitions of repetitions take any amount.
const PATTERN: usize = 8 * 1024 * 1024;

/// Bytes that each thread's matcher may use to remember what it has seen.
const REMEMBERED: usize = 4 * 1024 * 1024;

pub(super) struct Grep {
    spec: ToolSpec,
}

impl Grep {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "Regular expression, or text with literal." },
                "path": { "type": "string", "description": "File or folder (default: the workspace)." },
                "glob": { "type": "string", "minLength": 1, "description": "Only such files: *.rs, src/**/*.ts; !*.md leaves out." },
                "ignoreCase": { "type": "boolean" },
                "literal": { "type": "boolean", "description": "The pattern is text." },
                "context": { "type": "integer", "minimum": 0, "description": "Lines shown around each match." },
                "limit": { "type": "integer", "minimum": 1, "description": "Matches at most (default 100)." },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        });
        let description = "Search file contents, line by line. Gives path:LINE: text with paths from the folder; hidden files too, \
                           ignored ones not.";
        let mut spec = ToolSpec::new("grep", description, parameters);
        spec.permission = Permission::Read;
        spec.kind = ToolKind::Search;
        spec.rule_names = vec!["Read".into()];
        spec.bound = Bound::lines(Truncate::Head);
        spec.sets = &[ToolSet::ReadOnly, ToolSet::Default];
        spec.snippet = Some("search file contents".into());
        Self { spec }
    }
}

impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            // Nobody is asked about what cannot be searched for.
            matcher(args)?;
            glob(args)?;
            let place = resolved(cx, place_of(args)).await?;
            let pattern = text(args, "pattern").unwrap_or_default();
            let summary = match place.spelled.as_str() {
                "" => format!("search for {pattern}"),
                path => format!("search {path} for {pattern}"),
            };
            let effects = vec![Effect::Read(place.clone()), Effect::Search(place)];
            Ok(Prepared { effects, summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        let (files, out, cancel) = (cx.files.clone(), cx.out.clone(), cx.cancel.clone());
        Box::pin(blocking(move || {
            let (place, args) = (the_place(&permit)?, permit.call().args());
            let task = Task::new(args, cancel)?;
            let walked = files.walk(&permit, place, &|found| task.visit(&found))?;
            task.end(place, &walked, &out)
        }))
    }
}

fn text<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

/// One call, shared by the threads that search.
struct Task {
    aim: Aim,
    glob: Option<Rules>,
    first: First<InFile>,
    /// Searchers that no thread uses at the moment.
    idle: Mutex<Vec<Search>>,
    searched: AtomicUsize,
    binary: Mutex<Binary>,
    /// The kind of the place, where it is no folder.
    single: Mutex<Option<Kind>>,
    cancel: CancellationToken,
}

impl Task {
    fn new(args: &Args, cancel: CancellationToken) -> Result<Self, ToolError> {
        let number = |name| count_of(args, name).and_then(|number| usize::try_from(number).ok());
        let limit = number("limit").unwrap_or(MATCHES);
        let context = number("context").unwrap_or_default().min(MOST_CONTEXT);
        Ok(Self {
            aim: Aim { matcher: matcher(args)?, context, limit, binary: false },
            glob: glob(args)?,
            first: First::new(limit),
            idle: Mutex::default(),
            searched: AtomicUsize::new(0),
            binary: Mutex::default(),
            single: Mutex::default(),
            cancel,
        })
    }

    fn visit(&self, found: &Found<'_>) -> io::Result<Step> {
        if self.cancel.is_cancelled() {
            return Ok(Step::Stop);
        }
        let is_single = found.path.as_os_str().is_empty();
        if is_single {
            *self.single.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.kind);
        } else if !self.first.wants(found.path) || self.leaves_out(found) {
            return Ok(Step::Over);
        }
        if found.kind != Kind::File {
            return Ok(Step::On);
        }
        let wanted = || !self.cancel.is_cancelled() && self.first.wants(found.path);
        let source = (found.open)()?;
        let mut search = match is_single {
            true => Search::new(&Aim { binary: true, ..self.aim.clone() }),
            false => {
                let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
                idle.unwrap_or_else(|| Search::new(&self.aim))
            }
        };
        self.searched.fetch_add(1, Ordering::Relaxed);
        let in_file = search.in_file(source, &wanted)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(search);
        if in_file.binary_from.is_some() {
            self.binary.lock().unwrap_or_else(PoisonError::into_inner).add(found.path, in_file.matches_in_binary);
        }
        if in_file.matches > 0 {
            self.first.add(found.path, in_file.matches, in_file.bytes, in_file);
        }
        Ok(Step::On)
    }

    /// Whether the call's glob leaves it out. A folder that no glob names may hold files that one does.
    fn leaves_out(&self, found: &Found<'_>) -> bool {
        let Some(glob) = &self.glob else { return false };
        let is_folder = found.kind == Kind::Folder;
        match glob.say(found.path, is_folder) {
            Some(says) => says == Says::TakenOut,
            None => !is_folder && glob.names_something(),
        }
    }

    fn end(self, place: &Place, walked: &Walked, out: &Sink) -> Result<Done, ToolError> {
        let single = self.single.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = single.filter(|kind| *kind != Kind::File) {
            return Err(FileError::Kind { path: place.spelled.clone(), found, wanted: Kind::File }.into());
        }
        let (found, more) = self.first.into_parts();
        let (limit, context) = (self.aim.limit, self.aim.context);
        let (mut text, mut shown, mut parts) = (String::new(), 0, false);
        for (path, in_file) in found {
            let name = if single.is_some() { place.real.file_name().unwrap_or_default() } else { path.as_os_str() };
            let name = names::shown(name);
            let lines = first_of(&in_file.lines, limit - shown, context);
            if context > 0 && shown > 0 && !lines.is_empty() {
                text.push_str("--\n");
            }
            let mut last = None;
            for (line, is_match) in lines {
                if context > 0 && last.is_some_and(|last| line.number > last + 1) {
                    text.push_str("--\n");
                }
                last = Some(line.number);
                shown += usize::from(is_match);
                parts |= line.is_part;
                let (colon, number) = (if is_match { ':' } else { '-' }, line.number);
                text.push_str(&format!("{name}{colon}{number}{colon} {}\n", line.text));
            }
        }
        out.write(text.as_bytes());
        let cancelled = self.cancel.is_cancelled();
        let binary = self.binary.into_inner().unwrap_or_else(PoisonError::into_inner);
        let searched = self.searched.into_inner();
        let nothing = (shown == 0 && !binary.matches).then(|| match (single, searched) {
            (Some(_), _) => "no matches".into(),
            (None, 1) => "no matches in 1 file".into(),
            (None, searched) => format!("no matches in {searched} files"),
        });
        let mut remarks = Remarks::default();
        remarks.end(&End { nothing, things: ["match", "matches"], shown, limit, more, cancelled }, walked);
        if parts {
            remarks.add(format!("lines of more than {SHOWN} characters are shown around the match"));
        }
        // Where the search ended early, how many there are depends on the threads.
        if !more && !cancelled {
            remarks.binary(&binary);
        }
        Ok(remarks.into())
    }
}

/// The lines that belong to the first so many matches. A further match that stands among the lines around the last one is one of them.
fn first_of(lines: &[Line], limit: usize, context: usize) -> Vec<(&Line, bool)> {
    let (mut kept, mut matches, mut last) = (Vec::new(), 0, 0);
    for line in lines {
        let is_match = line.is_match && matches < limit;
        if is_match {
            (matches, last) = (matches + 1, line.number);
        } else if limit == 0 || (matches == limit && line.number > last + context as u64) {
            break;
        }
        kept.push((line, is_match));
    }
    kept
}

/// Which files are looked at.
fn glob(args: &Args) -> Result<Option<Rules>, ToolError> {
    let Some(glob) = text(args, "glob") else { return Ok(None) };
    let rules = Rules::one(glob.strip_prefix("./").unwrap_or(glob));
    rules.map(Some).map_err(|error| ToolError(format!("the glob `{glob}` cannot be read: {error}")))
}

/// The pattern, compiled within bounds.
fn matcher(args: &Args) -> Result<RegexMatcher, ToolError> {
    let pattern = text(args, "pattern").unwrap_or_default();
    let flag = |name| args.get(name).and_then(Value::as_bool).unwrap_or_default();
    let literal = flag("literal");
    if pattern.contains('\n') {
        return Err(ToolError::new(
            "the pattern has a line break, and lines are searched one by one; search for a part of it that stands on one line",
        ));
    }
    let built = RegexMatcherBuilder::new()
        .case_insensitive(flag("ignoreCase"))
        .fixed_strings(literal)
        .multi_line(true)
        .crlf(true)
        .size_limit(PATTERN)
        .dfa_size_limit(REMEMBERED)
        .build(pattern);
    built.map_err(|error| {
        let error = error.to_string();
        let error = error.trim_start_matches("regex parse error:").trim_start_matches('\n');
        let hint = if literal { "" } else { "\n`literal: true` searches for it as it stands" };
        ToolError(format!("the pattern is no regular expression that can be searched for:\n{error}{hint}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Source;
    use std::{
        io::{Cursor, Read, Seek, SeekFrom},
        path::Path,
    };

    /// A file without end, in which somebody interrupts after a while.
    struct Endless {
        reads: usize,
        interrupt: CancellationToken,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            if self.reads == 100 {
                self.interrupt.cancel();
            }
            assert!(self.reads <= 100, "nothing is read any more");
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }

    impl Seek for Endless {
        fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }

    impl Source for Endless {
        fn length(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn an_interrupted_search_ends_inside_a_file_and_keeps_what_it_had() {
        let interrupt = CancellationToken::new();
        let args = json!({"pattern": "needle"});
        let task = Task::new(args.as_object().unwrap(), interrupt.clone()).unwrap();
        let found = |path, open: &dyn Fn() -> io::Result<Box<dyn Source>>| {
            task.visit(&Found { path: Path::new(path), kind: Kind::File, open }).unwrap()
        };
        let text = || -> io::Result<Box<dyn Source>> { Ok(Box::new(Cursor::new(b"a needle\n".to_vec()))) };
        assert_eq!(found("a", &text), Step::On);
        assert_eq!(found("b", &|| Ok(Box::new(Endless { reads: 0, interrupt: interrupt.clone() }))), Step::On);
        assert_eq!(found("c", &text), Step::Stop);

        let out = Sink::new(Bound::NONE, None, "test", Box::new(|_| {}));
        let place = Place { spelled: String::new(), path: "/w".into(), real: "/w".into(), inside: true };
        let done = task.end(&place, &Walked::default(), &out).unwrap();
        let note = "[the search was cut short; what it had found by then stands above]";
        assert_eq!(out.close(&[done.note.unwrap()]), format!("a:1: a needle\n{note}"));
    }
}
