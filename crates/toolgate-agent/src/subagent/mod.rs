//! Subagents: other sessions that this one hands work to, at most eight of them, each with a trace of its own.
//!
//! A child runs in a task of its own. The tools of the parent watch it: what it says goes into their output, what it asks goes to the
//! parent's approver, and everything that it does is shown in the parent's stream with its origin. A child has no tools that make
//! children, since whoever makes it gives it none.

mod child;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;
use toolgate_core::message::{Event, Extra, SubagentPointer};
use toolgate_runtime::{
    BoxFuture,
    approver::Approver,
    ids,
    notice::Notices,
    trace::{Journal, Observer},
};

use crate::{provider::ThinkingLevel, session::RunEnd};

pub use child::{Child, Ended, Seen};

/// Children at the same time, finished ones that can be spoken to included (PenguinHarness's number).
pub const MOST_CHILDREN: usize = 8;

/// Digits of a child's id: the end of its session's own.
const ID_DIGITS: usize = 8;

/// What a child is to be. What is not said is as the parent's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// One of the configured agents.
    pub agent: Option<String>,
    /// Provider and model.
    pub model: Option<(String, String)>,
    /// How much it is to think.
    pub thinking: Option<ThinkingLevel>,
}

/// Makes children: whoever puts sessions together knows how.
pub trait Spawner: Send + Sync {
    /// A session in the parent's workspace, with its own trace and no tools that make children. Its calls are decided by `approver`, and
    /// what happens in it is seen by `observer`.
    ///
    /// The error is for the model: an agent that is not configured, a model that cannot be had.
    fn spawn<'a>(
        &'a self,
        wish: &'a Wish,
        approver: Arc<dyn Approver>,
        observer: Arc<dyn Observer>,
    ) -> BoxFuture<'a, Result<Box<dyn ChildSession>, String>>;
}

/// A child's session.
pub trait ChildSession: Send {
    /// Its id, which names its trace.
    fn id(&self) -> &str;

    /// One run, from its prompt to its seal. Without a prompt, what it waited for is asked again.
    fn run<'a>(
        &'a mut self,
        prompt: Option<&'a str>,
        interrupt: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunEnd, String>>;

    /// Ends whatever it has started.
    fn close(&mut self) -> BoxFuture<'_, ()>;
}

/// The children of one session.
pub struct Subagents {
    spawner: Arc<dyn Spawner>,
    approver: Arc<dyn Approver>,
    journal: Arc<Journal>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    children: HashMap<String, Arc<Child>>,
    /// Places of children that are being made.
    reserved: usize,
    /// Counts uses, so that the one that was used least lately is known.
    clock: u64,
    closed: bool,
}

/// Gives a place back that no child has taken.
struct Place<'a>(&'a Subagents);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.table().reserved -= 1;
    }
}

impl Subagents {
    /// No child yet. The approver and the journal are the parent's own.
    pub fn new(spawner: Arc<dyn Spawner>, approver: Arc<dyn Approver>, journal: Arc<Journal>) -> Arc<Self> {
        Arc::new(Self { spawner, approver, journal, table: Mutex::default() })
    }

    /// Makes a child and gives it its task. `told` is where its ends are told, for one that nobody waits for.
    ///
    /// # Errors
    /// For the model: no place, no such agent, no such model.
    pub async fn start(&self, wish: &Wish, prompt: &str, told: Option<Arc<Notices>>) -> Result<Arc<Child>, String> {
        let (place, evicted) = self.reserve()?;
        if let Some(evicted) = evicted {
            evicted.end().await;
        }
        let child = Child::new(self.journal.clone(), told.map(|notices| (notices, prompt.to_owned())));
        let session = self.spawner.spawn(wish, child.approver(self.approver.clone()), child.observer()).await?;
        let session_id = session.id().to_owned();
        let pointer = Event::Subagent(SubagentPointer { session_id: session_id.clone(), extra: Extra::new() });
        self.journal.record(pointer).map_err(|error| error.to_string())?;
        let mut table = self.table();
        if table.closed {
            return Err("the session has ended; no subagent can start".into());
        }
        let mut id = id_of(&session_id);
        while table.children.contains_key(&id) {
            id = id_of(&ids::session_id());
        }
        child.begin(id.clone(), session, prompt);
        table.clock += 1;
        child.use_at(table.clock);
        table.children.insert(id, child.clone());
        drop(table);
        drop(place);
        Ok(child)
    }

    /// The child of an id.
    pub fn get(&self, id: &str) -> Option<Arc<Child>> {
        let mut table = self.table();
        table.clock += 1;
        let child = table.children.get(id)?;
        child.use_at(table.clock);
        Some(child.clone())
    }

    /// Ends one child and forgets it. Nobody is told of its end.
    pub async fn end(&self, id: &str) {
        let child = self.table().children.remove(id);
        if let Some(child) = child {
            child.end().await;
        }
    }

    /// Ends all of them.
    pub async fn end_all(&self) {
        let children: Vec<Arc<Child>> = self.table().children.drain().map(|(_, child)| child).collect();
        // All are told first, so that waiting for one is waiting for all.
        children.iter().for_each(|child| child.stop());
        for child in children {
            child.end().await;
        }
    }

    /// Ends all of them and lets none start any more.
    pub async fn close(&self) {
        self.table().closed = true;
        self.end_all().await;
    }

    /// A place for one more, if need be that of a finished one.
    fn reserve(&self) -> Result<(Place<'_>, Option<Arc<Child>>), String> {
        let mut table = self.table();
        if table.closed {
            return Err("the session has ended; no subagent can start".into());
        }
        let mut evicted = None;
        if table.children.len() + table.reserved >= MOST_CHILDREN {
            let idle = table.children.iter().filter(|(_, child)| child.is_idle());
            let oldest = idle.min_by_key(|(_, child)| child.used_at()).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else {
                return Err("too many background subagents; poll or finish existing ones first".into());
            };
            evicted = table.children.remove(&oldest);
        }
        table.reserved += 1;
        Ok((Place(self), evicted))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a session's id, which tells it from others.
fn id_of(session_id: &str) -> String {
    let digits: Vec<char> = session_id.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("subagent-{}", digits[digits.len().saturating_sub(ID_DIGITS)..].iter().collect::<String>())
}
