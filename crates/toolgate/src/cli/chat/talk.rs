//! Both sides of the terminal between and during runs: where the next prompt comes from, and where lines for the person go.

use std::{path::PathBuf, sync::Arc};

use tokio::task::spawn_blocking;
use toolgate_agent::session::Steering;
use toolgate_core::{approval::ApprovalMode, policy::Policy};

use super::{
    commands::{self, Command},
    editor::{Edited, Editor},
};
use crate::{
    cli::{
        ask::Desk,
        attend::{Attendant, Face},
        draft::Draft,
        ink::Ink,
        print,
        screen::Screen,
        signals::{Caught, Signals},
        terminal::{self, Terminal},
    },
    failure::Failure,
    surroundings::Surroundings,
};

/// What a person is told before Ctrl-C ends the conversation.
const CONFIRM: &str = "Ctrl-C again quits, so does Ctrl-D";

/// What comes next.
pub(super) enum Next {
    Said(String),
    /// The person has had enough.
    Quit,
    /// The program is to end.
    Ended,
}

/// The terminal, or what stands in its place.
pub(super) struct Talk {
    pub(super) attendant: Attendant,
    pub(super) ink: Ink,
    history: PathBuf,
    /// Made when the first prompt is awaited.
    editor: Option<Editor>,
    /// Whether Ctrl-C was pressed once with nothing to stop or clear.
    confirms: bool,
    told: Option<String>,
}

impl Talk {
    pub(super) fn new(
        mode: ApprovalMode,
        policy: Arc<Policy>,
        history: PathBuf,
        surroundings: &Surroundings,
    ) -> Result<Self, Failure> {
        let ink = Ink::new(surroundings, terminal::stdout_is_terminal());
        let is_drawn_on = terminal::stdin_is_terminal() && terminal::stdout_is_terminal() && !surroundings.is_dumb();
        let face = if is_drawn_on { Face::Live(Arc::new(Screen::new(ink)), Draft::default()) } else { Face::Plain };
        let desk = Arc::new(Desk::new(mode, policy));
        let attendant = Attendant::new(desk, Signals::new()?, face, Terminal::open(is_drawn_on));
        Ok(Self { attendant, ink, history, editor: None, confirms: false, told: None })
    }

    /// The screen, where there is one.
    pub(super) fn screen(&self) -> Option<Arc<Screen>> {
        match &self.attendant.face {
            Face::Plain => None,
            Face::Live(screen, _) => Some(screen.clone()),
        }
    }

    /// Whether a person sits there.
    pub(super) fn is_interactive(&self) -> bool {
        self.attendant.terminal.is_some()
    }

    /// A line for the person.
    pub(super) fn tell(&self, text: &str) {
        match &self.attendant.face {
            Face::Plain => print::to_person(text),
            Face::Live(screen, _) => screen.line(text),
        }
    }

    /// A line that is not said twice in a row.
    pub(super) fn tell_once(&mut self, text: &str) {
        if self.told.as_deref() != Some(text) {
            self.tell(text);
            self.told = Some(text.to_owned());
        }
    }

    /// The next prompt or command.
    pub(super) async fn next(&mut self) -> Next {
        let next = loop {
            match self.screen() {
                Some(screen) => match self.edited(&screen).await {
                    Ok(Edited::Prompt(text)) => break Next::Said(text),
                    Ok(Edited::Interrupt(true)) => self.confirms = false,
                    Ok(Edited::Interrupt(false)) if self.confirms => break Next::Quit,
                    Ok(Edited::Interrupt(false)) => self.confirm(),
                    Ok(Edited::End) => break Next::Quit,
                    Err(None) => break Next::Ended,
                    Err(Some(error)) => {
                        print::to_person(&format!(
                            "note: the line editor cannot be used here ({error}); each line is a prompt"
                        ));
                        self.attendant.face = Face::Plain;
                    }
                },
                None => {
                    if self.is_interactive() {
                        print::prompt(&format!("{} > ", self.attendant.desk.mode()));
                    }
                    tokio::select! {
                        line = self.attendant.input.line() => break line.map_or(Next::Quit, Next::Said),
                        caught = self.attendant.signals.next() => match caught {
                            Caught::Interrupt if self.is_interactive() && !self.confirms => self.confirm(),
                            Caught::Interrupt if self.is_interactive() => break Next::Quit,
                            _ => break Next::Ended,
                        },
                    }
                }
            }
        };
        self.confirms = false;
        next
    }

    fn confirm(&mut self) {
        self.confirms = true;
        match &self.attendant.face {
            Face::Plain => print::to_person(&format!("\n{CONFIRM}")),
            Face::Live(screen, _) => screen.aside(CONFIRM),
        }
    }

    /// One line of the editor; `Err(None)` when the program is to end meanwhile.
    async fn edited(&mut self, screen: &Screen) -> Result<Edited, Option<String>> {
        let (history, ink) = (self.history.clone(), self.ink);
        let mut editor = self.editor.take().unwrap_or_else(|| Editor::new(&history, ink));
        let begun = match &mut self.attendant.face {
            Face::Live(_, draft) => draft.take(),
            Face::Plain => String::new(),
        };
        let label = self.attendant.desk.mode().to_string();
        screen.hold();
        let reading = spawn_blocking(move || {
            let edited = editor.read(&label, &begun);
            (editor, edited)
        });
        let read = tokio::select! {
            read = reading => Some(read),
            _ = self.attendant.signals.next() => None,
        };
        if read.is_none()
            && let Some(terminal) = &self.attendant.terminal
        {
            // The thread still waits for keys and will not come back; the modes that it set are taken back for it.
            terminal.restore();
            screen.release();
            screen.line("");
            return Err(None);
        }
        screen.release();
        match read {
            Some(Ok((editor, edited))) => {
                self.editor = Some(editor);
                edited.map_err(Some)
            }
            Some(Err(panic)) => {
                if let Some(terminal) = &self.attendant.terminal {
                    terminal.restore();
                }
                Err(Some(panic.to_string()))
            }
            None => Err(None),
        }
    }

    /// What becomes of lines that are typed while a run is on: commands that can be obeyed at once, and things to say to the model.
    pub(super) fn hearing(&self, steering: Steering) -> impl FnMut(&str) + 'static {
        let (desk, screen) = (self.attendant.desk.clone(), self.screen());
        move |line| {
            let told = match Command::of(line) {
                None if line.trim().is_empty() => return,
                None if steering.say(line).is_some() => format!("+ {line}"),
                None => format!("not heard, the run is over: {line}"),
                Some(Command::Help) => commands::help(),
                Some(Command::Mode(None)) => modes(desk.mode()),
                Some(Command::Mode(Some(word))) => change_mode(&desk, &word),
                Some(Command::Unknown(word, near)) => format!("there is no command {word}; the nearest is {near}"),
                Some(_) => "that has to wait until the run is over; Ctrl-C stops it".into(),
            };
            match &screen {
                Some(screen) => screen.reply(&told),
                None => print::to_person(&told),
            }
        }
    }
}

/// The modes, and which of them is in force.
pub(super) fn modes(now: ApprovalMode) -> String {
    let all: Vec<&str> = ApprovalMode::ALL.iter().map(|mode| mode.as_str()).collect();
    format!("the mode is {now}; /mode MODE changes it: {}", all.join(", "))
}

/// Another mode, or why not.
pub(super) fn change_mode(desk: &Desk, word: &str) -> String {
    match word.parse::<ApprovalMode>() {
        Ok(mode) => {
            desk.set_mode(mode);
            format!("the mode is {mode} from now on")
        }
        Err(error) => error,
    }
}
