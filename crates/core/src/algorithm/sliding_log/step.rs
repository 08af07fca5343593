//! The rule of the sliding log.
//!
//! A state is the number of entries that are forgotten, and all entries: for each a time, and the total that was
//! admitted up to it. With totals in place of counts, the sum of any run of entries is a difference, and is
//! found by bisection. Forgotten entries are removed in batches, so that a charge moves two entries on average.

use smallvec::SmallVec;

use super::SlidingLog;
use crate::algorithm::State;
use crate::algorithm::step::{Step, countable};
use crate::clock::Micros;

/// A log, oldest entry first. The next charge forgets entries that are a period old.
#[derive(Clone, Copy)]
struct Log<'a> {
    entries: &'a [Entry],
    /// The total before the first entry.
    before: u64,
}

/// The time of one or more requests, and the total with them.
type Entry = [u64; 2];

impl<'a> Log<'a> {
    fn of(state: &'a State) -> Self {
        let Some((forgotten, words)) = state.words().split_first() else {
            return Self {
                entries: &[],
                before: 0,
            };
        };
        let (entries, _) = words.as_chunks();
        let forgotten = usize::try_from(*forgotten).unwrap_or(usize::MAX);
        let (forgotten, entries) = entries.split_at(forgotten.min(entries.len()));
        Self {
            entries,
            before: forgotten.last().map_or(0, |[_, total]| *total),
        }
    }

    /// Returns how many entries are no later than `time`. Few entries expire between two charges, so the
    /// search begins at the first entry and doubles its steps.
    fn until(self, time: u64) -> usize {
        let is_no_later = |[at, _]: &Entry| *at <= time;
        let mut end = 1;
        while self.entries.get(end - 1).is_some_and(is_no_later) {
            end *= 2;
        }
        let known = end / 2;
        let unknown = &self.entries[known..(end - 1).min(self.entries.len())];
        known + unknown.partition_point(is_no_later)
    }

    /// Returns the total with this number of entries.
    fn total(self, entries: usize) -> u64 {
        let last = entries
            .checked_sub(1)
            .and_then(|last| self.entries.get(last));
        last.map_or(self.before, |[_, total]| *total)
    }

    fn last(self) -> Option<Entry> {
        self.entries.last().copied()
    }
}

impl SlidingLog {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// Returns how many entries are a period old or older.
    fn expired(self, log: Log<'_>, now: Micros) -> usize {
        match now.get().checked_sub(self.period()) {
            Some(horizon) => log.until(horizon),
            None => 0,
        }
    }

    fn count(self, log: Log<'_>, now: Micros) -> u64 {
        let all = log.total(log.entries.len());
        all.saturating_sub(log.total(self.expired(log, now)))
    }

    /// Enters units at this moment.
    fn enter(self, state: &mut State, now: Micros, units: u64) {
        let log = Log::of(state);
        let expired = self.expired(log, now);
        let before = log.total(expired);
        let left = log.entries.len() - expired;
        let words = state.words_mut();
        match words.first_mut() {
            Some(forgotten) => *forgotten = forgotten.saturating_add(expired as u64),
            None => words.push(0),
        }
        // With half of the entries forgotten, a charge moves two entries on average.
        if words[0] > left as u64 / 2 {
            compact(words, left, before);
        }
        match words[1..].as_chunks_mut().0.last_mut() {
            Some([at, total]) if *at == now.get() => *total = total.saturating_add(units),
            last => {
                let before = last.map_or(0, |[_, total]| *total);
                make_room(words);
                words.push(now.get());
                words.push(before.saturating_add(units));
            }
        }
    }

    /// Returns how long until an entry of this time is a period old.
    fn to_its_end(self, at: u64, now: Micros) -> Micros {
        let age = now.get().saturating_sub(at);
        Micros::new(self.period().saturating_sub(age))
    }
}

impl Step for SlidingLog {
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
        self.quota.period_micros()
    }

    fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
        let log = Log::of(state);
        let [_, total] = log.last().filter(|[at, _]| *at > now.get())?;
        // Requests of one moment share an entry.
        let earlier = now
            .get()
            .checked_sub(1)
            .map_or(0, |before| log.until(before));
        let mut moved = State::NEW;
        let words = moved.words_mut();
        words.reserve_exact(1 + 2 * (earlier + 1));
        words.push(0);
        for [at, then] in &log.entries[..earlier] {
            words.extend_from_slice(&[*at, then.saturating_sub(log.before)]);
        }
        words.extend_from_slice(&[now.get(), total.saturating_sub(log.before)]);
        Some(moved)
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        let count = self.count(Log::of(state), now);
        count.saturating_add(cost.into()) <= self.limit().into()
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        self.enter(state, now, cost.into());
    }

    fn settle(&self, state: &mut State, now: Micros, units: u32) {
        let counted = countable(units, self.count(Log::of(state), now));
        if counted > 0 {
            self.enter(state, now, counted);
        }
    }

    fn refund(&self, state: &mut State, now: Micros, units: u32) {
        let log = Log::of(state);
        let expired = self.expired(log, now);
        let before = log.total(expired);
        let all = log.total(log.entries.len());
        let left = all.saturating_sub(units.into()).max(before);
        // The newest entries go; the last one that stays may stand for less than before.
        let stay = log.entries.partition_point(|[_, total]| *total < left);
        let stay = if left > before { stay + 1 } else { expired };
        let forgotten = state.words().len() / 2 - log.entries.len();
        let words = state.words_mut();
        words.truncate(1 + 2 * (forgotten + stay));
        if stay > expired
            && let Some([_, total]) = words[1..].as_chunks_mut().0.last_mut()
        {
            *total = left;
        }
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        let count = self.count(Log::of(state), now);
        u32::try_from(count).map_or(0, |count| self.limit().saturating_sub(count))
    }

    fn distance(&self, state: &State, now: Micros) -> u64 {
        self.count(Log::of(state), now)
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        let log = Log::of(state);
        match log.last() {
            Some([at, _]) if self.count(log, now) > 0 => self.to_its_end(at, now),
            _ => Micros::ZERO,
        }
    }

    fn retry_after(&self, state: &State, now: Micros, cost: u32) -> Micros {
        let log = Log::of(state);
        let room = u64::from(self.limit() - cost);
        // The client waits for the first entry after which no more than `room` was admitted.
        let total = log.total(log.entries.len());
        let last = log
            .entries
            .partition_point(|[_, then]| total.saturating_sub(*then) > room);
        match log.entries.get(last) {
            Some([at, _]) => self.to_its_end(*at, now),
            None => Micros::ZERO,
        }
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        self.next_unit(state, now)
    }

    fn size(&self, state: &State) -> usize {
        (state.words().len() / 2).max(1)
    }

    /// Removes forgotten entries. If there are none, counts the last two entries at the time of the last.
    fn compact_state(&self, state: &mut State) {
        let log = Log::of(state);
        let (left, before) = (log.entries.len(), log.before);
        let words = state.words_mut();
        if words.first().is_some_and(|forgotten| *forgotten > 0) {
            compact(words, left, before);
        } else if left > 1 {
            let last = words.len() - 2;
            words.drain(last - 2..last);
        }
    }
}

/// Removes all entries but the last `left`, and the total `before` these.
fn compact(words: &mut SmallVec<[u64; 3]>, left: usize, before: u64) {
    let gone = words.len().saturating_sub(2 * left);
    words.drain(1..gone.max(1));
    words[0] = 0;
    for [_, total] in words[1..].as_chunks_mut().0 {
        *total = total.saturating_sub(before);
    }
    if words.capacity() > 4 * words.len() {
        words.shrink_to_fit();
    }
}

/// Makes room for an entry, a quarter at a time: to double a large log would waste memory.
fn make_room(words: &mut SmallVec<[u64; 3]>) {
    // Half an entry, which only a damaged state has, is dropped.
    if words.len().is_multiple_of(2) {
        words.pop();
    }
    if words.len() + 2 > words.capacity() {
        words.reserve_exact(2 + words.len() / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_squeezed_until_it_takes_the_room_of_one_key_and_holds_back_no_less() {
        for (entries, expired) in [(2, 0), (8, 0), (9, 0), (20, 0), (20, 3), (41, 17), (41, 40)] {
            let rule = SlidingLog::per_minute(entries);
            let second = |number: u16| Micros::from_secs(100 + u64::from(number));
            let mut log = State::NEW;
            for number in 0..entries {
                rule.charge(&mut log, second(number), 1);
            }
            let now = second(59 + expired);
            rule.charge(&mut log, now, 1);
            let later = [0, 1, 15, 30, 59].map(|wait| second(59 + expired + wait));
            let mut remaining = later.map(|then| rule.remaining(&log, then));
            while rule.size(&log) > 1 {
                let before = (rule.size(&log), remaining);
                rule.compact_state(&mut log);
                remaining = later.map(|then| rule.remaining(&log, then));
                assert!(
                    rule.size(&log) < before.0,
                    "{entries} entries, {expired} expired"
                );
                assert_eq!(remaining[0], before.1[0]);
                let mut both = remaining.iter().zip(before.1);
                assert!(
                    both.all(|(after, before)| *after <= before),
                    "{remaining:?}"
                );
            }
        }
    }
}
