//! Tells clients, handlers and counters the ruling on a request.

use std::sync::Arc;

use http::Request;

use super::{Admitted, Gate, Ruling};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::key::{Head, Key};
use crate::limiter::{Charges, NO_TIMER, Ruled, asked};
use crate::middleware::guard::ResponseGuard;
use crate::middleware::{OverLimit, WouldRefuse};
use crate::observe::Request as RequestCount;
use crate::response::Fields;
use crate::store::Charge;

impl Gate {
    /// Converts the ruling of the limiter.
    #[inline]
    pub(super) fn answer<B>(
        self: &Arc<Self>,
        ruled: Ruled,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Ruling {
        match ruled {
            Ruled::Untold => {
                self.limiter.count_allowed(charges);
                self.pass(None, ResponseGuard::default())
            }
            Ruled::Allowed(turn) => {
                let admitted = self.admit(charges, outcomes, request);
                match turn {
                    None => Ruling::Pass(admitted),
                    Some(turn) => Ruling::Hold(turn, admitted),
                }
            }
            Ruled::Denied => self.refuse(charges, outcomes, request),
            Ruled::Failed(error) => self.fail(charges, &error, request),
            Ruled::NoTimer => {
                self.limiter.count_failed(charges);
                Ruling::Refuse(self.answers.cannot_hold(NO_TIMER, request))
            }
            Ruled::Later(question) => self.wait(question),
        }
    }

    #[inline]
    fn pass(&self, fields: Option<Fields>, guard: ResponseGuard) -> Ruling {
        Ruling::Pass(Admitted {
            fields,
            guard,
            gate: self.id(),
        })
    }

    #[inline]
    fn admit<B>(&self, all: &[Charge], outcomes: &Outcomes, request: &mut Request<B>) -> Admitted {
        let reported = self.limiter.reported(all, outcomes);
        self.mark_shadow(&reported, request);
        if self.is_soft
            && outcomes
                .iter()
                .any(|(_, outcome)| outcome.is_soft() && !outcome.is_allowed())
        {
            request.extensions_mut().insert(OverLimit::new(
                self.limiter.decision(reported.clone().into_owned()),
            ));
        }
        if self.exposes_decision {
            request
                .extensions_mut()
                .insert(self.limiter.decision(reported.clone().into_owned()));
        }
        let charges = &*asked(all, outcomes);
        let fields = self.fields(charges, &reported);
        let fields = self.with_decision(fields, &reported);
        let guard = self.guard(charges, outcomes, request);
        match &self.settlements {
            None => self.limiter.count_decided(all, &reported),
            Some(settlements) => self.limiter.count_held(all, &reported, |charge| {
                charge.is_of_rate() && settlements.settles(charge.policy)
            }),
        }
        // If the hook panics, the request ends here, and what it holds is settled.
        self.call_hook(all, &reported, request);
        Admitted {
            fields,
            guard,
            gate: self.id(),
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
        self.settlements
            .as_ref()
            .map(|settlements| {
                ResponseGuard::of(settlements, &self.limiter, charges, outcomes, request)
            })
            .unwrap_or_default()
    }

    /// Marks a request that a policy in shadow would have refused.
    #[inline]
    fn mark_shadow<B>(&self, reported: &Outcomes, request: &mut Request<B>) {
        if !self.modes().are_plain() && reported.would_refuse().next().is_some() {
            let decision = self.limiter.decision(reported.clone());
            request.extensions_mut().insert(WouldRefuse::new(decision));
        }
    }

    /// Returns the headers of the response to an allowed request, with the policies in force.
    #[inline]
    fn fields(&self, charges: &[Charge], reported: &Outcomes) -> Option<Fields> {
        if !charges.iter().any(Charge::is_shadow) {
            return self.answers.allowed(charges, reported);
        }
        let (charges, reported) = in_force(charges, reported);
        if charges.is_empty() {
            return None;
        }
        self.answers.allowed(&charges, &reported)
    }

    /// Calls the hook, if there is one, with the decision.
    #[inline]
    fn call_hook<B>(&self, charges: &[Charge], reported: &Outcomes, request: &Request<B>) {
        if let Some(hook) = &self.hooks.on_decision {
            let binding = reported.binding().map(|(policy, _)| policy);
            let mut bound = charges.iter();
            let bound = bound.find(|charge| Some(charge.policy) == binding);
            let key = bound.or(charges.first()).map_or(Key::MISSING, Charge::key);
            hook(
                &Head::of(request),
                key,
                &self.limiter.decision(reported.clone()),
            );
        }
    }

    /// Adds the decision to the headers of a response, if that is enabled.
    #[inline]
    fn with_decision(&self, fields: Option<Fields>, reported: &Outcomes) -> Option<Fields> {
        if !self.hooks.in_response {
            return fields;
        }
        let decision = self.limiter.decision(reported.clone());
        Some(Fields::with_decision(fields, decision))
    }

    /// Passes a request that no policy decides.
    pub(super) fn exempt(&self) -> Ruling {
        self.limiter.counters().request(RequestCount::Exempt);
        self.pass(None, ResponseGuard::default())
    }

    fn refuse<B>(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Ruling {
        let reported = self.limiter.reported(charges, outcomes);
        self.limiter.count_decided(charges, &reported);
        self.call_hook(charges, &reported, request);
        let decision = self.limiter.decision(reported.clone().into_owned());
        let charges = asked(charges, outcomes);
        let exposed = self.hooks.in_response.then(|| decision.clone());
        let mut response = if charges.iter().any(Charge::is_shadow) {
            let (charges, reported) = in_force(&charges, &reported);
            self.answers.denied(&charges, &reported, decision, request)
        } else {
            self.answers.denied(&charges, &reported, decision, request)
        };
        if let Some(decision) = exposed {
            response.extensions_mut().insert(decision);
        }
        Ruling::Refuse(response)
    }

    fn fail<B>(&self, charges: &[Charge], error: &StoreError, request: &mut Request<B>) -> Ruling {
        self.limiter.count_failed(charges);
        // A policy in shadow does not refuse without its store either.
        if charges.iter().all(Charge::is_shadow) {
            return self.pass(None, ResponseGuard::default());
        }
        Ruling::Refuse(self.answers.store_failed(error.kind(), request))
    }
}

/// Returns the charges and the outcomes of the policies that are not in shadow.
#[cold]
fn in_force(charges: &[Charge], reported: &Outcomes) -> (Charges, Outcomes) {
    let charges = charges.iter().filter(|charge| !charge.is_shadow());
    (charges.copied().collect(), reported.in_force())
}
