//! How a call ends: one frame, one result, in one form, whatever happened.
//!
//! `start`, deltas, `stop`, then one complete message. The joined deltas equal its output, because both come from one sink.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use toolgate_core::{
    message::{Extra, ModelMessage, Partial, PartialEvent, Role, ToolCallOutput},
    outcome::{Ending, StopReason},
    tool::Bound,
};

use crate::{
    image::Picture,
    output::{Sink, bounded, live, spill::SpillFolder},
    tool::Done,
    trace::{Journal, TraceError},
};

/// An open frame. It is closed by [`CloseOut::finish`], once.
pub struct CloseOut {
    journal: Arc<Journal>,
    call_id: String,
    sink: Arc<Sink>,
    /// Ends with the frame.
    _live: Option<AbortOnDropHandle<()>>,
}

impl CloseOut {
    /// Opens the frame of a call.
    pub fn open(journal: &Arc<Journal>, call_id: &str, bound: Bound, spills: Option<SpillFolder>) -> Self {
        journal.show(partial(call_id, PartialEvent::Start));
        let emit = {
            let (journal, call_id) = (journal.clone(), call_id.to_owned());
            Box::new(move |text: &str| {
                let delta = Partial { output: Some(text.to_owned()), ..piece(&call_id, PartialEvent::Delta) };
                journal.show(ModelMessage::PartialToolCallOutput(delta));
            })
        };
        let sink = Arc::new(Sink::new(bound, spills, call_id, emit));
        let live = journal.watches_live().then(|| {
            let (journal, call_id) = (journal.clone(), call_id.to_owned());
            live::watch(&sink, move |text| journal.live(&call_id, text))
        });
        Self { journal: journal.clone(), call_id: call_id.to_owned(), sink, _live: live.flatten() }
    }

    /// Where the tool writes.
    pub fn sink(&self) -> Arc<Sink> {
        self.sink.clone()
    }

    /// The output as the model will read it, notes aside. Nothing is added to it after this.
    pub fn output(&self) -> String {
        self.sink.end()
    }

    /// Closes the frame and records the one result. `notes` come first, then the tool's own note, then the marker of the ending.
    ///
    /// # Errors
    /// When the result cannot be recorded.
    pub fn finish(self, ending: &Ending, mut notes: Vec<String>, done: Done) -> Result<ToolCallOutput, TraceError> {
        let stop = ending.stop_reason();
        notes.extend(done.note);
        notes.extend(ending.marker());
        let output = self.sink.close(&notes);
        let images = if stop == StopReason::Completed { done.images } else { Vec::new() };
        let images: Vec<String> = images.iter().map(Picture::data_url).collect();
        if !images.is_empty() {
            let delta = Partial { images: images.clone(), ..piece(&self.call_id, PartialEvent::Delta) };
            self.journal.show(ModelMessage::PartialToolCallOutput(delta));
        }
        let end = Partial { stop_reason: Some(stop), ..piece(&self.call_id, PartialEvent::Stop) };
        self.journal.show(ModelMessage::PartialToolCallOutput(end));
        record(&self.journal, result(&self.call_id, output, images, stop))
    }
}

/// Records a result that had no output to stream: a denial.
///
/// # Errors
/// When it cannot be recorded.
pub fn close_unrun(journal: &Journal, call_id: &str, output: String) -> Result<ToolCallOutput, TraceError> {
    record(journal, result(call_id, bounded(&output), Vec::new(), StopReason::Aborted))
}

fn record(journal: &Journal, output: ToolCallOutput) -> Result<ToolCallOutput, TraceError> {
    journal.record(ModelMessage::ToolCallOutput(output.clone()))?;
    Ok(output)
}

/// A result message.
pub fn result(call_id: &str, output: String, images: Vec<String>, stop: StopReason) -> ToolCallOutput {
    ToolCallOutput {
        role: Some(Role::User),
        output,
        images,
        tool_call_id: call_id.to_owned(),
        stop_reason: Some(stop),
        extra: Extra::new(),
    }
}

fn partial(call_id: &str, event: PartialEvent) -> ModelMessage {
    ModelMessage::PartialToolCallOutput(piece(call_id, event))
}

fn piece(call_id: &str, event_type: PartialEvent) -> Partial {
    Partial { tool_call_id: Some(call_id.to_owned()), ..Partial::new(event_type) }
}
