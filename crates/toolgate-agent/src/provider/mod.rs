//! The port to model providers, and what every wire format needs behind it: the HTTP line, the answer's pump, the neutral words.
//!
//! A wire is one file: it writes a request and reads one event at a time ([`Wire`]). Everything else is here once: [`Endpoint`] is
//! where a model lives, `Line` posts to it, `Body` tells an event stream from a plain JSON answer, `HttpAnswer` pulls the bytes and
//! hands out [`ModelEvent`]s. Text is forwarded at once; calls are handed out only when the answer is whole, right before its
//! [`Stop`], so no caller can start one that the stream's end would have taken back.

pub mod chat;
mod error;
mod sse;

use std::{collections::VecDeque, fmt, time::Duration};

use reqwest::{Client, Url, header};
use serde_json::{Value, json, value::RawValue};
use tokio::{sync::OnceCell, time::timeout};
use toolgate_core::{
    message::{ModelMessage, Tokens},
    tool::ToolCall,
};
use toolgate_runtime::BoxFuture;

pub use error::{ErrorClass, ProviderError};

/// How long a connection may take. Every provider answers in well under a second; a dead address should not hold a run.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a provider may send nothing at all, keep-alives counted as something; PenguinHarness's idle timer.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// How long an answer that has named its stop reason is waited for: usage and the end marker come at once or not at all.
const AFTER_STOP_LIMIT: Duration = Duration::from_secs(5);

/// How long the end of the body is waited for behind the end marker. It usually lies in the same packet, and only a body that was
/// read to its end gives its connection back for the next turn.
const DRAIN_LIMIT: Duration = Duration::from_millis(20);

/// The largest answer; bytes. The longest real ones stay under 2 MB, and a server that never ends must not fill the memory.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// How much of an error body is read; bytes. The reason stands at its beginning.
const MAX_ERROR_BYTES: usize = 64 * 1024;

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
    /// What must come back with this answer's thinking to the same model: the `fidelity` of its thinking message.
    Fidelity(Box<RawValue>),
    /// A call begins; to be shown only.
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
        /// The call, its arguments as the model wrote them (`{}` for none).
        call: ToolCall,
        /// Whether the arguments are whole: JSON, and not the last thing before a length limit. Any other call must not run.
        valid: bool,
    },
    /// The tokens of this request.
    Usage(Usage),
    /// The answer is whole.
    End(Stop),
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
    /// The word in traces and in `debug stream`.
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

/// Where a model lives, and the key to it.
#[derive(Clone, Default)]
pub struct Endpoint {
    /// Up to the version: `https://api.openai.com/v1`. A slash at the end and a query are fine.
    pub base_url: String,
    /// The key; local servers want none.
    pub key: Option<String>,
    /// The proxy's URL. The environment's proxies are the caller's to read.
    pub proxy: Option<String>,
}

impl fmt::Debug for Endpoint {
    /// Keys and proxies' passwords do not belong in a debug text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = Url::parse(&self.base_url).ok().map(|url| host_of(&url));
        let (key, proxy) = (self.key.as_ref().map(|_| "…"), self.proxy.as_ref().map(|_| "…"));
        f.debug_struct("Endpoint").field("host", &host).field("key", &key).field("proxy", &proxy).finish()
    }
}

/// One wire's way of reading: an event stream's events, or the one of a plain JSON answer.
pub(crate) trait Wire: Send {
    /// Takes an event in.
    fn event(&mut self, name: &str, data: &str, out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError>;

    /// The body is over: hands out the calls, the usage and the end.
    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError>;
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More must come.
    Open,
    /// The stop reason is known; usage, an error or the end marker may follow.
    Stopped,
    /// The end marker was there.
    Done,
}

/// The HTTP side of a provider: one client, made before the first request and kept.
pub(crate) struct Line {
    endpoint: Endpoint,
    url: Url,
    headers: header::HeaderMap,
    client: OnceCell<Client>,
}

impl Line {
    /// `path` is joined to the endpoint's base; `auth` names the header of the key and what stands before it.
    pub(crate) fn new(endpoint: Endpoint, path: &str, auth: (header::HeaderName, &str)) -> Result<Self, ProviderError> {
        let invalid = |what| ProviderError::new(ErrorClass::InvalidRequest, what);
        let mut url = Url::parse(endpoint.base_url.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| invalid("base_url is not an http:// or https:// address"))?;
        let base = url.path().trim_end_matches('/').to_owned();
        if !base.ends_with(path) {
            url.set_path(&format!("{base}{path}"));
        }
        let mut headers = header::HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if let Some(key) = endpoint.key.as_deref().map(str::trim).filter(|key| !key.is_empty()) {
            let mut value = header::HeaderValue::from_str(&format!("{}{key}", auth.1)).map_err(|_| {
                ProviderError::new(
                    ErrorClass::Auth,
                    "cannot be sent its key, which holds a character that no header carries",
                )
                .at(&host_of(&url), None)
            })?;
            value.set_sensitive(true);
            headers.insert(auth.0, value);
        }
        Ok(Self { endpoint, url, headers, client: OnceCell::new() })
    }

    /// Where requests go.
    pub(crate) fn host(&self) -> String {
        host_of(&self.url)
    }

    /// Names the host and keeps the key out of a message.
    fn place(&self, error: ProviderError) -> ProviderError {
        error.at(&self.host(), self.endpoint.key.as_deref())
    }

    /// Posts a body and comes back with the head of a good answer.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<reqwest::Response, ProviderError> {
        let client = self.client.get_or_try_init(|| async { self.build() }).await?;
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let silent = || self.place(ProviderError::new(ErrorClass::Timeout, silence()));
        let response = timeout(IDLE_LIMIT, request.send()).await.map_err(|_| silent())?.map_err(|error| {
            let mut failure = match error.is_connect() {
                true => ProviderError::unreachable(&error),
                false => ProviderError::new(ErrorClass::Network, "closed the connection before it answered"),
            };
            if self.endpoint.proxy.is_some() {
                failure.message.push_str(" (through the proxy)");
            }
            self.place(failure)
        })?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn refusal(&self, mut response: reqwest::Response) -> ProviderError {
        let (status, headers, mut body) = (response.status().as_u16(), response.headers().clone(), Vec::new());
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Ok(Some(bytes))) = timeout(AFTER_STOP_LIMIT, response.chunk()).await
        {
            body.extend_from_slice(&bytes);
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut error = ProviderError::from_body(Some(status), &body);
        error.retry_after_ms = error::retry_after_ms(header).or(error.retry_after_ms);
        error.hopeless = header("x-should-retry") == Some("false");
        if let Some(elsewhere) = header("location").filter(|_| (300..400).contains(&status)) {
            error.message =
                format!("answered {status}: it is at {elsewhere} now, and a key is not sent after a redirect");
        }
        self.place(error)
    }

    fn build(&self) -> Result<Client, ProviderError> {
        let invalid = |what| self.place(ProviderError::new(ErrorClass::InvalidRequest, what));
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")));
        let mut secure = self.url.scheme() == "https";
        if let Some(proxy) = &self.endpoint.proxy {
            secure |= proxy.trim_start().starts_with("https:");
            let proxy =
                reqwest::Proxy::all(proxy.trim()).map_err(|_| invalid("has a proxy whose address cannot be read"))?;
            builder = builder.proxy(proxy);
        }
        if !secure {
            // Nothing here will ever speak TLS (redirects are off), and loading the system's roots costs more than a local request.
            builder = builder.tls_certs_only([]);
        }
        builder.build().map_err(|_| invalid("cannot be asked: the HTTP client does not start (TLS roots or proxy)"))
    }
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn silence() -> String {
    format!("sent nothing for {} s", IDLE_LIMIT.as_secs())
}

/// An answer's bytes on their way to a wire. The first byte that says something tells the form: some servers ignore `stream` and
/// send one JSON object, some name the wrong content type.
pub(crate) struct Body<W> {
    wire: W,
    form: Form,
    seen: usize,
}

enum Form {
    Unknown,
    Events(sse::Reader),
    Json(Vec<u8>),
}

impl<W: Wire> Body<W> {
    pub(crate) fn new(wire: W) -> Self {
        Self { wire, form: Form::Unknown, seen: 0 }
    }

    fn push(&mut self, mut bytes: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError> {
        self.seen += bytes.len();
        if self.seen > MAX_ANSWER_BYTES {
            return Err(ProviderError::new(ErrorClass::Malformed, format!("sent more than {MAX_ANSWER_BYTES} bytes")));
        }
        if let Form::Unknown = self.form {
            let Some(start) = bytes.iter().position(|byte| !b" \t\r\n\xEF\xBB\xBF".contains(byte)) else {
                return Ok(Progress::Open);
            };
            bytes = &bytes[start..];
            self.form = match bytes[0] {
                b'{' => Form::Json(Vec::new()),
                b'<' => return Err(ProviderError::new(ErrorClass::Malformed, "answered with a web page")),
                _ => Form::Events(sse::Reader::default()),
            };
        }
        let mut progress = Progress::Open;
        match &mut self.form {
            Form::Unknown => {}
            Form::Json(body) => body.extend_from_slice(bytes),
            Form::Events(reader) => {
                let mut events = Vec::new();
                let read = reader.push(bytes, &mut events);
                for event in events {
                    progress = self.wire.event(&event.name, &event.data, out)?;
                    if progress == Progress::Done {
                        return Ok(progress);
                    }
                }
                read.map_err(|_| ProviderError::new(ErrorClass::Malformed, "sent an event that is too long"))?;
            }
        }
        Ok(progress)
    }

    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
        let last = match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => None,
            Form::Json(body) => Some((String::new(), String::from_utf8_lossy(&body).into_owned())),
            Form::Events(reader) => reader.finish().map(|event| (event.name, event.data)),
        };
        // Half an object at the end of the body is a cut, which the wire finds for itself, and not a malformed answer.
        if let Some((name, data)) = last.filter(|(_, data)| serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok())
        {
            self.wire.event(&name, &data, out)?;
        }
        self.wire.finish(out)
    }
}

/// An answer that comes over HTTP.
pub(crate) struct HttpAnswer<W> {
    body: Body<W>,
    host: String,
    key: Option<String>,
    /// Absent once the answer is over.
    response: Option<reqwest::Response>,
    stopped: bool,
    ready: VecDeque<ModelEvent>,
    failed: Option<ProviderError>,
}

impl<W: Wire> HttpAnswer<W> {
    pub(crate) fn new(line: &Line, response: reqwest::Response, wire: W) -> Self {
        Self {
            body: Body::new(wire),
            host: line.host(),
            key: line.endpoint.key.clone(),
            response: Some(response),
            stopped: false,
            ready: VecDeque::new(),
            failed: None,
        }
    }

    /// Waits for the next bytes and reads them. Between two awaits nothing is held that a dropped future would lose.
    async fn pull(&mut self) -> Result<(), ProviderError> {
        let Some(response) = &mut self.response else { return Ok(()) };
        let limit = if self.stopped { AFTER_STOP_LIMIT } else { IDLE_LIMIT };
        let progress = match timeout(limit, response.chunk()).await {
            Ok(Ok(Some(bytes))) => self.body.push(&bytes, &mut self.ready)?,
            Ok(Ok(None)) => Progress::Done,
            // With a stop reason the answer is whole, however its connection ends.
            _ if self.stopped => Progress::Done,
            Ok(Err(_)) => {
                return Err(ProviderError::new(ErrorClass::Cut, "broke the connection in the middle of the answer"));
            }
            Err(_) => return Err(ProviderError::new(ErrorClass::Timeout, silence())),
        };
        self.stopped |= progress == Progress::Stopped;
        if progress == Progress::Done {
            let rest = self.response.take();
            self.body.finish(&mut self.ready)?;
            if let Some(mut rest) = rest {
                let drain = async { while let Ok(Some(_)) = rest.chunk().await {} };
                let _ = timeout(DRAIN_LIMIT, drain).await;
            }
        }
        Ok(())
    }
}

impl<W: Wire> Answer for HttpAnswer<W> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ModelEvent>, ProviderError>> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.ready.pop_front() {
                    return Ok(Some(event));
                }
                if let Some(error) = self.failed.take() {
                    return Err(error.at(&self.host, self.key.as_deref()));
                }
                if self.response.is_none() {
                    return Ok(None);
                }
                if let Err(error) = self.pull().await {
                    self.response = None;
                    self.failed = Some(error);
                }
            }
        })
    }
}

/// Reads a recorded answer and gives the parse that `tools/recordings.py` compares: text, thinking, calls, stop, usage and the
/// class of an error. A call whose arguments are no JSON has `null` for them.
pub fn parse_recording(api: &str, status: u16, bytes: &[u8]) -> Value {
    let mut out = VecDeque::new();
    let result = match api {
        _ if !(200..300).contains(&status) => Err(ProviderError::from_body(Some(status), bytes)),
        "openai-chat" => read_whole(chat::Chat::default(), bytes, &mut out),
        _ => Err(ProviderError::new(ErrorClass::InvalidRequest, format!("no reader for the api {api}"))),
    };
    neutral(out, result)
}

fn read_whole(wire: impl Wire, bytes: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
    let mut body = Body::new(wire);
    body.push(bytes, out)?;
    body.finish(out)
}

fn neutral(events: impl IntoIterator<Item = ModelEvent>, result: Result<(), ProviderError>) -> Value {
    let (mut text, mut thinking, mut refusal, mut stop) = (String::new(), String::new(), String::new(), "error");
    let (mut calls, mut usage) = (Vec::new(), json!({}));
    for event in events {
        match event {
            ModelEvent::Text(more) => text.push_str(&more),
            ModelEvent::Thinking(more) => thinking.push_str(&more),
            ModelEvent::Refusal(more) => refusal.push_str(&more),
            ModelEvent::Call { call, .. } => {
                let arguments = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
                calls.push(json!({ "id": call.id, "name": call.name, "arguments": arguments }));
            }
            ModelEvent::Usage(Usage { input, output, cache_read, cache_write, reasoning }) => {
                usage = json!({ "input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write, "reasoning": reasoning });
            }
            ModelEvent::End(reason) => stop = reason.as_str(),
            ModelEvent::Fidelity(_) | ModelEvent::CallStart { .. } | ModelEvent::CallArguments { .. } => {}
        }
    }
    let mut parse = json!({ "text": text, "thinking": thinking, "tool_calls": calls, "stop": stop, "usage": usage });
    if !refusal.is_empty() {
        parse["refusal"] = refusal.into();
    }
    if let Err(error) = result {
        parse["stop"] = if error.class == ErrorClass::Cut { "cut" } else { "error" }.into();
        parse["error_class"] = error.class.as_str().into();
        parse["error"] = error.message.into();
    }
    parse
}
