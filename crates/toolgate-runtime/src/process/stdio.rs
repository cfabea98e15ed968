//! What a command reads and writes: pipes and terminals, both ends.

use std::{
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::unix::pipe,
};

use super::{Output, Size, Stdio, spawn};

/// Both ends of what a command reads and writes.
pub(super) struct Ends {
    pub(super) ours: Ours,
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    /// Where standard error goes, if not to `output`.
    pub(super) errors: Option<OwnedFd>,
}

/// The runtime's ends.
pub(super) struct Ours {
    pub(super) output: Output,
    pub(super) errors: Option<Output>,
    pub(super) input: Option<Box<dyn AsyncWrite + Send + Sync + Unpin>>,
    pub(super) terminal: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Ends {
    pub(super) fn open(stdio: Stdio) -> io::Result<Self> {
        let (input, ours) = match stdio {
            Stdio::Terminal(size) => return Self::terminal(size),
            Stdio::NoInput => (rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None),
            Stdio::Pipes | Stdio::Apart => {
                let (input, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                (input, Some(Box::new(pipe::Sender::from_owned_fd(ours)?) as Box<dyn AsyncWrite + Send + Sync + Unpin>))
            }
        };
        let (read, output) = output_pipe()?;
        let (read_errors, errors) = if stdio == Stdio::Apart {
            output_pipe().map(|(ours, theirs)| (Some(ours), Some(theirs)))?
        } else {
            (None, None)
        };
        let ours = Ours { output: read, errors: read_errors, input: ours, terminal: None };
        Ok(Self { ours, input, output, errors })
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
            output: Output::Stream(Box::new(Terminal(Arc::clone(&master)))),
            errors: None,
            input: Some(Box::new(Terminal(Arc::clone(&master)))),
            terminal: Some(master),
        };
        Ok(Self { ours, input, output, errors: None })
    }
}

/// A pipe that the runtime reads and a command writes. Only our end does not block, and that is no property of the pipe, so the command
/// does not see it.
fn output_pipe() -> io::Result<(Output, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Output::Pipe(pipe::Receiver::from_owned_fd(read)?), write))
}

/// The kernel's form of a size; pixels are not known.
pub(super) fn window(size: Size) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
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
