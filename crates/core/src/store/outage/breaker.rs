//! A circuit breaker with an entry for each part of a store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A circuit breaker: detects that a store is away, so that each request does not have to.
///
/// A store has one part or several: a cluster has one for each primary. Each is watched by itself, because a
/// part that is away says nothing about the others. A part has an entry here while it fails, and for a while
/// after that.
#[derive(Debug)]
pub(super) struct Breaker {
    /// The number of failures in a row that open a part while another part is open.
    further: u32,
    parts: Mutex<HashMap<u64, Part>>,
    /// The number of parts whose last call failed, including open parts.
    failing: AtomicUsize,
    open: AtomicUsize,
}

#[derive(Debug)]
struct Part {
    state: Circuit,
    /// The slot that failed last, and when.
    slot: u16,
    failed_at: Instant,
    /// Whether one of the failures in a row was that the server refuses writes.
    refuses_writes: bool,
    /// The number of probes since the part last stayed up for a while.
    probes: u32,
    /// When the next probe is over at the latest.
    due: Instant,
    came_back: Option<Instant>,
    /// Whether a task probes it.
    is_probed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Circuit {
    /// The number of failures in a row so far.
    Closed(u32),
    Open,
}

/// The part of the store that has a key, and the slot by which the part is found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPart {
    /// The number of the part.
    pub part: u64,
    /// The slot of the key.
    pub slot: u16,
}

/// The number of failures in a row that opens a part.
const FAILURES: u32 = 5;

/// The time before the first probe. It doubles with each further probe.
pub(super) const FIRST_PROBE: Duration = Duration::from_millis(250);

/// The longest time between two probes.
pub(super) const LAST_PROBE: Duration = Duration::from_secs(5);

/// A part that goes away again within this time is probed as seldom as before.
const STAYS: Duration = Duration::from_secs(10);

/// Failures that did not open a part are forgotten after this time, since the part may be gone, such as a
/// primary after a failover.
const FORGETS: Duration = Duration::from_secs(60);

impl Breaker {
    /// Where parts are guessed, one server may have several of them. Once one is open, the first failure of
    /// another opens that too.
    pub(super) fn new(are_guessed: bool) -> Self {
        Self {
            further: if are_guessed { 1 } else { FAILURES },
            parts: Mutex::default(),
            failing: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_any_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Returns whether the last call to some part failed.
    pub(super) fn is_any_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed) > 0
    }

    /// Returns how many parts are open.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn is_open(&self, part: u64) -> bool {
        self.is_any_open() && self.parts().get(&part).is_some_and(Part::is_open)
    }

    /// Records that the server of this part has answered. A server that refuses writes answers what needs none, such as a
    /// denial, so only a call that `has_written` ends its failures.
    pub(super) fn succeeded(&self, part: u64, has_written: bool) {
        // Read first: a write by every request would be shared by all processors.
        if self.failing.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut parts = self.parts();
        self.forget(&mut parts, part, Instant::now());
        // If the part is open, the answer belongs to a call that began before.
        if let Some(part) = parts.get_mut(&part)
            && matches!(part.state, Circuit::Closed(1..))
            && (has_written || !part.refuses_writes)
        {
            part.state = Circuit::Closed(0);
            part.refuses_writes = false;
            self.failing.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Records that the server of this place has failed. Returns `true` if that opens its part, and no other
    /// is open.
    pub(super) fn failed(&self, place: KeyPart, refuses_writes: bool) -> bool {
        let now = Instant::now();
        let mut parts = self.parts();
        self.forget(&mut parts, place.part, now);
        let enough = if self.is_any_open() {
            self.further
        } else {
            FAILURES
        };
        let part = parts.entry(place.part).or_insert_with(|| Part::new(now));
        let Circuit::Closed(failures) = part.state else {
            return false;
        };
        part.slot = place.slot;
        part.failed_at = now;
        part.refuses_writes |= refuses_writes;
        if failures == 0 {
            self.failing.fetch_add(1, Ordering::AcqRel);
        }
        if failures + 1 < enough {
            part.state = Circuit::Closed(failures + 1);
            return false;
        }
        part.state = Circuit::Open;
        // The task that probes the part sets when it is due as soon as it runs.
        part.due = now + FIRST_PROBE;
        if part.came_back.is_none_or(|back| now - back >= STAYS) {
            part.probes = 0;
        }
        self.open.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Returns `true` if this part has to be probed and no task does so. Then the caller starts the task.
    pub(super) fn begin_to_probe(&self, part: u64) -> bool {
        let mut parts = self.parts();
        let part = parts.get_mut(&part);
        part.is_some_and(|part| part.is_open() && !std::mem::replace(&mut part.is_probed, true))
    }

    /// Records that the task that probes this part has ended.
    pub(super) fn end_to_probe(&self, part: u64) {
        if let Some(part) = self.parts().get_mut(&part) {
            part.is_probed = false;
        }
    }

    /// Counts the next probe, and returns how long to wait for it. The wait is up to a quarter less than the
    /// full time, so that nodes that lost the server together do not probe at the same time. Returns `None`
    /// if the part is not open: the task ends.
    pub(super) fn next_probe(&self, part: u64, less: f64, takes: Duration) -> Option<Duration> {
        let mut parts = self.parts();
        let part = parts.get_mut(&part)?;
        if !part.is_open() {
            part.is_probed = false;
            return None;
        }
        let doubled = FIRST_PROBE.saturating_mul(1 << part.probes.min(8));
        part.probes = part.probes.saturating_add(1);
        let pause = doubled.min(LAST_PROBE).mul_f64(1.0 - less / 4.0);
        part.due = Instant::now() + pause + takes;
        Some(pause)
    }

    /// Returns whether the task that probes this part is so late that it may not run. Returns `true` to one
    /// caller in a while.
    pub(super) fn is_overdue(&self, part: u64) -> bool {
        let now = Instant::now();
        let mut parts = self.parts();
        let part = parts.get_mut(&part);
        part.is_some_and(|part| {
            let is_overdue = part.is_open() && now > part.due;
            if is_overdue {
                part.due = now + LAST_PROBE;
            }
            is_overdue
        })
    }

    /// Returns the slot of this part that failed last, if the part is open.
    pub(super) fn failed_slot(&self, part: u64) -> Option<u16> {
        let parts = self.parts();
        let part = parts.get(&part).filter(|part| part.is_open());
        part.map(|part| part.slot)
    }

    /// Records that the server of this part has answered a probe. Returns whether it was the last open part.
    pub(super) fn close(&self, part: u64) -> bool {
        let mut parts = self.parts();
        let part = parts.get_mut(&part).filter(|part| part.is_open());
        let Some(part) = part else {
            return false;
        };
        part.state = Circuit::Closed(0);
        part.refuses_writes = false;
        part.came_back = Some(Instant::now());
        self.failing.fetch_sub(1, Ordering::AcqRel);
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Removes all parts but this one that have nothing to remember.
    fn forget(&self, parts: &mut HashMap<u64, Part>, but: u64, now: Instant) {
        parts.retain(|number, part| {
            let stays = *number == but || part.matters(now);
            if !stays && matches!(part.state, Circuit::Closed(1..)) {
                self.failing.fetch_sub(1, Ordering::AcqRel);
            }
            stays
        });
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<u64, Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn new(now: Instant) -> Self {
        Self {
            state: Circuit::Closed(0),
            slot: 0,
            failed_at: now,
            refuses_writes: false,
            probes: 0,
            due: now,
            came_back: None,
            is_probed: false,
        }
    }

    fn is_open(&self) -> bool {
        self.state == Circuit::Open
    }

    /// Returns whether there is anything to remember.
    fn matters(&self, now: Instant) -> bool {
        let has_failed = match self.state {
            Circuit::Open => true,
            Circuit::Closed(1..) => now - self.failed_at < FORGETS,
            Circuit::Closed(_) => false,
        };
        has_failed || self.is_probed || self.came_back.is_some_and(|back| now - back < STAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: KeyPart = KeyPart { part: 3, slot: 7 };
    const OTHER: KeyPart = KeyPart { part: 4, slot: 9 };

    /// Opens a part, and returns whether it was the first one.
    fn open(breaker: &Breaker, place: KeyPart) -> bool {
        let first: Vec<bool> = (0..FAILURES)
            .map(|_| breaker.failed(place, false))
            .collect();
        assert!(breaker.is_open(place.part));
        first.contains(&true)
    }

    fn next(breaker: &Breaker, place: KeyPart) -> Option<Duration> {
        breaker.next_probe(place.part, 0.0, Duration::ZERO)
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_not_before() {
        let breaker = Breaker::new(false);
        for _ in 0..4 {
            assert!(!breaker.failed(PLACE, false));
        }
        breaker.succeeded(PLACE.part, false);
        for _ in 0..4 {
            assert!(!breaker.failed(PLACE, false));
            assert!(!breaker.is_open(PLACE.part));
        }
        assert!(breaker.failed(PLACE, false));
        assert!(breaker.is_open(PLACE.part));
    }

    #[test]
    fn a_probe_alone_closes_it() {
        let breaker = Breaker::new(false);
        open(&breaker, PLACE);
        breaker.succeeded(PLACE.part, false);
        assert_eq!(breaker.failed_slot(PLACE.part), Some(7));
        assert!(breaker.close(PLACE.part));
        assert!(!breaker.close(PLACE.part));
        assert!(!breaker.is_open(PLACE.part));
        assert_eq!(breaker.failed_slot(PLACE.part), None);
        assert!(open(&breaker, PLACE));
    }

    /// One failure of a live primary once opened its slots while another primary was away, so that its keys
    /// were decided without it.
    #[test]
    fn a_part_that_is_open_says_nothing_of_another() {
        let breaker = Breaker::new(false);
        assert!(open(&breaker, PLACE));
        for _ in 0..4 {
            assert!(!breaker.failed(OTHER, false));
            assert!(!breaker.is_open(OTHER.part));
        }
        breaker.succeeded(OTHER.part, false);
        assert!(!breaker.failed(OTHER, false));
        assert!(!breaker.is_open(OTHER.part));
    }

    /// Otherwise an outage of a third of the slots costs five slow requests for each group of them.
    #[test]
    fn one_failure_opens_another_guessed_part() {
        let breaker = Breaker::new(true);
        assert!(open(&breaker, PLACE));
        assert!(!breaker.failed(OTHER, false));
        assert!(breaker.is_open(OTHER.part));
        assert!(!breaker.close(PLACE.part));
        assert!(breaker.close(OTHER.part));
    }

    #[tokio::test(start_paused = true)]
    async fn each_part_is_probed_by_one_task_and_ever_more_seldom() {
        let breaker = Breaker::new(false);
        assert!(!breaker.begin_to_probe(PLACE.part));
        open(&breaker, PLACE);
        assert!(breaker.begin_to_probe(PLACE.part) && !breaker.begin_to_probe(PLACE.part));
        let pauses: Vec<_> = (0..6).map(|_| next(&breaker, PLACE).unwrap()).collect();
        let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [250, 500, 1_000, 2_000, 4_000, 5_000]);
        // Another part starts from the beginning.
        open(&breaker, OTHER);
        assert_eq!(next(&breaker, OTHER), Some(FIRST_PROBE));
        // A part that goes away soon after it came back does not.
        breaker.close(PLACE.part);
        assert_eq!(next(&breaker, PLACE), None);
        open(&breaker, PLACE);
        assert!(breaker.begin_to_probe(PLACE.part));
        assert_eq!(next(&breaker, PLACE), Some(LAST_PROBE));
        breaker.close(PLACE.part);
        tokio::time::advance(STAYS).await;
        open(&breaker, PLACE);
        assert_eq!(next(&breaker, PLACE), Some(FIRST_PROBE));
    }

    #[tokio::test(start_paused = true)]
    async fn parts_that_answer_for_a_while_are_forgotten() {
        let breaker = Breaker::new(false);
        for part in 0..1_000 {
            open(&breaker, KeyPart { part, slot: 0 });
            breaker.close(part);
        }
        assert_eq!(breaker.parts().len(), 1_000);
        tokio::time::advance(STAYS).await;
        breaker.failed(OTHER, false);
        assert_eq!(breaker.parts().len(), 1);
    }

    /// A primary that failed once and was replaced was once remembered for ever, and each success took the
    /// lock.
    #[tokio::test(start_paused = true)]
    async fn a_few_failures_of_a_part_that_is_gone_are_forgotten() {
        let breaker = Breaker::new(false);
        assert!(!breaker.failed(PLACE, false));
        breaker.succeeded(OTHER.part, false);
        assert_eq!(breaker.failing.load(Ordering::Relaxed), 1);
        tokio::time::advance(FORGETS).await;
        breaker.succeeded(OTHER.part, false);
        assert_eq!(breaker.failing.load(Ordering::Relaxed), 0);
        assert!(breaker.parts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_does_not_come_is_missed_by_one_caller_in_a_while() {
        let breaker = Breaker::new(false);
        open(&breaker, PLACE);
        let takes = Duration::from_secs(2);
        breaker.next_probe(PLACE.part, 0.0, takes);
        tokio::time::advance(FIRST_PROBE + takes).await;
        assert!(!breaker.is_overdue(PLACE.part));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(breaker.is_overdue(PLACE.part) && !breaker.is_overdue(PLACE.part));
        breaker.close(PLACE.part);
        tokio::time::advance(LAST_PROBE * 2).await;
        assert!(!breaker.is_overdue(PLACE.part));
    }

    #[test]
    fn a_server_that_refuses_writes_is_away_though_it_answers_what_needs_none() {
        let breaker = Breaker::new(false);
        for _ in 1..FAILURES {
            assert!(!breaker.failed(PLACE, true));
            breaker.succeeded(PLACE.part, false);
        }
        assert!(breaker.failed(PLACE, true));
        assert!(breaker.close(PLACE.part));
        for _ in 0..2 * FAILURES {
            assert!(!breaker.failed(PLACE, true));
            breaker.succeeded(PLACE.part, true);
        }
        // A later failure of another kind is forgotten at the next answer.
        for _ in 0..2 * FAILURES {
            assert!(!breaker.failed(PLACE, false));
            breaker.succeeded(PLACE.part, false);
        }
    }
}
