//! The times of the latest requests, in bounded memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::exchange::Exchange;

/// The latest requests of a kind, in the order of sending.
///
/// When there are too many, neighbours are joined. A joined entry spans the times of all its requests, so that a
/// question about it errs in favour of the server.
#[derive(Debug)]
pub(super) struct Times {
    entries: VecDeque<Entry>,
    room: usize,
    total: u64,
}

#[derive(Debug)]
struct Entry {
    first: Arc<Exchange>,
    /// No request of this entry or of an earlier one was decided later.
    latest: Duration,
    count: u64,
}

impl Times {
    pub(super) fn new(room: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            room: room.max(8),
            total: 0,
        }
    }

    /// Returns how many there were since the beginning.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds the next request; `latest` is the latest receipt of all so far.
    pub(super) fn push(&mut self, answer: &Arc<Exchange>, latest: Duration) {
        self.total += 1;
        self.entries.push_back(Entry {
            first: Arc::clone(answer),
            latest,
            count: 1,
        });
        if self.entries.len() > self.room {
            self.join();
        }
    }

    fn join(&mut self) {
        let mut joined = VecDeque::with_capacity(self.room);
        while let Some(mut entry) = self.entries.pop_front() {
            if let Some(next) = self.entries.pop_front() {
                entry.latest = next.latest;
                entry.count += next.count;
            }
            joined.push_back(entry);
        }
        self.entries = joined;
    }

    /// Forgets all but the newest `count`.
    pub(super) fn keep_newest(&mut self, count: u64) {
        let mut held: u64 = self.entries.iter().map(|entry| entry.count).sum();
        while let Some(first) = self.entries.front() {
            if held - first.count < count {
                break;
            }
            held -= first.count;
            self.entries.pop_front();
        }
    }

    /// Forgets those that were decided before a moment.
    pub(super) fn keep_after(&mut self, moment: Duration) {
        while self
            .entries
            .front()
            .is_some_and(|first| first.latest <= moment)
        {
            self.entries.pop_front();
        }
    }

    /// Returns the request that was sent `back` requests before the newest, or an earlier one; `None` if it was forgotten or
    /// never was.
    pub(super) fn back(&self, back: u64) -> Option<&Arc<Exchange>> {
        let mut passed = 0;
        for entry in self.entries.iter().rev() {
            passed += entry.count;
            if passed > back {
                return Some(&entry.first);
            }
        }
        None
    }

    /// The most that can have been decided after a moment.
    pub(super) fn possibly_after(&self, moment: Duration) -> u64 {
        let after = self.entries.iter().rev();
        let after = after.take_while(|entry| entry.latest > moment);
        after.map(|entry| entry.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Verdict;
    use crate::info::RateLimitInfo;

    fn times(room: usize, count: u64) -> Times {
        let mut times = Times::new(room);
        for number in 0..count {
            let sent = Duration::from_millis(number * 10);
            let received = sent + Duration::from_millis(1);
            let answer = Exchange {
                number,
                client: 0,
                node: 0,
                sent,
                received,
                verdict: Verdict::Allowed,
                info: RateLimitInfo::default(),
            };
            times.push(&Arc::new(answer), received);
        }
        times
    }

    #[test]
    fn questions_are_answered_exactly_while_there_is_room() {
        let times = times(100, 100);
        assert_eq!(times.back(0).unwrap().number, 99);
        assert_eq!(times.back(30).unwrap().number, 69);
        assert!(times.back(100).is_none());
        assert_eq!(times.possibly_after(Duration::from_millis(951)), 4);
    }

    #[test]
    fn without_room_the_answers_favour_the_server() {
        let exact = times(1_000, 1_000);
        let joined = times(64, 1_000);
        assert!(joined.entries.len() <= 64);
        for back in 0..1_000 {
            assert!(joined.back(back).unwrap().sent <= exact.back(back).unwrap().sent);
            let moment = Duration::from_millis(back * 10);
            assert!(joined.possibly_after(moment) >= exact.possibly_after(moment));
        }
    }

    #[test]
    fn what_is_forgotten_is_not_counted() {
        let mut newest = times(100, 100);
        newest.keep_newest(10);
        assert_eq!(newest.back(9).unwrap().number, 90);
        assert!(newest.back(10).is_none());
        let mut after = times(100, 100);
        after.keep_after(Duration::from_millis(951));
        assert_eq!(after.possibly_after(Duration::ZERO), 4);
        assert_eq!(after.total(), 100);
    }
}
