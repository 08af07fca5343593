//! Decides requests by a limiter, and tells its verdicts.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::Refused;
use super::layer::{CallGuard, Rules};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::limiter::{
    ChargedRequest, Denial, LimiterVerdict, Numbers, PendingDecision, require_plan,
};
use crate::line::{Answering, Holding, LayerVerdict, Verdict};
use crate::observe::Request;
use crate::plan::{Finding, PlanLookup};
use crate::store::{Charge, Wanted};

/// The verdict on a request.
pub(super) type LimitVerdict<Q, T, E> = LayerVerdict<Rules<Q, T, E>>;

/// A request without a verdict, and the rules by which it gets one.
type Waiting<Q, T, E> = (Box<PendingDecision>, Arc<Rules<Q, T, E>>);

impl<Q, T, E> Rules<Q, T, E> {
    pub(super) fn ask(self: &Arc<Self>, request: &Q) -> LimitVerdict<Q, T, E> {
        match self.look(request) {
            None => self.ask_as(request, None),
            Some(PlanLookup::Known(finding)) => self.ask_as(request, Some(&finding)),
            Some(PlanLookup::Pending(coming)) => self.wait(PendingDecision::of_plan(coming)),
        }
    }

    /// Decides a request with this finding of a resolver.
    fn ask_as(self: &Arc<Self>, request: &Q, finding: Option<&Finding>) -> LimitVerdict<Q, T, E> {
        if let Some(Err(error)) = finding.map(require_plan) {
            self.limiter.policies().counters().failed([]);
            return Verdict::Refuse(self.refuse(Refused::Store(error)));
        }
        let charges = self.read(request, finding);
        if charges.is_empty() {
            self.limiter.policies().counters().request(Request::Exempt);
            return Verdict::Pass(None);
        }
        let to_decide = ChargedRequest {
            charges: &charges,
            wanted: Wanted::Everything,
            caller: self.limiter.policies().caller(|_| None),
            is_settled: self.settles(),
        };
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let verdict = self.limiter.rule(to_decide, &mut outcomes);
        self.answer(verdict, &charges, outcomes)
    }

    /// Tells the verdict of the limiter.
    fn answer(
        self: &Arc<Self>,
        verdict: LimiterVerdict,
        charges: &[Charge],
        outcomes: Outcomes,
    ) -> LimitVerdict<Q, T, E> {
        match verdict {
            Verdict::Pass(Numbers::Unknown) => Verdict::Pass(None),
            Verdict::Pass(Numbers::Known) => Verdict::Pass(self.guard(charges, &outcomes)),
            Verdict::Hold(turn, _) => Verdict::Hold(turn, self.guard(charges, &outcomes)),
            Verdict::Refuse(denial) => Verdict::Refuse(self.refuse(match denial {
                Denial::OverLimit => Refused::OverLimit(self.limiter.policies().decision(outcomes)),
                Denial::Store(error) => Refused::Store(error),
                Denial::NoTimer => Refused::NoTimer,
            })),
            Verdict::Pending(pending) => self.wait(pending),
        }
    }

    fn wait(self: &Arc<Self>, pending: Box<PendingDecision>) -> LimitVerdict<Q, T, E> {
        Verdict::Pending((pending, Arc::clone(self)))
    }
}

impl<Q, T, E> Holding for Rules<Q, T, E> {
    type Pending = Waiting<Q, T, E>;
    type Admission = Option<Box<CallGuard<Q, T, E>>>;
    type Refusal = Result<T, E>;
    type Within = ();

    fn enter(_: &Self::Admission) {}

    fn waits_its_turn((pending, _): &Self::Pending) -> bool {
        pending.waits_its_turn()
    }
}

impl<S: Service<Q>, Q> Answering<S, Q> for Rules<Q, S::Response, S::Error> {
    type Output = Result<S::Response, S::Error>;

    fn resume(
        (pending, rules): &mut Self::Pending,
        request: &mut Q,
        cx: &mut Context<'_>,
    ) -> Poll<LimitVerdict<Q, S::Response, S::Error>> {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let verdict = ready!(pending.poll(&rules.limiter, &mut outcomes, cx));
        Poll::Ready(match verdict {
            Ok(verdict) => rules.answer(verdict, pending.charges(), outcomes),
            Err(finding) => rules.ask_as(request, Some(&finding)),
        })
    }

    fn answered(
        guard: &mut Self::Admission,
        answer: Result<S::Response, S::Error>,
    ) -> Result<S::Response, S::Error> {
        if let Some(mut guard) = guard.take() {
            let (reservation, rules) = &mut *guard;
            rules.settle(reservation, answer.as_ref());
        }
        answer
    }

    fn failed(_: Self::Admission, error: S::Error) -> Self::Output {
        Err(error)
    }

    fn refused(refusal: Self::Refusal) -> Self::Output {
        refusal
    }
}
