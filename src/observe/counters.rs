//! The counters of a limiter.
//!
//! Each thread has counters of its own, which no other thread writes to. So an addition is a load and a store, and not
//! an atomic addition, which takes several times as long. A reader adds up the counters of all threads.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::slot::{OWN, SHARED, slot};
use crate::decision::{Outcome, Outcomes};

/// Counts what becomes of requests, as a whole and under each policy.
pub(crate) struct Counters {
    since: SystemTime,
    policies: usize,
    /// By the place of the thread. A place is made when its thread counts first.
    slots: Box<[OnceLock<Box<[Row]>>]>,
}

/// What is counted of requests, whatever the policies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Allowed,
    Refused,
    Failed,
    Degraded,
    Exempt,
    Forbidden,
    WithoutKey,
}

/// What is counted of the requests under a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Allowed,
    Refused,
    Soft,
    Uncharged,
    Failed,
    Skipped,
    Degraded,
    NearLimit,
    Blocked,
    Cost,
    Settled,
}

/// As many as fill two lines of a processor's cache, which processors take in pairs.
const COLUMNS: usize = 16;

/// The counters of a policy. The first row counts requests, whatever the policies.
#[derive(Default)]
#[repr(align(128))]
struct Row([AtomicU64; COLUMNS]);

/// The rows of this thread.
#[derive(Clone, Copy)]
struct Rows<'a> {
    rows: &'a [Row],
    are_own: bool,
}

impl Rows<'_> {
    #[inline]
    fn add(self, row: usize, column: usize, number: u64) {
        let Some(counter) = self.rows.get(row).and_then(|row| row.0.get(column)) else {
            return;
        };
        if self.are_own {
            let counted = counter.load(Ordering::Relaxed);
            counter.store(counted.wrapping_add(number), Ordering::Relaxed);
        } else {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }

    #[inline]
    fn request(self, what: Request) {
        self.add(0, what as usize, 1);
    }

    #[inline]
    fn policy(self, policy: usize, what: Count, number: u64) {
        self.add(policy + 1, what as usize, number);
    }

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
            (false, true) => Count::Soft,
            (false, false) => Count::Uncharged,
        };
        self.policy(policy, what, 1);
        if outcome.is_blocked() {
            self.policy(policy, Count::Blocked, 1);
        }
    }
}

/// Whether four fifths of the limit are used.
#[inline]
fn is_near(outcome: &Outcome) -> bool {
    let (limit, remaining) = (u64::from(outcome.limit()), u64::from(outcome.remaining()));
    5 * remaining <= limit
}

impl Counters {
    pub(crate) fn new(policies: usize) -> Self {
        Self {
            since: SystemTime::now(),
            policies,
            slots: (0..=SHARED).map(|_| OnceLock::new()).collect(),
        }
    }

    #[inline]
    fn rows(&self) -> Rows<'_> {
        let slot = slot();
        let rows = self.slots.get(slot).map_or(&[][..], |rows| {
            rows.get_or_init(|| (0..=self.policies).map(|_| Row::default()).collect())
        });
        Rows {
            rows,
            are_own: slot < OWN,
        }
    }

    /// Counts one of a request, whatever the policies.
    pub(crate) fn request(&self, what: Request) {
        self.rows().request(what);
    }

    /// Counts so many of the requests under a policy.
    pub(crate) fn policy(&self, policy: usize, what: Count, number: u64) {
        self.rows().policy(policy, what, number);
    }

    /// A request was allowed, and charged so many units by each of these policies. Its numbers are not known.
    #[inline]
    pub(crate) fn allowed(&self, charged: impl IntoIterator<Item = (usize, u32)>) {
        let rows = self.rows();
        rows.request(Request::Allowed);
        for (policy, units) in charged {
            rows.allowed(policy, units);
        }
    }

    /// A request was judged so under these policies, and its numbers are not known. A denial names a policy that denies.
    #[inline]
    pub(crate) fn judged(
        &self,
        asked: impl IntoIterator<Item = (usize, u32)>,
        verdict: Result<(), usize>,
    ) {
        match verdict {
            Ok(()) => self.allowed(asked),
            Err(denies) => {
                let rows = self.rows();
                rows.request(Request::Refused);
                for (policy, _) in asked {
                    let what = if policy == denies {
                        Count::Refused
                    } else {
                        Count::Uncharged
                    };
                    rows.policy(policy, what, 1);
                }
            }
        }
    }

    /// A request was decided so under these policies, each of which charges so many units.
    #[inline]
    pub(crate) fn decided(
        &self,
        asked: impl IntoIterator<Item = (usize, u32)>,
        outcomes: &Outcomes,
    ) {
        let rows = self.rows();
        let is_allowed = outcomes.is_allowed();
        rows.request(if is_allowed {
            Request::Allowed
        } else {
            Request::Refused
        });
        if outcomes.is_degraded() {
            return Self::decided_without_store(rows, asked, outcomes);
        }
        for ((policy, units), (_, outcome)) in asked.into_iter().zip(outcomes.iter()) {
            rows.decided(policy, units, outcome, is_allowed);
        }
    }

    /// Policies that let everything go on while the store is away have no outcome.
    #[cold]
    fn decided_without_store(
        rows: Rows<'_>,
        asked: impl IntoIterator<Item = (usize, u32)>,
        outcomes: &Outcomes,
    ) {
        let is_allowed = outcomes.is_allowed();
        rows.request(Request::Degraded);
        for (policy, units) in asked {
            rows.policy(policy, Count::Degraded, 1);
            let outcome = outcomes.iter().find(|(of, _)| *of == policy);
            match outcome {
                Some((_, outcome)) => rows.decided(policy, units, outcome, is_allowed),
                None if is_allowed => rows.policy(policy, Count::Allowed, 1),
                None => rows.policy(policy, Count::Uncharged, 1),
            }
        }
    }

    /// A request was refused, because the store could not decide.
    pub(crate) fn failed(&self, asked: impl IntoIterator<Item = usize>) {
        let rows = self.rows();
        rows.request(Request::Failed);
        for policy in asked {
            rows.policy(policy, Count::Failed, 1);
        }
    }

    /// Since when is counted.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// The counts of requests, whatever the policies.
    pub(super) fn requests(&self) -> Sums {
        self.sums(0)
    }

    /// The counts of a policy.
    pub(super) fn of_policy(&self, policy: usize) -> Sums {
        self.sums(policy + 1)
    }

    fn sums(&self, row: usize) -> Sums {
        let mut sums = [0_u64; COLUMNS];
        for rows in self.slots.iter().filter_map(OnceLock::get) {
            let Some(Row(counters)) = rows.get(row) else {
                continue;
            };
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        Sums(sums)
    }
}

/// The counts of all threads together.
pub(super) struct Sums([u64; COLUMNS]);

impl Sums {
    pub(super) fn request(&self, what: Request) -> u64 {
        self.column(what as usize)
    }

    pub(super) fn policy(&self, what: Count) -> u64 {
        self.column(what as usize)
    }

    fn column(&self, column: usize) -> u64 {
        self.0.get(column).copied().unwrap_or_default()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}
