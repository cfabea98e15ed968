//! A run as it is told on a terminal: the model's words, each call by its summary with the beginning and the end of what it printed, and
//! whatever is waited for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use toolgate_core::{
    message::{Body, Event, Message, ModelMessage, Partial, PartialEvent, ToolCallMessage, ToolCallOutput},
    outcome::StopReason,
};
use toolgate_runtime::trace::Observer;

use crate::cli::{
    print::{Notices, die_at},
    screen::Screen,
};

/// Lines of an output that are shown from its beginning and from its end; one more than both is not worth hiding (PenguinHarness's numbers).
const HEAD: usize = 4;
const TAIL: usize = 4;

/// Characters of one such line.
const LINE: usize = 400;

/// Characters of a call that is only named.
const NAMED: usize = 120;

/// Tells a session on a screen.
pub(super) struct Story {
    screen: Arc<Screen>,
    fault: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Vec<Running>,
    /// Calls that have not begun, by their own words.
    named: HashMap<String, String>,
    /// The call whose output can be shown as it comes: the one whose heading was written last.
    current: Option<String>,
    asks_model: bool,
    notices: Notices,
}

struct Running {
    id: String,
    summary: String,
    /// Lines of its output that were shown already.
    shown: usize,
    /// The line that is not whole, and how many were.
    begun: String,
    lines: usize,
}

impl Story {
    pub(super) fn new(screen: Arc<Screen>, fault: Option<u64>) -> Self {
        Self { screen, fault, state: Mutex::new(State::default()) }
    }

    fn model(&self, message: &ModelMessage) {
        match message {
            ModelMessage::PartialText(partial) => match (partial.event_type, &partial.text) {
                (_, Some(text)) => self.screen.say(text),
                (PartialEvent::Stop, None) => self.screen.said(),
                _ => {}
            },
            ModelMessage::ToolCall(call) => {
                self.state().named.insert(call.tool_call_id.clone(), named(call));
            }
            ModelMessage::PartialToolCallOutput(partial) => self.more(partial),
            ModelMessage::ToolCallOutput(output) => self.result(output),
            _ => {}
        }
    }

    fn event(&self, event: &Event) {
        let mut state = self.state();
        match event {
            Event::RequestBegin(_) => state.asks_model = true,
            Event::RequestEnd(_) => state.asks_model = false,
            // Should it be denied, what was denied is told by what it would have done: other results may stand between.
            Event::ApprovalRequest(asked) => {
                state.named.insert(asked.tool_call_id.clone(), asked.summary.clone());
            }
            Event::CallStarted(started) => {
                state.named.remove(&started.tool_call_id);
                let id = started.tool_call_id.clone();
                let summary = started.summary.clone().unwrap_or_else(|| id.clone());
                self.screen.act(&format!("> {summary}"));
                state.current = Some(id.clone());
                state.running.push(Running { id, summary, shown: 0, begun: String::new(), lines: 0 });
            }
            _ => {}
        }
        self.waits(&state);
    }

    /// More of an output: its first lines as they come, while nothing else is told.
    fn more(&self, partial: &Partial) {
        let (Some(id), Some(more)) = (&partial.tool_call_id, &partial.output) else { return };
        let mut state = self.state();
        let is_current = state.current.as_ref() == Some(id);
        let Some(running) = state.running.iter_mut().find(|running| running.id == *id) else { return };
        running.begun.push_str(more);
        while let Some(end) = running.begun.find('\n') {
            let line: String = running.begun.drain(..=end).collect();
            running.lines += 1;
            if is_current && running.lines <= HEAD && running.shown + 1 == running.lines {
                running.shown += 1;
                self.output_line(&line[..end]);
            }
        }
        self.waits(&state);
    }

    fn result(&self, output: &ToolCallOutput) {
        let mut state = self.state();
        let id = &output.tool_call_id;
        let place = state.running.iter().position(|running| running.id == *id);
        let shown = match place.map(|place| state.running.remove(place)) {
            Some(running) if state.current.as_ref() == Some(id) => running.shown,
            Some(running) => {
                self.screen.act(&format!("> {} (over)", running.summary));
                0
            }
            None => {
                if let Some(name) = state.named.remove(id) {
                    self.screen.act(&format!("x {name}"));
                }
                0
            }
        };
        state.current = None;
        self.screen.last_line("");
        let lines: Vec<&str> = output.output.lines().collect();
        let hidden = lines.len().saturating_sub(HEAD + TAIL);
        for (number, line) in lines.iter().enumerate().skip(shown) {
            if hidden > 1 && number == HEAD {
                self.screen.aside(&format!("  ... {hidden} lines not shown"));
            }
            if hidden <= 1 || number < HEAD || number >= HEAD + hidden {
                self.output_line(line);
            }
        }
        if let Some(stop @ (StopReason::Timeout | StopReason::Aborted)) = output.stop_reason.filter(|_| place.is_some())
        {
            self.screen.aside(&format!("  ({})", stop.as_str()));
        }
        self.waits(&state);
    }

    fn output_line(&self, line: &str) {
        self.screen.aside(&format!("  {}", cut(line, LINE)));
    }

    /// Says what is waited for.
    fn waits(&self, state: &State) {
        match &state.running[..] {
            [] if state.asks_model => self.screen.waits_for("waiting for the model"),
            [] => self.screen.waits_for("working"),
            [one] if one.lines > HEAD => {
                self.screen.waits_for(&format!("running {}", cut(&one.summary, NAMED)));
                self.screen.last_line(&format!("({} lines) {}", one.lines, cut(&one.begun, LINE)));
            }
            [one] => self.screen.waits_for(&format!("running {}", cut(&one.summary, NAMED))),
            several => self.screen.waits_for(&format!("running {} calls", several.len())),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Story {
    fn see(&self, message: &Message, seq: Option<u64>) {
        // What a child session does stands in its own trace; here its parent's call shows that it works.
        if message.origin.is_empty() {
            let (notice, hidden) = {
                let notices = &mut self.state().notices;
                (notices.of(message), notices.hides(message))
            };
            match &message.body {
                Body::Model(message) if !hidden => self.model(message),
                Body::Event(event) => self.event(event),
                _ => {}
            }
            if let Some(notice) = notice {
                self.screen.line(&notice);
            }
        }
        die_at(self.fault, seq);
    }

    fn watches_live(&self) -> bool {
        true
    }

    fn live(&self, call_id: &str, text: &str) {
        let state = self.state();
        if state.running.iter().any(|running| running.id == call_id) {
            let last = text.rsplit(['\n', '\r']).find(|line| !line.trim().is_empty()).unwrap_or_default();
            self.screen.last_line(&cut(last, LINE));
        }
    }
}

/// A call in its own words.
fn named(call: &ToolCallMessage) -> String {
    cut(&format!("{} {}", call.name, call.arguments), NAMED)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
