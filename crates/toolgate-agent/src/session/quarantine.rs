//! A provider that refuses a history refuses it for ever. What it may have stumbled over is taken out of what is sent, the newest
//! first, so that one bad block does not end a conversation. The trace keeps what was said.

use toolgate_core::message::{ModelMessage, Role, Text, ToolCallOutput};
use toolgate_core::outcome::StopReason;

use crate::provider::{ErrorClass, ProviderError};

/// Stands where an image stood.
const IMAGE_LEFT_OUT: &str = "[image left out: the provider refused it]";

/// How far back the last refusal made it look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspicion {
    /// Nothing was refused.
    #[default]
    None,
    /// What came since the last request that was accepted.
    Newest,
    /// Everything.
    All,
}

/// Takes out what a provider may have refused, if there is something left to take: images and the provider's own blocks. `accepted`
/// messages of the history have been accepted before. Returns whether the history changed, so that asking again makes sense.
pub(super) fn take_out(
    error: &ProviderError,
    suspicion: &mut Suspicion,
    history: &mut [ModelMessage],
    accepted: usize,
) -> bool {
    let about_the_history = error.class == ErrorClass::InvalidRequest && matches!(error.status, Some(400 | 422));
    if !about_the_history {
        return false;
    }
    let (newest, all) = (accepted.min(history.len()), 0);
    for (next, from) in [(Suspicion::Newest, newest), (Suspicion::All, all)] {
        if *suspicion < next {
            *suspicion = next;
            // Every message is looked at: `any` would stop at the first that changed.
            if history[from..].iter_mut().map(bare).fold(false, |changed, one| changed | one) {
                return true;
            }
        }
    }
    false
}

/// Takes a message down to its words; false when it had nothing else.
fn bare(message: &mut ModelMessage) -> bool {
    match message {
        ModelMessage::ToolCallOutput(ToolCallOutput { output, images, .. }) if !images.is_empty() => {
            for _ in images.drain(..) {
                output.push('\n');
                output.push_str(IMAGE_LEFT_OUT);
            }
            true
        }
        ModelMessage::ImageUrl(_) | ModelMessage::InlineData(_) => {
            *message = ModelMessage::Text(Text::new(Role::User, IMAGE_LEFT_OUT, StopReason::Completed));
            true
        }
        ModelMessage::Text(text) => text.fidelity.take().is_some(),
        ModelMessage::Thinking(thinking) => thinking.fidelity.take().is_some(),
        ModelMessage::ToolCall(call) => call.fidelity.take().is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_runtime::close_out::result;

    fn refusal() -> ProviderError {
        ProviderError { status: Some(400), ..ProviderError::new(ErrorClass::InvalidRequest, "image is broken") }
    }

    fn with_image(id: &str) -> ModelMessage {
        let output = result(id, "seen".into(), vec!["data:image/png;base64,AA".into()], StopReason::Completed);
        ModelMessage::ToolCallOutput(output)
    }

    fn images(history: &[ModelMessage]) -> Vec<usize> {
        let count = |message: &ModelMessage| match message {
            ModelMessage::ToolCallOutput(output) => output.images.len(),
            _ => 0,
        };
        history.iter().map(count).collect()
    }

    #[test]
    fn the_newest_is_suspected_first_and_nothing_is_taken_twice() {
        let mut history = vec![with_image("a"), with_image("b")];
        let mut suspicion = Suspicion::None;
        assert!(take_out(&refusal(), &mut suspicion, &mut history, 1));
        assert_eq!(images(&history), [1, 0], "what was accepted before is not the first suspect");
        assert!(take_out(&refusal(), &mut suspicion, &mut history, 1));
        assert_eq!(images(&history), [0, 0]);
        assert!(!take_out(&refusal(), &mut suspicion, &mut history, 1), "there is nothing left to take out");
        let ModelMessage::ToolCallOutput(output) = &history[0] else { panic!() };
        assert_eq!(output.output, format!("seen\n{IMAGE_LEFT_OUT}"));
    }

    #[test]
    fn other_failures_take_nothing_out() {
        for (class, status) in [(ErrorClass::Auth, 401), (ErrorClass::InvalidRequest, 404), (ErrorClass::Server, 500)] {
            let error = ProviderError { status: Some(status), ..ProviderError::new(class, "x") };
            let mut history = vec![with_image("a")];
            assert!(!take_out(&error, &mut Suspicion::None, &mut history, 0));
            assert_eq!(images(&history), [1]);
        }
        assert!(!take_out(&refusal(), &mut Suspicion::None, &mut [], 0));
    }
}
