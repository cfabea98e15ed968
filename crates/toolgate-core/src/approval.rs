//! Questions, answers and the modes they stand under.
//!
//! A question is a key, not a future: the same key is the same question for ever, whoever asks and however often.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{call::Args, digest::Digest, tool::Effect};

/// What happens to a call that no rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// It runs; deny and ask rules bind.
    AllowAll,
    /// What only reads runs, the rest asks.
    ReadOnly,
    /// It asks, and allow rules do not bind.
    AlwaysAsk,
    /// It is denied.
    DenyAll,
}

impl ApprovalMode {
    /// All of them, in the order of growing strictness.
    pub const ALL: [Self; 4] = [Self::AllowAll, Self::ReadOnly, Self::AlwaysAsk, Self::DenyAll];

    /// The word that people use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowAll => "allow-all",
            Self::ReadOnly => "read-only",
            Self::AlwaysAsk => "always-ask",
            Self::DenyAll => "deny-all",
        }
    }
}

impl fmt::Display for ApprovalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ApprovalMode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.as_str() == word)
            .ok_or_else(|| format!("`{word}` is no approval mode; use allow-all, read-only, always-ask or deny-all"))
    }
}

/// Which question: the same key is the same question, for ever.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApprovalKey {
    /// The session that asks.
    pub session: String,
    /// The call.
    pub call: String,
    /// The bytes that would run.
    pub digest: Digest,
}

/// All that the one who decides is shown.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// Which question.
    pub key: ApprovalKey,
    /// The tool.
    pub tool: String,
    /// Who asks, where that is not the session itself but a subagent of it.
    pub asker: Option<String>,
    /// The names that rules may use for it, its own aside.
    pub rule_names: Vec<String>,
    /// The arguments that would run.
    pub args: Args,
    /// One line.
    pub summary: String,
    /// More, such as a diff.
    pub preview: Option<String>,
    /// What the call would do.
    pub effects: Vec<Effect>,
    /// Why it asks.
    pub basis: Basis,
    /// Under which mode.
    pub mode: ApprovalMode,
    /// Answers beside yes and no that make sense here.
    pub offers: Vec<Offer>,
}

impl ApprovalRequest {
    /// Whether rules of this name speak of the call.
    pub fn answers_to(&self, rule_name: &str) -> bool {
        self.tool == rule_name || self.rule_names.iter().any(|name| name == rule_name)
    }
}

/// An answer that reaches further than one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Calls that do exactly this, for the rest of the session.
    ForSession,
}

/// What a verdict or a decision rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// What kind of thing decided.
    pub source: Source,
    /// The rule, where one decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// A sentence.
    pub reason: String,
}

/// What kind of thing decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The approval mode.
    Mode,
    /// A rule, built in or configured.
    Rule,
    /// A remembered allow.
    Grant,
    /// Somebody.
    Person,
    /// Nothing and nobody: the closed default.
    Default,
    /// A program beside the gate.
    Hook,
}

impl Source {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Rule => "rule",
            Self::Grant => "grant",
            Self::Person => "person",
            Self::Default => "default",
            Self::Hook => "hook",
        }
    }
}

/// What was decided about one call, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may run.
    pub allowed: bool,
    /// What it rests on.
    pub basis: Basis,
    /// Who decided, where somebody did.
    pub decider: Option<String>,
    /// What a person said with a no.
    pub note: Option<String>,
}

impl Decision {
    /// A decision that nobody had to be asked for.
    pub fn by_rule(allowed: bool, basis: Basis) -> Self {
        Self { allowed, basis, decider: None, note: None }
    }

    /// The decision of a person.
    pub fn by_person(allowed: bool, who: &str, note: Option<String>) -> Self {
        let reason = if allowed { "a person allowed it" } else { "a person denied it" };
        let basis = Basis { source: Source::Person, rule: None, reason: reason.into() };
        Self { allowed, basis, decider: Some(who.to_owned()), note }
    }

    /// What the model reads instead of an output when the call was denied.
    pub fn denial_text(&self) -> String {
        match (self.basis.source, &self.note) {
            (Source::Person, Some(note)) => format!("Tool call denied by user.\n{note}"),
            (Source::Person, None) => "Tool call denied by user.".into(),
            _ => format!("Tool call denied by policy: {}", self.basis.reason),
        }
    }
}

/// An answer to a question, or that there is none yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Decided, for ever.
    Decided(Decision),
    /// Not now: the run ends waiting and the question stays.
    Deferred,
}

/// Why a question is put no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// The run that asked was stopped.
    Interrupted,
    /// Changed rules or modes decided it.
    Judged,
}
