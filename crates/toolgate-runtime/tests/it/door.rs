//! The door: unknown tools, bad arguments, decisions, time limits, interrupts, panics, batches.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Decision, Reply, Withdrawn},
    call::Args,
    message::{Body, Event, Message, ModelMessage},
    outcome::{Ending, StopReason},
    policy::{Standing, Tier},
    tool::{Effect, ExecutionMode, Prepared, ToolSpec},
    trace::verify,
};
use toolgate_runtime::{
    BoxFuture,
    approver::Approver,
    environment::CallEnd,
    gate::Permit,
    image::Picture,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

use crate::support::{House, Plan, Scripted, until};

/// A tool whose run is a closure.
struct Fake {
    spec: ToolSpec,
    runs: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<String>>>,
    act: Act,
}

#[derive(Clone, Copy)]
enum Act {
    Say(&'static str),
    Fail,
    Panic,
    PanicEarly,
    Hang,
    HangPolitely,
    Slow,
    Image,
    BrokenImage,
}

impl Fake {
    fn new(name: &str, act: Act) -> Self {
        let mut spec = ToolSpec::new(
            name,
            "",
            json!({"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}),
        );
        spec.timeout_ms = 60_000;
        Self { spec, runs: Arc::default(), log: Arc::default(), act }
    }
}

impl Tool for Fake {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, _args: &'a Args, _cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        if let Act::PanicEarly = self.act {
            return Box::pin(async { panic!("an early bug") });
        }
        let effects = vec![Effect::Unknown("fake".into())];
        Box::pin(async { Ok(Prepared { effects, ..Prepared::default() }) })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            self.runs.fetch_add(1, Ordering::SeqCst);
            self.log.lock().unwrap().push(format!("start {}", permit.call().id()));
            let done = match self.act {
                Act::Say(text) => {
                    cx.out.write(text.as_bytes());
                    Ok(Done::default())
                }
                Act::Fail => {
                    cx.out.write(b"so far\n");
                    Err(ToolError::new("no luck"))
                }
                Act::Panic => {
                    cx.out.write(b"so far\n");
                    panic!("a bug")
                }
                Act::Hang => {
                    cx.out.write(b"so far\n");
                    std::future::pending().await
                }
                Act::HangPolitely => {
                    cx.cancel.cancelled().await;
                    Ok(Done::noted(StopReason::Completed, "[last words]"))
                }
                Act::Slow => {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    Ok(Done::default())
                }
                Act::PanicEarly => unreachable!("it never gets here"),
                Act::Image => {
                    let images = vec![Picture::of_base64("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==").unwrap()];
                    Ok(Done { images, ..Done::default() })
                }
                Act::BrokenImage => {
                    let images = vec![Picture::of_base64("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==").unwrap()];
                    Ok(Done { images, ..Done::noted(StopReason::Failed, "[half of it]") })
                }
            };
            self.log.lock().unwrap().push(format!("end {}", permit.call().id()));
            done
        })
    }
}

fn house(fakes: Vec<Fake>, mode: ApprovalMode) -> House {
    let tools = fakes.into_iter().map(|fake| Arc::new(fake) as Arc<dyn Tool>).collect();
    House::build(Plan { tools, mode, ..Plan::default() })
}

#[tokio::test]
async fn unknown_tools_and_bad_arguments_are_answered_recorded_and_never_run() {
    let fake = Fake::new("fake", Act::Say("x"));
    let runs = fake.runs.clone();
    let house = house(vec![fake], ApprovalMode::AllowAll);
    let output = house.call("nope", json!({})).await;
    assert_eq!((output.output.as_str(), output.stop_reason), ("Unknown tool: nope", Some(StopReason::Failed)));
    for (arguments, part) in [
        ("{\"n\":", "not valid JSON"),
        ("{\"n\":\"x\"}", "/n: expected integer, got \"x\""),
        ("[1]", "expected one JSON object"),
        ("{\"n\":null}", "/n: expected integer, got null"),
    ] {
        let output = house.call_raw("fake", arguments).await;
        assert_eq!(output.stop_reason, Some(StopReason::Failed));
        assert!(output.output.contains(part), "{}", output.output);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert!(house.decisions().iter().all(|decision| *decision == ("deny".into(), "default".into())));
    assert_eq!(house.decisions().len(), 5, "one decision each");
}

#[tokio::test]
async fn coercion_and_unknown_arguments_are_named_to_the_model() {
    let house = house(vec![Fake::new("fake", Act::Say("x"))], ApprovalMode::AllowAll);
    let output = house.call("fake", json!({"n": "42", "colour": 1})).await;
    assert_eq!(output.output, "x\n[unknown argument ignored: colour]\n[argument /n read as a number]");
}

#[tokio::test]
async fn failures_panics_and_time_limits_keep_what_was_said() {
    let mut hang = Fake::new("hang", Act::Hang);
    hang.spec.timeout_ms = 50;
    let mut polite = Fake::new("polite", Act::HangPolitely);
    polite.spec.timeout_ms = 50;
    let house = house(
        vec![
            Fake::new("fail", Act::Fail),
            Fake::new("panic", Act::Panic),
            Fake::new("early", Act::PanicEarly),
            hang,
            polite,
        ],
        ApprovalMode::AllowAll,
    );
    for (tool, text) in [
        ("fail", "so far\n[tool error] no luck"),
        ("panic", "so far\n[tool error] the tool panicked: a bug"),
        ("early", "the tool panicked: an early bug"),
        ("hang", "so far\n[tool timeout: exceeded 50ms]"),
        ("polite", "[last words]\n[tool timeout: exceeded 50ms]"),
    ] {
        let output = house.call(tool, json!({})).await;
        assert_eq!((output.output.as_str(), output.stop_reason), (text, Some(StopReason::Failed)));
    }
}

#[tokio::test]
async fn an_interrupt_wins_over_everything() {
    let house =
        house(vec![Fake::new("hang", Act::Hang), Fake::new("polite", Act::HangPolitely)], ApprovalMode::AllowAll);
    for (tool, text) in [
        ("hang", "so far\n[interrupted: tool aborted by user]"),
        ("polite", "[last words]\n[interrupted: tool aborted by user]"),
    ] {
        let interrupt = house.interrupt.child_token();
        let call = house.tool_call(tool, "{}");
        let id = call.id.clone();
        let (end, ()) = tokio::join!(house.env.call(call, &interrupt), async {
            until("the call starts", || started(&house, &id)).await;
            interrupt.cancel();
        });
        let CallEnd::Closed(output, _) = end.unwrap() else { panic!() };
        house.check_frame(&id, &output);
        assert_eq!((output.output.as_str(), output.stop_reason), (text, Some(StopReason::Aborted)));
    }
}

#[tokio::test]
async fn what_ended_a_call_is_said_beside_its_result() {
    let mut hang = Fake::new("hang", Act::Hang);
    hang.spec.timeout_ms = 50;
    let tools = vec![hang, Fake::new("say", Act::Say("[tool timeout: exceeded 5ms]")), Fake::new("fail", Act::Fail)];
    let allowing = house(tools, ApprovalMode::AllowAll);
    let denying = house(vec![Fake::new("say", Act::Say("x"))], ApprovalMode::DenyAll);
    for (house, tool, wanted) in [
        (&allowing, "hang", Ending::TimedOut(50)),
        (&allowing, "say", Ending::Returned(StopReason::Completed)),
        (&allowing, "fail", Ending::Errored("no luck".into())),
        (&allowing, "nope", Ending::Returned(StopReason::Failed)),
        (&denying, "say", Ending::Denied),
    ] {
        let end = house.env.call(house.tool_call(tool, "{}"), &house.interrupt).await.unwrap();
        let CallEnd::Closed(output, ending) = end else { panic!("{tool} has its result") };
        assert_eq!((output.stop_reason, &ending), (Some(ending.stop_reason()), &wanted), "{tool}");
    }
}

#[tokio::test]
async fn nothing_starts_behind_an_interrupt() {
    let fake = Fake::new("fake", Act::Say("x"));
    let runs = fake.runs.clone();
    let house = house(vec![fake], ApprovalMode::AllowAll);
    house.interrupt.cancel();
    let output = house.call("fake", json!({})).await;
    assert_eq!(
        (output.output.as_str(), output.stop_reason),
        ("[interrupted: tool aborted by user]", Some(StopReason::Aborted))
    );
    assert_eq!((runs.load(Ordering::SeqCst), house.decisions().len()), (0, 1));
    assert!(!started(&house, &output.tool_call_id));
}

fn started(house: &House, id: &str) -> bool {
    house.events().iter().any(|event| matches!(event, Event::CallStarted(started) if started.tool_call_id == id))
}

#[tokio::test]
async fn denied_means_that_nothing_ran() {
    let fake = Fake::new("fake", Act::Say("x"));
    let runs = fake.runs.clone();
    let house = house(vec![fake], ApprovalMode::DenyAll);
    let output = house.call("fake", json!({})).await;
    assert_eq!(output.output, "Tool call denied by policy: the mode deny-all denies every call");
    assert_eq!((output.stop_reason, runs.load(Ordering::SeqCst)), (Some(StopReason::Aborted), 0));
    assert_eq!(house.decisions(), [("deny".into(), "mode".into())]);
}

#[tokio::test]
async fn a_question_with_nobody_to_ask_is_denied_and_says_why() {
    let house = house(vec![Fake::new("fake", Act::Say("x"))], ApprovalMode::AlwaysAsk);
    let output = house.call("fake", json!({})).await;
    assert!(output.output.ends_with("and nobody is here to ask"), "{}", output.output);
    assert_eq!(house.decisions(), [("deny".into(), "default".into())]);
}

/// An approver whose own code breaks, where it is asked for the rules or for an answer.
struct Broken {
    at_rules: bool,
}

impl Approver for Broken {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        assert!(!self.at_rules, "no rules today");
        Box::pin(async { Standing { mode: ApprovalMode::AlwaysAsk, policy: Arc::default(), version: 1 } })
    }

    fn decide<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        Box::pin(async { panic!("no answer today") })
    }

    fn withdraw(&self, _: &ApprovalKey, _: Withdrawn) {}
}

#[tokio::test]
async fn an_approver_that_breaks_has_allowed_nothing() {
    for (at_rules, why) in [(false, "whoever was to answer failed: no answer today"), (true, "deny-all")] {
        let fake = Fake::new("fake", Act::Say("x"));
        let runs = fake.runs.clone();
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(fake)];
        let house = House::build(Plan { tools, approver: Some(Arc::new(Broken { at_rules })), ..Plan::default() });
        let output = house.call("fake", json!({})).await;
        assert!(
            output.output.starts_with("Tool call denied by policy: ") && output.output.contains(why),
            "{}",
            output.output
        );
        assert_eq!((runs.load(Ordering::SeqCst), house.decisions().len()), (0, 1));
    }
}

#[tokio::test]
async fn a_person_decides_and_their_note_reaches_the_model() {
    let yes = Reply::Decided(Decision::by_person(true, "ann", None));
    let no = Reply::Decided(Decision::by_person(false, "ann", Some("use the other file".into())));
    let approver = Scripted::new(ApprovalMode::AlwaysAsk, vec![yes, no, Reply::Deferred]);
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Fake::new("fake", Act::Say("x")))];
    let house = House::build(Plan { tools, approver: Some(approver.clone()), ..Plan::default() });
    assert_eq!(house.call("fake", json!({})).await.output, "x");
    assert_eq!(house.call("fake", json!({})).await.output, "Tool call denied by user.\nuse the other file");
    let waiting = house.env.call(house.tool_call("fake", "{}"), &house.interrupt).await.unwrap();
    let CallEnd::Waiting(key) = waiting else { panic!("deferred means waiting") };
    let asked = approver.asked.lock().unwrap();
    assert_eq!((asked.len(), &asked[2].key), (3, &key));
    assert!(asked.iter().all(|request| request.offers.is_empty()), "always-ask offers no \"always\"");
    assert_eq!(house.decisions(), [("allow".into(), "person".into()), ("deny".into(), "person".into())]);
}

#[tokio::test]
async fn an_interrupt_settles_an_open_question() {
    let approver = Scripted::new(ApprovalMode::AlwaysAsk, vec![]);
    let fake = Fake::new("fake", Act::Say("x"));
    let runs = fake.runs.clone();
    let house = House::build(Plan { tools: vec![Arc::new(fake)], approver: Some(approver.clone()), ..Plan::default() });
    let interrupt = house.interrupt.child_token();
    let (end, ()) = tokio::join!(house.env.call(house.tool_call("fake", "{}"), &interrupt), async {
        until("it asks", || !approver.asked.lock().unwrap().is_empty()).await;
        interrupt.cancel();
    });
    let CallEnd::Closed(output, _) = end.unwrap() else { panic!() };
    assert_eq!(output.stop_reason, Some(StopReason::Aborted));
    let withdrawn = approver.withdrawn.lock().unwrap().len();
    assert_eq!((withdrawn, runs.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(house.decisions(), [("deny".into(), "default".into())], "one call, one decision");
}

#[tokio::test]
async fn a_changed_mode_judges_open_questions_again() {
    for (mode, text, runs_then) in
        [(ApprovalMode::AllowAll, "x", 1), (ApprovalMode::DenyAll, "Tool call denied by policy", 0)]
    {
        let approver = Scripted::new(ApprovalMode::AlwaysAsk, vec![]);
        let fake = Fake::new("fake", Act::Say("x"));
        let runs = fake.runs.clone();
        let house =
            House::build(Plan { tools: vec![Arc::new(fake)], approver: Some(approver.clone()), ..Plan::default() });
        let (output, ()) = tokio::join!(house.call("fake", json!({})), async {
            until("it asks", || !approver.asked.lock().unwrap().is_empty()).await;
            *approver.mode.lock().unwrap() = mode;
            *approver.version.lock().unwrap() += 1;
        });
        assert!(output.output.starts_with(text), "{mode}: {}", output.output);
        let withdrawn = approver.withdrawn.lock().unwrap().len();
        assert_eq!((withdrawn, runs.load(Ordering::SeqCst), house.decisions().len()), (1, runs_then, 1));
    }
}

#[tokio::test]
async fn images_are_given_once_and_only_when_the_call_completed() {
    let broken = Fake::new("broken", Act::BrokenImage);
    let house = house(vec![Fake::new("image", Act::Image), broken], ApprovalMode::AllowAll);
    assert_eq!(house.call("broken", json!({})).await.images, Vec::<String>::new());
    let output = house.call("image", json!({})).await;
    assert_eq!((output.output.as_str(), output.images.len()), ("[no output]", 1));
    let shown = |message: &Message| match &message.body {
        Body::Model(ModelMessage::PartialToolCallOutput(partial)) => partial.images.len(),
        _ => 0,
    };
    assert_eq!(house.seen.0.lock().unwrap().iter().map(shown).sum::<usize>(), 1, "one delta holds them");
}

#[tokio::test]
async fn a_batch_runs_beside_each_other_and_comes_back_in_call_order() {
    let slow = Fake::new("slow", Act::Slow);
    let log = slow.log.clone();
    let house = house(vec![slow], ApprovalMode::AllowAll);
    let calls: Vec<_> = (0..4).map(|_| house.tool_call("slow", "{}")).collect();
    let ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
    let ends = house.env.call_all(calls, &house.interrupt).await.unwrap();
    assert_eq!(answered(&ends), ids);
    assert!(log.lock().unwrap()[..4].iter().all(|line| line.starts_with("start")), "all start before one ends");
}

#[tokio::test]
async fn one_sequential_tool_makes_its_batch_sequential() {
    let (slow, mut single) = (Fake::new("slow", Act::Slow), Fake::new("single", Act::Slow));
    single.spec.execution = ExecutionMode::Sequential;
    let log = slow.log.clone();
    single.log = log.clone();
    let house = house(vec![slow, single], ApprovalMode::AllowAll);
    let calls = ["slow", "nope", "single", "slow"].map(|name| house.tool_call(name, "{}")).to_vec();
    let ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
    let ends = house.env.call_all(calls, &house.interrupt).await.unwrap();
    assert_eq!(answered(&ends), ids);
    let ran: Vec<String> =
        [0, 2, 3].iter().flat_map(|i| [format!("start {}", ids[*i]), format!("end {}", ids[*i])]).collect();
    assert_eq!(*log.lock().unwrap(), ran);
}

#[tokio::test]
async fn the_cap_and_the_order_are_what_the_setup_says() {
    for (parallel, max_parallel, most) in [(true, 8, 6), (true, 2, 2), (true, 0, 1), (false, 8, 1)] {
        let slow = Fake::new("slow", Act::Slow);
        let log = slow.log.clone();
        let house = House::build(Plan { tools: vec![Arc::new(slow)], parallel, max_parallel, ..Plan::default() });
        let calls: Vec<_> = (0..6).map(|_| house.tool_call("slow", "{}")).collect();
        house.env.call_all(calls, &house.interrupt).await.unwrap();
        let (mut running, mut seen) = (0, 0);
        for line in log.lock().unwrap().iter() {
            running = if line.starts_with("start") { running + 1 } else { running - 1 };
            seen = seen.max(running);
        }
        assert_eq!(seen, most, "parallel {parallel}, at most {max_parallel}");
    }
}

#[tokio::test]
async fn calls_beyond_the_limit_of_one_answer_are_refused_and_none_is_lost() {
    let fake = Fake::new("fake", Act::Say("x"));
    let runs = fake.runs.clone();
    let house = house(vec![fake], ApprovalMode::AllowAll);
    let calls: Vec<_> = (0..130).map(|_| house.tool_call("fake", "{}")).collect();
    let ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
    let ends = house.env.call_all(calls, &house.interrupt).await.unwrap();
    assert_eq!((answered(&ends), runs.load(Ordering::SeqCst), house.decisions().len()), (ids, 128, 130));
    let CallEnd::Closed(output, ending) = &ends[129] else { panic!("it has its result") };
    assert_eq!(output.output, "Not run: an answer may hold 128 calls. Send this call again in a later answer.");
    assert_eq!(*ending, Ending::Returned(StopReason::Failed));
}

fn answered(ends: &[CallEnd]) -> Vec<String> {
    let id = |end: &CallEnd| match end {
        CallEnd::Closed(output, _) => output.tool_call_id.clone(),
        CallEnd::Waiting(key) => format!("waiting {}", key.call),
    };
    ends.iter().map(id).collect()
}

#[tokio::test]
async fn what_stands_behind_an_open_question_in_a_sequential_batch_stays_open() {
    let mut single = Fake::new("single", Act::Say("x"));
    single.spec.execution = ExecutionMode::Sequential;
    let runs = single.runs.clone();
    let yes = || Reply::Decided(Decision::by_person(true, "ann", None));
    let approver = Scripted::new(ApprovalMode::AlwaysAsk, vec![yes(), Reply::Deferred, yes()]);
    let house = House::build(Plan { tools: vec![Arc::new(single)], approver: Some(approver), ..Plan::default() });
    let calls = vec![house.tool_call("single", "{}"), house.tool_call("single", "{}"), house.tool_call("single", "{}")];
    let ends = house.env.call_all(calls, &house.interrupt).await.unwrap();
    assert_eq!(answered(&ends), ["call_1", "waiting call_2", "waiting call_3"]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn rules_reach_commands_before_anything_starts() {
    let house = House::build(Plan { rules: vec![(Tier::Deny, "Bash(touch *)")], ..Plan::default() });
    let output = house.sh("true; touch made").await;
    assert!(output.output.contains("the rule `Bash(touch *)`"), "{}", output.output);
    assert!(!house.work().join("made").exists());
    assert_eq!(house.decisions(), [("deny".into(), "rule".into())]);
    house.env.close().await;
}

#[tokio::test]
async fn the_trace_holds_one_decision_one_start_and_one_result_a_call() {
    let house = House::new();
    house.sh("echo hi").await;
    house.call("nope", json!({})).await;
    house.env.close().await;
    let bytes = std::fs::read(&house.trace).unwrap();
    let found = verify(&bytes).unwrap();
    assert!(found.chained && found.torn.is_none());
    let count = |tag: &str| String::from_utf8_lossy(&bytes).matches(&format!("{{\"type\":\"{tag}\"")).count();
    assert_eq!(["approval_decision", "call_started", "tool_call_output"].map(count), [2, 1, 2]);
}

#[test]
fn every_built_in_schema_can_be_checked() {
    for tool in toolgate_runtime::tools::builtin() {
        toolgate_core::schema::Schema::compile(&tool.spec().parameters).unwrap();
    }
}
