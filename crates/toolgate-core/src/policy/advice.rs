//! What a program beside the gate says of a call, and what becomes of it. Like the verdict itself it is pure.

use super::Verdict;
use crate::approval::{ApprovalMode, Basis, Source};

/// What a hook says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// It may run, as far as the hook is concerned.
    Allow(Basis),
    /// Somebody must say.
    Ask(Basis),
    /// It must not run.
    Deny(Basis),
}

impl Advice {
    /// The stricter of two; of equals the first.
    #[must_use]
    pub fn or_stricter(self, other: Self) -> Self {
        if other.strictness() > self.strictness() { other } else { self }
    }

    fn strictness(&self) -> u8 {
        match self {
            Self::Allow(_) => 0,
            Self::Ask(_) => 1,
            Self::Deny(_) => 2,
        }
    }
}

/// The verdict of rules and mode together with advice: the stricter counts. An allow is worth what an allow rule is, so it answers what the
/// mode alone asks in the one mode in which allow rules bind; a deny, an ask rule or what no rule can see it never lifts.
pub fn advised(verdict: Verdict, advice: Option<&Advice>, mode: ApprovalMode) -> Verdict {
    match (verdict, advice) {
        (Verdict::Deny(basis), _) => Verdict::Deny(basis),
        (_, Some(Advice::Deny(basis))) => Verdict::Deny(basis.clone()),
        (Verdict::Allow(_), Some(Advice::Ask(basis))) => Verdict::Ask(basis.clone(), Vec::new()),
        (Verdict::Ask(by, _), Some(Advice::Ask(basis))) if by.source == Source::Mode => {
            Verdict::Ask(basis.clone(), Vec::new())
        }
        (Verdict::Ask(by, _), Some(Advice::Allow(basis))) if may_answer(&by, mode) => Verdict::Allow(basis.clone()),
        (verdict, _) => verdict,
    }
}

/// Whether a hook's allow may answer a question that rests on this.
pub fn may_answer(by: &Basis, mode: ApprovalMode) -> bool {
    by.source == Source::Mode && mode == ApprovalMode::ReadOnly
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_counts_and_an_allow_lifts_only_what_the_mode_asks() {
        use ApprovalMode::{AllowAll, AlwaysAsk, DenyAll, ReadOnly};
        let by = |source| Basis { source, rule: None, reason: String::new() };
        let (hook, rule, mode) = (by(Source::Hook), by(Source::Rule), by(Source::Mode));
        let (allow, ask, deny) = (Advice::Allow(hook.clone()), Advice::Ask(hook.clone()), Advice::Deny(hook));
        let (mode_asks, rule_asks) = (Verdict::Ask(mode.clone(), vec![]), Verdict::Ask(rule.clone(), vec![]));
        let unseen = Verdict::Ask(by(Source::Default), vec![]);
        for (verdict, in_mode, wanted) in [
            (Verdict::Allow(mode.clone()), AllowAll, ["allow", "ask", "deny"]),
            (Verdict::Allow(rule.clone()), ReadOnly, ["allow", "ask", "deny"]),
            (mode_asks.clone(), ReadOnly, ["allow", "ask", "deny"]),
            (mode_asks, AlwaysAsk, ["ask", "ask", "deny"]),
            (rule_asks.clone(), ReadOnly, ["ask", "ask", "deny"]),
            (rule_asks, AllowAll, ["ask", "ask", "deny"]),
            (unseen, ReadOnly, ["ask", "ask", "deny"]),
            (Verdict::Deny(rule), AllowAll, ["deny", "deny", "deny"]),
            (Verdict::Deny(mode), DenyAll, ["deny", "deny", "deny"]),
        ] {
            let word = |advice| match advised(verdict.clone(), Some(advice), in_mode) {
                Verdict::Allow(_) => "allow",
                Verdict::Ask(..) => "ask",
                Verdict::Deny(_) => "deny",
            };
            assert_eq!([&allow, &ask, &deny].map(word), wanted, "{verdict:?} in {in_mode}");
            assert_eq!(advised(verdict.clone(), None, in_mode), verdict);
        }
        for (one, other, wanted) in [(&allow, &ask, &ask), (&ask, &allow, &ask), (&ask, &deny, &deny)] {
            assert_eq!(one.clone().or_stricter(other.clone()), *wanted);
        }
    }
}
