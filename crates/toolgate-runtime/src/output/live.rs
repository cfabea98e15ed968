//! What people watch while a command prints: its newest output, a few times a second. It may be dropped, and it is in no history, trace
//! or delta. Nobody is woken for it unless somebody watches.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::{Sink, fold::Fold, ring::Ring};

/// Bytes of one look: about what a terminal's window holds.
const SHOWN: usize = 4 * 1024;

/// The shortest time between two looks: ten a second are as many as a person can follow.
const PAUSE: Duration = Duration::from_millis(100);

/// The newest raw bytes, and whom to wake when there are more.
pub(super) struct Live {
    newest: Ring,
    more: Arc<Notify>,
}

impl Live {
    pub(super) fn new(more: Arc<Notify>) -> Self {
        Self { newest: Ring::new(SHOWN), more }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.newest.write(bytes);
        self.more.notify_one();
    }

    /// The newest output as a terminal would show it. Where the beginning was dropped, it begins at a line or a frame of progress, so
    /// that no half of a control sequence is taken for text.
    pub(super) fn text(&self) -> String {
        let (older, newer) = self.newest.newest(SHOWN as u64);
        let mut bytes = [older, newer].concat();
        if bytes.len() == SHOWN {
            let first = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
            bytes.drain(..first);
        }
        let (mut fold, mut text) = (Fold::default(), String::new());
        fold.push(&bytes, &mut |piece| text.push_str(piece));
        fold.finish(&mut |piece| text.push_str(piece));
        let surplus = (text.len().saturating_sub(SHOWN)..text.len()).find(|at| text.is_char_boundary(*at));
        text.split_off(surplus.unwrap_or(0))
    }
}

/// Shows what comes until the handle is dropped. Without a runtime there is nobody to wake.
pub(crate) fn watch(sink: &Arc<Sink>, show: impl Fn(&str) + Send + 'static) -> Option<AbortOnDropHandle<()>> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    let more = Arc::new(Notify::new());
    sink.watch_live(more.clone());
    let sink: Weak<Sink> = Arc::downgrade(sink);
    let looks = async move {
        loop {
            more.notified().await;
            let Some(sink) = sink.upgrade() else { return };
            sink.show_live(&show);
            drop(sink);
            tokio::time::sleep(PAUSE).await;
        }
    };
    Some(AbortOnDropHandle::new(runtime.spawn(looks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_the_newest_output_clean_and_within_its_bound() {
        let text = |bytes: &[u8]| {
            let mut live = Live::new(Arc::default());
            live.write(bytes);
            live.text()
        };
        assert_eq!(text(b"\x1b[31mone\x1b[0m\n\r 10%\r 20%"), "one\n 20%");
        let lines = text("é line\n".repeat(2000).as_bytes());
        assert!(lines.len() <= SHOWN && lines.starts_with("é line\n") && lines.ends_with("é line\n"));
        let progress: String = (0..9000).map(|i| format!("\r\x1b[2K{i:6} done")).collect();
        assert_eq!(text(progress.as_bytes()), "  8999 done");
        assert!(text(&[0; 9000]).len() <= SHOWN);
    }
}
