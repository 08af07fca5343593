//! Decides requests by a limiter, and converts its rulings into answers.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::Refused;
use super::layer::{Kept, Rules};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::limiter::{Asking, Caller, HoldAnswer, Question, Resumed, Ruled, require_plan};
use crate::line::{self, Answering, Holding};
use crate::observe::Request;
use crate::plan::{Finding, PlanLookup};
use crate::store::{Charge, Wanted};

/// The ruling on a request.
pub(super) type Ruling<Q, T, E> = line::Ruling<Rules<Q, T, E>>;

/// A request that waits for a ruling, and the rules by which it gets one.
type Waiting<Q, T, E> = (Box<Question>, Arc<Rules<Q, T, E>>);

impl<Q, T, E> Rules<Q, T, E> {
    pub(super) fn ask(self: &Arc<Self>, request: &Q) -> Ruling<Q, T, E> {
        match self.look(request) {
            None => self.ask_as(request, None),
            Some(PlanLookup::Known(finding)) => self.ask_as(request, Some(&finding)),
            Some(PlanLookup::Pending(coming)) => self.wait(Question::of_plan(coming)),
        }
    }

    /// Rules on a request with this finding of a resolver.
    fn ask_as(self: &Arc<Self>, request: &Q, finding: Option<&Finding>) -> Ruling<Q, T, E> {
        if let Some(Err(error)) = finding.map(require_plan) {
            self.limiter.count_failed(&[]);
            return Ruling::Refuse(self.refuse(Refused::Store(error)));
        }
        let charges = self.read(request, finding);
        if charges.is_empty() {
            self.limiter.counters().request(Request::Exempt);
            return Ruling::Pass(None);
        }
        let caller = self.limiter.may_hold().then(|| Caller {
            arrived: self.limiter.timers().now(),
            deadline: None,
        });
        let asking = Asking {
            wanted: Wanted::Everything,
            caller,
            hold_answer: self.settles().then(HoldAnswer::new),
        };
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let ruled = self.limiter.rule(&charges, asking, &mut outcomes);
        self.answer(ruled, &charges, &outcomes)
    }

    /// Converts the ruling of the limiter.
    fn answer(
        self: &Arc<Self>,
        ruled: Ruled,
        charges: &[Charge],
        outcomes: &Outcomes,
    ) -> Ruling<Q, T, E> {
        let refused = match ruled {
            Ruled::Untold => return Ruling::Pass(None),
            Ruled::Later(question) => return self.wait(question),
            Ruled::Allowed(turn) => {
                let reported = self.limiter.reported(charges, outcomes);
                self.limiter.count_held(charges, &reported, |charge| {
                    charge.is_of_rate() && self.keeps(charge)
                });
                let kept = self.hold(charges, outcomes);
                return match turn {
                    None => Ruling::Pass(kept),
                    Some(turn) => Ruling::Hold(turn, kept),
                };
            }
            // A policy in shadow does not refuse without its store either.
            Ruled::Failed(_) if charges.iter().all(Charge::is_shadow) => {
                self.limiter.count_failed(charges);
                return Ruling::Pass(None);
            }
            Ruled::Failed(error) => {
                self.limiter.count_failed(charges);
                Refused::Store(error)
            }
            Ruled::NoTimer => {
                self.limiter.count_failed(charges);
                Refused::NoTimer
            }
            Ruled::Denied => {
                let reported = self.limiter.reported(charges, outcomes);
                self.limiter.count_decided(charges, &reported);
                Refused::OverLimit(self.limiter.decision(reported.into_owned()))
            }
        };
        Ruling::Refuse(self.refuse(refused))
    }

    fn wait(self: &Arc<Self>, question: Box<Question>) -> Ruling<Q, T, E> {
        Ruling::Wait((question, Arc::clone(self)))
    }
}

impl<Q, T, E> Holding for Rules<Q, T, E> {
    type Awaited = Waiting<Q, T, E>;
    type Kept = Option<Box<Kept<Q, T, E>>>;
    type Refusal = Result<T, E>;

    fn waits_its_turn((question, _): &Self::Awaited) -> bool {
        question.waits_its_turn()
    }
}

impl<S: Service<Q>, Q> Answering<S, Q> for Rules<Q, S::Response, S::Error> {
    type Output = Result<S::Response, S::Error>;

    fn resume(
        (question, rules): &mut Self::Awaited,
        request: &mut Q,
        cx: &mut Context<'_>,
    ) -> Poll<Ruling<Q, S::Response, S::Error>> {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let resumed = ready!(question.poll(&rules.limiter, &mut outcomes, cx));
        Poll::Ready(match resumed {
            Resumed::Found(finding) => rules.ask_as(request, Some(&finding)),
            Resumed::Ruled(ruling) => rules.answer(ruling, question.charges(), &outcomes),
        })
    }

    fn answered(
        kept: &mut Self::Kept,
        answer: Result<S::Response, S::Error>,
    ) -> Result<S::Response, S::Error> {
        if let Some(mut kept) = kept.take() {
            let (held, rules) = &mut *kept;
            rules.settle(held, answer.as_ref());
        }
        answer
    }

    fn failed(_: Self::Kept, error: S::Error) -> Self::Output {
        Err(error)
    }

    fn refused(refusal: Self::Refusal) -> Self::Output {
        refusal
    }
}
