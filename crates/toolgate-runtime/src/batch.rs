//! The order of a batch: the calls of one response run beside each other, or one after the other in call order.

use std::task::Poll;

use tokio::sync::watch;

/// The calls of one response.
pub(crate) struct Batch {
    sequential: bool,
    progress: watch::Sender<Progress>,
}

/// How far a sequential batch has come.
#[derive(Default, Clone, Copy)]
struct Progress {
    /// Calls that are over.
    done: usize,
    /// One of them has a question that stays open.
    question_open: bool,
}

/// A call's place in its batch, once it is its turn. Dropping it lets the next one go on.
pub(crate) struct Place<'a> {
    batch: &'a Batch,
    /// Whether a call before this one, in a sequential batch, has a question that stays open.
    pub(crate) behind_question: bool,
    /// Set when this call's own question stays open.
    pub(crate) question_open: bool,
}

impl Batch {
    pub(crate) fn new(sequential: bool) -> Self {
        Self { sequential, progress: watch::Sender::new(Progress::default()) }
    }

    /// Waits until it is this call's turn: at once, unless the batch is sequential.
    pub(crate) async fn place(&self, number: usize) -> Place<'_> {
        let mut behind_question = false;
        if self.sequential
            && let Ok(progress) = self.progress.subscribe().wait_for(|progress| progress.done == number).await
        {
            behind_question = progress.question_open;
        }
        Place { batch: self, behind_question, question_open: false }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.batch.progress.send_modify(|progress| {
            progress.done += 1;
            progress.question_open |= self.question_open;
        });
    }
}

/// Polls all of them together and returns what they gave in their own order.
pub(crate) async fn join_in_order<T, E>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
) -> Result<Vec<T>, E> {
    let mut open: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<Option<Result<T, E>>> = open.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (slot, out) in open.iter_mut().zip(&mut done) {
            if let Some(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *out = Some(value);
                *slot = None;
            }
        }
        if open.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
