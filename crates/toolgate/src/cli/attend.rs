//! Attending to a run: while it goes on, questions are put and answered, keys heard, signals obeyed.
//!
//! A question is shown first; only after [`SETTLE`], when everything typed until then was forgotten, the line opens on which it is
//! answered. So keys that were meant for something else never answer.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use toolgate_core::approval::ApprovalKey;

use super::{
    ask::{ANSWER, Answer, Desk, question},
    draft::{Draft, Typed},
    input::{Heard, Input},
    print,
    screen::Screen,
    signals::{Caught, Signals},
    terminal::Terminal,
};
use crate::failure::INTERRUPTED;

/// How long a question stands before its answer is heard: long enough to see that something new is there and to stop typing.
const SETTLE: Duration = Duration::from_millis(400);

/// How often the screen shows that time passes.
const TICK: Duration = Duration::from_millis(200);

/// Where the person looks, and how what they type comes here.
pub(super) enum Face {
    /// Lines: questions go to standard error, the terminal itself edits the answer. Between questions nothing is read.
    Plain,
    /// A screen with a line of its own for what is typed, at any time.
    Live(Arc<Screen>, Draft),
}

/// Who attends.
pub(super) struct Attendant {
    pub(super) desk: Arc<Desk>,
    pub(super) input: Input,
    pub(super) signals: Signals,
    pub(super) face: Face,
    pub(super) terminal: Option<Terminal>,
    /// SIGTERM or SIGHUP came, or nobody types any more: there is to be no further run.
    pub(super) is_over: bool,
    /// It was a signal.
    pub(super) is_ended: bool,
    asking: Option<Asking>,
}

/// A question that is on the screen.
struct Asking {
    key: ApprovalKey,
    /// From when on answers are heard; none once they are.
    opens: Option<Instant>,
}

impl Attendant {
    pub(super) fn new(desk: Arc<Desk>, signals: Signals, face: Face, terminal: Option<Terminal>) -> Self {
        Self { desk, input: Input::new(), signals, face, terminal, is_over: false, is_ended: false, asking: None }
    }

    /// Does the work and attends to it. `hear` takes lines that answer no question; `interrupt` is cancelled by Ctrl-C.
    pub(super) async fn attend<T>(
        &mut self,
        interrupt: &CancellationToken,
        work: impl Future<Output = T>,
        hear: &mut dyn FnMut(&str),
    ) -> T {
        let mut work = pin!(work);
        if let (Face::Live(screen, _), Some(terminal)) = (&self.face, &self.terminal) {
            terminal.keys();
            screen.wake();
        }
        let done = loop {
            self.next_question();
            let opens = self.asking.as_ref().and_then(|asking| asking.opens);
            let is_live = matches!(self.face, Face::Live(..));
            let is_heard = !self.is_over && (is_live || self.asking.is_some() && opens.is_none());
            tokio::select! {
                biased;
                done = &mut work => break done,
                caught = self.signals.next() => self.caught(caught, interrupt),
                () = self.desk.changed() => {}
                () = sleep_until(opens.unwrap_or_else(Instant::now)), if opens.is_some() => self.open_answer(),
                heard = self.input.heard(is_live), if is_heard => match heard {
                    Heard::Keys(keys) => self.keys(&keys, hear),
                    Heard::Line(line) => self.typed(&line, hear),
                    Heard::End => self.deserted(),
                },
                () = sleep(TICK), if is_live => {
                    if let Face::Live(screen, _) = &self.face {
                        screen.tick();
                    }
                }
            }
        };
        self.next_question();
        if let (Face::Live(screen, _), Some(terminal)) = (&self.face, &self.terminal) {
            screen.rest();
            terminal.restore();
        }
        done
    }

    /// Shows the next question when none is shown, and takes away one that is put no longer.
    fn next_question(&mut self) {
        if let Some(asking) = &self.asking {
            let Some(why) = self.desk.is_gone(&asking.key) else { return };
            self.asking = None;
            self.withdrawn(&format!("  {why}"));
        }
        let Some((request, waiting)) = self.desk.first() else { return };
        let lines = question(&request, waiting);
        match &mut self.face {
            Face::Plain => lines.iter().for_each(|line| print::to_person(line)),
            Face::Live(screen, draft) => {
                screen.question(&lines);
                draft.set_aside();
                screen.type_line("", "");
            }
        }
        self.asking = Some(Asking { key: request.key.clone(), opens: Some(Instant::now() + SETTLE) });
    }

    /// From here on what is typed answers.
    fn open_answer(&mut self) {
        self.input.forget();
        if let Some(asking) = &mut self.asking {
            asking.opens = None;
        }
        match &mut self.face {
            Face::Plain => print::prompt(ANSWER),
            Face::Live(screen, draft) => {
                draft.clear();
                screen.type_line(ANSWER, "");
            }
        }
    }

    fn withdrawn(&mut self, why: &str) {
        match &mut self.face {
            // The line that was begun is not an answer to anything.
            Face::Plain => {
                print::to_person(&format!("\n{why}"));
                self.input.forget();
            }
            Face::Live(screen, draft) => {
                draft.take_back();
                screen.answered(why);
                screen.type_line("", draft.text());
            }
        }
    }

    fn answered(&mut self, allowed: bool, note: Option<String>) {
        let Some(asking) = self.asking.take() else { return };
        if let Face::Live(screen, draft) = &mut self.face {
            let said = match (allowed, &note) {
                (true, _) => "yes".to_owned(),
                (false, None) => "no".to_owned(),
                (false, Some(note)) => format!("no: {note}"),
            };
            screen.answered(&format!("  answer  {said}"));
            draft.take_back();
            screen.type_line("", draft.text());
        }
        self.desk.answer(&asking.key, allowed, note);
    }

    /// Keys, on a terminal that does not edit lines itself.
    fn keys(&mut self, keys: &[u8], hear: &mut dyn FnMut(&str)) {
        let Face::Live(_, draft) = &mut self.face else { return };
        for typed in draft.feed(keys) {
            match typed {
                Typed::Line(line) => self.typed(&line, hear),
                Typed::End if self.asking.as_ref().is_some_and(|asking| asking.opens.is_none()) => {
                    self.answered(false, None);
                }
                Typed::End => {}
            }
        }
        if let Face::Live(screen, draft) = &mut self.face {
            let label = match &self.asking {
                None => "",
                Some(asking) if asking.opens.is_none() => ANSWER,
                // Keys of the moment in which a question appears belong to nothing.
                Some(_) => {
                    draft.clear();
                    ""
                }
            };
            screen.type_line(label, draft.text());
        }
    }

    fn typed(&mut self, line: &str, hear: &mut dyn FnMut(&str)) {
        match &self.asking {
            None => hear(line),
            Some(asking) if asking.opens.is_some() => {}
            Some(_) if line.starts_with('/') && matches!(self.face, Face::Live(..)) => hear(line),
            Some(_) => match Answer::of(line) {
                Answer::Allow => self.answered(true, None),
                Answer::Deny(note) => self.answered(false, note),
                Answer::Nothing => {
                    if let Face::Plain = self.face {
                        print::prompt(ANSWER);
                    }
                }
            },
        }
    }

    fn deserted(&mut self) {
        self.is_over = true;
        self.desk.desert();
    }

    fn caught(&mut self, caught: Caught, interrupt: &CancellationToken) {
        match caught {
            Caught::Interrupt if self.asking.is_some() && !interrupt.is_cancelled() => {
                if let Face::Plain = self.face {
                    print::to_person("");
                }
                self.answered(false, None);
            }
            _ if interrupt.is_cancelled() => {
                // The supervisor ends what still runs when this process is gone.
                if let Some(terminal) = &self.terminal {
                    terminal.restore();
                }
                std::process::exit(INTERRUPTED.into());
            }
            caught => {
                self.is_ended |= caught == Caught::End;
                self.is_over |= self.is_ended;
                interrupt.cancel();
                if let Face::Live(screen, _) = &self.face {
                    screen.stops();
                }
            }
        }
    }
}
