//! The rule of sliding slots.
//!
//! A state is the number of the newest slot that was charged, and a ring of counts. Slots that have left are
//! overwritten by the next charge, so that a denied request writes nothing.

use super::SlidingSlots;
use crate::algorithm::State;
use crate::algorithm::step::{Step, countable};
use crate::clock::Micros;

/// The newest slot that was charged, by its number since the epoch, and a ring of counts: the count of slot
/// `n` stands at `n % (m + 1)`.
#[derive(Clone, Copy)]
struct Slots<'a> {
    newest: u64,
    counts: &'a [u64],
}

impl<'a> Slots<'a> {
    /// Returns the slots; `None` if the state is new, or has another number of places.
    fn of(state: &'a State, places: u64) -> Option<Self> {
        let (newest, counts) = state.words().split_first()?;
        (counts.len() as u64 == places).then_some(Self {
            newest: *newest,
            counts,
        })
    }

    /// Every slot in the ring, oldest first, with its count.
    fn each(self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let places = self.counts.len() as u64;
        let oldest = self.newest.saturating_sub(places - 1);
        (oldest..=self.newest).map(move |slot| (slot, self.counts[place(slot, places)]))
    }
}

/// Where the count of a slot stands in a ring of this many places.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a ring has at most 129 places"
)]
fn place(slot: u64, places: u64) -> usize {
    (slot % places) as usize
}

impl SlidingSlots {
    fn slot_at(self, now: Micros) -> u64 {
        now.get() / self.length().get()
    }

    /// Returns the slots that count at `now`, oldest first, with their counts.
    fn counting(self, state: &State, now: Micros) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let current = self.slot_at(now);
        let slots = Slots::of(state, self.places())
            .into_iter()
            .flat_map(Slots::each);
        slots.filter(move |(slot, _)| slot.saturating_add(self.slots.into()) >= current)
    }

    fn sum(self, state: &State, now: Micros) -> u64 {
        let current = self.slot_at(now);
        if let Some(Slots { newest, counts }) = Slots::of(state, self.places())
            && newest == current
            && newest >= self.places()
        {
            // No slot has left since the last charge, and so the order of the counts does not matter.
            return counts.iter().copied().fold(0, u64::saturating_add);
        }
        let counts = self.counting(state, now).map(|(_, count)| count);
        counts.fold(0, u64::saturating_add)
    }

    /// Returns how long until this slot no longer counts.
    fn to_its_end(self, slot: u64, now: Micros) -> Micros {
        let age = self.slot_at(now).saturating_sub(slot);
        let slots = self.places().saturating_sub(age);
        let length = self.length().get();
        Micros::new(slots * length - now.get() % length)
    }

    /// Adds units to the current slot.
    fn add(self, state: &mut State, now: Micros, units: u64) {
        let current = self.slot_at(now);
        let places = self.places();
        match state.words_mut().split_first_mut() {
            Some((newest, counts)) if counts.len() as u64 == places => {
                // New slots take the places of slots that have left.
                for slot in (*newest + 1..=current).rev().take(counts.len()) {
                    counts[place(slot, places)] = 0;
                }
                *newest = current;
                let count = &mut counts[place(current, places)];
                *count = count.saturating_add(units);
            }
            _ => *state = self.with(current, [(current, units)].into_iter()),
        }
    }

    /// A state with these counts, of slots up to `newest`.
    fn with(self, newest: u64, counts: impl Iterator<Item = (u64, u64)>) -> State {
        let places = self.places();
        let mut state = State::NEW;
        let words = state.words_mut();
        let len = 1 + usize::from(self.slots) + 1;
        words.reserve_exact(len);
        words.push(newest);
        words.resize(len, 0);
        for (slot, count) in counts {
            let sum = &mut words[1 + place(slot, places)];
            *sum = sum.saturating_add(count);
        }
        state
    }
}

impl Step for SlidingSlots {
    type Form = State;

    fn read(&self, state: State) -> State {
        state
    }

    fn write(&self, state: State) -> State {
        state
    }

    fn limit(&self) -> u32 {
        self.quota.limit()
    }

    fn window(&self) -> Micros {
        self.quota.period_micros()
    }

    fn longest_wait(&self) -> Micros {
        Micros::new(self.quota.period_micros().get() + self.length().get())
    }

    fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
        let current = self.slot_at(now);
        let slots = Slots::of(state, self.places()).filter(|slots| slots.newest > current)?;
        let counts = slots.each();
        Some(self.with(
            current,
            counts.map(|(slot, count)| (slot.min(current), count)),
        ))
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        self.sum(state, now).saturating_add(cost.into()) <= self.limit().into()
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        self.add(state, now, cost.into());
    }

    fn settle(&self, state: &mut State, now: Micros, units: u32) {
        let counted = countable(units, self.sum(state, now));
        self.add(state, now, counted);
    }

    fn refund(&self, state: &mut State, now: Micros, units: u32) {
        let mut left = u64::from(units);
        let newest_first: Vec<_> = self.counting(state, now).rev().collect();
        let places = self.places();
        let Some((_, counts)) = state.words_mut().split_first_mut() else {
            return;
        };
        for (slot, count) in newest_first {
            let given_back = count.min(left);
            counts[place(slot, places)] = count - given_back;
            left -= given_back;
        }
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        let sum = self.sum(state, now);
        u32::try_from(sum).map_or(0, |sum| self.limit().saturating_sub(sum))
    }

    fn distance(&self, state: &State, now: Micros) -> u64 {
        self.sum(state, now)
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        let newest = self.counting(state, now).rfind(|(_, count)| *count > 0);
        newest.map_or(Micros::ZERO, |(slot, _)| self.to_its_end(slot, now))
    }

    fn retry_after(&self, state: &State, now: Micros, cost: u32) -> Micros {
        let mut left = self.sum(state, now);
        let room = u64::from(self.limit() - cost);
        let last = self.counting(state, now).find(|(_, count)| {
            left = left.saturating_sub(*count);
            left <= room
        });
        last.map_or(Micros::ZERO, |(slot, _)| self.to_its_end(slot, now))
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        self.next_unit(state, now)
    }

    fn bin_end(&self, _: &State, now: Micros) -> Micros {
        let length = self.length().get();
        now.saturating_add(Micros::new(length - now.get() % length))
    }
}
