//! Values of the last one to two minutes: of this minute and of the previous one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::times::Times;

/// A value that is kept for each minute.
#[derive(Debug)]
pub(super) struct Recent<T> {
    began: Instant,
    /// Each with the number of its minute, which begins at 1.
    minutes: [(AtomicU64, T); 2],
}

/// The value with which a minute begins.
pub(super) trait Resettable: Default {
    fn clear(&self);
}

impl<T: Resettable> Recent<T> {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            minutes: Default::default(),
        }
    }

    fn minute(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs() / 60 + 1
    }

    /// Returns the value of this minute. A note at the moment when a minute begins may be lost.
    pub(super) fn now(&self, now: Instant) -> &T {
        let minute = self.minute(now);
        let [even, odd] = &self.minutes;
        let (of, value) = if minute.is_multiple_of(2) { even } else { odd };
        if of.load(Ordering::Relaxed) != minute && of.swap(minute, Ordering::Relaxed) != minute {
            value.clear();
        }
        value
    }

    /// Returns the values of this minute and of the previous one, as far as there are any.
    pub(super) fn last(&self, now: Instant) -> impl Iterator<Item = &T> {
        let minute = self.minute(now);
        let is_recent = move |of: u64| of > 0 && of + 1 >= minute;
        let minutes = self.minutes.iter();
        let minutes = minutes.filter(move |(of, _)| is_recent(of.load(Ordering::Relaxed)));
        minutes.map(|(_, value)| value)
    }
}

/// The longest of several times, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Longest(AtomicU64);

impl Longest {
    pub(super) fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_max(micros, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

impl Resettable for Longest {
    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Resettable for Times {
    fn clear(&self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_kept_until_the_end_of_the_next() {
        let recent = Recent::<Longest>::new();
        let at = |seconds| recent.began + Duration::from_secs(seconds);
        let longest = |seconds| recent.last(at(seconds)).map(Longest::get).max();
        assert_eq!(longest(0), None);
        recent.now(at(5)).note(Duration::from_secs(9));
        recent.now(at(70)).note(Duration::from_secs(2));
        assert_eq!(longest(119), Some(Duration::from_secs(9)));
        assert_eq!(longest(120), Some(Duration::from_secs(2)));
        recent.now(at(130)).note(Duration::from_secs(1));
        assert_eq!(longest(179), Some(Duration::from_secs(2)));
        assert_eq!(longest(180), Some(Duration::from_secs(1)));
        assert_eq!(longest(1_000), None);
    }
}
