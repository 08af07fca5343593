use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Response};

use crate::decision::{Decision, Outcomes};
use crate::error::{Diagnostic, StoreError};
use crate::key::{Head, Key, Missing};
use crate::limiter::{Charges, Limiter};
use crate::observe::{StoreHealth, diagnose};
use crate::policy::{Http, Policy};
use crate::response::{Draft11, Fields, Refusals};
use crate::store::{Charge, Ledger, Reply, answered};

/// Asks a limiter about requests, and turns its answers into responses.
#[derive(Debug)]
pub(super) struct Gate {
    limiter: Limiter<dyn Ledger>,
    /// How each policy reads a request, with the policy's place in the limiter's list.
    readers: Vec<(usize, Http)>,
    fields: Draft11,
    refusals: Refusals,
    store: StoreHealth,
    exposes_decision: bool,
}

/// What becomes of a request.
pub(super) enum Ruling {
    /// It goes on.
    Pass(Pass),
    /// It is answered with this.
    Refuse(Response<Bytes>),
}

/// What a request that goes on takes with it.
#[derive(Default)]
pub(super) struct Pass {
    /// For its response.
    pub(super) fields: Option<Fields>,
    /// For its extensions.
    decision: Option<Box<Decision>>,
}

impl Pass {
    /// Puts the decision where the inner service finds it, if that was asked for.
    pub(super) fn expose_to<B>(&mut self, request: &mut Request<B>) {
        if let Some(decision) = self.decision.take() {
            request.extensions_mut().insert(*decision);
        }
    }
}

/// The ruling, or the store's answer that it waits for.
pub(super) enum Answer {
    Ruled(Ruling),
    Waiting(Box<Question>),
}

/// A question to the store that it has not answered yet.
pub(super) struct Question {
    pub(super) charges: Charges,
    pub(super) answer: Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>,
}

impl Gate {
    /// These policies, whose names are known to be good, over a ledger that was opened for them.
    pub(super) fn new(policies: &[Policy], readers: Vec<Http>, ledger: impl Ledger) -> Self {
        let readers = readers.into_iter().enumerate();
        Self {
            limiter: Limiter::of(policies, ledger).erased(),
            readers: readers
                .filter(|(policy, _)| policies[*policy].is_limited())
                .collect(),
            fields: Draft11::new(policies),
            refusals: Refusals::new(policies),
            store: StoreHealth::default(),
            exposes_decision: false,
        }
    }

    pub(super) fn expose_decision(&mut self) {
        self.exposes_decision = true;
    }

    pub(super) fn ask(&self, head: &Head<'_>) -> Answer {
        let charges = match self.charges(head) {
            Ok(charges) if charges.is_empty() => {
                return Answer::Ruled(Ruling::Pass(Pass::default()));
            }
            Ok(charges) => charges,
            Err(diagnostic) => {
                diagnose(&diagnostic);
                return Answer::Ruled(Ruling::Refuse(Refusals::no_key(diagnostic)));
            }
        };
        match self.limiter.charge(&charges) {
            Reply::Now(answer) => Answer::Ruled(self.rule(&charges, answer)),
            Reply::Later(answer) => Answer::Waiting(Box::new(Question { charges, answer })),
        }
    }

    /// Rules on the store's answer to these charges.
    pub(super) fn rule(&self, charges: &[Charge], answer: Result<Outcomes, StoreError>) -> Ruling {
        let answer = answered(charges, answer);
        if answer.is_ok() {
            self.store.answered();
        }
        match answer {
            Ok(outcomes) if outcomes.is_allowed() => Ruling::Pass(self.pass(outcomes)),
            Ok(outcomes) => {
                Ruling::Refuse(self.refusals.denied(&self.fields, outcomes, |outcomes| {
                    self.limiter.decision(outcomes)
                }))
            }
            Err(error) => {
                self.store.failed(&error);
                Ruling::Refuse(Refusals::store_failed(error.kind()))
            }
        }
    }

    fn pass(&self, outcomes: Outcomes) -> Pass {
        Pass {
            fields: self.fields.allowed(&outcomes),
            decision: self
                .exposes_decision
                .then(|| Box::new(self.limiter.decision(outcomes))),
        }
    }

    fn charges(&self, head: &Head<'_>) -> Result<Charges, Diagnostic> {
        let mut charges = Charges::new();
        for (policy, reader) in &self.readers {
            if reader.applies(head) {
                charges.push(Charge {
                    policy: *policy,
                    key: key(reader, head)?,
                    cost: reader.cost(head),
                });
            }
        }
        Ok(charges)
    }
}

fn key(reader: &Http, head: &Head<'_>) -> Result<Key, Diagnostic> {
    match reader.key(head) {
        Ok(key) => Ok(key),
        Err(Missing::ByClient) => Ok(Key::NOBODY),
        Err(Missing::ByServer(diagnostic)) => Err(diagnostic),
    }
}
