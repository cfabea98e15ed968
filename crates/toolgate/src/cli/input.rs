//! Standard input, read only while somebody waits for it: what is typed at other times stays with the terminal and can be forgotten.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::fcntl_dupfd_cloexec,
    stdio::stdin,
};
use tokio::io::unix::AsyncFd;
use toolgate_runtime::process::register;

use super::terminal;

/// The most that one read takes; bytes.
const READ: usize = 4096;

/// The longest line that is kept; bytes. A line without an end must not cost more than this.
const LONGEST_LINE: usize = 1024 * 1024;

/// What came.
pub(super) enum Heard {
    /// Keys, as they were pressed.
    Keys(Vec<u8>),
    /// A line without its end.
    Line(String),
    /// There is no more.
    End,
}

/// Standard input.
pub(super) struct Input {
    /// None for files, which never make anybody wait.
    ready: Option<AsyncFd<OwnedFd>>,
    /// Read, and not a whole line yet.
    rest: Vec<u8>,
}

impl Input {
    /// Must be made inside the runtime.
    pub(super) fn new() -> Self {
        let ready = fcntl_dupfd_cloexec(stdin(), 3).ok().and_then(|stdin| register(stdin).ok());
        Self { ready, rest: Vec::new() }
    }

    /// What comes next, as keys or as a line. Dropping the future loses nothing.
    pub(super) async fn heard(&mut self, as_keys: bool) -> Heard {
        if !as_keys {
            return self.line().await.map_or(Heard::End, Heard::Line);
        }
        let keys = self.bytes().await;
        if keys.is_empty() { Heard::End } else { Heard::Keys(keys) }
    }

    /// What comes next; empty at the end. Dropping the future loses nothing.
    async fn bytes(&mut self) -> Vec<u8> {
        if let Some(ready) = &self.ready {
            // Readiness may be old: an editor reads from the same terminal, and a blocking read here would stop everything.
            while let Ok(mut seen) = ready.readable().await {
                if has_input() {
                    break;
                }
                seen.clear_ready();
            }
        }
        let mut bytes = vec![0; READ];
        loop {
            match rustix::io::read(stdin(), &mut bytes) {
                Ok(length) => {
                    bytes.truncate(length);
                    return bytes;
                }
                Err(rustix::io::Errno::INTR) => {}
                // A terminal that was hung up answers so: nobody types any more.
                Err(_) => return Vec::new(),
            }
        }
    }

    /// The next line without its end; none when there is no more. Dropping the future loses nothing.
    pub(super) async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(text(&line[..end]));
            }
            let more = self.bytes().await;
            if more.is_empty() || self.rest.len() > LONGEST_LINE {
                let line = std::mem::take(&mut self.rest);
                return (!line.is_empty()).then(|| text(&line));
            }
            self.rest.extend(more);
        }
    }

    /// Forgets what was typed so far, here and at the terminal.
    pub(super) fn forget(&mut self) {
        self.rest.clear();
        terminal::forget_typed();
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

/// Whether a read would come back at once.
fn has_input() -> bool {
    let stdin = stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut fds, Some(&now)) {
            Err(error) if io::Error::from(error).kind() == io::ErrorKind::Interrupted => {}
            found => return !matches!(found, Ok(0)),
        }
    }
}
