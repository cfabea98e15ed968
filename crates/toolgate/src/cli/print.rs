//! The one place that prints: data to standard output, everything for people to standard error.

use std::{
    collections::HashSet,
    io::{self, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use toolgate_core::{
    message::{Body, Event, Message, ModelMessage, PartialEvent, ToolCallOutput, clean},
    outcome::StopReason,
};
use toolgate_runtime::trace::Observer;

use super::{OutputFormat, ink::Ink, markdown::Markdown};

/// Lines of a result that are shown to people while a session runs; the trace has all of them.
const SHOWN_LINES: usize = 8;

/// A line for people.
pub(super) fn to_person(line: &str) {
    // Who closed their terminal has not closed the run.
    let _ = writeln!(io::stderr().lock(), "{}", clean(line));
}

/// What stands before the place where a person types an answer.
pub(super) fn prompt(label: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "{label}").and_then(|()| err.flush());
}

/// A line of data. A reader that went away is not an error: what was to be done was done.
pub(super) fn data(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// A text as data, on lines of its own.
pub(super) fn text(text: &str) {
    data(text.strip_suffix('\n').unwrap_or(text));
}

/// A JSON value as data.
pub(super) fn json(value: &Value) {
    data(&value.to_string());
}

/// Shows a session while it runs.
pub(super) struct Printer {
    format: OutputFormat,
    /// Whether calls and results go to standard output too, as `demo` shows them.
    tells_all: bool,
    /// Whether the text on standard output stands in the middle of a line.
    open: AtomicBool,
    /// Whether open questions are only mentioned here, because nobody puts them.
    mentions_questions: bool,
    notices: Mutex<Notices>,
    /// The model's Markdown, where styles are wanted although this is no screen.
    styled: Option<Mutex<Markdown>>,
    /// The record after which a test wants the process to die.
    fault: Option<u64>,
}

impl Printer {
    pub(super) fn new(format: OutputFormat, fault: Option<u64>) -> Self {
        let (open, notices) = (AtomicBool::new(false), Mutex::default());
        Self { format, tells_all: false, open, mentions_questions: true, notices, styled: None, fault }
    }

    /// A printer that writes the model's Markdown with styles, if these are wanted.
    pub(super) fn styled(self, ink: Ink) -> Self {
        Self { styled: ink.is_used().then(|| Mutex::new(Markdown::new(ink))), ..self }
    }

    /// A printer beside somebody who puts the questions.
    pub(super) fn beside_questions(self) -> Self {
        Self { mentions_questions: false, ..self }
    }

    /// A printer that tells the whole story on standard output.
    pub(super) fn telling_all() -> Self {
        Self { tells_all: true, ..Self::new(OutputFormat::Text, None) }
    }

    fn tell(&self, line: &str) {
        if self.open.swap(false, Ordering::Relaxed) {
            data("");
        }
        if self.tells_all { data(&clean(line)) } else { to_person(line) }
    }

    fn text(&self, event: PartialEvent, text: Option<&str>) {
        let mut out = io::stdout().lock();
        if let Some(styled) = &self.styled {
            let mut styled = styled.lock().unwrap_or_else(PoisonError::into_inner);
            let finished = text.map(|text| styled.push(&clean(text))).unwrap_or_default();
            let rest = if event == PartialEvent::Stop { styled.finish() } else { String::new() };
            let _ = write!(out, "{finished}{rest}").and_then(|()| out.flush());
            return;
        }
        match (event, text) {
            (_, Some(text)) => {
                let _ = write!(out, "{}", clean(text)).and_then(|()| out.flush());
                self.open.store(!text.ends_with('\n'), Ordering::Relaxed);
            }
            (PartialEvent::Stop, None) if self.open.swap(false, Ordering::Relaxed) => {
                let _ = writeln!(out);
            }
            _ => {}
        }
    }

    fn story(&self, message: &Message) {
        // What a child session does stands in its own trace, and what it says in its parent's result; people see which calls it makes.
        if !message.origin.is_empty() {
            if let Body::Event(Event::CallStarted(started)) = &message.body {
                self.tell(&format!("  > {}", started.summary.as_deref().unwrap_or(&started.tool_call_id)));
            }
            return;
        }
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notice) = notices.of(message) {
            self.tell(&notice);
        }
        if notices.hides(message) {
            return;
        }
        drop(notices);
        match &message.body {
            Body::Model(ModelMessage::PartialText(partial)) => self.text(partial.event_type, partial.text.as_deref()),
            Body::Model(ModelMessage::ToolCallOutput(output)) => self.result(output),
            Body::Event(Event::CallStarted(started)) => {
                self.tell(&format!("> {}", started.summary.as_deref().unwrap_or(&started.tool_call_id)));
            }
            Body::Event(Event::ApprovalRequest(asked)) if self.mentions_questions => {
                self.tell(&format!("? {}: {}", asked.summary, asked.reason))
            }
            _ => {}
        }
    }

    fn result(&self, output: &ToolCallOutput) {
        let lines: Vec<&str> = output.output.lines().collect();
        if self.tells_all {
            for line in lines.iter().take(SHOWN_LINES) {
                self.tell(&format!("  {line}"));
            }
            if lines.len() > SHOWN_LINES {
                self.tell(&format!("  ({} more lines)", lines.len() - SHOWN_LINES));
            }
        } else if output.stop_reason != Some(StopReason::Completed) {
            // A denial is told whole: its note is the person's own.
            let told = if output.stop_reason == Some(StopReason::Aborted) { 2 } else { 1 };
            lines.iter().skip(lines.len().saturating_sub(told)).for_each(|line| self.tell(&format!("  {line}")));
        }
    }
}

impl Observer for Printer {
    fn see(&self, message: &Message, seq: Option<u64>) {
        match self.format {
            OutputFormat::Text => self.story(message),
            OutputFormat::Json => {}
            OutputFormat::StreamJson => {
                let mut value = serde_json::to_value(message).unwrap_or_default();
                if let (Some(seq), Value::Object(map)) = (seq, &mut value) {
                    map.insert("seq".into(), seq.into());
                }
                json(&value);
            }
        }
        die_at(self.fault, seq);
    }
}

/// What happens around a run and is told in a line: failed requests, compaction, commands that ran on.
#[derive(Default)]
pub(super) struct Notices {
    /// Command sessions that outlived their call; the others are told by their results.
    beside: HashSet<String>,
    /// Whether a compaction is on.
    sums_up: bool,
}

impl Notices {
    /// Whether a message is between the model and toolgate alone: a summary is no answer to anybody's prompt.
    pub(super) fn hides(&self, message: &Message) -> bool {
        self.sums_up && matches!(message.body, Body::Model(_))
    }

    /// The line for a message, if there is one.
    pub(super) fn of(&mut self, message: &Message) -> Option<String> {
        let Body::Event(event) = &message.body else { return None };
        match event {
            Event::CompactionBegin(_) => self.sums_up = true,
            Event::CompactionEnd(_) => self.sums_up = false,
            _ => {}
        }
        match event {
            Event::RequestEnd(end) => {
                let seconds = end.retry_in_ms?.div_ceil(1000);
                let attempt = end.attempt.unwrap_or(1) + 1;
                let error = end.error_message.as_deref().unwrap_or("the model could not be asked");
                Some(format!("retrying in {seconds} s (attempt {attempt}): {error}"))
            }
            Event::CompactionBegin(_) => Some("making the conversation shorter".into()),
            Event::CompactionEnd(end) => Some(match (end.status.as_str(), &end.error_message) {
                ("completed", _) => "the conversation is shorter now".into(),
                (status, None) => format!("the conversation stays as it is ({status})"),
                (status, Some(error)) => format!("the conversation stays as it is ({status}): {error}"),
            }),
            Event::Hook(hook) => match (hook.outcome.as_str(), &hook.reason) {
                ("failed", Some(reason)) => Some(format!("hook {}: {reason}", hook.hook)),
                // What a hook wants people to know, where it decided nothing.
                ("passed", Some(message)) => Some(message.clone()),
                _ => None,
            },
            Event::CommandSession(command) => match command.state.as_str() {
                "yielded" => {
                    self.beside.insert(command.process_id.clone());
                    None
                }
                "exited" | "killed" if self.beside.remove(&command.process_id) => {
                    let how = command.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
                    Some(format!("{} {}{how}", command.process_id, command.state))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Dies where a test ordered it.
pub(super) fn die_at(fault: Option<u64>, seq: Option<u64>) {
    if seq.is_some() && seq == fault {
        die();
    }
}

/// Dies as a crash would have it: at once, with nothing tidied up. Tests order it to look at what is left.
#[allow(clippy::disallowed_methods)] // Only SIGKILL is as sudden as a crash, and std sends none to its own process.
fn die() {
    let line = format!("kill -KILL {}", std::process::id());
    let _ = std::process::Command::new(toolgate_runtime::process::table::DEFAULT_SHELL).args(["-c", &line]).status();
}
