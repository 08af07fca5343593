use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

#[cfg(feature = "redis-cluster")]
use crc16::{State, XMODEM};

use crate::key::Key;

/// Notices that a server is away, so that requests need not find it out one by one.
///
/// Of a cluster a part may be away. Its slots are watched in groups of 64, since a group is on one server
/// nearly always.
#[derive(Debug)]
pub(super) struct Breaker {
    groups: Box<[Group]>,
    /// How many groups have failed last, those that are open among them.
    failing: AtomicUsize,
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct Group {
    /// How often in a row it has failed; [`OPEN`] if it is not asked any more.
    failures: AtomicU32,
    /// The slot that has failed last.
    slot: AtomicU32,
}

const OPEN: u32 = u32::MAX;

/// So many failures in a row open a group. Once one is open, the first failure of another is taken for one of
/// the same server.
const FAILURES: u32 = 5;

const SLOTS_TOGETHER: u16 = 64;
const SLOTS: u16 = 16_384;

impl Breaker {
    /// Of one server, or of a cluster of them.
    pub(super) fn new(is_divided: bool) -> Self {
        let groups = if is_divided {
            SLOTS / SLOTS_TOGETHER
        } else {
            1
        };
        Self {
            groups: (0..groups).map(|_| Group::default()).collect(),
            failing: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_any_open(&self) -> bool {
        // In one order with the flag of the task that asks: it ends when none is open.
        self.open.load(Ordering::SeqCst) > 0
    }

    /// Whether the server of this key is away.
    pub(super) fn is_open(&self, key: &Key) -> bool {
        self.is_any_open() && self.group(self.slot(key)).failures.load(Ordering::Acquire) == OPEN
    }

    /// The server of this key has answered.
    pub(super) fn succeeded(&self, key: &Key) {
        // Read first: a write by every request would be shared by all processors.
        if self.failing.load(Ordering::Relaxed) == 0 {
            return;
        }
        let failures = &self.group(self.slot(key)).failures;
        let ended = failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, |failures| {
            // An answer that was under way since before.
            (failures > 0 && failures != OPEN).then_some(0)
        });
        if ended.is_ok() {
            self.failing.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The server of this key has failed. Says whether this is the first group that opens.
    pub(super) fn failed(&self, key: &Key) -> bool {
        let slot = self.slot(key);
        let group = self.group(slot);
        let enough = if self.is_any_open() { 1 } else { FAILURES };
        let counted =
            group
                .failures
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |failures| {
                    let counted = failures.saturating_add(1);
                    (failures != OPEN).then_some(if counted < enough { counted } else { OPEN })
                });
        let Ok(before) = counted else {
            return false;
        };
        group.slot.store(slot.into(), Ordering::Release);
        if before == 0 {
            self.failing.fetch_add(1, Ordering::AcqRel);
        }
        before + 1 >= enough && self.open.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// The groups that are open, and of each the slot that has failed last.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, u16)> {
        let groups = self.groups.iter().enumerate();
        let open = groups.filter(|(_, group)| group.failures.load(Ordering::Acquire) == OPEN);
        open.map(|(number, group)| {
            let slot = group.slot.load(Ordering::Acquire);
            (number, u16::try_from(slot).unwrap_or(0))
        })
    }

    /// The server of this group has answered a probe. Says whether it was the last one that was open.
    pub(super) fn close(&self, group: usize) -> bool {
        let was_open = self.groups.get(group).is_some_and(|group| {
            let closed =
                group
                    .failures
                    .compare_exchange(OPEN, 0, Ordering::AcqRel, Ordering::Acquire);
            closed.is_ok()
        });
        if !was_open {
            return false;
        }
        self.failing.fetch_sub(1, Ordering::AcqRel);
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn group(&self, slot: u16) -> &Group {
        let together = usize::from(SLOTS_TOGETHER);
        &self.groups[usize::from(slot) / together % self.groups.len()]
    }

    /// Where the key is in a cluster; 0 on a server alone.
    fn slot(&self, key: &Key) -> u16 {
        if self.groups.len() == 1 {
            return 0;
        }
        slot_of(key.name().as_str())
    }

    /// A hash tag that is in this slot, and that is no client's.
    pub(super) fn tag_in(&self, slot: u16) -> String {
        let mut tags = (0_u32..).map(|number| format!("probe {number}"));
        let is_there = |tag: &String| self.groups.len() == 1 || slot_of(tag) == slot;
        tags.find(is_there).unwrap_or_default()
    }
}

/// The slot of keys with this hash tag.
#[cfg(feature = "redis-cluster")]
fn slot_of(tag: &str) -> u16 {
    State::<XMODEM>::calculate(tag.as_bytes()) % SLOTS
}

#[cfg(not(feature = "redis-cluster"))]
fn slot_of(_: &str) -> u16 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IntoKey;

    fn ann() -> Key {
        "ann".into_key()
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_not_before() {
        let breaker = Breaker::new(false);
        for _ in 0..4 {
            assert!(!breaker.failed(&ann()));
        }
        breaker.succeeded(&ann());
        for _ in 0..4 {
            assert!(!breaker.failed(&ann()));
            assert!(!breaker.is_open(&ann()));
        }
        assert!(breaker.failed(&ann()));
        assert!(breaker.is_open(&ann()));
    }

    #[test]
    fn a_probe_alone_closes_it() {
        let breaker = Breaker::new(false);
        for _ in 0..8 {
            breaker.failed(&ann());
        }
        breaker.succeeded(&ann());
        assert!(breaker.is_open(&ann()));
        let open: Vec<_> = breaker.open().collect();
        assert_eq!(open, [(0, 0)]);
        assert!(breaker.close(0));
        assert!(!breaker.close(0));
        assert!(!breaker.is_open(&ann()));
        for _ in 0..4 {
            assert!(!breaker.failed(&ann()));
        }
        assert!(breaker.failed(&ann()));
    }

    /// Or an outage of a third of the slots would cost five slow requests for each group of them.
    #[cfg(feature = "redis-cluster")]
    #[test]
    fn once_a_group_is_open_one_failure_opens_another() {
        let breaker = Breaker::new(true);
        let bob = "bob".into_key();
        assert_ne!(breaker.slot(&ann()) / 64, breaker.slot(&bob) / 64);
        for _ in 0..5 {
            breaker.failed(&ann());
        }
        assert!(breaker.is_open(&ann()) && !breaker.is_open(&bob));
        assert!(!breaker.failed(&bob));
        assert!(breaker.is_open(&bob));
        let mut open = breaker.open().map(|(group, _)| group);
        let (first, second) = (open.next().unwrap(), open.next().unwrap());
        assert!(!breaker.close(first));
        assert!(breaker.close(second));
    }

    #[cfg(feature = "redis-cluster")]
    #[test]
    fn a_probe_goes_to_the_slot_that_has_failed() {
        let breaker = Breaker::new(true);
        for key in ["ann", "bob", "{carol}", "203.0.113.7"] {
            let key = key.into_key();
            for _ in 0..5 {
                breaker.failed(&key);
            }
            let slot = breaker.slot(&key);
            let open = breaker.open().find(|(_, open)| *open == slot);
            let (group, _) = open.unwrap();
            assert_eq!(slot_of(&breaker.tag_in(slot)), slot);
            breaker.close(group);
        }
        // The vector of the specification of clusters.
        assert_eq!(slot_of("123456789"), 0x31c3);
    }
}
