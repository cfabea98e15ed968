//! Which model a conversation is had with, as the command line says it.
#![allow(clippy::disallowed_methods)] // A script for the scripted model is read here.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum};
use toolgate_agent::{
    history::Rebuilt,
    provider::{self, Endpoint, ModelId, ModelSetup, Provider},
    scripted::{Scripted, Step},
};

use crate::{failure::Failure, state::Kept, surroundings::Surroundings};

/// Where OpenAI's own models are.
const OPENAI: &str = "https://api.openai.com/v1";

/// Which model.
#[derive(Args)]
pub(super) struct Model {
    /// The wire format that the model speaks.
    #[arg(long, value_enum, default_value = "openai-chat")]
    api: Api,
    /// The model's name at its provider.
    #[arg(long)]
    model: Option<String>,
    /// Where the provider is; by default $OPENAI_BASE_URL, else OpenAI itself.
    #[arg(long, value_name = "URL")]
    pub(super) base_url: Option<String>,
    /// The provider's name, for traces.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

/// Wire formats.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Api {
    /// OpenAI Chat Completions, and whatever speaks it.
    OpenaiChat,
    /// Answers from a file: a JSON list of `{text, calls: [[tool, arguments]]}`. For trying things without a model.
    #[value(hide = true)]
    Script,
}

impl Model {
    /// The model that was asked for, else the one that the session was had with.
    pub(super) fn provider(
        &self,
        rebuilt: Option<&Rebuilt>,
        kept: &Kept,
        surroundings: &Surroundings,
    ) -> Result<Arc<dyn Provider>, Failure> {
        let known = rebuilt.map(|rebuilt| &rebuilt.meta);
        let model = self.model.clone().or_else(|| known.map(|meta| meta.model_id.clone())).ok_or_else(|| {
            Failure::configuration("no model is chosen")
                .hint("--model NAME with OPENAI_API_KEY, or --model NAME --base-url URL for a server of your own; `toolgate demo` needs neither")
        })?;
        if self.api == Api::Script {
            return script(&model);
        }
        let provider = self
            .provider
            .clone()
            .or_else(|| known.map(|meta| meta.provider.clone()))
            .unwrap_or_else(|| "openai".into());
        let base_url = kept.base_url.clone().or_else(|| surroundings.get("OPENAI_BASE_URL"));
        let key = surroundings.get("OPENAI_API_KEY");
        if key.is_none() && base_url.is_none() {
            return Err(Failure::configuration("there is no key for OpenAI")
                .hint("set OPENAI_API_KEY, or --base-url URL for a server that needs none"));
        }
        let base_url = base_url.unwrap_or_else(|| OPENAI.into());
        let proxy = proxy_for(&base_url, surroundings);
        let endpoint = Endpoint { base_url, key, proxy };
        let setup =
            ModelSetup { api: provider::Api::OpenaiChat, id: ModelId { provider, model }, endpoint, vision: true };
        provider::connect(setup).map_err(|error| {
            Failure::configuration(error.to_string())
                .hint("--base-url takes an address such as http://127.0.0.1:8080/v1")
        })
    }
}

/// The proxy that the user's environment names for this address.
fn proxy_for(base_url: &str, surroundings: &Surroundings) -> Option<String> {
    let host = base_url.split("://").nth(1)?.split(['/', ':']).next()?;
    let either = |upper: &str| surroundings.get(upper).or_else(|| surroundings.get(&upper.to_lowercase()));
    let direct = either("NO_PROXY").unwrap_or_default();
    let exempt = direct
        .split(',')
        .map(|name| name.trim().trim_start_matches('.'))
        .any(|name| name == "*" || (!name.is_empty() && (host == name || host.ends_with(&format!(".{name}")))));
    let local = host == "localhost" || host.starts_with("127.");
    let proxy = if base_url.starts_with("https:") { either("HTTPS_PROXY") } else { either("HTTP_PROXY") };
    proxy.or_else(|| either("ALL_PROXY")).filter(|_| !exempt && !local)
}

/// A scripted model from a file; the model's name is the file's.
fn script(file: &str) -> Result<Arc<dyn Provider>, Failure> {
    let bad = |error: String| Failure::configuration(format!("the script {file} cannot be used: {error}"));
    let text = std::fs::read_to_string(PathBuf::from(file)).map_err(|error| bad(error.to_string()))?;
    let steps: Vec<ScriptStep> = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let steps = steps.into_iter().map(|step| Step {
        text: step.text,
        calls: step.calls.into_iter().map(|(tool, arguments)| (tool, arguments.to_string())).collect(),
    });
    Ok(Arc::new(Scripted::new(steps.collect())))
}

#[derive(serde::Deserialize)]
struct ScriptStep {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<(String, serde_json::Value)>,
}
