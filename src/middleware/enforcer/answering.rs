//! Tells clients, handlers and hooks the verdict on a request.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};

use tower_ratelimit_core::__internal::{
    Charges, Denial, LimiterVerdict, NO_TIMER, Numbers, Request as RequestCount, Verdict,
};

use super::{Admitted, Enforcer, EnforcerVerdict};
use crate::decision::Outcomes;
use crate::key::{Head, Key};
use crate::middleware::guard::ResponseGuard;
use crate::middleware::{OverLimit, WouldRefuse};
use crate::response::Fields;
use crate::store::Charge;

impl Enforcer {
    /// Tells the verdict of the limiter: to the request that is admitted, or in the response to one that is refused.
    pub(super) fn answer<B>(
        self: &Arc<Self>,
        verdict: LimiterVerdict,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> EnforcerVerdict {
        match verdict {
            Verdict::Pass(Numbers::Unknown) => self.pass(),
            Verdict::Pass(Numbers::Known) => Verdict::Pass(self.admit(charges, outcomes, request)),
            Verdict::Hold(turn, _) => Verdict::Hold(turn, self.admit(charges, outcomes, request)),
            Verdict::Refuse(denial) => Verdict::Refuse(match denial {
                Denial::OverLimit => self.refuse(charges, outcomes, request),
                Denial::Store(error) => self.answers.store_failed(error.kind(), request),
                Denial::NoTimer => self.answers.cannot_hold(NO_TIMER, request),
            }),
            Verdict::Pending(question) => self.wait(question),
        }
    }

    /// Passes a request that is told nothing.
    #[inline]
    pub(super) fn pass(&self) -> EnforcerVerdict {
        Verdict::Pass(Admitted {
            fields: None,
            guard: ResponseGuard::default(),
            enforcer: self.life.number,
        })
    }

    fn admit<B>(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Admitted {
        let are_in_force = are_in_force(charges, outcomes);
        if !are_in_force || self.is_soft || self.exposes_decision {
            self.tell_handler(outcomes, request);
        }
        let mut fields = if are_in_force {
            self.answers.allowed(charges, outcomes)
        } else {
            let (charges, outcomes) = in_force(charges, outcomes);
            self.answers.allowed(&charges, &outcomes)
        };
        if self.hooks.in_response {
            let decision = self.policies.decision(outcomes.clone());
            fields = Some(Fields::with_decision(fields, decision));
        }
        let guard = self.guard(charges, outcomes, request);
        if self.hooks.on_decision.is_some() {
            // If the hook panics, the request ends here, and what it holds is settled.
            self.call_hook(charges, outcomes, request);
        }
        Admitted {
            fields,
            guard,
            enforcer: self.life.number,
        }
    }

    /// Holds what an allowed request settles at its end.
    #[inline]
    pub(super) fn guard<B>(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> ResponseGuard {
        match &self.settlements {
            None => ResponseGuard::default(),
            Some(settlements) => {
                ResponseGuard::of(settlements, &self.limiter, charges, outcomes, request)
            }
        }
    }

    /// Tells the handler the decision: that policies would refuse the request, that it is over the limit of a soft one, and the
    /// whole of it if that is enabled.
    #[cold]
    fn tell_handler<B>(&self, outcomes: &Outcomes, request: &mut Request<B>) {
        let decision = || self.policies.decision(outcomes.clone());
        let extensions = request.extensions_mut();
        if outcomes.would_refuse().next().is_some() {
            extensions.insert(WouldRefuse(decision()));
        }
        let mut each = outcomes.iter();
        if each.any(|(_, outcome)| outcome.is_soft() && !outcome.is_allowed()) {
            extensions.insert(OverLimit(decision()));
        }
        if self.exposes_decision {
            extensions.insert(decision());
        }
    }

    /// Calls the hook, if there is one, with the decision.
    fn call_hook<B>(&self, charges: &[Charge], outcomes: &Outcomes, request: &Request<B>) {
        if let Some(hook) = &self.hooks.on_decision {
            let binding = outcomes.binding().map(|(policy, _)| policy);
            let mut bound = charges.iter();
            let bound = bound.find(|charge| Some(charge.policy) == binding);
            let key = bound.or(charges.first()).map_or(Key::MISSING, Charge::key);
            hook(
                &Head::of(request),
                key,
                &self.policies.decision(outcomes.clone()),
            );
        }
    }

    /// Passes a request that no policy decides.
    pub(super) fn exempt(&self) -> EnforcerVerdict {
        self.policies.counters().request(RequestCount::Exempt);
        self.pass()
    }

    fn refuse<B>(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Response<Bytes> {
        self.call_hook(charges, outcomes, request);
        let decision = self.policies.decision(outcomes.clone());
        let exposed = self.hooks.in_response.then(|| decision.clone());
        let mut response = if are_in_force(charges, outcomes) {
            self.answers.denied(charges, outcomes, decision, request)
        } else {
            let (charges, outcomes) = in_force(charges, outcomes);
            self.answers.denied(&charges, &outcomes, decision, request)
        };
        if let Some(decision) = exposed {
            response.extensions_mut().insert(decision);
        }
        response
    }
}

/// Returns whether all charges have an outcome that responses tell.
#[inline]
fn are_in_force(charges: &[Charge], outcomes: &Outcomes) -> bool {
    !outcomes.is_degraded() && !charges.iter().any(Charge::may_be_untold)
}

/// Returns the charges and the outcomes of the policies that have decided and are not in shadow. One that allows everything
/// without its store was not asked, and neither is one that is left alone because another pays.
#[cold]
fn in_force(charges: &[Charge], outcomes: &Outcomes) -> (Charges, Outcomes) {
    let outcomes = outcomes.in_force();
    let is_in = |charge: &&Charge| outcomes.iter().any(|(policy, _)| policy == charge.policy);
    (charges.iter().filter(is_in).copied().collect(), outcomes)
}
