//! Hooks: what they may decide, what they may not lift, and what becomes of those that fail.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use toolgate_core::{
    approval::{ApprovalMode, Decision, Reply},
    message::{Event, ToolCallOutput},
    outcome::StopReason,
    policy::Tier,
};
use toolgate_runtime::hooks::{
    Hook, HookCommand,
    HookEvent::{self, PermissionRequest, PostToolUse, PreToolUse},
    Matcher,
    OnFailure::{self, Block, Continue},
};

use crate::support::{House, PATIENCE, Plan, Scripted, running, until};

fn hook(event: HookEvent, line: &str) -> Hook {
    Hook {
        event,
        matcher: Matcher::default(),
        command: HookCommand::Line(line.to_owned()),
        timeout: PATIENCE,
        on_failure: event.default_on_failure(),
        place: "test:1".into(),
    }
}

/// A hook that reads what it is told and prints this.
fn says(event: HookEvent, answer: &Value) -> Hook {
    hook(event, &format!("cat >/dev/null; cat <<'END'\n{answer}\nEND"))
}

fn decides(word: &str) -> Hook {
    says(PreToolUse, &json!({"hookSpecificOutput": {"permissionDecision": word, "permissionDecisionReason": "so"}}))
}

fn answers(behavior: &str) -> Hook {
    says(PermissionRequest, &json!({"hookSpecificOutput": {"decision": {"behavior": behavior, "message": "so"}}}))
}

struct Case {
    house: House,
    output: ToolCallOutput,
}

impl Case {
    async fn new(mode: ApprovalMode, rules: &[(Tier, &'static str)], hooks: Vec<Hook>, cmd: &str) -> Self {
        let house = House::build(Plan { mode, rules: rules.to_vec(), hooks, ..Plan::default() });
        let output = house.sh(cmd).await;
        Self { house, output }
    }

    /// The recorded decision and who made it.
    fn decided(&self) -> (String, String) {
        let decisions = self.house.decisions();
        assert_eq!(decisions.len(), 1, "exactly one decision");
        decisions[0].clone()
    }

    /// What the trace says of each hook.
    fn outcomes(&self) -> Vec<String> {
        let hook = |event| if let Event::Hook(hook) = event { Some(hook.outcome) } else { None };
        self.house.events().into_iter().filter_map(hook).collect()
    }
}

#[tokio::test]
async fn the_strictest_word_counts_and_an_allow_lifts_nothing_that_a_rule_says() {
    use ApprovalMode::{AllowAll, AlwaysAsk, DenyAll, ReadOnly};
    let deny = [(Tier::Deny, "Bash(echo *)")];
    let ask = [(Tier::Ask, "Bash(echo *)")];
    for (mode, rules, words, wanted) in [
        (AllowAll, &[][..], &["allow"][..], ("allow", "mode")),
        (AllowAll, &[], &["deny"], ("deny", "hook")),
        (AllowAll, &[], &["ask"], ("deny", "default")),
        (AllowAll, &[], &["allow", "deny"], ("deny", "hook")),
        (AllowAll, &[], &["deny", "allow"], ("deny", "hook")),
        (AllowAll, &[], &["ask", "allow"], ("deny", "default")),
        (ReadOnly, &[], &["allow"], ("allow", "hook")),
        (ReadOnly, &ask, &["allow"], ("deny", "default")),
        (AllowAll, &ask, &["allow"], ("deny", "default")),
        (AllowAll, &deny, &["allow"], ("deny", "rule")),
        (ReadOnly, &deny, &["allow"], ("deny", "rule")),
        (AlwaysAsk, &[], &["allow"], ("deny", "default")),
        (DenyAll, &[], &["allow"], ("deny", "mode")),
    ] {
        let case = Case::new(mode, rules, words.iter().map(|word| decides(word)).collect(), "echo ran").await;
        let (decision, source) = case.decided();
        assert_eq!((decision.as_str(), source.as_str()), wanted, "{mode} {rules:?} {words:?}");
        assert_eq!(case.output.output == "ran\n", decision == "allow", "{}", case.output.output);
    }
    let case = Case::new(AllowAll, &[], vec![decides("deny"), decides("allow")], "echo ran").await;
    assert!(case.output.output.starts_with("Tool call denied by policy: the hook cat "), "{}", case.output.output);
    assert!(case.output.output.ends_with("(test:1): so") && case.output.stop_reason == Some(StopReason::Aborted));
    assert_eq!(case.outcomes(), ["deny"], "after a deny nobody else is asked");
}

#[tokio::test]
async fn what_is_no_answer_is_named_and_blocks_where_it_must() {
    let slow =
        |on_failure| Hook { timeout: Duration::from_millis(100), on_failure, ..hook(PreToolUse, "exec sleep 600.75") };
    let with = |line: &str, on_failure| Hook { on_failure, ..hook(PreToolUse, line) };
    let missing = Hook { command: HookCommand::Program(vec!["/no/such/program".into()]), ..hook(PreToolUse, "") };
    for (make, part) in [
        (slow as fn(OnFailure) -> Hook, "it did not answer within 100 ms"),
        (|on_failure| Hook { on_failure, ..hook(PreToolUse, "echo broken >&2; exit 1") }, "exit code 1: broken"),
        (|on_failure| Hook { on_failure, ..hook(PreToolUse, "kill -9 $$") }, "terminated by signal SIGKILL"),
        (|on_failure| Hook { on_failure, ..hook(PreToolUse, "echo fine") }, "what it printed is no answer"),
        (
            |on_failure| Hook { on_failure, ..hook(PreToolUse, "head -c 2000000 /dev/zero") },
            "it printed more than 1048576 bytes",
        ),
    ] {
        let case = Case::new(ApprovalMode::AllowAll, &[], vec![make(Block)], "echo ran").await;
        assert!(
            case.output.output.contains("it failed: ") && case.output.output.contains(part),
            "{}",
            case.output.output
        );
        assert_eq!((case.decided(), case.outcomes()), (("deny".into(), "hook".into()), vec!["failed".to_owned()]));
        let case = Case::new(ApprovalMode::AllowAll, &[], vec![make(Continue)], "echo ran").await;
        assert_eq!((case.output.output.as_str(), case.outcomes()), ("ran\n", vec!["failed".to_owned()]), "{part}");
    }
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![missing], "echo ran").await;
    assert!(case.output.output.contains("/no/such/program"), "{}", case.output.output);
    let both =
        with("echo '{\"hookSpecificOutput\":{\"permissionDecision\":\"allow\"}}'; echo never >&2; exit 2", Continue);
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![both], "echo ran").await;
    assert!(case.output.output.ends_with(": never"), "exit code 2 blocks whatever is printed: {}", case.output.output);
    until("no hook is left running", || running("sleep 600.75").is_empty()).await;
}

#[tokio::test]
async fn changed_arguments_are_checked_judged_and_shown() {
    let change = |input: Value| says(PreToolUse, &json!({"hookSpecificOutput": {"updatedInput": input}}));
    let changed = "[arguments changed by the hook cat >/dev/null; cat <<'END'";
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![change(json!({"cmd": "echo other"}))], "echo ran").await;
    assert!(
        case.output.output.starts_with("other\n") && case.output.output.contains(changed),
        "{}",
        case.output.output
    );
    assert_eq!(case.outcomes(), ["changed"]);

    let deny = [(Tier::Deny, "Bash(curl *)")];
    let case = Case::new(ApprovalMode::AllowAll, &deny, vec![change(json!({"cmd": "curl x"}))], "echo ran").await;
    assert_eq!(case.decided(), ("deny".into(), "rule".into()), "{}", case.output.output);

    let case = Case::new(ApprovalMode::AllowAll, &[], vec![change(json!({"line": "x"}))], "echo ran").await;
    assert!(
        case.output.output.contains("changed the arguments. Invalid arguments for exec_command"),
        "{}",
        case.output.output
    );
    assert_eq!(case.decided().0, "deny");

    // The second hook sees what the first one made of it, and the person sees both what runs and whose it is.
    let seen = hook(PreToolUse, r#"grep -q '"tool_input":{"cmd":"echo other"}' && exit 0; exit 2"#);
    let approver = Scripted::new(ApprovalMode::AlwaysAsk, vec![Reply::Decided(Decision::by_person(true, "p", None))]);
    let hooks = vec![change(json!({"cmd": "echo other"})), seen];
    let house = House::build(Plan { approver: Some(approver.clone()), hooks, ..Plan::default() });
    let output = house.sh("echo ran").await;
    assert!(output.output.starts_with("other\n"), "{}", output.output);
    let asked = approver.asked.lock().unwrap()[0].clone();
    assert!(asked.summary.starts_with("echo other [arguments changed by the hook "), "{}", asked.summary);
    assert_eq!(asked.args["cmd"], "echo other");
}

#[tokio::test]
async fn a_hook_may_answer_a_question_that_only_the_mode_puts() {
    use ApprovalMode::{AllowAll, AlwaysAsk, ReadOnly};
    let ask = [(Tier::Ask, "Bash")];
    for (mode, rules, hooks, wanted) in [
        (ReadOnly, &[][..], vec![answers("allow")], ("allow", "hook")),
        (ReadOnly, &[], vec![answers("deny")], ("deny", "hook")),
        (ReadOnly, &ask, vec![answers("allow")], ("deny", "default")),
        (AllowAll, &ask, vec![answers("allow")], ("deny", "default")),
        (AllowAll, &ask, vec![answers("deny")], ("deny", "hook")),
        (AlwaysAsk, &[], vec![answers("allow")], ("deny", "default")),
        (AllowAll, &[], vec![decides("ask"), answers("allow")], ("deny", "default")),
        (ReadOnly, &[], vec![hook(PermissionRequest, "exit 1")], ("deny", "default")),
        (AllowAll, &[], vec![answers("deny")], ("allow", "mode")),
    ] {
        let case = Case::new(mode, rules, hooks, "echo ran").await;
        let (decision, source) = case.decided();
        assert_eq!((decision.as_str(), source.as_str()), wanted, "{mode} {rules:?}");
    }
}

#[tokio::test]
async fn what_is_said_after_a_call_stands_in_its_result() {
    let context = says(PostToolUse, &json!({"hookSpecificOutput": {"additionalContext": "two warnings"}}));
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![context], "echo ran; exit 3").await;
    assert_eq!(case.output.output, "ran\ntwo warnings\n[exit code: 3]");

    let told = hook(
        PostToolUse,
        r#"grep -q '"tool_response":{"output":"ran\\n","note":null,"stop_reason":"completed"}' || exit 2"#,
    );
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![told], "echo ran").await;
    assert_eq!((case.output.output.as_str(), case.output.stop_reason), ("ran\n", Some(StopReason::Completed)));

    let blocks = hook(PostToolUse, "echo 'format it' >&2; exit 2");
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![blocks], "echo ran").await;
    assert_eq!(case.output.output, "ran\n[the hook echo 'format it' >&2; exit 2 (test:1): format it]");
    assert_eq!(case.output.stop_reason, Some(StopReason::Failed));

    let denied = Case::new(ApprovalMode::DenyAll, &[], vec![hook(PostToolUse, "exit 2")], "echo ran").await;
    assert!(denied.outcomes().is_empty(), "what never ran is not over");
}

#[tokio::test]
async fn hooks_are_told_what_they_are_asked_about_and_only_what_is_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let told: PathBuf = folder.path().join("told");
    let keep = |matcher: &str| Hook {
        matcher: Matcher::parse(matcher).unwrap(),
        ..hook(PreToolUse, &format!("cat >>{}; pwd -P >>{0}", told.display()))
    };
    let case =
        Case::new(ApprovalMode::AllowAll, &[], vec![keep("Bash"), keep("write|read"), keep("exec")], "echo ran").await;
    let text = std::fs::read_to_string(&told).unwrap();
    let (line, folder) = text.split_once('\n').unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let cwd = case.house.work().canonicalize().unwrap().display().to_string();
    assert_eq!(folder.trim_end(), cwd, "one hook, in the workspace");
    assert_eq!(
        line,
        json!({
            "session_id": "session-test", "transcript_path": case.house.trace.display().to_string(), "cwd": cwd,
            "hook_event_name": "PreToolUse", "tool_name": "exec_command", "tool_input": {"cmd": "echo ran"}, "tool_use_id": "call_1",
        })
    );
}

#[tokio::test]
async fn hooks_find_recorded_what_came_before() {
    // What was said between the call and its start stands in the trace when the later hook is asked, and its own word after that.
    let early = hook(PreToolUse, "exit 0");
    let late = hook(
        PostToolUse,
        r#"trace=$(sed 's/.*"transcript_path":"\([^"]*\)".*/\1/'); grep -q '"type":"hook"' "$trace" && grep -q '"type":"call_started"' "$trace" || exit 2"#,
    );
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![early, late], "echo ran").await;
    assert_eq!((case.output.output.as_str(), case.outcomes().len()), ("ran\n", 2));
}

#[tokio::test]
async fn an_interrupt_does_not_wait_for_a_hook() {
    let house = Arc::new(House::build(Plan { hooks: vec![hook(PreToolUse, "exec sleep 600.875")], ..Plan::default() }));
    let (interrupt, calling) = (house.interrupt.clone(), house.clone());
    let call = tokio::spawn(async move { calling.sh("echo ran").await });
    until("the hook runs", || !running("sleep 600.875").is_empty()).await;
    interrupt.cancel();
    let output = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
    assert_eq!(output.stop_reason, Some(StopReason::Aborted), "{}", output.output);
    assert!(!output.output.contains("ran\n"));
    until("the hook is ended", || running("sleep 600.875").is_empty()).await;
}

#[tokio::test]
async fn a_hook_that_ends_the_run_lets_no_call_run() {
    let ends = says(PreToolUse, &json!({"continue": false, "stopReason": "enough"}));
    let case = Case::new(ApprovalMode::AllowAll, &[], vec![ends], "echo ran").await;
    assert_eq!((case.decided().0.as_str(), case.outcomes()), ("deny", vec!["stop".to_owned()]));
    let next = case.house.sh("echo more").await;
    assert!(
        next.output.contains(": enough") && case.outcomes().len() == 1,
        "nothing more begins, and no hook is asked: {}",
        next.output
    );
    let stop = case.house.env.hooks().take_stop().unwrap();
    assert!(stop.ends_with(": enough") && case.house.env.hooks().take_stop().is_none(), "{stop}");
}
