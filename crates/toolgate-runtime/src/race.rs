//! One tool against its limits: its time, the person's interrupt, and its own panics. The call closes on time whatever the tool does.

use std::{any::Any, panic::AssertUnwindSafe, task::Poll, time::Duration};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use toolgate_core::outcome::{Ending, StopReason};

use crate::{
    BoxFuture,
    gate::Permit,
    registry::Entry,
    tool::{Done, ToolContext, ToolError},
};

/// How long a tool that was told to stop may take to say its last words, before it is abandoned. Long enough to collect output that is
/// already there, short enough that a person who pressed Ctrl-C does not notice.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Runs a tool against its time limit and the person's interrupt. Both win over whatever the tool says, and a tool that ignores them is
/// abandoned: the call still closes on time.
pub(crate) async fn race(
    entry: &Entry,
    permit: Permit,
    cx: ToolContext,
    interrupt: &CancellationToken,
) -> (Ending, Done) {
    let (tool, cancel, limit) = (entry.tool.clone(), cx.cancel.clone(), cx.limits.timeout_ms);
    let mut task = AbortOnDropHandle::new(tokio::spawn(async move { tool.run(permit, &cx).await }));
    let time_is_up = async {
        match limit {
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            None => std::future::pending().await,
        }
    };
    let cut_short = tokio::select! {
        biased;
        () = interrupt.cancelled() => Ending::Interrupted,
        joined = &mut task => {
            let (ending, done) = returned(joined);
            // A tool that came back because it was interrupted was interrupted, whatever it says.
            return if interrupt.is_cancelled() { (Ending::Interrupted, done) } else { (ending, done) };
        }
        () = time_is_up => Ending::TimedOut(limit.unwrap_or_default()),
    };
    cancel.cancel();
    let done = match tokio::time::timeout(LAST_WORDS, &mut task).await {
        Ok(Ok(Ok(done))) => done,
        _ => Done::default(),
    };
    (cut_short, done)
}

/// Turns a panic of a tool's own code into an error that the model can read.
pub(crate) async fn caught<T>(future: BoxFuture<'_, Result<T, ToolError>>) -> Result<T, ToolError> {
    let panicked = |what| Err(ToolError(format!("the tool panicked: {what}")));
    unwound(future).await.unwrap_or_else(panicked)
}

/// Awaits code that is not ours; what it panicked with is an error.
pub(crate) async fn unwound<T>(mut future: BoxFuture<'_, T>) -> Result<T, String> {
    std::future::poll_fn(|cx| match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(panic_text(payload.as_ref()))),
    })
    .await
}

fn returned(joined: Result<Result<Done, ToolError>, tokio::task::JoinError>) -> (Ending, Done) {
    match joined {
        Ok(Ok(done)) => (Ending::Returned(done.stop.unwrap_or(StopReason::Completed)), done),
        Ok(Err(ToolError(message))) => (Ending::Errored(message), Done::default()),
        Err(error) if error.is_panic() => (
            Ending::Errored(format!("the tool panicked: {}", panic_text(error.into_panic().as_ref()))),
            Done::default(),
        ),
        Err(_) => (Ending::Errored("the tool was stopped".into()), Done::default()),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
