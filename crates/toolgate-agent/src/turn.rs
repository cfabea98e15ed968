//! One model request: from the history to a whole answer, streamed as it comes and recorded when it is whole.

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

use crate::provider::{ErrorClass, ModelEvent, ModelId, Provider, ProviderError, Request, Stop, Usage};

/// How a request ended.
pub enum TurnEnd {
    /// The answer is whole, recorded and committed.
    Answered(Answered),
    /// There is no answer.
    Failed(ProviderError),
    /// The person stopped it.
    Interrupted,
}

/// A whole answer.
pub struct Answered {
    /// What enters the history.
    pub messages: Vec<ModelMessage>,
    /// Its text alone.
    pub text: String,
    /// Its calls, in order.
    pub calls: Vec<ToolCall>,
    /// Those of them that the provider cut off although they can be read: they must not run.
    pub cut: Vec<String>,
    /// Why it ended.
    pub stop: Stop,
}

/// Asks the model once. The request's begin and end are recorded, with everything that the model said between them.
///
/// # Errors
/// When the trace cannot be written.
pub async fn ask(
    provider: &dyn Provider,
    request: Request<'_>,
    journal: &Journal,
    used: &mut Tokens,
    interrupt: &CancellationToken,
) -> Result<TurnEnd, TraceError> {
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
    match outcome {
        None => {
            end(journal, StopReason::Aborted, None)?;
            Ok(TurnEnd::Interrupted)
        }
        Some(Err(error)) => {
            end(journal, status_of(&error), Some(error.to_string()))?;
            Ok(TurnEnd::Failed(error))
        }
        Some(Ok(stop)) => {
            let request = draft.usage.tokens();
            let answered = draft.into_answer(stop);
            for message in &answered.messages {
                journal.record(message.clone())?;
            }
            add(used, &request);
            journal.record(Event::TokenUsage(TokenUsage { session: *used, request, extra: Extra::new() }))?;
            end(journal, StopReason::Completed, None)?;
            Ok(TurnEnd::Answered(answered))
        }
    }
}

fn end(journal: &Journal, status: StopReason, error_message: Option<String>) -> Result<(), TraceError> {
    journal.record(Event::RequestEnd(RequestEnd {
        status: status.as_str().to_owned(),
        error_message,
        attempt: None,
        retry_in_ms: None,
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
            ModelEvent::CallStart { index, .. } => {
                self.close_parts(journal);
                self.blocks.push(Block::Call { index, whole: None });
            }
            ModelEvent::Call { index, call, valid, native } => {
                // What is no JSON is refused by the check, which can say what is wrong with it.
                if !valid && serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok() {
                    self.cut.push(call.id.clone());
                }
                let place = self.blocks.iter_mut().find_map(|block| match block {
                    Block::Call { index: own, whole } if *own == index => Some(whole),
                    _ => None,
                });
                match place {
                    Some(whole) => *whole = Some((call, native)),
                    None => self.blocks.push(Block::Call { index, whole: Some((call, native)) }),
                }
            }
            ModelEvent::Usage(usage) => self.usage = usage,
            // A call is recorded when it is whole, in a moment; its pieces tell people nothing that they could act on.
            ModelEvent::CallArguments { .. } | ModelEvent::End(_) => {}
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

    fn into_answer(self, stop: Stop) -> Answered {
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
        Answered { messages, text, calls, cut: self.cut, stop }
    }
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
