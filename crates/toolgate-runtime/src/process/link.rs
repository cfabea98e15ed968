//! One connection to one supervisor process: orders out, reports in.
//!
//! One task attends to it: it receives reports, sends what did not fit into the socket, and reaps the process. The task ends with the
//! connection, which is when the supervisor and all of its keepers are gone, so the end of the connection means that nothing is left of
//! any command.
#![allow(clippy::disallowed_methods)] // The supervisor is launched here.

use std::{
    collections::{HashMap, VecDeque},
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    process::Child,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, shutdown, socketpair, sockopt},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::{
    io::unix::AsyncFd,
    sync::{Notify, oneshot, watch},
    time::timeout,
};

use super::{
    Command, Exit, Living, StartError, Status, Stdio,
    protocol::{self, ENVIRONMENTS, MAX_REPORT, Order, Report, Start},
    spawn::{self, Failure},
};

/// What the supervisor is given to end everything: the second after SIGTERM, and what SIGKILL takes on a busy machine.
const CLOSE_LIMIT: Duration = Duration::from_millis(2500);

/// Bytes of variables in one message, so that the supervisor's buffer stays mostly untouched. One longer variable goes alone.
const ENVIRONMENT_PIECE: usize = 32 * 1024;

/// Bytes asked for as the send buffer; the kernel gives what its limit allows. Some starts then fit at once.
const SEND_BUFFER: usize = 1024 * 1024;

/// One supervisor process and the connection to it.
pub(super) struct Link {
    socket: AsyncFd<OwnedFd>,
    /// The supervisor itself: readable once it is dead.
    process: AsyncFd<OwnedFd>,
    wire: Mutex<Wire>,
    /// Told when something waits in the wire's queue.
    queued: Notify,
    commands: Mutex<Commands>,
    /// True once the connection has ended.
    over: watch::Sender<bool>,
}

/// What is sent, in its order.
#[derive(Default)]
struct Wire {
    /// What did not fit into the socket yet. Never lost, as an order to end may be among it.
    queue: VecDeque<Message>,
    /// The environments that the supervisor has. They are held, so that an address means the same environment.
    environments: [Option<Arc<Vec<OsString>>>; ENVIRONMENTS],
    /// Which of them is replaced next.
    oldest: usize,
}

struct Message {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// The command that is refused if this cannot be sent.
    start: Option<u64>,
}

/// The commands that may still report.
#[derive(Default)]
struct Commands {
    entries: HashMap<u64, Entry>,
    last: u64,
    /// Whether no more are taken: the supervisor is dead, or was told to end everything.
    closed: bool,
    /// What had to be ended, from what was reported gone since the connection was closed.
    ended: Vec<Living>,
}

pub(super) struct Entry {
    /// The keeper's process id, 0 before it is known and when its tree is gone. Shared with the command's [`Tree`].
    pub(super) keeper: Arc<AtomicU32>,
    pub(super) exited: watch::Sender<Option<Exit>>,
    /// Where `start` waits, until it is answered.
    pub(super) answer: Option<oneshot::Sender<Result<(), Refused>>>,
}

impl Link {
    /// Launches a supervisor and the task that attends to it.
    pub(super) fn launch(program: &Path, args: &[OsString]) -> io::Result<Arc<Self>> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        sockopt::set_socket_send_buffer_size(&ours, SEND_BUFFER)?;
        // The kernel then tells who sent a report, in process ids of this side.
        sockopt::set_socket_passcred(&ours, true)?;
        let socket = spawn::register(ours)?;

        // An empty environment, no hook before exec and plain descriptors: std can use posix_spawn, which copies no page table.
        let mut child = std::process::Command::new(program)
            .args(args)
            .env_clear()
            .stdin(theirs)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let watched = process_of(&child).and_then(spawn::register);
        let process = watched.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;

        let link = Arc::new(Self {
            socket,
            process,
            wire: Mutex::default(),
            queued: Notify::new(),
            commands: Mutex::default(),
            over: watch::Sender::new(false),
        });
        tokio::spawn(Arc::clone(&link).attend(child));
        Ok(link)
    }

    /// Until the connection has ended and the process is reaped.
    async fn attend(self: Arc<Self>, mut child: Child) {
        let (mut open, mut alive) = (true, true);
        while open || alive {
            tokio::select! {
                biased;
                more = self.receive(), if open => open = more,
                () = self.send_queued(), if open => {}
                _ = self.process.readable(), if alive => {
                    alive = false;
                    let _ = child.wait();
                    // What was reported before it died still counts. Its keepers may go on reporting what they end.
                    open = open && self.take_reports();
                    self.lose_all();
                }
            }
        }
        self.lose_all();
        lock(&self.commands).entries.drain().for_each(|(_, entry)| entry.keeper.store(0, Ordering::Release));
        self.over.send_replace(true);
    }

    /// Receives once there is something. False at the end of the connection.
    async fn receive(&self) -> bool {
        let Ok(mut ready) = self.socket.readable().await else { return false };
        let more = self.take_reports();
        ready.clear_ready();
        more
    }

    /// Takes all reports that are there. False at the end of the connection.
    fn take_reports(&self) -> bool {
        let mut buffer = [0; MAX_REPORT];
        loop {
            match protocol::receive(self.socket.get_ref(), &mut buffer, RecvFlags::DONTWAIT) {
                Ok(received) if received.length == 0 => return false,
                Ok(received) => {
                    if let Some(report) = Report::decode(&buffer[..received.length]) {
                        self.take(report, received.sender.unwrap_or(0));
                    }
                }
                Err(Errno::AGAIN) => return true,
                // The supervisor died with orders unread; the kernel says so once, and reports may still follow.
                Err(Errno::INTR | Errno::CONNRESET | Errno::MSGSIZE) => {}
                Err(_) => return false,
            }
        }
    }

    fn take(&self, report: Report, sender: u32) {
        let mut commands = lock(&self.commands);
        match report {
            Report::Started(id) => {
                if let Some(entry) = commands.entries.get_mut(&id) {
                    entry.keeper.store(sender, Ordering::Release);
                    entry.answer(Ok(()));
                }
            }
            Report::StartFailed(id, failure) => {
                if let Some(mut entry) = commands.entries.remove(&id) {
                    entry.answer(Err(Refused::Failed(failure)));
                }
            }
            Report::Exited(id, status, living) => {
                if let Some(entry) = commands.entries.get_mut(&id) {
                    // A command may kill its keeper before that says that it runs.
                    entry.answer(Ok(()));
                    entry.exit(status_of(status), living);
                }
            }
            Report::Gone(id, ended) => {
                if let Some(mut entry) = commands.entries.remove(&id) {
                    entry.keeper.store(0, Ordering::Release);
                    entry.answer(Err(Refused::Lost));
                    entry.exit(Status::Lost, Vec::new());
                }
                if commands.closed {
                    commands.ended.extend(ended);
                }
            }
        }
    }

    /// The supervisor is dead: nobody will say how the commands ended, and their keepers are ending their trees.
    fn lose_all(&self) {
        let mut commands = lock(&self.commands);
        commands.closed = true;
        for entry in commands.entries.values_mut() {
            entry.answer(Err(Refused::Lost));
            entry.exit(Status::Lost, Vec::new());
        }
    }

    /// Whether it takes commands.
    pub(super) fn serves(&self) -> bool {
        !lock(&self.commands).closed
    }

    /// Whether a command may still report.
    pub(super) fn knows(&self, id: u64) -> bool {
        lock(&self.commands).entries.contains_key(&id)
    }

    pub(super) fn register(&self, entry: Entry) -> Result<u64, StartError> {
        let mut commands = lock(&self.commands);
        if commands.closed {
            return Err(StartError("the supervisor has just ended".to_owned()));
        }
        commands.last += 1;
        let id = commands.last;
        commands.entries.insert(id, entry);
        Ok(id)
    }

    /// Sends a command, and before it its environment if the supervisor does not have it.
    pub(super) fn send_start(&self, id: u64, command: &Command, descriptors: Vec<OwnedFd>) {
        let mut wire = lock(&self.wire);
        let known = wire.environments.iter().position(|known| {
            known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &command.env) || *known == command.env)
        });
        let number = known.unwrap_or_else(|| wire.add_environment(&command.env));
        let bytes = start_of(id, number as u64, command).encode();
        wire.queue.push_back(Message { bytes, descriptors, start: Some(id) });
        self.flush(&mut wire);
    }

    pub(super) fn send(&self, order: &Order<'_>) {
        let mut wire = lock(&self.wire);
        wire.queue.push_back(Message { bytes: order.encode(), descriptors: Vec::new(), start: None });
        self.flush(&mut wire);
    }

    /// Sends what the socket takes; the rest is for the attending task.
    fn flush(&self, wire: &mut Wire) {
        while let Some(message) = wire.queue.front() {
            let descriptors: Vec<_> = message.descriptors.iter().map(AsFd::as_fd).collect();
            match protocol::send(self.socket.get_ref(), &message.bytes, &descriptors, SendFlags::DONTWAIT) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return self.queued.notify_one(),
                Err(errno) => self.refuse(message.start, errno),
                Ok(()) => {}
            }
            wire.queue.pop_front();
        }
    }

    /// Answers a start whose order could not be sent.
    fn refuse(&self, start: Option<u64>, errno: Errno) {
        if let Some(mut entry) = start.and_then(|id| lock(&self.commands).entries.remove(&id)) {
            entry.answer(Err(Refused::Unsent(errno)));
        }
    }

    /// Sends the queue whenever the socket has room again. Dropped and called anew, it goes on where it was.
    async fn send_queued(&self) {
        if lock(&self.wire).queue.is_empty() {
            return self.queued.notified().await;
        }
        if let Ok(mut ready) = self.socket.writable().await {
            let mut wire = lock(&self.wire);
            self.flush(&mut wire);
            if !wire.queue.is_empty() {
                ready.clear_ready();
            }
        }
    }

    /// Lets the supervisor see the end of the connection, upon which it ends everything.
    pub(super) fn hang_up(&self) {
        lock(&self.commands).closed = true;
        let _ = shutdown(self.socket.get_ref(), Shutdown::Write);
    }

    /// Hangs up and waits until nothing is left. What takes too long is left to the keepers, and the supervisor is killed.
    pub(super) async fn close(&self) -> Vec<Living> {
        self.hang_up();
        let mut over = self.over.subscribe();
        if timeout(CLOSE_LIMIT, over.wait_for(|over| *over)).await.is_err() {
            let _ = pidfd_send_signal(self.process.get_ref(), Signal::KILL);
        }
        std::mem::take(&mut lock(&self.commands).ended)
    }
}

impl Wire {
    /// Queues an environment in pieces, in the place of the oldest one, and returns its number.
    fn add_environment(&mut self, environment: &Arc<Vec<OsString>>) -> usize {
        let number = self.oldest;
        self.oldest = (number + 1) % ENVIRONMENTS;
        let mut first = true;
        let mut variables = Vec::new();
        let mut length = 0;
        for variable in environment.iter().map(|text| text.as_bytes()) {
            if length + variable.len() > ENVIRONMENT_PIECE && !variables.is_empty() {
                self.add_piece(number, first, std::mem::take(&mut variables));
                (first, length) = (false, 0);
            }
            variables.push(variable);
            length += variable.len();
        }
        self.add_piece(number, first, variables);
        self.environments[number] = Some(Arc::clone(environment));
        number
    }

    fn add_piece(&mut self, number: usize, first: bool, variables: Vec<&[u8]>) {
        let bytes = Order::Environment { number: number as u64, first, variables }.encode();
        self.queue.push_back(Message { bytes, descriptors: Vec::new(), start: None });
    }
}

impl Entry {
    /// Answers whoever waits for the start. Only the first answer counts.
    fn answer(&mut self, answer: Result<(), Refused>) {
        if let Some(waiting) = self.answer.take() {
            let _ = waiting.send(answer);
        }
    }

    /// Tells how the command ended. Only the first end counts.
    fn exit(&self, status: Status, living: Vec<Living>) {
        self.exited.send_if_modified(|exit| {
            let new = exit.is_none();
            if new {
                *exit = Some(Exit { status, living });
            }
            new
        });
    }
}

/// A descriptor that is readable once the child is dead.
fn process_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// A raw wait status: the low seven bits are the signal, the second byte is the code.
fn status_of(raw: u32) -> Status {
    match raw & 0x7f {
        0 => Status::Code((raw >> 8 & 0xff).cast_signed()),
        signal => Status::Signal(signal.cast_signed()),
    }
}

/// The order that starts a command.
pub(super) fn start_of(id: u64, environment: u64, command: &Command) -> Order<'_> {
    Order::Start(Start {
        id,
        environment,
        umask: command.umask,
        terminal: matches!(command.stdio, Stdio::Terminal(_)),
        apart: command.stdio == Stdio::Apart,
        cwd: command.cwd.as_os_str().as_bytes(),
        program: command.program.as_os_str().as_bytes(),
        argv: command.argv.iter().map(|text| text.as_bytes()).collect(),
    })
}

/// Why there was no start.
pub(super) enum Refused {
    /// The supervisor or the keeper says so.
    Failed(Failure),
    /// It could not be told.
    Unsent(Errno),
    /// Whoever could have said so is gone.
    Lost,
}

/// Nothing here panics with a lock held; if something did, the data would still be whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
