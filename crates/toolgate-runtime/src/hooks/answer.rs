//! What a hook says: by its exit code, and on standard output as JSON.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | standard output is the answer: nothing, or one JSON object |
//! | 2 | it blocks; standard error is the reason, whatever stands on standard output |
//! | any other, a signal | it failed |
//!
//! An answer that cannot be understood is a failure and not an answer: a mistyped key must not pass for "no objection".

use serde::Deserialize;
use toolgate_core::call::Args;

use super::HookEvent;
use crate::process::Status;

/// The exit code that blocks.
const BLOCKS: i32 = 2;

/// Characters of an answer that an error shows.
const SHOWN: usize = 200;

/// What a hook said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// What it decided, if it did.
    pub(super) ruling: Option<Ruling>,
    /// Why.
    pub(super) reason: Option<String>,
    /// The arguments that shall run instead.
    pub(super) input: Option<Args>,
    /// What the model shall know.
    pub(super) context: Option<String>,
    /// The run shall end, and why.
    pub(super) stop: Option<String>,
    /// What people shall know.
    pub(super) message: Option<String>,
}

/// What a hook decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ruling {
    Allow,
    Ask,
    /// Deny, or block where there is no call to deny.
    Block,
}

/// An answer as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    #[serde(rename = "continue")]
    goes_on: Option<bool>,
    stop_reason: Option<String>,
    system_message: Option<String>,
    /// Whether the output is kept from people, which it is anyway.
    #[serde(rename = "suppressOutput")]
    _suppress_output: Option<bool>,
    decision: Option<Decision>,
    reason: Option<String>,
    hook_specific_output: Option<Specific>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Specific {
    hook_event_name: Option<String>,
    permission_decision: Option<Permission>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Args>,
    additional_context: Option<String>,
    decision: Option<OnQuestion>,
}

/// The older words for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Approve,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Permission {
    Allow,
    Deny,
    Ask,
    /// To be decided later, by somebody: that is what a question is here.
    Defer,
}

/// The answer to a question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OnQuestion {
    behavior: Behavior,
    message: Option<String>,
    #[serde(default)]
    interrupt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Behavior {
    Allow,
    Deny,
}

/// The answer of a hook that ended so.
///
/// # Errors
/// What went wrong, when it gave none.
pub(super) fn answer(event: HookEvent, status: Option<Status>, output: &str, errors: &str) -> Result<Answer, String> {
    match status {
        // It said all that it had to say, and was ended since it did not end.
        Some(Status::Code(0)) | None => read(event, output.trim()),
        Some(Status::Code(BLOCKS)) => {
            let reason = if errors.is_empty() { "it gave no reason" } else { errors };
            Ok(Answer { ruling: Some(Ruling::Block), reason: Some(reason.to_owned()), ..Answer::default() })
        }
        Some(status) if errors.is_empty() => Err(status.to_string()),
        Some(status) => Err(format!("{status}: {errors}")),
    }
}

fn read(event: HookEvent, output: &str) -> Result<Answer, String> {
    if output.is_empty() {
        return Ok(Answer::default());
    }
    if event.takes_text() && !output.starts_with('{') {
        return Ok(Answer { context: Some(output.to_owned()), ..Answer::default() });
    }
    let written: Written = serde_json::from_str(output).map_err(|error| {
        let shown: String = output.chars().take(SHOWN).collect();
        format!("what it printed is no answer ({error}): {shown}")
    })?;
    let specific = written.hook_specific_output.unwrap_or_default();
    if let Some(named) = specific.hook_event_name.filter(|named| named != event.as_str()) {
        return Err(format!("it answers to {named}, and was asked about {}", event.as_str()));
    }
    for (field, is_there, counts_at) in [
        ("permissionDecision", specific.permission_decision.is_some(), &[HookEvent::PreToolUse][..]),
        ("updatedInput", specific.updated_input.is_some(), &[HookEvent::PreToolUse]),
        ("hookSpecificOutput.decision", specific.decision.is_some(), &[HookEvent::PermissionRequest]),
        ("decision: approve", written.decision == Some(Decision::Approve), &[HookEvent::PreToolUse]),
    ] {
        if is_there && !counts_at.contains(&event) {
            return Err(format!("{field} counts for nothing at {}", event.as_str()));
        }
    }
    let older = written.decision.map(|decision| match decision {
        Decision::Approve => Ruling::Allow,
        Decision::Block => Ruling::Block,
    });
    let newer = specific.permission_decision.map(|decision| match decision {
        Permission::Allow => Ruling::Allow,
        Permission::Ask | Permission::Defer => Ruling::Ask,
        Permission::Deny => Ruling::Block,
    });
    let on_question = specific.decision.as_ref().map(|decision| match decision.behavior {
        Behavior::Allow => Ruling::Allow,
        Behavior::Deny => Ruling::Block,
    });
    let message = specific.decision.as_ref().and_then(|decision| decision.message.clone());
    let ends = specific.decision.is_some_and(|decision| decision.interrupt) || written.goes_on == Some(false);
    let reason = specific.permission_decision_reason.or(message).or(written.reason);
    let stop =
        ends.then(|| written.stop_reason.or_else(|| reason.clone()).unwrap_or_else(|| "it gave no reason".into()));
    Ok(Answer {
        // Both ways of saying it, where they differ, are as strict as the stricter.
        ruling: [older, newer, on_question].into_iter().flatten().max_by_key(|ruling| *ruling as u8),
        reason,
        input: specific.updated_input,
        context: specific.additional_context,
        stop,
        message: written.system_message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use HookEvent::{PermissionRequest, PostToolUse, PreToolUse, SessionStart, Stop, UserPromptSubmit};

    fn said(event: HookEvent, output: &str) -> Result<Answer, String> {
        answer(event, Some(Status::Code(0)), output, "")
    }

    #[test]
    fn the_exit_code_comes_first() {
        let json = r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"#;
        let blocked = answer(PreToolUse, Some(Status::Code(2)), json, "not here").unwrap();
        assert_eq!((blocked.ruling, blocked.reason.as_deref()), (Some(Ruling::Block), Some("not here")));
        for (status, part) in [
            (Status::Code(1), "exit code 1: why"),
            (Status::Code(127), "exit code 127"),
            (Status::Signal(9), "SIGKILL"),
            (Status::Lost, "unknown"),
        ] {
            let error = answer(PreToolUse, Some(status), json, "why").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(said(PreToolUse, " \n"), Ok(Answer::default()));
    }

    #[test]
    fn each_word_counts_where_it_has_a_meaning() {
        let specific = |text: &str| format!("{{\"hookSpecificOutput\":{{{text}}}}}");
        for (event, output, ruling) in [
            (PreToolUse, specific(r#""permissionDecision":"allow""#), Some(Ruling::Allow)),
            (PreToolUse, specific(r#""hookEventName":"PreToolUse","permissionDecision":"ask""#), Some(Ruling::Ask)),
            (PreToolUse, specific(r#""permissionDecision":"defer""#), Some(Ruling::Ask)),
            (
                PreToolUse,
                specific(r#""permissionDecision":"deny","permissionDecisionReason":"r""#),
                Some(Ruling::Block),
            ),
            (PreToolUse, r#"{"decision":"approve"}"#.into(), Some(Ruling::Allow)),
            (
                PreToolUse,
                r#"{"decision":"block","hookSpecificOutput":{"permissionDecision":"allow"}}"#.into(),
                Some(Ruling::Block),
            ),
            (PermissionRequest, specific(r#""decision":{"behavior":"deny","message":"r"}"#), Some(Ruling::Block)),
            (PostToolUse, r#"{"decision":"block","reason":"r"}"#.into(), Some(Ruling::Block)),
            (Stop, r#"{"decision":"block","reason":"r"}"#.into(), Some(Ruling::Block)),
            (PostToolUse, specific(r#""additionalContext":"c""#), None),
            (PreToolUse, "{}".into(), None),
        ] {
            assert_eq!(said(event, &output).unwrap().ruling, ruling, "{output}");
        }
        let changed = said(PreToolUse, &specific(r#""updatedInput":{"a":1}"#)).unwrap();
        assert_eq!(changed.input.unwrap()["a"], 1);
        let stopped = said(Stop, r#"{"continue":false,"stopReason":"enough"}"#).unwrap();
        assert_eq!(stopped.stop.as_deref(), Some("enough"));
        let stopped = said(PermissionRequest, &specific(r#""decision":{"behavior":"deny","interrupt":true}"#)).unwrap();
        assert!(stopped.stop.is_some());
        assert_eq!(said(SessionStart, "plain words").unwrap().context.as_deref(), Some("plain words"));
        assert_eq!(said(UserPromptSubmit, "plain words").unwrap().context.as_deref(), Some("plain words"));
    }

    #[test]
    fn what_is_no_answer_is_a_failure() {
        let specific = |text: &str| format!("{{\"hookSpecificOutput\":{{{text}}}}}");
        for (event, output, part) in [
            (PreToolUse, "checked, all well".into(), "what it printed is no answer"),
            (PreToolUse, "{\"decision\":\"block\"".into(), "what it printed is no answer"),
            (PreToolUse, r#"{"decison":"block"}"#.into(), "unknown field `decison`"),
            (PreToolUse, specific(r#""permissionDecision":"maybe""#), "unknown variant `maybe`"),
            (PreToolUse, specific(r#""updatedInput":"x""#), "invalid type"),
            (PreToolUse, specific(r#""hookEventName":"Stop""#), "it answers to Stop, and was asked about PreToolUse"),
            (
                PostToolUse,
                specific(r#""permissionDecision":"deny""#),
                "permissionDecision counts for nothing at PostToolUse",
            ),
            (PostToolUse, specific(r#""updatedInput":{}"#), "updatedInput counts for nothing"),
            (
                PermissionRequest,
                specific(r#""decision":{"behavior":"allow","updatedInput":{}}"#),
                "unknown field `updatedInput`",
            ),
            (UserPromptSubmit, r#"{"decision":"approve"}"#.into(), "decision: approve counts for nothing"),
        ] {
            let error = said(event, &output).unwrap_err();
            assert!(error.contains(part), "{output}: {error}");
        }
    }
}
