//! The loop against a model that plays a part: no network, and a clock that only moves when everybody waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    history::Rebuilt,
    provider::{Answer, ErrorClass, ModelEvent, ModelId, Provider, ProviderError, Request, Stop, Usage},
    runtime::BoxFuture,
    session::{
        Compacted, CompactionMode, CompactionOptions, RunEnd, RunOptions, RunStatus, Session, SessionSetup, Steering,
    },
};
use toolgate_core::{
    approval::ApprovalMode,
    call::Args,
    message::{ModelMessage, Role},
    policy::Policy,
    tool::{Prepared, ToolCall, ToolSpec},
};
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    environment::{Environment, Setup},
    gate::Permit,
    image::Picture,
    registry::Registry,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
    trace::{Journal, TraceFile, Unwatched},
    workspace::Workspace,
};

/// One answer of the part.
pub enum Line {
    /// It says something, and calls the tool with these ids.
    Says(&'static str, &'static [&'static str]),
    /// The same, with a stop reason of its own and the tokens of the request.
    Ends(&'static str, Stop, u64),
    /// It says a little and breaks off.
    Breaks(&'static str, ProviderError),
    /// It never answers.
    Hangs,
}

/// A model that plays a part and remembers what it was asked.
#[derive(Clone, Default)]
pub struct Part {
    pub lines: Arc<Mutex<VecDeque<Line>>>,
    pub asked: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Clone)]
pub struct Asked {
    pub history: Vec<ModelMessage>,
    max_tokens: Option<u64>,
}

impl Provider for Part {
    fn model(&self) -> &ModelId {
        static MODEL: std::sync::OnceLock<ModelId> = std::sync::OnceLock::new();
        MODEL.get_or_init(|| ModelId { provider: "play".into(), model: "part".into() })
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Box<dyn Answer>, ProviderError>> {
        let asked = Asked { history: request.history.to_vec(), max_tokens: request.max_tokens };
        self.asked.lock().unwrap().push(asked);
        let line = self.lines.lock().unwrap().pop_front().expect("the part has a further line");
        let mut events = VecDeque::new();
        let (says, ids, stop, total, error): (_, &[&str], _, _, _) = match line {
            Line::Says(says, ids) => (says, ids, if ids.is_empty() { Stop::End } else { Stop::ToolCalls }, 10, None),
            Line::Ends(says, stop, total) => (says, &[], stop, total, None),
            Line::Breaks("", error) => return Box::pin(async { Err(error) }),
            Line::Breaks(says, error) => (says, &[], Stop::End, 10, Some(error)),
            Line::Hangs => return Box::pin(std::future::pending()),
        };
        if !says.is_empty() {
            events.push_back(Ok(ModelEvent::Text(says.into())));
        }
        if let Some(error) = error {
            events.push_back(Err(error));
        } else {
            for (index, id) in ids.iter().enumerate() {
                let call =
                    ToolCall { id: (*id).into(), name: "echo".into(), arguments: format!("{{\"say\":\"{id}\"}}") };
                events.push_back(Ok(ModelEvent::CallStart { index, id: call.id.clone(), name: call.name.clone() }));
                events.push_back(Ok(ModelEvent::Call { index, call, valid: true, native: None }));
            }
            events.push_back(Ok(ModelEvent::Usage(Usage { input: total, ..Usage::default() })));
            events.push_back(Ok(ModelEvent::End(stop)));
        }
        Box::pin(async { Ok(Box::new(Spoken(events)) as Box<dyn Answer>) })
    }
}

struct Spoken(VecDeque<Result<ModelEvent, ProviderError>>);

impl Answer for Spoken {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ModelEvent>, ProviderError>> {
        Box::pin(async { self.0.pop_front().transpose() })
    }
}

/// One black pixel, as PNG.
const PIXEL: &str = pixel!();

/// Gives back what it is told, with an image where it is told to; speaks into the run where it is told to.
struct Echo(ToolSpec, Arc<Mutex<Option<Steering>>>);

impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare<'a>(&'a self, _: &'a Args, _: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async { Ok(Prepared::default()) })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let said = permit.call().args()["say"].as_str().unwrap().to_owned();
            cx.out.write(format!("echo {said}").as_bytes());
            if let Some(steering) = self.1.lock().unwrap().as_ref().filter(|_| said.starts_with("steer")) {
                steering.say("look at the other file").unwrap();
            }
            let images =
                said.starts_with("image").then(|| Picture::of_base64(PIXEL).expect("a pixel")).into_iter().collect();
            Ok(Done { images, ..Done::default() })
        })
    }
}

/// A session with a part to play against.
struct Play {
    part: Part,
    folder: tempfile::TempDir,
    session: Session,
    steering: Arc<Mutex<Option<Steering>>>,
}

impl Play {
    fn new(lines: Vec<Line>, options: RunOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let part = Part::default();
        part.lines.lock().unwrap().extend(lines);
        let steering = Arc::default();
        let file = TraceFile::create(&folder.path().join("s_001.jsonl"), &[]).unwrap();
        let session = Session::begin(setup(Arc::new(part.clone()), &folder, &steering, file, options)).unwrap();
        *steering.lock().unwrap() = Some(session.steering());
        Self { part, folder, session, steering }
    }

    async fn run(&mut self, prompt: &str) -> RunEnd {
        let end = self.session.run(Some(prompt), &CancellationToken::new()).await.unwrap();
        self.session.seal(&end).unwrap();
        end
    }

    fn asked(&self) -> Vec<Asked> {
        self.part.asked.lock().unwrap().clone()
    }

    /// The session's trace files, in order.
    fn files(&self) -> Vec<Vec<u8>> {
        let files = (1..).map(|number| std::fs::read(self.folder.path().join(format!("s_{number:03}.jsonl"))));
        files.map_while(Result::ok).collect()
    }

    fn records(&self) -> Vec<Value> {
        let lines = |file: Vec<u8>| String::from_utf8(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
        self.files().into_iter().flat_map(lines).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    /// The payloads of one kind of record.
    fn payloads(&self, tag: &str) -> Vec<Value> {
        let records = self.records().into_iter().map(|record| record["payload"].clone());
        records.filter(|payload| payload["type"] == tag).collect()
    }
}

/// A session's parts: one tool, every call allowed, a trace of its own.
pub fn setup(
    provider: Arc<dyn Provider>,
    folder: &tempfile::TempDir,
    steering: &Arc<Mutex<Option<Steering>>>,
    file: TraceFile,
    options: RunOptions,
) -> SessionSetup {
    around(provider, house(folder, steering, file), options)
}

/// The session around an environment of these parts.
pub fn around(provider: Arc<dyn Provider>, house: Setup, options: RunOptions) -> SessionSetup {
    let (journal, workspace) = (house.journal.clone(), house.workspace.root().display().to_string());
    let environment = Arc::new(Environment::new(house));
    let system = "Be brief.".into();
    SessionSetup { id: "s".into(), provider, environment, journal, system, workspace, is_child: false, options }
}

/// One tool, and every call allowed.
pub fn house(folder: &tempfile::TempDir, steering: &Arc<Mutex<Option<Steering>>>, file: TraceFile) -> Setup {
    let workspace = Workspace::open(folder.path()).unwrap();
    let journal = Arc::new(Journal::new(Some(file), Arc::new(Unwatched)));
    let mut registry = Registry::default();
    let parameters = json!({ "type": "object", "properties": { "say": { "type": "string" } } });
    registry.add(Arc::new(Echo(ToolSpec::new("echo", "", parameters), steering.clone()))).unwrap();
    let approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    Setup { registry, approver, journal, ..Setup::new(workspace) }
}

fn failure(class: ErrorClass, status: u16) -> ProviderError {
    ProviderError { class, status: Some(status), message: "host says no".into(), retry_after_ms: None, hopeless: false }
}

/// A history in words: who, and what.
pub fn words(history: &[ModelMessage]) -> Vec<String> {
    let one = |message: &ModelMessage| match message {
        ModelMessage::Text(text) if text.role == Role::Assistant => format!("said {}", text.text),
        ModelMessage::Text(text) => text.text.clone(),
        ModelMessage::ToolCall(call) => format!("call {}", call.tool_call_id),
        ModelMessage::ToolCallOutput(output) => format!("output {}", output.output),
        other => other.tag().to_owned(),
    };
    history.iter().map(one).collect()
}

fn last_words(asked: &[Asked]) -> Vec<String> {
    words(&asked.last().unwrap().history)
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_and_the_model_is_told_what_had_arrived() {
    let lines = vec![
        Line::Breaks("", failure(ErrorClass::Server, 503)),
        Line::Breaks("half an ans", failure(ErrorClass::Cut, 200)),
        Line::Breaks("", ProviderError { retry_after_ms: Some(9_000), ..failure(ErrorClass::RateLimit, 429) }),
        Line::Says("done", &[]),
        Line::Says("again", &[]),
    ];
    let mut play = Play::new(lines, RunOptions::default());
    let start = tokio::time::Instant::now();
    let end = play.run("go").await;
    assert_eq!((end.text.as_str(), end.status.as_str(), end.turns), ("done", "completed", 1));
    assert_eq!(start.elapsed(), Duration::from_millis(2000 + 4000 + 9000));
    let asked = play.asked();
    assert_eq!([words(&asked[0].history), words(&asked[1].history)], [["go"], ["go"]]);
    for told in [&asked[2], &asked[3]] {
        let told = words(&told.history);
        assert!(
            told.len() == 2 && told[1].starts_with("[turn_retried]") && told[1].ends_with("half an ans"),
            "{told:?}"
        );
    }
    let ends = play.payloads("request_end").into_iter();
    let ends: Vec<_> =
        ends.map(|end| (end["status"].clone(), end["attempt"].clone(), end["retry_in_ms"].clone())).collect();
    assert_eq!(
        ends,
        [
            (json!("failed"), json!(1), json!(2000)),
            (json!("malformed"), json!(2), json!(4000)),
            (json!("failed"), json!(3), json!(9000)),
            (json!("completed"), json!(4), json!(null)),
        ]
    );
    play.run("more").await;
    assert_eq!(last_words(&play.asked()), ["go", "said done", "more"], "what was told does not stay");
    let trace = String::from_utf8(play.files().concat()).unwrap();
    assert!(!trace.contains("[turn_retried]") && play.payloads("abort").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_lasts_ends_the_run_and_loses_nothing() {
    let cut = || Line::Breaks("x", failure(ErrorClass::Cut, 200));
    let mut play = Play::new((0..6).map(|_| cut()).chain([Line::Says("late", &[])]).collect(), RunOptions::default());
    let start = tokio::time::Instant::now();
    let end = play.run("go").await;
    assert!(matches!(&end.status, RunStatus::Failed(error) if error.class == ErrorClass::Cut));
    assert_eq!((start.elapsed().as_secs(), play.asked().len()), (2 + 4 + 8 + 16 + 30, 6));
    assert!(play.payloads("abort")[0]["reason"].as_str().unwrap().contains("host says no"));
    play.run("and now").await;
    let carried = last_words(&play.asked());
    assert_eq!(
        (carried[0].as_str(), carried[2].as_str(), carried.len()),
        ("go", "and now", 3),
        "the prompt is carried over"
    );
    assert!(
        carried[1].starts_with("[turn_aborted]") && carried[1].ends_with("\nx"),
        "so is what had arrived: {carried:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_no_second_try_can_mend_ends_it_at_once() {
    for (class, status, word) in [
        (ErrorClass::Auth, 401, "auth"),
        (ErrorClass::InvalidRequest, 400, "failed"),
        (ErrorClass::NotFound, 404, "failed"),
        (ErrorClass::Quota, 402, "failed"),
    ] {
        let mut play = Play::new(vec![Line::Breaks("", failure(class, status))], RunOptions::default());
        let start = tokio::time::Instant::now();
        assert!(matches!(play.run("go").await.status, RunStatus::Failed(_)));
        assert_eq!((start.elapsed(), play.payloads("request_end")[0]["status"].clone()), (Duration::ZERO, json!(word)));
        assert_eq!(play.payloads("request_end")[0].get("retry_in_ms"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_ends_the_wait_by_stopping_or_by_hurrying() {
    let lines = || vec![Line::Breaks("", failure(ErrorClass::Server, 500)), Line::Says("done", &[])];
    let mut play = Play::new(lines(), RunOptions::default());
    let (interrupt, start) = (CancellationToken::new(), tokio::time::Instant::now());
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        interrupt.cancel();
    };
    let (end, ()) = tokio::join!(play.session.run(Some("go"), &interrupt), stop);
    assert!(matches!(end.unwrap().status, RunStatus::Interrupted));
    assert_eq!(start.elapsed(), Duration::from_millis(500));

    let mut play = Play::new(lines(), RunOptions::default());
    let (interrupt, start) = (CancellationToken::new(), tokio::time::Instant::now());
    let steering = play.session.steering();
    let hurry = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        steering.retry_now();
    };
    let (end, ()) = tokio::join!(play.session.run(Some("go"), &interrupt), hurry);
    assert_eq!((end.unwrap().text.as_str(), start.elapsed()), ("done", Duration::from_millis(300)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_stopped_is_told_of_with_the_next_prompt() {
    let mut play = Play::new(vec![Line::Hangs, Line::Says("done", &[])], RunOptions::default());
    let interrupt = CancellationToken::new();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        interrupt.cancel();
    };
    let (end, ()) = tokio::join!(play.session.run(Some("go"), &interrupt), stop);
    assert!(matches!(end.unwrap().status, RunStatus::Interrupted));
    assert_eq!(play.payloads("request_end")[0]["status"], "aborted");
    play.run("now").await;
    assert_eq!(last_words(&play.asked()), ["go", "now"]);
}

#[tokio::test]
async fn what_is_said_meanwhile_comes_with_the_results_or_continues_the_run() {
    let lines = vec![Line::Says("", &["steer1"]), Line::Says("done", &[])];
    let mut play = Play::new(lines, RunOptions::default());
    play.run("go").await;
    let steered = "[user_steering]\nlook at the other file";
    assert_eq!(last_words(&play.asked()), ["go", "call steer1", "output echo steer1", steered]);
    assert_eq!(play.steering.lock().unwrap().as_ref().unwrap().say("nobody hears"), None);
    let said: Vec<_> = play.payloads("text").iter().map(|text| text["text"].clone()).collect();
    assert_eq!(said, [json!("go"), json!(steered), json!("done")], "it is written down as what it is");
}

#[tokio::test(start_paused = true)]
async fn what_is_said_during_the_last_answer_continues_the_run_and_says_who_speaks() {
    let lines =
        vec![Line::Breaks("", failure(ErrorClass::Server, 500)), Line::Says("done", &[]), Line::Says("that too", &[])];
    let mut play = Play::new(lines, RunOptions::default());
    let steering = play.session.steering();
    let interrupt = CancellationToken::new();
    // It is said while the run waits before its second attempt, which no longer takes it along.
    let say = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        steering.say("and the rest").unwrap();
    };
    let (end, ()) = tokio::join!(play.session.run(Some("go"), &interrupt), say);
    let end = end.unwrap();
    assert_eq!((end.text.as_str(), end.turns, end.unheard), ("that too", 2, 0));
    assert_eq!(last_words(&play.asked()), ["go", "said done", "[user_steering]\nand the rest"]);
    let senders: Vec<_> = play.payloads("text").iter().map(|text| text.get("sender").cloned()).collect();
    assert_eq!(senders, [None, None, None, None], "a person and a model need no sender");
    play.part.lines.lock().unwrap().push_back(SUMMARY);
    play.session.compact(&interrupt).await.unwrap();
    let summary =
        play.payloads("text").into_iter().find(|text| text["text"].as_str().unwrap().starts_with("[context_summary]"));
    assert_eq!(summary.unwrap()["sender"], "harness");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_that_is_stopped_changes_nothing_and_results_ride_along() {
    let lines = vec![Line::Says("", &["a"]), Line::Says("first", &[]), Line::Hangs, SUMMARY];
    let mut play = Play::new(lines, RunOptions::default());
    play.run("one").await;
    let interrupt = CancellationToken::new();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        interrupt.cancel();
    };
    let (end, ()) = tokio::join!(play.session.compact(&interrupt), stop);
    assert!(matches!(end.unwrap(), Compacted::Interrupted));
    assert_eq!((play.payloads("compaction_end")[0]["status"].clone(), play.files().len()), (json!("aborted"), 1));
    assert!(matches!(play.session.compact(&CancellationToken::new()).await.unwrap(), Compacted::Done));
    for asked in &play.asked()[2..] {
        assert_eq!(words(&asked.history)[..4], ["one", "call a", "output echo a", "said first"]);
    }
}

#[tokio::test]
async fn a_turn_that_the_provider_paused_is_sent_back_as_it_is() {
    let lines = vec![Line::Ends("part one", Stop::Pause, 5), Line::Says("part two", &[])];
    let mut play = Play::new(lines, RunOptions::default());
    let end = play.run("go").await;
    assert_eq!((end.status.as_str(), end.turns), ("completed", 2));
    assert_eq!(last_words(&play.asked()), ["go", "said part one"]);
    let mut play = Play::new((0..20).map(|_| Line::Ends("", Stop::Pause, 5)).collect(), RunOptions::default());
    assert_eq!(play.run("go").await.turns, 17, "a provider that pauses for ever does not keep the run for ever");
}

#[tokio::test]
async fn a_history_that_a_provider_refuses_is_sent_without_what_it_stumbled_over() {
    let lines = vec![
        Line::Says("", &["image1"]),
        Line::Breaks("", failure(ErrorClass::InvalidRequest, 400)),
        Line::Says("I cannot see it", &[]),
        Line::Says("again", &[]),
    ];
    let mut play = Play::new(lines, RunOptions::default());
    assert_eq!(play.run("look").await.text, "I cannot see it");
    play.run("and now").await;
    let images = |asked: &Asked| {
        asked
            .history
            .iter()
            .any(|message| matches!(message, ModelMessage::ToolCallOutput(output) if !output.images.is_empty()))
    };
    assert_eq!(play.asked().iter().map(images).collect::<Vec<_>>(), [false, true, false, false]);
    assert!(last_words(&play.asked())[2].contains("image left out"));
    assert!(play.payloads("tool_call_output")[0]["images"][0].is_string(), "the trace keeps what was said");
}

fn compacting(max_context: u64) -> RunOptions {
    let compaction = CompactionOptions { max_context: Some(max_context), ..CompactionOptions::default() };
    RunOptions { compaction, ..RunOptions::default() }
}

const SUMMARY: Line = Line::Ends("[summary]they said go[/summary]", Stop::End, 20);

#[tokio::test(start_paused = true)]
async fn a_long_conversation_is_summed_up_and_goes_on_in_a_file_of_its_own() {
    let lines = vec![
        Line::Ends("first", Stop::End, 5),
        Line::Ends("second", Stop::End, 100),
        SUMMARY,
        Line::Says("third", &["a"]),
        Line::Says("fourth", &[]),
    ];
    let mut play = Play::new(lines, compacting(100));
    play.run("one").await;
    play.run("two").await;
    assert_eq!(play.files().len(), 1, "the bound was reached by an answer that ended its run");
    play.run("three").await;
    let asked = play.asked();
    assert_eq!(words(&asked[2].history)[..4], ["one", "said first", "two", "said second"], "the prompt waits");
    assert_eq!(words(&asked[3].history), ["[context_summary]\nthey said go", "three"]);
    assert_eq!(words(&asked[4].history)[2..], ["said third", "call a", "output echo a"]);
    let files = play.files();
    assert_eq!(files.len(), 2);
    let (begin, end) = (&play.payloads("compaction_begin")[0], &play.payloads("compaction_end")[0]);
    assert_eq!(
        json!([begin["reason"], begin["mode"], begin["context"], begin["turns"]]),
        json!(["context", "summarize", 100, 2])
    );
    assert_eq!(json!([end["reason"], end["status"]]), json!(["context", "completed"]));
    let metas = play.records().into_iter().filter(|record| record["type"] == "session_meta").collect::<Vec<_>>();
    let first_head = play
        .records()
        .iter()
        .rev()
        .find(|r| String::from_utf8_lossy(&files[0]).contains(r["hash"].as_str().unwrap()))
        .unwrap()["hash"]
        .clone();
    assert_eq!(metas[1]["payload"]["previous"], first_head, "the second file names the head of the first");
    for file in &files {
        toolgate_core::trace::verify(file).unwrap();
    }
    let rebuilt = Rebuilt::read(&files[1]).unwrap();
    assert_eq!(
        words(&rebuilt.history()),
        ["[context_summary]\nthey said go", "three", "said third", "call a", "output echo a", "said fourth"]
    );
}

#[tokio::test(start_paused = true)]
async fn results_ride_along_when_a_run_is_summed_up_in_its_middle() {
    let lines = vec![Line::Ends("", Stop::End, 0), SUMMARY, Line::Says("done", &[])];
    let mut play = Play::new(lines, compacting(10));
    // The first answer makes a call and costs as much as is allowed.
    play.part.lines.lock().unwrap()[0] = Line::Says("", &["a"]);
    let end = play.run("go").await;
    assert_eq!(end.text, "done");
    let asked = play.asked();
    assert_eq!(words(&asked[1].history)[..3], ["go", "call a", "output echo a"]);
    assert_eq!(words(&asked[2].history), ["[context_summary]\nthey said go"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_sum_up_is_corrected_and_at_last_left_alone() {
    let lines = vec![
        Line::Ends("first", Stop::End, 100),
        Line::Says("I call instead", &["x"]),
        Line::Ends(" ", Stop::End, 5),
        SUMMARY,
        Line::Says("done", &[]),
    ];
    let mut play = Play::new(lines, compacting(100));
    play.run("one").await;
    play.run("two").await;
    let asked = play.asked();
    let corrected = words(&asked[2].history);
    assert!(corrected[5].contains("expects a summary, not tool calls"), "{corrected:?}");
    assert!(corrected.last().unwrap().contains("no summary"));
    assert_eq!(last_words(&asked), ["[context_summary]\nthey said go", "two"]);
    assert_eq!(play.payloads("compaction_end")[0]["attempt"], 3);

    let mut lines = vec![Line::Ends("first", Stop::End, 100)];
    lines.extend((0..5).map(|_| Line::Ends("", Stop::End, 5)));
    let mut play = Play::new(lines, compacting(100));
    play.run("one").await;
    assert!(matches!(play.run("two").await.status, RunStatus::Failed(_)));
    assert_eq!((play.payloads("compaction_end")[0]["status"].clone(), play.files().len()), (json!("failed"), 1));
    // Nothing is lost: what was said is still there, the prompt too.
    play.part.lines.lock().unwrap().extend([SUMMARY, Line::Says("done", &[])]);
    play.run("three").await;
    let asked = play.asked();
    assert_eq!(words(&asked[asked.len() - 2].history)[..3], ["one", "said first", "two"]);
}

#[tokio::test(start_paused = true)]
async fn an_overflown_context_is_made_shorter_and_asked_again() {
    let overflow = || Line::Breaks("", failure(ErrorClass::ContextOverflow, 400));
    let lines = vec![
        Line::Says("first", &["a"]),
        Line::Says("second", &[]),
        overflow(),
        overflow(),
        SUMMARY,
        Line::Says("done", &[]),
    ];
    let mut play = Play::new(lines, RunOptions::default());
    play.run("one").await;
    let end = play.run("two").await;
    assert_eq!((end.text.as_str(), end.turns), ("done", 1));
    let asked = play.asked();
    assert_eq!(asked.len(), 6, "one request for a summary was itself too long, the next carried less");
    assert_eq!(last_words(&asked), ["[context_summary]\nthey said go"]);

    let mut play = Play::new((0..8).map(|_| overflow()).collect(), RunOptions::default());
    assert!(
        matches!(play.run("one huge prompt").await.status, RunStatus::Failed(error) if error.class == ErrorClass::ContextOverflow)
    );
    assert_eq!(play.files().len(), 1);
}

#[tokio::test]
async fn compaction_by_hand_says_when_there_is_nothing_to_do() {
    let (interrupt, lines) = (CancellationToken::new(), vec![Line::Says("first", &[]), SUMMARY]);
    let mut play = Play::new(lines, RunOptions::default());
    assert!(
        matches!(play.session.compact(&interrupt).await.unwrap(), Compacted::Nothing(why) if why.contains("nothing"))
    );
    play.run("one").await;
    assert!(matches!(play.session.compact(&interrupt).await.unwrap(), Compacted::Done));
    assert!(matches!(play.session.compact(&interrupt).await.unwrap(), Compacted::Nothing(why) if why.contains("just")));
    assert_eq!(play.payloads("compaction_begin")[0]["reason"], "manual");
}

#[tokio::test]
async fn discarding_waits_for_the_next_prompt_and_asks_nobody() {
    let lines = vec![Line::Says("", &["a"]), Line::Says("first", &[]), Line::Says("second", &[])];
    let compaction =
        CompactionOptions { max_turns: Some(1), mode: CompactionMode::Discard, ..CompactionOptions::default() };
    let mut play = Play::new(lines, RunOptions { compaction, ..RunOptions::default() });
    play.run("one").await;
    assert_eq!(play.files().len(), 1, "not in the middle of a run");
    play.run("two").await;
    assert_eq!((last_words(&play.asked()), play.asked().len()), (vec!["two".to_owned()], 3));
}

#[tokio::test]
async fn no_call_of_a_session_has_the_id_of_another_also_behind_a_compaction() {
    let lines =
        vec![Line::Says("", &["a"]), Line::Says("x", &[]), SUMMARY, Line::Says("", &["a"]), Line::Says("y", &[])];
    let mut play = Play::new(lines, RunOptions::default());
    play.run("one").await;
    play.session.compact(&CancellationToken::new()).await.unwrap();
    play.run("two").await;
    let ids: Vec<_> = play.payloads("tool_call").iter().map(|call| call["tool_call_id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!("a#2")]);
    let outputs: Vec<_> = play.payloads("tool_call_output").iter().map(|o| o["tool_call_id"].clone()).collect();
    assert_eq!(outputs, ids);
}

#[tokio::test]
async fn an_answer_may_be_as_long_as_the_window_has_left() {
    let options = |max_tokens, context_window| RunOptions { max_tokens, context_window, ..RunOptions::default() };
    for (configured, window, wanted) in [
        (None, None, None),
        (Some(9_000), None, Some(9_000)),
        (Some(9_000), Some(200_000), Some(9_000)),
        (None, Some(200_000), Some(32_000)),
        (Some(9_000), Some(8_000), Some(8_000 - 1_024 - 2)),
        (Some(9_000), Some(1_000), Some(512)),
    ] {
        let mut play = Play::new(vec![Line::Says("x", &[])], options(configured, window));
        play.run("").await;
        assert_eq!(play.asked()[0].max_tokens, wanted, "{configured:?} {window:?}");
    }
}

#[tokio::test]
async fn a_fork_says_on_its_own_what_was_said_so_far() {
    let lines = vec![Line::Says("let me", &["a", "b"]), Line::Says("first", &[]), Line::Says("forked", &[])];
    let mut play = Play::new(lines, RunOptions::default());
    play.run("one").await;
    let rebuilt = Rebuilt::read(&play.files()[0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f_001.jsonl");
    let file = TraceFile::create(&path, &[]).unwrap();
    let mut setup = setup(Arc::new(play.part.clone()), &folder, &Arc::default(), file, RunOptions::default());
    setup.id = "f".into();
    let mut fork = Session::fork(setup, rebuilt).unwrap();
    fork.run(Some("two"), &CancellationToken::new()).await.unwrap();
    let said = ["one", "said let me", "call a", "call b", "output echo a", "output echo b", "said first", "two"];
    assert_eq!(last_words(&play.asked()), said);
    let again = Rebuilt::read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((again.meta.session_id.as_str(), again.meta.extra["forked_from"].clone()), ("f", json!("s")));
    assert_eq!(words(&again.history())[..8], said);
    assert_eq!(again.history().len(), 9);
}

#[tokio::test]
async fn the_turn_limit_is_told_to_people_and_not_to_the_model() {
    let lines = vec![Line::Says("", &["a"]), Line::Says("done", &[])];
    let mut play = Play::new(lines, RunOptions { max_turns: Some(1), ..RunOptions::default() });
    assert!(matches!(play.run("go").await.status, RunStatus::Limit(1)));
    let notice = play.payloads("text").into_iter().next_back().unwrap();
    assert_eq!(
        (notice["text"].clone(), notice["stop_reason"].clone()),
        (json!("[reached max turns (1); stopping]"), json!("failed"))
    );
    play.run("on").await;
    assert_eq!(last_words(&play.asked()), ["go", "call a", "output echo a", "on"], "the results are carried over");
}
