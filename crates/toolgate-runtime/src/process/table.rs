//! The command sessions of one session: at most 64, each with an id that is never used again.
//!
//! Whoever asks for a session that is gone is told how it went: exited, killed, evicted, or never there.

use std::{
    collections::{HashMap, VecDeque},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use toolgate_core::{
    message::{CommandSessionEvent, Event, Extra},
    tool::{Bound, Truncate},
};

use super::{
    Command, Living, Processes, Running, Size, StartError, Status, Stdio, Unasked,
    command_env::EnvPolicy,
    login_env::{Captured, EnvSource},
    session::CommandSession,
};
use crate::{
    gate::Permit,
    ids,
    notice::{Background, MOST_OUTPUT, Notice, Notices},
    output::{Sink, spill::SpillFolder},
    trace::Journal,
};

/// Sessions at the same time (PenguinHarness's number).
const MOST_SESSIONS: usize = 64;

/// Ended sessions that are remembered, so that a late question is answered with what happened. A model asks about recent ones.
const MOST_REMEMBERED: usize = 1024;

/// The terminal of a command that asked for one.
const TERMINAL: Size = Size { rows: 24, cols: 120 };

/// Where bash is on every system that toolgate runs on so far.
pub const DEFAULT_SHELL: &str = "/bin/bash";

/// How the shell is asked for one line: as a login shell, and without reading anybody's files.
const LOGIN: &[&str] = &["-lc"];
const PLAIN: &[&str] = &["--noprofile", "--norc", "-c"];

/// What commands run in.
pub struct CommandSetup {
    /// What starts them; none where commands cannot run.
    pub processes: Option<Arc<dyn Processes>>,
    /// Where their variables come from.
    pub env: EnvSource,
    /// The shell's path.
    pub shell: PathBuf,
    /// Where programs are that a tool may run instead of the shell, by name.
    pub programs: HashMap<String, PathBuf>,
    /// Whether the shell of each command reads the user's profile itself, as a login shell does.
    pub login: bool,
    /// Whether a program can be sent input later; without that it reads end-of-file at once.
    pub takes_input: bool,
    /// Whether a call comes back at the end of its window while the command runs on. `toolgate call` waits instead.
    pub yields: bool,
}

impl CommandSetup {
    /// Commands cannot run.
    pub fn none() -> Self {
        let env = EnvSource::new(Vec::new(), None, EnvPolicy::default());
        Self {
            processes: None,
            env,
            shell: DEFAULT_SHELL.into(),
            programs: HashMap::new(),
            login: false,
            takes_input: false,
            yields: true,
        }
    }

    /// Commands run with these variables, in the usual shell, and can be sent input.
    pub fn new(processes: Arc<dyn Processes>, env: EnvSource) -> Self {
        Self { processes: Some(processes), env, takes_input: true, ..Self::none() }
    }
}

/// A command as a tool wants it.
pub struct Start<'a> {
    /// What runs it.
    pub shell: Shell<'a>,
    /// Where it runs.
    pub cwd: &'a Path,
    /// What it reads.
    pub input: Input,
}

/// What runs a command.
pub enum Shell<'a> {
    /// The usual one, with this line byte for byte.
    Usual(&'a str),
    /// Another program, with its arguments, `argv[0]` included.
    Program(&'a Path, Vec<OsString>),
}

/// What a command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// End-of-file at once.
    Nothing,
    /// What is typed later, where that can be.
    Typed,
    /// A terminal.
    Terminal,
}

/// The command sessions of one session.
pub struct CommandSessions {
    setup: CommandSetup,
    /// Where unread output goes that is too much for memory.
    spills: Option<SpillFolder>,
    journal: Arc<Journal>,
    notices: Arc<Notices>,
    table: Mutex<Table>,
    /// The variables without and with a terminal: made once and shared, so that the supervisor is sent them once.
    envs: [OnceLock<Arc<Vec<OsString>>>; 2],
}

#[derive(Default)]
struct Table {
    open: HashMap<String, Slot>,
    gone: HashMap<String, Gone>,
    order: VecDeque<String>,
    /// Counts uses; the least is the least recently used.
    clock: u64,
    closed: bool,
}

struct Slot {
    session: Arc<CommandSession>,
    used: u64,
    /// A call is looking at it now.
    watched: u32,
}

/// How a session that is no longer there went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// It ended and its output was read.
    Exited(Status),
    /// Somebody ended it.
    Killed(&'static str),
    /// It had to make room.
    Evicted,
}

/// A session in use by one call. Dropping it gives the session back.
pub struct Held<'a> {
    table: &'a CommandSessions,
    session: Arc<CommandSession>,
}

impl std::ops::Deref for Held<'_> {
    type Target = CommandSession;

    fn deref(&self) -> &CommandSession {
        &self.session
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.table.table().open.get_mut(&self.session.id) {
            slot.watched -= 1;
        }
    }
}

impl CommandSessions {
    /// No session is open yet, and nothing has been started.
    pub fn new(setup: CommandSetup, spills: Option<SpillFolder>, journal: Arc<Journal>, notices: Arc<Notices>) -> Self {
        Self { setup, spills, journal, notices, table: Mutex::default(), envs: Default::default() }
    }

    /// Whether a call comes back while its command runs on.
    pub fn yields(&self) -> bool {
        self.setup.yields
    }

    /// Where the first of these programs is that is there.
    pub fn program(&self, names: &[&str]) -> Option<&Path> {
        names.iter().find_map(|name| self.setup.programs.get(*name)).map(PathBuf::as_path)
    }

    /// Reads the login environment ahead of the first command. Meant for when the first model request has left.
    pub async fn prepare(&self) {
        if let Some(processes) = &self.setup.processes {
            self.setup.env.captured(processes.as_ref()).await;
        }
    }

    /// Why commands do not see the user's login environment, where it was tried and they do not.
    pub fn warning(&self) -> Option<String> {
        self.setup.env.read_already().and_then(|captured| captured.warning.clone())
    }

    /// Starts what the permit allows.
    ///
    /// # Errors
    /// What, where and why, when it cannot start.
    pub async fn start(&self, permit: &Permit, start: Start<'_>) -> Result<Held<'_>, StartError> {
        let Some(processes) = &self.setup.processes else {
            return Err(StartError("commands cannot run here: no supervisor is configured".into()));
        };
        {
            let table = self.table();
            if table.closed {
                return Err(StartError("the session has ended; no command can start".into()));
            }
            if table.open.len() >= MOST_SESSIONS && table.evictable().is_none() {
                return Err(StartError(format!(
                    "{MOST_SESSIONS} commands are running and being waited for; wait for one of them to end"
                )));
            }
        }
        let captured = self.setup.env.captured(processes.as_ref()).await;
        let stdio = match start.input {
            Input::Terminal => Stdio::Terminal(TERMINAL),
            Input::Typed if self.setup.takes_input => Stdio::Pipes,
            Input::Typed | Input::Nothing => Stdio::NoInput,
        };
        let command = self.command(captured, start, stdio);
        let running = processes.start(permit, command).await?;
        let session = CommandSession::new(ids::process_id(), running, stdio, self.spills.clone());
        self.note("started", &session.id, Some(permit.call().id()), None);
        Ok(self.insert(session))
    }

    /// Starts the program that the permit allows, for one exchange: it is no command session, and nobody comes back to it.
    ///
    /// # Errors
    /// What, where and why, when it cannot start.
    pub(crate) async fn start_program(
        &self,
        permit: &Permit,
        shell: Shell<'_>,
        cwd: &Path,
    ) -> Result<Running, StartError> {
        let (processes, command) = self.once(shell, cwd).await?;
        processes.start(permit, command).await
    }

    /// Starts a hook, which no call asks for.
    ///
    /// # Errors
    /// What, where and why, when it cannot start.
    pub(crate) async fn start_hook(&self, shell: Shell<'_>, cwd: &Path) -> Result<Running, StartError> {
        let (processes, command) = self.once(shell, cwd).await?;
        processes.start_unasked(Unasked(command)).await
    }

    /// A command of one exchange, and what starts it.
    async fn once(&self, shell: Shell<'_>, cwd: &Path) -> Result<(&Arc<dyn Processes>, Command), StartError> {
        let processes = self.setup.processes.as_ref();
        let processes =
            processes.ok_or_else(|| StartError("no program can run here: no supervisor is configured".into()))?;
        if self.table().closed {
            return Err(StartError("the session has ended; no program can start".into()));
        }
        let captured = self.setup.env.captured(processes.as_ref()).await;
        let start = Start { shell, cwd, input: Input::Nothing };
        Ok((processes, self.command(captured, start, Stdio::Apart)))
    }

    fn command(&self, captured: &Captured, start: Start<'_>, stdio: Stdio) -> Command {
        let terminal = matches!(stdio, Stdio::Terminal(_));
        let env =
            self.envs[usize::from(terminal)].get_or_init(|| Arc::new(self.setup.env.command_env(captured, terminal)));
        let (program, argv) = match start.shell {
            Shell::Program(program, argv) => (program, argv),
            Shell::Usual(line) => {
                let (shell, options) = (self.setup.shell.as_path(), if self.setup.login { LOGIN } else { PLAIN });
                let name = shell.file_name().unwrap_or(shell.as_os_str()).to_owned();
                (
                    shell,
                    std::iter::once(name).chain(options.iter().copied().chain([line]).map(OsString::from)).collect(),
                )
            }
        };
        Command {
            program: program.to_owned(),
            argv,
            env: env.clone(),
            cwd: start.cwd.to_owned(),
            umask: captured.umask,
            stdio,
        }
    }

    /// The session of this id, for one call.
    ///
    /// # Errors
    /// How it went, where it is gone; `None` where it never was.
    pub fn get(&self, id: &str) -> Result<Held<'_>, Option<Gone>> {
        let mut table = self.table();
        table.clock += 1;
        let clock = table.clock;
        match table.open.get_mut(id) {
            Some(slot) => {
                slot.used = clock;
                slot.watched += 1;
                Ok(Held { table: self, session: slot.session.clone() })
            }
            None => Err(table.gone.get(id).cloned()),
        }
    }

    /// The session ended and everything it printed was read. What it left running lives until the session ends.
    pub fn finish(&self, session: &CommandSession, status: Status, alone: bool) {
        self.note("exited", &session.id, None, Some(status.to_string()));
        if alone {
            self.remove(&session.id, Gone::Exited(status));
        }
    }

    /// The call came back and the command runs on.
    pub fn yielded(&self, session: &CommandSession) {
        self.note("yielded", &session.id, None, None);
    }

    /// From here on nobody needs to look: when the command has ended, a notice says so, with what nobody has read of it. Who ends it, or
    /// is told of its end by looking, has been told.
    pub fn tell_end(self: &Arc<Self>, session: &Held<'_>, label: String) {
        let (table, session) = (self.clone(), session.session.clone());
        tokio::spawn(async move {
            let out =
                Arc::new(Sink::new(Bound::characters(MOST_OUTPUT as i64, Truncate::Tail), None, "", Box::new(|_| {})));
            let exit = session.end_unwatched(&out).await;
            if !table.table().open.contains_key(&session.id) {
                return;
            }
            table.finish(&session, exit.status, exit.living.is_empty());
            table.notices.push(Notice {
                kind: Background::Command,
                id: session.id.clone(),
                label,
                failed: exit.status != Status::Code(0),
                detail: Some(exit.status.to_string()),
                output: out.close(&[]),
            });
        });
    }

    /// Ends one session, whole tree.
    pub fn kill(&self, id: &str, why: &'static str) {
        if let Some(session) = self.remove(id, Gone::Killed(why)) {
            session.end();
            self.note("killed", id, None, Some(why.into()));
        }
    }

    /// Ends all of them.
    pub async fn end_all(&self, why: &'static str) {
        let ids: Vec<String> = self.table().open.keys().cloned().collect();
        for id in ids {
            self.kill(&id, why);
        }
    }

    /// Ends all of them, lets none start any more, and waits until everything that was started is gone. Returns what had to be ended.
    pub async fn close(&self) -> Vec<Living> {
        self.table().closed = true;
        self.end_all("the session ended").await;
        match &self.setup.processes {
            Some(processes) => processes.close().await,
            None => Vec::new(),
        }
    }

    fn insert(&self, session: CommandSession) -> Held<'_> {
        let session = Arc::new(session);
        let evicted = {
            let mut table = self.table();
            table.clock += 1;
            let slot = Slot { session: session.clone(), used: table.clock, watched: 1 };
            let evicted = (table.open.len() >= MOST_SESSIONS).then(|| table.evictable()).flatten();
            table.open.insert(session.id.clone(), slot);
            evicted
        };
        if let Some(id) = evicted
            && let Some(old) = self.remove(&id, Gone::Evicted)
        {
            old.end();
            self.note("killed", &id, None, Some("it made room for a newer one".into()));
        }
        Held { table: self, session }
    }

    fn remove(&self, id: &str, how: Gone) -> Option<Arc<CommandSession>> {
        let mut table = self.table();
        let slot = table.open.remove(id)?;
        table.gone.insert(id.to_owned(), how);
        table.order.push_back(id.to_owned());
        if table.order.len() > MOST_REMEMBERED
            && let Some(oldest) = table.order.pop_front()
        {
            table.gone.remove(&oldest);
        }
        Some(slot.session)
    }

    fn note(&self, state: &str, id: &str, call: Option<&str>, detail: Option<String>) {
        let event = CommandSessionEvent {
            state: state.to_owned(),
            process_id: id.to_owned(),
            tool_call_id: call.map(str::to_owned),
            detail,
            extra: Extra::new(),
        };
        // A trace that cannot be written stays broken, and the record of the call's result reports it.
        let _ = self.journal.record(Event::CommandSession(event));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A finished session goes first, else the least recently used one that no call is looking at.
    fn evictable(&self) -> Option<String> {
        self.open
            .values()
            .filter(|slot| slot.watched == 0)
            .min_by_key(|slot| (slot.session.exit().is_none(), slot.used))
            .map(|slot| slot.session.id.clone())
    }
}
