//! One exchange with a program: it is given a text, its output is handed on as it comes, and the end of its standard error is kept.
//!
//! The program is no command session: nobody comes back to it. When the exchange is over, or is dropped, whatever is left of its tree is
//! ended.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{Exit, Output, Running, Status};
use crate::output::{plain, ring::Ring};

/// One read, in bytes; as much as a pipe holds by default.
const READ: usize = 64 * 1024;

/// Bytes of standard error that are kept, the newest: some lines of a stack trace.
const ERRORS: usize = 4 * 1024;

/// After the program has ended, a quiet time this long ends the exchange while what it left running still holds a pipe.
const QUIET: Duration = Duration::from_millis(100);

/// And it ends after this, however much is still printed.
const LONGEST_DRAIN: Duration = Duration::from_secs(2);

/// How long a program that has said all may take to end. It has nothing left to do but to clean up.
const AFTER_THE_LAST_WORD: Duration = Duration::from_secs(2);

/// What is made of a piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// More may follow.
    Wanted,
    /// All has been said.
    Over,
}

/// How an exchange went.
pub(crate) struct Exchange<E> {
    /// How the program ended; `None` when it had said all and did not end by itself. What its output was refused for, if it was.
    pub(crate) outcome: Result<Option<Status>, E>,
    /// The end of what it said on standard error, as text.
    pub(crate) errors: String,
}

/// Gives a program its input and hands its output to `take`, which may refuse it and so end the exchange.
pub(crate) async fn exchange<E>(
    mut running: Running,
    input: &[u8],
    take: impl FnMut(&[u8]) -> Result<More, E>,
) -> Exchange<E> {
    let output = std::mem::replace(&mut running.output, Output::Stream(Box::new(tokio::io::empty())));
    let (errors, heard, over) = (Mutex::new(Ring::new(ERRORS)), AtomicU64::new(0), Notify::new());
    let all = async {
        // The first refusal ends the other two.
        tokio::try_join!(
            listen(output, take, &heard, &over),
            feed(running.input.take(), input),
            listen_beside(running.errors.take(), &errors, &heard),
        )?;
        Ok(ended(running.exit.clone()).await)
    };
    let left_alone = async {
        let status = ended(running.exit.clone()).await;
        drained(&heard).await;
        status
    };
    let silent = async {
        over.notified().await;
        sleep(AFTER_THE_LAST_WORD).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = all => outcome.map(Some),
        status = left_alone => Ok(Some(status)),
        () = silent => Ok(None),
    };
    let errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (older, newer) = errors.newest(ERRORS as u64);
    Exchange { outcome, errors: plain(&[older, newer].concat()) }
}

/// Writes the input and closes it. A program that does not read it has no need of it.
async fn feed<E>(pipe: Option<Box<dyn AsyncWrite + Send + Sync + Unpin>>, input: &[u8]) -> Result<(), E> {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(input).await;
    }
    Ok(())
}

/// Hands the output on until it ends or is refused.
async fn listen<E>(
    mut output: Output,
    mut take: impl FnMut(&[u8]) -> Result<More, E>,
    heard: &AtomicU64,
    over: &Notify,
) -> Result<(), E> {
    let mut buffer = Vec::with_capacity(READ);
    while let Ok(1..) = output.read_buf(&mut buffer).await {
        heard.fetch_add(1, Ordering::Relaxed);
        if take(&buffer)? == More::Over {
            over.notify_one();
        }
        buffer.clear();
    }
    Ok(())
}

/// Keeps the end of what is said on standard error.
async fn listen_beside<E>(errors: Option<Output>, kept: &Mutex<Ring>, heard: &AtomicU64) -> Result<(), E> {
    let Some(mut errors) = errors else { return Ok(()) };
    let mut buffer = Vec::with_capacity(ERRORS);
    while let Ok(1..) = errors.read_buf(&mut buffer).await {
        heard.fetch_add(1, Ordering::Relaxed);
        kept.lock().unwrap_or_else(PoisonError::into_inner).write(&buffer);
        buffer.clear();
    }
    Ok(())
}

/// How the program ended, once it has.
async fn ended(mut exit: watch::Receiver<Option<Exit>>) -> Status {
    let exit = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.as_ref().map(|exit| exit.status));
    exit.unwrap_or(Status::Lost)
}

/// Comes back when nothing more is heard: the program has ended, and others hold its pipes.
async fn drained(heard: &AtomicU64) {
    let quiet = async {
        loop {
            let before = heard.load(Ordering::Relaxed);
            sleep(QUIET).await;
            if heard.load(Ordering::Relaxed) == before {
                return;
            }
        }
    };
    let _ = timeout(LONGEST_DRAIN, quiet).await;
}
