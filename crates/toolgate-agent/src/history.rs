//! What a trace says was committed: the history that the model has seen, and the calls whose results are missing.
//!
//! A request's answer counts once its `request_end` says `completed`; before that its input waits for the next request. Results are
//! paired with their calls wherever they stand in the file, and enter the history in call order.

use std::collections::{HashMap, HashSet};

use toolgate_core::{
    message::{Body, Event, Message, ModelMessage, Role, SessionMeta, Tokens, ToolCallOutput},
    outcome::StopReason,
    tool::ToolCall,
};

/// A session as its trace has it.
#[derive(Debug)]
pub struct Rebuilt {
    /// The head of the file.
    pub meta: SessionMeta,
    /// What the session consists of, in order.
    pub items: Vec<Item>,
    /// Results by call.
    pub outputs: HashMap<String, ToolCallOutput>,
    /// Calls that may have changed the world.
    pub started: HashSet<String>,
    /// Tokens used so far.
    pub usage: Tokens,
    /// Tokens of the last request.
    pub last_request: Tokens,
    /// Answered requests since the context began.
    pub turns: u32,
    /// Lines that are no messages; 1-based.
    pub skipped: Vec<u64>,
}

/// A part of a history.
#[derive(Debug, Clone)]
pub enum Item {
    /// What a person, or the harness in their place, said.
    Input(Box<ModelMessage>),
    /// A committed answer.
    Answer(Vec<ModelMessage>),
}

/// A trace that no session can be rebuilt from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the trace has no session_meta record, so there is no session to go on with")]
pub struct NoSession;

impl Rebuilt {
    /// Reads a trace's bytes.
    ///
    /// # Errors
    /// When no record says which session it is.
    pub fn read(bytes: &[u8]) -> Result<Self, NoSession> {
        let mut reading = Reading::default();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if line.is_empty() {
                continue;
            }
            match std::str::from_utf8(line).ok().and_then(|line| Message::from_json(line).ok()) {
                // A child's message has a trace of its own.
                Some(message) if message.origin.is_empty() => reading.take(message.body),
                Some(_) => {}
                None => reading.skipped.push(number),
            }
        }
        reading.finish()
    }

    /// The calls of an answer that have no result, in order, with whether the answer is the last thing that happened: only then may such
    /// a call still run.
    pub fn unanswered(&self) -> Vec<(ToolCall, bool)> {
        let last = self.items.len();
        let mut open = Vec::new();
        for (place, item) in (1..).zip(&self.items) {
            if let Item::Answer(messages) = item {
                let missing = calls_of(messages).filter(|call| !self.outputs.contains_key(&call.id));
                open.extend(missing.map(|call| (call, place == last)));
            }
        }
        open
    }

    /// The history as the model reads it. Every call has its result: the caller has closed those that had none.
    pub fn history(&self) -> Vec<ModelMessage> {
        let mut history = Vec::new();
        for item in &self.items {
            match item {
                Item::Input(message) => history.push(ModelMessage::clone(message).cleaned()),
                Item::Answer(messages) => {
                    history.extend(messages.iter().cloned().map(ModelMessage::cleaned));
                    let outputs = calls_of(messages).filter_map(|call| self.outputs.get(&call.id).cloned());
                    history.extend(outputs.map(ModelMessage::ToolCallOutput));
                }
            }
        }
        history
    }

    /// Whether the model has had the last word: then only a new prompt goes on.
    pub fn is_answered(&self) -> bool {
        match self.items.last() {
            Some(Item::Answer(messages)) => calls_of(messages).next().is_none(),
            Some(Item::Input(_)) => false,
            None => true,
        }
    }
}

/// The complete calls of an answer. A call that was cut off is no call.
pub fn calls_of(messages: &[ModelMessage]) -> impl Iterator<Item = ToolCall> {
    messages.iter().filter_map(|message| match message {
        ModelMessage::ToolCall(call) if call.stop_reason.is_none_or(|stop| stop == StopReason::Completed) => {
            Some(ToolCall { id: call.tool_call_id.clone(), name: call.name.clone(), arguments: call.arguments.clone() })
        }
        _ => None,
    })
}

#[derive(Default)]
struct Reading {
    meta: Option<SessionMeta>,
    items: Vec<Item>,
    /// The answer of an open request.
    answer: Option<Vec<ModelMessage>>,
    /// What was said while a request was open: it belongs to the next one.
    later: Vec<ModelMessage>,
    outputs: HashMap<String, ToolCallOutput>,
    started: HashSet<String>,
    usage: Tokens,
    skipped: Vec<u64>,
}

impl Reading {
    fn take(&mut self, body: Body) {
        match body {
            Body::SessionMeta(meta) => self.meta = self.meta.take().or(Some(*meta)),
            Body::Model(ModelMessage::ToolCallOutput(output)) => {
                self.outputs.insert(output.tool_call_id.clone(), output);
            }
            Body::Model(message) => self.message(message),
            Body::Event(Event::RequestBegin(_)) => {
                // One that never ended, because a crash came, is over when the next one begins.
                self.end_request(false);
                self.answer = Some(Vec::new());
            }
            Body::Event(Event::RequestEnd(end)) => self.end_request(end.status == "completed"),
            Body::Event(Event::CallStarted(started)) => {
                self.started.insert(started.tool_call_id);
            }
            Body::Event(Event::TokenUsage(usage)) => self.usage = usage.session,
            _ => {}
        }
    }

    fn message(&mut self, message: ModelMessage) {
        match (&mut self.answer, is_input(&message)) {
            (None, true) => self.items.push(Item::Input(Box::new(message))),
            (Some(_), true) => self.later.push(message),
            (Some(answer), false) => answer.push(message),
            // Text of the assistant outside a request is a notice for people, such as the one at the turn limit.
            (None, false) => {}
        }
    }

    fn end_request(&mut self, completed: bool) {
        if let Some(answer) = self.answer.take().filter(|_| completed) {
            self.items.push(Item::Answer(answer));
        }
        self.items.extend(self.later.drain(..).map(|message| Item::Input(Box::new(message))));
    }

    fn finish(mut self) -> Result<Rebuilt, NoSession> {
        self.end_request(false);
        let Self { meta, items, outputs, started, usage, skipped, .. } = self;
        Ok(Rebuilt {
            meta: meta.ok_or(NoSession)?,
            items,
            outputs,
            started,
            usage,
            last_request: Tokens::default(),
            turns: 1,
            skipped,
        })
    }
}

fn is_input(message: &ModelMessage) -> bool {
    match message {
        ModelMessage::Text(text) => text.role == Role::User,
        ModelMessage::ImageUrl(image) => image.role != Some(Role::Assistant),
        ModelMessage::InlineData(data) => data.role != Some(Role::Assistant),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, payload: &str) -> String {
        format!(r#"{{"timestamp":"t","type":"{kind}","payload":{payload}}}"#)
    }

    fn read(lines: &[String]) -> Rebuilt {
        let meta = line(
            "session_meta",
            r#"{"session_id":"s","provider":"p","model_id":"m","system_prompt":"","workspace":"/w"}"#,
        );
        Rebuilt::read(format!("{meta}\n{}\n", lines.join("\n")).as_bytes()).unwrap()
    }

    fn user(text: &str) -> String {
        line("model_msg", &format!(r#"{{"type":"text","role":"user","text":"{text}"}}"#))
    }

    fn said(text: &str) -> String {
        line("model_msg", &format!(r#"{{"type":"text","role":"assistant","text":"{text}"}}"#))
    }

    fn call(id: &str) -> String {
        line(
            "model_msg",
            &format!(
                r#"{{"type":"tool_call","name":"x","arguments":"{{}}","tool_call_id":"{id}","stop_reason":"completed"}}"#
            ),
        )
    }

    fn output(id: &str) -> String {
        line("model_msg", &format!(r#"{{"type":"tool_call_output","output":"o","tool_call_id":"{id}"}}"#))
    }

    fn event(tag: &str, rest: &str) -> String {
        line("event_msg", &format!(r#"{{"type":"{tag}"{rest}}}"#))
    }

    fn begin() -> String {
        event("request_begin", "")
    }

    fn end(status: &str) -> String {
        event("request_end", &format!(r#","status":"{status}""#))
    }

    fn shape(history: &[ModelMessage]) -> Vec<String> {
        let one = |message: &ModelMessage| match message {
            ModelMessage::Text(text) => text.text.clone(),
            ModelMessage::ToolCall(call) => format!("call {}", call.tool_call_id),
            ModelMessage::ToolCallOutput(output) => format!("output {}", output.tool_call_id),
            other => other.tag().to_owned(),
        };
        history.iter().map(one).collect()
    }

    #[test]
    fn results_are_paired_and_stand_in_call_order() {
        let lines = [
            user("go"),
            begin(),
            call("a"),
            call("b"),
            end("completed"),
            output("b"),
            output("a"),
            begin(),
            said("done"),
            end("completed"),
        ];
        let rebuilt = read(&lines);
        assert_eq!(shape(&rebuilt.history()), ["go", "call a", "call b", "output a", "output b", "done"]);
        assert!(rebuilt.is_answered() && rebuilt.unanswered().is_empty());
    }

    #[test]
    fn an_uncommitted_answer_is_dropped_and_its_input_stays() {
        for status in ["failed", "aborted"] {
            let rebuilt = read(&[user("go"), begin(), said("half"), end(status)]);
            assert_eq!(shape(&rebuilt.history()), ["go"]);
            assert!(!rebuilt.is_answered());
        }
        assert_eq!(shape(&read(&[user("go"), begin(), said("half")]).history()), ["go"]);
        assert_eq!(
            shape(&read(&[user("go"), begin(), user("after a crash"), begin(), said("x"), end("completed")]).history()),
            ["go", "after a crash", "x"]
        );
        assert_eq!(
            shape(&read(&[user("go"), begin(), user("steer"), said("x"), end("completed")]).history()),
            ["go", "x", "steer"]
        );
    }

    #[test]
    fn open_calls_are_known_and_only_the_last_ones_may_still_run() {
        let lines = [
            user("go"),
            begin(),
            call("a"),
            end("completed"),
            user("meanwhile"),
            begin(),
            call("b"),
            call("c"),
            end("completed"),
            event("call_started", r#","tool_call_id":"b""#),
        ];
        let rebuilt = read(&lines);
        let open: Vec<(String, bool)> = rebuilt.unanswered().into_iter().map(|(call, last)| (call.id, last)).collect();
        assert_eq!(open, [("a".into(), false), ("b".into(), true), ("c".into(), true)]);
        assert!(rebuilt.started.contains("b") && !rebuilt.started.contains("c"));
    }

    #[test]
    fn broken_lines_are_counted_and_later_ones_used() {
        let nul = "\0".repeat(400);
        let rebuilt = read(&[user("a"), nul, user("b")]);
        assert_eq!((shape(&rebuilt.history()), rebuilt.skipped), (vec!["a".to_owned(), "b".into()], vec![3]));
        assert_eq!(Rebuilt::read(b"").unwrap_err(), NoSession);
    }
}
