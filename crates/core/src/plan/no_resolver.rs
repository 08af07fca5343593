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

/// What a lookup has found.
#[derive(Clone, Debug)]
pub struct Finding(Infallible, Resolution);

/// The answer of a resolver.
#[derive(Debug)]
pub enum PlanLookup {
    /// What is known already.
    Known(Finding),
    /// A lookup.
    Pending(PendingLookup),
}

/// A lookup that has not ended.
#[derive(Debug)]
pub struct PendingLookup(Infallible);

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
    /// Returns what is known.
    pub fn now(self) -> Finding {
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

    /// Returns why requests are refused.
    pub fn refusal(&self) -> Option<StoreErrorKind> {
        match self.0 {}
    }
}

impl Future for PendingLookup {
    type Output = Finding;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Finding> {
        match self.0 {}
    }
}
