//! The runtime's side of the supervisor: launches it, sends it orders, and turns what is reported into [`Running`] commands.
//!
//! One connection ([`Link`]) belongs to one supervisor process. One task attends to it: it receives reports, sends what did not fit
//! into the socket, and reaps the process. The task ends with the connection, which is when the supervisor and all of its keepers
//! are gone, so the end of the connection means that nothing is left of any command.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    pin::Pin,
    process::Child,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, shutdown, socketpair, sockopt},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::unix::pipe,
    sync::{Notify, oneshot, watch},
    time::timeout,
};

use super::{
    Command, Control, Exit, Living, Processes, Running, Size, StartError, Status, Stdio,
    login_env::LoginShell,
    protocol::{self, ENVIRONMENTS, MAX_MESSAGE, MAX_REPORT, Order, Report, Start},
    spawn::{self, Failure, Stage},
    tree::{self, Input},
};
use crate::{BoxFuture, gate::Permit};

/// What the supervisor is given to end everything: the second after SIGTERM, and what SIGKILL takes on a busy machine.
const CLOSE_LIMIT: Duration = Duration::from_millis(2500);

/// How long a start may take. Only a supervisor that is stopped, or a directory on a dead network share, takes longer than some
/// milliseconds; without a limit the call would hang with it.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Bytes that one argument or variable may have, the closing NUL not counted: the kernel's MAX_ARG_STRLEN of 32 pages of 4 KiB.
const MAX_STRING: usize = 128 * 1024 - 1;

/// Bytes of variables in one message, so that the supervisor's buffer stays mostly untouched. One longer variable goes alone.
const ENVIRONMENT_PIECE: usize = 32 * 1024;

/// Bytes asked for as the send buffer; the kernel gives what its limit allows. Some starts then fit at once.
const SEND_BUFFER: usize = 1024 * 1024;

/// How the supervisor is started: a program whose `main` calls [`super::host::supervise`] when it is given these arguments, as a
/// rule the current executable and a hidden subcommand.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable's path.
    pub path: PathBuf,
    /// Its arguments, the name not counted.
    pub args: Vec<OsString>,
}

/// Starts commands by a supervisor process, which is launched when the first command needs it. Dropping it ends everything that it
/// started, without waiting.
pub struct Supervisor {
    program: Program,
    link: Mutex<Option<Arc<Link>>>,
}

impl Supervisor {
    /// One that launches this program.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self { program, link: Mutex::new(None) }
    }

    /// Launches the supervisor now, so that the first command need not wait for it. A failure is told to the first command. Must be
    /// called within a tokio runtime.
    pub fn warm(&self) {
        let _ = self.link();
    }

    /// The connection to a supervisor that lives.
    fn link(&self) -> Result<Arc<Link>, StartError> {
        let mut current = lock(&self.link);
        if let Some(link) = current.as_ref().filter(|link| link.serves()) {
            return Ok(Arc::clone(link));
        }
        let launched = Link::launch(&self.program).map_err(|error| {
            StartError(format!("the supervisor ({}) could not be started: {error}", self.program.path.display()))
        })?;
        Ok(Arc::clone(current.insert(launched)))
    }

    async fn start_command(&self, command: Command) -> Result<Running, StartError> {
        check(&command)?;
        let link = self.link()?;
        let Ends { ours, input, output } = Ends::open(command.stdio).map_err(|error| {
            StartError(format!("{}: no pipe or terminal for it: {error}", command.program.display()))
        })?;
        let stdin = (command.stdio != Stdio::NoInput).then(|| Input::of(&input)).transpose().ok().flatten();

        let keeper = Arc::new(AtomicU32::new(0));
        let (exited, exit) = watch::channel(None);
        let (answer, answered) = oneshot::channel();
        let id = link.register(Entry { keeper: Arc::clone(&keeper), exited, answer: Some(answer) })?;
        let tree =
            Tree { link: Arc::clone(&link), id, keeper, ended: AtomicBool::new(false), terminal: ours.terminal, stdin };
        // From here on, leaving this function early drops `running`, and that ends whatever has been started.
        let running = Running { output: ours.output, input: ours.input, exit, control: Arc::new(tree) };
        link.send_start(id, &command, input, output);

        match timeout(START_LIMIT, answered).await {
            Ok(Ok(Ok(()))) => Ok(running),
            Ok(Ok(Err(refused))) => Err(explain(refused, &command)),
            Ok(Err(_)) => Err(explain(Refused::Lost, &command)),
            Err(_) => Err(StartError(format!(
                "{}: the supervisor did not answer within {} seconds",
                command.program.display(),
                START_LIMIT.as_secs()
            ))),
        }
    }
}

impl Processes for Supervisor {
    fn start<'a>(&'a self, _permit: &'a Permit, command: Command) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(self.start_command(command))
    }

    fn read_login<'a>(
        &'a self,
        login: &'a LoginShell,
        env: Vec<OsString>,
    ) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(self.start_command(login.command(env)))
    }

    fn close(&self) -> BoxFuture<'_, Vec<Living>> {
        Box::pin(async move {
            let link = lock(&self.link).take();
            match link {
                Some(link) => link.close().await,
                None => Vec::new(),
            }
        })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(link) = lock(&self.link).take() {
            link.hang_up();
        }
    }
}

/// Refuses what could not be passed on, with a reason that names it.
fn check(command: &Command) -> Result<(), StartError> {
    let program = command.program.display();
    for (what, path) in [("program", &command.program), ("working directory", &command.cwd)] {
        if !path.is_absolute() {
            return Err(StartError(format!("the {what} {} is not an absolute path", path.display())));
        }
    }
    let arguments =
        command.argv.iter().enumerate().map(|(index, text)| (format!("argument {index}"), text.as_os_str()));
    let variables = command.env.iter().map(|text| (format!("the variable {}", name_of(text)), text.as_os_str()));
    let paths = [&command.program, &command.cwd].map(|path| ("a path".to_owned(), path.as_os_str()));
    for (what, text) in arguments.chain(variables).chain(paths) {
        if text.as_bytes().contains(&0) {
            return Err(StartError(format!("{program}: {what} contains a NUL byte")));
        }
        if text.len() > MAX_STRING {
            return Err(StartError(format!(
                "{program}: {what} is too long: it has {} bytes and the system takes at most {MAX_STRING}",
                text.len()
            )));
        }
    }
    let length = start_of(0, 0, command).encode().len();
    if length > MAX_MESSAGE {
        return Err(StartError(format!(
            "{program}: the arguments are too long: they have {length} bytes in all and at most {MAX_MESSAGE} can be passed on"
        )));
    }
    Ok(())
}

/// The name of a `NAME=value`, never the value.
fn name_of(variable: &OsStr) -> String {
    let name = variable.as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
    String::from_utf8_lossy(name.get(..name.len().min(64)).unwrap_or_default()).into_owned()
}

/// The order that starts a command.
fn start_of(id: u64, environment: u64, command: &Command) -> Order<'_> {
    Order::Start(Start {
        id,
        environment,
        umask: command.umask,
        terminal: matches!(command.stdio, Stdio::Terminal(_)),
        cwd: command.cwd.as_os_str().as_bytes(),
        program: command.program.as_os_str().as_bytes(),
        argv: command.argv.iter().map(|text| text.as_bytes()).collect(),
    })
}

/// Why there was no start.
enum Refused {
    /// The supervisor or the keeper says so.
    Failed(Failure),
    /// It could not be told.
    Unsent(Errno),
    /// Whoever could have said so is gone.
    Lost,
}

/// What a person or a model reads.
fn explain(refused: Refused, command: &Command) -> StartError {
    let program = command.program.display();
    let directory = command.cwd.display();
    StartError(match refused {
        Refused::Failed(Failure { stage: Stage::Directory, errno: Errno::NOENT }) => {
            format!("the working directory {directory} does not exist")
        }
        Refused::Failed(Failure { stage: Stage::Directory, errno }) => {
            format!("the working directory {directory} cannot be entered: {errno}")
        }
        Refused::Failed(Failure { stage: Stage::Program, errno: Errno::NOENT }) => {
            if Path::new(&command.program).exists() {
                format!("the program {program} cannot be run: its interpreter does not exist")
            } else {
                format!("the program {program} does not exist")
            }
        }
        Refused::Failed(Failure { stage: Stage::Program, errno }) => {
            format!("the program {program} cannot be run: {errno}")
        }
        Refused::Failed(Failure { stage: Stage::Terminal, errno }) => format!("{program}: no terminal for it: {errno}"),
        Refused::Failed(Failure { stage: Stage::Descriptors, errno }) => {
            format!("{program}: no input or output for it: {errno}")
        }
        Refused::Failed(Failure { stage: Stage::Process, errno }) => format!("{program}: no process for it: {errno}"),
        Refused::Unsent(errno) => format!("{program}: the supervisor could not be reached: {errno}"),
        Refused::Lost => format!("{program}: the supervisor ended before it said that the command runs"),
    })
}

/// One supervisor process and the connection to it.
struct Link {
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
    descriptors: Option<[OwnedFd; 2]>,
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

struct Entry {
    /// The keeper's process id, 0 before it is known and when its tree is gone. Shared with the command's [`Tree`].
    keeper: Arc<AtomicU32>,
    exited: watch::Sender<Option<Exit>>,
    /// Where `start` waits, until it is answered.
    answer: Option<oneshot::Sender<Result<(), Refused>>>,
}

impl Link {
    /// Launches a supervisor and the task that attends to it.
    fn launch(program: &Program) -> io::Result<Arc<Self>> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        sockopt::set_socket_send_buffer_size(&ours, SEND_BUFFER)?;
        // The kernel then tells who sent a report, in process ids of this side.
        sockopt::set_socket_passcred(&ours, true)?;
        let socket = spawn::register(ours)?;

        // An empty environment, no hook before exec and plain descriptors: std can use posix_spawn, which copies no page table.
        let mut child = std::process::Command::new(&program.path)
            .args(&program.args)
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
    fn serves(&self) -> bool {
        !lock(&self.commands).closed
    }

    fn register(&self, entry: Entry) -> Result<u64, StartError> {
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
    fn send_start(&self, id: u64, command: &Command, input: OwnedFd, output: OwnedFd) {
        let mut wire = lock(&self.wire);
        let known = wire.environments.iter().position(|known| {
            known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &command.env) || *known == command.env)
        });
        let number = known.unwrap_or_else(|| wire.add_environment(&command.env));
        let bytes = start_of(id, number as u64, command).encode();
        wire.queue.push_back(Message { bytes, descriptors: Some([input, output]), start: Some(id) });
        self.flush(&mut wire);
    }

    fn send(&self, order: &Order<'_>) {
        let mut wire = lock(&self.wire);
        wire.queue.push_back(Message { bytes: order.encode(), descriptors: None, start: None });
        self.flush(&mut wire);
    }

    /// Sends what the socket takes; the rest is for the attending task.
    fn flush(&self, wire: &mut Wire) {
        while let Some(message) = wire.queue.front() {
            let descriptors = message.descriptors.as_ref().map(|both| both.each_ref().map(AsFd::as_fd));
            let descriptors = descriptors.as_ref().map_or(&[][..], <[_; 2]>::as_slice);
            match protocol::send(self.socket.get_ref(), &message.bytes, descriptors, SendFlags::DONTWAIT) {
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
    fn hang_up(&self) {
        lock(&self.commands).closed = true;
        let _ = shutdown(self.socket.get_ref(), Shutdown::Write);
    }

    /// Hangs up and waits until nothing is left. What takes too long is left to the keepers, and the supervisor is killed.
    async fn close(&self) -> Vec<Living> {
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
        self.queue.push_back(Message { bytes, descriptors: None, start: None });
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

/// What can be done with a started command.
struct Tree {
    link: Arc<Link>,
    id: u64,
    keeper: Arc<AtomicU32>,
    ended: AtomicBool,
    /// The terminal's master.
    terminal: Option<Arc<AsyncFd<OwnedFd>>>,
    /// Which file its standard input is, if it can wait for it.
    stdin: Option<Input>,
}

impl Tree {
    fn keeper(&self) -> Option<u32> {
        Some(self.keeper.load(Ordering::Acquire)).filter(|&pid| pid != 0)
    }
}

impl Control for Tree {
    fn interrupt(&self) {
        match &self.terminal {
            // The terminal knows its foreground, which the keeper does not.
            Some(master) => spawn::signal_terminal(master.get_ref(), Signal::INT),
            None => self.link.send(&Order::Interrupt(self.id)),
        }
    }

    fn end(&self) {
        let known = || lock(&self.link.commands).entries.contains_key(&self.id);
        if !self.ended.swap(true, Ordering::AcqRel) && known() {
            self.link.send(&Order::End(self.id));
        }
    }

    fn resize(&self, size: Size) {
        if let Some(master) = &self.terminal {
            let _ = tcsetwinsize(master.get_ref(), window(size));
        }
    }

    fn waits_for_input(&self) -> bool {
        self.keeper().zip(self.stdin).is_some_and(|(keeper, stdin)| tree::waits_for_input(keeper, stdin))
    }

    fn living(&self) -> Vec<Living> {
        self.keeper().map(tree::living).unwrap_or_default()
    }
}

/// Both ends of what a command reads and writes.
struct Ends {
    ours: Ours,
    input: OwnedFd,
    output: OwnedFd,
}

struct Ours {
    output: Box<dyn AsyncRead + Send + Sync + Unpin>,
    input: Option<Box<dyn AsyncWrite + Send + Sync + Unpin>>,
    terminal: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Ends {
    fn open(stdio: Stdio) -> io::Result<Self> {
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
        let read = Box::new(pipe::Receiver::from_owned_fd(read)?);
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
fn window(size: Size) -> Winsize {
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

/// Nothing here panics with a lock held; if something did, the data would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
