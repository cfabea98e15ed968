//! The gate: the only place that builds a [`Permit`].
//!
//! `standing → decide → question → reply`, in that order, once for each call. Without a permit no tool runs and no executor touches
//! anything, so "denied means that nothing ran" is a fact of the types.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Basis, Decision, Offer, Reply, Source, Withdrawn},
    call::CheckedCall,
    message::{ApprovalDecided, ApprovalRequested, Event, Extra},
    policy::{Advice, Facts, SandboxMode, Standing, Verdict, advised, decide},
};

use crate::{
    approver::Approver,
    output::bounded,
    race::unwound,
    trace::{Journal, TraceError},
};

/// The right to do what one checked call says, once. It cannot be copied, and only the gate builds one.
#[derive(Debug)]
pub struct Permit {
    call: CheckedCall,
    decision: Decision,
    sandbox: SandboxMode,
}

impl Permit {
    /// The call that may run.
    pub fn call(&self) -> &CheckedCall {
        &self.call
    }

    /// Why it may.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What confines it.
    pub fn sandbox(&self) -> SandboxMode {
        self.sandbox
    }
}

/// What came of a call at the gate.
pub enum Passage {
    /// It may run.
    Permitted(Box<Permit>),
    /// It may not, and this is what the model reads about it.
    Denied(Decision),
    /// Its question stays open.
    Waiting(ApprovalKey),
    /// The run was stopped while the question was put.
    Interrupted,
}

/// How often an open question is held against the rules again. A person who changed the mode is looking at the screen; a person who is
/// waited for costs five wake-ups a second.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What ended a question.
enum Answer {
    Reply(Reply),
    Judged(Decision),
    Interrupted,
}

/// A session's gate.
pub struct Gate {
    session: String,
    approver: Arc<dyn Approver>,
    journal: Arc<Journal>,
    facts: Facts,
}

impl Gate {
    /// A gate for one session.
    pub fn new(session: String, approver: Arc<dyn Approver>, journal: Arc<Journal>, facts: Facts) -> Self {
        Self { session, approver, journal, facts }
    }

    /// Lets one call pass, or not; `advice` is what hooks said of it. Exactly one decision is recorded, unless the question stays open; a run
    /// that is stopped while a question stands records a deny.
    ///
    /// # Errors
    /// When the decision cannot be recorded: then nothing may run.
    pub async fn pass(
        &self,
        call: CheckedCall,
        advice: Option<Advice>,
        cancel: &CancellationToken,
    ) -> Result<Passage, TraceError> {
        let standing = self.standing().await;
        match self.judge(&call, &standing, advice.as_ref()) {
            Verdict::Allow(basis) => self.settle(call, standing.mode, Decision::by_rule(true, basis), None),
            Verdict::Deny(basis) => self.settle(call, standing.mode, Decision::by_rule(false, basis), None),
            Verdict::Ask(basis, offers) => self.ask(call, advice, standing, basis, offers, cancel).await,
        }
    }

    /// Records a deny for a call that could not even be checked.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn refuse(&self, call_id: &str, reason: &str) -> Result<Decision, TraceError> {
        let basis = Basis { source: Source::Default, rule: None, reason: reason.to_owned() };
        let decision = Decision::by_rule(false, basis);
        self.journal.record(decided(call_id, None, None, &decision, None))?;
        Ok(decision)
    }

    /// Which question a call is: the same call asks the same question, also after a restart.
    pub(crate) fn key(&self, call: &CheckedCall) -> ApprovalKey {
        ApprovalKey { session: self.session.clone(), call: call.id().to_owned(), digest: call.digest().clone() }
    }

    async fn ask(
        &self,
        call: CheckedCall,
        advice: Option<Advice>,
        standing: Standing,
        basis: Basis,
        offers: Vec<Offer>,
        cancel: &CancellationToken,
    ) -> Result<Passage, TraceError> {
        let key = self.key(&call);
        let request = ApprovalRequest {
            key: key.clone(),
            tool: call.tool().to_owned(),
            asker: None,
            rule_names: call.rule_names().to_vec(),
            args: call.args().clone(),
            summary: call.summary().to_owned(),
            preview: call.preview().map(|preview| preview.text.clone()),
            effects: call.effects().to_vec(),
            basis,
            mode: standing.mode,
            offers,
        };
        self.journal.record(Event::ApprovalRequest(ApprovalRequested {
            tool_call_id: call.id().to_owned(),
            args_digest: call.digest().as_str().to_owned(),
            summary: request.summary.clone(),
            reason: request.basis.reason.clone(),
            extra: Extra::new(),
        }))?;
        let asked = Instant::now();
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => Answer::Interrupted,
            reply = unwound(Box::pin(async { self.approver.decide(&request).await })) => Answer::Reply(reply.unwrap_or_else(failed)),
            judged = self.judged_again(&call, advice.as_ref(), standing.version) => Answer::Judged(judged),
        };
        let decision = match answer {
            Answer::Reply(Reply::Decided(decision)) => decision,
            Answer::Reply(Reply::Deferred) => return Ok(Passage::Waiting(key)),
            Answer::Judged(decision) => {
                self.approver.withdraw(&key, Withdrawn::Judged);
                decision
            }
            Answer::Interrupted => {
                self.approver.withdraw(&key, Withdrawn::Interrupted);
                let reason = "the run was interrupted while the question stood".to_owned();
                let decision = Decision::by_rule(false, Basis { source: Source::Default, rule: None, reason });
                self.settle(call, standing.mode, decision, None)?;
                return Ok(Passage::Interrupted);
            }
        };
        let waited = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Rules and mode may have changed while the question stood; what they deny now, a yes to the old question does not allow.
        let now = self.standing().await;
        let decision = match self.judge(&call, &now, advice.as_ref()) {
            Verdict::Deny(basis) => Decision::by_rule(false, basis),
            _ => decision,
        };
        self.settle(call, now.mode, decision, Some(waited))
    }

    /// What rules, mode and hooks say together.
    fn judge(&self, call: &CheckedCall, standing: &Standing, advice: Option<&Advice>) -> Verdict {
        advised(decide(call, standing, &self.facts), advice, standing.mode)
    }

    /// Mode and rules in force. An approver that cannot say them allows nothing.
    async fn standing(&self) -> Standing {
        unwound(Box::pin(async { self.approver.standing().await })).await.unwrap_or_else(|_| Standing {
            mode: ApprovalMode::DenyAll,
            policy: Arc::default(),
            version: 0,
        })
    }

    /// Comes back when changed rules or a changed mode decide an open question by themselves.
    async fn judged_again(&self, call: &CheckedCall, advice: Option<&Advice>, version: u64) -> Decision {
        let mut seen = version;
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let standing = self.standing().await;
            if std::mem::replace(&mut seen, standing.version) == standing.version {
                continue;
            }
            match self.judge(call, &standing, advice) {
                Verdict::Allow(basis) => return Decision::by_rule(true, basis),
                Verdict::Deny(basis) => return Decision::by_rule(false, basis),
                Verdict::Ask(..) => {}
            }
        }
    }

    fn settle(
        &self,
        call: CheckedCall,
        mode: ApprovalMode,
        decision: Decision,
        waited: Option<u64>,
    ) -> Result<Passage, TraceError> {
        self.journal.record(decided(call.id(), Some(mode), Some(call.digest().as_str()), &decision, waited))?;
        if decision.basis.source == Source::Person {
            // A person's word must outlast a power cut before it takes effect.
            self.journal.sync()?;
        }
        Ok(if decision.allowed {
            Passage::Permitted(Box::new(Permit { call, decision, sandbox: self.facts.sandbox }))
        } else {
            Passage::Denied(decision)
        })
    }
}

fn decided(
    call_id: &str,
    mode: Option<ApprovalMode>,
    digest: Option<&str>,
    decision: &Decision,
    wait_ms: Option<u64>,
) -> Event {
    Event::ApprovalDecision(ApprovalDecided {
        decision: if decision.allowed { "allow" } else { "deny" }.into(),
        tool_call_id: call_id.to_owned(),
        mode: mode.map(|mode| mode.to_string()),
        source: Some(decision.basis.source.as_str().into()),
        rule: decision.basis.rule.clone(),
        reason: Some(bounded(&decision.basis.reason)),
        decider: decision.decider.clone(),
        args_digest: digest.map(str::to_owned),
        wait_ms,
        extra: Extra::new(),
    })
}

/// An approver that failed has allowed nothing.
fn failed(what: String) -> Reply {
    let reason = format!("whoever was to answer failed: {what}");
    Reply::Decided(Decision::by_rule(false, Basis { source: Source::Default, rule: None, reason }))
}
