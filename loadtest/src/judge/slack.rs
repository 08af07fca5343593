//! The time as the rules compute with it, and the error of a clock.

use std::time::Duration;

/// A server's clock may tick in milliseconds, or be read once for several requests.
const TICK: Duration = Duration::from_millis(5);

/// A server's clock may run faster or slower than ours by one part in this many. NTP changes the rate of a clock by
/// one part in 2,000 at most.
const DRIFT: u32 = 1_000;

/// Converts a time to microseconds, with a sign and with enough bits for every sum and product of the rules.
pub(super) fn micros(time: Duration) -> i128 {
    // Longer than every run and every period.
    const LONGEST: u128 = 1 << 80;
    i128::try_from(time.as_micros().min(LONGEST)).unwrap_or(i128::MAX)
}

/// Returns a time by our clock that is certainly not shorter than this time by the server's clock.
pub(super) fn at_least(time: Duration) -> Duration {
    time.saturating_add(TICK).saturating_add(time / DRIFT)
}

/// Returns a time by our clock that is certainly not longer than this time by the server's clock.
pub(super) fn at_most(time: Duration) -> Duration {
    time.saturating_sub(TICK).saturating_sub(time / DRIFT)
}

/// Returns the tick in microseconds.
pub(super) fn tick() -> i128 {
    micros(TICK)
}

/// Returns the shortest length of a step of a drifting clock, in microseconds.
pub(super) fn least_step(step: i128) -> i128 {
    step - (step / i128::from(DRIFT)) - 1
}

/// Returns the longest length of a step of a drifting clock, in microseconds.
pub(super) fn longest_step(step: i128) -> i128 {
    step + (step / i128::from(DRIFT)) + 1
}
