//! What can be set, as the program uses it. The fields have the names of the keys; [`super::keys`] says what each of them means.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use toolgate_agent::{
    provider::{Api, ModelId, ThinkingLevel},
    session::{CompactionMode, CompactionOptions, RunOptions},
};
use toolgate_core::{
    approval::ApprovalMode,
    policy::{Policy, Rule, SandboxMode},
};
use toolgate_runtime::{environment::MAX_PARALLEL, process::command_env::is_secret_name};

use super::{
    external::External,
    hooks::Configured,
    layers::Record,
    rules::RuleTest,
    selection::{Declared, Selection},
    wrong::instead,
};
use crate::{failure::Failure, surroundings::Surroundings};

/// Everything that is set, and where it came from.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) models: Vec<Model>,
    pub(crate) default_model: Option<ModelRef>,
    pub(crate) vision_model: Option<ModelRef>,
    pub(crate) agents: BTreeMap<String, Agent>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) thinking: Option<ThinkingLevel>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) compaction: CompactionOptions,
    pub(crate) tools: Tools,
    pub(crate) permissions: Permissions,
    pub(crate) sandbox: Sandbox,
    pub(crate) network: Network,
    pub(crate) env: Env,
    pub(crate) login_shell: LoginUse,
    pub(crate) trust: Trust,
    /// Programs beside the gate, of all layers.
    pub(crate) hooks: Vec<Configured>,
    /// Providers' keys from the file of keys.
    pub(crate) keys: BTreeMap<String, String>,
    /// What people should know about how this came to be; one sentence each.
    pub(crate) notes: Vec<String>,
    /// What was set where.
    pub(crate) record: Record,
}

/// A model that can be chosen.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    pub(crate) provider: String,
    pub(crate) id: String,
    #[serde(default, deserialize_with = "api")]
    pub(crate) api: Option<Api>,
    pub(crate) base_url: Option<String>,
    pub(crate) api_key_env: Option<String>,
    pub(crate) vision: Option<bool>,
    pub(crate) context_window: Option<u64>,
    pub(crate) max_tokens: Option<u64>,
    #[serde(default, deserialize_with = "thinking")]
    pub(crate) thinking: Option<ThinkingLevel>,
}

/// A model's name: the pair, since the same name at another provider is another model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelRef(pub(crate) ModelId);

/// Another agent that a subagent can be.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    pub(crate) system_prompt: Option<String>,
    pub(crate) tools: Option<Selection>,
    pub(crate) model: Option<ModelRef>,
}

#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) builtin: Selection,
    /// Names and patterns of tools that are left out.
    pub(crate) exclude: Vec<String>,
    /// Programs of the user's own, beside the built-in ones.
    pub(crate) external: Vec<External>,
    /// Names of such tools in any file, so that rules can speak of them wherever they are declared.
    pub(crate) own_names: Vec<String>,
    pub(crate) parallel: bool,
    pub(crate) max_parallel: usize,
    /// Servers by name, as they were written.
    pub(crate) servers: BTreeMap<String, Value>,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            builtin: Selection::default(),
            exclude: Vec::new(),
            external: Vec::new(),
            own_names: Vec::new(),
            parallel: true,
            max_parallel: MAX_PARALLEL,
            servers: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Permissions {
    pub(crate) mode: Option<ApprovalMode>,
    pub(crate) policy: PolicyKind,
    pub(crate) rules: Vec<Rule>,
    pub(crate) tests: Vec<RuleTest>,
}

/// Which policy judges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PolicyKind {
    #[default]
    Rules,
    TokenAllowlist,
}

#[derive(Debug, Default)]
pub(crate) struct Sandbox {
    pub(crate) mode: Option<SandboxMode>,
    pub(crate) required: bool,
    pub(crate) writable: Vec<PathBuf>,
}

/// What commands may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nothing was said.
    #[default]
    Unset,
    On,
    Off,
    Hosts(Vec<String>),
}

/// Commands' variables.
#[derive(Debug, Default)]
pub(crate) struct Env {
    pub(crate) pass: Vec<String>,
    pub(crate) set: BTreeMap<String, String>,
}

/// How commands get the variables of the user's login shell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoginUse {
    #[default]
    Once,
    PerCommand,
    Off,
}

/// Whether a project's own settings count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trust {
    Allow,
    #[default]
    Ask,
    Deny,
}

impl Settings {
    /// The tools of the user's own that can be made.
    pub(crate) fn own_tools(&self, surroundings: &Surroundings) -> Vec<Declared> {
        self.tools.external.iter().filter_map(|external| external.tool(surroundings).ok()).collect()
    }

    /// The rules of all layers.
    pub(crate) fn policy(&self) -> Policy {
        Policy { rules: self.permissions.rules.clone() }
    }

    /// The mode of a run: what a flag or the administrator says, else what the session had, else what is configured.
    pub(crate) fn mode(&self, kept: Option<ApprovalMode>) -> ApprovalMode {
        let kept = kept.filter(|_| !self.record.is_for_now("permissions.mode"));
        kept.or(self.permissions.mode).unwrap_or(ApprovalMode::AllowAll)
    }

    /// How runs go with a model that says this of itself.
    pub(crate) fn run_options(
        &self,
        context_window: Option<u64>,
        max_tokens: Option<u64>,
        thinking: Option<ThinkingLevel>,
    ) -> RunOptions {
        RunOptions {
            max_turns: self.max_turns,
            max_tokens: self.max_tokens.or(max_tokens),
            thinking: self.thinking.or(thinking),
            context_window,
            compaction: self.compaction.clone(),
        }
    }

    /// Names of variables that hold models' keys, whatever they look like.
    pub(crate) fn key_variables(&self) -> Vec<String> {
        self.models.iter().filter_map(|model| model.api_key_env.clone()).collect()
    }

    /// Values that must not reach a trace: secrets of the environment, models' keys, and what is set under a secret's name.
    pub(crate) fn secrets(&self, surroundings: &Surroundings) -> Vec<String> {
        let mut secrets = surroundings.secrets();
        secrets.extend(self.key_variables().iter().filter_map(|name| surroundings.get(name)));
        secrets.extend(self.keys.values().cloned());
        secrets.extend(self.env.set.iter().filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value.clone()));
        secrets
    }

    /// Refuses what is asked for and not there. A limit that is silently left out is worse than none.
    pub(crate) fn refuse_what_is_not_built(&self) -> Result<(), Failure> {
        let refused = [
            (
                matches!(self.sandbox.mode, Some(SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite)),
                "sandbox.mode",
                "there is no sandbox yet",
                "`off` is the one mode that can be held",
            ),
            (
                self.sandbox.required,
                "sandbox.required",
                "there is no sandbox yet",
                "without it, commands have the user's own rights",
            ),
            (
                matches!(self.network, Network::Off | Network::Hosts(_)),
                "network",
                "there is no sandbox yet that could hold the network back",
                "`on` is the one word that can be held",
            ),
            (
                self.permissions.policy == PolicyKind::TokenAllowlist,
                "permissions.policy",
                "the policy token-allowlist is not built yet",
                "leave the key out, or write `rules`",
            ),
        ];
        match refused.into_iter().find(|(wanted, ..)| *wanted) {
            Some((_, key, why, hint)) => Err(self.record.failure(key, why).hint(hint)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for ModelRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for ModelRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Pair {
            provider: String,
            #[serde(alias = "model_id")]
            id: String,
        }
        // Reads both forms, and says which half of a pair is missing.
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = ModelRef;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a model as provider/id")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ModelRef, E> {
                match text.split_once('/').filter(|(provider, id)| !provider.is_empty() && !id.is_empty()) {
                    Some((provider, id)) => Ok(ModelRef(ModelId { provider: provider.into(), model: id.into() })),
                    None => Err(E::custom(format!("`{text}` is half a pair; a model is written provider/id"))),
                }
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<ModelRef, A::Error> {
                let Pair { provider, id } = Pair::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(ModelRef(ModelId { provider, model: id }))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn api<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Api>, D::Error> {
    let word = String::deserialize(deserializer)?;
    one_of(&word, Api::ALL.map(|api| (api.as_str(), api))).map(Some).map_err(D::Error::custom)
}

fn thinking<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ThinkingLevel>, D::Error> {
    let word = String::deserialize(deserializer)?;
    thinking_level(&word).map(Some).map_err(D::Error::custom)
}

/// How much to think, by its word.
pub(crate) fn thinking_level(word: &str) -> Result<ThinkingLevel, String> {
    one_of(word, ThinkingLevel::ALL.map(|level| (level.as_str(), level)))
}

/// What becomes of a conversation that is too long, by its word.
pub(crate) fn compaction_mode(word: &str) -> Result<CompactionMode, String> {
    one_of(word, [("summarize", CompactionMode::Summarize), ("discard", CompactionMode::Discard)])
}

/// The meaning of a word.
pub(crate) fn one_of<T: Copy, const N: usize>(word: &str, known: [(&str, T); N]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| format!("`{word}` is not known here; {}", instead(word, &known.map(|(name, _)| name))))
}
