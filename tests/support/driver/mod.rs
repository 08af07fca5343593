//! Ways to put one request after another to one key under one policy.

mod memory;
mod policies;
mod shared;
mod step;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tower_ratelimit::algorithm::{Limit, State};
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::{
    Algorithm, Limiter, LocalLimiter, ManualClock, MemoryStore, Micros, Outcome, Policy,
};

pub(crate) use self::memory::{Memory, Rebuilt};
pub(crate) use self::policies::Policies;
use self::policies::Verb;
pub(crate) use self::shared::Shared;
pub(crate) use self::step::Step;

/// What a client sees of one decision; times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) allowed: bool,
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    pub(crate) reset_after: u64,
    pub(crate) retry_after: Option<u64>,
}

impl From<&Outcome> for Seen {
    fn from(outcome: &Outcome) -> Self {
        Self {
            allowed: outcome.is_allowed(),
            limit: outcome.limit(),
            remaining: outcome.remaining(),
            reset_after: micros(outcome.reset_after()),
            retry_after: outcome.retry_after().map(micros),
        }
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    Micros::from(duration).get()
}

/// One key under one policy.
pub(crate) trait Driver: Sized {
    /// As how many requests of a driver in this process one of it counts, when cases are shared out.
    const PRICE: u32 = 1;

    /// Returns whether it can be asked about this algorithm at any time of a case.
    fn takes(_: &Algorithm) -> bool {
        true
    }

    /// A key that was never seen.
    fn new(algorithm: Algorithm) -> Self;

    /// Decides at this moment, in microseconds since the epoch.
    fn decide(&mut self, at: u64, cost: u32) -> Seen;

    /// What `decide` would tell.
    fn peek(&mut self, at: u64, cost: u32) -> Seen;

    /// Gives back what was charged last.
    fn refund(&mut self, at: u64, units: u32);

    /// Charges so much after the fact.
    fn settle(&mut self, at: u64, units: u32);

    /// Makes the key new.
    fn reset(&mut self, at: u64);

    /// Another key with the same past; what is asked of one does not touch the other.
    fn fork(&self) -> Self;

    /// What is kept of the key, where that can be seen.
    fn state(&self) -> Option<State> {
        None
    }
}

/// A driver whose requests can have limits of their own.
pub(crate) trait Limited: Driver {
    /// From now on, all that is asked has this limit: that of this algorithm, which differs in it alone.
    fn under(&mut self, algorithm: Algorithm, limit: Limit);
}

/// A driver that can block the key.
pub(crate) trait Blocking: Driver {
    /// Whether a question that may write nothing makes it forget a block that has ended.
    const FORGETS_WHEN_ASKED: bool = true;

    /// Blocks the key for so many microseconds.
    fn block(&mut self, at: u64, length: u64);

    /// Returns whether the key was blocked.
    fn unblock(&mut self, at: u64) -> bool;
}

/// A driver that can give the key a limit of its own.
pub(crate) trait Overriding: Driver {
    /// Lets the key have another limit for so many microseconds.
    fn override_limit(&mut self, at: u64, limit: Algorithm, length: u64);

    fn end_override(&mut self, at: u64);
}

/// What is told of the only policy.
pub(crate) fn seen(outcomes: &Outcomes) -> Seen {
    Seen::from(outcomes.iter().next().expect("one policy was asked").1)
}

/// What comes of a future that does not wait.
pub(crate) fn now<T>(future: impl IntoFuture<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future.into_future()).poll(&mut context) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// A store with room for more keys than a test uses. What is made beforehand for the default bound takes longer than most
/// laws.
pub(crate) fn small_store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::new().clock(clock.clone()).max_keys(1_000)
}

/// Returns a limiter over a store of its own in memory.
pub(crate) fn limiter<N: Into<String>>(
    clock: &ManualClock,
    policies: impl IntoIterator<Item = (N, Algorithm)>,
) -> LocalLimiter {
    let store = MemoryStore::new().clock(clock.clone());
    limiter_over(&store, policies)
}

pub(crate) fn limiter_over<N: Into<String>>(
    store: &MemoryStore,
    policies: impl IntoIterator<Item = (N, Algorithm)>,
) -> LocalLimiter {
    policies
        .into_iter()
        .fold(Limiter::builder(), |limiter, (name, algorithm)| {
            limiter.policy(Policy::new(name, algorithm))
        })
        .store(store.clone())
        .build_local()
        .expect("the policies are good")
}
