//! The order of a batch: the calls of one response run beside each other, but a call waits for those before it that it must not overtake.

use std::task::Poll;

use tokio::sync::watch;

/// The calls of one response.
pub(crate) struct Batch {
    /// For each call, those that it waits for.
    behind: Vec<Vec<usize>>,
    /// For each call, how far it has come.
    progress: watch::Sender<Vec<Progress>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Not over.
    Ahead,
    /// It has its result.
    Over,
    /// It has a question that stays open.
    QuestionOpen,
}

/// A call's place in its batch, once it is its turn. Dropping it lets those go on that wait for it.
pub(crate) struct Place<'a> {
    batch: &'a Batch,
    number: usize,
    /// Whether a call that this one waited for has a question that stays open.
    pub(crate) behind_question: bool,
    /// Set when this call's own question stays open.
    pub(crate) question_open: bool,
}

impl Batch {
    /// So many calls; `waits` says whether the first named call waits for the second, which stands before it.
    pub(crate) fn new(calls: usize, waits: impl Fn(usize, usize) -> bool) -> Self {
        let behind = (0..calls).map(|call| (0..call).filter(|before| waits(call, *before)).collect()).collect();
        Self { behind, progress: watch::Sender::new(vec![Progress::Ahead; calls]) }
    }

    /// Waits until it is this call's turn.
    pub(crate) async fn place(&self, number: usize) -> Place<'_> {
        let behind = &self.behind[number];
        let mut behind_question = false;
        if !behind.is_empty() {
            let mut progress = self.progress.subscribe();
            let over = progress.wait_for(|progress| behind.iter().all(|before| progress[*before] != Progress::Ahead));
            if let Ok(progress) = over.await {
                behind_question = behind.iter().any(|before| progress[*before] == Progress::QuestionOpen);
            }
        }
        Place { batch: self, number, behind_question, question_open: false }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let over = if self.question_open { Progress::QuestionOpen } else { Progress::Over };
        self.batch.progress.send_modify(|progress| progress[self.number] = over);
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
