use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Charge, Reply, answered, look_through};

/// The future of a decision.
///
/// A decision that is ready has room for several policies, and a move costs as much as the decision
/// itself. So it is checked in place, and moved as rarely as possible.
pub(super) struct Deciding {
    /// `None` once the decision has been returned.
    names: Option<Arc<[String]>>,
    reply: Reply<Result<Outcomes, StoreError>>,
    /// The charges, if the answer is still to be checked against them.
    charges: Box<[Charge]>,
}

impl Deciding {
    #[inline]
    pub(super) fn new(
        names: Arc<[String]>,
        mut reply: Reply<Result<Outcomes, StoreError>>,
        charges: &[Charge],
    ) -> Self {
        let charges = match &mut reply {
            Reply::Now(answer) => {
                look_through(charges, answer);
                Box::default()
            }
            Reply::Later(_) => charges.into(),
        };
        Self {
            names: Some(names),
            reply,
            charges,
        }
    }
}

impl Future for Deciding {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            names,
            reply,
            charges,
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
                answered(charges, answer)
            }
        };
        match names.take() {
            Some(names) => Poll::Ready(answer.map(|outcomes| Decision::new(names, outcomes))),
            // The decision has been returned before.
            None => Poll::Pending,
        }
    }
}
