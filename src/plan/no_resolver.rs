//! What stands in the place of the resolver in a program without feature `resolver`: the same names, of which there are no
//! values. So the compiler leaves out the code for resolvers.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::choice::{Choice, Subject};
use crate::decision::{Resolution, ResolvedNames};
use crate::error::StoreErrorKind;

/// Finds plans or limits by a lookup. The program has none: it is built without feature `resolver`.
#[derive(Clone, Debug)]
pub struct Resolver<K>(Infallible, PhantomData<K>);

#[derive(Clone, Debug)]
pub(crate) struct Finding(Infallible, Resolution);

#[derive(Debug)]
#[expect(dead_code, reason = "no value of it can be")]
pub(crate) enum PlanLookup {
    Known(Finding),
    Pending(PendingLookup),
}

#[derive(Debug)]
pub(crate) struct PendingLookup(Infallible);

#[derive(Debug)]
pub(super) struct OwnLimits(Infallible);

/// Made for a limiter that takes the limits of a resolver, wherever its requests come from.
#[derive(Debug)]
pub(super) struct ResolvedPolicies;

impl<K> Resolver<K> {
    pub(crate) fn look(&self, _: &K) -> PlanLookup {
        match self.0 {}
    }
}

impl OwnLimits {
    pub(super) fn warn_ignored() {}

    pub(super) fn choice(&self, _: &ResolvedPolicies, _: usize) -> Option<Choice> {
        match self.0 {}
    }
}

impl ResolvedPolicies {
    pub(super) fn new(_: &[Subject<'_>], _: NonZeroU32, _: (usize, Arc<ResolvedNames>)) -> Self {
        Self
    }
}

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

    pub(super) fn limits(&self) -> Option<&OwnLimits> {
        match self.0 {}
    }

    pub(crate) fn note(&self, rule: u32) -> u32 {
        self.1.note(rule)
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
