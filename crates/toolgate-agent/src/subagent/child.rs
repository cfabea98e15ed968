//! One child: its task, what it says, what it asks, and how a call watches it.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalRequest, Reply, Withdrawn},
    message::{Body, Message, ModelMessage, Partial},
    policy::Standing,
};
use toolgate_runtime::{
    BoxFuture,
    approver::Approver,
    notice::{Background, MOST_OUTPUT, Notice, Notices},
    output::Sink,
    trace::{Journal, Observer},
};

use super::ChildSession;
use crate::session::{RunEnd, RunStatus};

/// Characters that a child has said and nobody has read; the oldest go first (PenguinHarness's number).
const MOST_UNREAD: usize = 1024 * 1024;

/// How long a child may take to end its commands. Its supervisor gives them two and a half seconds.
const ENDED_WITHIN: Duration = Duration::from_secs(4);

/// A child of a session.
pub struct Child {
    id: OnceLock<String>,
    /// Its session's id, by which its messages are known.
    session_id: OnceLock<String>,
    state: watch::Sender<State>,
    said: Mutex<Said>,
    prompts: OnceLock<mpsc::UnboundedSender<Option<String>>>,
    /// Cancelled when it is to end.
    life: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
    /// One call at a time watches it.
    watched: tokio::sync::Mutex<()>,
    /// Where its ends are told and what it was started for, where nobody waits for it.
    told: Option<(Arc<Notices>, String)>,
    /// Whether the end of the last run was told.
    end_told: AtomicBool,
    parent: Arc<Journal>,
    used: AtomicU64,
}

/// How far it is.
#[derive(Clone, Default)]
struct State {
    /// How the last run ended; none while one is on.
    ended: Option<Ended>,
    /// What it asks and nobody has answered.
    asks: Vec<Ask>,
}

/// A question of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ask {
    key: ApprovalKey,
    what: String,
}

/// How a run of a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It has answered.
    Answered,
    /// It came to its end and said nothing.
    Silent,
    /// It was stopped, or stopped itself.
    Aborted(String),
    /// It could not go on.
    Failed(String),
    /// Questions stay open that nobody could answer now.
    Waiting(usize),
}

/// What a call saw of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Its run is over.
    Ended(Ended),
    /// The window is over, or it asks something that was not told yet. With what it asks.
    Running(Vec<String>),
    /// The call was told to stop.
    Cancelled,
}

/// What it has said.
#[derive(Default)]
struct Said {
    /// The call that reads it now.
    reader: Option<Arc<Sink>>,
    /// What nobody has read, and how much of it was dropped.
    unread: String,
    dropped: usize,
    /// Whether something was said in the run that is on.
    anything: bool,
    /// Questions that a call was told of.
    asks_told: HashSet<ApprovalKey>,
}

impl Child {
    pub(super) fn new(parent: Arc<Journal>, told: Option<(Arc<Notices>, String)>) -> Arc<Self> {
        Arc::new(Self {
            id: OnceLock::new(),
            session_id: OnceLock::new(),
            state: watch::Sender::default(),
            said: Mutex::default(),
            prompts: OnceLock::new(),
            life: CancellationToken::new(),
            task: Mutex::default(),
            watched: tokio::sync::Mutex::default(),
            told,
            end_told: AtomicBool::new(false),
            parent,
            used: AtomicU64::new(0),
        })
    }

    /// Gives it its session and its first task.
    pub(super) fn begin(self: &Arc<Self>, id: String, session: Box<dyn ChildSession>, prompt: &str) {
        let (sender, prompts) = mpsc::unbounded_channel();
        let _ = sender.send(Some(prompt.to_owned()));
        let _ = (self.id.set(id), self.session_id.set(session.id().to_owned()), self.prompts.set(sender));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(tokio::spawn(self.clone().live(session, prompts)));
    }

    /// What the parent's tools call it.
    pub fn id(&self) -> &str {
        self.id.get().map_or("", String::as_str)
    }

    /// Whether no run of it is on.
    pub fn is_idle(&self) -> bool {
        self.state.borrow().ended.is_some()
    }

    /// Whether the last run left questions open.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.borrow().ended, Some(Ended::Waiting(_)))
    }

    /// A further task for one that has finished; without a prompt, what it waits for is asked again. False when a run is on.
    pub fn go_on(&self, prompt: Option<&str>) -> bool {
        let mut idle = false;
        self.state.send_if_modified(|state| {
            idle = state.ended.is_some();
            state.ended = None;
            idle
        });
        let sent = idle && self.prompts.get().is_some_and(|prompts| prompts.send(prompt.map(str::to_owned)).is_ok());
        if sent {
            self.end_told.store(false, Ordering::Relaxed);
        }
        sent
    }

    /// Watches it for a while: what it has said and says now goes to the sink.
    pub async fn watch(&self, sink: &Arc<Sink>, window: Duration, cancel: &CancellationToken) -> Seen {
        let _alone = tokio::select! {
            alone = self.watched.lock() => alone,
            () = cancel.cancelled() => return Seen::Cancelled,
        };
        self.said().read_by(sink);
        let mut state = self.state.subscribe();
        let news = state.wait_for(|state| state.ended.is_some() || self.has_news(&state.asks));
        let seen = tokio::select! {
            biased;
            state = news => match state.ok().map(|state| state.clone()) {
                Some(State { ended: Some(ended), .. }) => {
                    self.end_told.store(true, Ordering::Relaxed);
                    Seen::Ended(ended)
                }
                Some(State { asks, .. }) => Seen::Running(self.tell(&asks)),
                None => Seen::Ended(Ended::Failed("it is gone".into())),
            },
            () = cancel.cancelled() => Seen::Cancelled,
            () = tokio::time::sleep(window) => {
                let asks = self.state.borrow().asks.clone();
                Seen::Running(self.tell(&asks))
            }
        };
        self.said().reader = None;
        seen
    }

    /// Tells it to end, without waiting for that.
    pub(super) fn stop(&self) {
        self.life.cancel();
    }

    /// Ends it and everything that it has started.
    pub(super) async fn end(&self) {
        self.end_told.store(true, Ordering::Relaxed);
        self.stop();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(ENDED_WITHIN, &mut task).await.is_err()
        {
            task.abort();
        }
    }

    /// The parent's approver, for the calls of this child.
    pub(super) fn approver(self: &Arc<Self>, parent: Arc<dyn Approver>) -> Arc<dyn Approver> {
        Arc::new(ChildApprover { child: Arc::downgrade(self), parent })
    }

    /// Shows in the parent's stream what happens in this child.
    pub(super) fn observer(self: &Arc<Self>) -> Arc<dyn Observer> {
        Arc::new(ChildObserver(Arc::downgrade(self)))
    }

    pub(super) fn use_at(&self, clock: u64) {
        self.used.store(clock, Ordering::Relaxed);
    }

    pub(super) fn used_at(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// One run after the other, until it is to end.
    async fn live(
        self: Arc<Self>,
        mut session: Box<dyn ChildSession>,
        mut prompts: mpsc::UnboundedReceiver<Option<String>>,
    ) {
        loop {
            let prompt = tokio::select! {
                biased;
                () = self.life.cancelled() => break,
                prompt = prompts.recv() => prompt,
            };
            let Some(prompt) = prompt else { break };
            self.said().anything = false;
            let interrupt = self.life.child_token();
            let end = session.run(prompt.as_deref(), &interrupt).await;
            let ended = ended(end, self.said().anything);
            self.state.send_modify(|state| *state = State { ended: Some(ended.clone()), asks: Vec::new() });
            if self.life.is_cancelled() {
                break;
            }
            self.tell_end(&ended).await;
        }
        session.close().await;
    }

    /// Tells the end of a run that nobody saw, where nobody waits for it.
    async fn tell_end(&self, ended: &Ended) {
        let Some((notices, prompt)) = &self.told else { return };
        // Who watches at this moment sees the end first.
        let _alone = self.watched.lock().await;
        if self.end_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let (failed, detail) = ended.told();
        notices.push(Notice {
            kind: Background::Subagent,
            id: self.id().to_owned(),
            label: Notice::label(prompt),
            failed,
            detail,
            output: self.said().take_end(),
        });
    }

    fn has_news(&self, asks: &[Ask]) -> bool {
        !asks.is_empty() && {
            let said = self.said();
            asks.iter().any(|ask| !said.asks_told.contains(&ask.key))
        }
    }

    /// What is asked, which is told from now on.
    fn tell(&self, asks: &[Ask]) -> Vec<String> {
        self.said().asks_told.extend(asks.iter().map(|ask| ask.key.clone()));
        asks.iter().map(|ask| ask.what.clone()).collect()
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.life.cancel();
    }
}

impl Ended {
    /// Whether that is a failure, and what there is to say about it.
    pub fn told(&self) -> (bool, Option<String>) {
        match self {
            Self::Answered => (false, None),
            Self::Silent => (false, Some("subagent finished without a text answer".into())),
            Self::Aborted(reason) => (true, Some(format!("subagent aborted: {reason}"))),
            Self::Failed(reason) => (true, Some(format!("subagent error: {reason}"))),
            Self::Waiting(questions) => (
                true,
                Some(format!("subagent waits for an answer to {questions} tool call(s); nobody could give it now")),
            ),
        }
    }
}

fn ended(end: Result<RunEnd, String>, anything: bool) -> Ended {
    match end.map(|end| end.status) {
        Ok(RunStatus::Completed) if anything => Ended::Answered,
        Ok(RunStatus::Completed) => Ended::Silent,
        Ok(RunStatus::Waiting(keys)) => Ended::Waiting(keys.len()),
        Ok(RunStatus::Limit(limit)) => Ended::Aborted(format!("it reached its limit of {limit} model requests")),
        Ok(RunStatus::Interrupted) => Ended::Aborted("it was stopped".into()),
        Ok(RunStatus::Failed(error)) => Ended::Failed(error.to_string()),
        Ok(RunStatus::Stopped(reason)) => Ended::Failed(format!("stopped: {reason}")),
        Err(error) => Ended::Failed(error),
    }
}

impl Said {
    fn say(&mut self, text: &str) {
        self.anything = true;
        match &self.reader {
            Some(reader) => reader.write(text.as_bytes()),
            None => {
                self.unread.push_str(text);
                // Cut rarely and by much, so that a flood costs no more than copying it once.
                if self.unread.len() > 2 * MOST_UNREAD {
                    let cut = self.unread.ceil_char_boundary(self.unread.len() - MOST_UNREAD);
                    self.dropped += self.unread[..cut].chars().count();
                    self.unread.drain(..cut);
                }
            }
        }
    }

    fn read_by(&mut self, sink: &Arc<Sink>) {
        if self.dropped > 0 {
            sink.write(format!("[... {} chars of earlier subagent output dropped ...]\n", self.dropped).as_bytes());
        }
        sink.write(self.unread.as_bytes());
        (self.unread, self.dropped) = (String::new(), 0);
        self.reader = Some(sink.clone());
    }

    /// The end of what nobody has read; the rest is dropped.
    fn take_end(&mut self) -> String {
        let unread = std::mem::take(&mut self.unread);
        self.dropped = 0;
        let count = unread.chars().count();
        match unread.char_indices().nth(count.saturating_sub(MOST_OUTPUT)) {
            Some((at, _)) if at > 0 => {
                format!("[earlier output dropped: exceeded {MOST_OUTPUT} chars]\n{}", &unread[at..])
            }
            _ => unread,
        }
    }
}

/// Shows what happens in a child, and reads what it says itself.
struct ChildObserver(Weak<Child>);

impl Observer for ChildObserver {
    fn see(&self, message: &Message, _seq: Option<u64>) {
        let Some(child) = self.0.upgrade() else { return };
        if let Body::Model(ModelMessage::PartialText(Partial { text: Some(text), .. })) = &message.body
            && message.origin.is_empty()
        {
            child.said().say(text);
        }
        let mut forwarded = message.clone();
        forwarded.origin.insert(0, child.session_id.get().cloned().unwrap_or_default());
        child.parent.forward(&forwarded);
    }
}

/// The parent's approver as a child meets it: the same rules and the same inbox, and whoever watches the child knows what it asks.
struct ChildApprover {
    child: Weak<Child>,
    parent: Arc<dyn Approver>,
}

impl Approver for ChildApprover {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        self.parent.standing()
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let child = self.child.upgrade();
            let asker = child.as_ref().map(|child| child.id().to_owned());
            let request = ApprovalRequest { asker, ..request.clone() };
            let mut decided: Pin<Box<_>> = self.parent.decide(&request);
            let mut open = None;
            std::future::poll_fn(|cx| match decided.as_mut().poll(cx) {
                Poll::Ready(reply) => Poll::Ready(reply),
                Poll::Pending => {
                    // What is answered at once nobody had to wait for.
                    open.get_or_insert_with(|| Open::new(child.as_ref(), &request));
                    Poll::Pending
                }
            })
            .await
        })
    }

    fn withdraw(&self, key: &ApprovalKey, why: Withdrawn) {
        self.parent.withdraw(key, why);
    }
}

/// A question that stands.
struct Open {
    child: Option<Arc<Child>>,
    key: ApprovalKey,
}

impl Open {
    fn new(child: Option<&Arc<Child>>, request: &ApprovalRequest) -> Self {
        let key = request.key.clone();
        let what = format!("{} {}", request.tool, request.summary);
        if let Some(child) = child {
            child.state.send_modify(|state| state.asks.push(Ask { key: key.clone(), what }));
        }
        Self { child: child.cloned(), key }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            child.state.send_modify(|state| state.asks.retain(|ask| ask.key != self.key));
        }
    }
}
