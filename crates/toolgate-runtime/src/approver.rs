//! Who is asked. The port, and the approver for when nobody is there.

use std::sync::Arc;

use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Basis, Decision, Reply, Source, Withdrawn},
    policy::{Policy, Standing},
};

use crate::BoxFuture;

/// Gives the rules in force and answers questions.
pub trait Approver: Send + Sync {
    /// Mode, rules and grants, read afresh before every decision.
    fn standing(&self) -> BoxFuture<'_, Standing>;

    /// Answers a question, or says that it stays open. Idempotent by the request's key: the same question has the same answer. Dropping
    /// the future leaves the question open.
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply>;

    /// The question is put no longer; a later answer to it must not count.
    fn withdraw(&self, key: &ApprovalKey, why: Withdrawn);
}

/// What happens to a question when nobody is there to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAsk {
    /// It is answered with no.
    Deny,
    /// It stays open and the run ends waiting.
    Wait,
}

/// Rules and a mode, and nobody to ask.
pub struct Unattended {
    standing: Standing,
    on_ask: OnAsk,
}

impl Unattended {
    /// An approver that never finds anybody.
    pub fn new(mode: ApprovalMode, policy: Policy, on_ask: OnAsk) -> Self {
        Self { standing: Standing { mode, policy: Arc::new(policy), version: 1 }, on_ask }
    }
}

impl Approver for Unattended {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        Box::pin(async { self.standing.clone() })
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            match self.on_ask {
                OnAsk::Wait => Reply::Deferred,
                OnAsk::Deny => Reply::Decided(nobody(&request.basis)),
            }
        })
    }

    fn withdraw(&self, _key: &ApprovalKey, _why: Withdrawn) {}
}

/// The closed default: what asks is denied when nobody can answer.
fn nobody(basis: &Basis) -> Decision {
    let reason = format!("{}, and nobody is here to ask", basis.reason);
    Decision::by_rule(false, Basis { source: Source::Default, rule: basis.rule.clone(), reason })
}
