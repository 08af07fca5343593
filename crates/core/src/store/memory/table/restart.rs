//! Reads all keys of a table for a snapshot, and puts them back.

use std::mem;

use super::{Counted, NoRoom, Probe, Table};
use crate::algorithm::State;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::ordering::ascending;
use crate::store::memory::seed::RESERVED;

/// The state that outlives the process.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Calls `write_outcome` with each key that is not as good as new, and its state at some moment of the call. No
    /// page is locked for longer than one key takes.
    ///
    /// A key may be visited twice if its page is split meanwhile.
    pub(in crate::store::memory) fn each_key(
        &self,
        now: Micros,
        visit: &mut dyn FnMut(u64, State),
    ) {
        let slowest = self.slowest();
        self.each_state(&mut |fingerprint, state, latest| {
            if slowest.distance(&state, now.max(latest)) > 0 {
                visit(fingerprint, self.rule.write(state));
            }
        });
    }

    /// Returns after how long each key is as good as new, under any of the limits that the table has met.
    pub(in crate::store::memory) fn longest_reset(&self, now: Micros) -> Micros {
        let slowest = self.slowest();
        let mut longest = Micros::ZERO;
        self.each_state(&mut |_, state, latest| {
            longest = longest.max(slowest.reset_after(&state, now.max(latest)));
        });
        longest
    }

    fn each_state(&self, visit: &mut dyn FnMut(u64, R::Form, Micros)) {
        let mut visit = |fingerprint: u64, counted: Counted| {
            if let Some((state, latest)) = self.copy(fingerprint, counted) {
                visit(fingerprint, state, latest);
            }
        };
        let mut index = 0;
        // A page that is split off meanwhile comes behind all others, and is read too.
        while index < self.pages.len() {
            let page = self.pages.page(index);
            index += 1;
            let Some((lock, _)) = page.seqlock.wait_and_lock() else {
                continue;
            };
            let keys = page.fingerprints();
            drop(lock);
            for fingerprint in keys {
                visit(fingerprint, Counted::Own);
            }
        }
        visit(RESERVED, Counted::Overflow);
    }

    /// Returns the state of a key, and the time of the latest charge on its page.
    #[inline(never)]
    pub(super) fn copy(&self, fingerprint: u64, counted: Counted) -> Option<(R::Form, Micros)> {
        let probe = Probe {
            fingerprint,
            cost: 0,
        };
        let (snapshot, _lock) = self.snapshot_and_lock(probe, counted, None)?;
        let slot = self.page(&snapshot).find(fingerprint)?;
        let state = slot.cell.see(&self.rule, snapshot.latest).clone();
        Some((state, snapshot.latest))
    }

    /// Puts keys into an empty table, the keys that are furthest from new first. Returns how many keys it has
    /// then, and how many had no room.
    pub(in crate::store::memory) fn restore(
        &self,
        keys: Vec<(u64, State)>,
        now: Micros,
    ) -> (usize, usize) {
        let now = now.min(self.until);
        let distance = |state: &State| {
            let state = self.rule.read(state.clone());
            self.rule.distance(&state, now)
        };
        furthest_first(keys, &distance, &mut |fingerprint, state| {
            self.revive(fingerprint, self.rule.read(state), now, now)
        })
    }

    /// Gives a slot to a key that was charged last at `latest`. Returns whether the key is new to the table.
    pub(super) fn revive(
        &self,
        fingerprint: u64,
        mut state: R::Form,
        now: Micros,
        latest: Micros,
    ) -> Result<bool, NoRoom> {
        let probe = Probe {
            fingerprint,
            cost: 0,
        };
        let counted = match fingerprint {
            RESERVED => Counted::Overflow,
            _ => Counted::Own,
        };
        let Some((snapshot, mut lock)) = self.snapshot_and_lock(probe, counted, None) else {
            return Ok(false);
        };
        let page = self.page(&snapshot);
        if page.find(fingerprint).is_some() {
            return Ok(false);
        }
        match counted {
            Counted::Own => {
                if let Err(NoRoom) = self.reserve(&mut state) {
                    if self.overrides.get(fingerprint).is_none() {
                        return Err(NoRoom);
                    }
                    self.budget.exceed(self.rule.size(&state));
                }
            }
            Counted::Overflow => self.budget.exceed(self.rule.size(&state) - 1),
        }
        lock.changes();
        let place = self.pages.room(page, fingerprint);
        place.take(fingerprint);
        page.set_latest(latest.max(snapshot.latest));
        if counted == Counted::Own {
            self.index_new_key(&*self.slowest(), &state, snapshot.index, now);
        }
        place.slot().cell.put(&self.rule, state);
        drop(lock);
        self.grow(now);
        Ok(true)
    }

    /// Takes room for a state, and cuts the state if there is not as much.
    fn reserve(&self, state: &mut R::Form) -> Result<(), NoRoom> {
        let mut size = self.rule.size(state);
        while !self.budget.reserve(size) {
            self.rule.compact_state(state);
            let less = self.rule.size(state);
            if less >= size {
                return Err(NoRoom);
            }
            size = less;
        }
        Ok(())
    }
}

/// Revives the keys that are furthest from new first. Returns how many keys there are then, and how many had
/// no room. Independent of the rule, so that it is compiled once.
#[inline(never)]
fn furthest_first(
    mut keys: Vec<(u64, State)>,
    distance: &dyn Fn(&State) -> u64,
    revive: &mut dyn FnMut(u64, State) -> Result<bool, NoRoom>,
) -> (usize, usize) {
    let distances: Vec<u64> = keys.iter().map(|(_, state)| distance(state)).collect();
    let (mut restored, mut left_out) = (0, 0);
    for index in ascending(distances.iter().map(|distance| u64::MAX - distance)) {
        // A smaller number is not a fingerprint.
        if distances[index] == 0 || keys[index].0 < RESERVED {
            continue;
        }
        let (fingerprint, state) = mem::take(&mut keys[index]);
        match revive(fingerprint, state) {
            Ok(true) => restored += 1,
            Ok(false) => {}
            Err(NoRoom) => left_out += 1,
        }
    }
    (restored, left_out)
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::algorithm::Gcra;
    use crate::clock::{Clock, ManualClock};
    use crate::store::memory::opening::{counter, counter_with};
    use crate::store::memory::tiers::decide;

    /// Rules whose states take one word, and three.
    const PACKED: Gcra = Gcra::per_second(1).burst(u32::MAX);
    const IN_WORDS: Gcra = Gcra::per_day(1).burst(u32::MAX);

    fn fingerprint(key: u64) -> u64 {
        (key + 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// In each round the time in which one request drains passes, and every key is charged two.
    fn all_are_restored_unchanged(rule: Gcra, keys: u64, rounds: u64) {
        let interval = Micros::from(rule.quota().period()).get();
        let counter = counter(&rule.into(), 10_000);
        let clock = ManualClock::new();
        let start = clock.now().get();
        let (is_over, is_filled) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    clock.set_micros(Micros::new(start + round * interval));
                    for key in 0..keys {
                        let probe = Probe {
                            fingerprint: fingerprint(key),
                            cost: 2,
                        };
                        assert!(decide(&*counter, probe, clock.now(), &clock, None));
                    }
                    is_filled.store(true, Ordering::Release);
                }
                is_over.store(true, Ordering::Release);
            });
            let mut goes_on = true;
            while goes_on {
                goes_on = !is_over.load(Ordering::Acquire);
                let was_filled = is_filled.load(Ordering::Acquire);
                let mut sink = HashSet::new();
                counter
                    .general()
                    .each_key(Micros::ZERO, &mut |fingerprint, state| {
                        sink.insert(fingerprint);
                        let [at, owed, part, _] = state.words() else {
                            panic!("{state:?}");
                        };
                        // After its charge in a round a key owes two more than the number of earlier rounds;
                        // before it, if its page has reached the round already, as many as that number.
                        let round = (at - start) / interval;
                        assert_eq!(((at - start) % interval, *part), (0, 0), "{state:?}");
                        let possible = [round + 2, round];
                        assert!(possible.contains(owed), "{owed} in round {round}");
                    });
                assert!(!was_filled || sink.len() as u64 == keys, "{}", sink.len());
            }
        });
    }

    #[test]
    fn every_key_is_told_while_pages_are_split() {
        for rule in [PACKED, IN_WORDS] {
            all_are_restored_unchanged(rule, 1_500, 50);
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_restored_as_it_is_the_furthest_from_new() {
        let algorithm = Gcra::per_day(1).burst(10).into();
        let now = ManualClock::new().now();
        let owes = |owed: u64| State::from_words(&[now.get(), owed, 0, 1]);
        let keys = vec![(7, owes(3)), (7, owes(9)), (7, owes(5)), (0, owes(5))];
        let (table, restored) = counter_with(&algorithm, 100, keys, Vec::new(), now);
        assert_eq!(restored, (1, 0));
        let mut sink = Vec::new();
        table.general().each_key(now, &mut |fingerprint, state| {
            sink.push((fingerprint, state));
        });
        assert_eq!(sink, [(7, owes(9))]);
    }

    #[test]
    fn a_log_for_which_there_is_no_room_is_shortened_and_still_refuses() {
        let algorithm = "sliding-log 20/day".parse().unwrap();
        let clock = ManualClock::new();
        let large = counter(&algorithm, 100);
        let probe = Probe {
            fingerprint: fingerprint(1),
            cost: 1,
        };
        for _ in 0..20 {
            clock.advance(std::time::Duration::from_secs(1));
            assert!(decide(&*large, probe, clock.now(), &clock, None));
        }
        let mut keys = Vec::new();
        large
            .general()
            .each_key(clock.now(), &mut |fingerprint, state| {
                keys.push((fingerprint, state));
            });
        let (small, restored) = counter_with(&algorithm, 5, keys, Vec::new(), clock.now());
        assert_eq!(restored, (1, 0));
        assert_eq!(small.general().fill().keys, 5);
        assert!(!decide(&*small, probe, clock.now(), &clock, None));
    }
}
