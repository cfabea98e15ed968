//! The time limit of a run: it ends as an interrupt would end it, and is told apart from one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

/// A limit that is running. A run that ends before it costs nothing more.
pub(super) struct Deadline {
    passed: Arc<AtomicBool>,
    ended: CancellationToken,
}

impl Deadline {
    /// From now on. Without a limit it never passes.
    pub(super) fn start(limit_ms: Option<u64>, interrupt: &CancellationToken) -> Self {
        let (passed, ended) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        if let Some(limit) = limit_ms {
            let (passed, ended, interrupt) = (passed.clone(), ended.clone(), interrupt.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_millis(limit)) => {
                        // Whoever was stopped before was not stopped by this.
                        passed.store(!interrupt.is_cancelled(), Ordering::Relaxed);
                        interrupt.cancel();
                    }
                }
            });
        }
        Self { passed, ended }
    }

    /// Whether it was reached.
    pub(super) fn passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// What is said of a run that it ended.
pub(super) fn reached(limit_ms: Option<u64>) -> String {
    format!("stopped: the time limit of {} ms was reached (--timeout)", limit_ms.unwrap_or_default())
}
