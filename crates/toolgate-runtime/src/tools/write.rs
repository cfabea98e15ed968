//! `write`: makes a file, or puts other content in the place of what a file holds; and `write_file`.

use std::io::Read;

use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    tool::{Effect, Place, Prepared, Preview, ToolKind, ToolSet, ToolSpec},
};

use super::paths::{as_decided, as_seen, place_of, resolved, the_place};
use crate::{
    BoxFuture,
    diff::Diff,
    files::{
        FileError, Files, Source, Update, blocking, reason,
        seen::{self, Known, Seen},
        text::{Encoding, binary_kind, is_binary, shown},
    },
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// Bytes of an old content up to which it is compared with the new one. A longer difference tells nobody anything.
const MOST_COMPARED: usize = 1024 * 1024;

/// Lines of a diff that a result shows; beyond, it says how much changed (PenguinHarness's number).
const MOST_SHOWN: usize = 60;

/// PenguinHarness's time limit of one call; milliseconds.
const TIMEOUT_MS: i64 = 30_000;

pub(super) struct Write {
    spec: ToolSpec,
    aliases: [ToolSpec; 1],
}

impl Write {
    pub(super) fn new() -> Self {
        let description = "Create or overwrite a file. Folders on the way are made.";
        let parameters = |path: &str| {
            json!({
                "type": "object",
                "properties": { path: { "type": "string", "minLength": 1 }, "content": { "type": "string" } },
                "required": [path, "content"],
                "additionalProperties": false,
            })
        };
        let form = |mut spec: ToolSpec| {
            spec.kind = ToolKind::Edit;
            spec.rule_names = vec!["Edit".into()];
            spec.timeout_ms = TIMEOUT_MS;
            spec
        };
        let mut spec = form(ToolSpec::new("write", description, parameters("path")));
        spec.sets = &[ToolSet::Coding, ToolSet::Default];
        spec.snippet = Some("create or overwrite a file".into());
        Self { spec, aliases: [form(ToolSpec::new("write_file", description, parameters("file_path")))] }
    }
}

impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &[ToolSpec] {
        &self.aliases
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let place = resolved(cx, place_of(args)).await?;
            if place.spelled.ends_with('/') {
                let path = place.spelled;
                return Err(ToolError(format!(
                    "{path} names a folder; a file is written, and the folders on the way to it are made"
                )));
            }
            let (files, content) = (cx.files.clone(), content(args));
            let seen_place = place.clone();
            let preview = blocking(move || Ok(preview(files.as_ref(), &seen_place, content))).await?;
            let summary = format!("write {}", place.spelled);
            // The difference that it shows holds what the file held.
            Ok(Prepared { effects: vec![Effect::Read(place.clone()), Effect::Write(place)], summary, preview })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        let (files, seen, out) = (cx.files.clone(), cx.seen.clone(), cx.out.clone());
        Box::pin(blocking(move || {
            let place = the_place(&permit)?;
            let (said, note) = write(&permit, files.as_ref(), &seen, place, content(permit.call().args()))?;
            out.write(said.as_bytes());
            Ok(Done { note, ..Done::default() })
        }))
    }
}

fn content(args: &Args) -> Vec<u8> {
    args.get("content").and_then(Value::as_str).unwrap_or_default().as_bytes().to_vec()
}

/// What the call would change, as far as that can be shown.
fn preview(files: &dyn Files, place: &Place, content: Vec<u8>) -> Option<Preview> {
    let old = match files.preview(place) {
        Ok(mut source) => beginning(source.as_mut(), MOST_COMPARED).ok()?,
        Err(FileError::Missing { .. }) => Vec::new(),
        Err(_) => return None,
    };
    let (content, _) = with_ends_of(&old, content);
    (old.len() <= MOST_COMPARED && content.len() <= MOST_COMPARED).then(|| Diff::between(&old, &content).preview())
}

fn write(
    permit: &Permit,
    files: &dyn Files,
    seen: &Seen,
    place: &Place,
    content: Vec<u8>,
) -> Result<(String, Option<String>), ToolError> {
    let path = &place.spelled;
    let (mut said, mut note) = (String::new(), None);
    seen.change(&place.real, |expect| {
        files.update(permit, place, &mut |source| {
            let existed = source.is_some();
            // As far as it was read, it is looked at; beyond what can be compared, no further.
            let most = if seen.known_bytes(&place.real).is_some() { seen::MOST_BYTES } else { MOST_COMPARED };
            let old = match source {
                None => Vec::new(),
                Some(source) => {
                    let read = beginning(source, most);
                    read.map_err(|error| FileError::Refused { path: path.clone(), reason: reason(&error) })?
                }
            };
            if existed {
                as_seen(seen, place, &old)?;
            }
            let (content, kept) = with_ends_of(&old, content.clone());
            let diff =
                (old.len() <= MOST_COMPARED && content.len() <= MOST_COMPARED).then(|| Diff::between(&old, &content));
            as_decided(permit, diff.as_ref(), path)?;
            let lines = memchr::memchr_iter(b'\n', &content).count()
                + usize::from(!content.is_empty() && !content.ends_with(b"\n"));
            let verb = if existed { "Overwrote" } else { "Created" };
            said = format!("{verb} {path} ({lines} lines, {} bytes)", content.len());
            match diff.filter(|_| existed) {
                Some(diff) if diff.is_empty() => said.push_str("\n(content unchanged)"),
                Some(diff) if diff.shown(MOST_SHOWN + 1).lines().count() <= MOST_SHOWN => {
                    said.push('\n');
                    said.push_str(&diff.shown(MOST_SHOWN));
                }
                Some(diff) => said.push_str(&format!("\n{} (too many to show)", diff.summary())),
                None => {}
            }
            let kept = kept.then(|| "[the file's CRLF line endings were kept]".to_owned());
            let notes: Vec<String> = kept.into_iter().chain(lost(&old, &content)).collect();
            note = (!notes.is_empty()).then(|| notes.join("\n"));
            expect(Known::of([&content[..]]));
            Ok(if existed && old.len() <= most && old == content { Update::Keep } else { Update::Whole(content) })
        })
    })?;
    Ok((said, note))
}

/// What a file was that its new content is not. A program that reads it may need that, and no difference of lines shows it.
fn lost(old: &[u8], content: &[u8]) -> Option<String> {
    if is_binary(old) {
        return Some(format!("[the file was binary ({}); it is text now]", binary_kind(old)));
    }
    match (Encoding::of(old), Encoding::of(content)) {
        (Encoding::Utf8Marked, Encoding::Utf8) => Some(
            "[the file began with a byte order mark, and its new content does not; begin it with U+FEFF to keep one]"
                .into(),
        ),
        (Encoding::Utf8, _) => {
            let (_, is_eight_bit) = shown(old);
            (is_eight_bit && !content.is_ascii())
                .then(|| "[some bytes of the file were no UTF-8 (Windows-1252, it seems); it is UTF-8 now]".into())
        }
        (was, _) => was.name().map(|name| format!("[the file was {name}; it is UTF-8 now]")),
    }
}

/// The first bytes of a file, and one more where there are more.
fn beginning(source: &mut dyn Source, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A content whose lines end as those of the file that it replaces, where all of those end with CR LF and none of its own do. Says
/// whether that changed it.
fn with_ends_of(old: &[u8], content: Vec<u8>) -> (Vec<u8>, bool) {
    let ends = memchr::memchr_iter(b'\n', old);
    let crlf = old.contains(&b'\n') && ends.into_iter().all(|at| at > 0 && old[at - 1] == b'\r');
    if !crlf || content.contains(&b'\r') || !content.contains(&b'\n') {
        return (content, false);
    }
    let mut with = Vec::with_capacity(content.len() + content.len() / 16);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(text) => with.extend_from_slice(&[text, b"\r\n"].concat()),
            None => with.extend_from_slice(line),
        }
    }
    (with, true)
}
