//! Hooks: programs of the user's own beside the gate. They are told what is about to happen and may object, and nothing more.
//!
//! ```text
//! occasion -> the hooks of its event whose matcher fits, in order -> one JSON object in, an answer out -> what was heard, the strictest first
//! ```
//!
//! A hook's allow is worth what an allow rule is; a deny, an ask rule and a hard gate it never lifts. A hook that must answer and does not
//! blocks. Everything that a hook says or fails to say stands in the trace.
//!
//! * this file: a [`Hook`], what it is asked about ([`Occasion`]), and asking ([`Hooks::hear`]);
//! * [`answer`]: what a hook says; [`matcher`]: which tools it is for; [`attended`]: hooks that answer questions.

mod answer;
mod attended;
pub mod matcher;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::{ApprovalRequest, Basis, Source},
    call::{Args, CheckedCall},
    message::{Event, Extra, HookAsked},
    outcome::StopReason,
    policy::Advice,
};

use crate::{
    output::bounded,
    process::{
        exchange::{Exchange, More, exchange},
        table::{CommandSessions, Shell},
    },
    trace::Journal,
};
use answer::{Answer, Ruling, answer};
pub(crate) use attended::Attended;
pub use matcher::Matcher;

/// How long a hook may take where it does not say itself. A person is waiting, and a linter over a small project is done by then.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of an answer. What is longer is no answer but an output.
const LONGEST_ANSWER: usize = 1024 * 1024;

/// Characters of a hook's command that its name shows.
const SHOWN: usize = 60;

/// A program that is asked about an event.
#[derive(Debug, Clone)]
pub struct Hook {
    /// What it is asked about.
    pub event: HookEvent,
    /// Which tools, or which kind of the event.
    pub matcher: Matcher,
    /// What runs.
    pub command: HookCommand,
    /// How long it may take.
    pub timeout: Duration,
    /// What a failure means.
    pub on_failure: OnFailure,
    /// Where it is configured, for people.
    pub place: String,
}

/// What a hook is asked about. The names are those that other programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookEvent {
    /// A checked call, before the gate decides.
    PreToolUse,
    /// A question, before a person is asked.
    PermissionRequest,
    /// A call that ran, before its result is whole.
    PostToolUse,
    /// A session begins or goes on.
    SessionStart,
    /// A session is over for now.
    SessionEnd,
    /// A prompt, before the model sees it.
    UserPromptSubmit,
    /// The model has no more calls.
    Stop,
}

impl HookEvent {
    /// All of them, in the order of a session's life.
    pub const ALL: [Self; 7] = [
        Self::SessionStart,
        Self::UserPromptSubmit,
        Self::PreToolUse,
        Self::PermissionRequest,
        Self::PostToolUse,
        Self::Stop,
        Self::SessionEnd,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PermissionRequest => "PermissionRequest",
            Self::PostToolUse => "PostToolUse",
            Self::SessionStart => "SessionStart",
            Self::SessionEnd => "SessionEnd",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::Stop => "Stop",
        }
    }

    /// Whether it is about a tool, so that a matcher names tools.
    pub fn is_about_a_tool(self) -> bool {
        matches!(self, Self::PreToolUse | Self::PermissionRequest | Self::PostToolUse)
    }

    /// What a failure means where the hook does not say: it blocks where a hook decides whether something happens.
    pub fn default_on_failure(self) -> OnFailure {
        match self {
            Self::PreToolUse | Self::UserPromptSubmit => OnFailure::Block,
            _ => OnFailure::Continue,
        }
    }

    /// Whether plain words are an answer: they are for the model to read.
    fn takes_text(self) -> bool {
        matches!(self, Self::SessionStart | Self::UserPromptSubmit)
    }
}

/// What a hook's failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// As if it had blocked.
    Block,
    /// As if it had not been there. People are told.
    Continue,
}

/// What runs as a hook.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum HookCommand {
    /// A line of shell.
    Line(String),
    /// A program's absolute path and its arguments, without a shell.
    Program(Vec<String>),
}

impl HookCommand {
    /// Its beginning, for people.
    pub fn shown(&self) -> String {
        let whole = match self {
            Self::Line(line) => line.split_whitespace().collect::<Vec<_>>().join(" "),
            Self::Program(argv) => argv.join(" "),
        };
        match whole.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &whole[..end]),
            None => whole,
        }
    }
}

/// What hooks are asked about, with all that they are told.
#[derive(Clone, Copy)]
pub enum Occasion<'a> {
    /// A call that was checked.
    BeforeCall(&'a CheckedCall),
    /// A question about a call.
    Question(&'a ApprovalRequest),
    /// A call that ran.
    AfterCall {
        /// The call.
        call: &'a CheckedCall,
        /// What it printed, as the model reads it.
        output: &'a str,
        /// What the tool said of it, such as an exit code.
        note: Option<&'a str>,
        /// How it ended.
        stop: StopReason,
    },
    /// A session begins; the source is `startup` or `resume`.
    SessionStart(&'a str),
    /// A session is over; the reason is `exit`.
    SessionEnd(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// The model has no more calls.
    Stop {
        /// Whether a hook has already kept it going in this run.
        again: bool,
        /// What the model said last.
        text: &'a str,
    },
}

impl Occasion<'_> {
    fn event(&self) -> HookEvent {
        match self {
            Self::BeforeCall(_) => HookEvent::PreToolUse,
            Self::Question(_) => HookEvent::PermissionRequest,
            Self::AfterCall { .. } => HookEvent::PostToolUse,
            Self::SessionStart(_) => HookEvent::SessionStart,
            Self::SessionEnd(_) => HookEvent::SessionEnd,
            Self::Prompt(_) => HookEvent::UserPromptSubmit,
            Self::Stop { .. } => HookEvent::Stop,
        }
    }

    fn is_for(&self, matcher: &Matcher) -> bool {
        match self {
            Self::BeforeCall(call) | Self::AfterCall { call, .. } => {
                matcher.fits(|name| call.answers_to(name), call.tool())
            }
            Self::Question(request) => matcher.fits(|name| request.answers_to(name), &request.tool),
            Self::SessionStart(kind) | Self::SessionEnd(kind) => matcher.fits(|name| name == *kind, kind),
            Self::Prompt(_) | Self::Stop { .. } => true,
        }
    }

    fn call_id(&self) -> Option<&str> {
        match self {
            Self::BeforeCall(call) | Self::AfterCall { call, .. } => Some(call.id()),
            Self::Question(request) => Some(&request.key.call),
            _ => None,
        }
    }

    /// What belongs to the event alone.
    fn payload(&self) -> Value {
        match self {
            Self::BeforeCall(call) => {
                json!({ "tool_name": call.tool(), "tool_input": call.args(), "tool_use_id": call.id() })
            }
            Self::Question(request) => json!({
                "tool_name": request.tool, "tool_input": request.args, "tool_use_id": request.key.call,
                "permission_mode": request.mode.as_str(), "summary": request.summary, "reason": request.basis.reason,
            }),
            Self::AfterCall { call, output, note, stop } => json!({
                "tool_name": call.tool(), "tool_input": call.args(), "tool_use_id": call.id(),
                "tool_response": { "output": output, "note": note, "stop_reason": stop },
            }),
            Self::SessionStart(source) => json!({ "source": source }),
            Self::SessionEnd(reason) => json!({ "reason": reason }),
            Self::Prompt(prompt) => json!({ "prompt": prompt }),
            Self::Stop { again, text } => json!({ "stop_hook_active": again, "last_assistant_message": text }),
        }
    }
}

/// What the hooks of an event said together.
#[derive(Debug, Default)]
pub struct Heard {
    /// The strictest of what they decided.
    pub advice: Option<Advice>,
    /// The arguments that shall run instead, and whose they are.
    pub input: Option<(Args, String)>,
    /// What the model shall know.
    pub context: Vec<String>,
    /// Why the run shall end, where one wants that.
    pub stop: Option<String>,
}

impl Heard {
    /// Why what was asked about shall not be, where one says so.
    pub fn blocked(&self) -> Option<&str> {
        match &self.advice {
            Some(Advice::Deny(basis)) => Some(&basis.reason),
            _ => None,
        }
    }
}

/// The hooks of a session.
pub struct Hooks {
    list: Vec<Hook>,
    commands: Arc<CommandSessions>,
    journal: Arc<Journal>,
    session: String,
    cwd: PathBuf,
    /// Why the run shall end, until somebody has asked.
    stop: Mutex<Option<String>>,
}

impl Hooks {
    pub(crate) fn new(
        list: Vec<Hook>,
        commands: Arc<CommandSessions>,
        journal: Arc<Journal>,
        session: String,
        cwd: &Path,
    ) -> Self {
        Self { list, commands, journal, session, cwd: cwd.to_owned(), stop: Mutex::default() }
    }

    /// Whether any hook is asked about such events.
    pub fn hear_of(&self, event: HookEvent) -> bool {
        self.list.iter().any(|hook| hook.event == event)
    }

    /// Why the run shall end, where a hook said so since this was asked last. Until it is asked, every further call is denied.
    pub fn take_stop(&self) -> Option<String> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Asks the hooks of an occasion, one after the other. Each sees the arguments as the one before left them; after a block no more are
    /// asked, since nothing is stricter. An interrupt leaves what was heard until then.
    pub async fn hear(&self, occasion: Occasion<'_>, interrupt: &CancellationToken) -> Heard {
        let (event, mut heard) = (occasion.event(), Heard::default());
        let ending = self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (Some(reason), Occasion::BeforeCall(_)) = (ending, &occasion) {
            // A run that is to end begins nothing more, also of the answer that was being worked on.
            heard.advice = Some(Advice::Deny(Basis { source: Source::Hook, rule: None, reason }));
            return heard;
        }
        let hooks = self.list.iter().filter(|hook| hook.event == event && occasion.is_for(&hook.matcher));
        for hook in hooks {
            let started = Instant::now();
            let input = self.told(&occasion, &heard);
            let answer = tokio::select! {
                biased;
                () = interrupt.cancelled() => return heard,
                answer = self.ask(hook, &input) => answer,
            };
            let name = format!("{} ({})", hook.command.shown(), hook.place);
            let (answer, failed) = match answer {
                Ok(answer) => (answer, false),
                Err(what) => (failed(hook, what), true),
            };
            self.record(&occasion, &name, &answer, failed, started.elapsed());
            heard.take(answer, &name, event);
            if heard.blocked().is_some() {
                break;
            }
        }
        if let Some(reason) = &heard.stop {
            *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        }
        heard
    }

    /// What a hook reads: who asks, about what, and the arguments as they stand now.
    fn told(&self, occasion: &Occasion<'_>, heard: &Heard) -> Vec<u8> {
        let mut told = Map::new();
        told.insert("session_id".into(), self.session.as_str().into());
        let transcript = self.journal.path().map_or_else(String::new, |path| path.display().to_string());
        told.insert("transcript_path".into(), transcript.into());
        told.insert("cwd".into(), self.cwd.display().to_string().into());
        told.insert("hook_event_name".into(), occasion.event().as_str().into());
        if let Value::Object(payload) = occasion.payload() {
            told.extend(payload);
        }
        if let Some((args, _)) = &heard.input {
            told.insert("tool_input".into(), args.clone().into());
        }
        let mut line = serde_json::to_vec(&told).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// One hook's answer.
    ///
    /// # Errors
    /// Why there is none.
    async fn ask(&self, hook: &Hook, input: &[u8]) -> Result<Answer, String> {
        let (mut output, shell) = (
            Vec::new(),
            match &hook.command {
                HookCommand::Line(line) => Shell::Usual(line),
                HookCommand::Program(argv) => {
                    let program = argv.first().map_or("", String::as_str);
                    Shell::Program(Path::new(program), argv.iter().map(OsString::from).collect())
                }
            },
        );
        let whole = async {
            let running = self.commands.start_hook(shell, &self.cwd).await.map_err(|error| error.to_string())?;
            let take = |bytes: &[u8]| {
                if output.len() + bytes.len() > LONGEST_ANSWER {
                    return Err(format!("it printed more than {LONGEST_ANSWER} bytes"));
                }
                output.extend_from_slice(bytes);
                Ok(More::Wanted)
            };
            let Exchange { outcome, errors } = exchange(running, input, take).await;
            answer(hook.event, outcome?, &String::from_utf8_lossy(&output), &errors)
        };
        let late = || Err(format!("it did not answer within {} ms", hook.timeout.as_millis()));
        tokio::time::timeout(hook.timeout, whole).await.unwrap_or_else(|_| late())
    }

    fn record(&self, occasion: &Occasion<'_>, name: &str, answer: &Answer, failed: bool, took: Duration) {
        let outcome = match answer {
            _ if failed => "failed",
            Answer { stop: Some(_), .. } => "stop",
            Answer { ruling: Some(Ruling::Block), .. } if occasion.event().is_about_a_tool() => "deny",
            Answer { ruling: Some(Ruling::Block), .. } => "block",
            Answer { ruling: Some(Ruling::Ask), .. } => "ask",
            Answer { input: Some(_), .. } => "changed",
            Answer { ruling: Some(Ruling::Allow), .. } => "allow",
            _ => "passed",
        };
        let reason = answer.stop.as_ref().or(answer.reason.as_ref()).or(answer.message.as_ref());
        let event = Event::Hook(HookAsked {
            hook_event_name: occasion.event().as_str().to_owned(),
            hook: name.to_owned(),
            tool_call_id: occasion.call_id().map(str::to_owned),
            outcome: outcome.to_owned(),
            reason: reason.map(|reason| bounded(reason)),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            extra: Extra::new(),
        });
        // A trace that cannot be written stays broken, and the record of the call's decision reports it.
        let _ = self.journal.record(event);
    }
}

/// What a failure counts as.
fn failed(hook: &Hook, what: String) -> Answer {
    let ruling = (hook.on_failure == OnFailure::Block).then_some(Ruling::Block);
    Answer { ruling, reason: Some(format!("it failed: {what}")), ..Answer::default() }
}

impl Heard {
    /// Adds what one more hook said.
    fn take(&mut self, answer: Answer, name: &str, event: HookEvent) {
        let Answer { mut ruling, reason, input, context, stop, .. } = answer;
        let why = |reason: &Option<String>| {
            let reason = reason.as_ref().map(|reason| format!(": {}", bounded(reason)));
            format!("the hook {name}{}", reason.unwrap_or_default())
        };
        if let Some(stop) = stop {
            self.stop = Some(why(&Some(stop)));
            // A run that is to end does nothing more.
            ruling = event.is_about_a_tool().then_some(Ruling::Block).or(ruling);
        }
        let basis = Basis { source: Source::Hook, rule: Some(name.to_owned()), reason: why(&reason) };
        let advice = ruling.map(|ruling| match ruling {
            Ruling::Allow => Advice::Allow(basis),
            Ruling::Ask => Advice::Ask(basis),
            Ruling::Block => Advice::Deny(basis),
        });
        self.advice = match (self.advice.take(), advice) {
            (Some(before), Some(now)) => Some(before.or_stricter(now)),
            (before, now) => before.or(now),
        };
        if let Some(input) = input {
            self.input = Some((input, name.to_owned()));
        }
        self.context.extend(context.map(|context| bounded(&context)));
    }
}
