//! The runtime's side of the supervisor: launches it when the first command needs it, and turns starts into [`Running`] commands.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::{io::Errno, process::Signal, termios::tcsetwinsize};
use tokio::{
    io::unix::AsyncFd,
    sync::{oneshot, watch},
    time::timeout,
};

use super::{
    Command, Control, Living, Processes, Running, Size, StartError, Stdio, Unasked,
    link::{Entry, Link, Refused, lock, start_of},
    protocol::{MAX_MESSAGE, Order},
    spawn::{self, Failure, Stage},
    stdio::{Ends, window},
    tree::{self, Input},
};
use crate::{BoxFuture, gate::Permit};

/// How long a start may take. Only a supervisor that is stopped, or a directory on a dead network share, takes longer than some
/// milliseconds; without a limit the call would hang with it.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Bytes that one argument or variable may have, the closing NUL not counted: the kernel's MAX_ARG_STRLEN of 32 pages of 4 KiB.
const MAX_STRING: usize = 128 * 1024 - 1;

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
        let launched = Link::launch(&self.program.path, &self.program.args).map_err(|error| {
            StartError(format!("the supervisor ({}) could not be started: {error}", self.program.path.display()))
        })?;
        Ok(Arc::clone(current.insert(launched)))
    }

    async fn start_command(&self, command: Command) -> Result<Running, StartError> {
        check(&command)?;
        let link = self.link()?;
        let Ends { ours, input, output, errors } = Ends::open(command.stdio).map_err(|error| {
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
        let running =
            Running { output: ours.output, errors: ours.errors, input: ours.input, exit, control: Arc::new(tree) };
        link.send_start(id, &command, [input, output].into_iter().chain(errors).collect());

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

    fn start_unasked(&self, command: Unasked) -> BoxFuture<'_, Result<Running, StartError>> {
        Box::pin(self.start_command(command.into_command()))
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
            #[allow(clippy::disallowed_methods)]
            // The kernel says the same of a missing program and of its missing interpreter.
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
        let known = || self.link.knows(self.id);
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
