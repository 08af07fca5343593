//! The closures that find the plan or the limits of a request.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::Resolver;
use super::{ChosenPlan, Limits, PlanLookup};
use crate::key::Key;

/// The part of a request that closures read: its key, its head, or the whole request of any service.
pub trait Subject {
    /// What it is for one request.
    type Of<'a>;
}

impl Subject for Key {
    type Of<'a> = Self;
}

/// Returns the name of a request's plan, if the request has one.
pub struct PlanOf<R: Subject>(Arc<ReadPlan<R>>);

type ReadPlan<R> = dyn Fn(&<R as Subject>::Of<'_>, &mut dyn FnMut(Option<&str>)) + Send + Sync;

impl<R: Subject> PlanOf<R> {
    /// Makes it of a closure that returns the name.
    pub fn new<N: AsRef<str>>(
        plan_of: impl Fn(&R::Of<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        Self::passing(
            move |subject: &R::Of<'_>, found: &mut dyn FnMut(Option<&str>)| {
                let name = plan_of(subject);
                found(name.as_ref().map(AsRef::as_ref));
            },
        )
    }

    /// Makes it of a closure that passes the name on.
    pub fn passing(
        read: impl Fn(&R::Of<'_>, &mut dyn FnMut(Option<&str>)) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(read))
    }

    /// Passes the name of the plan on.
    #[inline]
    pub fn read(&self, subject: &R::Of<'_>, found: &mut dyn FnMut(Option<&str>)) {
        (self.0)(subject, found);
    }

    /// Returns the plan of a request: the default plan, if the request has none.
    #[inline]
    pub(crate) fn choose(&self, subject: &R::Of<'_>, limits: &Limits) -> Option<ChosenPlan> {
        let mut plan = None;
        self.read(subject, &mut |name| plan = limits.plan(name));
        plan
    }
}

/// Looks up the customer of a request.
pub struct ResolverOf<R: Subject>(Arc<LookUp<R>>);

type LookUp<R> = dyn Fn(&<R as Subject>::Of<'_>) -> Option<PlanLookup> + Send + Sync;

impl<R: Subject> ResolverOf<R> {
    /// Makes it of a closure that returns what the resolver looks up.
    pub fn new<K>(
        resolver: Resolver<K>,
        customer: impl Fn(&R::Of<'_>) -> Option<K> + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        let look_up = move |subject: &R::Of<'_>| Some(resolver.look(&customer(subject)?));
        Self(Arc::new(look_up))
    }

    /// Answers at once with what is known, for requests that cannot wait.
    pub fn without_waiting(self) -> Self
    where
        R: 'static,
    {
        let now = move |subject: &R::Of<'_>| Some(PlanLookup::Known(self.look(subject)?.now()));
        Self(Arc::new(now))
    }

    /// Looks up the customer of a request.
    #[inline]
    pub fn look(&self, subject: &R::Of<'_>) -> Option<PlanLookup> {
        (self.0)(subject)
    }
}

/// Where the plan or the limits of a request come from.
pub struct Sources<R: Subject> {
    /// The closure that names the plan.
    pub plan_of: Option<PlanOf<R>>,
    /// What looks up the customer.
    pub resolver: Option<ResolverOf<R>>,
}

impl<R: Subject> Sources<R> {
    /// Looks up the customer of a request. Returns `None` if there is no resolver, or no customer.
    #[inline]
    pub fn look(&self, subject: &R::Of<'_>) -> Option<PlanLookup> {
        self.resolver.as_ref()?.look(subject)
    }

    /// Returns the plan of a request, or `None` if no closure names it.
    #[inline]
    pub fn choose(&self, subject: &R::Of<'_>, limits: &Limits) -> Option<ChosenPlan> {
        self.plan_of.as_ref()?.choose(subject, limits)
    }
}

impl<R: Subject> Default for Sources<R> {
    fn default() -> Self {
        Self {
            plan_of: None,
            resolver: None,
        }
    }
}

impl<R: Subject> Clone for Sources<R> {
    fn clone(&self) -> Self {
        Self {
            plan_of: self.plan_of.as_ref().map(|it| PlanOf(Arc::clone(&it.0))),
            resolver: self.resolver.clone(),
        }
    }
}

impl<R: Subject> Clone for ResolverOf<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Subject> fmt::Debug for Sources<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl<R: Subject> fmt::Debug for ResolverOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResolverOf(closure)")
    }
}

impl<R: Subject> fmt::Debug for PlanOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanOf(closure)")
    }
}
