//! What the runtime and the supervisor say to each other, as bytes.
//!
//! The transport is a `SOCK_SEQPACKET` socket pair, which keeps messages whole, so several processes (the supervisor and all of its
//! keepers) may send on one end. A message is a list of byte strings, each after its length (u32, little-endian); the first is its
//! kind, and a number is eight bytes, little-endian. Descriptors travel beside it (`SCM_RIGHTS`), and the kernel adds the sender's
//! process id as the *receiver* sees it, which stays right when a keeper lives in a pid namespace of its own.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};

use super::{
    Living,
    spawn::{Failure, Stage},
};

/// Bytes of the longest message. The kernel takes no more than the send buffer, 212,992 bytes by default, less some of its own.
pub(super) const MAX_MESSAGE: usize = 192 * 1024;

/// Bytes of the longest message to the runtime: 200 processes with the longest names that a task can have, three times over for
/// what lossy UTF-8 makes of them.
pub(super) const MAX_REPORT: usize = 16 * 1024;

/// Processes that one report names. A fork bomb has thousands, and nobody reads them.
const MAX_NAMED: usize = 200;

/// Environments that the supervisor remembers. Commands of a session share one; a second appears when it is read again.
pub(super) const ENVIRONMENTS: usize = 4;

/// From the runtime.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order<'a> {
    /// A piece of an environment, in the order of its pieces.
    Environment {
        /// Which one, below [`ENVIRONMENTS`].
        number: u64,
        /// Whether it replaces what had this number.
        first: bool,
        /// `NAME=value`.
        variables: Vec<&'a [u8]>,
    },
    /// Starts a command; its input and its output come as descriptors, and a third for its errors where they are apart.
    Start(Start<'a>),
    /// Interrupts a command's foreground.
    Interrupt(u64),
    /// Ends a command's tree.
    End(u64),
}

/// A command to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start<'a> {
    pub(super) id: u64,
    pub(super) environment: u64,
    pub(super) umask: u32,
    pub(super) terminal: bool,
    /// Whether standard error is a descriptor of its own.
    pub(super) apart: bool,
    pub(super) cwd: &'a [u8],
    pub(super) program: &'a [u8],
    pub(super) argv: Vec<&'a [u8]>,
}

/// From a keeper, or from the supervisor for a keeper that is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command runs; the sender is its keeper.
    Started(u64),
    /// It does not, and nothing of it is left.
    StartFailed(u64, Failure),
    /// The command itself ended with this raw wait status; these live on.
    Exited(u64, u32, Vec<Living>),
    /// Nothing of it is left; these had to be ended.
    Gone(u64, Vec<Living>),
}

impl<'a> Order<'a> {
    /// As bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Environment { number, first, variables } => variables
                .iter()
                .fold(Writer::new("environment").number(*number).number((*first).into()), |message, text| {
                    message.text(text)
                }),
            Self::Start(start) => {
                let message = Writer::new("start")
                    .number(start.id)
                    .number(start.environment)
                    .number(start.umask.into())
                    .number(start.terminal.into())
                    .number(start.apart.into())
                    .text(start.cwd)
                    .text(start.program);
                start.argv.iter().fold(message, |message, text| message.text(text))
            }
            Self::Interrupt(id) => Writer::new("interrupt").number(*id),
            Self::End(id) => Writer::new("end").number(*id),
        }
        .0
    }

    /// From bytes; none when they are not an order.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Reader(bytes);
        Some(match fields.text()? {
            b"environment" => {
                Self::Environment { number: fields.number()?, first: fields.number()? != 0, variables: fields.rest()? }
            }
            b"start" => Self::Start(Start {
                id: fields.number()?,
                environment: fields.number()?,
                umask: fields.number()?.try_into().ok()?,
                terminal: fields.number()? != 0,
                apart: fields.number()? != 0,
                cwd: fields.text()?,
                program: fields.text()?,
                argv: fields.rest()?,
            }),
            b"interrupt" => Self::Interrupt(fields.number()?),
            b"end" => Self::End(fields.number()?),
            _ => return None,
        })
    }
}

impl Report {
    /// As bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Started(id) => Writer::new("started").number(*id),
            Self::StartFailed(id, failure) => Writer::new("start_failed")
                .number(*id)
                .number(failure.stage as u64)
                .number(failure.errno.raw_os_error().unsigned_abs().into()),
            Self::Exited(id, status, living) => {
                Writer::new("exited").number(*id).number((*status).into()).processes(living)
            }
            Self::Gone(id, ended) => Writer::new("gone").number(*id).processes(ended),
        }
        .0
    }

    /// From bytes; none when they are not a report.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader(bytes);
        let kind = fields.text()?;
        let id = fields.number()?;
        Some(match kind {
            b"started" => Self::Started(id),
            b"start_failed" => {
                let stage = Stage::of(fields.number()?.try_into().ok()?);
                let errno = Errno::from_raw_os_error(fields.number()?.try_into().ok()?);
                Self::StartFailed(id, Failure { stage, errno })
            }
            b"exited" => Self::Exited(id, fields.number()?.try_into().ok()?, fields.processes()?),
            b"gone" => Self::Gone(id, fields.processes()?),
            _ => return None,
        })
    }
}

/// A message being written.
struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: &str) -> Self {
        Self(Vec::with_capacity(256)).text(kind.as_bytes())
    }

    /// Every text is far below 4 GiB, as whoever sends has checked the message against [`MAX_MESSAGE`].
    fn text(mut self, text: &[u8]) -> Self {
        self.0.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.0.extend_from_slice(text);
        self
    }

    fn number(self, number: u64) -> Self {
        self.text(&number.to_le_bytes())
    }

    fn processes(self, processes: &[Living]) -> Self {
        let named = processes.iter().take(MAX_NAMED);
        named.fold(self, |message, process| message.number(process.pid.into()).text(process.name.as_bytes()))
    }
}

/// What is left of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn text(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some(text)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.text()?.try_into().ok()?))
    }

    fn rest(&mut self) -> Option<Vec<&'a [u8]>> {
        let mut texts = Vec::new();
        while !self.0.is_empty() {
            texts.push(self.text()?);
        }
        Some(texts)
    }

    fn processes(&mut self) -> Option<Vec<Living>> {
        let mut processes = Vec::new();
        while !self.0.is_empty() {
            let pid = self.number()?.try_into().ok()?;
            let name = String::from_utf8_lossy(self.text()?).into_owned();
            processes.push(Living { pid, name });
        }
        Some(processes)
    }
}

/// Sends one message whole. A peer that is gone is an error, never a signal.
pub(super) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL).map(drop)
}

/// One message received into a buffer.
pub(super) struct Received {
    /// Its length; 0 at the end of the connection. More than fits is not a message of ours and an error.
    pub(super) length: usize,
    /// The descriptors beside it; they close on exec.
    pub(super) descriptors: Vec<OwnedFd>,
    /// Who sent it, where the socket was told to say.
    pub(super) sender: Option<u32>,
}

/// Receives one message.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;

    let mut received = Received { length: message.bytes, descriptors: Vec::new(), sender: None };
    for ancillary in control.drain() {
        match ancillary {
            RecvAncillaryMessage::ScmRights(descriptors) => received.descriptors.extend(descriptors),
            RecvAncillaryMessage::ScmCredentials(who) => {
                received.sender = who.pid.as_raw_nonzero().get().try_into().ok();
            }
            _ => {}
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) { Err(Errno::MSGSIZE) } else { Ok(received) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let argv = vec![&b"bash"[..], b"-c", b"", b"\xff\xfe"];
        let start = Start {
            id: 7,
            environment: 1,
            umask: 0o22,
            terminal: true,
            apart: true,
            cwd: b"/tmp",
            program: b"/bin/bash",
            argv,
        };
        for order in [
            Order::Environment { number: 3, first: true, variables: vec![b"A=1", b"B="] },
            Order::Start(start),
            Order::Interrupt(u64::MAX),
            Order::End(0),
        ] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        let living = vec![Living { pid: 12, name: "sleep".into() }, Living { pid: 13, name: String::new() }];
        for report in [
            Report::Started(1),
            Report::StartFailed(1, Failure { stage: Stage::Directory, errno: Errno::NOENT }),
            Report::Exited(1, 9, living.clone()),
            Report::Gone(1, living),
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn what_is_cut_off_is_not_a_message() {
        let whole = Order::Interrupt(5).encode();
        for length in 0..whole.len() {
            assert_eq!(Order::decode(&whole[..length]), None);
            assert_eq!(Report::decode(&whole[..length]), None);
        }
    }

    #[test]
    fn the_longest_report_fits() {
        let living = vec![Living { pid: u32::MAX, name: "\u{fffd}".repeat(15) }; 5000];
        assert!(Report::Exited(u64::MAX, 0, living).encode().len() <= MAX_REPORT);
    }
}
