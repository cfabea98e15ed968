//! What a provider must get back with a block as it gave it: signatures, encrypted reasoning, ids, what its own tools did.
//!
//! A message keeps it as its `fidelity`, in an envelope that says which wire and which model it came from. It goes back to the same
//! model of the same provider only; for any other it is as if it were not there. The bytes are never parsed into numbers and back.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{Api, ModelId};

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    api: Cow<'a, str>,
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    native: &'a RawValue,
}

/// Whose blocks these are.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    api: Api,
    id: ModelId,
}

impl Origin {
    pub(super) fn new(api: Api, id: ModelId) -> Self {
        Self { api, id }
    }

    /// Puts what the provider gave into its envelope; nothing when it cannot be written.
    pub(super) fn wrap(&self, native: &(impl Serialize + ?Sized)) -> Option<Box<RawValue>> {
        let native = to_raw_value(native).ok()?;
        let (api, provider, model) = (self.api.as_str(), self.id.provider.as_str(), self.id.model.as_str());
        to_raw_value(&Envelope { api: api.into(), provider: provider.into(), model: model.into(), native: &native })
            .ok()
    }

    /// What is in an envelope, if it came from this model. Another program's `fidelity` has no envelope of ours and is not opened.
    pub(super) fn open<'a>(&self, fidelity: Option<&'a RawValue>) -> Option<&'a RawValue> {
        let envelope: Envelope<'a> = serde_json::from_str(fidelity?.get()).ok()?;
        let same = envelope.api == self.api.as_str()
            && envelope.provider == self.id.provider
            && family(&envelope.model) == family(&self.id.model);
        same.then_some(envelope.native)
    }
}

/// A model's name without what pins one of its versions: `-latest`, `-20250929`, `-2025-09-29`, `-2506`.
fn family(model: &str) -> &str {
    let model = model.strip_suffix("-latest").unwrap_or(model);
    let digits =
        |text: &str, lengths: &[usize]| lengths.contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    let Some((front, last)) = model.rsplit_once(['-', '@']) else { return model };
    if digits(last, &[4, 8]) {
        return front;
    }
    let dated = |(rest, month): (&'_ str, &str)| digits(month, &[2]) && digits(last, &[2]) && !rest.is_empty();
    match front.rsplit_once('-').filter(|parts| dated(*parts)).and_then(|(rest, _)| rest.rsplit_once('-')) {
        Some((family, year)) if digits(year, &[4]) => family,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(api: Api, provider: &str, model: &str) -> Origin {
        Origin::new(api, ModelId { provider: provider.into(), model: model.into() })
    }

    #[test]
    fn what_a_model_gave_goes_back_to_it_alone_and_byte_for_byte() {
        let native = RawValue::from_string(r#"{"n":1.0e2,"big":12345678901234567890123,"s":"\u00e9"}"#.into()).unwrap();
        let from = origin(Api::AnthropicMessages, "anthropic", "claude-sonnet-4-5-20250929");
        let kept = from.wrap(&native).unwrap();
        let opened = |to: Origin| to.open(Some(&kept)).map(|raw| raw.get().to_owned());
        for model in [
            "claude-sonnet-4-5-20250929",
            "claude-sonnet-4-5",
            "claude-sonnet-4-5-latest",
            "claude-sonnet-4-5-2025-09-29",
        ] {
            let to = origin(Api::AnthropicMessages, "anthropic", model);
            assert_eq!(opened(to).as_deref(), Some(native.get()), "{model}");
        }
        for to in [
            origin(Api::AnthropicMessages, "anthropic", "claude-opus-4-5"),
            origin(Api::AnthropicMessages, "elsewhere", "claude-sonnet-4-5"),
            origin(Api::OpenaiChat, "anthropic", "claude-sonnet-4-5"),
        ] {
            assert_eq!(opened(to.clone()), None, "{to:?}");
        }
        for foreign in [r#"{"signature":"x"}"#, "7", r#"[{"api":"anthropic-messages"}]"#] {
            let foreign = RawValue::from_string(foreign.into()).unwrap();
            assert!(from.open(Some(&foreign)).is_none(), "{foreign}");
        }
    }

    #[test]
    fn a_pinned_version_is_the_same_model() {
        for (model, want) in [
            ("gpt-4o-2024-08-06", "gpt-4o"),
            ("magistral-medium-2506", "magistral-medium"),
            ("claude-sonnet-4@20250514", "claude-sonnet-4"),
            ("claude-opus-4-5", "claude-opus-4-5"),
            ("qwen3", "qwen3"),
            ("gemini-2.5-flash-preview-05-20", "gemini-2.5-flash-preview-05-20"),
        ] {
            assert_eq!(family(model), want);
        }
    }
}
