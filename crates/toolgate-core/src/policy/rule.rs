//! One rule: `Tool` or `Tool(words)`, of one tier, from one place.

use super::command;
use crate::{
    approval::{Basis, Source},
    call::CheckedCall,
    tool::Effect,
};

/// How strict a rule is; the strictest that applies wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// What it covers may run.
    Allow,
    /// What it touches asks.
    Ask,
    /// What it touches may not run.
    Deny,
}

/// A rule, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// How strict it is.
    pub tier: Tier,
    /// As it was written.
    pub text: String,
    /// The file and line, or the flag, that it came from.
    pub place: String,
    name: String,
    spec: Option<Spec>,
}

/// What a rule says in its parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spec {
    /// Words of a command.
    Words(WordSpec),
    /// A host: exactly this one, or all below it where it begins with `*.`.
    Domain(String),
}

/// The words of a command rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WordSpec {
    words: Vec<String>,
    /// The last word was `*`: the words are a prefix, and the whole prefix alone counts too.
    open: bool,
}

/// Why a rule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: the rule `{text}` cannot be read: {reason}")]
pub struct RuleError {
    /// The rule as written.
    pub text: String,
    /// Where it stands.
    pub place: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// When it is neither `Tool` nor `Tool(words)`, or when its words are not plain.
    pub fn parse(tier: Tier, text: &str, place: &str) -> Result<Self, RuleError> {
        let fail = |reason: String| RuleError { text: text.to_owned(), place: place.to_owned(), reason };
        let (name, spec) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                let inner = rest.strip_suffix(')').ok_or_else(|| fail("the closing parenthesis is missing".into()))?;
                (name, Some(inner))
            }
        };
        let well_named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-*".contains(c));
        if !well_named {
            return Err(fail(format!("`{name}` is no tool name; a rule for commands is written `Bash({text})`")));
        }
        let spec = spec.map(Spec::parse).transpose().map_err(fail)?;
        Ok(Self { tier, text: text.to_owned(), place: place.to_owned(), name: name.to_owned(), spec })
    }

    /// What a verdict by this rule rests on.
    pub(super) fn basis(&self) -> Basis {
        let verb = match self.tier {
            Tier::Allow => "allows",
            Tier::Ask => "asks for",
            Tier::Deny => "denies",
        };
        let reason = format!("the rule `{}` ({}) {verb} it", self.text, self.place);
        Basis { source: Source::Rule, rule: Some(self.text.clone()), reason }
    }

    /// Whether the rule speaks of this call's tool.
    pub(super) fn names(&self, call: &CheckedCall) -> bool {
        call.answers_to(&self.name)
    }

    /// Whether the rule looks at command words.
    pub(super) fn is_about_commands(&self) -> bool {
        matches!(self.spec, Some(Spec::Words(_)))
    }

    /// Whether the rule is about one host, and not about whatever lies below a domain.
    pub(super) fn names_one_host(&self) -> bool {
        matches!(&self.spec, Some(Spec::Domain(domain)) if !domain.starts_with("*."))
    }

    /// Whether a deny or ask rule applies: any part of the call that could be what it means.
    pub(super) fn touches(&self, call: &CheckedCall) -> bool {
        self.names(call)
            && self.spec.as_ref().is_none_or(|spec| {
                call.effects().iter().any(|effect| match (spec, effect) {
                    (Spec::Words(words), Effect::Run { line, .. }) => words.stands_in(line),
                    (Spec::Words(words), Effect::Feed { text, .. }) => words.stands_in(text),
                    (Spec::Domain(domain), Effect::Connect(host)) => is_of(host, domain),
                    _ => false,
                })
            })
    }

    /// Whether an allow rule covers the whole call. Until the gate reads shell, a command is covered when it is plain words.
    pub(super) fn covers(&self, call: &CheckedCall) -> bool {
        self.names(call)
            && !call.effects().is_empty()
            && call.effects().iter().all(|effect| {
                self.is_of_its_kind(effect)
                    && match (effect, &self.spec) {
                        (Effect::Run { line, .. }, None) => command::plain_words(line).is_some(),
                        (Effect::Run { line, .. }, Some(Spec::Words(spec))) => {
                            command::plain_words(line).is_some_and(|words| spec.matches(&words))
                        }
                        (Effect::Connect(host), Some(Spec::Domain(domain))) => is_of(host, domain),
                        // Typed text has no rule that allows it, and what no rule of this form describes is not covered by one.
                        (Effect::Feed { .. } | Effect::Unknown(_) | Effect::Foreign { .. }, _) => false,
                        (_, spec) => spec.is_none(),
                    }
            })
    }
}

impl Rule {
    /// Whether an effect is of the kind that the rule's name stands for. A tool may answer to several classes, and a rule of one allows what
    /// is of that class; under a tool's own name it allows all that the tool does.
    fn is_of_its_kind(&self, effect: &Effect) -> bool {
        match self.name.as_str() {
            "Read" => matches!(effect, Effect::Read(_) | Effect::Search(_)),
            "Edit" => matches!(effect, Effect::Read(_) | Effect::Search(_) | Effect::Write(_)),
            "WebFetch" => matches!(effect, Effect::Connect(_)),
            "Bash" => !matches!(effect, Effect::Write(_) | Effect::Connect(_) | Effect::Delegate),
            _ => true,
        }
    }
}

impl Spec {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(domain) = text.strip_prefix("domain:") else { return WordSpec::parse(text).map(Self::Words) };
        let host = domain.strip_prefix("*.").unwrap_or(domain);
        if host.is_empty() || host.contains(['*', '/', ' ', '@']) {
            return Err(format!(
                "`{domain}` is no host; write `domain:example.com`, or `domain:*.example.com` for those below it"
            ));
        }
        Ok(Self::Domain(domain.to_ascii_lowercase()))
    }
}

/// Whether a host is the one that a rule names, or one below it.
fn is_of(host: &str, domain: &str) -> bool {
    match domain.strip_prefix("*.") {
        Some(suffix) => host.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.')),
        None => host == domain,
    }
}

impl WordSpec {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix(":*").map_or_else(|| text.to_owned(), |prefix| format!("{prefix} *"));
        let (text, open) = match text.strip_suffix('*') {
            Some(rest) if rest.is_empty() || rest.ends_with(' ') => (rest.to_owned(), true),
            _ => (text, false),
        };
        if text.trim().is_empty() && open {
            return Ok(Self { words: Vec::new(), open });
        }
        let words = command::plain_words(&text).ok_or_else(|| {
            "its words must be plain, with `*` only as the last word: `Bash(git status *)`".to_owned()
        })?;
        if words.is_empty() { Err("it has no words".into()) } else { Ok(Self { words, open }) }
    }

    fn matches(&self, words: &[String]) -> bool {
        if self.open { words.starts_with(&self.words) } else { words == self.words }
    }

    fn stands_in(&self, line: &str) -> bool {
        command::command_positions(line).any(|words| words.len() >= self.words.len() && self.matches(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_says_where_and_what_would_be_right() {
        for (text, part) in [
            ("git status", "`Bash(git status)`"),
            ("Bash(git", "closing parenthesis"),
            ("Bash(echo $X)", "plain"),
            ("Bash(a * b)", "last word"),
            ("Bash()", "no words"),
            ("", "no tool name"),
        ] {
            let error = Rule::parse(Tier::Allow, text, "config.yaml:3").unwrap_err().to_string();
            assert!(error.starts_with("config.yaml:3: ") && error.contains(part), "{text}: {error}");
        }
        for host in ["domain:", "domain:*", "domain:a/b", "domain:a b"] {
            assert!(
                Rule::parse(Tier::Allow, &format!("WebFetch({host})"), "x")
                    .unwrap_err()
                    .to_string()
                    .contains("no host"),
                "{host}"
            );
        }
        for (domain, host, is) in [
            ("example.com", "example.com", true),
            ("example.com", "www.example.com", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
        ] {
            assert_eq!(is_of(host, domain), is, "{domain} {host}");
        }
        assert_eq!(
            Rule::parse(Tier::Deny, "Bash(npm:*)", "x").unwrap().spec,
            Rule::parse(Tier::Deny, "Bash(npm *)", "x").unwrap().spec
        );
    }
}
