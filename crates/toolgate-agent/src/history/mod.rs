//! What a trace says was committed: the history that the model has seen, and the calls whose results are missing.
//!
//! Traces of toolgate and of PenguinHarness go through the same reader. A request's answer counts once its `request_end` says
//! `completed`; before that its input waits for the next request. Results are paired with their calls wherever they stand in the file;
//! those of a dropped answer are dropped with it. What is said between `compaction_begin` and `compaction_end` is no part of the
//! conversation, and a completed compaction closes all that was said before it.
//!
//! Where the two differ, a record's `seq` tells which wrote it: toolgate's results enter the history in call order and its calls may
//! still run while no `call_started` stands behind them; PenguinHarness's results keep the order in which they stand, and none of its
//! calls ever runs again.

mod reading;

use std::collections::{HashMap, HashSet};

use toolgate_core::{
    message::{ApprovalDecided, CompactionBegin, Extra, ModelMessage, Role, SessionMeta, Tokens, ToolCallOutput},
    outcome::StopReason,
    tool::ToolCall,
};

use reading::Reading;

/// What stands in for the result of a call that a crash cut off (PenguinHarness's words, so that both show the same history).
const PLACEHOLDER: &str = "[interrupted: process exited before the tool finished]";

/// A session as its trace has it.
#[derive(Debug)]
pub struct Rebuilt {
    /// The head of the newest file.
    pub meta: SessionMeta,
    /// What the session's context consists of, in order.
    pub items: Vec<Item>,
    /// Results by call.
    pub outputs: HashMap<String, ToolCallOutput>,
    /// Calls that may have changed the world.
    pub started: HashSet<String>,
    /// The ids of all calls of all files, dropped ones included: none may be used again.
    pub ids: HashSet<String>,
    /// All decisions, over all files.
    pub decisions: Vec<ApprovalDecided>,
    /// A compaction that a crash cut off; who goes on records that it failed.
    pub dangling_compaction: Option<CompactionBegin>,
    /// The summary, when the newest file ends with a completed compaction: the next record belongs into a new file. Empty when what was
    /// said was discarded.
    pub closed: Option<String>,
    /// Whether the newest file's last line has no newline.
    pub torn: bool,
    /// Tokens used so far.
    pub usage: Tokens,
    /// Tokens of the last request.
    pub last_request: Tokens,
    /// Answered requests since the context began.
    pub turns: u32,
    /// Lines of the newest file that are no messages, a torn last one not counted; 1-based.
    pub skipped: Vec<u64>,
    /// The place of each result that PenguinHarness wrote.
    arrived: HashMap<String, usize>,
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
pub enum NoSession {
    /// No record says which session it is.
    #[error("the trace has no session_meta record, so there is no session to go on with")]
    Headless,
    /// The record that would say so is torn.
    #[error(
        "the session_meta record of trace file {file} is torn (line 1, {bytes} bytes) and no whole record follows, so there is no \
         session to go on with"
    )]
    Torn {
        /// Which of the session's files; 1-based.
        file: usize,
        /// How much is left of the record.
        bytes: usize,
    },
}

impl Rebuilt {
    /// Reads a trace's bytes.
    ///
    /// # Errors
    /// When no record says which session it is.
    pub fn read(bytes: &[u8]) -> Result<Self, NoSession> {
        Self::read_files(&[bytes])
    }

    /// Reads the files of one session, in order. The context is the newest file's; the older ones tell what was decided and which ids
    /// are taken.
    ///
    /// # Errors
    /// When no record of the newest file says which session it is.
    pub fn read_files(files: &[&[u8]]) -> Result<Self, NoSession> {
        let Some((newest, before)) = files.split_last() else { return Err(NoSession::Headless) };
        let mut reading = Reading::default();
        for file in before {
            reading.skim(file);
        }
        reading.read(newest);
        // A crash between a new context's head and its opening: what closed the file before opens it still.
        if reading.has_nothing()
            && let Some(file) = before.last()
        {
            let mut closing = Reading::default();
            closing.read(file);
            reading.open_with(closing);
        }
        reading.finish().ok_or_else(|| {
            let torn = memchr::memchr(b'\n', newest).unwrap_or(newest.len());
            let alone = newest.len() <= torn + 1 && torn > 0;
            if alone { NoSession::Torn { file: files.len(), bytes: torn } } else { NoSession::Headless }
        })
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

    /// The history as the model reads it, cleaned. Every call has its result: the caller has closed those that had none.
    pub fn history(&self) -> Vec<ModelMessage> {
        self.items.iter().flat_map(|item| self.told(item, false)).map(ModelMessage::cleaned).collect()
    }

    /// The same history, moved out: a long one is as large as its trace, and a session that goes on needs it once.
    pub fn take_history(&mut self) -> Vec<ModelMessage> {
        let mut history = Vec::new();
        for item in std::mem::take(&mut self.items) {
            match item {
                Item::Input(message) => history.push(*message),
                Item::Answer(messages) => {
                    let ids: Vec<String> = ids_of(&messages).map(str::to_owned).collect();
                    history.extend(messages);
                    let mut results: Vec<_> = ids.iter().filter_map(|id| self.outputs.remove(id)).collect();
                    self.in_order(&mut results);
                    history.extend(results.into_iter().map(ModelMessage::ToolCallOutput));
                }
            }
        }
        history.into_iter().map(ModelMessage::cleaned).collect()
    }

    /// What the model has seen, as the trace has it: all up to the last committed answer. A placeholder stands in for a missing result.
    pub fn committed(&self) -> Vec<ModelMessage> {
        let Some((last, before)) = self.items[..self.last_answer()].split_last() else { return Vec::new() };
        let mut history: Vec<_> = before.iter().flat_map(|item| self.told(item, true)).collect();
        if let Item::Answer(messages) = last {
            history.extend_from_slice(messages);
        }
        history
    }

    /// What would go before the next prompt, as the trace has it: the results of the last answer, and what was said since.
    pub fn carry_over(&self) -> Vec<ModelMessage> {
        let (answered, since) = self.items.split_at(self.last_answer());
        let mut carried = match answered.last() {
            Some(Item::Answer(messages)) => self.results_of(messages, true),
            _ => Vec::new(),
        };
        carried.extend(since.iter().flat_map(|item| self.told(item, true)));
        carried
    }

    /// Whether the model has had the last word: then only a new prompt goes on.
    pub fn is_answered(&self) -> bool {
        match self.items.last() {
            Some(Item::Answer(messages)) => calls_of(messages).next().is_none(),
            Some(Item::Input(_)) => false,
            None => true,
        }
    }

    /// How many items there are up to the last answer, which is the last of them.
    fn last_answer(&self) -> usize {
        self.items.iter().rposition(|item| matches!(item, Item::Answer(_))).map_or(0, |place| place + 1)
    }

    fn told(&self, item: &Item, whole: bool) -> Vec<ModelMessage> {
        match item {
            Item::Input(message) => vec![ModelMessage::clone(message)],
            Item::Answer(messages) => {
                let mut told = messages.clone();
                told.extend(self.results_of(messages, whole));
                told
            }
        }
    }

    /// Results as the model reads them: in call order, or as they came where PenguinHarness wrote them.
    fn in_order(&self, results: &mut [ToolCallOutput]) {
        results.sort_by_key(|output| self.arrived.get(&output.tool_call_id).copied().unwrap_or(usize::MAX));
    }

    /// The results of an answer's calls in the order in which the model reads them, `whole` with placeholders for missing ones.
    fn results_of(&self, answer: &[ModelMessage], whole: bool) -> Vec<ModelMessage> {
        let found = |id: &str| self.outputs.get(id).cloned().or_else(|| whole.then(|| placeholder(id)));
        let mut results: Vec<ToolCallOutput> = ids_of(answer).filter_map(found).collect();
        self.in_order(&mut results);
        results.into_iter().map(ModelMessage::ToolCallOutput).collect()
    }
}

/// The ids of an answer's calls.
fn ids_of(answer: &[ModelMessage]) -> impl Iterator<Item = &str> {
    answer.iter().filter_map(|message| match message {
        ModelMessage::ToolCall(call) => Some(call.tool_call_id.as_str()),
        _ => None,
    })
}

fn placeholder(id: &str) -> ToolCallOutput {
    ToolCallOutput {
        role: Some(Role::User),
        output: PLACEHOLDER.into(),
        images: Vec::new(),
        tool_call_id: id.to_owned(),
        stop_reason: Some(StopReason::Aborted),
        extra: Extra::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of toolgate's own.
    fn line(kind: &str, payload: &str) -> String {
        format!(r#"{{"timestamp":"t","type":"{kind}","payload":{payload},"seq":1}}"#)
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
        let mut rebuilt = read(&lines);
        assert_eq!(shape(&rebuilt.history()), ["go", "call a", "call b", "output a", "output b", "done"]);
        assert!(rebuilt.is_answered() && rebuilt.unanswered().is_empty());
        let copied = shape(&rebuilt.history());
        assert_eq!(shape(&rebuilt.take_history()), copied, "moved or copied, it is the same");
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
        assert_eq!(Rebuilt::read(b"").unwrap_err(), NoSession::Headless);
    }
}
