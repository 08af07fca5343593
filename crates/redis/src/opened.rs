//! A policy as the store has opened it, and its rule in calls.

use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::__internal::Lua;
use tower_ratelimit_core::__internal::NamedPenalty;
use tower_ratelimit_core::algorithm::{Algorithm, Limit};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::policy::Policy;
use tower_ratelimit_core::store::Charge;
pub(super) use tower_ratelimit_core::store::Charges;

/// A policy: its algorithm, and the suffix of the keys of its states.
pub(super) struct OpenedPolicy {
    pub(super) algorithm: Algorithm,
    pub(super) lua: Option<Lua>,
    pub(super) suffix: String,
    pub(super) penalty: Option<NamedPenalty>,
    /// What the rule of shares has to know, if the limit is divided among tenants: see [`Allotment::scale`].
    pub(super) scale: Option<[u64; 3]>,
    /// What each key of the policy below is guaranteed of the limit, if anything is.
    pub(super) guarantee: Option<Guarantee>,
    /// Whether two requests of one key may have different limits.
    pub(super) limits_differ: bool,
    is_settled: AtomicBool,
}

/// What a policy guarantees to each key of the one below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantee {
    /// The policy below.
    pub(super) child: usize,
    /// The units of a period.
    pub(super) units: u32,
}

impl OpenedPolicy {
    pub(super) fn new(policy: &Policy, suffix: String) -> Self {
        Self {
            algorithm: *policy.algorithm(),
            lua: policy.algorithm().lua(),
            suffix,
            penalty: policy.named_penalty(),
            scale: Allotment::scale(policy),
            guarantee: None,
            limits_differ: policy.limits_differ(),
            is_settled: AtomicBool::new(policy.is_settled()),
        }
    }

    /// Adds what the policy guarantees to the keys of this one, in units of a period.
    pub(super) fn guaranteeing(self, below: Option<(usize, u32)>) -> Self {
        Self {
            guarantee: below.map(|(child, units)| Guarantee { child, units }),
            ..self
        }
    }

    /// Returns whether the rate of the limit is divided among tenants.
    pub(super) fn divides_rates(&self) -> bool {
        self.scale.is_some() && !matches!(self.algorithm, Algorithm::Concurrency(_))
    }

    /// Returns whether the slots of the limit are divided among tenants.
    pub(super) fn divides_slots(&self) -> bool {
        self.scale.is_some() && matches!(self.algorithm, Algorithm::Concurrency(_))
    }

    #[cfg(test)]
    pub(super) fn of(algorithm: Algorithm) -> Self {
        Self::new(&Policy::new("a", algorithm), String::new())
    }

    /// Notes that requests are charged after the fact, or get charges back: other nodes probably do the same.
    pub(super) fn note_settled(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Returns the algorithm under the limit of a charge, if that differs from the policy's.
    pub(super) fn under(&self, charge: &Charge) -> Option<Algorithm> {
        let limit = charge
            .limit
            .filter(|limit| self.algorithm.limits() != Some(*limit))?;
        self.algorithm.under(limit)
    }

    /// Returns the limit of a charge, if it differs from the policy's and the policy can have it.
    pub(super) fn limit_of(&self, charge: &Charge) -> LimitOfCharge {
        let limit = self.under(charge).and_then(|algorithm| algorithm.limits());
        limit.map_or(LimitOfCharge::Policys, LimitOfCharge::Other)
    }

    /// Returns the rule under the limit of a charge.
    pub(super) fn rule(&self, charge: &Charge) -> Option<Lua> {
        match self.under(charge) {
            Some(algorithm) => algorithm.lua(),
            None => self.lua,
        }
    }
}

/// A policy, and the limit of a charge beside it. Each goes into a call once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) policy: usize,
    pub(super) limit: LimitOfCharge,
}

/// The limit under which a charge is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LimitOfCharge {
    /// That of its policy.
    Policys,
    /// Another one.
    Other(Limit),
    /// The numbers of the slots that it takes.
    Slots([u64; 4]),
}

impl Rule {
    fn lua(&self, policies: &[OpenedPolicy]) -> Option<Lua> {
        let policy = policies.get(self.policy)?;
        match self.limit {
            LimitOfCharge::Policys | LimitOfCharge::Slots(_) => policy.lua,
            LimitOfCharge::Other(limit) => policy.algorithm.under(limit)?.lua(),
        }
    }

    /// Returns the name of the rule in Lua, and its numbers at this moment or now.
    pub(super) fn name_and_numbers(
        &self,
        policies: &[OpenedPolicy],
        moment: Option<Micros>,
    ) -> (&'static str, [u64; 4]) {
        let lua = self.lua(policies);
        let at = || moment.unwrap_or_else(Micros::by_this_node);
        let numbers = match self.limit {
            LimitOfCharge::Slots(numbers) => numbers,
            _ => lua.map_or([0; 4], |lua| lua.numbers_at(at)),
        };
        (lua.map_or("", |lua| lua.name), numbers)
    }

    /// Returns the hours on which the limit depends, if it does.
    pub(super) fn hours(&self, policies: &[OpenedPolicy], moment: Option<Micros>) -> String {
        let at = || moment.unwrap_or_else(Micros::by_this_node);
        let lua = self.lua(policies);
        lua.map_or_else(String::new, |lua| lua.hours_at(at))
    }
}

/// Returns these rules, each once.
pub(super) fn rules_of(all: impl Iterator<Item = Rule>) -> SmallVec<[Rule; 4]> {
    let mut rules: SmallVec<[Rule; 4]> = SmallVec::new();
    for rule in all {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// Returns the place of a rule in a call.
pub(super) fn place(rules: &[Rule], rule: &Rule) -> usize {
    let place = rules.iter().position(|known| known == rule);
    place.map_or(0, |place| place + 1)
}
