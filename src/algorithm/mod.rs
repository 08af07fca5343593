//! How a quota is enforced.
//!
//! An algorithm is a pure function of a state, a time and a cost: [`Algorithm::step`]. Arithmetic is exact, on integers: no rounding, no drift, no
//! overflow, for limits, capacities and costs up to `u32::MAX` and periods from 1 ms to 366
//! days.
//!
//! | algorithm | in a word |
//! | --- | --- |
//! | [`FixedWindow`] | so many in each minute of the wall clock |
//! | [`AnchoredWindow`] | so many in the minute after a key's first request |
//! | [`SlidingWindow`] | so many in the last minute, estimated from two counters |
//! | [`SlidingSlots`] | so many in the last minute, counted in parts of it |
//! | [`SlidingLog`] | so many in the last minute, to the request |
//! | [`TokenBucket`] | a rate and a burst |
//! | [`TokenBucket::by_interval`] | a burst, and credits that arrive together |
//! | [`LeakyBucket`], [`Gcra`] | a rate and a burst, as networks and telephony call them |
//! | [`LeakyQueue`] | a rate, at which requests wait for their turn |
//!
//! [Choosing](crate::guide::choosing) goes from a need to an algorithm, with the price of each.

mod anchored_window;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod leaky_queue;
mod limits;
#[cfg(feature = "redis")]
mod lua;
#[cfg(feature = "serde")]
mod serde;
mod sliding_log;
mod sliding_slots;
mod sliding_window;
mod state;
mod step;
mod text;
mod token_bucket;
mod unlimited;
mod window;

use std::time::Duration;

pub use self::anchored_window::AnchoredWindow;
pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
pub use self::leaky_bucket::LeakyBucket;
pub use self::leaky_queue::{LeakyQueue, Outflow};
pub use self::sliding_log::SlidingLog;
pub use self::sliding_slots::SlidingSlots;
pub use self::sliding_window::SlidingWindow;
pub use self::state::State;
pub use self::token_bucket::TokenBucket;

#[cfg(feature = "redis")]
pub(crate) use self::lua::Lua;
pub(crate) use self::step::{Fixed, Step, read};

use self::unlimited::Unlimited;
use crate::clock::Micros;
use crate::decision::Outcome;
#[cfg(feature = "redis")]
use crate::quota::show_period;

/// Any algorithm, chosen while the program runs.
///
/// As text it is the algorithm's [name](Self::name) and its quota: `fixed-window 100/minute`,
/// `anchored-window 100/minute`, `sliding-window 100/minute`, `sliding-slots 100/minute slots 60`,
/// `sliding-log 100/minute`, `token-bucket 5/second burst 10`,
/// `token-bucket-interval 5/second burst 10`, `leaky-bucket 5/second capacity 10`,
/// `gcra 5/second burst 10`, `leaky-queue 5/second places 10`, `unlimited`.
///
/// ```
/// use tower_ratelimit::{Algorithm, TokenBucket};
///
/// let algorithm: Algorithm = "token-bucket 5/second burst 10".parse()?;
/// assert_eq!(algorithm, TokenBucket::per_second(5).burst(10).into());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// # In a file
///
/// With feature `serde` an algorithm is that text, or a table under its name. `limit` and `per` are
/// required; token buckets and GCRA may have a `burst`, a `token-bucket` also a `refill`
/// (`continuous` or `interval`), a leaky bucket a `capacity`, sliding slots their number as `slots`, and a sliding
/// log a raised bound as `up-to`. A leaky queue has to have its `places`, or a `longest-wait`. A field of one algorithm's own type, such as
/// [`FixedWindow`], is the inner table alone.
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use tower_ratelimit::{Algorithm, SlidingSlots, TokenBucket};
///
/// #[derive(serde::Deserialize)]
/// struct Limits {
///     reads: Algorithm,
///     writes: Algorithm,
///     searches: Algorithm,
/// }
///
/// let limits: Limits = toml::from_str(
///     r#"
///     reads = "token-bucket 50/second burst 100"
///     writes.token-bucket = { limit = 5, per = "1s", burst = 10 }
///     searches.sliding-slots = { limit = 100, per = "minute", slots = 60 }
///     "#,
/// )?;
/// assert_eq!(limits.reads, TokenBucket::per_second(50).burst(100).into());
/// assert_eq!(limits.writes, TokenBucket::per_second(5).burst(10).into());
/// assert_eq!(limits.searches, SlidingSlots::per_minute(100).slots(60)?.into());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`AnchoredWindow`].
    AnchoredWindow(AnchoredWindow),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`SlidingSlots`].
    SlidingSlots(SlidingSlots),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`Gcra`].
    Gcra(Gcra),
    /// See [`LeakyQueue`].
    LeakyQueue(LeakyQueue),
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
            limited => Some(Numbers::of(limited).limit),
        }
    }

    /// The time for which the limit is meant: a window's period; the time in which an empty
    /// bucket fills at its rate. `None` if nothing is ever to be had, or if unlimited.
    pub fn period(&self) -> Option<Duration> {
        self.if_limited(Numbers::of(self).window)
    }

    /// How long a key that has used up its limit waits for the whole of it, at most. `None` if
    /// nothing is ever to be had, or if unlimited.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.if_limited(Numbers::of(self).longest_wait)
    }

    fn if_limited(&self, time: Micros) -> Option<Duration> {
        self.limit()
            .is_some_and(|limit| limit > 0)
            .then(|| time.to_duration())
    }

    /// Decides on one request: a pure function that reads no clock and keeps nothing.
    ///
    /// Returns what is to be told and the state to keep. A denial leaves the state as it was,
    /// except that a state which no request could have left by `now` (it is from the future, or
    /// owes more than the capacity, and not after [`settle`](Self::settle)) is first replaced by the
    /// nearest one that could.
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
    /// let (outcome, unchanged) = algorithm.step(state.clone(), now, 1);
    /// assert_eq!(outcome.retry_after(), Some(Duration::from_secs(45)));
    /// assert_eq!(unchanged, state);
    /// ```
    pub fn step(&self, state: State, now: Micros, cost: u32) -> (Outcome, State) {
        struct Decide(State, Micros, u32);

        impl WithRule for Decide {
            type Result = (Outcome, State);

            fn fixed(self, rule: impl Fixed) -> Self::Result {
                step::step(&rule, self.0, self.1, self.2)
            }

            fn long(self, rule: impl Step<Kept = State>) -> Self::Result {
                step::step(&rule, self.0, self.1, self.2)
            }
        }

        self.with_rule(Decide(state, now, cost))
    }

    /// What is told of a request, once its charge is in the state, or has been dropped.
    #[cfg(feature = "redis")]
    pub(crate) fn outcome(&self, state: State, now: Micros, cost: u32, allowed: bool) -> Outcome {
        struct Tell(State, Micros, u32, bool);

        impl WithRule for Tell {
            type Result = Outcome;

            fn fixed(self, rule: impl Fixed) -> Outcome {
                step::outcome(&rule, self.0, self.1, (self.2, self.3))
            }

            fn long(self, rule: impl Step<Kept = State>) -> Outcome {
                step::outcome(&rule, self.0, self.1, (self.2, self.3))
            }
        }

        self.with_rule(Tell(state, now, cost, allowed))
    }

    /// Gives back so much of what was charged last, and at most what is used: the counts of windows
    /// and of slots that still count, the newest first; the newest entries of a log; the debt of a
    /// bucket. Returns the state to keep.
    ///
    /// ```
    /// use tower_ratelimit::algorithm::State;
    /// use tower_ratelimit::{Algorithm, FixedWindow, Micros};
    ///
    /// let algorithm = Algorithm::from(FixedWindow::per_minute(3));
    /// let now = Micros::new(15_000_000);
    /// let (_, used_up) = algorithm.step(State::NEW, now, 3);
    /// let state = algorithm.refund(used_up, now, 2);
    /// assert_eq!(algorithm.step(state, now, 0).0.remaining(), 2);
    /// ```
    pub fn refund(&self, state: State, now: Micros, units: u32) -> State {
        struct Refund(State, Micros, u32);

        impl WithRule for Refund {
            type Result = State;

            fn fixed(self, rule: impl Fixed) -> State {
                step::refund(&rule, self.0, self.1, self.2)
            }

            fn long(self, rule: impl Step<Kept = State>) -> State {
                step::refund(&rule, self.0, self.1, self.2)
            }
        }

        self.with_rule(Refund(state, now, units))
    }

    /// Charges so much after the fact, whether there is room for it or not, and returns the state to
    /// keep: for a request that was let in at an estimate and took more. A window, slots and a log
    /// count all of it (up to 2^32 − 1 in all), and a bucket owes up to twice its capacity. A later
    /// request is denied until there is room for it again.
    ///
    /// 0 units change nothing, and neither do any under a limit of 0 or none. A bucket may have to be
    /// waited for up to twice as long as its [longest wait](Self::longest_wait) then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::algorithm::State;
    /// use tower_ratelimit::{Algorithm, Micros, TokenBucket};
    ///
    /// let algorithm = Algorithm::from(TokenBucket::per_second(1).burst(10));
    /// let now = Micros::new(15_000_000);
    /// let (_, estimated) = algorithm.step(State::NEW, now, 4);
    /// let state = algorithm.settle(estimated, now, 9);
    /// let (outcome, _) = algorithm.step(state, now, 1);
    /// assert_eq!(outcome.retry_after(), Some(Duration::from_secs(4)));
    /// ```
    pub fn settle(&self, state: State, now: Micros, units: u32) -> State {
        struct Settle(State, Micros, u32);

        impl WithRule for Settle {
            type Result = State;

            fn fixed(self, rule: impl Fixed) -> State {
                step::settle(&rule, self.0, self.1, self.2)
            }

            fn long(self, rule: impl Step<Kept = State>) -> State {
                step::settle(&rule, self.0, self.1, self.2)
            }
        }

        self.with_rule(Settle(state, now, units))
    }

    /// Whether a state that the other has left says the same here: kind, period and slots are the
    /// same, and the limit (a bucket's capacity, a queue's places) may be another.
    pub(crate) fn differs_in_its_limit_alone(&self, other: &Self) -> bool {
        self.frame() == other.frame()
    }

    /// The same as text, without spaces: what a state means nothing without.
    #[cfg(feature = "redis")]
    pub(crate) fn frame_text(&self) -> String {
        let (name, period, slots) = self.frame();
        let mut text = name.to_owned();
        if let Some(period) = period {
            text.push('/');
            text.push_str(&show_period(Micros::from(period)));
        }
        if let Some(slots) = slots {
            text.push('/');
            text.push_str(&slots.to_string());
        }
        text
    }

    /// All of it but its limit: its name, its period and its slots.
    pub(crate) fn frame(&self) -> (&'static str, Option<Duration>, Option<u32>) {
        let (quota, slots) = match self {
            Self::FixedWindow(window) => (window.quota(), None),
            Self::AnchoredWindow(window) => (window.quota(), None),
            Self::SlidingLog(log) => (log.quota(), None),
            Self::SlidingWindow(window) => (window.quota(), None),
            Self::SlidingSlots(slots) => (slots.quota(), Some(slots.count())),
            Self::TokenBucket(bucket) => (bucket.quota(), None),
            Self::LeakyBucket(bucket) => (bucket.quota(), None),
            Self::Gcra(gcra) => (gcra.quota(), None),
            Self::LeakyQueue(queue) => (queue.quota(), None),
            Self::Unlimited => return (self.name(), None, None),
        };
        (self.name(), Some(quota.period()), slots)
    }

    /// Does something with the algorithm's rule, whose type is known there.
    pub(crate) fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        match self {
            Self::FixedWindow(window) => act.fixed(*window),
            Self::AnchoredWindow(window) => act.fixed(*window),
            Self::SlidingWindow(window) => act.fixed(*window),
            Self::SlidingLog(log) => act.long(*log),
            Self::SlidingSlots(slots) => act.long(*slots),
            Self::TokenBucket(bucket) => bucket.with_rule(act),
            Self::LeakyBucket(bucket) => bucket.as_gcra().with_rule(act),
            Self::Gcra(gcra) => gcra.with_rule(act),
            Self::LeakyQueue(queue) => queue.as_gcra().with_queue(act),
            Self::Unlimited => act.long(Unlimited),
        }
    }
}

/// Something to be done with a rule.
pub(crate) trait WithRule {
    type Result;

    /// With a rule that keeps a fixed number of words.
    fn fixed(self, rule: impl Fixed) -> Self::Result;

    /// With one that is the same in numbers of two widths: one that holds whatever it may be
    /// given, and one, if there is such, that holds what the rule leaves itself.
    fn of_two_widths(self, wide: impl Fixed, narrow: Option<impl Fixed>) -> Self::Result
    where
        Self: Sized,
    {
        let _ = narrow;
        self.fixed(wide)
    }

    /// With one that keeps as many as it needs.
    fn long(self, rule: impl Step<Kept = State>) -> Self::Result;
}

/// The numbers of a rule that no key and no request has a part in.
struct Numbers {
    limit: u32,
    window: Micros,
    longest_wait: Micros,
}

impl Numbers {
    fn of(algorithm: &Algorithm) -> Self {
        struct Read;

        impl WithRule for Read {
            type Result = Numbers;

            fn fixed(self, rule: impl Fixed) -> Numbers {
                Numbers::of_rule(&rule)
            }

            fn long(self, rule: impl Step<Kept = State>) -> Numbers {
                Numbers::of_rule(&rule)
            }
        }

        algorithm.with_rule(Read)
    }

    fn of_rule(rule: &impl Step) -> Self {
        Self {
            limit: rule.limit(),
            window: rule.window(),
            longest_wait: rule.longest_wait(),
        }
    }
}

macro_rules! from_shape {
    ($($shape:ident)+) => {$(
        impl $shape {
            /// How long a key that has used up its limit waits for the whole of it, at most;
            /// `None` if nothing is ever to be had.
            pub fn longest_wait(&self) -> Option<Duration> {
                Algorithm::from(*self).longest_wait()
            }
        }

        impl From<$shape> for Algorithm {
            fn from(shape: $shape) -> Self {
                Self::$shape(shape)
            }
        }
    )+};
}
from_shape! {
    FixedWindow AnchoredWindow SlidingLog SlidingWindow SlidingSlots
    TokenBucket LeakyBucket Gcra LeakyQueue
}

/// The constructors that cannot fail.
macro_rules! paved_constructors {
    ($limit:ty, $of:path $(, $note:literal)?) => {
        /// This many in a second.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_second(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_second(limit as u32))
        }

        /// This many in a minute.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_minute(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_minute(limit as u32))
        }

        /// This many in an hour.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_hour(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_hour(limit as u32))
        }

        /// This many in a day of 24 hours.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_day(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_day(limit as u32))
        }
    };
}
use paved_constructors;

/// The constructors of a shape that can be made of any quota.
macro_rules! quota_constructors {
    () => {
        $crate::algorithm::paved_constructors!(u32, Self::of);

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
