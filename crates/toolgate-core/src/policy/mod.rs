//! Rules, and the one pure function that decides: [`decide`].
//!
//! The order is hard gate > deny > ask > allow > mode, and the strictest part of a call decides for the whole.
//! Policy reads effects; it never knows a tool by its name beyond the rule names that the tool declares.

pub mod advice;
pub mod command;
pub mod rule;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    approval::{ApprovalMode, Basis, Offer, Source},
    call::CheckedCall,
    tool::{Effect, Permission},
};
pub use advice::{Advice, advised};
pub use rule::{Rule, RuleError, Tier};

/// The rules of all layers, which add up: specificity and order never matter.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// In the order in which they were read.
    pub rules: Vec<Rule>,
}

/// The rules and the mode in force. Read afresh before every decision.
#[derive(Debug, Clone)]
pub struct Standing {
    /// What happens to a call that no rule decides.
    pub mode: ApprovalMode,
    /// The rules of all layers, grants included.
    pub policy: Arc<Policy>,
    /// Grows whenever mode or rules change, so that open questions can be judged again.
    pub version: u64,
}

/// What the runtime found out about the machine for one decision.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The sandbox in force, never the one that was wished for.
    pub sandbox: SandboxMode,
}

/// What a command may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing.
    ReadOnly,
    /// The workspace.
    WorkspaceWrite,
    /// Whatever the user may.
    Off,
}

impl SandboxMode {
    /// The word that people use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::Off => "off",
        }
    }
}

/// What the rules and the mode say about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Allow(Basis),
    /// Somebody must say, and these answers beside yes and no make sense.
    Ask(Basis, Vec<Offer>),
    /// It may not run.
    Deny(Basis),
}

/// Judges one call by the rules and the mode in force. Pure: the same inputs give the same verdict, also over a recorded trace.
pub fn decide(call: &CheckedCall, standing: &Standing, facts: &Facts) -> Verdict {
    let rules = &standing.policy.rules;
    let binding = |tier: Tier| rules.iter().find(|rule| rule.tier == tier && rule.touches(call));

    if let Some(rule) = binding(Tier::Deny) {
        return Verdict::Deny(rule.basis());
    }
    if standing.mode == ApprovalMode::DenyAll {
        return Verdict::Deny(by_mode(standing.mode));
    }
    if let Some(rule) = binding(Tier::Ask) {
        return Verdict::Ask(rule.basis(), Vec::new());
    }
    if let Some(reason) = beyond_the_rules(call, rules) {
        return Verdict::Ask(Basis { source: Source::Default, rule: None, reason }, Vec::new());
    }
    match standing.mode {
        ApprovalMode::AllowAll => {
            // A rule that names a host says more than the mode does: by it, a private one is reached too.
            let connects = call.effects().iter().any(|effect| matches!(effect, Effect::Connect(_)));
            let rule = connects.then(|| allowing(call, rules)).flatten();
            Verdict::Allow(rule.map_or_else(|| by_mode(standing.mode), Rule::basis))
        }
        ApprovalMode::AlwaysAsk | ApprovalMode::DenyAll => Verdict::Ask(by_mode(standing.mode), Vec::new()),
        ApprovalMode::ReadOnly => {
            if let Some(rule) = allowing(call, rules) {
                Verdict::Allow(rule.basis())
            } else if only_reads(call, facts) {
                Verdict::Allow(by_mode(standing.mode))
            } else {
                Verdict::Ask(by_mode(standing.mode), vec![Offer::ForSession])
            }
        }
    }
}

/// The allow rule that covers a call: one that names its very host before others, since it says more than they do.
fn allowing<'a>(call: &CheckedCall, rules: &'a [Rule]) -> Option<&'a Rule> {
    let covering = || rules.iter().filter(|rule| rule.tier == Tier::Allow && rule.covers(call));
    covering().find(|rule| rule.names_one_host()).or_else(|| covering().next())
}

fn by_mode(mode: ApprovalMode) -> Basis {
    let reason = match mode {
        ApprovalMode::AllowAll => "no rule speaks of it and the mode allow-all lets it run",
        ApprovalMode::ReadOnly => "the mode read-only lets run what only reads, and asks for the rest",
        ApprovalMode::AlwaysAsk => "the mode always-ask asks for every call",
        ApprovalMode::DenyAll => "the mode deny-all denies every call",
    };
    Basis { source: Source::Mode, rule: None, reason: reason.into() }
}

/// Why a deny or ask rule might apply that cannot be seen to: while one speaks of commands, a command word that only exists at
/// run time asks, in every mode.
fn beyond_the_rules(call: &CheckedCall, rules: &[Rule]) -> Option<String> {
    let guarded = rules.iter().any(|rule| rule.tier != Tier::Allow && rule.is_about_commands() && rule.names(call));
    let dynamic = call.effects().iter().any(|effect| match effect {
        Effect::Run { line, .. } => command::has_dynamic_words(line),
        Effect::Feed { text, .. } => command::has_dynamic_words(text),
        _ => false,
    });
    (guarded && dynamic).then(|| {
        "part of the command exists only when it runs, so the configured deny and ask rules cannot be checked against it".into()
    })
}

/// Whether the call changes nothing whatever it does.
fn only_reads(call: &CheckedCall, facts: &Facts) -> bool {
    call.effects().iter().all(|effect| match effect {
        Effect::Read(_) | Effect::Search(_) => true,
        // The sandbox is the boundary: a command is harmless when nothing is writable, and for no other reason.
        Effect::Run { .. } => facts.sandbox == SandboxMode::ReadOnly,
        // An empty poll and a lone Ctrl-C carry no command; ending one's own session is of the same kind.
        Effect::Feed { text, .. } => text.is_empty() || text == "\u{3}",
        Effect::End { .. } => true,
        Effect::Foreign { pinned, .. } => *pinned == Some(Permission::Read),
        Effect::Write(_) | Effect::Connect(_) | Effect::Delegate | Effect::Unknown(_) => false,
    }) && (call.permission() == Permission::Read || !call.effects().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        call::Args,
        tool::{Place, Prepared, ToolSpec},
    };

    fn call(permission: Permission, effects: Vec<Effect>) -> CheckedCall {
        let mut spec = ToolSpec::new("exec_command", "", serde_json::json!({}));
        spec.permission = permission;
        spec.rule_names = vec!["Bash".into()];
        CheckedCall::new("1".into(), &spec, Args::new(), vec![], Prepared { effects, ..Prepared::default() })
    }

    fn run(line: &str) -> CheckedCall {
        call(Permission::ReadWrite, vec![Effect::Run { line: line.into(), cwd: "/w".into() }])
    }

    fn verdict(call: &CheckedCall, mode: ApprovalMode, rules: &[(Tier, &str)]) -> &'static str {
        let rules = rules.iter().map(|(tier, text)| Rule::parse(*tier, text, "test").unwrap()).collect();
        let standing = Standing { mode, policy: Arc::new(Policy { rules }), version: 1 };
        match decide(call, &standing, &Facts { sandbox: SandboxMode::Off }) {
            Verdict::Allow(_) => "allow",
            Verdict::Ask(..) => "ask",
            Verdict::Deny(_) => "deny",
        }
    }

    #[test]
    fn the_four_modes_without_rules() {
        use ApprovalMode::*;
        let place = Place { spelled: "a".into(), path: "/w/a".into(), real: "/w/a".into(), inside: true };
        let read = call(Permission::Read, vec![Effect::Read(place.clone())]);
        let write = call(Permission::ReadWrite, vec![Effect::Write(place)]);
        let poll = call(Permission::ReadWrite, vec![Effect::Feed { process: "p".into(), text: String::new() }]);
        let ctrl_c = call(Permission::ReadWrite, vec![Effect::Feed { process: "p".into(), text: "\u{3}".into() }]);
        let typed = call(Permission::ReadWrite, vec![Effect::Feed { process: "p".into(), text: "y\n".into() }]);
        let nothing_said = call(Permission::ReadWrite, vec![]);
        let table = [
            (&read, ["allow", "allow", "ask", "deny"]),
            (&write, ["allow", "ask", "ask", "deny"]),
            (&run("ls"), ["allow", "ask", "ask", "deny"]),
            (&poll, ["allow", "allow", "ask", "deny"]),
            (&ctrl_c, ["allow", "allow", "ask", "deny"]),
            (&typed, ["allow", "ask", "ask", "deny"]),
            (&nothing_said, ["allow", "ask", "ask", "deny"]),
        ];
        for (call, wanted) in table {
            let found = [AllowAll, ReadOnly, AlwaysAsk, DenyAll].map(|mode| verdict(call, mode, &[]));
            assert_eq!(found, wanted, "{:?}", call.effects());
        }
    }

    #[test]
    fn deny_beats_ask_beats_allow_beats_mode() {
        use ApprovalMode::*;
        let rules =
            [(Tier::Allow, "Bash(git *)"), (Tier::Ask, "Bash(git push *)"), (Tier::Deny, "Bash(git push --force *)")];
        assert_eq!(verdict(&run("git status"), ReadOnly, &rules), "allow");
        assert_eq!(verdict(&run("git push origin"), ReadOnly, &rules), "ask");
        assert_eq!(verdict(&run("git push --force origin"), AllowAll, &rules), "deny");
        assert_eq!(verdict(&run("git push origin"), AllowAll, &rules), "ask", "ask rules bind in allow-all");
        assert_eq!(verdict(&run("git status"), AlwaysAsk, &rules), "ask", "allow rules do not bind in always-ask");
        assert_eq!(verdict(&run("git status"), DenyAll, &rules), "deny");
    }

    #[test]
    fn an_allow_rule_covers_plain_words_only() {
        let rules = [(Tier::Allow, "Bash(echo *)")];
        for line in [
            "echo $HOME",
            "echo `id`",
            "echo $(id)",
            "echo a; id",
            "echo a && id",
            "echo a | sh",
            "echo a > f",
            "echo *",
            "echo ~",
            "echo a\nid",
            "echo {a,b}",
            "echo a & id",
            "(echo a)",
            "echo 'a;b'",
            "echo \\a",
            "echo # a",
            "! echo a",
            "X=1 echo a",
        ] {
            assert_eq!(verdict(&run(line), ApprovalMode::ReadOnly, &rules), "ask", "{line}");
        }
        for line in ["echo", "echo a b", "echo 'a b'", "  echo   \"a b\" c"] {
            assert_eq!(verdict(&run(line), ApprovalMode::ReadOnly, &rules), "allow", "{line}");
        }
        assert_eq!(verdict(&run("echoes a"), ApprovalMode::ReadOnly, &rules), "ask");
    }

    #[test]
    fn a_deny_rule_is_found_at_every_command_position() {
        let rules = [(Tier::Deny, "Bash(curl *)")];
        for line in [
            "curl x",
            "true; curl x",
            "true&&curl x",
            "a|curl x",
            "(curl x)",
            "{ curl x; }",
            "true\ncurl x",
            "echo $(curl x)",
        ] {
            assert_eq!(verdict(&run(line), ApprovalMode::AllowAll, &rules), "deny", "{line}");
        }
        assert_eq!(verdict(&run("echo curl"), ApprovalMode::AllowAll, &rules), "allow");
        assert_eq!(verdict(&run("$X a"), ApprovalMode::AllowAll, &rules), "ask", "it could be the denied program");
        let typed = call(Permission::ReadWrite, vec![Effect::Feed { process: "p".into(), text: "curl x\n".into() }]);
        assert_eq!(verdict(&typed, ApprovalMode::AllowAll, &rules), "deny");
    }

    #[test]
    fn a_class_allows_what_is_of_its_kind_and_no_more() {
        let place = Place { spelled: "a".into(), path: "/w/a".into(), real: "/w/a".into(), inside: true };
        let (read, write) = (Effect::Read(place.clone()), Effect::Write(place));
        let connect = Effect::Connect("example.org".into());
        let line = Effect::Run { line: "make".into(), cwd: "/w".into() };
        let mut spec = ToolSpec::new("own", "", serde_json::json!({}));
        spec.rule_names = ["Read", "Edit", "WebFetch", "Bash"].map(String::from).to_vec();
        for (effects, allowed_by) in [
            (vec![write.clone()], &["Edit", "own"][..]),
            (vec![read.clone(), write], &["Edit", "own"]),
            (vec![connect.clone()], &["WebFetch", "own"]),
            (vec![read, connect], &["own"]),
            (vec![line], &["Bash", "own"]),
        ] {
            let prepared = Prepared { effects, ..Prepared::default() };
            let call = CheckedCall::new("1".into(), &spec, Args::new(), vec![], prepared);
            let allows = |name: &&str| verdict(&call, ApprovalMode::ReadOnly, &[(Tier::Allow, name)]) == "allow";
            let found: Vec<&str> =
                ["Read", "Edit", "WebFetch", "Bash", "own"].into_iter().filter(|name| allows(name)).collect();
            assert_eq!(found, allowed_by, "{:?}", call.effects());
        }
    }

    #[test]
    fn a_rule_without_a_spec_speaks_of_every_call_of_its_tool() {
        assert_eq!(verdict(&run("ls"), ApprovalMode::AllowAll, &[(Tier::Deny, "exec_command")]), "deny");
        assert_eq!(verdict(&run("ls"), ApprovalMode::ReadOnly, &[(Tier::Allow, "Bash")]), "allow");
        assert_eq!(verdict(&run("ls > f"), ApprovalMode::ReadOnly, &[(Tier::Allow, "Bash")]), "ask");
        assert_eq!(verdict(&run("ls"), ApprovalMode::ReadOnly, &[(Tier::Allow, "other")]), "ask");
    }
}
