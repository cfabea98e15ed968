//! How a command fails: what happened, what to do next, and the exit code that says which kind it was.

use std::fmt;

use toolgate_runtime::trace::TraceError;

/// An error for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    what: String,
    hint: Option<String>,
}

/// Exit codes.
pub(crate) const RUN_FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const CONFIGURATION: u8 = 3;
pub(crate) const WAITING: u8 = 4;
pub(crate) const LIMIT: u8 = 5;
pub(crate) const VERIFICATION: u8 = 6;
pub(crate) const TIMEOUT: u8 = 124;
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    /// Something went wrong while it ran.
    pub(crate) fn run(what: impl Into<String>) -> Self {
        Self { code: RUN_FAILED, what: what.into(), hint: None }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { code: USAGE, what: what.into(), hint: None }
    }

    /// Something that has to be set is not, or is wrong.
    pub(crate) fn configuration(what: impl Into<String>) -> Self {
        Self { code: CONFIGURATION, what: what.into(), hint: None }
    }

    /// With the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Failure {
    /// What can be done about it; where nothing is known, what happened.
    pub(crate) fn next_step(&self) -> &str {
        self.hint.as_deref().unwrap_or(&self.what)
    }

    /// All of it, for a list.
    pub(crate) fn on_one_line(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.what),
            None => self.what.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let hint = match &error {
            TraceError::Io { .. } => {
                "the run ends here, since what cannot be written down must not happen; free space or set XDG_STATE_HOME"
            }
            TraceError::Locked(_) => "wait for the other toolgate, or start a session of your own without -c and -r",
            TraceError::Broken { .. } => {
                "the file was changed after it was written; keep it for inspection and start a new session"
            }
        };
        Self::run(error.to_string()).hint(hint)
    }
}
