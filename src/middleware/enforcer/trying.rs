//! A decision on the enforcer's state that does not affect the request: it is not refused, does not wait, and
//! gets no extensions. Counters and hooks do not see it either.

use http::Request;

use tower_ratelimit_core::__internal::PlanLookup;

use super::{Enforcer, Uncharged};
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::key::Head;
use crate::middleware::deadline::deadline;
use crate::middleware::guard::ResponseGuard;
use crate::middleware::lists::Listed;
use crate::store::{Charged, Charges, Wanted};

/// The decision of an enforcer that does not affect the request.
#[derive(Debug)]
pub enum Trial {
    /// No policy applies.
    Exempt,
    /// The request is charged. Dropping the guard settles the charges.
    Allowed(Decision, ResponseGuard),
    /// A policy denies it.
    Denied(Decision),
    /// The request is denied now, and would wait for its turn.
    Waits(Decision),
    /// A list denies it.
    Forbidden,
    /// A policy refuses it, because it has no key.
    MissingKey,
    /// It is refused, because its plan could not be looked up.
    Unresolved,
    /// There is no answer yet: a resolver looks the customer up, or the store is not in this process.
    Unknown,
}

impl Enforcer {
    /// Decides as if the enforcer was in force, and charges an allowed request. A request that a queue would hold
    /// is allowed.
    pub(in crate::middleware) fn try_out<B>(&self, request: &mut Request<B>) -> Trial {
        let head = Head::of(request);
        match self.listed(&head) {
            Listed::Denied => return Trial::Forbidden,
            Listed::Allowed => return Trial::Exempt,
            Listed::Nowhere if self.is_off() => return Trial::Exempt,
            Listed::Nowhere => {}
        }
        let finding = match self.sources.look(&head) {
            None => None,
            Some(PlanLookup::Known(finding)) => Some(finding),
            Some(PlanLookup::Pending(_)) => return Trial::Unknown,
        };
        let mut charges = Charges::new();
        match self.charge(&head, finding.as_ref(), &mut charges) {
            Ok(()) => {}
            Err(Uncharged::Exempt) => return Trial::Exempt,
            Err(Uncharged::MissingKey(_)) => return Trial::MissingKey,
            Err(Uncharged::Unresolved(_)) => return Trial::Unresolved,
        }
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let answer = self
            .limiter
            .decide(&charges, Wanted::Everything, &mut outcomes);
        if !matches!(answer, Charged::Now(Ok(_))) {
            return Trial::Unknown;
        }
        let is_allowed = outcomes.is_allowed();
        let waits = || {
            let deadline = |timers: &_| deadline(request.headers(), request.extensions(), timers);
            let caller = self.policies.caller(deadline);
            caller.is_some_and(|caller| self.policies.would_wait(&charges, caller, &outcomes))
        };
        let waits = !is_allowed && waits();
        self.policies.convert_to_units(&charges, &mut outcomes);
        if is_allowed {
            let guard = self.guard(&charges, &outcomes, request);
            return Trial::Allowed(self.policies.decision(outcomes), guard);
        }
        let decision = self.policies.decision(outcomes);
        if waits {
            Trial::Waits(decision)
        } else {
            Trial::Denied(decision)
        }
    }
}
