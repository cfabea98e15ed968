//! What goes wrong at a provider, in classes that the loop can act on.
//!
//! Providers agree neither on status codes nor on the shape of an error body, so the class comes from the status, the body's codes
//! and, last, its words. A message is a sentence for a person, with the server's own words in it and the host before it; the key
//! never is.

use std::{error::Error as _, io};

use serde_json::Value;

/// How much of a server's words is passed on; characters. The reason stands at the beginning, and some bodies repeat the request.
const MAX_WORDS: usize = 600;

/// The shortest key that is kept out of messages; bytes. Real ones have twenty and more.
const SHORTEST_KEY: usize = 8;

/// What kind of failure it is, which says what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The key is missing, wrong or may not do this.
    Auth,
    /// Too many requests or tokens for now.
    RateLimit,
    /// The account has nothing left.
    Quota,
    /// The provider has no room for now.
    Overloaded,
    /// The provider failed.
    Server,
    /// The conversation is longer than the model can read: compact it, then try again.
    ContextOverflow,
    /// A tool's schema is not in the dialect that the provider takes.
    Schema,
    /// The provider does not accept the request as it stands.
    InvalidRequest,
    /// No such model, or nothing at this address.
    NotFound,
    /// The provider refused the call that its model wrote.
    ToolUseFailed,
    /// The host cannot be reached.
    Network,
    /// Nothing came in time.
    Timeout,
    /// The answer ended before its stop reason.
    Cut,
    /// The answer cannot be read.
    Malformed,
}

impl ErrorClass {
    /// The word in traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::RateLimit => "rate_limit",
            Self::Quota => "quota",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::ContextOverflow => "context_overflow",
            Self::Schema => "schema",
            Self::InvalidRequest => "invalid_request",
            Self::NotFound => "not_found",
            Self::ToolUseFailed => "tool_use_failed",
            Self::Network => "network",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
            Self::Malformed => "malformed",
        }
    }
}

/// A failed request or a failed answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What kind of failure it is.
    pub class: ErrorClass,
    /// The HTTP status, or the one that an error inside a stream names.
    pub status: Option<u16>,
    /// What happened and where, in one sentence.
    pub message: String,
    /// How long the provider asks to be left alone; milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The provider says that trying again is of no use (`x-should-retry: false`).
    pub hopeless: bool,
}

impl ProviderError {
    /// A failure whose message goes on from the host's name: `answered …`, `sent …`.
    pub(crate) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, status: None, message: message.into(), retry_after_ms: None, hopeless: false }
    }

    /// The failure that an error body tells of; `status` is absent for one inside a stream.
    pub(crate) fn from_body(status: Option<u16>, body: &[u8]) -> Self {
        let value = serde_json::from_slice(body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body);
            // A web page is a gateway's, and its markup tells a person nothing.
            if text.trim_start().starts_with('<') { Value::Null } else { Value::String(text.trim().to_owned()) }
        });
        let report = Report::read(&value);
        let status = status.or(report.status);
        let what = match (status, report.words.as_str()) {
            (Some(status), "") => format!("answered {status} without saying why"),
            (Some(status), words) => format!("answered {status}: {words}"),
            (None, "") => "broke off with an error and did not say why".to_owned(),
            (None, words) => format!("broke off with an error: {words}"),
        };
        let mut error = Self::new(classify(status, &report), what);
        error.status = status;
        error.retry_after_ms = report.retry_after_ms;
        error
    }

    /// A request that never reached its host, and why.
    pub(crate) fn unreachable(error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::new(ErrorClass::Timeout, "did not take the connection in time");
        }
        let (mut reason, mut refused, mut unnamed) = (String::new(), false, false);
        let mut source = error.source();
        // Wrappers say "client error (Connect)" and the like; the deepest cause says what it was.
        while let Some(cause) = source {
            reason = cause.to_string();
            unnamed |= reason.starts_with("dns error");
            refused |= cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            source = cause.source();
        }
        if refused {
            reason = "connection refused, nothing listens there".to_owned();
        } else if unnamed {
            reason.insert_str(0, "the name does not resolve: ");
        } else if ["certificate", "handshake", "corrupt message", "fatal alert"]
            .iter()
            .any(|word| reason.contains(word))
        {
            reason.insert_str(0, "TLS failed: ");
        }
        Self::new(ErrorClass::Network, format!("cannot be reached: {}", plain(&reason)))
    }

    /// Puts the host before the message and takes the key out of it, since some servers repeat what they were sent. What is too
    /// short for a secret (local servers take any word for a key) would only tear holes into the message.
    pub(crate) fn at(mut self, host: &str, key: Option<&str>) -> Self {
        if let Some(key) = key.map(str::trim).filter(|key| key.len() >= SHORTEST_KEY) {
            self.message = self.message.replace(key, "[key]");
        }
        self.message.insert_str(0, &format!("{host} "));
        self
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        use ErrorClass::{Cut, Malformed, Network, Overloaded, RateLimit, Server, Timeout, ToolUseFailed};
        !self.hopeless
            && matches!(
                self.class,
                RateLimit | Overloaded | Server | ToolUseFailed | Network | Timeout | Cut | Malformed
            )
    }

    /// The next step for a person. Which variable holds the key is the caller's to say.
    pub fn hint(&self) -> &'static str {
        match self.class {
            ErrorClass::Auth => "check that the key is set, belongs to this provider and may use this model",
            ErrorClass::RateLimit => "wait, or use a model or an account with a higher limit",
            ErrorClass::Quota => "add credit at the provider, or use another provider",
            ErrorClass::Overloaded | ErrorClass::Server => "try again later; the fault is the provider's",
            ErrorClass::ContextOverflow => "compact the conversation, or use a model with a larger context window",
            ErrorClass::Schema => {
                "the provider does not take a tool's schema; leave that tool out or simplify its parameters"
            }
            ErrorClass::InvalidRequest => "check the model's settings: its api, its base_url and what it supports",
            ErrorClass::NotFound => "check the model's id and the base_url, which usually ends in /v1",
            ErrorClass::ToolUseFailed => "try again; the model wrote a call that the provider refused",
            ErrorClass::Network => "check the base_url, the network and the proxy",
            ErrorClass::Timeout | ErrorClass::Cut => {
                "try again; if it lasts, check the network and the provider's status"
            }
            ErrorClass::Malformed => "check that the base_url speaks the api that the model is configured with",
        }
    }
}

/// What an error body says, whatever its shape.
#[derive(Default)]
struct Report {
    /// The message, for people.
    words: String,
    /// Message and codes in lower case, for matching.
    text: String,
    /// The codes alone.
    codes: String,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
}

impl Report {
    /// The known shapes: `{error:{message,type,code}}`, `{error:"text"}`, `{detail:…}`, flat `{code,message,type}`, plain text.
    fn read(body: &Value) -> Self {
        let inner = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let words = [inner.get("message"), Some(inner), inner.get("detail"), body.get("message"), body.get("detail")]
            .into_iter()
            .flatten()
            .find_map(|value| match value {
                Value::String(text) if !text.is_empty() => Some(text.clone()),
                Value::Array(list) => Some(Value::from(list.clone()).to_string()),
                _ => None,
            })
            .unwrap_or_default();
        let mut codes = String::new();
        for holder in [inner, body] {
            for key in ["code", "type", "status", "reason"] {
                if let Some(code) = holder.get(key).and_then(Value::as_str) {
                    codes.push_str(&code.to_lowercase());
                    codes.push(' ');
                }
            }
        }
        let (mut retry_after_ms, details) = (None, inner.get("details").and_then(Value::as_array));
        for detail in details.into_iter().flatten() {
            codes.push_str(&detail["reason"].as_str().unwrap_or_default().to_lowercase());
            retry_after_ms = retry_after_ms.or_else(|| detail["retryDelay"].as_str().and_then(duration_ms));
        }
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
        let status = ["status_code", "code", "status", "raw_status_code"]
            .iter()
            .find_map(|key| inner.get(key).and_then(number).filter(|code| (400..600).contains(code)))
            .and_then(|code| u16::try_from(code).ok());
        // A router passes its upstream's own body on as text.
        let upstream = inner.pointer("/metadata/raw").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{words} {codes} {upstream}").to_lowercase();
        let retry_after_ms = retry_after_ms.or_else(|| {
            let at = ["retry in ", "try again in "].iter().find_map(|lead| Some(text.find(lead)? + lead.len()))?;
            duration_ms(text[at..].split_whitespace().next()?.trim_end_matches(['.', ',']))
        });
        let words = match upstream {
            "" => plain(&words),
            _ => plain(&format!("{words} ({upstream})")),
        };
        Self { words, text, codes, status, retry_after_ms }
    }
}

/// The wordings of a conversation that is too long, as they were recorded.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "context length",
    "context window",
    "context size",
    "exceed_context_size",
    "prompt is too long",
    "prompt too long",
    "input token count",
    "too_many_prompt_tokens",
    "request_too_large",
];
const AUTH: &[&str] = &[
    "api_key_invalid",
    "invalid_api_key",
    "authentication_error",
    "incorrect api key",
    "api key not valid",
    "invalid api key",
    "permission_error",
    "permission_denied",
    "unauthenticated",
];
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "billing_hard_limit",
    "credit balance",
    "insufficient balance",
    "insufficient credit",
    "billing_error",
];
const OVERLOADED: &[&str] = &["overloaded", "insufficient_system_resource", "unavailable"];
const NOT_FOUND: &[&str] = &["not_found", "invalid_model", "model not found", "unknown model", "invalid model"];
const SCHEMA: &[&str] = &[
    "invalid schema",
    "invalid_function_parameters",
    "input_schema",
    "strict tools",
    "tool schemas",
    ".custom: for '",
    "failed to parse grammar",
    "json schema conversion failed",
];

/// The order matters: a recorded body may fit several, and the more exact one comes first.
fn classify(status: Option<u16>, report: &Report) -> ErrorClass {
    let says = |words: &[&str]| words.iter().any(|word| report.text.contains(word));
    let coded = |words: &[&str]| words.iter().any(|word| report.codes.contains(word));
    match status {
        _ if coded(&["tool_use_failed"]) => ErrorClass::ToolUseFailed,
        Some(401 | 403) => ErrorClass::Auth,
        Some(402) => ErrorClass::Quota,
        // Gemini words its rate limit as OpenAI words an empty account, so only codes tell them apart.
        Some(429) if coded(QUOTA) => ErrorClass::Quota,
        Some(429) if coded(OVERLOADED) => ErrorClass::Overloaded,
        Some(429) => ErrorClass::RateLimit,
        Some(413) => ErrorClass::ContextOverflow,
        _ if says(OVERFLOW) => ErrorClass::ContextOverflow,
        _ if says(AUTH) => ErrorClass::Auth,
        _ if says(QUOTA) => ErrorClass::Quota,
        _ if coded(&["rate_limit", "resource_exhausted"]) => ErrorClass::RateLimit,
        Some(409 | 503 | 529) => ErrorClass::Overloaded,
        _ if coded(OVERLOADED) => ErrorClass::Overloaded,
        Some(404) => ErrorClass::NotFound,
        _ if says(SCHEMA) => ErrorClass::Schema,
        // llama.cpp answers 500 for what no second try can mend.
        Some(500) if says(&["--jinja"]) => ErrorClass::InvalidRequest,
        // What timed out at the provider is its fault; a timeout is what we measured.
        Some(408 | 500..) => ErrorClass::Server,
        _ if says(NOT_FOUND) => ErrorClass::NotFound,
        Some(_) => ErrorClass::InvalidRequest,
        None if coded(&["invalid_request"]) => ErrorClass::InvalidRequest,
        None => ErrorClass::Server,
    }
}

/// The wait that response headers ask for. `retry-after` may be a date, which counts from the answer's own `date`: the server's
/// clock need not be ours.
pub(crate) fn retry_after_ms<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<u64> {
    let exact = header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok()).filter(|ms| *ms > 0.0);
    if let Some(ms) = exact {
        return Some(ms as u64);
    }
    let Some(after) = header("retry-after") else {
        // Who has spent a limit, and of which kind, can begin again when that kind is filled up.
        let spent = |kind: &&str| header(&format!("x-ratelimit-remaining-{kind}")) == Some("0");
        let reset = |kind: &str| duration_ms(header(&format!("x-ratelimit-reset-{kind}"))?);
        return ["requests", "tokens"].into_iter().filter(spent).filter_map(reset).max();
    };
    duration_ms(&format!("{}s", after.trim())).or_else(|| {
        let wait = http_date(after)?.saturating_sub(http_date(header("date")?)?);
        u64::try_from(wait).ok().map(|seconds| seconds * 1000)
    })
}

/// `48s`, `1.5s`, `12ms`, `6m0s`.
fn duration_ms(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..unit_at].parse().ok()?;
        let unit_end = rest[unit_at..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit_at + at);
        total += number
            * match &rest[unit_at..unit_end] {
                "ms" => 1.0,
                "s" | "sec" | "second" | "seconds" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total as u64)
}

/// Seconds since 1970 of `Wed, 21 Oct 2015 07:28:00 GMT`.
fn http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = parts[..] else { return None };
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()?;
    let [day, year, hour, minute, second] = [day, year, hour, minute, second].map(|text| text.parse::<i64>().ok());
    // Years count from March, so that the leap day is a year's last.
    let (year, month) = if month < 2 { (year? - 1, month + 10) } else { (year?, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day? - 1 - 719_468;
    Some(((days * 24 + hour?) * 60 + minute?) * 60 + second?)
}

/// A server's words, fit for a terminal: one line, bounded.
fn plain(text: &str) -> String {
    let mut words: String = text
        .chars()
        .take(MAX_WORDS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .trim()
        .to_owned();
    if text.chars().nth(MAX_WORDS).is_some() {
        words.push('…');
    }
    words
}
