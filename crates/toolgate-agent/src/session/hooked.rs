//! What hooks have to do with a run: they are told of the session, hear each prompt before the model does, and may keep the model going.

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    message::{Role, Text},
    outcome::StopReason,
};
use toolgate_runtime::{
    hooks::{Heard, Occasion},
    trace::TraceError,
};

use super::{FROM_TOOLGATE, RunStatus, Session};

/// How often hooks may keep a run going. One that is never content must not keep it for ever.
const MOST_KEPT: u32 = 8;

impl Session {
    /// Tells hooks that the session begins or goes on, once. Returns how the run ends where one objects.
    pub(super) async fn greet(&mut self, interrupt: &CancellationToken) -> Option<RunStatus> {
        if self.greeted {
            return None;
        }
        let source = if self.resumed { "resume" } else { "startup" };
        let heard = self.ask_hooks(Occasion::SessionStart(source), interrupt).await;
        let ends = self.heed(heard);
        self.greeted = ends.is_none();
        ends
    }

    /// A prompt becomes the model's, unless a hook objects: then it is not said at all.
    pub(super) async fn take_prompt(
        &mut self,
        prompt: &str,
        interrupt: &CancellationToken,
    ) -> Result<Option<RunStatus>, TraceError> {
        let heard = self.ask_hooks(Occasion::Prompt(prompt), interrupt).await;
        let ends = self.heed(heard);
        if ends.is_none() {
            self.say(prompt)?;
        }
        Ok(ends)
    }

    /// The model has no more calls: a hook may have it go on, and says why. Returns how the run ends, or that it does not.
    pub(super) async fn stop_or_go_on(
        &mut self,
        text: &str,
        kept: &mut u32,
        interrupt: &CancellationToken,
    ) -> Result<Option<RunStatus>, TraceError> {
        let stop = Occasion::Stop { again: *kept > 0, text };
        let heard = self.ask_hooks(stop, interrupt).await;
        if let Some(reason) = heard.stop {
            return Ok(Some(RunStatus::Stopped(reason)));
        }
        let Some(reason) = heard.blocked() else { return Ok(Some(RunStatus::Completed)) };
        if *kept == MOST_KEPT {
            self.notice(&format!("[hooks kept this run going {MOST_KEPT} times; it ends all the same: {reason}]"))?;
            return Ok(Some(RunStatus::Completed));
        }
        *kept += 1;
        self.unsaid.push(reason.to_owned());
        Ok(None)
    }

    /// Whether a hook ended the run while calls were made.
    pub(super) fn stopped(&self) -> Option<RunStatus> {
        self.setup.environment.hooks().take_stop().map(RunStatus::Stopped)
    }

    /// Says what hooks want the model to know. Not between a call and its result.
    pub(super) fn tell_context(&mut self) -> Result<(), TraceError> {
        for context in std::mem::take(&mut self.unsaid) {
            let sender = Some(FROM_TOOLGATE.to_owned());
            let text = format!("[from a hook]\n{context}");
            self.hear(Text { sender, ..Text::new(Role::User, text, StopReason::Completed) })?;
        }
        Ok(())
    }

    /// Tells hooks that the session is over, then ends whatever its commands left running.
    pub async fn close(&self) {
        self.ask_hooks(Occasion::SessionEnd("exit"), &CancellationToken::new()).await;
        self.setup.environment.close().await;
    }

    /// Hooks hear of the session that a person has. A subagent's is its parent's work, of which they hear as calls.
    async fn ask_hooks(&self, occasion: Occasion<'_>, interrupt: &CancellationToken) -> Heard {
        match self.setup.is_child {
            true => Heard::default(),
            false => self.setup.environment.hooks().hear(occasion, interrupt).await,
        }
    }

    fn heed(&mut self, heard: Heard) -> Option<RunStatus> {
        let ends = heard.stop.clone().or_else(|| heard.blocked().map(str::to_owned));
        if ends.is_none() {
            self.unsaid.extend(heard.context);
        }
        ends.map(RunStatus::Stopped)
    }
}
