//! One command session: a running command, what it has printed that nobody has read, and how a call watches it.
//!
//! A reader task takes the output as it comes and never stops, so that a command is not held up because nobody looks. While a call
//! watches, it goes straight into that call's sink; else into a backlog, which keeps the newest part in memory and all of it on disk.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::io::Errno;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::watch,
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;

use super::{Exit, Living, Output, Running, Size, Stdio};
use crate::output::{
    Sink,
    spill::{Spill, SpillFolder, Spilled},
};

/// One read: larger than a pipe holds, so that one system call empties it.
const READ: usize = 128 * 1024;

/// Bytes after which an output is read by a thread, where it is a pipe. A quiet command never gets there.
const THREAD_AFTER: usize = 4 * 1024 * 1024;

/// Unread output of a session that is held in memory, in bytes.
const BACKLOG: usize = 1024 * 1024;

/// After the shell has ended, a quiet time this long ends the drain while others still hold the pipe.
const QUIET: Duration = Duration::from_millis(100);

/// And the drain ends after this, however much a descendant prints.
const LONGEST_DRAIN: Duration = Duration::from_secs(2);

/// When a quiet foreground command is first looked at for whether it waits for input, and the longest pause between two looks.
const FIRST_LOOK: Duration = Duration::from_millis(150);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a program may take to accept what is typed into it before the typing is reported as not taken.
const LONGEST_WRITE: Duration = Duration::from_secs(2);

/// A command session.
pub struct CommandSession {
    /// Its id, which is never used again.
    pub id: String,
    running: Running,
    stdio: Stdio,
    input: tokio::sync::Mutex<Option<Box<dyn AsyncWrite + Send + Sync + Unpin>>>,
    shared: Arc<Shared>,
    reader: AbortHandle,
    watched: tokio::sync::Mutex<()>,
    /// Whether toolgate itself has sent a signal to it.
    signalled: AtomicBool,
    folder: Option<SpillFolder>,
}

/// What the reader task and the calls share.
struct Shared {
    route: Mutex<Route>,
    /// Grows with every read; `None` once the output is at its end.
    progress: watch::Sender<Option<u64>>,
}

/// Where output goes.
enum Route {
    Call(Arc<Sink>),
    Backlog(Backlog),
}

/// Unread output: the newest part in memory, all of it on disk once memory is not enough.
struct Backlog {
    bytes: Vec<u8>,
    dropped: u64,
    spill: Option<Spill>,
    folder: Option<SpillFolder>,
    label: String,
}

/// Why a call stopped watching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The command ended.
    Exited {
        /// How it ended.
        exit: Exit,
        /// Whether a descendant was still printing when the drain was given up.
        still_printing: bool,
    },
    /// It waits for input.
    WantsInput,
    /// The window is over.
    Running,
    /// The call was told to stop.
    Cancelled,
}

impl CommandSession {
    /// Takes over a running command.
    pub(super) fn new(id: String, mut running: Running, stdio: Stdio, folder: Option<SpillFolder>) -> Self {
        let backlog = Backlog::new(folder.clone(), &id);
        let shared =
            Arc::new(Shared { route: Mutex::new(Route::Backlog(backlog)), progress: watch::Sender::new(Some(0)) });
        let output = std::mem::replace(&mut running.output, Output::Stream(Box::new(tokio::io::empty())));
        let input = tokio::sync::Mutex::new(running.input.take());
        let reader = tokio::spawn(read_all(output, shared.clone())).abort_handle();
        Self {
            id,
            running,
            stdio,
            input,
            shared,
            reader,
            watched: tokio::sync::Mutex::default(),
            signalled: AtomicBool::new(false),
            folder,
        }
    }

    /// Watches the command for a while: what it has printed so far and prints now goes to the sink.
    ///
    /// One call at a time: output goes to the one that watches, so a second call waits for the first and then has what came after it.
    pub async fn watch(&self, sink: &Arc<Sink>, window: Option<Duration>, cancel: &CancellationToken) -> Seen {
        let _alone = tokio::select! {
            alone = self.watched.lock() => alone,
            () = cancel.cancelled() => return Seen::Cancelled,
        };
        self.attach(sink);
        let seen = self.watch_attached(window, cancel).await;
        self.detach();
        seen
    }

    /// Waits for its end while nobody watches, then takes what nobody has read. A call that looks at that moment has the end first.
    pub(super) async fn end_unwatched(&self, sink: &Arc<Sink>) -> Exit {
        let ended = self.running.exit.clone().wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        let _alone = self.watched.lock().await;
        self.attach(sink);
        self.drain().await;
        self.detach();
        let living = self.living();
        Exit { living, ..ended.unwrap_or(Exit { status: super::Status::Lost, living: Vec::new() }) }
    }

    async fn watch_attached(&self, window: Option<Duration>, cancel: &CancellationToken) -> Seen {
        let mut exit = self.running.exit.clone();
        let over = async {
            match window {
                Some(window) => tokio::time::sleep(window).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            ended = exit.wait_for(Option::is_some) => ended.ok().and_then(|exit| exit.clone()),
            () = cancel.cancelled() => return Seen::Cancelled,
            // Who cannot come back to it has nothing to gain from stopping here.
            () = self.wants_input(), if window.is_some() => return Seen::WantsInput,
            () = over => return Seen::Running,
        };
        let exit = ended.unwrap_or(Exit { status: super::Status::Lost, living: Vec::new() });
        Seen::Exited { exit, still_printing: self.drain().await }
    }

    /// Waits for what the command printed before it ended. End-of-file ends it at once; descendants that hold the pipe do not hold the
    /// call. Returns whether one was still printing.
    async fn drain(&self) -> bool {
        let mut progress = self.shared.progress.subscribe();
        let all = async {
            loop {
                if progress.borrow_and_update().is_none() {
                    return;
                }
                match tokio::time::timeout(QUIET, progress.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return,
                }
            }
        };
        tokio::time::timeout(LONGEST_DRAIN, all).await.is_err()
    }

    /// Comes back when the command is quiet and blocked in a read of its own input; never when it has none.
    async fn wants_input(&self) {
        if self.stdio == Stdio::NoInput || self.input.lock().await.is_none() {
            return std::future::pending().await;
        }
        let mut pause = FIRST_LOOK;
        let mut before = *self.shared.progress.borrow();
        loop {
            tokio::time::sleep(pause).await;
            let now = *self.shared.progress.borrow();
            // It printed a moment ago: it works.
            if now == before && self.running.control.waits_for_input() {
                return;
            }
            pause = if now == before { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_LOOK };
            before = now;
        }
    }

    /// Types text. `Ok(false)` means that nobody reads it any more.
    pub async fn type_text(&self, text: &str) -> Result<bool, String> {
        let mut input = self.input.lock().await;
        let Some(pipe) = input.as_mut() else { return Ok(false) };
        match tokio::time::timeout(LONGEST_WRITE, pipe.write_all(text.as_bytes())).await {
            Ok(Ok(())) => Ok(true),
            // The reader closed its end or ended: what it said last is worth more to the model than the failed write.
            Ok(Err(_)) => {
                *input = None;
                Ok(false)
            }
            Err(_) => Err("it does not read its input; part of the text may have been taken".into()),
        }
    }

    /// Ends the input: the program reads end-of-file.
    pub async fn end_input(&self) {
        let mut input = self.input.lock().await;
        if let (Some(terminal), Stdio::Terminal(_)) = (input.as_mut(), self.stdio) {
            // A terminal has no end; Ctrl-D on an empty line is how a person says it.
            let _ = tokio::time::timeout(LONGEST_WRITE, terminal.write_all(b"\x04")).await;
        } else {
            *input = None;
        }
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        self.signalled.store(true, Ordering::Relaxed);
        self.running.control.interrupt();
    }

    /// Changes the size of its terminal.
    pub fn resize(&self, size: Size) {
        self.running.control.resize(size);
    }

    /// Whether it has a terminal.
    pub fn has_terminal(&self) -> bool {
        matches!(self.stdio, Stdio::Terminal(_))
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.running.exit.borrow().clone()
    }

    /// Whether a signal that ended it may have been toolgate's.
    pub fn was_signalled(&self) -> bool {
        self.signalled.load(Ordering::Relaxed)
    }

    /// Ends the whole tree.
    pub fn end(&self) {
        self.signalled.store(true, Ordering::Relaxed);
        self.running.control.end();
    }

    /// Processes of the tree that live.
    pub fn living(&self) -> Vec<Living> {
        self.running.control.living()
    }

    fn attach(&self, sink: &Arc<Sink>) {
        let mut route = self.shared.route();
        if let Route::Backlog(backlog) = std::mem::replace(&mut *route, Route::Call(sink.clone())) {
            backlog.pour(sink);
        }
    }

    /// Unread output is kept from here on.
    fn detach(&self) {
        *self.shared.route() = Route::Backlog(Backlog::new(self.folder.clone(), &self.id));
    }
}

impl Drop for CommandSession {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared {
    /// Hands over what was read.
    fn take(&self, bytes: &[u8]) {
        match &mut *self.route() {
            Route::Call(sink) => sink.write(bytes),
            Route::Backlog(backlog) => backlog.take(bytes),
        }
        self.progress.send_modify(|progress| *progress = progress.map(|count| count + 1));
    }

    fn route(&self) -> MutexGuard<'_, Route> {
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backlog {
    fn new(folder: Option<SpillFolder>, label: &str) -> Self {
        Self { bytes: Vec::new(), dropped: 0, spill: None, folder, label: label.to_owned() }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > BACKLOG && self.spill.is_none() && self.dropped == 0 {
            self.spill = self.folder.clone().map(|folder| Spill::new(folder, &self.label));
            if let Some(spill) = &mut self.spill {
                spill.write(&self.bytes);
            }
        }
        if let Some(spill) = &mut self.spill {
            spill.write(bytes);
        }
        self.bytes.extend_from_slice(bytes);
        // Cut rarely and by much, so that a flood costs no more than copying it once.
        if self.bytes.len() > 2 * BACKLOG {
            let cut = self.bytes.len() - BACKLOG;
            self.bytes.drain(..cut);
            self.dropped += cut as u64;
        }
    }

    fn pour(self, sink: &Sink) {
        if self.dropped > 0 {
            let place = match self.spill.map(|spill| spill.finish((&self.bytes, &[]))) {
                Some(Spilled::Whole(path)) => format!("; all of it: {}", path.display()),
                Some(Spilled::HeadAndTail { path, left_out }) => {
                    format!("; all but {left_out} bytes in the middle: {}", path.display())
                }
                Some(Spilled::Failed(why)) => format!("; it could not be kept: {why}"),
                None => String::new(),
            };
            sink.write(format!("[... {} bytes of earlier output dropped{place} ...]\n", self.dropped).as_bytes());
        } else if let Some(spill) = self.spill {
            spill.discard();
        }
        sink.write(&self.bytes);
    }
}

/// Reads to the end, whoever looks.
async fn read_all(mut output: Output, shared: Arc<Shared>) {
    // Reserved and not filled: its pages cost nothing until something is read, so 64 quiet sessions hold none.
    let mut buffer = Vec::with_capacity(READ);
    let mut total = 0;
    loop {
        buffer.clear();
        match output.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => total += length,
        }
        shared.take(&buffer);
        if total > THREAD_AFTER
            && let Output::Pipe(pipe) = output
        {
            match pipe.into_blocking_fd() {
                Ok(pipe) => return read_flood(pipe, shared),
                Err(_) => break,
            }
        }
    }
    shared.progress.send_replace(None);
}

/// Reads on to the end on a thread of its own, in the plain blocking way of `cat`: a runtime that is woken for each line of a flood
/// spends more on waking than on reading. The thread is nobody's to wait for: it ends with the pipe, which ends with the command's tree.
fn read_flood(pipe: OwnedFd, shared: Arc<Shared>) {
    let read = move || {
        let mut buffer = Vec::with_capacity(READ);
        loop {
            buffer.clear();
            match rustix::io::read(&pipe, rustix::buffer::spare_capacity(&mut buffer)) {
                Ok(0) => break,
                Ok(_) => shared.take(&buffer),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        shared.progress.send_replace(None);
    };
    // Where no thread can be had the pipe is closed, and the command learns of it as it would from a terminal that is gone.
    let _ = std::thread::Builder::new().name("toolgate-flood".into()).spawn(read);
}
