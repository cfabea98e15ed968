//! Asking again: which failures are worth it, how long to wait, and what the model is told of the attempt that failed.

use std::time::Duration;

use toolgate_core::{
    message::{ModelMessage, Role, Text},
    outcome::StopReason,
};

use crate::provider::ProviderError;

/// How often a request is sent again (PenguinHarness's number).
pub(crate) const MAX_RETRIES: u32 = 5;

/// The wait before the first of them; each next one doubles it, up to [`LONGEST_WAIT`]: 2, 4, 8, 16, 30 s.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// See [`FIRST_WAIT`].
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest wait that a provider may ask for. One that wants more has closed for the day, and a person should be told so now.
const LONGEST_ASKED_FOR: Duration = Duration::from_secs(600);

/// The attempts at one answer.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failed: u32,
    /// What came of the last attempt before it failed.
    partial: String,
}

impl Attempts {
    /// The attempt that is on: 1 for the first.
    pub(crate) fn number(&self) -> u32 {
        self.failed + 1
    }

    /// How long to wait before asking again after this failure; `None` when asking again is of no use or was tried often enough. A
    /// provider that asks for more than the ladder gives gets it.
    pub(crate) fn wait_after(&self, error: &ProviderError) -> Option<Duration> {
        if !error.is_retryable() || self.failed >= MAX_RETRIES {
            return None;
        }
        let ladder = FIRST_WAIT.saturating_mul(1 << self.failed).min(LONGEST_WAIT);
        let wait = error.retry_after_ms.map_or(ladder, Duration::from_millis).max(ladder);
        (wait <= LONGEST_ASKED_FOR).then_some(wait)
    }

    /// Whether a further attempt may be made.
    pub(crate) fn is_left(&self) -> bool {
        self.failed < MAX_RETRIES
    }

    /// An attempt failed; `partial` is what had come of it.
    pub(crate) fn fail(&mut self, partial: String) {
        self.failed += 1;
        if !partial.is_empty() {
            self.partial = partial;
        }
    }

    /// What came of this attempt, or else of one before it.
    pub(crate) fn arrived(&self, partial: String) -> String {
        if partial.is_empty() { self.partial.clone() } else { partial }
    }

    /// What the model is told of the attempt that failed, if anything had come of it. It stands in the request and nowhere else.
    pub(crate) fn told(&self) -> Option<ModelMessage> {
        (!self.partial.is_empty()).then(|| {
            synthetic(format!(
                "[turn_retried]\nYour answer broke off and is asked for again. None of its calls ran. This much had arrived:\n{}",
                self.partial
            ))
        })
    }
}

/// What the model is told of an answer that a person stopped.
pub(crate) fn aborted(partial: &str) -> ModelMessage {
    synthetic(format!(
        "[turn_aborted]\nThe user stopped your answer. None of its calls ran. This much had arrived:\n{partial}"
    ))
}

/// What the model is told of an answer that broke off for good.
pub(crate) fn broken_off(partial: &str) -> ModelMessage {
    synthetic(format!(
        "[turn_aborted]\nYour answer broke off. None of its calls ran. This much had arrived:\n{partial}"
    ))
}

/// A text in the person's place that is never recorded.
pub(crate) fn synthetic(text: String) -> ModelMessage {
    let text = Text { sender: Some("harness".into()), ..Text::new(Role::User, text, StopReason::Completed) };
    ModelMessage::Text(text).cleaned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ErrorClass;

    fn waits(error: &ProviderError) -> Vec<Option<u64>> {
        let mut attempts = Attempts::default();
        let mut waits = Vec::new();
        for _ in 0..=MAX_RETRIES {
            waits.push(attempts.wait_after(error).map(|wait| wait.as_millis() as u64));
            attempts.fail(String::new());
        }
        waits
    }

    #[test]
    fn the_ladder_is_2_4_8_16_30_seconds_unless_the_provider_says_otherwise() {
        let error = ProviderError::new(ErrorClass::Overloaded, "is overloaded");
        assert_eq!(waits(&error), [Some(2000), Some(4000), Some(8000), Some(16000), Some(30000), None]);
        let asked = ProviderError { retry_after_ms: Some(48_000), ..error.clone() };
        assert_eq!(waits(&asked)[..2], [Some(48_000), Some(48_000)]);
        let at_once = ProviderError { retry_after_ms: Some(0), ..error.clone() };
        assert_eq!(waits(&at_once)[..2], [Some(2_000), Some(4_000)], "a crowd that all come back at once helps nobody");
        let tomorrow = ProviderError { retry_after_ms: Some(86_400_000), ..error };
        assert_eq!(waits(&tomorrow)[0], None, "a person should be told instead");
    }

    #[test]
    fn what_no_second_try_can_mend_is_not_tried_again() {
        use ErrorClass::*;
        for class in [Auth, Quota, ContextOverflow, Schema, InvalidRequest, NotFound] {
            assert_eq!(waits(&ProviderError::new(class, "x"))[0], None, "{class:?}");
        }
        for class in [RateLimit, Overloaded, Server, ToolUseFailed, Network, Timeout, Cut, Malformed] {
            assert!(waits(&ProviderError::new(class, "x"))[0].is_some(), "{class:?}");
        }
    }
}
