//! The times at which an open loop means to send requests.

use std::time::Duration;

use tower_ratelimit_core::Quota;

/// The arrivals of requests, whether the server keeps up or not.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// Arrivals at even gaps.
    Even(f64),
    /// Arrivals at random gaps, as of independent clients.
    Poisson(f64),
    /// Bursts of this many requests in each period.
    Bursts(Quota),
}

impl Arrivals {
    /// Returns the endless times of the arrivals, counted from the beginning.
    pub fn times(self, seed: u64) -> impl Iterator<Item = Duration> + Send {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut number = 0_u64;
        let mut last = 0.0;
        std::iter::from_fn(move || {
            let time = match self {
                // The time is computed from the number, since adding would drift.
                Self::Even(rate) => seconds(float(number) / rate),
                Self::Poisson(rate) => {
                    last += -(1.0 - random.f64()).ln() / rate;
                    seconds(last)
                }
                Self::Bursts(quota) => {
                    let burst = number / u64::from(quota.limit().max(1));
                    quota.period() * u32::try_from(burst).unwrap_or(u32::MAX)
                }
            };
            number += 1;
            Some(time)
        })
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a run has ten million requests at most"
)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_do_not_drift() {
        let hour = Arrivals::Even(3.0).times(0).nth(3 * 3_600).unwrap();
        assert_eq!(hour, Duration::from_secs(3_600));
    }

    #[test]
    fn random_arrivals_have_the_rate_that_was_asked_for() {
        let times: Vec<_> = Arrivals::Poisson(100.0).times(7).take(10_000).collect();
        let last = times.last().unwrap().as_secs_f64();
        assert!((95.0..105.0).contains(&last), "{last}");
        // 63 % of exponential gaps are shorter than the mean.
        let gaps = times.windows(2);
        let gaps = gaps.map(|pair| pair[1].saturating_sub(pair[0]));
        let short = gaps.filter(|gap| *gap < Duration::from_millis(10)).count();
        assert!((6_100..6_500).contains(&short), "{short}");
    }

    #[test]
    fn a_burst_comes_at_once() {
        let burst = Arrivals::Bursts("3/2s".parse().unwrap());
        let times: Vec<_> = burst.times(0).take(7).map(|time| time.as_secs()).collect();
        assert_eq!(times, [0, 0, 0, 2, 2, 2, 4]);
    }
}
