//! What ended in the background: it waits here until the session tells the model, and is told once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Characters of a label; a line of shell may be as long as it likes (PenguinHarness's number).
const LABEL: usize = 120;

/// Characters of the output that nobody has read: its end is what is worth telling (PenguinHarness's number).
pub const MOST_OUTPUT: usize = 4000;

/// Begins the text by which a model tells a notice from a person's words (PenguinHarness's mark).
const MARK: &str = "[background_task_done]";

/// Something that ran in the background has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it was.
    pub kind: Background,
    /// Its id.
    pub id: String,
    /// What it was started for: the first line, shortened.
    pub label: String,
    /// Whether it went wrong.
    pub failed: bool,
    /// How it ended, where there is more to say.
    pub detail: Option<String>,
    /// What it printed or said that nobody has read.
    pub output: String,
}

/// What runs in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// A command.
    Command,
    /// Another agent.
    Subagent,
}

impl Background {
    /// The word in a notice, and what its id is called.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Command => ("command", "process_id"),
            Self::Subagent => ("subagent", "subagent_id"),
        }
    }
}

impl Notice {
    /// A label out of a longer text.
    pub fn label(text: &str) -> String {
        let first = text.trim().lines().next().unwrap_or_default();
        match first.char_indices().nth(LABEL - 1) {
            Some((end, c)) if end + c.len_utf8() < first.len() => format!("{}…", &first[..end]),
            _ => first.to_owned(),
        }
    }

    /// As a person reads it, in one line.
    pub fn line(&self) -> String {
        let (kind, id) = self.kind.words();
        let how = if self.failed { "failed" } else { "finished" };
        let detail = self.detail.as_ref().map(|detail| format!(" — {detail}")).unwrap_or_default();
        format!("Background {kind} {how}: `{}` ({id} {}){detail}", self.label, self.id)
    }

    /// As the model reads it: a block that programs can read too, then the line, then what was printed.
    pub fn text(&self) -> String {
        let (kind, _) = self.kind.words();
        let status = if self.failed { "failed" } else { "completed" };
        let detail = self.detail.as_ref().map(|detail| format!("detail: {detail}\n")).unwrap_or_default();
        let output = if self.output.is_empty() { String::new() } else { format!("\n\n{}", self.output) };
        format!(
            "{MARK}\nThis message was written by toolgate, not by the user: something that was started in the background has ended.\n\
             kind: {kind}\nid: {}\nstatus: {status}\n{detail}\n{}{output}",
            self.id,
            self.line()
        )
    }
}

/// The notices of one session.
#[derive(Default)]
pub struct Notices {
    waiting: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    notices: Vec<Notice>,
    closed: bool,
}

impl Notices {
    /// Something has ended. After the session's end nobody is told.
    pub fn push(&self, notice: Notice) {
        let mut queue = self.queue();
        if !queue.closed {
            queue.notices.push(notice);
            self.arrived.notify_one();
        }
    }

    /// What has ended since this was asked last, in order.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.queue().notices)
    }

    /// Whether there is something to tell.
    pub fn is_waiting(&self) -> bool {
        !self.queue().notices.is_empty()
    }

    /// Until there is something to tell. For whoever keeps a session that has nothing to do.
    pub async fn arrived(&self) {
        while !self.is_waiting() {
            self.arrived.notified().await;
        }
    }

    /// The session is over.
    pub(crate) fn close(&self) {
        *self.queue() = Queue { notices: Vec::new(), closed: true };
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_reads_as_a_block_and_a_line() {
        let mut notice = Notice {
            kind: Background::Command,
            id: "proc-1".into(),
            label: Notice::label("make -j\nall"),
            failed: true,
            detail: Some("exit code 2".into()),
            output: "error".into(),
        };
        assert_eq!(
            notice.text(),
            "[background_task_done]\nThis message was written by toolgate, not by the user: something that was started in the background has \
             ended.\nkind: command\nid: proc-1\nstatus: failed\ndetail: exit code 2\n\nBackground command failed: `make -j` (process_id proc-1) \
             — exit code 2\n\nerror"
        );
        (notice.kind, notice.failed, notice.detail, notice.output) = (Background::Subagent, false, None, String::new());
        assert!(
            notice
                .text()
                .ends_with("status: completed\n\nBackground subagent finished: `make -j` (subagent_id proc-1)")
        );
        assert_eq!(Notice::label(&"é".repeat(200)).chars().count(), 120);
    }

    #[test]
    fn it_is_told_once_and_nobody_is_told_after_the_end() {
        let notices = Notices::default();
        let notice = Notice {
            kind: Background::Command,
            id: "p".into(),
            label: String::new(),
            failed: false,
            detail: None,
            output: String::new(),
        };
        notices.push(notice.clone());
        assert!(notices.is_waiting());
        assert_eq!((notices.take().len(), notices.take().len()), (1, 0));
        notices.close();
        notices.push(notice);
        assert!(!notices.is_waiting());
    }
}
