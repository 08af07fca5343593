//! Mistakes in a limiter's policies that only the questions show.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::decision::{Names, Outcomes};
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::policy::{Pointless, Policy, Unkeyed, those_that_never_bind};
use crate::store::Charge;

const COSTS_TOO_MUCH: Diagnostic = Diagnostic::new(
    "TRL016",
    "",
    "a request costs more than the policy's limit, so that it is denied however long its client waits",
    "let it cost less, or raise what the policy admits at one instant: the limit of a window, the burst or the capacity of a bucket",
);

/// What has been seen of the mistakes that a limiter's policies may have.
pub(super) struct Mistakes {
    never_bind: Option<NeverBind>,
    /// The least limit of a policy. No request of this cost or less costs too much.
    least: u32,
    /// For each policy, whether the log has said that a request costs too much.
    costs_too_much: Box<[AtomicBool]>,
}

/// Policies that never bind, if all are asked about the same key at the same cost.
struct NeverBind {
    subjects: Vec<Pointless>,
    /// How many questions asked all policies alike.
    asked_alike: AtomicU32,
    /// Whether some were not.
    asked_apart: AtomicBool,
}

impl NeverBind {
    /// A limiter that is asked in two ways is asked in both before this.
    const ENOUGH: u32 = 100;

    fn of(policies: &[Policy]) -> Option<Self> {
        let scopes: Vec<_> = policies.iter().map(Policy::<Unkeyed>::scope).collect();
        let subjects = those_that_never_bind(&scopes);
        (!subjects.is_empty()).then(|| Self {
            subjects,
            asked_alike: AtomicU32::new(0),
            asked_apart: AtomicBool::new(false),
        })
    }

    #[cold]
    fn are_asked_alike(&self) {
        let is_decided = self.asked_alike.load(Ordering::Relaxed) >= Self::ENOUGH;
        if is_decided || self.asked_apart.load(Ordering::Relaxed) {
            return;
        }
        if self.asked_alike.fetch_add(1, Ordering::Relaxed) + 1 == Self::ENOUGH {
            self.subjects.iter().for_each(Pointless::warn);
        }
    }
}

impl Mistakes {
    /// Watches the costs alone, for a layer, which finds policies that never bind by itself.
    pub(super) fn of_costs(policies: &[Policy]) -> Self {
        let limits = policies.iter().filter(|policy| !policy.is_soft());
        let limits = limits.filter_map(|policy| policy.algorithm().limit());
        Self {
            never_bind: None,
            least: limits.filter(|limit| *limit > 0).min().unwrap_or(u32::MAX),
            // A ceiling on the cost is meant.
            costs_too_much: policies
                .iter()
                .map(|policy| AtomicBool::new(policy.terms().most().is_some()))
                .collect(),
        }
    }

    /// Compares costs with the limits in parts, as the store has them.
    pub(super) fn of_parts(self, policies: &[Policy]) -> Self {
        Self {
            never_bind: self.never_bind,
            ..Self::of_costs(policies)
        }
    }

    /// Looks too whether a policy never binds. What each is asked is not known before it is, and so the
    /// limiter is watched.
    pub(super) fn look_whether_all_bind(&mut self, policies: &[Policy]) {
        self.never_bind = NeverBind::of(policies);
    }

    /// All policies are asked about one key at one cost.
    #[inline]
    pub(super) fn are_asked_alike(&self) {
        if let Some(never_bind) = &self.never_bind {
            never_bind.are_asked_alike();
        }
    }

    /// Policies are asked by name, each about a key and at a cost of its own.
    pub(super) fn are_asked_apart(&self) {
        if let Some(never_bind) = &self.never_bind {
            never_bind.asked_apart.store(true, Ordering::Relaxed);
        }
    }

    /// Looks whether these charges were denied since one of them is above its limit.
    #[inline]
    pub(super) fn look_at_costs(&self, names: &Names, charges: &[Charge], outcomes: &Outcomes) {
        if charges.iter().any(|charge| charge.cost > self.least) && !outcomes.is_allowed() {
            self.look_at_large_costs(names, charges, outcomes);
        }
    }

    /// Whether that can be, of a request at this cost under all policies.
    #[inline]
    pub(super) fn may_cost_too_much(&self, cost: u32) -> bool {
        cost > self.least
    }

    #[cold]
    #[inline(never)]
    fn look_at_large_costs(&self, names: &Names, charges: &[Charge], outcomes: &Outcomes) {
        for (policy, outcome) in outcomes.iter() {
            let mut asked = charges.iter().filter(|charge| charge.policy == policy);
            let cost = asked.next().map_or(0, |charge| charge.cost);
            // A limit of 0 closes a policy, and another limit than the policy's own is meant for its requests.
            let is_meant =
                outcome.limit() == 0 || outcome.has_another_limit() || outcome.is_blocked();
            if !outcome.denies() || is_meant || cost <= outcome.limit() {
                continue;
            }
            if let (Some(said), Some(name)) = (self.costs_too_much.get(policy), names.name(policy))
                && !said.load(Ordering::Relaxed)
                && !said.swap(true, Ordering::Relaxed)
            {
                warn_once_of(&COSTS_TOO_MUCH, format!("policy {name:?}"));
            }
        }
    }
}
