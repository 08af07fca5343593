//! The counters of a limiter.
//!
//! Each thread has counters of its own, which no other thread writes to. So an addition is a load and a
//! store. A reader adds up the counters of all threads.

use std::array;
use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::penalty::penalized;
use super::queue::Queue;
use super::refusal::{LastLogged, Refusal, log, may_be_logged};
use super::rows::{Row, Rows, Sums};
use super::slot::{OWN, SHARED, slot};
use super::snapshot::{Count, QueueStats, Request};
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};

/// Counts requests, as a whole and under each policy.
pub struct Counters {
    policies: Box<[Metered]>,
    /// One list of rows for each thread, made when the thread first counts.
    slots: Box<[OnceLock<Box<[Row]>>; SHARED + 1]>,
}

/// A policy whose requests are counted.
pub(crate) struct Metered {
    name: Arc<str>,
    /// `None` if no request waits under it.
    pub(super) queue: Option<Queue>,
    last_logged: LastLogged,
}

/// All counts at one moment.
pub(crate) struct Totals {
    pub(crate) requests: Sums,
    pub(crate) policies: Vec<(Sums, Option<QueueStats>)>,
}

impl Metered {
    /// Creates a policy with this name, under which requests may wait.
    pub(crate) fn new(name: Arc<str>, may_wait: bool) -> Self {
        Self {
            name,
            queue: may_wait.then(Queue::new),
            last_logged: LastLogged::default(),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Rows<'_> {
    #[inline]
    fn allowed(self, policy: usize, units: u32) {
        self.policy(policy, Count::Allowed, 1);
        self.policy(policy, Count::Cost, units.into());
    }

    #[inline]
    fn decided(self, policy: usize, units: u32, outcome: &Outcome, is_allowed: bool) {
        if is_allowed && outcome.is_allowed() {
            self.allowed(policy, units);
            if is_near(outcome) {
                self.policy(policy, Count::NearLimit, 1);
            }
        } else {
            self.not_charged(policy, outcome, is_allowed);
        }
    }

    #[inline(never)]
    fn not_charged(self, policy: usize, outcome: &Outcome, is_allowed: bool) {
        let what = match (outcome.denies(), is_allowed) {
            (true, _) => Count::Refused,
            (false, true) if outcome.is_shadow() => Count::ShadowRefused,
            (false, true) => Count::Soft,
            (false, false) => Count::Uncharged,
        };
        self.policy(policy, what, 1);
        if outcome.is_blocked() {
            self.policy(policy, Count::Blocked, 1);
        }
        if outcome.is_penalized() {
            self.policy(policy, Count::Penalized, 1);
        }
    }
}

/// Returns whether four fifths of the limit are used.
#[inline]
fn is_near(outcome: &Outcome) -> bool {
    let (limit, remaining) = (u64::from(outcome.limit()), u64::from(outcome.remaining()));
    5 * remaining <= limit
}

impl Counters {
    /// Creates counters at zero for these policies.
    pub(crate) fn new(policies: impl IntoIterator<Item = Metered>) -> Self {
        Self {
            policies: policies.into_iter().collect(),
            slots: Box::new(array::from_fn(|_| OnceLock::new())),
        }
    }

    #[expect(clippy::inline_always, reason = "as for the callers")]
    #[inline(always)]
    fn rows(&self) -> Rows<'_> {
        let slot = slot();
        let rows = self.slots.get(slot).map_or(&[][..], |rows| {
            rows.get().map_or_else(|| self.make_rows(rows), Box::as_ref)
        });
        Rows::new(rows, slot < OWN)
    }

    #[cold]
    fn make_rows<'a>(&self, rows: &'a OnceLock<Box<[Row]>>) -> &'a [Row] {
        rows.get_or_init(|| (0..=self.policies.len()).map(|_| Row::default()).collect())
    }

    /// Counts a request, whatever the policies.
    pub fn request(&self, what: Request) {
        self.rows().request(what);
    }

    /// Adds a number to a count under a policy.
    pub fn policy(&self, policy: usize, what: Count, number: u64) {
        self.rows().policy(policy, what, number);
    }

    /// Counts a verdict under these policies, with the units that each of them charges. The numbers are not
    /// known. A denial names a policy that denies.
    #[expect(
        clippy::inline_always,
        reason = "a call takes as long as the additions"
    )]
    #[inline(always)]
    pub(crate) fn judged(
        &self,
        mut charges: impl ExactSizeIterator<Item = (usize, u32)>,
        verdict: Result<(), usize>,
    ) {
        let rows = self.rows();
        let Err(denies) = verdict else {
            if charges.len() == 1
                && let Some((policy, units)) = charges.next()
            {
                return rows.allowed_by_one(policy, units, None);
            }
            rows.request(Request::Allowed);
            return charges.for_each(|(policy, units)| rows.allowed(policy, units));
        };
        rows.request(Request::Refused);
        rows.policy(denies, Count::Refused, 1);
        for (policy, _) in charges.filter(|(policy, _)| *policy != denies) {
            rows.policy(policy, Count::Uncharged, 1);
        }
    }

    /// Counts a decided request under these policies, with the units that each of them charges. Returns
    /// whether it was allowed.
    #[inline]
    pub(crate) fn decided(
        &self,
        mut charges: impl ExactSizeIterator<Item = (usize, u32)>,
        outcomes: &Outcomes,
    ) -> bool {
        let rows = self.rows();
        if charges.len() == 1
            && let Some(outcome) = outcomes.first()
            && outcome.is_allowed()
            && !outcomes.is_degraded()
            && let Some((policy, units)) = charges.next()
        {
            rows.allowed_by_one(policy, units, Some(is_near(outcome)));
            return true;
        }
        let is_allowed = outcomes.is_allowed();
        rows.request(if is_allowed {
            Request::Allowed
        } else {
            Request::Refused
        });
        let each = outcomes.iter();
        if outcomes.is_degraded() || charges.len() != each.len() {
            Self::decided_by_some(rows, charges, outcomes);
            return is_allowed;
        }
        for ((policy, units), (_, outcome)) in charges.zip(each) {
            rows.decided(policy, units, outcome, is_allowed);
        }
        is_allowed
    }

    /// Counts policies of which some have no outcome: they allow everything while the store is away, or another one pays.
    #[cold]
    fn decided_by_some(
        rows: Rows<'_>,
        charges: impl IntoIterator<Item = (usize, u32)>,
        outcomes: &Outcomes,
    ) {
        let (is_allowed, is_degraded) = (outcomes.is_allowed(), outcomes.is_degraded());
        if is_degraded {
            rows.request(Request::Degraded);
        }
        for (policy, units) in charges {
            if is_degraded {
                rows.policy(policy, Count::Degraded, 1);
            }
            match outcomes.iter().find(|(of, _)| *of == policy) {
                Some((_, outcome)) => rows.decided(policy, units, outcome, is_allowed),
                None if !is_degraded => {}
                None if is_allowed => rows.policy(policy, Count::Allowed, 1),
                None => rows.policy(policy, Count::Uncharged, 1),
            }
        }
    }

    /// Returns whether a refusal by this policy may be logged now.
    #[inline]
    pub(crate) fn may_log_refusal(&self, policy: usize, now: Micros) -> bool {
        let metered = self.policies.get(policy);
        metered.is_some_and(|metered| may_be_logged(&metered.last_logged, now))
    }

    /// Reports to operators that this policy has blocked a key of this kind, because it has denied too many
    /// requests of it.
    pub(crate) fn log_penalty(&self, policy: usize, key_kind: &'static str, outcome: &Outcome) {
        if let Some(metered) = self.policies.get(policy) {
            penalized(&metered.name, key_kind, outcome);
        }
    }

    /// Reports to operators that this policy has denied a request with a key of this kind.
    pub(crate) fn log_refusal(
        &self,
        policy: usize,
        key_kind: &'static str,
        outcome: &Outcome,
        now: Micros,
    ) {
        if let Some(metered) = self.policies.get(policy) {
            let refusal = Refusal {
                policy: &metered.name,
                key_kind,
                wait: outcome.retry_micros(),
                is_blocked: outcome.is_blocked(),
            };
            log(&refusal, &metered.last_logged, now);
        }
    }

    /// Counts a request that was refused because the store could not decide.
    pub fn failed(&self, policies: impl IntoIterator<Item = usize>) {
        let rows = self.rows();
        rows.request(Request::Failed);
        for policy in policies {
            rows.policy(policy, Count::Failed, 1);
        }
    }

    pub(super) fn policies(&self) -> &[Metered] {
        &self.policies
    }

    /// Reads all counters, at this moment of the clock by which requests wait.
    pub(crate) fn read(&self, now: Instant) -> Totals {
        let policies = self.policies.iter();
        let policies = policies.map(|policy| {
            let queue = policy.queue.as_ref().map(|queue| queue.stats(now));
            (Sums::default(), queue)
        });
        let mut counted = Totals {
            requests: Sums::default(),
            policies: policies.collect(),
        };
        for rows in self.slots.iter().filter_map(OnceLock::get) {
            if let Some((first, rows)) = rows.split_first() {
                counted.requests += first;
                for ((sums, _), row) in counted.policies.iter_mut().zip(rows) {
                    *sums += row;
                }
            }
        }
        counted
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}
