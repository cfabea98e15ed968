//! A model that follows a script: no key and no network. It drives `toolgate demo` and tests, through the same port as any other.

use std::collections::VecDeque;

use toolgate_core::{
    message::{ModelMessage, Role},
    tool::ToolCall,
};
use toolgate_runtime::BoxFuture;

use crate::provider::{Answer, ModelEvent, ModelId, Provider, ProviderError, Request, Stop, Usage};

/// One answer.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// What it says.
    pub text: String,
    /// What it calls: tool and arguments.
    pub calls: Vec<(String, String)>,
}

/// A model whose answers are known beforehand. Which one comes next follows from the history, so a resumed session goes on where it was.
pub struct Scripted {
    id: ModelId,
    steps: Vec<Step>,
    /// Other parts, by the first words that are said to it.
    parts: Vec<(String, Vec<Step>)>,
}

impl Scripted {
    /// A model with these answers. Behind the last one it says that its script is over.
    pub fn new(steps: Vec<Step>) -> Self {
        Self { id: ModelId { provider: "scripted".into(), model: "scripted".into() }, steps, parts: Vec::new() }
    }

    /// What it answers in a session that begins with this prompt, such as a subagent's.
    #[must_use]
    pub fn with_part(mut self, prompt: &str, steps: Vec<Step>) -> Self {
        self.parts.push((prompt.to_owned(), steps));
        self
    }

    fn part(&self, history: &[ModelMessage]) -> &[Step] {
        let first = history.iter().find_map(|message| match message {
            ModelMessage::Text(text) if text.role == Role::User => Some(text.text.as_str()),
            _ => None,
        });
        let part = self.parts.iter().find(|(prompt, _)| first == Some(prompt));
        part.map_or(&self.steps, |(_, steps)| steps)
    }
}

impl Provider for Scripted {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Box<dyn Answer>, ProviderError>> {
        let number = answers_in(request.history);
        let over = Step { text: "The script is over.".into(), calls: Vec::new() };
        let step = self.part(request.history).get(number).cloned().unwrap_or(over);
        let mut events = VecDeque::new();
        if !step.text.is_empty() {
            events.push_back(ModelEvent::Text(step.text));
        }
        let stop = if step.calls.is_empty() { Stop::End } else { Stop::ToolCalls };
        for (index, (name, arguments)) in step.calls.into_iter().enumerate() {
            let id = format!("call_{}_{}", number + 1, index + 1);
            let call = ToolCall { id, name, arguments };
            events.push_back(ModelEvent::CallStart { index, id: call.id.clone(), name: call.name.clone() });
            events.push_back(ModelEvent::Call { index, call, valid: true, native: None });
        }
        events.extend([ModelEvent::Usage(Usage::default()), ModelEvent::End(stop)]);
        Box::pin(async { Ok(Box::new(Recited(events)) as Box<dyn Answer>) })
    }
}

/// How many answers a history holds: unbroken rows of the assistant's messages.
fn answers_in(history: &[ModelMessage]) -> usize {
    let (mut answers, mut before) = (0, false);
    for message in history {
        let assistant = match message {
            ModelMessage::Text(text) => text.role == Role::Assistant,
            ModelMessage::ToolCall(_) | ModelMessage::Thinking(_) => true,
            _ => false,
        };
        answers += usize::from(assistant && !before);
        before = assistant;
    }
    answers
}

struct Recited(VecDeque<ModelEvent>);

impl Answer for Recited {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ModelEvent>, ProviderError>> {
        Box::pin(async { Ok(self.0.pop_front()) })
    }
}
