use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Charge, Reply, answered, look_through};

/// A decision that is there, or that will be.
///
/// An answer that is there has room for several policies, and to move it costs as much as to make it. So it is
/// looked through where it stands, and moved no more often than it has to be.
pub(super) struct Deciding {
    /// Until it has been told.
    names: Option<Arc<Names>>,
    reply: Reply<Result<Outcomes, StoreError>>,
    /// What was asked, if that is to be looked at later.
    charges: Box<[Charge]>,
}

impl Deciding {
    #[inline]
    pub(super) fn new(
        names: Arc<Names>,
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
            // It has been told before.
            None => Poll::Pending,
        }
    }
}
