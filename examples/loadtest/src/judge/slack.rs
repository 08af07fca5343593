//! Time as the rules compute with it, and what a clock may err by.

use std::time::Duration;

/// A server's clock may tick in milliseconds, or be read once for several requests.
const TICK: Duration = Duration::from_millis(5);

/// A server's clock may run faster or slower than ours by one part in this many. NTP slews by one part in 2,000 at most.
const DRIFT: u32 = 1_000;

/// Microseconds, signed, wide enough for every sum and product of the rules.
pub(super) fn micros(time: Duration) -> i128 {
    // No moment of a run and no period is longer than this.
    const LONGEST: u128 = 1 << 80;
    i128::try_from(time.as_micros().min(LONGEST)).unwrap_or(i128::MAX)
}

/// A time by our clock that is certainly not shorter than this one by the server's.
pub(super) fn at_least(time: Duration) -> Duration {
    time.saturating_add(TICK).saturating_add(time / DRIFT)
}

/// A time by our clock that is certainly not longer than this one by the server's.
pub(super) fn at_most(time: Duration) -> Duration {
    time.saturating_sub(TICK).saturating_sub(time / DRIFT)
}

/// The tick alone, in microseconds.
pub(super) fn tick() -> i128 {
    micros(TICK)
}

/// The shortest that a step of a drifting clock can be, in microseconds.
pub(super) fn least_step(step: i128) -> i128 {
    step - (step / i128::from(DRIFT)) - 1
}

/// The longest that a step of a drifting clock can be, in microseconds.
pub(super) fn longest_step(step: i128) -> i128 {
    step + (step / i128::from(DRIFT)) + 1
}
