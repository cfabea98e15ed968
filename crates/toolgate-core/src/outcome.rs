//! How a call, a message or a request ended.

use serde::{Deserialize, Serialize};

/// The neutral end of anything that can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It ran to its end.
    Completed,
    /// It ran and did not succeed.
    Failed,
    /// A person or a rule stopped it.
    Aborted,
    /// Its time was up.
    Timeout,
    /// It could not be read.
    Malformed,
    /// The key was refused.
    Auth,
}

impl StopReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Auth => "auth",
        }
    }
}

/// What ended a call, as the environment saw it. The strongest names the result's stop reason: a person's
/// interrupt, then the time limit, then the tool's error, then what the tool says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It never ran: the gate said no.
    Denied,
    /// A person, or the end of the run, stopped it.
    Interrupted,
    /// Its time limit ran out; milliseconds.
    TimedOut(u64),
    /// The tool failed or panicked.
    Errored(String),
    /// The tool came back by itself.
    Returned(StopReason),
}

impl Ending {
    /// The stop reason that the result carries. A call that timed out has `failed`, as PenguinHarness's has.
    pub fn stop_reason(&self) -> StopReason {
        match self {
            Self::Denied | Self::Interrupted => StopReason::Aborted,
            Self::TimedOut(_) | Self::Errored(_) => StopReason::Failed,
            Self::Returned(stop) => *stop,
        }
    }

    /// The marker that the model reads at the end of the output, if any.
    pub fn marker(&self) -> Option<String> {
        match self {
            Self::Interrupted => Some("[interrupted: tool aborted by user]".into()),
            Self::TimedOut(ms) => Some(format!("[tool timeout: exceeded {ms}ms]")),
            Self::Errored(message) => Some(format!("[tool error] {message}")),
            Self::Denied | Self::Returned(_) => None,
        }
    }
}
