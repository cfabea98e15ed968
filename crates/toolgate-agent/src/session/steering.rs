//! What a person says while a run is on: it waits here until the next request takes it along.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The mark before such a text, so that the model can tell it from the task (PenguinHarness's word).
const MARK: &str = "[user_steering]";

/// Speaks into a run from outside. Clones speak into the same run.
#[derive(Clone, Default)]
pub struct Steering {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes a run that waits before it asks again.
    hurry: Notify,
}

#[derive(Default)]
struct Queue {
    running: bool,
    next: u64,
    waiting: Vec<(u64, String)>,
}

/// One text that waits, so that it can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

impl Steering {
    /// Says something to the run that is on. `None` when there is nothing to say or nobody to hear it.
    pub fn say(&self, text: &str) -> Option<Ticket> {
        let mut queue = self.lock();
        if !queue.running || text.trim().is_empty() {
            return None;
        }
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push((ticket, text.to_owned()));
        Some(Ticket(ticket))
    }

    /// Takes back what has not been heard yet; false when it was.
    pub fn withdraw(&self, ticket: Ticket) -> bool {
        let mut queue = self.lock();
        let before = queue.waiting.len();
        queue.waiting.retain(|(own, _)| *own != ticket.0);
        queue.waiting.len() < before
    }

    /// Ends the wait before the next attempt, if the run is in one. The attempt counts as it would have.
    pub fn retry_now(&self) {
        self.shared.hurry.notify_waiters();
    }

    /// Until somebody wants the wait to end.
    pub(super) async fn hurried(&self) {
        self.shared.hurry.notified().await;
    }

    /// A run begins.
    pub(super) fn open(&self) {
        self.lock().running = true;
    }

    /// A run is over: nobody hears what still waits. Returns how many texts that were.
    pub(super) fn close(&self) -> usize {
        let mut queue = self.lock();
        queue.running = false;
        std::mem::take(&mut queue.waiting).len()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// What waits, as the model reads it.
    pub(super) fn take(&self) -> Vec<String> {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().map(|(_, text)| format!("{MARK}\n{text}")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_hears_and_what_was_heard_cannot_be_taken_back() {
        let steering = Steering::default();
        assert_eq!(steering.say("too early"), None);
        steering.open();
        assert_eq!(steering.say(" \n"), None, "nothing to say");
        let (first, second) = (steering.say("first").unwrap(), steering.clone().say("second").unwrap());
        assert!(steering.withdraw(first) && !steering.withdraw(first));
        assert_eq!(steering.take(), ["[user_steering]\nsecond"]);
        assert!(!steering.withdraw(second) && !steering.is_waiting());
        steering.say("too late").unwrap();
        assert_eq!((steering.close(), steering.take().len()), (1, 0));
    }
}
