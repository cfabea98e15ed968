//! Making a conversation shorter before it outgrows its model: when, by which request, and what opens the new context.
//!
//! Nothing is lost when it fails: the old context stays, and so does the trace that holds it.

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    message::{CompactionBegin, CompactionEnd, Event, Extra, ModelMessage, Role, Tokens},
    outcome::StopReason,
    tool::ToolCall,
};
use toolgate_runtime::{close_out::result, trace::TraceError};

use super::{Session, text};
use crate::{
    provider::{ErrorClass, ProviderError},
    retry::{Attempts, synthetic},
    summary::{opening, summary_in},
    turn::TurnEnd,
};

/// Tokens of one request from which on a conversation is made shorter, where nothing else is said (PenguinHarness's number).
const DEFAULT_MAX_CONTEXT: u64 = 256_000;

/// What has to stay free of a window for the question and the summary; tokens.
const RESERVED: u64 = 2_048;

/// A window below this is not believed; tokens.
const SMALLEST_WINDOW: u64 = 4_096;

/// The bound where a model's window is not known; tokens. Most models of today read this much.
const UNKNOWN_WINDOW: u64 = 128_000;

/// What the model is asked for.
const PROMPT: &str = "The conversation is about to be replaced by a summary that you write now. Whoever goes on with the task will read \
                      your summary and nothing of what was said before. Write between [summary] and [/summary], without calling a tool: \
                      the task in the user's own words and every wish they added; what was done and found, with exact file paths, names, \
                      commands and numbers; what was decided and why; what failed; what still runs (process ids); the next steps.";

/// What it is told when it answers with something else.
const CORRECTION: &str =
    "That was no summary. Write the summary now, as plain text between [summary] and [/summary], and call no tool.";

/// The result of a call that it makes instead.
const NO_CALLS: &str = "[tool error] the compaction request expects a summary, not tool calls";

/// When and how a conversation is made shorter.
#[derive(Debug, Clone, Default)]
pub struct CompactionOptions {
    /// Tokens of one request from which on it happens; at most what the window leaves.
    pub max_context: Option<u64>,
    /// Turns from which on it happens; none without a limit.
    pub max_turns: Option<u32>,
    /// What becomes of what was said.
    pub mode: CompactionMode,
    /// What the model is asked to write; the built-in words when absent.
    pub prompt: Option<String>,
}

/// What becomes of what was said when a conversation is made shorter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CompactionMode {
    /// The model sums it up, and the summary opens the new context.
    #[default]
    Summarize,
    /// It is dropped before the next prompt.
    Discard,
}

impl CompactionMode {
    /// The word in traces and configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Summarize => "summarize",
            Self::Discard => "discard",
        }
    }
}

/// Why it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Context,
    Turns,
    Manual,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Turns => "turns",
            Self::Manual => "manual",
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum Compacted {
    /// A new context has begun.
    Done,
    /// There is nothing that could be made shorter.
    Nothing(&'static str),
    /// The model could not be brought to sum up; the old context stays.
    Failed(ProviderError),
    /// A person stopped it; the old context stays.
    Interrupted,
}

impl Session {
    /// Makes the conversation shorter now.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub async fn compact(&mut self, interrupt: &CancellationToken) -> Result<Compacted, TraceError> {
        match self.turns {
            _ if !self.open.is_empty() => Ok(Compacted::Nothing("a question is still open")),
            0 if self.history.is_empty() => Ok(Compacted::Nothing("nothing has been said yet")),
            0 => Ok(Compacted::Nothing("it has just been made shorter, or nothing was answered yet")),
            _ => self.shorten(Reason::Manual, interrupt).await,
        }
    }

    /// Whether the next request would go beyond the bounds. What is to be dropped is dropped between runs only.
    pub(super) fn compaction_due(&self, between_runs: bool) -> Option<Reason> {
        let options = &self.setup.options.compaction;
        if self.turns == 0 || (options.mode == CompactionMode::Discard && !between_runs) {
            return None;
        }
        let bound = bound(options.max_context, self.setup.options.context_window);
        if self.last.total >= bound {
            return Some(Reason::Context);
        }
        options.max_turns.filter(|limit| self.turns >= *limit).map(|_| Reason::Turns)
    }

    /// One compaction, with its two marks in the trace.
    pub(super) async fn shorten(
        &mut self,
        reason: Reason,
        interrupt: &CancellationToken,
    ) -> Result<Compacted, TraceError> {
        let mode = self.setup.options.compaction.mode;
        self.setup.journal.record(Event::CompactionBegin(CompactionBegin {
            reason: reason.as_str().into(),
            mode: mode.as_str().into(),
            context: self.last.total,
            turns: self.turns.into(),
            extra: Extra::new(),
        }))?;
        let mut attempts = Attempts::default();
        let summary = match mode {
            CompactionMode::Discard => Ok(None),
            CompactionMode::Summarize => self.sum_up(&mut attempts, interrupt).await?.map(Some),
        };
        let (status, error_message) = match &summary {
            Ok(_) => (StopReason::Completed, None),
            Err(Some(error)) => (StopReason::Failed, Some(error.to_string())),
            Err(None) => (StopReason::Aborted, None),
        };
        self.setup.journal.record(Event::CompactionEnd(CompactionEnd {
            reason: reason.as_str().into(),
            mode: mode.as_str().into(),
            status: status.as_str().into(),
            error_message,
            attempt: (attempts.number() > 1).then(|| attempts.number()),
            extra: Extra::new(),
        }))?;
        match summary {
            Ok(summary) => self.begin_context(summary).map(|()| Compacted::Done),
            Err(Some(error)) => Ok(Compacted::Failed(error)),
            Err(None) => Ok(Compacted::Interrupted),
        }
    }

    /// Asks for the summary until there is one. `Err(None)` when a person stopped it.
    async fn sum_up(
        &mut self,
        attempts: &mut Attempts,
        interrupt: &CancellationToken,
    ) -> Result<Result<String, Option<ProviderError>>, TraceError> {
        let prompt = self.setup.options.compaction.prompt.clone().unwrap_or_else(|| PROMPT.into());
        let prompt = text(Role::User, &prompt, StopReason::Completed);
        self.setup.journal.record(prompt.clone())?;
        let (mut shorter, mut repairs) = (Shorter::No, Vec::new());
        loop {
            let mut asked = shorter.of(&self.history);
            asked.push(prompt.clone());
            asked.extend_from_slice(&repairs);
            match self.ask(&asked, attempts, interrupt).await? {
                TurnEnd::Interrupted { .. } => return Ok(Err(None)),
                TurnEnd::Answered(answered) => {
                    let found = if answered.calls.is_empty() { summary_in(&answered.text) } else { None };
                    if let Some(summary) = found {
                        return Ok(Ok(summary.to_owned()));
                    }
                    attempts.fail(String::new());
                    if !attempts.is_left() {
                        let error = "answered the request for a summary with something else, each time";
                        return Ok(Err(Some(ProviderError::new(ErrorClass::Malformed, error))));
                    }
                    repairs = repair(answered.messages, &answered.calls);
                }
                TurnEnd::Failed { error, .. } if error.class == ErrorClass::ContextOverflow => match shorter.next() {
                    Some(next) => shorter = next,
                    None => return Ok(Err(Some(error))),
                },
                TurnEnd::Failed { error, retry_in: None, .. } => return Ok(Err(Some(error))),
                TurnEnd::Failed { retry_in: Some(wait), .. } => {
                    attempts.fail(String::new());
                    if !self.wait(wait, interrupt).await {
                        return Ok(Err(None));
                    }
                }
            }
        }
    }

    /// The old context is closed: the next file opens with what is left of it.
    pub(super) fn begin_context(&mut self, summary: Option<String>) -> Result<(), TraceError> {
        let previous = self.setup.journal.rotate()?;
        let mut meta = self.setup.meta();
        meta.extra.extend(previous.map(|head| ("previous".to_owned(), head.into())));
        self.setup.journal.record(meta)?;
        self.setup.environment.announce()?;
        self.history.clear();
        (self.last, self.turns, self.accepted) = (Tokens::default(), 0, 0);
        if let Some(summary) = summary {
            let opening = opening(&summary);
            self.setup.journal.record(opening.clone())?;
            self.history.push(opening.cleaned());
        }
        Ok(())
    }
}

/// Tokens of a request from which on the conversation is too long.
fn bound(configured: Option<u64>, window: Option<u64>) -> u64 {
    let window = window.filter(|window| *window >= SMALLEST_WINDOW);
    configured.unwrap_or(DEFAULT_MAX_CONTEXT).min(window.map_or(UNKNOWN_WINDOW, |window| window - RESERVED))
}

/// What follows an answer that is no summary: its calls refused, and what was wanted.
fn repair(mut answer: Vec<ModelMessage>, calls: &[ToolCall]) -> Vec<ModelMessage> {
    let refused = calls.iter().map(|call| result(&call.id, NO_CALLS.into(), Vec::new(), StopReason::Failed));
    answer.extend(refused.map(ModelMessage::ToolCallOutput));
    answer.push(synthetic(CORRECTION.into()));
    answer
}

/// How much of the history the request for a summary carries. A history that is itself too long is asked about in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shorter {
    No,
    /// Long results only by their ends, no images.
    Results,
    /// No results and no reasoning.
    Words,
    /// Of the words the opening and the newest half.
    Half,
    /// The opening and the newest eighth.
    Eighth,
}

impl Shorter {
    fn next(self) -> Option<Self> {
        use Shorter::{Eighth, Half, No, Results, Words};
        [No, Results, Words, Half, Eighth].into_iter().skip_while(|level| *level != self).nth(1)
    }

    fn of(self, history: &[ModelMessage]) -> Vec<ModelMessage> {
        let kept = match self {
            Self::No => return history.to_vec(),
            Self::Results | Self::Words => history.len(),
            Self::Half => history.len() / 2,
            Self::Eighth => history.len() / 8,
        };
        let newest = history.len() - kept;
        let opening = usize::from(newest > 0);
        let parts = history[..opening].iter().chain(&history[newest..]);
        parts.filter_map(|message| self.part_of(message)).collect()
    }

    fn part_of(self, message: &ModelMessage) -> Option<ModelMessage> {
        /// Characters of a result that are kept at each of its ends; an error says what it has to say in less.
        const ENDS: usize = 500;
        match message {
            ModelMessage::ToolCallOutput(output) => {
                let mut output = output.clone();
                output.images.clear();
                if self != Self::Results {
                    output.output = "[left out: the conversation is too long]".into();
                } else if let Some((head, _)) = output.output.char_indices().nth(ENDS)
                    && let Some((tail, _)) = output.output.char_indices().nth_back(ENDS - 1)
                    && head < tail
                {
                    output.output =
                        format!("{}\n[... left out ...]\n{}", &output.output[..head], &output.output[tail..]);
                }
                Some(ModelMessage::ToolCallOutput(output))
            }
            ModelMessage::ImageUrl(_) | ModelMessage::InlineData(_) => None,
            ModelMessage::Thinking(_) | ModelMessage::InlineThinking(_) if self != Self::Results => None,
            other => Some(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_window_or_what_was_configured_whichever_is_less() {
        for (configured, window, wanted) in [
            (None, None, 128_000),
            (None, Some(1_000_000), 256_000),
            (Some(50_000), Some(200_000), 50_000),
            (Some(500_000), Some(200_000), 197_952),
            (Some(500_000), Some(2_000), 128_000),
        ] {
            assert_eq!(bound(configured, window), wanted, "{configured:?} {window:?}");
        }
    }
}
