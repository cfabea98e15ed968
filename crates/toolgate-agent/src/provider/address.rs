//! Where each wire's requests go, from the base address as users write it, and the headers that carry the key.

use reqwest::{
    Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use super::{Api, ErrorClass, ProviderError};

/// The version of Anthropic's wire that `messages.rs` speaks.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// OpenAI's own host; some members of a request are for it alone, since servers that only speak its wire refuse them.
pub(super) const OPENAI_HOST: &str = "api.openai.com";

/// Anthropic's own host, likewise.
pub(super) const ANTHROPIC_HOST: &str = "api.anthropic.com";

/// Where a model's answers come from.
pub(super) fn of_model(api: Api, base_url: &str, model: &str) -> Result<Url, ProviderError> {
    let (base, path) = match api {
        Api::OpenaiChat => (versioned(api, base_url)?, "/chat/completions".to_owned()),
        Api::OpenaiResponses => (versioned(api, base_url)?, "/responses".to_owned()),
        Api::AnthropicMessages => (versioned(api, base_url)?, "/messages".to_owned()),
        Api::GoogleGenerateContent => {
            // A name with a slash says itself what kind of model it is: `models/…`, `tunedModels/…`.
            let kind = if model.contains('/') { "" } else { "models/" };
            (versioned(api, base_url)?, format!("/{kind}{model}:streamGenerateContent"))
        }
    };
    let mut url = joined(base, &path);
    if api == Api::GoogleGenerateContent {
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    Ok(url)
}

/// Where a provider lists its models.
pub(super) fn of_list(api: Api, base_url: &str) -> Result<Url, ProviderError> {
    let mut url = joined(versioned(api, base_url)?, "/models");
    // One page holds them all: the longest pages that each takes.
    match api {
        Api::AnthropicMessages => drop(url.query_pairs_mut().append_pair("limit", "1000")),
        Api::GoogleGenerateContent => drop(url.query_pairs_mut().append_pair("pageSize", "1000")),
        Api::OpenaiChat | Api::OpenaiResponses => {}
    }
    Ok(url)
}

/// The headers of every request to this address.
pub(super) fn headers(api: Api, url: &Url, key: Option<&str>) -> Result<HeaderMap, ProviderError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (name, lead) = match api {
        Api::OpenaiChat | Api::OpenaiResponses => (AUTHORIZATION, "Bearer "),
        Api::AnthropicMessages => {
            headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
            (HeaderName::from_static("x-api-key"), "")
        }
        Api::GoogleGenerateContent => (HeaderName::from_static("x-goog-api-key"), ""),
    };
    let Some(key) = key.map(str::trim).filter(|key| !key.is_empty()) else { return Ok(headers) };
    let secret = |lead: &str| {
        let what = "cannot be sent its key, which holds a character that no header carries";
        let mut value =
            HeaderValue::from_str(&format!("{lead}{key}")).map_err(|_| ProviderError::new(ErrorClass::Auth, what))?;
        value.set_sensitive(true);
        Ok::<_, ProviderError>(value)
    };
    headers.insert(name, secret(lead)?);
    // Others that speak Anthropic's wire look for the key where everybody else has it.
    if api == Api::AnthropicMessages && url.host_str() != Some(ANTHROPIC_HOST) {
        headers.insert(AUTHORIZATION, secret("Bearer ")?);
    }
    Ok(headers)
}

/// The base with its version, which users leave out where the provider's own examples do.
fn versioned(api: Api, base_url: &str) -> Result<Url, ProviderError> {
    let url = Url::parse(base_url.trim())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| {
            ProviderError::new(ErrorClass::InvalidRequest, "base_url is not an http:// or https:// address")
        })?;
    let mut segments = url.path().split('/').filter(|segment| !segment.is_empty());
    let has_version = segments.clone().any(|segment| {
        let number = segment.strip_prefix('v').unwrap_or_default();
        number.starts_with(|c: char| c.is_ascii_digit())
    });
    let version = match api {
        Api::OpenaiChat | Api::OpenaiResponses if url.host_str() == Some(OPENAI_HOST) && segments.next().is_none() => {
            "/v1"
        }
        Api::OpenaiChat | Api::OpenaiResponses => "",
        Api::AnthropicMessages if !has_version => "/v1",
        Api::GoogleGenerateContent if !has_version => "/v1beta",
        Api::AnthropicMessages | Api::GoogleGenerateContent => "",
    };
    Ok(joined(url, version))
}

/// A path behind the base's own, unless the base ends with it already.
fn joined(mut url: Url, path: &str) -> Url {
    let base = url.path().trim_end_matches('/').to_owned();
    if !base.ends_with(path) {
        url.set_path(&format!("{base}{path}"));
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_that_users_write_leads_to_the_endpoint() {
        let (chat, responses) = (Api::OpenaiChat, Api::OpenaiResponses);
        let (messages, gemini) = (Api::AnthropicMessages, Api::GoogleGenerateContent);
        let cases = [
            (chat, "https://api.openai.com", "https://api.openai.com/v1/chat/completions"),
            (chat, "https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
            (chat, "http://localhost:8080", "http://localhost:8080/chat/completions"),
            (chat, "https://x.test/v1/chat/completions", "https://x.test/v1/chat/completions"),
            (chat, "https://x.test/deploy?api-version=1", "https://x.test/deploy/chat/completions?api-version=1"),
            (responses, "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/responses"),
            (messages, "https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            (messages, "https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
            (messages, "https://x.test/api/anthropic", "https://x.test/api/anthropic/v1/messages"),
            (messages, "https://x.test/v1/messages", "https://x.test/v1/messages"),
            (gemini, "https://g.test", "https://g.test/v1beta/models/m-1:streamGenerateContent?alt=sse"),
            (gemini, "https://g.test/v1beta/", "https://g.test/v1beta/models/m-1:streamGenerateContent?alt=sse"),
            (
                gemini,
                "https://v.test/v1/projects/p/publishers/google",
                "https://v.test/v1/projects/p/publishers/google/models/m-1:streamGenerateContent?alt=sse",
            ),
        ];
        for (api, base, want) in cases {
            assert_eq!(of_model(api, base, "m-1").map(String::from), Ok(want.to_owned()), "{base}");
        }
        assert_eq!(
            of_list(gemini, "https://g.test").map(String::from),
            Ok("https://g.test/v1beta/models?pageSize=1000".into())
        );
        assert_eq!(of_list(chat, "http://l.test/v1").map(String::from), Ok("http://l.test/v1/models".into()));
        assert_eq!(
            of_list(messages, "http://a.test").map(String::from),
            Ok("http://a.test/v1/models?limit=1000".into())
        );
    }
}
