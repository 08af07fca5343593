//! The counts of a run, in memory that does not grow with the number of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::exchange::{Failure, Verdict};

/// The counts of a run, or of one of its threads.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Answers 2xx.
    pub allowed: u64,
    /// Answers 429.
    pub limited: u64,
    /// All other outcomes, by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// The times of allowed requests from the intended start to the end of the answer, in microseconds.
    pub allowed_latency: Histogram<u64>,
    /// The same of limited requests.
    pub limited_latency: Histogram<u64>,
    /// The allowed, limited and failed requests of each second of the run.
    pub seconds: Vec<[u64; 3]>,
    /// Arrivals that were sent over ten milliseconds too late.
    pub late: u64,
    /// The longest delay of an arrival.
    pub latest: Duration,
    /// Arrivals that were not sent at all.
    pub unsent: u64,
    /// Arrivals of clients whose wait has not ended.
    pub withheld: u64,
    /// Requests without an answer when the run ended.
    pub unfinished: u64,
    /// The requests that were sent right after an announced wait, and how many of them were refused.
    pub retries: [u64; 2],
    /// The time from the beginning to the last answer.
    pub elapsed: Duration,
}

/// The delay from which on an arrival is late.
const LATE: Duration = Duration::from_millis(10);

impl Default for Tally {
    fn default() -> Self {
        Self {
            allowed: 0,
            limited: 0,
            failures: BTreeMap::new(),
            allowed_latency: histogram(),
            limited_latency: histogram(),
            seconds: Vec::new(),
            late: 0,
            latest: Duration::ZERO,
            unsent: 0,
            withheld: 0,
            unfinished: 0,
            retries: [0, 0],
            elapsed: Duration::ZERO,
        }
    }
}

impl Tally {
    /// Returns the number of failures.
    pub fn errors(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Returns the number of answers and failures.
    pub fn total(&self) -> u64 {
        self.allowed + self.limited + self.errors()
    }

    /// Returns whether the server answered at least once.
    pub fn is_answered(&self) -> bool {
        let mut failures = self.failures.keys();
        self.allowed + self.limited > 0 || failures.any(|failure| failure.is_answered())
    }

    /// Counts an answer, with its intended start, its start and its end.
    pub fn count(&mut self, verdict: Verdict, intended: Duration, sent: Duration, ended: Duration) {
        let latency = ended.saturating_sub(intended).as_micros();
        let latency = u64::try_from(latency).unwrap_or(u64::MAX);
        let kind = match verdict {
            Verdict::Allowed => {
                self.allowed += 1;
                self.allowed_latency.saturating_record(latency);
                0
            }
            Verdict::Limited => {
                self.limited += 1;
                self.limited_latency.saturating_record(latency);
                1
            }
            Verdict::Failed(failure) => {
                *self.failures.entry(failure).or_default() += 1;
                2
            }
        };
        let second = usize::try_from(ended.as_secs()).unwrap_or(usize::MAX);
        if second < 4_000 {
            if self.seconds.len() <= second {
                self.seconds.resize(second + 1, [0; 3]);
            }
            self.seconds[second][kind] += 1;
        }
        let late = sent.saturating_sub(intended);
        self.late += u64::from(late > LATE);
        self.latest = self.latest.max(late);
        self.elapsed = self.elapsed.max(ended);
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.limited += other.limited;
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        // Both have the same bounds.
        let _ = self.allowed_latency.add(&other.allowed_latency);
        let _ = self.limited_latency.add(&other.limited_latency);
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), [0; 3]);
        }
        for (sum, second) in self.seconds.iter_mut().zip(&other.seconds) {
            for (sum, count) in sum.iter_mut().zip(second) {
                *sum += count;
            }
        }
        self.late += other.late;
        self.latest = self.latest.max(other.latest);
        self.unsent += other.unsent;
        self.withheld += other.withheld;
        self.unfinished += other.unfinished;
        for (sum, count) in self.retries.iter_mut().zip(other.retries) {
            *sum += count;
        }
        self.elapsed = self.elapsed.max(other.elapsed);
    }
}

/// Creates a histogram from a microsecond to an hour, in three digits.
fn histogram() -> Histogram<u64> {
    const HOUR: u64 = 3_600_000_000;
    Histogram::new_with_bounds(1, HOUR, 3).expect("the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_counted_from_the_intended_start() {
        let mut tally = Tally::default();
        let ms = Duration::from_millis;
        tally.count(Verdict::Allowed, ms(100), ms(150), ms(160));
        assert_eq!(tally.allowed_latency.max() / 1_000, 60);
        assert_eq!((tally.late, tally.latest), (1, ms(50)));
        assert_eq!(tally.elapsed, ms(160));
    }

    #[test]
    fn the_counts_of_threads_add_up() {
        let mut sum = Tally::default();
        let ms = Duration::from_millis;
        for status in [200, 429, 500] {
            let mut tally = Tally::default();
            tally.count(Verdict::of(status), ms(1_500), ms(1_500), ms(1_501));
            sum.add(&tally);
        }
        assert_eq!((sum.allowed, sum.limited, sum.errors()), (1, 1, 1));
        assert_eq!(sum.total(), 3);
        assert_eq!(sum.seconds, [[0; 3], [1, 1, 1]]);
        assert!(sum.is_answered());
    }

    #[test]
    fn without_an_answer_there_is_none() {
        let mut tally = Tally::default();
        let failed = Verdict::Failed(Failure::Timeout);
        tally.count(failed, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        assert!(!tally.is_answered());
    }
}
