//! The HTTP side of every wire: [`Line`] posts a request, [`Body`] tells an event stream from a plain JSON answer, [`HttpAnswer`] pulls
//! the bytes and hands out events. A wire is what implements [`Wire`]: it reads one event at a time.

use std::{collections::VecDeque, fmt, time::Duration};

use reqwest::{Client, Url, header};
use tokio::{sync::OnceCell, time::timeout};
use toolgate_runtime::BoxFuture;

use super::{Answer, Api, ErrorClass, ModelEvent, ProviderError, address, error, sse};

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
    /// The line to a model.
    ///
    /// # Errors
    /// An address that is none, a key that no header can carry.
    pub(crate) fn new(api: Api, model: &str, endpoint: Endpoint) -> Result<Self, ProviderError> {
        let url = address::of_model(api, &endpoint.base_url, model)?;
        Self::to(url, api, endpoint)
    }

    /// The line to a provider's list of models.
    ///
    /// # Errors
    /// As [`Line::new`].
    pub(crate) fn to_list(api: Api, endpoint: Endpoint) -> Result<Self, ProviderError> {
        let url = address::of_list(api, &endpoint.base_url)?;
        Self::to(url, api, endpoint)
    }

    fn to(url: Url, api: Api, endpoint: Endpoint) -> Result<Self, ProviderError> {
        let headers = address::headers(api, &url, endpoint.key.as_deref());
        let headers = headers.map_err(|error| error.at(&host_of(&url), None))?;
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
        self.send(client.post(self.url.clone()).body(body), IDLE_LIMIT).await
    }

    /// Gets the whole of a good answer.
    pub(crate) async fn get(&self, within: Duration) -> Result<Vec<u8>, ProviderError> {
        let client = self.client.get_or_try_init(|| async { self.build() }).await?;
        let whole = async {
            let (mut response, mut body) = (self.send(client.get(self.url.clone()), within).await?, Vec::new());
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() > MAX_ANSWER_BYTES {
                    break;
                }
            }
            Ok(body)
        };
        timeout(within, whole)
            .await
            .map_err(|_| self.place(ProviderError::new(ErrorClass::Timeout, silence(within))))?
    }

    /// A failure of what this host answered.
    pub(crate) fn malformed(&self, what: &str) -> ProviderError {
        self.place(ProviderError::new(ErrorClass::Malformed, what))
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        within: Duration,
    ) -> Result<reqwest::Response, ProviderError> {
        let request = request.headers(self.headers.clone());
        let silent = || self.place(ProviderError::new(ErrorClass::Timeout, silence(within)));
        let response = timeout(within, request.send()).await.map_err(|_| silent())?.map_err(|error| {
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

pub(super) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn silence(limit: Duration) -> String {
    format!("sent nothing for {} s", limit.as_secs_f32())
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

    pub(crate) fn push(&mut self, mut bytes: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError> {
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
                b'{' | b'[' => Form::Json(Vec::new()),
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

    pub(crate) fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
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
            Err(_) => return Err(ProviderError::new(ErrorClass::Timeout, silence(limit))),
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
