//! The supervisor process: one thread, one loop, one keeper for each command, and a spare one that waits for the next command, so
//! that no start waits for a fork.
//!
//! It owns nothing of a command but its keeper. It outlives a crash of the runtime just long enough to end what was started: the
//! socket's end-of-file, however it comes, ends every tree. If a keeper is killed (a command may kill its parent), the orphans come
//! here, as this is the next subreaper, and are killed at once: every child that is not a keeper is a stray.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair},
    process::{Pid, Signal, WaitOptions, WaitStatus, chdir, getpid, kill_process, set_child_subreaper, setsid, wait},
    stdio::stdin,
    thread::set_name,
};

use super::{
    Living,
    keeper::{self, string},
    protocol,
    protocol::{ENVIRONMENTS, MAX_MESSAGE, Order, Report, Start},
    spawn::{self, Failure, Fork, Stage},
    tree,
};

/// What all trees together are given when the runtime is gone: the keepers need a second and a little. What is left after that
/// hangs in the kernel; its keeper stays with it.
const END_LIMIT: Duration = Duration::from_secs(2);

/// What killed keepers' trees are given to be gone, which takes milliseconds.
const KILL_LIMIT: Duration = Duration::from_millis(300);

/// How long nothing must happen before the next spare is forked, so that the fork does not take a core from the command that was
/// started just now.
const SPARE_DELAY: Duration = Duration::from_millis(10);

/// Runs the supervisor in this process, which must have been started for it: descriptor 0 is the socket to the runtime, and there
/// is one thread. Returns never; the process ends when the runtime's end of the socket is closed and all trees are gone.
pub fn supervise() -> ! {
    match Host::prepare() {
        Ok(host) => host.serve(),
        Err(_) => spawn::leave(1),
    }
}

struct Host {
    own: Pid,
    /// Readable when a signal is pending. Taken out only in a keeper, which waits for signals by itself.
    signals: Option<OwnedFd>,
    /// Where messages are received; untouched pages cost nothing.
    buffer: Vec<u8>,
    environments: [Vec<CString>; ENVIRONMENTS],
    keepers: Vec<Keeper>,
    /// The keeper of the next command. It has the environments of the moment when it was forked.
    spare: Option<Spare>,
    /// Whether to make one as soon as there is nothing else to do.
    spare_wanted: bool,
    /// Commands whose keeper was killed, and which strays of theirs were.
    lost: Vec<Lost>,
    /// Set when everything is being ended.
    deadline: Option<Instant>,
    /// Whether keepers that did not end by themselves were killed.
    killed: bool,
}

struct Keeper {
    pid: Pid,
    id: u64,
}

/// A keeper without a command. Closing the channel lets it go.
struct Spare {
    pid: Pid,
    channel: OwnedFd,
}

struct Lost {
    id: u64,
    ended: Vec<Living>,
}

impl Host {
    fn prepare() -> Result<Self, Errno> {
        // A session of its own, so that a Ctrl-C in the user's terminal never comes here. Refused where it leads one already.
        let _ = setsid();
        spawn::close_from(3);
        spawn::prepare_signals();
        set_name(c"toolgate-superv")?;
        set_child_subreaper(Some(getpid()))?;
        // Else it would keep the directory it was started in from being unmounted.
        chdir("/")?;
        Ok(Self {
            own: getpid(),
            signals: Some(spawn::signal_descriptor()?),
            buffer: vec![0; MAX_MESSAGE],
            environments: Default::default(),
            keepers: Vec::new(),
            spare: None,
            spare_wanted: true,
            lost: Vec::new(),
            deadline: None,
            killed: false,
        })
    }

    fn serve(mut self) -> ! {
        loop {
            let now = Instant::now();
            let all_gone = self.keepers.is_empty() && self.lost.is_empty();
            if let Some(deadline) = self.deadline {
                if all_gone || (now >= deadline && self.killed) {
                    spawn::leave(0);
                }
                if now >= deadline {
                    self.kill_keepers(now);
                }
            }
            let (signal, message) = self.wait(now);
            if signal {
                self.take_signals();
                self.reap();
            }
            if message && self.deadline.is_none() {
                self.receive();
            }
            if !signal && !message && self.spare_wanted && self.deadline.is_none() {
                self.make_spare();
            }
        }
    }

    /// Sleeps until there is something to do: a signal, a message. Once everything is being ended the socket has nothing to say.
    fn wait(&self, now: Instant) -> (bool, bool) {
        let Some(signals) = &self.signals else { return (false, false) };
        let limit = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
        let limit = limit.or(self.spare_wanted.then_some(SPARE_DELAY));
        let limit =
            limit.map(|left| Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() });
        let socket = stdin();
        let mut ready = [PollFd::new(signals, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
        let watched = if self.deadline.is_some() { &mut ready[..1] } else { &mut ready[..] };
        let _ = poll(watched, limit.as_ref());
        (!ready[0].revents().is_empty(), !ready[1].revents().is_empty())
    }

    /// Empties the signal descriptor. Whoever asks this process to end (a shutdown of the machine) gets an orderly end.
    fn take_signals(&mut self) {
        // The kernel's `struct signalfd_siginfo`, which begins with the signal's number.
        let mut information = [0u8; 128];
        let Some(signals) = &self.signals else { return };
        let mut asked_to_end = false;
        while rustix::io::read(signals, &mut information).is_ok() {
            let number = information.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
            asked_to_end |= number != Signal::CHILD.as_raw();
        }
        if asked_to_end {
            self.end_all();
        }
    }

    /// Reaps keepers and strays. A keeper leaves with 0 when its tree is gone; anything else means that it was killed.
    fn reap(&mut self) {
        let mut strays = !self.lost.is_empty();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if self.spare.take_if(|spare| spare.pid == pid).is_some() {
                continue;
            }
            let Some(place) = self.keepers.iter().position(|keeper| keeper.pid == pid) else {
                strays = true;
                continue;
            };
            let keeper = self.keepers.swap_remove(place);
            if status.exit_status() != Some(0) {
                self.lose(keeper.id, status);
                strays = true;
            }
        }
        if strays {
            self.kill_strays();
        }
    }

    /// Answers for a keeper that cannot. Its command is killed now, if it was still there, so the keeper's own status says it well.
    fn lose(&mut self, id: u64, status: WaitStatus) {
        report(&Report::Exited(id, status.as_raw().cast_unsigned(), Vec::new()));
        let keepers = self.keeper_numbers();
        let orphans = tree::descendants(number(self.own), &keepers);
        let ended =
            tree::living(number(self.own)).into_iter().filter(|process| orphans.contains(&process.pid)).collect();
        self.lost.push(Lost { id, ended });
    }

    /// Kills every child that is not a keeper, with all that is below it. Those who die bring the next SIGCHLD, and with it the next
    /// look, until there is none.
    fn kill_strays(&mut self) {
        let keepers = self.keeper_numbers();
        if tree::descendants(number(self.own), &keepers).is_empty() {
            for lost in self.lost.drain(..) {
                report(&Report::Gone(lost.id, lost.ended));
            }
        } else {
            tree::kill(number(self.own), &keepers);
        }
    }

    fn receive(&mut self) {
        // Moved out while the message that is in it is worked on.
        let mut buffer = std::mem::take(&mut self.buffer);
        match protocol::receive(stdin(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(received) if received.length > 0 => match Order::decode(&buffer[..received.length]) {
                Some(order) => self.obey(order, &buffer[..received.length], received.descriptors),
                // Whoever sends this is not the runtime that it was made for.
                None => self.end_all(),
            },
            // The runtime is gone: closed, crashed or killed.
            Ok(_) | Err(_) => self.end_all(),
        }
        self.buffer = buffer;
    }

    fn obey(&mut self, order: Order<'_>, message: &[u8], descriptors: Vec<OwnedFd>) {
        match order {
            Order::Environment { number, first, variables } => {
                let Some(environment) = self.environments.get_mut(number as usize) else { return };
                if first {
                    environment.clear();
                }
                environment.extend(variables.into_iter().map(string));
                // It does not have this one.
                self.spare = None;
                self.spare_wanted = true;
            }
            Order::Start(start) => self.start(start, message, descriptors),
            Order::Interrupt(id) => self.signal(id, Signal::INT),
            Order::End(id) => self.signal(id, Signal::TERM),
        }
    }

    /// Passes a start on to the spare, or forks a keeper for it.
    fn start(&mut self, start: Start<'_>, message: &[u8], descriptors: Vec<OwnedFd>) {
        let id = start.id;
        self.spare_wanted = true;
        if let Some(spare) = self.spare.take() {
            let them: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            if protocol::send(&spare.channel, message, &them, SendFlags::DONTWAIT).is_ok() {
                return self.keepers.push(Keeper { pid: spare.pid, id });
            }
        }
        match spawn::fork() {
            Ok(Fork::Parent(pid)) => self.keepers.push(Keeper { pid, id }),
            Ok(Fork::Child) => {
                drop(self.signals.take());
                keeper::keep(start, descriptors, &self.environments, self.own)
            }
            Err(errno) => report(&Report::StartFailed(id, Failure { stage: Stage::Process, errno })),
        }
    }

    /// Forks the keeper of the next command. Without one the next start forks, which is only slower.
    fn make_spare(&mut self) {
        self.spare_wanted = false;
        let Ok((channel, theirs)) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        else {
            return;
        };
        match spawn::fork() {
            Ok(Fork::Parent(pid)) => self.spare = Some(Spare { pid, channel }),
            Ok(Fork::Child) => {
                drop(channel);
                drop(self.signals.take());
                keeper::keep_next(theirs, &mut self.buffer, &self.environments, self.own)
            }
            Err(_) => {}
        }
    }

    /// Tells a keeper. Its number cannot be another's, as it is reaped nowhere but here.
    fn signal(&self, id: u64, signal: Signal) {
        if let Some(keeper) = self.keepers.iter().find(|keeper| keeper.id == id) {
            let _ = kill_process(keeper.pid, signal);
            // A command may have stopped its keeper, which acts on no signal until it goes on.
            let _ = kill_process(keeper.pid, Signal::CONT);
        }
    }

    /// Tells every keeper to end its tree, and begins to wait for that.
    fn end_all(&mut self) {
        if self.deadline.is_none() {
            self.deadline = Some(Instant::now() + END_LIMIT);
            self.spare = None;
            self.keepers.iter().for_each(|keeper| self.signal(keeper.id, Signal::TERM));
        }
    }

    /// A keeper that has not ended its tree by now cannot: a command may have stopped it. Its orphans come to this process, which kills
    /// them as strays.
    fn kill_keepers(&mut self, now: Instant) {
        self.killed = true;
        self.deadline = Some(now + KILL_LIMIT);
        self.keepers.iter().for_each(|keeper| self.signal(keeper.id, Signal::KILL));
    }

    fn keeper_numbers(&self) -> Vec<u32> {
        let keepers = self.keepers.iter().map(|keeper| keeper.pid);
        keepers.chain(self.spare.as_ref().map(|spare| spare.pid)).map(number).collect()
    }
}

/// Nobody may be there to hear it, which changes nothing here.
fn report(report: &Report) {
    let _ = protocol::send(stdin().as_fd(), &report.encode(), &[], SendFlags::empty());
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
