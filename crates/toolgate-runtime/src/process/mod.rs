//! Commands: the port that starts them, and what stands behind it.
//!
//! The runtime never forks a command itself. A small single-threaded **supervisor** process a session does, because forking from a
//! large multi-threaded process costs milliseconds, and because something must outlive a crash of the runtime to end what it started.
//! For each command the supervisor forks a **keeper**, which is the subreaper of the command's whole tree: whatever calls `setsid`,
//! forks twice or is disowned comes back to it, so a tree can always be counted and always be ended.
//!
//! * this file: the port [`Processes`], which in-memory executors implement too;
//! * [`supervisor`], [`link`] and [`stdio`]: the runtime's side; [`protocol`]: what the two sides say; [`host`] and [`keeper`]: the other;
//! * [`spawn`]: from a request to an `execve` (the only unsafe code); [`tree`]: descendants by `/proc`;
//! * [`session`] and [`table`]: command sessions, what `exec_command` and `input_command` drive; [`exchange`]: programs that are asked once;
//! * [`login_env`] and [`command_env`]: the variables that a command sees.

pub mod command_env;
pub(crate) mod exchange;
pub mod host;
mod keeper;
mod link;
pub mod login_env;
mod protocol;
pub mod session;
mod spawn;
mod stdio;
pub mod supervisor;
pub mod table;
mod tree;

pub use spawn::register;

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use crate::{BoxFuture, gate::Permit};

/// Starts commands. Every start needs a permit, and only the gate builds one.
pub trait Processes: Send + Sync {
    /// Starts one command. Its tree lives until the returned handle is dropped or ends it.
    fn start<'a>(&'a self, permit: &'a Permit, command: Command) -> BoxFuture<'a, Result<Running, StartError>>;

    /// Starts what no call asks for and the user's own configuration does. It runs no line of a model's, so it takes no permit.
    fn start_unasked(&self, command: Unasked) -> BoxFuture<'_, Result<Running, StartError>>;

    /// Ends everything and waits until it is gone, two and a half seconds at most. Returns what had to be ended.
    fn close(&self) -> BoxFuture<'_, Vec<Living>>;
}

/// A command that no call asks for: the user's login shell, or a hook. Only this module makes one, so no tool's way leads around the gate.
#[derive(Debug, Clone)]
pub struct Unasked(Command);

impl Unasked {
    /// What is to be started.
    pub fn into_command(self) -> Command {
        self.0
    }
}

/// One command to start, every choice made.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// All of its environment, shared between commands. `NAME=value`.
    pub env: Arc<Vec<OsString>>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The file mode creation mask.
    pub umask: u32,
    /// What it reads and writes.
    pub stdio: Stdio,
}

/// What a command's descriptors 0, 1 and 2 are. Standard output and error share one pipe where people and models read them, so that what
/// was printed first is read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// Input at end-of-file.
    NoInput,
    /// An open input pipe.
    Pipes,
    /// An open input pipe, and a pipe of its own for standard error: for programs whose output is not for people.
    Apart,
    /// A terminal of its own.
    Terminal(Size),
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A running command. Dropping it ends the command's whole tree.
pub struct Running {
    /// What it prints; end-of-file when nobody holds the other end any more.
    pub output: Output,
    /// What it prints on standard error, where that is apart.
    pub errors: Option<Output>,
    /// Its input, where it has one. Dropping it is end-of-file for a pipe.
    pub input: Option<Box<dyn AsyncWrite + Send + Sync + Unpin>>,
    /// How the command itself ended, once it has. Descendants may live on.
    pub exit: watch::Receiver<Option<Exit>>,
    /// Whatever else can be done with it.
    pub control: Arc<dyn Control>,
}

/// Where a command's output is read from.
pub enum Output {
    /// A pipe of this machine. A flood through it is read by a thread, since waking the runtime for each line would cost more than
    /// reading it.
    Pipe(tokio::net::unix::pipe::Receiver),
    /// Anything else.
    Stream(Box<dyn AsyncRead + Send + Sync + Unpin>),
}

impl AsyncRead for Output {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buffer),
            Self::Stream(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.end();
    }
}

/// What can be done with a running command besides reading and writing. Nothing here blocks.
pub trait Control: Send + Sync {
    /// Ctrl-C: SIGINT to the foreground.
    fn interrupt(&self);
    /// Ends the whole tree: SIGTERM, one second, SIGKILL. Doing it twice does it once.
    fn end(&self);
    /// Changes the terminal's size; nothing without a terminal.
    fn resize(&self, size: Size);
    /// Whether a process of the tree is blocked in a read of the command's own input.
    fn waits_for_input(&self) -> bool;
    /// The tree's living processes, the command's shell aside once it has ended.
    fn living(&self) -> Vec<Living>;
}

/// A living process of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Living {
    /// Its id.
    pub pid: u32,
    /// Its name as the kernel knows it.
    pub name: String,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its own status.
    pub status: Status,
    /// Descendants that live on.
    pub living: Vec<Living>,
}

/// A command's own status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The supervisor died, and nobody knows.
    Lost,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "terminated by signal {}", signal_name(*signal)),
            Self::Lost => f.write_str("outcome unknown"),
        }
    }
}

/// A signal's name as people know it.
pub fn signal_name(signal: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| signal.to_string(), |(_, name)| (*name).to_owned())
}

/// Why a command did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);
