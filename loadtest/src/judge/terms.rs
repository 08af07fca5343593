//! The numbers of a policy, parsed from its text.

use std::time::Duration;

use tower_ratelimit_core::{Algorithm, Quota};

/// A policy as the judge needs it: its rule and its numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) algorithm: Algorithm,
    pub(super) rule: Rule,
    /// The limit of the quota.
    pub(super) limit: u64,
    /// The period of the quota.
    pub(super) period: Duration,
    /// The most at one instant: the limit of a window, the capacity of a bucket.
    pub(super) size: u64,
}

/// The kind of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Fixed,
    Anchored,
    Log,
    Estimate,
    Slots(u64),
    /// Token bucket, leaky bucket and GCRA.
    Bucket,
    Interval,
    Queue,
    Unlimited,
}

impl Terms {
    /// Every algorithm shows its quota and its number as text, and so needs no accessor for each kind.
    pub(super) fn of(algorithm: Algorithm) -> Self {
        let text = algorithm.to_string();
        let mut words = text.split(' ').skip(1);
        let quota = words.next().and_then(|quota| quota.parse::<Quota>().ok());
        let number = words.nth(1).and_then(|number| number.parse().ok());
        let limit = quota.map_or(0, |quota| u64::from(quota.limit()));
        Self {
            algorithm,
            rule: match algorithm {
                Algorithm::FixedWindow(_) => Rule::Fixed,
                Algorithm::AnchoredWindow(_) => Rule::Anchored,
                Algorithm::SlidingLog(_) => Rule::Log,
                Algorithm::SlidingWindow(_) => Rule::Estimate,
                // Ten unless the text says otherwise.
                Algorithm::SlidingSlots(_) => Rule::Slots(number.unwrap_or(10)),
                Algorithm::LeakyQueue(_) => Rule::Queue,
                Algorithm::Unlimited => Rule::Unlimited,
                _ if algorithm.name() == "token-bucket-interval" => Rule::Interval,
                _ => Rule::Bucket,
            },
            limit,
            period: quota.map_or(Duration::ZERO, |quota| quota.period()),
            size: algorithm.limit().map_or(u64::MAX, u64::from),
        }
    }

    /// Returns how many come back in a period.
    pub(super) fn refill(&self) -> u64 {
        self.limit.min(self.size)
    }

    /// Returns whether a server that tells this quota and this window in seconds tells the truth.
    pub(super) fn agrees_with(&self, quota: u64, window: Option<u64>) -> bool {
        if self.rule == Rule::Unlimited {
            return false;
        }
        let seconds = |time: Duration| {
            let up = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            [time.as_secs(), up.max(1)]
        };
        let fill = self.period.as_secs_f64() * precise(self.size) / precise(self.limit.max(1));
        let fill = Duration::try_from_secs_f64(fill).unwrap_or(Duration::MAX);
        let matches = |time: Duration| window.is_none_or(|window| seconds(time).contains(&window));
        (quota == self.limit && matches(self.period))
            || (quota == self.size && (matches(fill) || matches(self.period)))
    }
}

/// Exact: limits are below 2^32.
#[allow(clippy::cast_precision_loss, reason = "limits are below 2^32")]
fn precise(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_text() {
        for (text, rule, limit, ms, size) in [
            ("fixed-window 10/2s", Rule::Fixed, 10, 2_000, 10),
            ("anchored-window 10/2s", Rule::Anchored, 10, 2_000, 10),
            ("sliding-slots 10/2s slots 4", Rule::Slots(4), 10, 2_000, 10),
            ("sliding-slots 10/2s", Rule::Slots(10), 10, 2_000, 10),
            ("sliding-window 10/2s", Rule::Estimate, 10, 2_000, 10),
            ("sliding-log 10/minute", Rule::Log, 10, 60_000, 10),
            ("gcra 5/second burst 20", Rule::Bucket, 5, 1_000, 20),
            (
                "leaky-bucket 5/second capacity 2",
                Rule::Bucket,
                5,
                1_000,
                2,
            ),
            ("token-bucket 5/second", Rule::Bucket, 5, 1_000, 5),
            (
                "token-bucket-interval 5/second burst 7",
                Rule::Interval,
                5,
                1_000,
                7,
            ),
            ("leaky-queue 5/second places 7", Rule::Queue, 5, 1_000, 8),
        ] {
            let terms = Terms::of(text.parse().unwrap());
            assert_eq!(terms.rule, rule, "{text}");
            assert_eq!((terms.limit, terms.size), (limit, size), "{text}");
            assert_eq!(terms.period, Duration::from_millis(ms), "{text}");
        }
    }

    #[test]
    fn a_bucket_may_be_told_by_its_capacity_or_by_its_rate() {
        let bucket = Terms::of("gcra 5/second burst 10".parse().unwrap());
        assert!(bucket.agrees_with(10, Some(2)));
        assert!(bucket.agrees_with(5, Some(1)));
        assert!(bucket.agrees_with(10, None));
        assert!(!bucket.agrees_with(10, Some(60)));
        assert!(!bucket.agrees_with(100, None));
        let window = Terms::of("fixed-window 10/1500ms".parse().unwrap());
        assert!(window.agrees_with(10, Some(2)));
        assert!(!window.agrees_with(10, Some(3)));
    }
}
