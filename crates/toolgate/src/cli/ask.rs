//! Asking the person at the terminal: the questions that are open, how one is put, and what an answer means.
//!
//! The [`Desk`] is the approver. It holds questions; whoever attends to the terminal ([`super::attend`]) takes them one after another,
//! shows each whole and brings the answer back. Nothing but an explicit yes allows.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Basis, Decision, Reply, Source, Withdrawn},
    policy::{Policy, Standing},
    tool::Effect,
};
use toolgate_runtime::{BoxFuture, approver::Approver};

/// Who a trace says has decided: whoever sat at the terminal that toolgate was started in.
const DECIDER: &str = "terminal";

/// Lines of one command or preview that a question shows. More than a person reads before saying yes.
const SHOWN_LINES: usize = 200;

/// Questions that wait for a person, and the rules they stand under.
pub(super) struct Desk {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    standing: Standing,
    open: VecDeque<Open>,
    /// The same question has the same answer.
    answered: HashMap<ApprovalKey, Decision>,
    withdrawn: HashMap<ApprovalKey, Withdrawn>,
    /// Nobody types any more.
    deserted: bool,
}

struct Open {
    request: Arc<ApprovalRequest>,
    reply: oneshot::Sender<Decision>,
}

impl Desk {
    pub(super) fn new(mode: ApprovalMode, policy: Arc<Policy>) -> Self {
        let standing = Standing { mode, policy, version: 1 };
        let (open, answered, withdrawn) = (VecDeque::new(), HashMap::new(), HashMap::new());
        Self {
            state: Mutex::new(State { standing, open, answered, withdrawn, deserted: false }),
            changed: Notify::new(),
        }
    }

    /// The mode in force.
    pub(super) fn mode(&self) -> ApprovalMode {
        self.state().standing.mode
    }

    /// Another mode, from now on: open questions are judged again.
    pub(super) fn set_mode(&self, mode: ApprovalMode) {
        let mut state = self.state();
        state.standing.mode = mode;
        state.standing.version += 1;
    }

    /// Comes back when questions came or went.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The question that is to be put now, and how many there are.
    pub(super) fn first(&self) -> Option<(Arc<ApprovalRequest>, usize)> {
        let state = self.state();
        state.open.front().map(|open| (open.request.clone(), state.open.len()))
    }

    /// Why a question that was shown is put no longer; `None` while it still is.
    pub(super) fn is_gone(&self, key: &ApprovalKey) -> Option<&'static str> {
        let mut state = self.state();
        if state.open.iter().any(|open| open.request.key == *key) {
            return None;
        }
        Some(match state.withdrawn.remove(key) {
            Some(Withdrawn::Judged) => "withdrawn: the changed mode or rules decide it",
            Some(Withdrawn::Interrupted) => "withdrawn: the run was stopped, the call does not run",
            None => "withdrawn",
        })
    }

    /// A person's answer to a question; nothing when it is not open any more.
    pub(super) fn answer(&self, key: &ApprovalKey, allowed: bool, note: Option<String>) {
        let mut state = self.state();
        let Some(place) = state.open.iter().position(|open| open.request.key == *key) else { return };
        let Some(open) = state.open.remove(place) else { return };
        let decision = Decision::by_person(allowed, DECIDER, note);
        state.answered.insert(key.clone(), decision.clone());
        let _ = open.reply.send(decision);
    }

    /// Nobody types any more: what is open and what comes is denied.
    pub(super) fn desert(&self) {
        let mut state = self.state();
        state.deserted = true;
        for open in std::mem::take(&mut state.open) {
            let _ = open.reply.send(nobody(&open.request.basis));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approver for Desk {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        Box::pin(async { self.state().standing.clone() })
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            {
                let mut state = self.state();
                if let Some(known) = state.answered.get(&request.key) {
                    return Reply::Decided(known.clone());
                }
                if state.deserted {
                    return Reply::Decided(nobody(&request.basis));
                }
                state.open.push_back(Open { request: Arc::new(request.clone()), reply });
            }
            self.changed.notify_one();
            let _put = Put { desk: self, key: &request.key };
            match answer.await {
                Ok(decision) => Reply::Decided(decision),
                Err(_) => Reply::Decided(nobody(&request.basis)),
            }
        })
    }

    fn withdraw(&self, key: &ApprovalKey, why: Withdrawn) {
        self.state().withdrawn.insert(key.clone(), why);
        self.changed.notify_one();
    }
}

/// A question stands here only while somebody waits for its answer.
struct Put<'a> {
    desk: &'a Desk,
    key: &'a ApprovalKey,
}

impl Drop for Put<'_> {
    fn drop(&mut self) {
        self.desk.state().open.retain(|open| open.request.key != *self.key);
        self.desk.changed.notify_one();
    }
}

fn nobody(basis: &Basis) -> Decision {
    let reason = format!("{}, and nobody is at the terminal any more", basis.reason);
    Decision::by_rule(false, Basis { source: Source::Default, rule: basis.rule.clone(), reason })
}

/// What a typed line means at a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    Deny(Option<String>),
    /// Nothing was said: the question stands.
    Nothing,
}

impl Answer {
    /// Only `y` and `yes` allow. `n` and `no` deny, with what follows as the note; anything else is a no in the person's own words.
    pub(super) fn of(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let note = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        match (word.to_lowercase().as_str(), rest) {
            ("", _) => Self::Nothing,
            ("y" | "yes", "") => Self::Allow,
            ("n" | "no", rest) => Self::Deny(note(rest)),
            _ => Self::Deny(note(line)),
        }
    }
}

/// A question, line by line: what would happen, where, and why it asks. Everything that a person must see to decide is spelled out.
pub(super) fn question(request: &ApprovalRequest, waiting: usize) -> Vec<String> {
    let mut lines = vec![format!("? {} asks", request.tool)];
    if waiting > 1 {
        lines[0].push_str(&format!(" (the first of {waiting})"));
    }
    if let Some(asker) = &request.asker {
        lines.push(format!("  asked by {}", visible(asker)));
    }
    if request.effects.is_empty() {
        lines.extend(block("would do", &request.summary));
    }
    for effect in &request.effects {
        match effect {
            Effect::Run { line, cwd } => {
                lines.extend(block("run", line));
                lines.push(format!("  in      {}", visible(&cwd.display().to_string())));
            }
            Effect::Feed { process, text } if text.is_empty() => lines.push(format!("  look at {}", visible(process))),
            Effect::Feed { process, text } => {
                lines.extend(block("type", text));
                lines.push(format!("  into    {}", visible(process)));
            }
            Effect::End { process } => lines.push(format!("  end     {}", visible(process))),
            // What is changed is read too.
            Effect::Read(place) if request.effects.contains(&Effect::Write(place.clone())) => {}
            Effect::Read(place) => lines.push(format!("  read    {}", visible(&place.path.display().to_string()))),
            Effect::Write(place) => lines.push(format!("  write   {}", visible(&place.path.display().to_string()))),
            Effect::Search(place) => lines.push(format!("  search  {}", visible(&place.path.display().to_string()))),
            Effect::Connect(host) => lines.push(format!("  connect {}", visible(host))),
            Effect::Delegate => lines.extend(block("agent", &request.summary)),
            Effect::Foreign { server, tool, .. } => {
                lines.push(format!("  call    {} of the server {}", visible(tool), visible(server)));
                lines.extend(block("with", &request.summary));
            }
            Effect::Unknown(what) => lines.extend(block("unknown", what)),
        }
    }
    if let Some(preview) = &request.preview {
        lines.extend(block("change", preview));
    }
    let rule = request.basis.rule.as_deref().filter(|rule| !request.basis.reason.contains(rule));
    let rule = rule.map(|rule| format!(" ({})", visible(rule))).unwrap_or_default();
    lines.push(format!("  because {}{rule}", visible(&request.basis.reason)));
    lines
}

/// What stands before the place where the answer is typed.
pub(super) const ANSWER: &str = "allow? y = yes, n NOTE = no: ";

/// A text of several lines under one word.
fn block(word: &str, text: &str) -> Vec<String> {
    let all: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
    let mut lines: Vec<String> = Vec::new();
    for line in all.iter().take(SHOWN_LINES) {
        let label = if lines.is_empty() { word } else { "" };
        lines.push(format!("  {label:<7} {}", visible(line)));
    }
    if all.len() > SHOWN_LINES {
        lines.push(format!(
            "          ({} more lines, not shown; say no if you must see them)",
            all.len() - SHOWN_LINES
        ));
    }
    lines
}

/// A text with everything in it that the eye does not see, or sees elsewhere than it stands, spelled out.
pub(super) fn visible(text: &str) -> String {
    let end = text.trim_end_matches(' ').len();
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            ' ' if at >= end => shown.push('\u{2423}'),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if is_unseen(c) => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// Controls, marks of direction, characters without width, blanks that are no space, tags, and characters without a meaning of their own.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}'
            | '\u{E000}'..='\u{F8FF}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{E0FFF}' | '\u{F0000}'..='\u{10FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_allows() {
        let no = |note: &str| Answer::Deny(Some(note.into()));
        for (line, answer) in [
            ("y", Answer::Allow),
            (" YES ", Answer::Allow),
            ("", Answer::Nothing),
            ("  ", Answer::Nothing),
            ("n", Answer::Deny(None)),
            ("No", Answer::Deny(None)),
            ("n use git mv", no("use git mv")),
            ("no  use git mv ", no("use git mv")),
            ("no, use git mv", no("no, use git mv")),
            ("yes please", no("yes please")),
            ("yy", no("yy")),
            ("y y", no("y y")),
            ("a", no("a")),
            ("\u{1b}[A", no("\u{1b}[A")),
        ] {
            assert_eq!(Answer::of(line), answer, "{line:?}");
        }
    }

    #[test]
    fn what_the_eye_does_not_see_is_spelled_out() {
        for (text, shown) in [
            ("echo \u{202e}hi", "echo \\u{202e}hi"),
            ("a\u{200b}b\u{feff}\u{e0041}", "a\\u{200b}b\\u{feff}\\u{e0041}"),
            ("\x1b[2Jx\r", "\\u{1b}[2Jx\\u{d}"),
            ("tab\there", "tab\\there"),
            ("ends  ", "ends\u{2423}\u{2423}"),
            ("no\u{a0}break\u{3000}wide", "no\\u{a0}break\\u{3000}wide"),
            ("宽 字 é", "宽 字 é"),
        ] {
            assert_eq!(visible(text), shown, "{text:?}");
        }
    }
}
