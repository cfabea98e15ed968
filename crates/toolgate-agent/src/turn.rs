//! One model request: from the history to a whole answer, streamed as it comes and recorded when it is whole.

use std::{collections::HashSet, time::Duration};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    message::{
        Event, Extra, ModelMessage, Partial, PartialEvent, RequestBegin, RequestEnd, Role, Text, Thinking, TokenUsage,
        Tokens, ToolCallMessage,
    },
    outcome::StopReason,
    tool::ToolCall,
};
use toolgate_runtime::trace::{Journal, TraceError};

use crate::{
    provider::{ErrorClass, ModelEvent, ModelId, Provider, ProviderError, Request, Stop, Usage, Withdrawn},
    retry::Attempts,
};

/// How a request ended.
pub(crate) enum TurnEnd {
    /// The answer is whole, recorded and committed.
    Answered(Answered),
    /// There is no answer.
    Failed {
        error: ProviderError,
        /// What had arrived, in words.
        partial: String,
        /// The wait before it is asked for again; absent when it is not.
        retry_in: Option<Duration>,
    },
    /// The person stopped it.
    Interrupted {
        /// What had arrived, in words.
        partial: String,
    },
}

/// A whole answer.
pub(crate) struct Answered {
    /// What enters the history.
    pub(crate) messages: Vec<ModelMessage>,
    /// Its text alone.
    pub(crate) text: String,
    /// Its calls, in order.
    pub(crate) calls: Vec<ToolCall>,
    /// Those of them that the provider cut off although they can be read: they must not run.
    pub(crate) cut: Vec<String>,
    /// Why it ended.
    pub(crate) stop: Stop,
    /// Its tokens.
    pub(crate) usage: Tokens,
}

/// Who is asked, where it is written, and which attempt it is.
pub(crate) struct Asking<'a> {
    pub(crate) provider: &'a dyn Provider,
    pub(crate) journal: &'a Journal,
    pub(crate) attempts: &'a Attempts,
}

/// Asks the model once. The request's begin and end are recorded, with everything that the model said between them. `ids` are those
/// that calls of the session have.
pub(crate) async fn ask(
    asking: Asking<'_>,
    request: Request<'_>,
    used: &mut Tokens,
    ids: &mut HashSet<String>,
    interrupt: &CancellationToken,
) -> Result<TurnEnd, TraceError> {
    let Asking { provider, journal, attempts } = asking;
    let ModelId { provider: name, model } = provider.model().clone();
    journal.record(Event::RequestBegin(RequestBegin {
        provider: Some(name),
        model_id: Some(model),
        extra: Extra::new(),
    }))?;
    let mut draft = Draft::default();
    let outcome = tokio::select! {
        biased;
        () = interrupt.cancelled() => None,
        outcome = draft.fill(provider, request, journal) => Some(outcome),
    };
    draft.close_parts(journal);
    let attempt = attempts.number();
    match outcome {
        None => {
            request_end(journal, StopReason::Aborted, None, attempt, None)?;
            Ok(TurnEnd::Interrupted { partial: draft.in_words() })
        }
        Some(Err(error)) => {
            let retry_in = attempts.wait_after(&error);
            request_end(journal, status_of(&error), Some(error.to_string()), attempt, retry_in)?;
            Ok(TurnEnd::Failed { error, partial: draft.in_words(), retry_in })
        }
        Some(Ok(stop)) => {
            draft.make_ids_unique(ids);
            let answered = draft.into_answer(stop);
            for message in &answered.messages {
                journal.record(message.clone())?;
            }
            add(used, &answered.usage);
            let (session, request) = (*used, answered.usage);
            journal.record(Event::TokenUsage(TokenUsage { session, request, extra: Extra::new() }))?;
            request_end(journal, StopReason::Completed, None, attempt, None)?;
            Ok(TurnEnd::Answered(answered))
        }
    }
}

/// Records that a request is over. `attempt` 1 is not worth a word when it went well.
pub(crate) fn request_end(
    journal: &Journal,
    status: StopReason,
    error_message: Option<String>,
    attempt: u32,
    retry_in: Option<Duration>,
) -> Result<(), TraceError> {
    journal.record(Event::RequestEnd(RequestEnd {
        status: status.as_str().to_owned(),
        attempt: (attempt > 1 || error_message.is_some()).then_some(attempt),
        error_message,
        retry_in_ms: retry_in.map(|wait| wait.as_millis() as u64),
        extra: Extra::new(),
    }))
}

/// The word that a trace has for an error.
fn status_of(error: &ProviderError) -> StopReason {
    match error.class {
        ErrorClass::Auth => StopReason::Auth,
        ErrorClass::Timeout => StopReason::Timeout,
        ErrorClass::Cut | ErrorClass::Malformed => StopReason::Malformed,
        _ => StopReason::Failed,
    }
}

fn add(sum: &mut Tokens, more: &Tokens) {
    sum.cache_read += more.cache_read;
    sum.cache_write += more.cache_write;
    sum.output += more.output;
    sum.total += more.total;
}

/// An answer that is not whole yet: its blocks in the order in which they began.
#[derive(Default)]
struct Draft {
    blocks: Vec<Block>,
    cut: Vec<String>,
    usage: Usage,
    /// The part that is being shown, if any; it is the last block.
    open: Option<Part>,
}

enum Block {
    Said {
        part: Part,
        text: String,
        native: Option<Box<RawValue>>,
    },
    /// A call's place, and the call once it is whole.
    Call {
        index: usize,
        name: String,
        /// The id under which its pieces are shown.
        shown: String,
        whole: Option<(ToolCall, Option<Box<RawValue>>)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Text,
    Thinking,
}

impl Draft {
    async fn fill(
        &mut self,
        provider: &dyn Provider,
        request: Request<'_>,
        journal: &Journal,
    ) -> Result<Stop, ProviderError> {
        let mut answer = provider.stream(request).await?;
        loop {
            match answer.next().await? {
                Some(ModelEvent::End(stop)) => return Ok(stop),
                Some(event) => self.take(event, journal),
                None => return Err(ProviderError::new(ErrorClass::Cut, "ended without a stop reason")),
            }
        }
    }

    fn take(&mut self, event: ModelEvent, journal: &Journal) {
        match event {
            ModelEvent::Text(more) | ModelEvent::Refusal(more) => self.say(Part::Text, &more, journal),
            ModelEvent::Thinking(more) => self.say(Part::Thinking, &more, journal),
            ModelEvent::Native(own) => match self.blocks.last_mut().filter(|_| self.open.is_some()) {
                Some(Block::Said { native, .. }) => {
                    *native = Some(own);
                    self.close_parts(journal);
                }
                _ => self.keep(own),
            },
            ModelEvent::Opaque(own) => {
                self.close_parts(journal);
                self.keep(own);
            }
            ModelEvent::Withdrawn(Withdrawn::Block) => {
                if self.open.is_some() {
                    self.close_parts(journal);
                    self.blocks.pop();
                }
            }
            ModelEvent::Withdrawn(Withdrawn::Answer) => {
                self.close_parts(journal);
                self.blocks.clear();
            }
            ModelEvent::CallStart { index, id, name } => {
                self.close_parts(journal);
                let piece = Partial { name: Some(name.clone()), ..call_piece(PartialEvent::Start, &id) };
                journal.show(ModelMessage::PartialToolCall(piece));
                self.blocks.push(Block::Call { index, name, shown: id, whole: None });
            }
            ModelEvent::CallArguments { index, delta } => {
                let shown = self.blocks.iter().find_map(|block| match block {
                    Block::Call { index: own, shown, .. } if *own == index => Some(shown),
                    _ => None,
                });
                if let Some(id) = shown {
                    let piece = Partial { arguments: Some(delta), ..call_piece(PartialEvent::Delta, id) };
                    journal.show(ModelMessage::PartialToolCall(piece));
                }
            }
            ModelEvent::Call { index, call, valid, native } => {
                // What is no JSON is refused by the check, which can say what is wrong with it.
                if !valid && serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok() {
                    self.cut.push(call.id.clone());
                }
                journal.show(ModelMessage::PartialToolCall(call_piece(PartialEvent::Stop, &call.id)));
                let place = self.blocks.iter_mut().find_map(|block| match block {
                    Block::Call { index: own, whole, .. } if *own == index => Some(whole),
                    _ => None,
                });
                match place {
                    Some(whole) => *whole = Some((call, native)),
                    None => {
                        let (name, shown) = (call.name.clone(), call.id.clone());
                        self.blocks.push(Block::Call { index, name, shown, whole: Some((call, native)) });
                    }
                }
            }
            ModelEvent::Usage(usage) => self.usage = usage,
            ModelEvent::End(_) => {}
        }
    }

    fn say(&mut self, part: Part, more: &str, journal: &Journal) {
        if self.open != Some(part) {
            self.close_parts(journal);
            journal.show(partial(part, PartialEvent::Start, None));
            self.open = Some(part);
            self.blocks.push(Block::Said { part, text: String::new(), native: None });
        }
        journal.show(partial(part, PartialEvent::Delta, Some(more)));
        if let Some(Block::Said { text, .. }) = self.blocks.last_mut() {
            text.push_str(more);
        }
    }

    /// A block with nothing to show.
    fn keep(&mut self, native: Box<RawValue>) {
        self.blocks.push(Block::Said { part: Part::Thinking, text: String::new(), native: Some(native) });
    }

    fn close_parts(&mut self, journal: &Journal) {
        if let Some(part) = self.open.take() {
            journal.show(partial(part, PartialEvent::Stop, None));
        }
    }

    /// Gives calls whose id another call of the session has a number: questions and results are keyed by ids. Providers know only what
    /// they are sent, which after a compaction is not all.
    fn make_ids_unique(&mut self, ids: &mut HashSet<String>) {
        for block in &mut self.blocks {
            let Block::Call { whole: Some((call, _)), .. } = block else { continue };
            let given = call.id.clone();
            for number in 2_u32.. {
                if ids.insert(call.id.clone()) {
                    break;
                }
                call.id = format!("{given}#{number}");
            }
            if let Some(cut) = self.cut.iter_mut().find(|cut| **cut == given) {
                cut.clone_from(&call.id);
            }
        }
    }

    /// An unfinished answer in words, for the next attempt or the next prompt.
    fn in_words(&self) -> String {
        let words = self.blocks.iter().filter_map(|block| match block {
            Block::Said { text, .. } if text.is_empty() => None,
            Block::Said { part: Part::Text, text, .. } => Some(text.clone()),
            Block::Said { part: Part::Thinking, text, .. } => Some(format!("(thinking) {text}")),
            Block::Call { name, .. } => Some(format!("(a call of {name} began)")),
        });
        words.collect::<Vec<_>>().join("\n")
    }

    fn into_answer(self, stop: Stop) -> Answered {
        let usage = self.usage.tokens();
        let (mut messages, mut text, mut calls) = (Vec::new(), String::new(), Vec::new());
        let (role, stop_reason) = (Role::Assistant, Some(StopReason::Completed));
        for block in self.blocks {
            messages.push(match block {
                Block::Said { part: Part::Text, text: said, native } => {
                    text.push_str(&said);
                    ModelMessage::Text(Text { fidelity: native, ..Text::new(role, said, StopReason::Completed) })
                }
                Block::Said { part: Part::Thinking, text: thinking, native: fidelity } => {
                    let (role, extra) = (Some(role), Extra::new());
                    ModelMessage::Thinking(Thinking { role, thinking, fidelity, stop_reason, extra })
                }
                Block::Call { whole: Some((call, native)), .. } => {
                    let message = ToolCallMessage { fidelity: native, ..ToolCallMessage::new(&call) };
                    calls.push(call);
                    ModelMessage::ToolCall(message)
                }
                Block::Call { whole: None, .. } => continue,
            });
        }
        Answered { messages, text, calls, cut: self.cut, stop, usage }
    }
}

fn call_piece(event_type: PartialEvent, id: &str) -> Partial {
    Partial { tool_call_id: Some(id.to_owned()), ..Partial::new(event_type) }
}

fn partial(part: Part, event_type: PartialEvent, more: Option<&str>) -> ModelMessage {
    let more = more.map(str::to_owned);
    let (text, thinking) = if part == Part::Text { (more, None) } else { (None, more) };
    let partial = Partial { text, thinking, ..Partial::new(event_type) };
    match part {
        Part::Text => ModelMessage::PartialText(partial),
        Part::Thinking => ModelMessage::PartialThinking(partial),
    }
}
