//! `read`: shows lines of a text file, whatever its size, or a picture where the model sees any; and `read_file`, which numbers them.

use std::{ops::ControlFlow, sync::Arc};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Bound, Effect, Permission, Place, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::paths::{count_of, place_of, resolved, the_place};
use crate::{
    BoxFuture,
    files::{
        FileError, Files, Kind, blocking, names, reason,
        seen::Seen,
        window::{self, Lines, Page, Window},
    },
    gate::Permit,
    image::{ImageError, LONGEST_SIDE, Picture},
    output::Sink,
    tool::{CheckContext, Done, Limits, Tool, ToolContext, ToolError},
};

/// PenguinHarness's limits of `read_file`: milliseconds, characters, lines, characters of one line.
const FILE_TIMEOUT_MS: i64 = 30_000;
const FILE_CHARACTERS: usize = 64_000;
const FILE_LINES: u64 = 2000;
const FILE_LINE: usize = 2000;

/// Six columns and a tab.
const NUMBER: usize = 7;

/// Names of a folder that an answer about it shows.
const MOST_NAMES: usize = 20;

pub(super) struct Read {
    spec: ToolSpec,
    aliases: [ToolSpec; 1],
}

impl Read {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1 },
                "offset": { "type": "integer", "minimum": 1, "description": "First line (default 1)." },
                "limit": { "type": "integer", "minimum": 1, "description": "Lines at most." },
                "line_numbers": { "type": "boolean" },
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let description = "Read a text file. Shows up to 2000 lines or 50 KB; go on with offset.";
        let mut spec = ToolSpec::new("read", description, parameters);
        spec.permission = Permission::Read;
        spec.kind = ToolKind::Read;
        spec.rule_names = vec!["Read".into()];
        spec.bound = Bound::lines(Truncate::Head);
        spec.sets = &[ToolSet::Coding, ToolSet::ReadOnly, ToolSet::Default];
        spec.snippet = Some("read a file".into());
        let mut file = ToolSpec::new(
            "read_file",
            "Read a text file. Lines are numbered; go on with offset.",
            json!({
                "type": "object",
                "properties": {
                    "file_path": { "type": "string", "minLength": 1 },
                    "offset": { "type": "number", "description": "First line (default 1)." },
                    "limit": { "type": "number", "exclusiveMinimum": 0, "description": "Lines at most (default 2000)." },
                },
                "required": ["file_path"],
                "additionalProperties": false,
            }),
        );
        file.permission = spec.permission;
        file.kind = spec.kind;
        file.rule_names = spec.rule_names.clone();
        file.timeout_ms = FILE_TIMEOUT_MS;
        file.bound = Bound::characters(FILE_CHARACTERS as i64, Truncate::Head);
        Self { spec, aliases: [file] }
    }

    /// Whether a call is one of `read_file`.
    fn is_file_form(&self, permit: &Permit) -> bool {
        permit.call().tool() == self.aliases[0].name
    }
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &[ToolSpec] {
        &self.aliases
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let place = resolved(cx, place_of(args)).await?;
            let summary = format!("read {}", place.spelled);
            Ok(Prepared { effects: vec![Effect::Read(place)], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        let numbered = self.is_file_form(&permit);
        let reading = Reading {
            window: if numbered {
                file_window(permit.call().args(), cx.limits)
            } else {
                window(permit.call().args(), cx.limits)
            },
            numbered: numbered || flag(permit.call().args(), "line_numbers"),
            files: cx.files.clone(),
            seen: cx.seen.clone(),
            vision: cx.vision,
            out: cx.out.clone(),
            cancel: cx.cancel.clone(),
        };
        Box::pin(blocking(move || {
            let place = the_place(&permit)?;
            reading.read(&permit, place)
        }))
    }
}

/// The window of `read`.
fn window(args: &Args, limits: Limits) -> Window {
    let prefix = if flag(args, "line_numbers") { NUMBER } else { 0 };
    Window {
        first: count_of(args, "offset").unwrap_or(1),
        lines: count_of(args, "limit"),
        most: limits.bound.most,
        prefix,
        clip: None,
    }
}

/// The window of `read_file`, which takes any number and means the next one that makes sense.
fn file_window(args: &Args, limits: Limits) -> Window {
    let number = |name| args.get(name).and_then(Value::as_f64).map(|number| number.floor().max(1.0) as u64);
    Window {
        first: number("offset").unwrap_or(1),
        lines: Some(number("limit").unwrap_or(FILE_LINES)),
        most: limits.bound.most,
        prefix: NUMBER,
        clip: Some(FILE_LINE),
    }
}

fn flag(args: &Args, name: &str) -> bool {
    args.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// One call, with all that it needs on its thread.
struct Reading {
    window: Window,
    numbered: bool,
    files: Arc<dyn Files>,
    seen: Arc<Seen>,
    /// Whether the model sees images.
    vision: bool,
    out: Arc<Sink>,
    cancel: CancellationToken,
}

impl Reading {
    fn read(&self, permit: &Permit, place: &Place) -> Result<Done, ToolError> {
        let mut source = match self.files.open(permit, place) {
            Err(error @ FileError::Kind { found: Kind::Folder, .. }) => {
                return Err(ToolError(format!("{error}{}", self.entries(permit, place))));
            }
            opened => opened?,
        };
        let page = match window::read(source.as_mut(), &self.window, &|| self.cancel.is_cancelled()) {
            Ok(page) => page,
            Err(_) if self.cancel.is_cancelled() => return Ok(Done::default()),
            Err(error) => return Err(FileError::Refused { path: place.spelled.clone(), reason: reason(&error) }.into()),
        };
        match page {
            Page::Binary { kind, length } => self.binary(permit, place, kind, length),
            Page::Lines(page) => Ok(self.show(place, *page)),
        }
    }

    /// A picture is shown to a model that sees any. Of everything else the model reads what it is.
    fn binary(&self, permit: &Permit, place: &Place, kind: &str, length: Option<u64>) -> Result<Done, ToolError> {
        let path = &place.spelled;
        if self.vision {
            match Picture::load(self.files.open(permit, place)?.as_mut(), length, LONGEST_SIDE) {
                Ok(picture) => {
                    self.out.write(picture.to_string().as_bytes());
                    return Ok(Done { images: vec![picture], ..Done::default() });
                }
                Err(error @ ImageError::Damaged { .. }) => return Err(ToolError(format!("{path}: {error}"))),
                Err(_) => {}
            }
        }
        let size = length.map_or_else(String::new, |length| format!(", {}", size(length)));
        Ok(Done::noted(StopReason::Failed, format!("[{path} is a binary file ({kind}{size}); it is not shown]")))
    }

    fn show(&self, place: &Place, page: Lines) -> Done {
        let path = &place.spelled;
        if page.total == 0 && page.counted {
            self.seen.set(&place.real, page.known);
            self.out.write(format!("(empty file) {path} has 0 lines").as_bytes());
            return Done::default();
        }
        if page.lines.is_empty() {
            let total = count(&page);
            let note = format!("[offset {} is past the end of {path} ({total})]", page.first);
            return Done::noted(StopReason::Failed, note);
        }
        let mut text = String::new();
        for (number, line) in (page.first..).zip(&page.lines) {
            if self.numbered {
                text.push_str(&format!("{number:>6}\t"));
            }
            text.push_str(line);
            text.push('\n');
        }
        text.pop();
        self.out.write(text.as_bytes());
        let notes = notes(&page);
        self.seen.set(&place.real, page.known);
        Done { note: (!notes.is_empty()).then(|| notes.join("\n")), ..Done::default() }
    }

    /// What a folder holds, for whoever took it for a file.
    fn entries(&self, permit: &Permit, place: &Place) -> String {
        let (mut entries, mut more) = (Vec::new(), 0);
        let listed = self.files.list(permit, place, &mut |entry| {
            if entries.len() < MOST_NAMES {
                let slash = if entry.kind == Kind::Folder { "/" } else { "" };
                entries.push(format!("{}{slash}", names::shown(&entry.name)));
            } else {
                more += 1;
            }
            ControlFlow::Continue(())
        });
        entries.sort();
        match (listed, entries.len(), more) {
            (Err(_), ..) => String::new(),
            (_, 0, _) => "; it is empty".into(),
            (_, _, 0) => format!("; it holds {}", entries.join(", ")),
            _ => format!("; it holds {} (+{more} more)", entries.join(", ")),
        }
    }
}

fn count(page: &Lines) -> String {
    let lines = if page.total == 1 { "1 line".into() } else { format!("{} lines", page.total) };
    if page.counted { lines } else { format!("more than {lines}") }
}

/// What a model has to know beside the lines.
fn notes(page: &Lines) -> Vec<String> {
    let mut notes = Vec::new();
    let last = page.first + page.lines.len() as u64 - 1;
    if let Some(length) = page.cut_line {
        notes.push(format!("[line {last} is {} long; only its beginning is shown]", size(length)));
    }
    if last < page.total || !page.counted {
        let total = if page.counted { page.total.to_string() } else { format!("more than {}", page.total) };
        let rest = page.total - last;
        let more = if page.counted {
            format!("; {rest} more line{}", if rest == 1 { "" } else { "s" })
        } else {
            String::new()
        };
        let full = if page.full { " (the most for one answer)" } else { "" };
        notes.push(format!("[lines {}-{last} of {total}{full}{more}; go on with offset {}]", page.first, last + 1));
    }
    if let Some(name) = page.encoding.name() {
        notes.push(format!("[the file is {name}; an edit keeps that]"));
    }
    if page.eight_bit {
        notes.push("[some bytes are no UTF-8; their lines are shown as Windows-1252 (Latin-1)]".into());
    }
    match page.ends {
        window::Ends { cr: true, .. } => notes.push("[file uses CR line endings]".into()),
        window::Ends { crlf: true, lf: true, .. } => notes.push("[file uses CRLF and LF line endings]".into()),
        window::Ends { crlf: true, .. } => notes.push("[file uses CRLF line endings]".into()),
        _ => {}
    }
    if page.pictured {
        notes.push(
            "[control characters are shown as pictures, such as \u{241b} for ESC and \u{240d} for a lone CR; an edit names the characters themselves]".into(),
        );
    }
    notes
}

/// Bytes as people say them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
