//! `toolgate chat`: a conversation. A prompt is read, its run attended to, and so on until the person has had enough.
//!
//! On a terminal that can be drawn on, prompts come from an editor and runs are told on a screen. Everywhere else they are lines: standard
//! input has a prompt on each, the model's words go to standard output, everything else to standard error.

mod commands;
mod editor;
mod story;
mod talk;

use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;
use toolgate_agent::session::{Compacted, RunEnd, RunStatus};
use toolgate_runtime::{
    approver::{Approver, OnAsk, Unattended},
    trace::Observer,
    workspace::Workspace,
};

use self::{
    commands::Command,
    story::Story,
    talk::{Next, Talk},
};
use super::{
    Common, OnAskArg, OutputFormat, block_on,
    deadline::{Deadline, reached},
    model::Model,
    print,
    run::unusual,
    state, terminal,
};
use crate::{
    config::Settings,
    conversation::{Conversation, Opened, With},
    failure::{Failure, INTERRUPTED, LIMIT, RUN_FAILED, TIMEOUT, WAITING},
    models::Chosen,
    state::{Kept, State},
    surroundings::Surroundings,
    wiring,
};

/// Sessions that `/resume` lists; what fits on a screen beside the conversation.
const LISTED: usize = 10;

/// Arguments of `toolgate chat`.
#[derive(Args)]
pub(super) struct Chat {
    #[command(flatten)]
    model: Model,
    /// What happens to a question when standard input is no terminal, so that nobody can answer it [default: deny].
    #[arg(long, value_enum)]
    on_ask: Option<OnAskArg>,
    /// Go on with this workspace's newest session.
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    go_on: bool,
    /// Go on with this session.
    #[arg(short = 'r', long, value_name = "ID")]
    resume: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// A conversation as it stands: the session that is on, if one has begun, and everything that a session needs.
struct Having<'a> {
    chat: &'a Chat,
    surroundings: &'a Surroundings,
    state: State,
    workspace: Workspace,
    talk: Talk,
    approver: Arc<dyn Approver>,
    observer: Arc<dyn Observer>,
    kept: Kept,
    settings: Arc<Settings>,
    /// The model of a session that has not begun, so that what is wrong with it is said at the start.
    model: Option<Chosen>,
    conversation: Option<Conversation>,
    /// How the session's last run ended.
    last: Option<RunEnd>,
}

impl Chat {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        let (state, secrets) = (state(surroundings)?, surroundings.secrets());
        let folder = self.common.workspace.as_deref();
        let (mut opened, mut note) = (None, None);
        let workspace = if let Some(name) = &self.resume {
            let named = Opened::named(state.clone(), name, folder, &secrets)?;
            let workspace = named.workspace.clone();
            opened = Some(named);
            workspace
        } else {
            let workspace = wiring::workspace(folder)?;
            if self.go_on {
                opened = Opened::newest(state.clone(), &workspace, &secrets).transpose()?;
                note = opened
                    .is_none()
                    .then_some("note: no session of this workspace can be continued; this is a new one");
            }
            workspace
        };
        note.into_iter().for_each(print::to_person);
        let before = opened.as_ref().map(|opened| opened.kept().clone()).unwrap_or_default();
        let settings = Arc::new(self.common.settings(self.model.flags()?, workspace.root(), surroundings)?);
        let kept = Kept {
            approve: Some(settings.mode(before.approve)),
            waits: self.on_ask.map_or(before.waits, |on_ask| on_ask == OnAskArg::Wait),
            ..self.model.kept(&before)
        };
        let rebuilt = opened.as_ref().and_then(|opened| opened.rebuilt.as_ref());
        let model = self.model.choose(rebuilt, &kept, &settings, surroundings)?;
        model.note.iter().for_each(|note| print::to_person(note));
        block_on(async {
            let mode = settings.mode(kept.approve);
            let talk = Talk::new(mode, Arc::new(settings.policy()), state.history_file(), surroundings)?;
            let approver: Arc<dyn Approver> = if terminal::stdin_is_terminal() {
                talk.attendant.desk.clone()
            } else {
                let on_ask = if kept.waits { OnAsk::Wait } else { OnAsk::Deny };
                Arc::new(Unattended::new(mode, settings.policy(), on_ask))
            };
            let fault = surroundings.ordered_fault();
            let observer: Arc<dyn Observer> = match talk.screen() {
                Some(screen) => Arc::new(Story::new(screen, fault)),
                None => {
                    let printer = print::Printer::new(OutputFormat::Text, fault).styled(talk.ink);
                    Arc::new(if terminal::stdin_is_terminal() { printer.beside_questions() } else { printer })
                }
            };
            let (model, conversation, last) = (Some(model), None, None);
            let chat = &self;
            let mut having = Having {
                chat,
                surroundings,
                state,
                workspace,
                talk,
                approver,
                observer,
                kept,
                settings,
                model,
                conversation,
                last,
            };
            if let Some(opened) = opened {
                having.begin(opened)?;
            }
            let code = having.converse().await;
            let ended = having.end().await;
            let code = code?;
            ended?;
            Ok(code)
        })
    }
}

impl Having<'_> {
    /// Prompt after prompt. Gives the exit code.
    async fn converse(&mut self) -> Result<u8, Failure> {
        let mut code = 0;
        loop {
            if self.talk.attendant.is_over {
                return Ok(if self.talk.attendant.is_ended { INTERRUPTED } else { code });
            }
            match self.talk.next().await {
                Next::Said(line) if line.trim().is_empty() => {}
                Next::Said(line) => match Command::of(&line) {
                    Some(Command::Quit) => return Ok(0),
                    Some(command) => self.obey(command).await?,
                    None => {
                        let status = self.run(line.trim()).await?;
                        // A person has seen how each run ended; whoever reads a pipe's exit code has not.
                        if !self.talk.is_interactive() {
                            code = status;
                        }
                        if code == WAITING {
                            return Ok(code);
                        }
                    }
                },
                Next::Quit => return Ok(code),
                Next::Ended => return Ok(INTERRUPTED),
            }
        }
    }

    /// One run, from the prompt to how it ended.
    async fn run(&mut self, prompt: &str) -> Result<u8, Failure> {
        self.begun()?;
        let Some(conversation) = &mut self.conversation else { return Ok(RUN_FAILED) };
        let interrupt = CancellationToken::new();
        let deadline = Deadline::start(self.settings.timeout_ms, &interrupt);
        let steering = conversation.session.steering();
        let mut hear = self.talk.hearing(steering);
        let run = conversation.run(Some(prompt), &interrupt);
        let end = self.talk.attendant.attend(&interrupt, run, &mut hear).await?;
        if let Some(warning) = conversation.warning() {
            self.talk.tell_once(&warning);
        }
        conversation.seal(&end)?;
        let (mut code, mut line) = outcome(&end);
        if deadline.passed() && code == INTERRUPTED {
            (code, line) = (TIMEOUT, Some(reached(self.settings.timeout_ms)));
        }
        line.into_iter().for_each(|line| self.talk.tell(&line));
        self.last = Some(end);
        Ok(code)
    }

    async fn obey(&mut self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Help => self.talk.tell(&commands::help()),
            Command::Mode(None) => self.talk.tell(&talk::modes(self.talk.attendant.desk.mode())),
            Command::Mode(Some(word)) => {
                let line = match self.settings.record.managed("permissions.mode") {
                    Some(source) => format!("the mode is set for everybody ({source})"),
                    None => talk::change_mode(&self.talk.attendant.desk, &word),
                };
                self.talk.tell(&line);
            }
            Command::Tools => {
                self.begun()?;
                let specs = self.conversation.iter().flat_map(|conversation| conversation.environment.specs());
                let lines: Vec<String> = specs
                    .map(|spec| {
                        let what = spec.description.split(['.', '\n']).next().unwrap_or_default();
                        format!("{:<16} {what}", spec.name)
                    })
                    .collect();
                self.talk.tell(&lines.join("\n"));
            }
            Command::Compact => self.compact().await?,
            Command::Resume(None) => self.list(),
            Command::Resume(Some(name)) => self.switch(&name).await?,
            Command::Trace => match &self.conversation {
                Some(conversation) => self.talk.tell(&trace_line(conversation)),
                None => self.talk.tell("nothing is written yet: the session begins with the first prompt"),
            },
            Command::Unknown(word, near) => {
                self.talk.tell(&format!("there is no command {word}; the nearest is {near}, and /help shows all"));
            }
            Command::Quit => {}
        }
        Ok(())
    }

    async fn compact(&mut self) -> Result<(), Failure> {
        let Some(conversation) = &mut self.conversation else {
            self.talk.tell("nothing has been said yet");
            return Ok(());
        };
        let interrupt = CancellationToken::new();
        let compact = conversation.session.compact(&interrupt);
        let done = self.talk.attendant.attend(&interrupt, compact, &mut |_| {}).await?;
        match done {
            Compacted::Nothing(why) => self.talk.tell(&format!("there is nothing to make shorter: {why}")),
            Compacted::Failed(error) => self.talk.tell(&format!("error: {error}\nhint: {}", error.hint())),
            _ => {}
        }
        conversation.written()
    }

    /// The sessions that this workspace has.
    fn list(&self) {
        let entries = self.state.runs_of(self.workspace.root());
        let mut lines: Vec<String> = entries
            .iter()
            .take(LISTED)
            .map(|entry| {
                let when = entry.updated.get(..16).unwrap_or(&entry.updated).replace('T', " ");
                format!("{}  {when}  {}", entry.session_id, entry.status)
            })
            .collect();
        lines.push(if lines.is_empty() {
            "this workspace has no sessions yet".into()
        } else {
            "/resume ID goes on with one of them; the end of its id will do".into()
        });
        self.talk.tell(&lines.join("\n"));
    }

    /// Goes on with another session; the one that is on is closed and sealed first. A session that cannot be opened changes nothing.
    async fn switch(&mut self, name: &str) -> Result<(), Failure> {
        let entries = self.state.runs_of(self.workspace.root());
        let fitting: Vec<&str> =
            entries.iter().map(|entry| entry.session_id.as_str()).filter(|id| id.ends_with(name)).collect();
        let name = if let [one] = fitting[..] { one } else { name };
        if self.conversation.as_ref().is_some_and(|conversation| conversation.entry().session_id == name) {
            self.talk.tell("that session is the one that is on");
            return Ok(());
        }
        match Opened::named(self.state.clone(), name, None, &self.surroundings.secrets()) {
            Err(failure) => self.talk.tell(&failure.to_string()),
            // Its project has rules of its own, and this conversation's are in force.
            Ok(opened) if opened.workspace.root() != self.workspace.root() => self
                .talk
                .tell(&format!("that session is of another workspace; toolgate chat -r {} goes on there", opened.id())),
            Ok(opened) => {
                self.end().await?;
                self.begin(opened)?;
            }
        }
        Ok(())
    }

    /// A session that can run: the one that is on, or a new one.
    fn begun(&mut self) -> Result<(), Failure> {
        if self.conversation.is_some() {
            return Ok(());
        }
        let opened = Opened::new(self.state.clone(), self.workspace.clone(), &self.surroundings.secrets());
        self.begin(opened)
    }

    fn begin(&mut self, mut opened: Opened) -> Result<(), Failure> {
        let model = match self.model.take() {
            Some(model) => model,
            None => self.chat.model.choose(opened.rebuilt.as_ref(), &self.kept, &self.settings, self.surroundings)?,
        };
        opened.hide(&self.settings.secrets(self.surroundings));
        if let Some(rebuilt) = &opened.rebuilt {
            let open = rebuilt.unanswered().len();
            let open = if open > 0 {
                format!("; {open} of its calls have no result yet and come first")
            } else {
                String::new()
            };
            self.talk.tell(&format!("session {}{open}", opened.id()));
        }
        let with = With {
            model,
            settings: self.settings.clone(),
            approver: self.approver.clone(),
            observer: self.observer.clone(),
            kept: Kept { approve: Some(self.talk.attendant.desk.mode()), ..self.kept.clone() },
        };
        self.conversation = Some(Conversation::begin(opened, with, self.surroundings)?);
        Ok(())
    }

    /// The session that is on is over: what it started ends, and its record is sealed.
    async fn end(&mut self) -> Result<(), Failure> {
        let Some(mut conversation) = self.conversation.take() else { return Ok(()) };
        conversation.session.close().await;
        conversation.keep_mode(self.talk.attendant.desk.mode());
        let status = self.last.take().map_or("completed", |end| end.status.as_str());
        conversation.close(status)?;
        self.talk.tell(&trace_line(&conversation));
        Ok(())
    }
}

fn trace_line(conversation: &Conversation) -> String {
    let entry = conversation.entry();
    format!("trace: {} (head {})", entry.trace.display(), entry.head.as_deref().unwrap_or_default())
}

/// How a run ended: the exit code that says so, and a line for the person where the answer alone does not.
fn outcome(end: &RunEnd) -> (u8, Option<String>) {
    match &end.status {
        RunStatus::Completed => (0, unusual(end.stop)),
        RunStatus::Waiting(keys) => {
            let open: Vec<&str> = keys.iter().map(|key| key.call.as_str()).collect();
            (
                WAITING,
                Some(format!(
                    "waiting for an answer: {}\nhint: toolgate chat -c asks again at a terminal",
                    open.join(", ")
                )),
            )
        }
        RunStatus::Limit(limit) => (LIMIT, Some(format!("stopped after {limit} model requests (--max-turns)"))),
        RunStatus::Failed(error) => (RUN_FAILED, Some(format!("error: {error}\nhint: {}", error.hint()))),
        RunStatus::Interrupted => (INTERRUPTED, Some("stopped; say how to go on".into())),
        RunStatus::Stopped(reason) => (RUN_FAILED, Some(format!("stopped: {reason}"))),
    }
}
