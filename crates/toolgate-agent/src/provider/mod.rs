//! The port to model providers, and the neutral words of their answers.
//!
//! A wire is one file (`chat`, `responses`, `messages`, `gemini`): it reads one event at a time, and its `form` says how a group
//! of a conversation is written. Everything else is there once: the request writer (`writer`), the calls of an answer and their ids
//! (`calls`), what must come back to a model (`native`), the HTTP line (`http`) and where it leads (`address`), the event stream (`sse`),
//! the classes of errors (`error`). Text is forwarded at once; calls are handed out only when the answer is whole, right before its
//! [`Stop`], so no caller can start one that the stream's end would have taken back.

mod address;
mod calls;
mod chat;
mod error;
mod gemini;
mod http;
mod images;
mod json;
mod list;
mod messages;
mod native;
mod recording;
mod responses;
mod sse;
mod writer;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, value::RawValue};
use toolgate_core::{
    message::{ModelMessage, Tokens},
    tool::ToolCall,
};
use toolgate_runtime::BoxFuture;

pub use error::{ErrorClass, ProviderError};
pub use http::Endpoint;
pub use list::{ListedModel, list_models};
pub use recording::{parse_pieces, parse_recording};

use calls::Calls;
use chat::{Chat, ChatForm};
use gemini::{Gemini, GeminiForm};
use http::{HttpAnswer, Line, Wire};
use messages::{Messages, MessagesForm};
use native::Origin;
use responses::{Responses, ResponsesForm};
use writer::{Form, Writer};

/// A model is a provider's: the same name at another provider is another model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelId {
    /// The provider's name.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// One model at one provider. Shared by sessions; each request stands alone.
pub trait Provider: Send + Sync {
    /// Which model answers.
    fn model(&self) -> &ModelId;

    /// Sends a request and returns when the provider has accepted it.
    ///
    /// # Errors
    /// What the provider refuses, and what keeps the request from reaching it.
    fn stream<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Box<dyn Answer>, ProviderError>>;

    /// The body that this request would have; nothing is sent. Empty for a model that is asked without a wire.
    fn written(&self, _: &Request<'_>) -> Vec<u8> {
        Vec::new()
    }
}

/// What the model is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The instructions before the conversation; none when empty.
    pub system: &'a str,
    /// The tools on offer, each `{name, description, parameters}`.
    pub tools: &'a [Value],
    /// The conversation. Within a session it only grows, and results stand in call order: what an earlier request has encoded is
    /// then sent again as it was. Any other history is right too, and encoded anew.
    pub history: &'a [ModelMessage],
    /// The answer's bound; tokens.
    pub max_tokens: Option<u64>,
    /// How much the model is to think; what its provider does by itself when absent.
    pub thinking: Option<ThinkingLevel>,
}

/// How much a model is to think before it answers. Wires that know fewer levels take the nearest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThinkingLevel {
    /// Not at all, where the model can be told so.
    Off,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// Long.
    High,
    /// Longer, where the provider knows it.
    Xhigh,
    /// As long as it can.
    Max,
}

impl ThinkingLevel {
    /// All of them, the least first.
    pub const ALL: [Self; 6] = [Self::Off, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The word in configurations and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// The wire formats, named as configurations name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI Chat Completions, and whatever speaks it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// Gemini's generateContent.
    GoogleGenerateContent,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::OpenaiChat, Self::OpenaiResponses, Self::AnthropicMessages, Self::GoogleGenerateContent];

    /// The word in configurations and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
            Self::GoogleGenerateContent => "google-generate-content",
        }
    }
}

/// What a model is reached with.
#[derive(Debug, Clone)]
pub struct ModelSetup {
    /// The wire that it speaks.
    pub api: Api,
    /// Which model it is.
    pub id: ModelId,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Whether it sees images; where it does not, they are named and not sent.
    pub vision: bool,
}

impl ModelSetup {
    /// A model that sees images.
    pub fn new(api: Api, provider: &str, model: &str, endpoint: Endpoint) -> Self {
        let id = ModelId { provider: provider.to_owned(), model: model.to_owned() };
        Self { api, id, endpoint, vision: true }
    }
}

/// A model behind its wire. Connects to nothing yet: the HTTP client is made for the first request.
///
/// # Errors
/// An address that is none, a key that no header can carry.
pub fn connect(setup: ModelSetup) -> Result<Arc<dyn Provider>, ProviderError> {
    let line = Line::new(setup.api, &setup.id.model, setup.endpoint.clone())?;
    let host = line.host();
    Ok(match setup.api {
        Api::OpenaiChat => model(&setup, line, ChatForm::new(&setup.id, &host), Chat::new),
        Api::OpenaiResponses => model(&setup, line, ResponsesForm::new(&setup.id, &host), Responses::new),
        Api::AnthropicMessages => {
            let origin = Origin::new(setup.api, setup.id.clone());
            model(&setup, line, MessagesForm::new(&setup.id, origin, &host), Messages::new)
        }
        Api::GoogleGenerateContent => model(&setup, line, GeminiForm::new(&setup.id), Gemini::new),
    })
}

/// A model on any wire: how the wire writes requests, and how it reads answers.
struct Model<F, W> {
    id: ModelId,
    origin: Origin,
    line: Line,
    writer: Mutex<Writer<F>>,
    reader: fn(Calls, Origin) -> W,
}

fn model<F: Form + 'static, W: Wire + 'static>(
    setup: &ModelSetup,
    line: Line,
    form: F,
    reader: fn(Calls, Origin) -> W,
) -> Arc<dyn Provider> {
    let (id, origin) = (setup.id.clone(), Origin::new(setup.api, setup.id.clone()));
    let writer = Mutex::new(Writer::new(form, origin.clone(), setup.vision));
    Arc::new(Model { id, origin, line, writer, reader })
}

impl<F: Form, W: Wire + 'static> Provider for Model<F, W> {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn written(&self, request: &Request<'_>) -> Vec<u8> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write(request).0
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Box<dyn Answer>, ProviderError>> {
        Box::pin(async move {
            let (body, ids) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).write(&request);
            let response = self.line.post(body).await?;
            let wire = (self.reader)(Calls::new(ids), self.origin.clone());
            Ok(Box::new(HttpAnswer::new(&self.line, response, wire)) as Box<dyn Answer>)
        })
    }
}

/// An answer as it comes. Dropping it ends the request.
pub trait Answer: Send {
    /// The next event; `None` after [`ModelEvent::End`] or an error. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The answer failed; what came before it is not an answer, and no call of it exists.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ModelEvent>, ProviderError>>;
}

/// A piece of an answer.
#[derive(Debug, Clone)]
pub enum ModelEvent {
    /// More of the text.
    Text(String),
    /// More of the reasoning.
    Thinking(String),
    /// More of the words with which the model refuses.
    Refusal(String),
    /// Ends the block of text or thinking that stands open: what must come back with it to the same model, the `fidelity` of its message.
    Native(Box<RawValue>),
    /// Takes back what was shown.
    Withdrawn(Withdrawn),
    /// A block of its own that has nothing to show and must come back: encrypted reasoning, what a server's own tools did.
    Opaque(Box<RawValue>),
    /// A call begins, and takes its place among the blocks.
    CallStart {
        /// Counts the answer's calls from 0.
        index: usize,
        /// Unique in the session.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments; to be shown only.
    CallArguments {
        /// The call.
        index: usize,
        /// More of its JSON text.
        delta: String,
    },
    /// A complete call, in call order, after everything else but [`ModelEvent::Usage`] and [`ModelEvent::End`].
    Call {
        /// The call; it began with this index.
        index: usize,
        /// The call, its arguments as the model wrote them (`{}` for none).
        call: ToolCall,
        /// Whether the arguments are whole: JSON, and not the last thing before a length limit. Any other call must not run.
        valid: bool,
        /// What must come back with it to the same model.
        native: Option<Box<RawValue>>,
    },
    /// The tokens of this request.
    Usage(Usage),
    /// The answer is whole.
    End(Stop),
}

/// How much of an answer is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// The block that stands open: it comes again as the provider has it in the end.
    Block,
    /// All of it: a proxy on the way began the answer anew.
    Answer,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The model is done.
    End,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The length limit. No call of such an answer runs.
    MaxTokens,
    /// A stop sequence.
    StopSequence,
    /// The provider held the answer back.
    Filtered,
    /// The provider wants the turn back as it is, to go on.
    Pause,
}

impl Stop {
    /// The word in traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::ToolCalls => "tool_calls",
            Self::MaxTokens => "max_tokens",
            Self::StopSequence => "stop_sequence",
            Self::Filtered => "filtered",
            Self::Pause => "pause",
        }
    }
}

/// The tokens of one request, counted alike for all providers. What a provider does not say is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All that was sent, cached or not.
    pub input: u64,
    /// All that was written, reasoning included.
    pub output: u64,
    /// The part of `input` that was read from the provider's cache.
    pub cache_read: u64,
    /// The part of `input` that was written to it.
    pub cache_write: u64,
    /// The part of `output` that is reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// The form of the trace.
    pub fn tokens(&self) -> Tokens {
        Tokens {
            cache_read: self.cache_read,
            cache_write: self.input.saturating_sub(self.cache_read),
            output: self.output,
            total: self.input + self.output,
        }
    }
}
