//! How a quota is enforced.
//!
//! Each algorithm has a room of its own: what it is in words, and its step, a pure function of
//! a state, a time and a cost. Arithmetic is exact, on integers: no rounding, no drift, no
//! overflow, for limits, capacities and costs up to `u32::MAX` and periods from 1 ms to 366
//! days.
//!
//! | algorithm | admits in any span shorter than the period | use it when |
//! | --- | --- | --- |
//! | [`FixedWindow`] | twice the limit, across a window's edge | a quota is "so many a day", and everybody's day begins at the same time |
//! | [`TokenBucket`] | the burst, and what is refilled meanwhile | clients burst and then rest |
//! | [`LeakyBucket`] | the same as a token bucket | you think in a level that drains |
//! | [`Gcra`] | the same as a token bucket | you know it from telecommunications or from other libraries |
//!
//! The last three are one mechanism under three names; they decide alike.

mod fixed_window;
mod gcra;
mod leaky_bucket;
mod state;
mod step;
mod text;
mod token_bucket;
mod unlimited;

use std::time::Duration;

pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
pub use self::leaky_bucket::LeakyBucket;
pub use self::state::State;
pub use self::token_bucket::TokenBucket;

use self::step::Step;
use self::unlimited::Unlimited;
use crate::clock::Micros;
use crate::decision::Outcome;

/// Any algorithm, chosen while the program runs.
///
/// As text it is the algorithm's name and its quota: `fixed-window 100/minute`,
/// `token-bucket 5/second burst 10`, `leaky-bucket 5/second capacity 10`, `gcra 5/second`,
/// `unlimited`.
///
/// ```
/// use tower_ratelimit::{Algorithm, TokenBucket};
///
/// let algorithm: Algorithm = "token-bucket 5/second burst 10".parse()?;
/// assert_eq!(algorithm, TokenBucket::per_second(5).burst(10).into());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`Gcra`].
    Gcra(Gcra),
    /// No limit at all. A policy with it is never asked: it keeps no state, and no number of it
    /// appears in a decision or in a response.
    Unlimited,
}

impl Algorithm {
    /// The most that can be admitted at one instant: a window's limit, a bucket's capacity.
    /// `None` if unlimited.
    pub fn limit(&self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            limited => Some(limited.rule().limit()),
        }
    }

    /// How long a key that has used up its limit waits for the whole of it, at most: a window's
    /// period; the time in which an empty bucket fills. `None` if nothing is ever to be had,
    /// or if unlimited.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.rule().longest_wait().map(Micros::to_duration)
    }

    /// Decides on one request: a pure function that reads no clock and keeps nothing.
    ///
    /// Returns what is to be told and the state to keep. A denial leaves the state as it was,
    /// except that a state from the future (a clock has stepped back) is first moved to `now`.
    /// A cost of 0 asks without charging; a store does not write what comes back from it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::algorithm::State;
    /// use tower_ratelimit::{Algorithm, FixedWindow, Micros};
    ///
    /// let algorithm = Algorithm::from(FixedWindow::per_minute(1));
    /// let now = Micros::new(15_000_000);
    ///
    /// let (outcome, state) = algorithm.step(State::NEW, now, 1);
    /// assert!(outcome.is_allowed());
    ///
    /// let (outcome, unchanged) = algorithm.step(state, now, 1);
    /// assert_eq!(outcome.retry_after(), Some(Duration::from_secs(45)));
    /// assert_eq!(unchanged, state);
    /// ```
    pub fn step(&self, state: State, now: Micros, cost: u32) -> (Outcome, State) {
        let attempt = self.attempt(state, now, cost);
        let outcome = self.outcome(&attempt, true);
        (outcome, attempt.after.unwrap_or(attempt.before))
    }

    /// The first half of a step: is it allowed?
    pub(crate) fn attempt(&self, state: State, now: Micros, cost: u32) -> Attempt {
        let rule = self.rule();
        let before = rule.moved_back(state, now);
        Attempt {
            now,
            cost,
            before,
            after: rule.admit(before, now, cost),
        }
    }

    /// The second half: what is to be told, once it is known whether the charge stands.
    pub(crate) fn outcome(&self, attempt: &Attempt, charged: bool) -> Outcome {
        let &Attempt {
            now, cost, before, ..
        } = attempt;
        let rule = self.rule();
        match attempt.after {
            Some(after) if charged => rule.allowed(after, now),
            Some(_) => rule.allowed(before, now),
            None => rule.denied(before, now, cost),
        }
    }

    /// Whether the state is as good as that of a key which was never seen.
    pub(crate) fn is_as_new(&self, state: State, now: Micros) -> bool {
        let rule = self.rule();
        rule.reset_after(rule.moved_back(state, now), now) == Micros::ZERO
    }

    fn rule(&self) -> &dyn Step {
        match self {
            Self::FixedWindow(window) => window,
            Self::TokenBucket(bucket) => bucket.as_gcra(),
            Self::LeakyBucket(bucket) => bucket.as_gcra(),
            Self::Gcra(gcra) => gcra,
            Self::Unlimited => &Unlimited,
        }
    }
}

macro_rules! from_shape {
    ($($shape:ident)+) => {$(
        impl From<$shape> for Algorithm {
            fn from(shape: $shape) -> Self {
                Self::$shape(shape)
            }
        }
    )+};
}
from_shape!(FixedWindow TokenBucket LeakyBucket Gcra);

/// One request held against one state; what is told of it depends on the other policies too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    now: Micros,
    cost: u32,
    /// The state, moved back to `now` if it was from the future.
    pub(crate) before: State,
    /// The state after the charge; `None` if it is denied.
    pub(crate) after: Option<State>,
}

/// The constructors that every shape made of one quota shares.
macro_rules! quota_constructors {
    () => {
        /// This many in a second.
        pub const fn per_second(limit: u32) -> Self {
            Self::of($crate::quota::Quota::per_second(limit))
        }

        /// This many in a minute.
        pub const fn per_minute(limit: u32) -> Self {
            Self::of($crate::quota::Quota::per_minute(limit))
        }

        /// This many in an hour.
        pub const fn per_hour(limit: u32) -> Self {
            Self::of($crate::quota::Quota::per_hour(limit))
        }

        /// This many in a day of 24 hours.
        pub const fn per_day(limit: u32) -> Self {
            Self::of($crate::quota::Quota::per_day(limit))
        }

        /// This many in this period.
        ///
        /// # Errors
        ///
        /// When the period is shorter than 1 ms, longer than 366 days, or not a whole number of
        /// microseconds.
        pub fn new(
            limit: u32,
            period: std::time::Duration,
        ) -> Result<Self, $crate::error::ConfigError> {
            $crate::quota::Quota::new(limit, period).map(Self::of)
        }
    };
}
use quota_constructors;
