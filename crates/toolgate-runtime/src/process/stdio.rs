//! What a command reads and writes: pipes and terminals, both ends.

use std::{
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::unix::pipe,
};

use super::{Size, Stdio, spawn};

/// Bytes after which an output that comes without a pause is a flood. Below it nothing is done for speed.
const FLOOD: u64 = 1024 * 1024;

/// Reads of a flood follow each other faster than this.
const FLOOD_GAP: Duration = Duration::from_millis(1);

/// Bytes of a flooded pipe: the most that the kernel gives an unprivileged user by default.
const FLOODED_PIPE: usize = 1024 * 1024;

/// How long a flooded pipe is left to fill. Without it each line that a program prints costs a wake-up, which takes more than reading
/// it. Short enough to be slept through on the spot: no timer of the runtime is this fine.
const FILL: Duration = Duration::from_micros(100);

/// A read that brought less than this did not find a full pipe.
const FULL_READ: usize = 64 * 1024;

/// Both ends of what a command reads and writes.
pub(super) struct Ends {
    pub(super) ours: Ours,
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
}

/// The runtime's ends.
pub(super) struct Ours {
    pub(super) output: Box<dyn AsyncRead + Send + Sync + Unpin>,
    pub(super) input: Option<Box<dyn AsyncWrite + Send + Sync + Unpin>>,
    pub(super) terminal: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Ends {
    pub(super) fn open(stdio: Stdio) -> io::Result<Self> {
        let (input, ours) = match stdio {
            Stdio::Terminal(size) => return Self::terminal(size),
            Stdio::NoInput => (rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None),
            Stdio::Pipes => {
                let (input, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                (input, Some(Box::new(pipe::Sender::from_owned_fd(ours)?) as Box<dyn AsyncWrite + Send + Sync + Unpin>))
            }
        };
        // Only our end does not block, and that is no property of the pipe, so the command does not see it.
        let (read, output) = pipe_with(PipeFlags::CLOEXEC)?;
        let read = Box::new(Output { pipe: pipe::Receiver::from_owned_fd(read)?, total: 0, last: None });
        Ok(Self { ours: Ours { output: read, input: ours, terminal: None }, input, output })
    }

    fn terminal(size: Size) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        tcsetwinsize(&master, window(size))?;
        let input = ioctl_tiocgptpeer(&master, flags)?;
        let output = input.try_clone()?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let master = Arc::new(spawn::register(master)?);
        let ours = Ours {
            output: Box::new(Terminal(Arc::clone(&master))),
            input: Some(Box::new(Terminal(Arc::clone(&master)))),
            terminal: Some(master),
        };
        Ok(Self { ours, input, output })
    }
}

/// The kernel's form of a size; pixels are not known.
pub(super) fn window(size: Size) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A command's output. A flood is read in large pieces, so that it costs about what the same pipe into `cat` costs.
struct Output {
    pipe: pipe::Receiver,
    total: u64,
    /// When the last read was, and how much it brought.
    last: Option<(Instant, usize)>,
}

impl Output {
    fn is_flooded(&self) -> bool {
        self.total > FLOOD && self.last.is_some_and(|(when, length)| length < FULL_READ && when.elapsed() < FLOOD_GAP)
    }

    fn count(&mut self, length: usize) {
        let before = self.total;
        self.total += length as u64;
        if before <= FLOOD && self.total > FLOOD {
            // Where the user's pipes are used up the kernel refuses, and the pipe stays as it is.
            let _ = fcntl_setpipe_size(&self.pipe, FLOODED_PIPE);
        }
        self.last = Some((Instant::now(), length));
    }
}

impl AsyncRead for Output {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_flooded() {
            std::thread::sleep(FILL);
            self.last = None;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(cx, buffer))?;
        self.count(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

/// A terminal's master, as a reader or as a writer.
struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let read = ready.try_io(|master| Ok(rustix::io::read(master.get_ref(), buffer.initialize_unfilled())?));
            return Poll::Ready(match read {
                Err(_would_block) => continue,
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    Ok(())
                }
                // Nobody has the terminal open any more, which for a pipe is end-of-file.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(()),
                Ok(Err(error)) => Err(error),
            });
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) = ready.try_io(|master| Ok(rustix::io::write(master.get_ref(), bytes)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
