//! What the tests share: an environment over a real supervisor in a temporary folder, and what it says.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Reply, Withdrawn},
    call::{Args, CheckedCall},
    message::{Body, Event, Message, ModelMessage, ToolCallOutput},
    policy::{Facts, Policy, Rule, SandboxMode, Standing, Tier},
    tool::{Effect, Prepared, ToolCall, ToolSpec},
};
use toolgate_runtime::{
    BoxFuture,
    approver::{Approver, OnAsk, Unattended},
    environment::{CallEnd, Environment, MAX_PARALLEL, Setup},
    fetch::Fetch,
    files::local::LocalFiles,
    gate::{Gate, Passage, Permit},
    hooks::Hook,
    output::spill::SpillFolder,
    process::{
        Processes,
        command_env::EnvPolicy,
        login_env::EnvSource,
        supervisor::{Program, Supervisor},
        table::CommandSetup,
    },
    registry::Registry,
    tool::Tool,
    tools::builtin,
    trace::{Journal, Observer, TraceFile, Unwatched},
    workspace::Workspace,
};

/// How long anything may take before a test gives up: far more than it takes, so that a busy machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A permit for anything, from a gate that allows all.
pub fn permit() -> Permit {
    let approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    let journal = Arc::new(Journal::new(None, Arc::new(Unwatched)));
    let gate = Gate::new("s".into(), approver, journal, Facts { sandbox: SandboxMode::Off });
    let spec = ToolSpec::new("test", "", serde_json::json!({}));
    let prepared = Prepared { effects: vec![Effect::Unknown("test".into())], ..Prepared::default() };
    let call = CheckedCall::new("c".into(), &spec, Args::new(), vec![], prepared);
    let cancel = CancellationToken::new();
    // Nobody is asked, so the first poll is the last.
    let mut pass = pin!(gate.pass(call, None, &cancel));
    match pass.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(Passage::Permitted(permit))) => *permit,
        _ => panic!("the mode allow-all allows"),
    }
}

/// Everything that was seen, in order.
#[derive(Default)]
pub struct Seen(pub Mutex<Vec<Message>>);

impl Observer for Seen {
    fn see(&self, message: &Message, _seq: Option<u64>) {
        self.0.lock().unwrap().push(message.clone());
    }
}

/// An approver that a test drives.
pub struct Scripted {
    pub mode: Mutex<ApprovalMode>,
    pub replies: Mutex<Vec<Reply>>,
    pub asked: Mutex<Vec<ApprovalRequest>>,
    pub withdrawn: Mutex<Vec<ApprovalKey>>,
    pub version: Mutex<u64>,
}

impl Scripted {
    pub fn new(mode: ApprovalMode, replies: Vec<Reply>) -> Arc<Self> {
        Arc::new(Self {
            mode: Mutex::new(mode),
            replies: Mutex::new(replies),
            asked: Mutex::default(),
            withdrawn: Mutex::default(),
            version: Mutex::new(1),
        })
    }
}

impl Approver for Scripted {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        Box::pin(async {
            Standing {
                mode: *self.mode.lock().unwrap(),
                policy: Arc::default(),
                version: *self.version.lock().unwrap(),
            }
        })
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(request.clone());
            let reply = {
                let mut replies = self.replies.lock().unwrap();
                (!replies.is_empty()).then(|| replies.remove(0))
            };
            match reply {
                Some(reply) => reply,
                None => std::future::pending().await,
            }
        })
    }

    fn withdraw(&self, key: &ApprovalKey, _why: Withdrawn) {
        self.withdrawn.lock().unwrap().push(key.clone());
    }
}

/// How a house is built; the fields that differ are set.
pub struct Plan {
    pub mode: ApprovalMode,
    pub rules: Vec<(Tier, &'static str)>,
    pub approver: Option<Arc<dyn Approver>>,
    pub tools: Vec<Arc<dyn Tool>>,
    pub registry: Option<Registry>,
    pub env: EnvPolicy,
    pub base_env: Vec<(String, String)>,
    pub takes_input: bool,
    pub yields: bool,
    pub spill_folder: Option<PathBuf>,
    pub processes: Option<Arc<dyn Processes>>,
    pub fetch: Option<Arc<dyn Fetch>>,
    pub shell: PathBuf,
    pub programs: Vec<(&'static str, PathBuf)>,
    pub parallel: bool,
    pub max_parallel: usize,
    pub hooks: Vec<Hook>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            mode: ApprovalMode::AllowAll,
            rules: Vec::new(),
            approver: None,
            tools: builtin(),
            registry: None,
            env: EnvPolicy::default(),
            base_env: Vec::new(),
            takes_input: true,
            yields: true,
            spill_folder: None,
            processes: None,
            fetch: None,
            shell: "/bin/bash".into(),
            programs: Vec::new(),
            parallel: true,
            max_parallel: MAX_PARALLEL,
            hooks: Vec::new(),
        }
    }
}

/// An environment in a temporary folder.
pub struct House {
    pub env: Environment,
    pub seen: Arc<Seen>,
    pub folder: tempfile::TempDir,
    pub trace: PathBuf,
    pub interrupt: CancellationToken,
    next: Mutex<u32>,
}

pub fn supervisor() -> Arc<Supervisor> {
    Arc::new(Supervisor::new(Program { path: env!("CARGO_BIN_EXE_toolgate-supervisor").into(), args: Vec::new() }))
}

impl House {
    pub fn new() -> Self {
        Self::build(Plan::default())
    }

    pub fn build(plan: Plan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (work, trace) = (folder.path().join("work"), folder.path().join("trace.jsonl"));
        std::fs::create_dir(&work).unwrap();
        let seen = Arc::new(Seen::default());
        let journal = Arc::new(Journal::new(Some(TraceFile::create(&trace, &[]).unwrap()), seen.clone()));
        let spills = SpillFolder::new(plan.spill_folder.unwrap_or_else(|| folder.path().join("spill")));
        let mut base: Vec<(OsString, OsString)> =
            ["PATH", "HOME"].map(|name| (name.into(), std::env::var_os(name).unwrap())).into();
        base.extend(plan.base_env.into_iter().map(|(name, value)| (name.into(), value.into())));
        let commands = CommandSetup {
            login: false,
            processes: Some(plan.processes.unwrap_or_else(|| supervisor())),
            env: EnvSource::new(base, None, plan.env),
            shell: plan.shell,
            programs: plan.programs.into_iter().map(|(name, path)| (name.to_owned(), path)).collect(),
            takes_input: plan.takes_input,
            yields: plan.yields,
        };
        let rules = plan.rules.iter().map(|(tier, text)| Rule::parse(*tier, text, "test").unwrap()).collect();
        let approver =
            plan.approver.unwrap_or_else(|| Arc::new(Unattended::new(plan.mode, Policy { rules }, OnAsk::Deny)));
        let registry = plan.registry.unwrap_or_else(|| {
            let mut registry = Registry::default();
            plan.tools.into_iter().for_each(|tool| registry.add(tool).unwrap());
            registry
        });
        let workspace = Workspace::open(&work).unwrap();
        let home = Some(folder.path().canonicalize().unwrap());
        let env = Environment::new(Setup {
            session: "session-test".into(),
            registry,
            approver,
            vision: false,
            commands,
            journal,
            files: Arc::new(LocalFiles::new(&workspace, home)),
            fetch: plan.fetch,
            workspace,
            spills: Some(spills),
            hooks: plan.hooks,
            parallel: plan.parallel,
            max_parallel: plan.max_parallel,
        });
        Self { env, seen, folder, trace, interrupt: CancellationToken::new(), next: Mutex::new(0) }
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub fn tool_call(&self, name: &str, arguments: &str) -> ToolCall {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        ToolCall { id: format!("call_{next}"), name: name.into(), arguments: arguments.into() }
    }

    /// One call; the joined deltas are checked against the result.
    pub async fn call(&self, name: &str, arguments: serde_json::Value) -> ToolCallOutput {
        self.call_raw(name, &arguments.to_string()).await
    }

    pub async fn call_raw(&self, name: &str, arguments: &str) -> ToolCallOutput {
        let call = self.tool_call(name, arguments);
        let id = call.id.clone();
        let end = tokio::time::timeout(PATIENCE * 3, self.env.call(call, &self.interrupt))
            .await
            .expect("the call closes")
            .unwrap();
        let CallEnd::Closed(output, _) = end else { panic!("a question is open") };
        self.check_frame(&id, &output);
        output
    }

    /// A shell line with the defaults.
    pub async fn sh(&self, line: &str) -> ToolCallOutput {
        self.call("exec_command", serde_json::json!({ "cmd": line })).await
    }

    /// Frames: start, deltas, stop, one complete message; the joined deltas equal the output.
    pub fn check_frame(&self, id: &str, output: &ToolCallOutput) {
        let (mut joined, mut events, mut complete) = (String::new(), Vec::new(), 0);
        for message in self.seen.0.lock().unwrap().iter() {
            match &message.body {
                Body::Model(ModelMessage::PartialToolCallOutput(partial))
                    if partial.tool_call_id.as_deref() == Some(id) =>
                {
                    events.push(partial.event_type);
                    joined.push_str(partial.output.as_deref().unwrap_or_default());
                }
                Body::Model(ModelMessage::ToolCallOutput(output)) if output.tool_call_id == id => complete += 1,
                _ => {}
            }
        }
        assert_eq!(complete, 1, "exactly one complete message");
        if !events.is_empty() {
            use toolgate_core::message::PartialEvent::*;
            assert_eq!((events.first(), events.last()), (Some(&Start), Some(&Stop)));
            assert_eq!(events.iter().filter(|event| **event == Start).count(), 1);
            assert_eq!(joined, output.output, "joined deltas equal the complete output");
        }
    }

    pub fn events(&self) -> Vec<Event> {
        let seen = self.seen.0.lock().unwrap();
        seen.iter()
            .filter_map(|message| if let Body::Event(event) = &message.body { Some(event.clone()) } else { None })
            .collect()
    }

    pub fn decisions(&self) -> Vec<(String, String)> {
        let decided = |event| match event {
            Event::ApprovalDecision(decided) => Some((decided.decision, decided.source.unwrap_or_default())),
            _ => None,
        };
        self.events().into_iter().filter_map(decided).collect()
    }
}

/// The id in a note that names one.
pub fn process_id(output: &str) -> String {
    let start = output.rfind("proc-").expect("a process id");
    output[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

/// Waits until something holds, patiently.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a process lives; a zombie does not.
pub fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// Living processes whose command line holds a text.
pub fn running(text: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(text) && lives(&pid.to_string())
        })
        .collect()
}
