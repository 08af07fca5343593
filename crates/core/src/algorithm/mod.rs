//! How a quota is enforced.
//!
//! An algorithm is a pure function of a state, a time and a cost: [`Algorithm::step`]. It reads no clock and
//! does no I/O. Its arithmetic is exact, on integers: it does not round, drift or overflow, for limits,
//! capacities and costs up to `u32::MAX` and periods from 1 ms to 366 days.
//!
//! | algorithm | what it admits |
//! | --- | --- |
//! | [`FixedWindow`] | a number of requests in each minute of the wall clock |
//! | `CalendarWindow` (feature `calendar`) | a number of requests in each day or month of a time zone |
//! | [`AnchoredWindow`] | a number in the minute after a key's first request |
//! | [`SlidingWindow`] | a number in the last minute, estimated from two counters |
//! | [`SlidingSlots`] | a number in the last minute, counted in parts of a minute |
//! | [`SlidingLog`] | a number in the last minute, counted request by request |
//! | [`TokenBucket`] | a rate and a burst |
//! | [`TokenBucket::by_interval`] | a burst, refilled all at once |
//! | [`LeakyBucket`], [`Gcra`] | a rate and a burst, under the names of networks and telephony |
//! | [`LeakyQueue`] | a rate, at which requests wait for their turn |
//! | [`Concurrency`] | a number of requests at once |
//!
//! [Choosing][choosing] goes from a need to an algorithm, with the price of each.
//!
//! [choosing]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/choosing/index.html
//
// Each algorithm has a room: its type and its documentation, the rule in Rust (`step.rs`) and the same rule in
// Lua (`step.lua`). `step.rs` beside this file defines what a rule is. Other differences between the
// algorithms (name, number, limits) are in their implementations of `Kind`. A new algorithm is a room, its
// `mod` and `use` here, and a line of the list in `kind.rs`.

mod anchored_window;
mod any_long;
mod any_packed;
mod any_rule;
mod by_hours;
mod calendar_window;
mod concurrency;
mod constructors;
mod drain;
mod fixed_window;
mod gcra;
pub(crate) mod kind;
mod leaky_bucket;
mod leaky_queue;
mod limits;
pub(crate) mod lua;
mod refusals;
mod replenishment;
#[cfg(feature = "serde")]
mod serde;
mod shape;
mod share;
mod sliding_log;
mod sliding_slots;
mod sliding_window;
mod state;
pub(crate) mod step;
mod text;
mod token_bucket;
mod unlimited;
mod unparsed;
mod window;

use std::time::Duration;

pub use self::anchored_window::AnchoredWindow;
pub use self::by_hours::{ByHours, HourlyLimit, Hours};
pub use self::calendar_window::CalendarWindow;
pub use self::concurrency::Concurrency;
pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
pub use self::leaky_bucket::LeakyBucket;
pub use self::leaky_queue::{LeakyQueue, LeakyQueueRate};
pub use self::limits::Limit;
pub use self::sliding_log::SlidingLog;
pub use self::sliding_slots::SlidingSlots;
pub use self::sliding_window::SlidingWindow;
pub use self::state::State;
pub use self::token_bucket::TokenBucket;
// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
pub use self::unparsed::{Parsed, Unparsed};

pub(crate) use self::any_long::AnyLong;
pub(crate) use self::any_packed::AnyPacked;
pub(crate) use self::any_rule::AnyRule;
pub(crate) use self::kind::Replenishment;
pub(crate) use self::lua::Lua;
pub(crate) use self::share::Share;
pub(crate) use self::step::{Fixed, Pack, Step, WithRule, read};

use self::constructors::{paved_constructors, quota_constructors};
use self::kind::{Kind, each_kind, match_kind};
#[cfg(feature = "serde")]
use self::serde::table;
use self::step::with_rule;
use self::unlimited::Unlimited;
use crate::clock::Micros;
use crate::decision::Outcome;

/// Without `serde` there are no tables.
#[cfg(not(feature = "serde"))]
macro_rules! table {
    ($($ignored:tt)*) => {};
}
#[cfg(not(feature = "serde"))]
use table;

/// An enum with a variant for each kind.
macro_rules! enumerate {
    ([$($kind:ident)+] $(#[$attribute:meta])+ pub enum $name:ident) => {
        $(#[$attribute])+
        pub enum $name {
            $(
                #[doc = concat!("See [`", stringify!($kind), "`].")]
                $kind($kind),
            )+
            /// No limit. A policy without a limit keeps no state, and appears in no decision and in no
            /// response.
            Unlimited,
        }

        $(
            impl From<$kind> for $name {
                fn from(kind: $kind) -> Self {
                    Self::$kind(kind)
                }
            }

            impl $kind {
                /// Returns how long a key that has used up its limit waits for the whole limit, at most; `None` if
                /// every request is denied.
                pub fn longest_wait(&self) -> Option<Duration> {
                    $name::from(*self).longest_wait()
                }
            }
        )+
    };
}
each_kind! {
    enumerate
    /// Any algorithm, chosen while the program runs.
    ///
    /// Its text is a [name](Self::name), a quota and, for some algorithms, a number: `fixed-window 100/minute`,
    /// `anchored-window 100/minute`, `sliding-window 100/minute`, `sliding-slots 100/minute slots 60`,
    /// `sliding-log 100/minute`, `token-bucket 5/second burst 10`,
    /// `token-bucket-interval 5/second burst 10`, `leaky-bucket 5/second capacity 10`,
    /// `gcra 5/second burst 10`, `leaky-queue 5/second places 10`, `concurrency 20`, `unlimited`.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{Algorithm, TokenBucket};
    ///
    /// let algorithm: Algorithm = "token-bucket 5/second burst 10".parse()?;
    /// assert_eq!(algorithm, TokenBucket::per_second(5).burst(10).into());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// # In a file
    ///
    /// With feature `serde` an algorithm is that text, or a table under its name, with the fields `limit` and
    /// `per` and:
    ///
    /// | name | fields |
    /// | --- | --- |
    /// | `sliding-slots` | `slots`, their number (default 10) |
    /// | `sliding-log` | `up-to`, a larger bound on the limit (default 65,536) |
    /// | `token-bucket` | `burst` (default: the limit); `refill`, which is `continuous` (default) or `interval` |
    /// | `token-bucket-interval`, `gcra` | `burst` (default: the limit) |
    /// | `leaky-bucket` | `capacity` (default: the limit) |
    /// | `leaky-queue` | either `places` or `longest-wait`, without a default |
    /// | `concurrency` | none but `limit`, without `per` |
    ///
    /// Where the type is one algorithm, such as [`FixedWindow`], the inner table stands alone.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
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
    pub enum Algorithm
}

impl Algorithm {
    /// Returns the most that can be admitted at one instant: a window's limit, a bucket's capacity.
    /// `None` if unlimited.
    pub fn limit(&self) -> Option<u32> {
        let limit = with_rule!(self, () -> u32, rule => rule.limit());
        (!matches!(self, Self::Unlimited)).then_some(limit)
    }

    /// Returns the time to which the limit applies: the period of a window, or the time in which an empty bucket
    /// fills at its rate. `None` if every request is denied, or if unlimited.
    pub fn period(&self) -> Option<Duration> {
        self.if_limited(with_rule!(self, () -> Micros, rule => rule.window()))
    }

    /// Returns how long a key that has used up its limit waits for the whole limit, at most. `None` if every
    /// request is denied, or if unlimited.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.if_limited(with_rule!(self, () -> Micros, rule => rule.longest_wait()))
    }

    fn if_limited(&self, time: Micros) -> Option<Duration> {
        // Concurrency has no time.
        let has_time = time > Micros::ZERO && self.limit().is_some_and(|limit| limit > 0);
        has_time.then(|| time.to_duration())
    }

    /// Decides on one request: a pure function, which reads no clock and keeps nothing.
    ///
    /// Returns the outcome and the state to keep. A denied request leaves the state unchanged, unless no
    /// request by `now` could have left this state, which is then from the future: the nearest possible state
    /// replaces it.
    ///
    /// Any limit may have left the state. The usage stays: a window compares its counts with the
    /// present limit. The debt of a bucket above its capacity drains at the rate at which it was charged (the
    /// highest, if there were several, or the present rate if that is higher), and the rest at the present
    /// rate.
    ///
    /// A cost of 0 asks without charging; a store does not write the state that it returns.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
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
        with_rule!(
            self,
            (state: State, now: Micros, cost: u32) -> (Outcome, State),
            rule => step::step(&rule, state, now, cost)
        )
    }

    /// Returns how long a request of this cost waits if nothing else is charged, and the state: no time if it passes
    /// now, and `None` if it never passes.
    pub(crate) fn wait(&self, state: State, now: Micros, cost: u32) -> (Option<Micros>, State) {
        with_rule!(
            self,
            (state: State, now: Micros, cost: u32) -> (Option<Micros>, State),
            rule => step::wait(&rule, state, now, cost)
        )
    }

    /// Returns the outcome of a request whose charge is already in the state, or was dropped.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn outcome(&self, state: State, now: Micros, cost: u32, allowed: bool) -> Outcome {
        with_rule!(
            self,
            (state: State, now: Micros, cost: u32, allowed: bool) -> Outcome,
            rule => step::outcome(&rule, state, now, (cost, allowed))
        )
    }

    /// Gives back units of the latest charges, at most as many as are used, and returns the state to keep.
    ///
    /// Windows and slots lower the counts that still matter, the newest first; a log drops its newest
    /// entries; a bucket owes less.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
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
        with_rule!(
            self,
            (state: State, now: Micros, units: u32) -> State,
            rule => step::refund(&rule, state, now, units)
        )
    }

    /// Returns until when a refund gives back units that were charged at this moment, and not those of later
    /// requests. `reset_after` is that of the outcome of the charge.
    pub(crate) fn refundable_until(&self, charged: Micros, reset_after: Micros) -> Micros {
        let reset = charged.saturating_add(reset_after);
        match_kind!(self, kind => kind.refunds_newest(), None).map_or(reset, |length| {
            let since = charged.get() % length.get();
            Micros::new(charged.get() - since + length.get()).min(reset)
        })
    }

    /// Charges units after the fact, even if that exceeds the limit, and returns the state to keep: for a
    /// request that was admitted at an estimate and took more.
    ///
    /// Windows, slots and logs count all units, up to 2^32 − 1 in total. A bucket is charged up to twice its
    /// capacity, so that a client may have to wait up to twice the [longest wait](Self::longest_wait). Later
    /// requests are denied until there is room for them again. 0 units change nothing; nor does any number
    /// if the limit is 0 or if there is none.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
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
        with_rule!(
            self,
            (state: State, now: Micros, units: u32) -> State,
            rule => step::settle(&rule, state, now, units)
        )
    }

    /// Passes the rule to `act`, which knows its type.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    #[inline]
    pub fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        match_kind!(self, kind => Kind::with_rule(kind, act), act.stateless(Unlimited))
    }
}
