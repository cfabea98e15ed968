//! A keeper: the small process that one command's tree belongs to.
//!
//! It is forked from the supervisor, becomes the tree's subreaper, starts the command, says how it went, and stays until no
//! descendant is left. It sleeps in one system call and wakes only for a signal: a child that ended (CHLD), an order of the
//! supervisor (INT interrupts, TERM ends), or the supervisor's death, which the kernel tells as TERM too.
//!
//! One is made ahead and waits for its command (see the supervisor's spare), so that a start need not wait for the fork.
//!
//! It sends signals only to its own descendants, and needs nothing but `/proc`, a socket and signals, so that it can as well be
//! process 1 of a pid namespace.

use std::{
    ffi::CString,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{
        Pid, Signal, WaitOptions, getpid, getppid, kill_process_group, set_child_subreaper,
        set_parent_process_death_signal, wait,
    },
    stdio::stdin,
    thread::set_name,
};

use super::{
    Living, protocol,
    protocol::{Order, Report, Start},
    spawn::{self, Failure, Stage},
    tree,
};

/// What a tree is given to end by itself after SIGTERM. The contract says one second.
const GRACE: Duration = Duration::from_secs(1);

/// The first wait for killed processes to be gone, which takes them well under a millisecond. It doubles with each try.
const FIRST_RETRY: Duration = Duration::from_millis(5);

/// The longest such wait. Only what another user owns, or what hangs in the kernel, is still there by then.
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Keeps the command of this order. Runs in the forked process, whose descriptor 0 is the socket to the runtime.
pub(super) fn keep(start: Start<'_>, descriptors: Vec<OwnedFd>, environments: &[Vec<CString>], supervisor: Pid) -> ! {
    match prepare(supervisor) {
        Ok(orphaned) => run(start, descriptors, environments, supervisor, orphaned),
        Err(errno) => fail(start.id, Failure { stage: Stage::Process, errno }),
    }
}

/// Prepares, then waits for the order that the supervisor passes on, and keeps its command. Whether the supervisor has no use for
/// this process or has died, the channel ends, and so does this.
pub(super) fn keep_next(channel: OwnedFd, buffer: &mut [u8], environments: &[Vec<CString>], supervisor: Pid) -> ! {
    let Ok(orphaned) = prepare(supervisor) else { spawn::leave(1) };
    let received = loop {
        match protocol::receive(&channel, buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok(received) if received.length > 0 => break received,
            Ok(_) | Err(_) => spawn::leave(0),
        }
    };
    drop(channel);
    match Order::decode(&buffer[..received.length]) {
        Some(Order::Start(start)) => run(start, received.descriptors, environments, supervisor, orphaned),
        _ => spawn::leave(1),
    }
}

/// Makes this process a keeper. True when the supervisor has died before the kernel was asked to tell of it.
fn prepare(supervisor: Pid) -> Result<bool, Errno> {
    set_name(c"toolgate-keeper")?;
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(getppid() != Some(supervisor))
}

/// Starts the command and stays until nothing is left of it.
fn run(
    start: Start<'_>,
    descriptors: Vec<OwnedFd>,
    environments: &[Vec<CString>],
    supervisor: Pid,
    orphaned: bool,
) -> ! {
    let id = start.id;
    let shell = match spawn(start, descriptors, environments) {
        Ok(shell) => shell,
        Err(failure) => fail(id, failure),
    };
    send(&Report::Started(id));

    let mut keeper = Keeper { id, own: getpid(), supervisor: Some(supervisor), shell: Some(shell), ending: false };
    if orphaned {
        keeper.end();
    }
    loop {
        match spawn::wait_signal(None) {
            Some(Signal::INT) => keeper.interrupt(),
            Some(Signal::TERM) => keeper.end(),
            _ => keeper.leave_if_alone(&[]),
        }
    }
}

/// Starts the command. It alone holds its descriptors after that; if this process held them too, their readers would never see an
/// end.
fn spawn(start: Start<'_>, descriptors: Vec<OwnedFd>, environments: &[Vec<CString>]) -> Result<Pid, Failure> {
    let mut descriptors = descriptors.into_iter();
    let (input, output, errors) = (descriptors.next(), descriptors.next(), descriptors.next());
    let (Some(input), Some(output), true) = (input, output, errors.is_some() == start.apart) else {
        // The kernel drops what does not fit under the limit of open files.
        return Err(Failure { stage: Stage::Descriptors, errno: Errno::MFILE });
    };
    let request = spawn::Request {
        program: string(start.program),
        argv: start.argv.into_iter().map(string).collect(),
        cwd: string(start.cwd),
        umask: start.umask,
        terminal: start.terminal,
        input,
        output,
        errors,
    };
    spawn::spawn(&request, environments.get(start.environment as usize).map_or(&[], Vec::as_slice))
}

/// The runtime has refused NUL bytes; if one came all the same, the string ends before it.
pub(super) fn string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}

/// Says that the command does not start, and goes.
fn fail(id: u64, failure: Failure) -> ! {
    send(&Report::StartFailed(id, failure));
    spawn::leave(0)
}

/// Nobody may be there to hear it, which changes nothing here.
fn send(report: &Report) {
    let _ = protocol::send(stdin(), &report.encode(), &[], SendFlags::empty());
}

struct Keeper {
    id: u64,
    own: Pid,
    supervisor: Option<Pid>,
    /// The command itself, until it is reaped; after that its number may be anybody's.
    shell: Option<Pid>,
    /// Whether the tree is being ended, so that whoever still lives is about to go.
    ending: bool,
}

impl Keeper {
    /// Reaps whatever ended and says so if it was the command itself. False when no child is left.
    fn reap(&mut self) -> bool {
        let mut status = None;
        let any_left = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, raw))) if self.shell == Some(pid) => {
                    self.shell = None;
                    status = Some(raw.as_raw().cast_unsigned());
                }
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(error) => break error != Errno::CHILD,
            }
        };
        // A tree that ends because the supervisor died has no exit of its own to report: its outcome is lost, and the end of the
        // connection says so.
        let lost = self.ending && getppid() != self.supervisor;
        if let Some(status) = status.filter(|_| !lost) {
            let living = if any_left && !self.ending { self.living() } else { Vec::new() };
            send(&Report::Exited(self.id, status, living));
        }
        any_left
    }

    /// Ctrl-C of a command without a terminal: its process group, which is the shell's, as it leads a session. For a command with a
    /// terminal the runtime does it, by the terminal.
    fn interrupt(&self) {
        if let Some(shell) = self.shell {
            let _ = kill_process_group(shell, Signal::INT);
        }
    }

    /// Ends the tree: SIGTERM, a second at most, SIGKILL until nobody is left.
    fn end(&mut self) -> ! {
        let ended = self.living();
        self.ending = true;
        tree::signal(self.number(), Signal::TERM);
        // A stopped process acts on SIGTERM only once it goes on.
        tree::signal(self.number(), Signal::CONT);

        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            self.leave_if_alone(&ended);
            // Orders that come now find the tree being ended already.
            spawn::wait_signal(Some(deadline.saturating_duration_since(Instant::now())));
        }
        let mut retry = FIRST_RETRY;
        loop {
            tree::kill(self.number(), &[]);
            self.leave_if_alone(&ended);
            spawn::wait_signal(Some(retry));
            retry = LAST_RETRY.min(retry * 2);
        }
    }

    /// Reaps, and when no child is left says that nothing of the command is, and goes.
    fn leave_if_alone(&mut self, ended: &[Living]) {
        if !self.reap() {
            send(&Report::Gone(self.id, ended.to_vec()));
            spawn::leave(0);
        }
    }

    fn living(&self) -> Vec<Living> {
        tree::living(self.number())
    }

    fn number(&self) -> u32 {
        self.own.as_raw_nonzero().get().unsigned_abs()
    }
}
