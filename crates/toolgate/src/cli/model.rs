//! Which model a conversation is had with and how its runs go, as the command line says it.
#![allow(clippy::disallowed_methods)] // A script for the scripted model is read here.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum};
use toolgate_agent::{
    history::Rebuilt,
    provider::{self, ModelId, Provider, ThinkingLevel},
    scripted::{Scripted, Step},
};

use crate::{
    config::{self, Node, Settings},
    failure::Failure,
    models::{Asked, Chosen, choose},
    state::Kept,
    surroundings::Surroundings,
};

/// Which model, and how its runs go.
#[derive(Args, Default)]
pub(super) struct Model {
    /// The wire format that the model speaks [default: the one of its provider, openai-chat where --base-url says where it is].
    #[arg(long, value_enum)]
    api: Option<Api>,
    /// The model: its name at its provider, or PROVIDER/NAME.
    #[arg(long, value_name = "[PROVIDER/]ID")]
    model: Option<String>,
    /// Where the provider is; by default where the provider says, or $OPENAI_BASE_URL, $ANTHROPIC_BASE_URL.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The provider's name.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// How much the model thinks before it answers: off, low, medium, high, xhigh or max.
    #[arg(long, value_name = "LEVEL", value_parser = ThinkingLevel::ALL.map(ThinkingLevel::as_str))]
    thinking: Option<String>,
    /// Model requests of one run at most; 0 is no limit.
    #[arg(long, value_name = "N")]
    max_turns: Option<u32>,
    /// A file with the instructions of a new session, in place of the built-in ones.
    #[arg(long, value_name = "FILE")]
    system_prompt: Option<PathBuf>,
}

/// Wire formats.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Api {
    /// OpenAI Chat Completions, and whatever speaks it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// Gemini's generateContent.
    GoogleGenerateContent,
    /// Answers from a file: a JSON list of `{text, calls: [[tool, arguments]]}`. For trying things without a model.
    #[value(hide = true)]
    Script,
}

impl Api {
    /// The wire; none of the script, which has none.
    pub(super) fn wire(self) -> Option<provider::Api> {
        match self {
            Self::OpenaiChat => Some(provider::Api::OpenaiChat),
            Self::OpenaiResponses => Some(provider::Api::OpenaiResponses),
            Self::AnthropicMessages => Some(provider::Api::AnthropicMessages),
            Self::GoogleGenerateContent => Some(provider::Api::GoogleGenerateContent),
            Self::Script => None,
        }
    }
}

impl Model {
    /// The settings that these flags set.
    pub(super) fn flags(&self) -> Result<Vec<(&'static str, &'static str, Node)>, Failure> {
        let mut flags = Vec::new();
        flags.extend(self.thinking.as_deref().map(|level| ("thinking", "--thinking", Node::text(level))));
        flags.extend(self.max_turns.map(|turns| ("max_turns", "--max-turns", Node::number(turns.into()))));
        if let Some(path) = &self.system_prompt {
            let text = config::text_of(path)?.ok_or_else(|| {
                Failure::usage(format!("--system-prompt: there is no file {}", path.display()))
                    .hint("give the path of a text file, or leave the flag out")
            })?;
            flags.push(("system_prompt", "--system-prompt", Node::text(&text)));
        }
        Ok(flags)
    }

    /// What a session keeps of these flags: the next run of it asks the same model in the same place.
    pub(super) fn kept(&self, before: &Kept) -> Kept {
        // Another model is elsewhere unless it is said where.
        let other = self.model.is_some() || self.provider.is_some();
        let api = self.api.and_then(Api::wire).map(|api| api.as_str().to_owned());
        Kept {
            base_url: self.base_url.clone().or_else(|| before.base_url.clone().filter(|_| !other)),
            api: api.or_else(|| before.api.clone().filter(|_| !other)),
            ..before.clone()
        }
    }

    /// The model that was asked for, else the one that the session was had with, else the one of the settings.
    pub(super) fn choose(
        &self,
        rebuilt: Option<&Rebuilt>,
        kept: &Kept,
        settings: &Settings,
        surroundings: &Surroundings,
    ) -> Result<Chosen, Failure> {
        let known = rebuilt.map(|rebuilt| &rebuilt.meta);
        if self.api == Some(Api::Script) {
            let file = self.model.clone().or_else(|| known.map(|meta| meta.model_id.clone()));
            return Ok(Chosen::plain(script(&file.unwrap_or_default())?));
        }
        let kept_api = provider::Api::ALL.into_iter().find(|api| kept.api.as_deref() == Some(api.as_str()));
        let asked = Asked {
            api: self.api.and_then(Api::wire).or(kept_api),
            model: self.model.clone(),
            base_url: kept.base_url.clone(),
            provider: self.provider.clone(),
            before: known.map(|meta| ModelId { provider: meta.provider.clone(), model: meta.model_id.clone() }),
        };
        choose(&asked, settings, surroundings)
    }
}

/// A scripted model from a file; the model's name is the file's.
fn script(file: &str) -> Result<Arc<dyn Provider>, Failure> {
    let bad = |error: String| Failure::configuration(format!("the script {file} cannot be used: {error}"));
    let text = std::fs::read_to_string(PathBuf::from(file)).map_err(|error| bad(error.to_string()))?;
    let items: Vec<ScriptItem> = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let (mut steps, mut parts) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            ScriptItem::Part { told, steps } => parts.push((told, steps)),
            ScriptItem::Step(step) => steps.push(step.into()),
        }
    }
    let of_parts = |script: Scripted, (told, steps): (String, Vec<ScriptStep>)| {
        script.with_part(&told, steps.into_iter().map(Step::from).collect())
    };
    Ok(Arc::new(parts.into_iter().fold(Scripted::new(steps), of_parts)))
}

/// One answer, or all of them in a session that begins with a prompt, such as a subagent's.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum ScriptItem {
    Part { told: String, steps: Vec<ScriptStep> },
    Step(ScriptStep),
}

#[derive(serde::Deserialize)]
struct ScriptStep {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<(String, serde_json::Value)>,
}

impl From<ScriptStep> for Step {
    fn from(step: ScriptStep) -> Self {
        let calls = step.calls.into_iter().map(|(tool, arguments)| (tool, arguments.to_string()));
        Self { text: step.text, calls: calls.collect() }
    }
}
