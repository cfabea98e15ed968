//! Hooks that answer questions: an approver that asks them first, and then whoever is behind it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalRequest, Decision, Reply, Withdrawn},
    policy::{Advice, Standing, advice::may_answer},
};

use super::{Hooks, Occasion};
use crate::{BoxFuture, approver::Approver};

/// An approver behind hooks.
pub(crate) struct Attended {
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) behind: Arc<dyn Approver>,
}

impl Approver for Attended {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        self.behind.standing()
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            // Whoever stops waiting for the answer drops this, and with it the hook.
            let heard = self.hooks.hear(Occasion::Question(request), &CancellationToken::new()).await;
            match heard.advice {
                Some(Advice::Deny(basis)) => Reply::Decided(Decision::by_rule(false, basis)),
                Some(Advice::Allow(basis)) if may_answer(&request.basis, request.mode) => {
                    Reply::Decided(Decision::by_rule(true, basis))
                }
                _ => self.behind.decide(request).await,
            }
        })
    }

    fn withdraw(&self, key: &ApprovalKey, why: Withdrawn) {
        self.behind.withdraw(key, why);
    }
}
