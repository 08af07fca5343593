//! Mistakes in a limiter's policies that only requests reveal.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::never_binds::Pointless;
use crate::decision::{Names, Outcomes};
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::policy::Policy;
use crate::store::Charge;

const COSTS_TOO_MUCH: Diagnostic = Diagnostic::new(
    "TRL016",
    "",
    "a request costs more than the policy's limit, so that it is denied however long its client waits",
    "let it cost less, or raise what the policy admits at one instant: the limit of a window, the burst or the capacity of a bucket",
);

/// The mistakes that were found in a limiter's policies so far.
pub(crate) struct Mistakes {
    never_bind: Option<NeverBind>,
    /// The least limit of a policy, as the store has it. A charge of this cost or less never costs too much.
    least: u32,
    /// The same in units: that of a request.
    least_units: u32,
    /// For each policy, whether the log has reported a request that costs too much.
    costs_too_much: Box<[AtomicBool]>,
}

/// Detects policies that never bind, if all are charged for the same key at the same cost.
struct NeverBind {
    subjects: Vec<Pointless>,
    /// How many requests charged all policies alike.
    alike: AtomicU32,
    /// Whether some requests did not.
    apart: AtomicBool,
}

impl NeverBind {
    /// A limiter that is used in both ways is used in both before this number of requests.
    const ENOUGH: u32 = 100;

    fn of(policies: &[Policy]) -> Option<Self> {
        let scopes: Vec<_> = policies.iter().map(Policy::scope).collect();
        let subjects = Pointless::find(&scopes);
        (!subjects.is_empty()).then(|| Self {
            subjects,
            alike: AtomicU32::new(0),
            apart: AtomicBool::new(false),
        })
    }

    #[cold]
    fn note_alike(&self) {
        let is_decided = self.alike.load(Ordering::Relaxed) >= Self::ENOUGH;
        if is_decided || self.apart.load(Ordering::Relaxed) {
            return;
        }
        if self.alike.fetch_add(1, Ordering::Relaxed) + 1 == Self::ENOUGH {
            self.subjects.iter().for_each(Pointless::warn);
        }
    }
}

impl Mistakes {
    /// Watches the costs alone, for a layer, which detects policies that never bind by itself.
    pub(crate) fn of(policies: &[Policy]) -> Self {
        let limits = policies.iter().filter(|policy| !policy.is_soft());
        let limits = limits.filter_map(|policy| policy.algorithm().limit());
        let least = limits.filter(|limit| *limit > 0).min().unwrap_or(u32::MAX);
        Self {
            never_bind: None,
            least,
            least_units: least,
            // A ceiling on the cost is intended.
            costs_too_much: policies
                .iter()
                .map(|policy| AtomicBool::new(policy.terms().most().is_some()))
                .collect(),
        }
    }

    /// Compares the costs of charges with the limits in parts, as the store has them.
    pub(crate) fn of_parts(self, policies: &[Policy]) -> Self {
        Self {
            never_bind: self.never_bind,
            least_units: self.least_units,
            ..Self::of(policies)
        }
    }

    /// Also watches whether a policy never binds. That depends on the keys and costs of the requests.
    pub(crate) fn watch_whether_all_bind(&mut self, policies: &[Policy]) {
        self.never_bind = NeverBind::of(policies);
    }

    /// Records a request that charges all policies for one key at one cost.
    #[inline]
    pub(crate) fn note_alike(&self) {
        if let Some(never_bind) = &self.never_bind {
            never_bind.note_alike();
        }
    }

    /// Records a request that charges named policies, each for a key and at a cost of its own.
    pub(crate) fn note_apart(&self) {
        if let Some(never_bind) = &self.never_bind {
            never_bind.apart.store(true, Ordering::Relaxed);
        }
    }

    /// Checks whether these charges were denied because one of them exceeds its limit.
    #[inline]
    pub(crate) fn look_at_costs(&self, names: &Names, charges: &[Charge], outcomes: &Outcomes) {
        if charges.iter().any(|charge| charge.cost > self.least) && !outcomes.is_allowed() {
            self.look_at_large_costs(names, charges, outcomes);
        }
    }

    /// Returns whether a request of this cost under all policies may exceed a limit.
    #[inline]
    pub(crate) fn may_cost_too_much(&self, cost: u32) -> bool {
        cost > self.least_units
    }

    #[cold]
    #[inline(never)]
    fn look_at_large_costs(&self, names: &Names, charges: &[Charge], outcomes: &Outcomes) {
        for (policy, outcome) in outcomes.iter() {
            let mut own = charges.iter().filter(|charge| charge.policy == policy);
            let cost = own.next().map_or(0, |charge| charge.cost);
            // A limit of 0 closes a policy, and a limit other than the policy's own is intended for its
            // requests.
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
