use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::Policies;
use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Charge, Reply, look_through};

/// The future of a decision.
///
/// A decision that is ready has room for several policies, and a move costs as much as the decision
/// itself. So it is checked in place, and moved as rarely as possible.
pub(super) struct Deciding {
    /// Until it has been told.
    names: Option<Arc<Names>>,
    reply: Reply<Result<Outcomes, StoreError>>,
    /// What was asked, if that is to be looked at later.
    asked: Option<(Arc<Policies>, Box<[Charge]>)>,
}

impl Deciding {
    #[inline]
    pub(super) fn new(
        policies: &Arc<Policies>,
        mut reply: Reply<Result<Outcomes, StoreError>>,
        charges: &[Charge],
    ) -> Self {
        let asked = match &mut reply {
            Reply::Now(answer) => {
                look_through(charges, answer);
                if let Ok(outcomes) = answer {
                    policies.look_at_costs(charges, outcomes);
                }
                None
            }
            Reply::Later(_) => Some((Arc::clone(policies), charges.into())),
        };
        Self {
            names: Some(Arc::clone(&policies.names)),
            reply,
            asked,
        }
    }
}

impl Future for Deciding {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            names,
            reply,
            asked,
        } = &mut *self;
        let answer = match reply {
            Reply::Now(Ok(outcomes)) => {
                let Some(names) = names.take() else {
                    return Poll::Pending;
                };
                let outcomes = mem::replace(outcomes, Outcomes::new(Micros::ZERO));
                return Poll::Ready(Ok(Decision::new(names, outcomes)));
            }
            Reply::Now(answer) => {
                let none = Err(StoreError::new(StoreErrorKind::Unavailable));
                mem::replace(answer, none)
            }
            Reply::Later(answer) => {
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
