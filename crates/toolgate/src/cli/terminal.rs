//! The terminal's modes: how keys come in, and that whatever happens it is left as it was found.

use std::io::{self, Write};

use rustix::{
    stdio::{stdin, stdout},
    termios::{
        LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, isatty, tcflush, tcgetattr,
        tcgetwinsize, tcsetattr,
    },
};

/// What an editor may have turned on and a sudden end must turn off: bracketed paste, a hidden cursor, a style.
const PLAIN: &[u8] = b"\x1b[?2004l\x1b[?25h\x1b[0m";

/// The size where the terminal does not say its own; columns and rows.
const USUAL: (usize, usize) = (80, 24);

/// The terminal of standard input. Dropping it restores the modes that it was found in, also when a panic unwinds.
pub(super) struct Terminal {
    found: Termios,
    /// Whether sequences may be written to it, so that they are turned off again.
    is_drawn_on: bool,
}

impl Terminal {
    /// The terminal of standard input; none when it is something else.
    pub(super) fn open(is_drawn_on: bool) -> Option<Self> {
        tcgetattr(stdin()).ok().map(|found| Self { found, is_drawn_on })
    }

    /// Keys come one by one and are not echoed; Ctrl-C still is a signal. Suspending is off, since the shell would take the terminal
    /// over in modes that it does not know.
    pub(super) fn keys(&self) {
        let mut modes = self.found.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
    }

    /// The modes that it was found in.
    pub(super) fn restore(&self) {
        if self.is_drawn_on {
            let _ = io::stdout().lock().write_all(PLAIN).and_then(|()| io::stdout().flush());
        }
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.found);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Forgets what was typed and not read yet.
pub(super) fn forget_typed() {
    let _ = tcflush(stdin(), QueueSelector::IFlush);
}

/// Columns and rows of standard output's terminal.
pub(super) fn size() -> (usize, usize) {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

pub(super) fn stdin_is_terminal() -> bool {
    isatty(stdin())
}

pub(super) fn stdout_is_terminal() -> bool {
    isatty(stdout())
}

pub(super) fn stderr_is_terminal() -> bool {
    isatty(rustix::stdio::stderr())
}
