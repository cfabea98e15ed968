//! Hooks around runs: sessions, prompts and the end of a turn. Their programs are played too, so that only the loop is tested.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{io::AsyncWrite, sync::watch};
use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    history::Rebuilt,
    session::{RunEnd, RunOptions, RunStatus, Session},
};
use toolgate_runtime::{
    BoxFuture,
    environment::Setup,
    gate::Permit,
    hooks::{DEFAULT_TIMEOUT, Hook, HookCommand, HookEvent, Matcher},
    process::{
        Command, Control, Exit, Living, Output, Processes, Running, Size, StartError, Status, Unasked,
        command_env::EnvPolicy, login_env::EnvSource, table::CommandSetup,
    },
    trace::TraceFile,
};

use crate::session::{Line, Part, around, house, words};

/// Programs that say what their line says, and keep what they are told.
#[derive(Clone, Default)]
struct Played(Arc<Mutex<Vec<u8>>>);

impl Processes for Played {
    fn start<'a>(&'a self, _: &'a Permit, _: Command) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async { Err(StartError("no call starts a program here".into())) })
    }

    fn start_unasked(&self, command: Unasked) -> BoxFuture<'_, Result<Running, StartError>> {
        let line = command.into_command().argv.pop().unwrap().into_string().unwrap();
        Box::pin(async move {
            let exit = Exit { status: Status::Code(0), living: Vec::new() };
            Ok(Running {
                output: Output::Stream(Box::new(io::Cursor::new(line))),
                errors: None,
                input: Some(Box::new(self.clone())),
                exit: watch::Sender::new(Some(exit)).subscribe(),
                control: Arc::new(Nothing),
            })
        })
    }

    fn close(&self) -> BoxFuture<'_, Vec<Living>> {
        Box::pin(async { Vec::new() })
    }
}

impl AsyncWrite for Played {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Nothing;

impl Control for Nothing {
    fn interrupt(&self) {}
    fn end(&self) {}
    fn resize(&self, _: Size) {}
    fn waits_for_input(&self) -> bool {
        false
    }
    fn living(&self) -> Vec<Living> {
        Vec::new()
    }
}

/// A session with hooks that each say one thing, whatever they are asked.
struct Play {
    part: Part,
    folder: tempfile::TempDir,
    session: Session,
    told: Played,
}

impl Play {
    fn new(lines: Vec<Line>, hooks: &[(HookEvent, Value)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = TraceFile::create(&folder.path().join("s_001.jsonl"), &[]).unwrap();
        Self::of(folder, file, None, lines, hooks)
    }

    /// The same session, gone on with from its trace.
    async fn again(self, lines: Vec<Line>, hooks: &[(HookEvent, Value)]) -> Self {
        let Self { folder, session, .. } = self;
        drop(session);
        // The clock stands still, so this only lets what the session began beside its first request come to its end.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (file, bytes) = TraceFile::resume(&folder.path().join("s_001.jsonl"), &[]).unwrap();
        let rebuilt = Rebuilt::read_files(&[&bytes]).unwrap();
        Self::of(folder, file, Some(rebuilt), lines, hooks)
    }

    fn of(
        folder: tempfile::TempDir,
        file: TraceFile,
        rebuilt: Option<Rebuilt>,
        lines: Vec<Line>,
        hooks: &[(HookEvent, Value)],
    ) -> Self {
        let (part, told) = (Part::default(), Played::default());
        part.lines.lock().unwrap().extend(lines);
        let house = Self::house(&folder, hooks, &told, file);
        let setup = around(Arc::new(part.clone()), house, RunOptions::default());
        let session = match rebuilt {
            Some(rebuilt) => Session::resume(setup, rebuilt).unwrap(),
            None => Session::begin(setup).unwrap(),
        };
        Self { part, folder, session, told }
    }

    fn house(folder: &tempfile::TempDir, hooks: &[(HookEvent, Value)], told: &Played, file: TraceFile) -> Setup {
        let hook = |(event, answer): &(HookEvent, Value)| Hook {
            event: *event,
            matcher: Matcher::default(),
            command: HookCommand::Line(answer.to_string()),
            timeout: DEFAULT_TIMEOUT,
            on_failure: event.default_on_failure(),
            place: "test:1".into(),
        };
        let env = EnvSource::new(Vec::new(), None, EnvPolicy::default());
        Setup {
            commands: CommandSetup::new(Arc::new(told.clone()), env),
            hooks: hooks.iter().map(hook).collect(),
            ..house(folder, &Arc::default(), file)
        }
    }

    async fn run(&mut self, prompt: &str) -> RunEnd {
        self.session.run(Some(prompt), &CancellationToken::new()).await.unwrap()
    }

    /// One field of what the hooks of an event were told, in order.
    fn told(&self, event: &str, field: &str) -> Vec<Value> {
        let told = String::from_utf8(self.told.0.lock().unwrap().clone()).unwrap();
        let told = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        told.filter(|told| told["hook_event_name"] == event).map(|told| told[field].clone()).collect()
    }

    fn heard(&self) -> Vec<Vec<String>> {
        self.part.asked.lock().unwrap().iter().map(|asked| words(&asked.history)).collect()
    }

    fn trace(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("s_001.jsonl")).unwrap()
    }
}

fn context(text: &str) -> Value {
    json!({"hookSpecificOutput": {"additionalContext": text}})
}

#[tokio::test(start_paused = true)]
async fn the_model_hears_what_hooks_add_and_hooks_hear_of_the_session() {
    use HookEvent::{SessionEnd, SessionStart, UserPromptSubmit};
    let hooks =
        [(SessionStart, context("branch main")), (UserPromptSubmit, context("it is Tuesday")), (SessionEnd, json!({}))];
    let mut play = Play::new(vec![Line::Says("yes", &[]), Line::Says("again", &[])], &hooks);
    play.run("one").await;
    play.run("two").await;
    play.session.close().await;
    let (branch, day) = ("[from a hook]\nbranch main", "[from a hook]\nit is Tuesday");
    assert_eq!(play.heard()[0], ["one", branch, day]);
    assert_eq!(play.heard()[1], ["one", branch, day, "said yes", "two", day]);
    assert_eq!(play.told("UserPromptSubmit", "prompt"), ["one", "two"]);
    assert_eq!(
        (play.told("SessionStart", "source"), play.told("SessionEnd", "reason")),
        (vec!["startup".into()], vec!["exit".into()])
    );

    let mut play = play.again(vec![Line::Says("back", &[])], &hooks).await;
    play.run("three").await;
    assert_eq!(play.told("SessionStart", "source"), ["resume"]);
    assert_eq!(play.heard()[0][6..], ["said again", "three", branch, day], "what hooks said stands in the trace");
}

#[tokio::test]
async fn a_prompt_that_a_hook_blocks_is_not_said_and_the_next_one_is_heard_anew() {
    let blocks = json!({"decision": "block", "reason": "no secrets"});
    let mut play = Play::new(vec![], &[(HookEvent::UserPromptSubmit, blocks)]);
    let end = play.run("my password is swordfish").await;
    assert!(matches!(&end.status, RunStatus::Stopped(reason) if reason.ends_with(": no secrets")), "{:?}", end.status);
    assert!(play.heard().is_empty() && !play.trace().contains("swordfish"), "{}", play.trace());

    let mut play =
        Play::new(vec![], &[(HookEvent::SessionStart, json!({"continue": false, "stopReason": "closed today"}))]);
    for _ in 0..2 {
        let end = play.run("hello").await;
        assert!(matches!(&end.status, RunStatus::Stopped(reason) if reason.ends_with(": closed today")));
    }
    assert_eq!(end.status.as_str(), "aborted");
}

#[tokio::test]
async fn a_hook_may_keep_the_model_going_but_not_for_ever() {
    let goes_on = json!({"decision": "block", "reason": "run the tests"});
    let lines = (0..9).map(|_| Line::Says("done", &[])).collect();
    let mut play = Play::new(lines, &[(HookEvent::Stop, goes_on)]);
    let end = play.run("go").await;
    assert!(matches!(end.status, RunStatus::Completed) && end.turns == 9, "{end:?}");
    let heard = play.heard();
    assert!(
        heard[1][2].starts_with("[from a hook]\nthe hook ") && heard[1][2].ends_with(": run the tests"),
        "{:?}",
        heard[1]
    );
    let again = play.told("Stop", "stop_hook_active");
    assert_eq!((again[0].clone(), again[1].clone(), again.len()), (false.into(), true.into(), 9));
    assert_eq!(play.told("Stop", "last_assistant_message")[0], "done");
    assert!(play.trace().contains("hooks kept this run going 8 times"));

    let mut play = Play::new(vec![Line::Says("done", &[])], &[(HookEvent::Stop, json!({"continue": false}))]);
    assert!(matches!(play.run("go").await.status, RunStatus::Stopped(_)));
}

#[tokio::test]
async fn a_hook_that_ends_the_run_at_a_call_ends_it_with_the_result_in_place() {
    let ends = json!({"continue": false, "stopReason": "enough"});
    for (event, result) in [
        (HookEvent::PreToolUse, "output Tool call denied by policy: the hook "),
        (HookEvent::PostToolUse, "output echo a\n[the hook "),
    ] {
        let mut play = Play::new(vec![Line::Says("", &["a"]), Line::Says("fine", &[])], &[(event, ends.clone())]);
        let end = play.run("go").await;
        assert!(matches!(&end.status, RunStatus::Stopped(reason) if reason.ends_with(": enough")), "{:?}", end.status);
        assert_eq!(play.heard().len(), 1);
        play.run("go on").await;
        let heard = play.heard();
        assert!(heard[1][2].starts_with(result), "{:?}", heard[1]);
    }
}
