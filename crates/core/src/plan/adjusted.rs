//! Limits that are changed while they are in force.

use std::sync::atomic::{AtomicU64, Ordering};

use super::choice::{Choice, RuleLimit, Rules};
use super::plans::{ChosenPlan, LimitsByPlan};
use crate::algorithm::{Algorithm, Limit};
use crate::decision::WindowSecs;

/// The changed limits, for each plan and policy.
///
/// A charge reads its limit when it is made. So one store of two numbers changes a limit for all threads, and
/// no state changes.
#[derive(Debug)]
pub(crate) struct Adjusted {
    policies: Box<[OfPolicy]>,
}

#[derive(Debug)]
struct OfPolicy {
    own: Algorithm,
    /// A slot for each plan and, last, for requests without one; no slot for a policy whose limit cannot
    /// change.
    slots: Box<[Slot]>,
}

/// The numbers of a limit, the quota in the upper half.
#[derive(Debug)]
struct Slot(AtomicU64);

impl Slot {
    /// Means that the declared limit is in force. No limit has these numbers: see [`Adjusted::put`].
    const DECLARED: u64 = u64::MAX;

    const fn new() -> Self {
        Self(AtomicU64::new(Self::DECLARED))
    }

    #[inline]
    fn limit(&self, declared: Limit) -> Option<Limit> {
        match self.0.load(Ordering::Relaxed) {
            Self::DECLARED => None,
            numbers => {
                let half = |numbers: u64| u32::try_from(numbers).unwrap_or(u32::MAX);
                let size = half(numbers & u64::from(u32::MAX));
                Some(declared.with(half(numbers >> 32), size))
            }
        }
    }
}

impl Adjusted {
    /// `is_fixed` says for which policies the limit cannot change.
    pub(super) fn new<'a>(
        policies: impl Iterator<Item = (&'a Algorithm, bool)>,
        plans: Option<&LimitsByPlan>,
    ) -> Self {
        let count = plans.map_or(0, |plans| plans.names().count()) + 1;
        let policies = policies.map(|(own, is_fixed)| {
            let count = if is_fixed { 0 } else { count };
            OfPolicy {
                own: *own,
                slots: (0..count).map(|_| Slot::new()).collect(),
            }
        });
        Self {
            policies: policies.collect(),
        }
    }

    /// Returns the limit that is in force in place of the choice of this plan.
    #[inline]
    pub(super) fn in_place_of(
        &self,
        plan: Option<ChosenPlan>,
        policy: usize,
        choice: Choice,
    ) -> Choice {
        let Some(its) = self.policies.get(policy) else {
            return choice;
        };
        match its.slot(plan, choice) {
            Some(slot) => its.adjust(slot, choice).unwrap_or(choice),
            None => choice,
        }
    }

    /// Puts a limit in force, or the declared one if there is none. Returns whether the policy can have it.
    pub(super) fn put(
        &self,
        plan: Option<ChosenPlan>,
        policy: usize,
        choice: Choice,
        limit: Option<Limit>,
    ) -> bool {
        let its = self.policies.get(policy);
        let Some(slot) = its.and_then(|its| its.slot(plan, choice)) else {
            return false;
        };
        let numbers = match limit {
            None => Slot::DECLARED,
            Some(limit) => (u64::from(limit.quota()) << 32) | u64::from(limit.size()),
        };
        if limit.is_some() && numbers == Slot::DECLARED {
            return false;
        }
        slot.0.store(numbers, Ordering::Relaxed);
        true
    }

    /// Returns whether the limit of this policy can be changed.
    pub(super) fn has(&self, policy: usize) -> bool {
        let its = self.policies.get(policy);
        its.is_some_and(|its| !its.slots.is_empty())
    }
}

impl OfPolicy {
    /// A policy that no plan mentions has one limit, whatever the plan.
    #[inline]
    fn slot(&self, plan: Option<ChosenPlan>, choice: Choice) -> Option<&Slot> {
        match plan {
            Some(plan) if choice.rule != Rules::OWN => self.slots.get(plan.place()),
            _ => self.slots.last(),
        }
    }

    #[inline]
    fn adjust(&self, slot: &Slot, choice: Choice) -> Option<Choice> {
        let declared = match choice.given {
            RuleLimit::Limit(limit) => limit,
            RuleLimit::Own | RuleLimit::Nothing => self.own.limits()?,
        };
        let limit = slot.limit(declared)?;
        if self.own.limits() == Some(limit) {
            return Some(Choice {
                given: RuleLimit::Own,
                window: None,
                ..choice
            });
        }
        Some(Choice {
            given: RuleLimit::Limit(limit),
            // The window of a bucket depends on both numbers.
            window: self.own.under(limit)?.period().map(WindowSecs::of),
            ..choice
        })
    }
}
