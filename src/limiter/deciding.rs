use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::decision::{Decision, Outcomes};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Charge, Reply, answered, look_through};

/// A decision that is there, or that will be.
///
/// An answer that is there has room for several policies. To move it would cost more than to make it, so it
/// stays where it stands, and what is in it is copied once.
pub(super) struct Deciding {
    /// Until it has been told.
    names: Option<Arc<[String]>>,
    reply: Reply<Result<Outcomes, StoreError>>,
    /// What was asked, if that is to be looked at later.
    charges: Box<[Charge]>,
}

impl Deciding {
    pub(super) fn new(
        names: Arc<[String]>,
        reply: Reply<Result<Outcomes, StoreError>>,
        charges: &[Charge],
    ) -> Self {
        let mut deciding = Self {
            names: Some(names),
            reply,
            charges: Box::default(),
        };
        match &mut deciding.reply {
            Reply::Now(answer) => look_through(charges, answer),
            Reply::Later(_) => deciding.charges = charges.into(),
        }
        deciding
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
                let decision = names
                    .take()
                    .map(|names| Decision::new(names, outcomes.clone()));
                return decision.map_or(Poll::Pending, |decision| Poll::Ready(Ok(decision)));
            }
            Reply::Now(answer) => {
                let none = Err(StoreError::new(StoreErrorKind::Unavailable));
                std::mem::replace(answer, none)
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
