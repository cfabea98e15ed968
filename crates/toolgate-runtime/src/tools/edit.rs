//! `edit`: replaces texts in a file, all of them or none; and `edit_file`, which replaces one. What a text means is said in
//! [`crate::edit`].

use std::{io::Read, sync::Arc};

use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Bound, Effect, Place, Prepared, Preview, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::paths::{as_decided, as_seen, place_of, resolved, the_place};
use crate::{
    BoxFuture,
    diff::Diff,
    edit::{Edit, difference, plan, sensible},
    files::{
        FileError, Files, Source, Update, blocking, reason,
        seen::{Known, Seen},
        text::{binary_kind, is_binary},
    },
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// The largest file that is edited, in bytes. It is held in memory as a whole, in the worst case twice, and a question has to wait for it.
const MOST_BYTES: usize = 128 * 1024 * 1024;

/// Lines of the difference that a result shows. The model knows what it wrote; it is shown that it stands where it was meant to.
const MOST_SHOWN: usize = 60;

/// PenguinHarness's limits of one call: milliseconds, characters.
const TIMEOUT_MS: i64 = 30_000;
const CHARACTERS: i64 = 16_000;

pub(super) struct EditTool {
    spec: ToolSpec,
    aliases: [ToolSpec; 1],
}

impl EditTool {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1 },
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": { "oldText": { "type": "string" }, "newText": { "type": "string" } },
                        "required": ["oldText", "newText"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["path", "edits"],
            "additionalProperties": false,
        });
        let description = "Replace text in a file. Each oldText must occur exactly once; all are matched against the file as it is and \
                           must not overlap.";
        let mut spec = ToolSpec::new("edit", description, parameters);
        limit(&mut spec);
        spec.sets = &[ToolSet::Coding, ToolSet::Default];
        spec.snippet = Some("replace text in a file".into());
        let parameters = json!({
            "type": "object",
            "properties": {
                "file_path": { "type": "string", "minLength": 1 },
                "old_string": { "type": "string" },
                "new_string": { "type": "string" },
                "replace_all": { "type": "boolean" },
            },
            "required": ["file_path", "old_string", "new_string"],
            "additionalProperties": false,
        });
        let description =
            "Replace old_string, which must occur exactly once, by new_string; with replace_all every occurrence.";
        let mut file = ToolSpec::new("edit_file", description, parameters);
        limit(&mut file);
        Self { spec, aliases: [file] }
    }
}

/// What both forms have in common.
fn limit(spec: &mut ToolSpec) {
    spec.kind = ToolKind::Edit;
    spec.rule_names = vec!["Edit".into()];
    spec.timeout_ms = TIMEOUT_MS;
    spec.bound = Bound::characters(CHARACTERS, Truncate::Head);
}

impl Tool for EditTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &[ToolSpec] {
        &self.aliases
    }

    fn mend(&self, form: &ToolSpec, args: &mut Args) -> Vec<String> {
        // The form that takes a list has been called in other ways before, and models remember them.
        if form.parameters["properties"].get("edits").is_some() { listed(args) } else { Vec::new() }
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let edits = edits_of(args);
            sensible(&edits).map_err(|error| ToolError::new(error.to_string()))?;
            let place = resolved(cx, place_of(args)).await?;
            let summary = match edits.len() {
                1 => format!("edit {}", place.spelled),
                count => format!("edit {} in {count} places", place.spelled),
            };
            let (files, looked_at) = (cx.files.clone(), place.clone());
            let preview = blocking(move || Ok(preview(files.as_ref(), &looked_at, &edits))).await?;
            // Its results show what stands around a change.
            let effects = vec![Effect::Read(place.clone()), Effect::Write(place)];
            Ok(Prepared { effects, summary, preview: Some(preview) })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        let (files, seen, out) = (cx.files.clone(), cx.seen.clone(), cx.out.clone());
        Box::pin(blocking(move || {
            let place = the_place(&permit)?;
            let made = Editing { files, seen }.make(&permit, place, &edits_of(permit.call().args()))?;
            let (text, done) = match made {
                Made::Changed { said, notes } => {
                    (said, Done { note: (!notes.is_empty()).then(|| notes.join("\n")), ..Done::default() })
                }
                Made::Nothing(why) => (why, Done { stop: Some(StopReason::Failed), ..Done::default() }),
            };
            out.write(text.as_bytes());
            Ok(done)
        }))
    }
}

/// What a call asks for, in either form.
fn edits_of(args: &Args) -> Vec<Edit> {
    let text = |args: &Args, name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match args.get("edits").and_then(Value::as_array) {
        Some(edits) => {
            let edits = edits.iter().filter_map(Value::as_object);
            edits.map(|edit| Edit { old: text(edit, "oldText"), new: text(edit, "newText"), all: false }).collect()
        }
        None => {
            let all = args.get("replace_all").and_then(Value::as_bool).unwrap_or_default();
            vec![Edit { old: text(args, "old_string"), new: text(args, "new_string"), all }]
        }
    }
}

/// Other ways to say a list of edits: one pair of texts beside the path, alone or in addition to the list, and other names for both.
fn listed(args: &mut Args) -> Vec<String> {
    const NAMES: [(&str, &str); 2] = [("old_string", "oldText"), ("new_string", "newText")];
    let mut notes = Vec::new();
    if let Some(Value::String(text)) = args.get("edits")
        && let Ok(edits @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text)
    {
        args.insert("edits".into(), edits);
        notes.push("[argument /edits read from its text]".into());
    }
    if let Some(edits @ Value::Object(_)) = args.get_mut("edits") {
        *edits = Value::Array(vec![edits.take()]);
        notes.push("[argument /edits read as a list]".into());
    }
    renamed(args, "file_path", "path", &mut notes);
    let inner = args.get_mut("edits").and_then(Value::as_array_mut).into_iter().flatten();
    for edit in inner.filter_map(Value::as_object_mut) {
        NAMES.iter().for_each(|(from, to)| renamed(edit, from, to, &mut notes));
    }
    NAMES.iter().for_each(|(from, to)| renamed(args, from, to, &mut notes));
    let has_pair = NAMES.iter().all(|(_, name)| args.get(*name).is_some_and(Value::is_string));
    if has_pair && args.get("edits").is_none_or(Value::is_array) {
        let pair: Args = NAMES.iter().filter_map(|(_, name)| args.remove_entry(*name)).collect();
        if let Value::Array(edits) = args.entry("edits").or_insert_with(|| json!([])) {
            edits.push(Value::Object(pair));
        }
        notes.push("[arguments oldText and newText read as one of the edits]".into());
    }
    notes
}

fn renamed(args: &mut Args, from: &str, to: &str, notes: &mut Vec<String>) {
    if !args.contains_key(to)
        && let Some(value) = args.remove(from)
    {
        args.insert(to.to_owned(), value);
        notes.push(format!("[argument {from} read as {to}]"));
    }
}

/// What the call would change. Where it would change nothing, that is what a decision is about, so that nothing else may be done by it.
fn preview(files: &dyn Files, place: &Place, edits: &[Edit]) -> Preview {
    let nothing =
        |why: &str| Preview { text: format!("nothing as it stands now: {why}"), digest: Diff::default().digest() };
    let content = match files.preview(place) {
        Ok(mut source) => content(source.as_mut(), place),
        Err(error) => return nothing(&error.to_string()),
    };
    match content {
        Ok(old) => match plan(&old, edits) {
            Ok(plan) => difference(&old, &plan.splices).preview(),
            Err(_) => nothing("the old text does not match"),
        },
        Err(error) => nothing(&error.to_string()),
    }
}

/// All of a text file.
fn content(source: &mut dyn Source, place: &Place) -> Result<Vec<u8>, ToolError> {
    let path = &place.spelled;
    let expected = usize::try_from(source.length().unwrap_or_default()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(expected.min(MOST_BYTES) + 1);
    let read = source.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| FileError::Refused { path: path.clone(), reason: reason(&error) })?;
    if bytes.len() > MOST_BYTES {
        return Err(ToolError(format!(
            "{path} is larger than {} MiB, which is too much to edit here; use a command",
            MOST_BYTES / (1024 * 1024)
        )));
    }
    if is_binary(&bytes) {
        let kind = binary_kind(&bytes);
        return Err(ToolError(format!(
            "{path} is a binary file ({kind}); only text is edited, and nothing was changed"
        )));
    }
    Ok(bytes)
}

/// What came of a call.
enum Made {
    Changed { said: String, notes: Vec<String> },
    Nothing(String),
}

struct Editing {
    files: Arc<dyn Files>,
    seen: Arc<Seen>,
}

impl Editing {
    fn make(&self, permit: &Permit, place: &Place, edits: &[Edit]) -> Result<Made, ToolError> {
        let path = &place.spelled;
        let mut made = Made::Nothing(String::new());
        self.seen.change(&place.real, |expect| {
            self.files.update(permit, place, &mut |source| {
                let Some(source) = source else { return Err(self.missing(permit, place)) };
                let old = content(source, place)?;
                as_seen(&self.seen, place, &old)?;
                let plan = match plan(&old, edits) {
                    Ok(plan) => plan,
                    Err(error) => {
                        let error = error.explained(&old, edits);
                        made = Made::Nothing(format!("{path} was not changed: {error}"));
                        return Ok(Update::Keep);
                    }
                };
                let diff = difference(&old, &plan.splices);
                as_decided(permit, Some(&diff), path)?;
                let count: usize = plan.matched.iter().map(|matched| matched.count).sum();
                let places = if count == 1 { "1 occurrence".into() } else { format!("{count} occurrences") };
                let said = format!("Replaced {places} in {path} ({})\n{}", diff.summary(), diff.shown(MOST_SHOWN));
                made = Made::Changed { said, notes: plan.notes() };
                let update = Update::Spliced { old, splices: plan.splices };
                expect(Known::of(update.pieces().unwrap_or_default()));
                Ok(update)
            })
        })?;
        Ok(made)
    }

    /// That no file is there, with what is there instead.
    fn missing(&self, permit: &Permit, place: &Place) -> ToolError {
        let error = self.files.open(permit, place).err();
        let told = error.map_or_else(|| format!("{} does not exist", place.spelled), |error| error.to_string());
        ToolError(format!("{told}; there is nothing to edit. To make it, write the whole file."))
    }
}
