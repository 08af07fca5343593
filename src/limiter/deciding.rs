use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::Policies;
use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Charge, Charged, Ledger, Wanted, check};

/// The future of a decision.
///
/// A decision has room for several policies, and moving it costs as much as the decision itself. So it is
/// made and checked in place, and moved as rarely as possible.
pub(super) struct Deciding {
    /// `None` once the decision has been returned.
    names: Option<Arc<Names>>,
    charged: Charged,
    /// The outcomes, if they are ready.
    outcomes: Outcomes,
    /// The charges, if they have to be checked later.
    asked: Option<(Arc<Policies>, Box<[Charge]>)>,
}

impl Deciding {
    #[inline]
    pub(super) fn new<L: Ledger + ?Sized>(
        policies: &Arc<Policies>,
        ledger: &L,
        charges: &[Charge],
    ) -> Self {
        let mut this = Self {
            names: Some(Arc::clone(&policies.names)),
            charged: Charged::Now(Ok(false)),
            outcomes: Outcomes::new(Micros::ZERO),
            asked: None,
        };
        this.charged = ledger.charge(charges, Wanted::Everything, &mut this.outcomes);
        match this.charged {
            Charged::Now(Ok(_)) => match check(charges, &mut this.outcomes) {
                Ok(()) => {
                    policies.store.answered();
                    policies.look_at_costs(charges, &this.outcomes);
                    policies
                        .prices
                        .convert_to_units(charges, &mut this.outcomes);
                    policies.count_decided(charges, &this.outcomes);
                }
                Err(error) => {
                    policies.store_has_failed(&error);
                    policies.count_failed(charges);
                    this.charged = Charged::Now(Err(error));
                }
            },
            Charged::Now(Err(ref error)) => {
                policies.store_has_failed(error);
                policies.count_failed(charges);
            }
            Charged::Later(_) => this.asked = Some((Arc::clone(policies), charges.into())),
        }
        this
    }

    /// Waits for this future, which checks the charges itself.
    pub(super) fn later(
        policies: &Policies,
        decided: impl Future<Output = Result<Outcomes, StoreError>> + Send + 'static,
    ) -> Self {
        Self {
            names: Some(Arc::clone(&policies.names)),
            charged: Charged::Later(Box::pin(decided)),
            outcomes: Outcomes::new(Micros::ZERO),
            asked: None,
        }
    }
}

impl Future for Deciding {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            names,
            charged,
            outcomes,
            asked,
        } = &mut *self;
        let answer = match charged {
            Charged::Now(Ok(_)) => {
                let Some(names) = names.take() else {
                    return Poll::Pending;
                };
                let outcomes = mem::replace(outcomes, Outcomes::new(Micros::ZERO));
                return Poll::Ready(Ok(Decision::new(names, outcomes)));
            }
            Charged::Now(answer) => {
                let none = Err(StoreError::new(StoreErrorKind::Unavailable));
                mem::replace(answer, none).map(|_| Outcomes::new(Micros::ZERO))
            }
            Charged::Later(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                match asked {
                    Some((policies, charges)) => policies.answered(charges, answer),
                    None => answer,
                }
            }
        };
        match names.take() {
            Some(names) => Poll::Ready(answer.map(|outcomes| Decision::new(names, outcomes))),
            // The decision has been returned before.
            None => Poll::Pending,
        }
    }
}
