//! The outcomes of one request, as stores write them and layers change them.
//!
//! They are changed in place, because moving them costs as much as a decision.

use super::each::{Each, PolicyRule};
use super::outcome::{DenialEffect, Outcome, Wait, WindowSecs};
use crate::clock::Micros;

/// The time to which a limit applies that is not the policy's own; `None` if it denies every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnWindow(pub(crate) Option<WindowSecs>);

/// The outcomes of all policies that decided one request, in the order of declaration.
///
/// A [store](crate::store) answers with it; a [`Decision`](crate::Decision) adds the names of the policies.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "a request that is denied must not go on"]
pub struct Outcomes {
    at: Micros,
    is_degraded: bool,
    pub(super) each: Each,
}

impl Clone for Outcomes {
    /// Copies the outcomes, and not the unused room.
    fn clone(&self) -> Self {
        Self {
            at: self.at,
            is_degraded: self.is_degraded,
            each: Each::copy_of(&self.each),
        }
    }
}

impl Outcomes {
    /// Creates an empty list for a decision at this moment.
    #[inline]
    pub fn new(at: Micros) -> Self {
        Self {
            at,
            is_degraded: false,
            each: Each::new(),
        }
    }

    /// Marks them as decided without the configured store. Policies that allow every request meanwhile have
    /// no outcome.
    pub fn degrade(&mut self) {
        self.is_degraded = true;
    }

    /// Returns whether they were decided without the configured store.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// Drops the outcomes for which `keeps` is false. It may change the others.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(usize, &mut Outcome) -> bool) {
        self.each
            .retain(|(place, outcome)| keeps(place.policy(), outcome));
    }

    /// Adds the outcome of the policy at the place `policy` in the limiter's list.
    #[inline]
    pub fn push(&mut self, policy: usize, outcome: Outcome) {
        self.each.push((PolicyRule::of(policy), outcome));
    }

    /// Changes the outcome of this policy to that of a blocked key, for the time `left`.
    pub(crate) fn block(&mut self, policy: usize, left: Micros) {
        self.change(policy, |outcome| outcome.blocked_for(left));
    }

    /// Changes the outcome of this policy to that of a refusal with which the penalty blocks the key for this
    /// time.
    pub(crate) fn penalize(&mut self, policy: usize, length: Micros) {
        self.change_each(|of, outcome| {
            if of == policy {
                *outcome = outcome.penalized_for(length);
            }
        });
    }

    /// Puts the request behind others that wait, so that this policy lets it pass after this wait at the earliest.
    pub(crate) fn put_behind(&mut self, policy: usize, wait: Micros) {
        self.change(policy, |outcome| outcome.behind(wait));
    }

    /// Denies a request that this policy would let go on too late, with a wait after which it is in time.
    pub(crate) fn deny(&mut self, policy: usize, retry_after: Micros) {
        self.change(policy, |outcome| outcome.denied(Some(retry_after)));
    }

    /// Lets a request that this policy denies wait for this time at least, if a wait helps.
    pub fn wait_at_least(&mut self, policy: usize, least: Micros) {
        self.change_each(|of, outcome| {
            if of == policy
                && !outcome.is_allowed()
                && let Some(wait) = outcome.retry_micros()
            {
                *outcome = outcome.denied(Some(wait.max(least)));
            }
        });
    }

    /// Changes the outcome of one policy.
    fn change(&mut self, policy: usize, change: impl Fn(Outcome) -> Outcome) {
        self.change_each(|of, outcome| {
            if of == policy {
                *outcome = change(*outcome);
            }
        });
    }

    /// Returns the time after which the limit of a policy is whole again, or the longest one if it has no outcome.
    pub(crate) fn whole_after(&self, policy: usize) -> Micros {
        let mut each = self.each.iter();
        let own = each.find(|(place, _)| place.policy() == policy);
        own.map_or(Micros::LONGEST, |(_, outcome)| outcome.reset_micros())
    }

    /// Changes each outcome.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(usize, &mut Outcome)) {
        for (place, outcome) in &mut *self.each {
            change(place.policy(), outcome);
        }
    }

    #[inline]
    pub fn decided_at(&mut self, at: Micros) {
        self.at = at;
    }

    /// Puts the outcomes into the order in which the policies were declared.
    pub fn put_in_order(&mut self) {
        self.each.sort_unstable_by_key(|(place, _)| place.policy);
    }

    /// Returns whether these are the outcomes of exactly these policies, in this order.
    #[inline]
    pub(crate) fn are_of(&self, policies: impl ExactSizeIterator<Item = usize>) -> bool {
        let are_as_many = self.each.len() == policies.len();
        let mut both = self.each.iter().zip(policies);
        are_as_many && both.all(|((place, _), policy)| place.policy() == policy)
    }

    pub fn at(&self) -> Micros {
        self.at
    }

    /// Returns the outcome of the policy that was declared first among those that were asked.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Outcome> {
        self.each.first().map(|(_, outcome)| outcome)
    }

    /// Returns the outcomes, each with the place of its policy in the limiter's list.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &Outcome)> + Clone {
        let each = self.each.iter();
        each.map(|(place, outcome)| (place.policy(), outcome))
    }

    /// Sets which rule gave this policy its limit, and the time to which that limit applies if it is not the
    /// policy's own. An override stays marked as such.
    pub(crate) fn ruled_by(&mut self, policy: usize, rule: u32, own: Option<OwnWindow>) {
        for (place, outcome) in &mut *self.each {
            if place.policy() == policy && !outcome.is_overridden() {
                place.rule = rule;
                if let Some(OwnWindow(window)) = own {
                    outcome.put_within(window);
                }
            }
        }
    }

    /// Marks the outcomes of soft policies, and of those in shadow.
    pub fn set_effects(&mut self, effect: impl Fn(usize) -> DenialEffect) {
        for (place, outcome) in &mut *self.each {
            outcome.effect = effect(place.policy());
        }
    }

    /// Returns the outcomes of the policies that are not in shadow.
    pub fn in_force(&self) -> Self {
        let mut in_force = self.clone();
        in_force.retain(|_, outcome| !outcome.is_shadow());
        in_force
    }

    /// Returns the outcomes of the policies for which `keeps` is true.
    pub fn of_policies(&self, keeps: impl Fn(usize) -> bool) -> Self {
        let mut some = self.clone();
        some.retain(|policy, _| keeps(policy));
        some
    }

    /// Returns the policies in shadow that would have denied the request.
    pub fn would_refuse(&self) -> impl Iterator<Item = usize> {
        let denied = self
            .iter()
            .filter(|(_, outcome)| outcome.is_shadow() && !outcome.is_allowed());
        denied.map(|(policy, _)| policy)
    }

    /// Returns whether every policy lets the request pass.
    pub fn is_allowed(&self) -> bool {
        !self.each.iter().any(|(_, outcome)| outcome.denies())
    }

    /// Returns the shortest wait after which the same request would pass every policy.
    pub fn retry_after(&self) -> Option<Micros> {
        let (_, outcome) = self.binding()?;
        outcome.retry_micros().filter(|_| outcome.denies())
    }

    /// Returns whether the request is denied because it costs more than a policy ever admits.
    pub fn are_too_large(&self) -> bool {
        let mut denying = self.each.iter().filter(|(_, outcome)| outcome.denies());
        // A limit on concurrency has no time.
        let is_rate = |outcome: &Outcome| outcome.limit > 0 && outcome.effective_window.is_some();
        denying.any(|(_, outcome)| outcome.wait.is_none() && is_rate(outcome))
    }

    /// Returns whether the request is denied because too many are in flight, and would pass when some have ended.
    pub fn are_too_many_at_once(&self) -> bool {
        let at_once = |outcome: &Outcome| {
            outcome.limit > 0 && outcome.effective_window.is_none() && !outcome.is_blocked()
        };
        let mut denying = self.each.iter().filter(|(_, outcome)| outcome.denies());
        !self.are_too_large() && denying.any(|(_, outcome)| at_once(outcome))
    }

    /// Extends the wait of a denied request so that all policies let it pass together, where their limits
    /// depend on the hour: one policy may have room when another has none. `later` returns the outcomes of
    /// these policies after a wait, if no request arrives meanwhile. Both sides know which policies are soft.
    #[cold]
    pub fn wait_for_all(&mut self, mut later: impl FnMut(Micros) -> Self) {
        /// The number of attempts before the request has no wait: as if none of their hours had room for it
        /// at the same time.
        const MOST: usize = 100;
        let Some(shortest) = self.retry_after() else {
            return;
        };
        // The wait of a blocked key lasts to the end of the block, whatever the cost of the request.
        let is_blocked = self
            .binding()
            .is_some_and(|(_, outcome)| outcome.is_blocked());
        let mut waited = shortest;
        let mut next = || {
            let then = later(waited);
            if then.is_allowed() {
                return Some(Some(waited));
            }
            match then.retry_after() {
                None => Some(is_blocked.then_some(waited)),
                Some(more) => {
                    waited = waited.saturating_add(more);
                    None
                }
            }
        };
        let wait = (0..MOST).find_map(|_| next()).flatten();
        if wait != Some(shortest)
            && let Some((binding, _)) = self.binding()
        {
            self.change_each(|policy, outcome| {
                if policy == binding {
                    *outcome = outcome.denied(wait);
                }
            });
        }
    }

    /// Returns how long the request is held, if it is allowed.
    pub(crate) fn delay(&self) -> Micros {
        if !self.is_allowed() {
            return Micros::ZERO;
        }
        let delays = self.each.iter().map(|(_, outcome)| outcome.delay_micros());
        delays.max().unwrap_or(Micros::ZERO)
    }

    /// Returns the policy that binds: for an allowed request the one with the least remaining, for a denied request
    /// the one with the longest wait, where "never" is the longest. Ties go to the policy declared first.
    pub fn binding(&self) -> Option<(usize, &Outcome)> {
        let (place, outcome) = self.binding_place()?;
        Some((place.policy(), outcome))
    }

    pub(super) fn binding_place(&self) -> Option<&(PolicyRule, Outcome)> {
        if self.is_allowed() {
            // A soft policy denies nothing, so it binds only if all policies are soft. A policy in shadow
            // never binds.
            let in_force = self.each.iter().filter(|(_, outcome)| !outcome.is_shadow());
            return in_force.min_by_key(|(_, outcome)| (outcome.is_soft(), outcome.remaining));
        }
        let denied = self.each.iter().filter(|(_, outcome)| outcome.denies());
        // Not `max_by_key`, which returns the last of several equals.
        denied.min_by_key(|(_, outcome)| {
            let wait = outcome.wait.map_or(u64::MAX, Wait::get);
            std::cmp::Reverse(wait)
        })
    }
}
