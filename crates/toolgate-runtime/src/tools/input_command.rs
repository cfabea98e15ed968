//! `input_command`: types into a running command, interrupts it, or only looks.

use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    outcome::StopReason,
    tool::{Effect, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::report::{milliseconds, report, report_gone, window};
use crate::{
    BoxFuture,
    gate::Permit,
    process::{Size, session::CommandSession},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// How long a call waits after it typed something, and when it only looks; milliseconds (PenguinHarness's numbers).
const AFTER_TYPING_MS: u64 = 250;
const EMPTY_POLL_MS: u64 = 5_000;

/// PenguinHarness's time limit of one call; milliseconds.
const TIMEOUT_MS: i64 = 130_000;

/// Ctrl-C.
const INTERRUPT: &str = "\u{3}";

/// Keys by name and what a terminal sends for them.
const KEYS: &[(&str, &str)] = &[
    ("enter", "\r"),
    ("tab", "\t"),
    ("escape", "\u{1b}"),
    ("backspace", "\u{7f}"),
    ("up", "\u{1b}[A"),
    ("down", "\u{1b}[B"),
    ("right", "\u{1b}[C"),
    ("left", "\u{1b}[D"),
    ("home", "\u{1b}[H"),
    ("end", "\u{1b}[F"),
    ("page_up", "\u{1b}[5~"),
    ("page_down", "\u{1b}[6~"),
    ("delete", "\u{1b}[3~"),
    ("ctrl_c", INTERRUPT),
    ("ctrl_d", "\u{4}"),
    ("ctrl_z", "\u{1a}"),
    ("ctrl_l", "\u{c}"),
    ("ctrl_u", "\u{15}"),
];

/// Its name, for the hints of the tools whose commands it drives.
pub(super) const NAME: &str = "input_command";

pub(super) struct InputCommand {
    spec: ToolSpec,
}

impl InputCommand {
    pub(super) fn new() -> Self {
        let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
        let parameters = json!({
            "type": "object",
            "properties": {
                "process_id": { "type": "string", "minLength": 1 },
                "chars": { "type": "string", "description": "Text to type; \"\\u0003\" alone is Ctrl-C. Empty only polls." },
                "keys": { "type": "array", "items": { "enum": names }, "description": "Keys typed after chars." },
                "eof": { "type": "boolean", "description": "End the input afterwards." },
                "yield_time_ms": { "type": "integer", "description": "How long to wait (default 250 after typing, else 5000)." },
                "cols": { "type": "integer", "minimum": 1, "maximum": 1000 },
                "rows": { "type": "integer", "minimum": 1, "maximum": 1000 },
            },
            "required": ["process_id"],
            "additionalProperties": false,
        });
        let description = "Drive a running command: type into it, send Ctrl-C, or poll for new output.";
        let mut spec = ToolSpec::new("input_command", description, parameters);
        spec.kind = ToolKind::Execute;
        spec.rule_names = vec!["Bash".into()];
        spec.bound.keep = Truncate::Middle;
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.timeout_ms = TIMEOUT_MS;
        spec.snippet = Some("type into or poll a running command".into());
        Self { spec }
    }
}

impl Tool for InputCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let process = process_id(args);
            let mut text = typed(args);
            if args.get("eof").and_then(Value::as_bool).unwrap_or_default() {
                text.push('\u{4}');
            }
            let summary =
                if text.is_empty() { format!("poll {process}") } else { format!("type {:?} into {process}", text) };
            Ok(Prepared { effects: vec![Effect::Feed { process, text }], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let args = permit.call().args();
            let id = process_id(args);
            let session = match cx.commands.get(&id) {
                Ok(session) => session,
                Err(gone) => return Ok(report_gone(NAME, &id, gone)),
            };
            if let Some(size) = size(args) {
                session.resize(size);
            }
            let text = typed(args);
            let eof = args.get("eof").and_then(Value::as_bool).unwrap_or_default();
            if let Some(refusal) = feed(&session, &text).await? {
                return Ok(refusal);
            }
            if eof {
                session.end_input().await;
            }
            let default = if text.is_empty() && !eof { EMPTY_POLL_MS } else { AFTER_TYPING_MS };
            let asked = milliseconds(args, "yield_time_ms");
            let window = window(asked, default, cx.limits.timeout_ms);
            let seen = session.watch(&cx.out, Some(window), &cx.cancel).await;
            Ok(report(cx, &session, seen, "still running"))
        })
    }
}

/// Types the text. A session that has ended takes none, which is no error: what it said last follows.
async fn feed(session: &CommandSession, text: &str) -> Result<Option<Done>, ToolError> {
    if text.is_empty() || session.exit().is_some() {
        return Ok(None);
    }
    // In a terminal every byte goes as typed; without one Ctrl-C is a signal and no text.
    if !session.has_terminal() && text.contains(INTERRUPT) {
        if text != INTERRUPT {
            let note = "[input_command error: chars mixes U+0003 (Ctrl-C) with other content; send \"\\u0003\" alone to interrupt]";
            return Ok(Some(Done::noted(StopReason::Failed, note)));
        }
        session.interrupt();
        return Ok(None);
    }
    match session.type_text(text).await {
        Ok(true) => Ok(None),
        Ok(false) if session.exit().is_some() => Ok(None),
        Ok(false) => Ok(Some(Done::noted(
            StopReason::Failed,
            format!("[input_command error: the input of {} is closed; nothing was typed]", session.id),
        ))),
        Err(why) => Err(ToolError::new(why)),
    }
}

fn process_id(args: &Args) -> String {
    args.get("process_id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn typed(args: &Args) -> String {
    let chars = args.get("chars").and_then(Value::as_str).unwrap_or_default();
    let keys = args.get("keys").and_then(Value::as_array).into_iter().flatten();
    let keys = keys.filter_map(|key| KEYS.iter().find(|(name, _)| Some(*name) == key.as_str())).map(|(_, sent)| *sent);
    std::iter::once(chars).chain(keys).collect()
}

fn size(args: &Args) -> Option<Size> {
    let number = |name| args.get(name).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
    match (number("rows"), number("cols")) {
        (None, None) => None,
        (rows, cols) => Some(Size { rows: rows.unwrap_or(24), cols: cols.unwrap_or(120) }),
    }
}
