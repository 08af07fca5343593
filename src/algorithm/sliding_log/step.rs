use super::SlidingLog;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::clock::Micros;

/// The log, oldest first. It may still hold entries that are a period old.
#[derive(Clone, Copy)]
struct Log<'a> {
    entries: &'a [[u64; 2]],
}

/// An entry is the time of one or more requests, and how much the log had admitted in all when
/// they were in: what lies between two entries is a difference, and is found by bisection.
type Entry = [u64; 2];

impl<'a> Log<'a> {
    fn of(state: &'a State) -> Self {
        let (entries, _) = state.words().as_chunks();
        Self { entries }
    }

    /// How many entries are no later than this.
    fn until(self, time: u64) -> usize {
        self.entries.partition_point(|[at, _]| *at <= time)
    }

    /// What the first so many entries have admitted.
    fn total(self, entries: usize) -> u64 {
        let last = entries
            .checked_sub(1)
            .and_then(|last| self.entries.get(last));
        last.map_or(0, |[_, total]| *total)
    }

    fn last(self) -> Option<Entry> {
        self.entries.last().copied()
    }
}

impl SlidingLog {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// How many entries are a period old or older.
    fn expired(self, log: Log<'_>, now: Micros) -> usize {
        match now.get().checked_sub(self.period()) {
            Some(horizon) => log.until(horizon),
            None => 0,
        }
    }

    fn count(self, log: Log<'_>, now: Micros) -> u64 {
        log.total(log.entries.len()) - log.total(self.expired(log, now))
    }

    /// How long until an entry of this time is a period old.
    fn to_its_end(self, at: u64, now: Micros) -> Micros {
        Micros::new(at.saturating_add(self.period()) - now.get())
    }
}

impl Step for SlidingLog {
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
        // Entries of this very moment are one entry.
        let before = now
            .get()
            .checked_sub(1)
            .map_or(0, |before| log.until(before));
        let kept = log.entries[..before].as_flattened();
        Some(State::from_words(&[kept, &[now.get(), total]].concat()))
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        self.count(Log::of(state), now) + u64::from(cost) <= self.limit().into()
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        let log = Log::of(state);
        let expired = self.expired(log, now);
        let forgotten = log.total(expired);
        let len = log.entries.len();
        let words = state.words_mut();
        // Only now and then, so that a charge moves a few entries on average and not all.
        if 2 * expired > len {
            words.drain(..2 * expired);
            for [_, total] in words.as_chunks_mut().0 {
                *total -= forgotten;
            }
        }
        let cost = u64::from(cost);
        match words.as_chunks_mut().0.last_mut() {
            Some([at, total]) if *at == now.get() => *total += cost,
            Some([_, total]) => {
                let total = *total + cost;
                words.extend_from_slice(&[now.get(), total]);
            }
            None => words.extend_from_slice(&[now.get(), cost]),
        }
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        let count = self.count(Log::of(state), now);
        u32::try_from(count).map_or(0, |count| self.limit().saturating_sub(count))
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
        // The first entry with which no more than `room` has come since has to grow old.
        let total = log.total(log.entries.len());
        let last = log.entries.partition_point(|[_, then]| total - then > room);
        match log.entries.get(last) {
            Some([at, _]) => self.to_its_end(*at, now),
            None => Micros::ZERO,
        }
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        self.next_unit(state, now)
    }
}
