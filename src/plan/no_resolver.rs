//! Replaces the resolver without feature `resolver`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::StoreErrorKind;

#[derive(Clone, Debug)]
pub(crate) struct Finding(Infallible);

#[derive(Debug)]
#[expect(dead_code, reason = "no value of it can be")]
pub(crate) enum PlanLookup {
    Known(Finding),
    Pending(PendingLookup),
}

#[derive(Debug)]
pub(crate) struct PendingLookup(Infallible);

impl PlanLookup {
    pub(crate) fn now(self) -> Finding {
        match self {
            Self::Known(finding) => finding,
            Self::Pending(PendingLookup(never)) => match never {},
        }
    }
}

impl Finding {
    pub(crate) fn plan(&self) -> Option<&str> {
        match self.0 {}
    }

    pub(crate) fn note(&self, _: u32) -> u32 {
        match self.0 {}
    }

    pub(crate) fn refusal(&self) -> Option<StoreErrorKind> {
        match self.0 {}
    }
}

impl Future for PendingLookup {
    type Output = Finding;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Finding> {
        match self.0 {}
    }
}
