//! `toolgate run PROMPT`: one task, from the prompt to the answer, new or gone on with.

use std::{io::Read, sync::Arc};

use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    provider::Stop,
    session::{RunEnd, RunStatus},
};
use toolgate_runtime::approver::{Approver, OnAsk, Unattended};

use super::{
    Common, OnAskArg, OutputFormat,
    ask::Desk,
    attend::{Attendant, Face},
    block_on,
    deadline::{Deadline, reached},
    model::Model,
    print,
    signals::Signals,
    state,
    terminal::{self, Terminal},
};
use crate::{
    config::Settings,
    conversation::{Conversation, Opened, With},
    failure::{Failure, INTERRUPTED, LIMIT, RUN_FAILED, TIMEOUT, WAITING},
    state::{Indexed, Kept, State},
    surroundings::Surroundings,
    wiring,
};

/// Arguments of `toolgate run`.
#[derive(Args)]
pub(super) struct Run {
    /// The task; `-` reads it from standard input. May be left out with -c and -r.
    prompt: Option<String>,
    #[command(flatten)]
    model: Model,
    /// What standard output carries.
    #[arg(long, value_enum, default_value = "text")]
    output_format: OutputFormat,
    /// What happens to a question when nobody is there to answer it [default: deny; a session that goes on keeps its choice].
    #[arg(long, value_enum)]
    on_ask: Option<OnAskArg>,
    /// Go on with this workspace's newest session.
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    go_on: bool,
    /// Go on with this session.
    #[arg(short = 'r', long, value_name = "ID")]
    resume: Option<String>,
    /// Go on in a new session that begins with what that one has said; the old one stays as it is.
    #[arg(long)]
    fork: bool,
    #[command(flatten)]
    common: Common,
}

impl Run {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        let prompt = self.prompt()?;
        let secrets = surroundings.secrets();
        let mut opened = self.open(state(surroundings)?, &secrets)?;
        if self.fork {
            opened = opened.fork(&secrets);
        }
        let settings = Arc::new(self.common.settings(self.model.flags()?, opened.workspace.root(), surroundings)?);
        opened.hide(&settings.secrets(surroundings));
        let kept = self.choices(opened.kept(), &settings);
        let model = self.model.choose(opened.rebuilt.as_ref(), &kept, &settings, surroundings)?;
        model.note.iter().for_each(|note| print::to_person(note));
        let on_ask = if kept.waits { OnAsk::Wait } else { OnAsk::Deny };
        let mode = settings.mode(kept.approve);
        let desk = Arc::new(Desk::new(mode, Arc::new(settings.policy())));
        // A person is asked where one can be: who chose what happens to questions does not want any.
        let somebody = terminal::stdin_is_terminal() && terminal::stderr_is_terminal();
        let asks = somebody && self.on_ask.is_none() && !kept.waits;
        let approver: Arc<dyn Approver> =
            if asks { desk.clone() } else { Arc::new(Unattended::new(mode, settings.policy(), on_ask)) };
        let printer = print::Printer::new(self.output_format, surroundings.ordered_fault());
        let limit = settings.timeout_ms;
        let with = With {
            model,
            settings,
            approver,
            observer: Arc::new(if asks { printer.beside_questions() } else { printer }),
            kept,
        };
        let (end, entry, timed_out) = block_on(async {
            let terminal = if asks { Terminal::open(false) } else { None };
            let mut attendant = Attendant::new(desk, Signals::new()?, Face::Plain, terminal);
            let mut conversation = Conversation::begin(opened, with, surroundings)?;
            let interrupt = CancellationToken::new();
            let deadline = Deadline::start(limit, &interrupt);
            let run = conversation.run(prompt.as_deref(), &interrupt);
            let end = attendant.attend(&interrupt, run, &mut |_| {}).await;
            if let Some(warning) = conversation.warning() {
                print::to_person(&warning);
            }
            conversation.session.close().await;
            let end = end?;
            conversation.seal(&end)?;
            Ok((end, conversation.entry().clone(), deadline.passed()))
        })?;
        let code = self.report(&end, &entry, timed_out.then(|| reached(limit)));
        Ok(if timed_out && code == INTERRUPTED { TIMEOUT } else { code })
    }

    /// What was asked for now, else what the session was begun with.
    fn choices(&self, before: &Kept, settings: &Settings) -> Kept {
        Kept {
            approve: Some(settings.mode(before.approve)),
            waits: self.on_ask.map_or(before.waits, |on_ask| on_ask == OnAskArg::Wait),
            ..self.model.kept(before)
        }
    }

    fn prompt(&self) -> Result<Option<String>, Failure> {
        let prompt = match self.prompt.as_deref() {
            Some("-") => {
                let mut text = String::new();
                let read = std::io::stdin().read_to_string(&mut text);
                read.map_err(|error| Failure::usage(format!("the task cannot be read from standard input: {error}")))?;
                Some(text)
            }
            other => other.map(str::to_owned),
        };
        if self.fork && !self.go_on && self.resume.is_none() {
            return Err(Failure::usage("--fork needs a session to fork").hint("add -c, or -r ID"));
        }
        match prompt {
            Some(text) if text.trim().is_empty() => {
                Err(Failure::usage("the task is empty").hint("toolgate run \"what to do\""))
            }
            None if !self.go_on && self.resume.is_none() => Err(Failure::usage("there is no task")
                .hint("toolgate run \"what to do\", or -c to go on with the newest session")),
            prompt => Ok(prompt),
        }
    }

    /// A new session, or the one that was asked for.
    fn open(&self, state: State, secrets: &[String]) -> Result<Opened, Failure> {
        let folder = self.common.workspace.as_deref();
        let opened = if let Some(name) = &self.resume {
            Opened::named(state, name, folder, secrets)?
        } else {
            let workspace = wiring::workspace(folder)?;
            let newest = if self.go_on { Opened::newest(state.clone(), &workspace, secrets) } else { None };
            match newest {
                Some(Ok(opened)) => opened,
                Some(Err(failure)) if self.prompt.is_none() => return Err(failure),
                None if self.prompt.is_none() => {
                    return Err(Failure::usage(
                        "no session of this workspace can be continued, and there is no task for a new one",
                    )
                    .hint("toolgate run \"what to do\""));
                }
                none => {
                    if let Some(Err(failure)) = none {
                        print::to_person(&format!(
                            "note: the newest session cannot be continued; this is a new one\n{failure}"
                        ));
                    } else if self.go_on {
                        print::to_person("note: no session of this workspace can be continued; this is a new one");
                    }
                    Opened::new(state, workspace, secrets)
                }
            }
        };
        if let Some(rebuilt) = opened.rebuilt.as_ref().filter(|rebuilt| !rebuilt.skipped.is_empty()) {
            let lines = rebuilt.skipped.len();
            print::to_person(&format!("note: {lines} lines of the trace are no records and were left out"));
        }
        if self.prompt.is_none() && !opened.has_work() {
            return Err(Failure::usage(format!("session {} has nothing left to do", opened.id()))
                .hint("give it a further task: toolgate run -c \"what to do next\""));
        }
        Ok(opened)
    }

    fn report(&self, end: &RunEnd, entry: &Indexed, limit: Option<String>) -> u8 {
        let (code, line) = match &end.status {
            RunStatus::Completed => (0, unusual(end.stop)),
            RunStatus::Waiting(keys) => {
                let open: Vec<&str> = keys.iter().map(|key| key.call.as_str()).collect();
                let again = format!("toolgate run -r {} --approve MODE", entry.session_id);
                (
                    WAITING,
                    Some(format!("waiting: {} open ({}); go on with `{again}`", count(keys.len()), open.join(", "))),
                )
            }
            RunStatus::Limit(limit) => {
                (LIMIT, Some(format!("stopped after {} (--max-turns); -c goes on from here", requests(*limit))))
            }
            RunStatus::Failed(error) => (RUN_FAILED, Some(format!("error: {error}\nhint: {}", error.hint()))),
            RunStatus::Interrupted => {
                let why = limit.unwrap_or_else(|| "interrupted".into());
                (INTERRUPTED, Some(format!("{why}; -c goes on from here")))
            }
            RunStatus::Stopped(reason) => (RUN_FAILED, Some(format!("stopped: {reason}"))),
        };
        if let Some(line) = line {
            print::to_person(&line);
        }
        let head = entry.head.as_deref().unwrap_or_default();
        match self.output_format {
            OutputFormat::Json => {
                let error = match &end.status {
                    RunStatus::Failed(error) => {
                        json!({ "class": error.class.as_str(), "message": error.to_string(), "hint": error.hint() })
                    }
                    _ => json!(null),
                };
                let waiting = match &end.status {
                    RunStatus::Waiting(keys) => json!(keys),
                    _ => json!([]),
                };
                print::json(&json!({
                    "session_id": entry.session_id, "status": end.status.as_str(), "text": end.text, "turns": end.turns,
                    "usage": end.used, "waiting": waiting, "error": error, "trace": entry.trace, "head": head,
                }));
            }
            OutputFormat::Text | OutputFormat::StreamJson => {
                print::to_person(&format!("trace: {} (head {head})", entry.trace.display()));
            }
        }
        code
    }
}

fn count(questions: usize) -> String {
    if questions == 1 { "1 question is".into() } else { format!("{questions} questions are") }
}

/// What people should know about the way in which the last answer ended.
pub(super) fn unusual(stop: Option<Stop>) -> Option<String> {
    let what = match stop? {
        Stop::End | Stop::ToolCalls | Stop::StopSequence => return None,
        Stop::MaxTokens => "the answer was cut off at its length limit; -c asks for more",
        Stop::Filtered => "the provider held the answer, or a part of it, back",
        Stop::Pause => "the provider paused the answer again and again, so this is only a part of it",
    };
    Some(format!("note: {what}"))
}

fn requests(limit: u32) -> String {
    if limit == 1 { "1 model request".into() } else { format!("{limit} model requests") }
}
