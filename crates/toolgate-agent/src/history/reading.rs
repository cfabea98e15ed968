//! From records to a history, record by record.

use std::collections::{HashMap, HashSet};

use memchr::memmem;
use toolgate_core::{
    message::{
        ApprovalDecided, Body, CompactionBegin, CompactionEnd, Event, Message, ModelMessage, Role, SessionMeta, Tokens,
        ToolCallOutput,
    },
    outcome::StopReason,
};

use super::{Item, Rebuilt};
use crate::summary::{opening, summary_in};

/// What was read so far.
#[derive(Default)]
pub(super) struct Reading {
    meta: Option<SessionMeta>,
    items: Vec<Item>,
    /// The answer of an open request.
    answer: Option<Vec<ModelMessage>>,
    /// What was said while a request was open: it belongs to the next one.
    later: Vec<ModelMessage>,
    /// An open compaction.
    compaction: Option<Compaction>,
    closed: Option<String>,
    outputs: HashMap<String, ToolCallOutput>,
    arrived: HashMap<String, usize>,
    /// Calls of committed answers and of the open one: only they can have results.
    calls: HashSet<String>,
    started: HashSet<String>,
    ids: HashSet<String>,
    decisions: Vec<ApprovalDecided>,
    usage: Tokens,
    last_request: Tokens,
    turns: u32,
    skipped: Vec<u64>,
    torn: bool,
}

/// What is said while a compaction is on.
struct Compaction {
    begin: CompactionBegin,
    /// The text of its last whole answer.
    answer: String,
}

impl Reading {
    /// Reads the file that holds the context.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.torn = bytes.last().is_some_and(|last| *last != b'\n');
        let mut rest = bytes;
        for number in 1.. {
            if rest.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', rest);
            let (line, after) = (&rest[..end.unwrap_or(rest.len())], &rest[end.map_or(rest.len(), |end| end + 1)..]);
            match Message::from_line(line) {
                // A child's message has a trace of its own.
                Some(message) if message.origin.is_empty() => {
                    let ours = message.extra.contains_key("seq");
                    self.take(message.body, ours);
                }
                Some(_) => {}
                None if line.is_empty() || end.is_none() => {}
                None => self.skipped.push(number),
            }
            rest = after;
        }
    }

    /// Whether a head was read and nothing that was said behind it.
    pub(super) fn has_nothing(&self) -> bool {
        self.meta.is_some() && self.items.is_empty() && self.closed.is_none() && self.later.is_empty()
    }

    /// Takes over what the file before was closed with, if it was.
    pub(super) fn open_with(&mut self, before: Self) {
        if before.closed.is_some() {
            (self.items, self.closed, self.usage) = (before.items, before.closed, before.usage);
        }
    }

    /// Reads of an older file what still matters. Only the lines that may hold it are parsed.
    pub(super) fn skim(&mut self, bytes: &[u8]) {
        let wanted = [memmem::Finder::new("\"approval_decision\""), memmem::Finder::new("\"tool_call\"")];
        for line in bytes.split(|byte| *byte == b'\n') {
            if !wanted.iter().any(|tag| tag.find(line).is_some()) {
                continue;
            }
            match Message::from_line(line).filter(|message| message.origin.is_empty()).map(|message| message.body) {
                Some(Body::Event(Event::ApprovalDecision(decided))) => self.decisions.push(decided),
                Some(Body::Model(ModelMessage::ToolCall(call))) => {
                    self.ids.insert(call.tool_call_id);
                }
                _ => {}
            }
        }
    }

    /// `None` without a head.
    pub(super) fn finish(mut self) -> Option<Rebuilt> {
        self.end_request(false);
        Some(Rebuilt {
            meta: self.meta?,
            items: self.items,
            outputs: self.outputs,
            started: self.started,
            ids: self.ids,
            decisions: self.decisions,
            dangling_compaction: self.compaction.map(|compaction| compaction.begin),
            closed: self.closed,
            torn: self.torn,
            usage: self.usage,
            last_request: self.last_request,
            turns: self.turns,
            skipped: self.skipped,
            arrived: self.arrived,
        })
    }

    fn take(&mut self, body: Body, ours: bool) {
        match body {
            Body::SessionMeta(meta) => self.meta = self.meta.take().or(Some(*meta)),
            Body::Model(ModelMessage::ToolCallOutput(output)) => self.output(output, ours),
            Body::Model(message) => self.message(message, ours),
            Body::Event(event) => self.event(event),
            Body::Other { .. } => {}
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::RequestBegin(_) => {
                // One that never ended, because a crash came, is over when the next one begins.
                self.end_request(false);
                self.answer = Some(Vec::new());
            }
            Event::RequestEnd(end) => self.end_request(end.status == StopReason::Completed.as_str()),
            Event::ApprovalDecision(decided) => self.decisions.push(decided),
            Event::CallStarted(started) => {
                self.started.insert(started.tool_call_id);
            }
            Event::TokenUsage(usage) => (self.usage, self.last_request) = (usage.session, usage.request),
            Event::CompactionBegin(begin) => {
                self.end_request(false);
                self.compaction = Some(Compaction { begin, answer: String::new() });
            }
            Event::CompactionEnd(end) => self.end_compaction(&end),
            _ => {}
        }
    }

    fn message(&mut self, message: ModelMessage, ours: bool) {
        if let ModelMessage::ToolCall(call) = &message {
            self.ids.insert(call.tool_call_id.clone());
        }
        match (&mut self.answer, is_input(&message)) {
            // The request for a summary, and what corrects its answer.
            (_, true) if self.compaction.is_some() => {}
            (None, true) => self.input(message),
            (Some(_), true) => self.later.push(message),
            (Some(answer), false) => {
                if let ModelMessage::ToolCall(call) = &message {
                    self.calls.insert(call.tool_call_id.clone());
                    if !ours {
                        self.started.insert(call.tool_call_id.clone());
                    }
                }
                answer.push(message);
            }
            // Text of the assistant outside a request is a notice for people, such as the one at the turn limit.
            (None, false) => {}
        }
    }

    fn input(&mut self, message: ModelMessage) {
        self.closed = None;
        self.items.push(Item::Input(Box::new(message)));
    }

    /// The first result of a call that can have one.
    fn output(&mut self, output: ToolCallOutput, ours: bool) {
        let id = &output.tool_call_id;
        if !self.calls.contains(id) || self.outputs.contains_key(id) {
            return;
        }
        if !ours {
            self.arrived.insert(id.clone(), self.arrived.len());
        }
        self.outputs.insert(id.clone(), output);
    }

    fn end_request(&mut self, completed: bool) {
        match (self.answer.take(), &mut self.compaction) {
            (Some(answer), Some(compaction)) if completed => compaction.answer = text_of(&answer),
            (Some(answer), None) if completed => {
                self.closed = None;
                self.turns += 1;
                self.items.push(Item::Answer(answer));
            }
            (Some(answer), _) => self.drop_answer(&answer),
            (None, _) => {}
        }
        for message in std::mem::take(&mut self.later) {
            self.input(message);
        }
    }

    /// An answer that was not committed takes its calls and their results with it.
    fn drop_answer(&mut self, answer: &[ModelMessage]) {
        for message in answer {
            if let ModelMessage::ToolCall(call) = message {
                self.calls.remove(&call.tool_call_id);
                self.outputs.remove(&call.tool_call_id);
            }
        }
    }

    /// What was said is over when there is something to go on with in its place, or when nothing is wanted.
    fn end_compaction(&mut self, end: &CompactionEnd) {
        self.end_request(false);
        let Some(Compaction { answer, .. }) = self.compaction.take() else { return };
        if end.status != StopReason::Completed.as_str() {
            return;
        }
        let summary = match end.mode.as_str() {
            "discard" => None,
            _ => match summary_in(&answer) {
                Some(summary) => Some(summary.to_owned()),
                None => return,
            },
        };
        self.items.clear();
        (self.last_request, self.turns) = (Tokens::default(), 0);
        self.items.extend(summary.as_deref().map(|summary| Item::Input(Box::new(opening(summary)))));
        self.closed = Some(summary.unwrap_or_default());
    }
}

fn text_of(answer: &[ModelMessage]) -> String {
    let texts = answer.iter().filter_map(|message| match message {
        ModelMessage::Text(text) if text.role == Role::Assistant => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn is_input(message: &ModelMessage) -> bool {
    match message {
        ModelMessage::Text(text) => text.role == Role::User,
        ModelMessage::ImageUrl(image) => image.role != Some(Role::Assistant),
        ModelMessage::InlineData(data) => data.role != Some(Role::Assistant),
        _ => false,
    }
}
