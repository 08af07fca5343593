//! The counters of one thread, and the sums of all threads.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use super::snapshot::{Count, Request};

/// As many as fill two cache lines, which processors fetch in pairs.
pub(super) const COLUMNS: usize = 16;

/// The counters of a policy. The first row of a thread counts requests, whatever the policies.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Row([AtomicU64; COLUMNS]);

/// The rows of a thread.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    rows: &'a [Row],
    /// Whether no other thread writes to them.
    are_own: bool,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn new(rows: &'a [Row], are_own: bool) -> Self {
        Self { rows, are_own }
    }

    #[inline]
    fn add(self, row: usize, column: usize, number: u64) {
        let Some(counter) = self.rows.get(row).and_then(|row| row.0.get(column)) else {
            return;
        };
        if self.are_own {
            add_alone(counter, number);
        } else {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Counts a request that one policy has allowed, which charges this many units, and whether it is near the limit, if
    /// the numbers are known.
    #[inline]
    pub(super) fn allowed_by_one(self, policy: usize, units: u32, is_near: Option<bool>) {
        let rows = (self.rows.first(), self.rows.get(policy + 1));
        if self.are_own
            && let (Some(Row(requests)), Some(Row(row))) = rows
        {
            // All at once: most decisions are of this kind, and change four counts.
            add_alone(&requests[Request::Allowed as usize], 1);
            add_alone(&row[Count::Allowed as usize], 1);
            add_alone(&row[Count::Cost as usize], units.into());
            if let Some(is_near) = is_near {
                add_alone(&row[Count::NearLimit as usize], is_near.into());
            }
        } else {
            self.request(Request::Allowed);
            self.policy(policy, Count::Allowed, 1);
            self.policy(policy, Count::Cost, units.into());
            self.policy(policy, Count::NearLimit, is_near.unwrap_or(false).into());
        }
    }

    #[inline]
    pub(super) fn request(self, what: Request) {
        self.add(0, what as usize, 1);
    }

    #[inline]
    pub(super) fn policy(self, policy: usize, what: Count, number: u64) {
        self.add(policy + 1, what as usize, number);
    }
}

/// Adds to a counter that no other thread writes to. An atomic addition takes several times as long.
#[inline]
fn add_alone(counter: &AtomicU64, number: u64) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(number), Ordering::Relaxed);
}

/// The sums of the counts of all threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums([u64; COLUMNS]);

impl Sums {
    pub(super) fn column(&self, column: usize) -> u64 {
        self.0.get(column).copied().unwrap_or_default()
    }
}

impl AddAssign<&Row> for Sums {
    fn add_assign(&mut self, Row(counters): &Row) {
        for (sum, counter) in self.0.iter_mut().zip(counters) {
            *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
        }
    }
}

impl AddAssign<&Self> for Sums {
    fn add_assign(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(more);
        }
    }
}
