//! Signals that end a run or the program, as values that somebody waits for.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caught {
    /// Ctrl-C: stop what is going on.
    Interrupt,
    /// SIGTERM or SIGHUP: end, orderly.
    End,
}

/// The three signals.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on they are values; inside the runtime.
    pub(super) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::run(format!("signals cannot be received: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next one. Dropping the future loses none.
    pub(super) async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.interrupt.recv() => Caught::Interrupt,
            _ = self.terminate.recv() => Caught::End,
            _ = self.hangup.recv() => Caught::End,
        }
    }
}
