//! Ways to put one request after another to one key under one policy.

use std::time::Duration;

use tower_ratelimit::algorithm::State;
use tower_ratelimit::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, Micros, Outcome, Policy,
};

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

/// The algorithm's pure step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) algorithm: Algorithm,
    pub(crate) state: State,
}

impl Driver for Step {
    fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            state: State::NEW,
        }
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        let (outcome, state) = self
            .algorithm
            .step(self.state.clone(), Micros::new(at), cost);
        if cost > 0 {
            self.state = state;
        }
        Seen::from(&outcome)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        let (outcome, _) = self
            .algorithm
            .step(self.state.clone(), Micros::new(at), cost);
        Seen::from(&outcome)
    }

    fn refund(&mut self, at: u64, units: u32) {
        let state = self.state.clone();
        self.state = self.algorithm.refund(state, Micros::new(at), units);
    }

    fn settle(&mut self, at: u64, units: u32) {
        let state = self.state.clone();
        self.state = self.algorithm.settle(state, Micros::new(at), units);
    }

    fn reset(&mut self, _: u64) {
        self.state = State::NEW;
    }

    fn fork(&self) -> Self {
        self.clone()
    }

    fn state(&self) -> Option<State> {
        Some(self.state.clone())
    }
}

/// A limiter over a store of its own in memory.
#[derive(Debug)]
pub(crate) struct Memory(Policies);

impl Memory {
    /// Blocks the key for so many microseconds.
    pub(crate) fn block(&mut self, at: u64, length: u64) {
        self.0.live(at, Verb::Block(length));
    }

    /// Lets the key have another limit for so many microseconds.
    pub(crate) fn override_limit(&mut self, at: u64, limit: Algorithm, length: u64) {
        self.0.live(at, Verb::Override(limit, length));
    }

    pub(crate) fn end_override(&mut self, at: u64) {
        self.0.live(at, Verb::EndOverride);
    }

    pub(crate) fn unblock(&mut self, at: u64) {
        self.0.live(at, Verb::Unblock);
    }
}

impl Driver for Memory {
    fn new(algorithm: Algorithm) -> Self {
        Self(Policies::new([algorithm]))
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        let decision = self.0.decide(at, cost);
        let (_, outcome) = decision.binding().expect("one policy was asked");
        Seen::from(outcome)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        self.0.clock.set_micros(Micros::new(at));
        let decision = self.0.limiter.peek_now("key", cost);
        let (_, outcome) = decision.binding().expect("one policy was asked");
        Seen::from(outcome)
    }

    fn refund(&mut self, at: u64, units: u32) {
        self.0.live(at, Verb::Refund(units));
    }

    fn settle(&mut self, at: u64, units: u32) {
        self.0.live(at, Verb::Settle(units));
    }

    fn reset(&mut self, at: u64) {
        self.0.live(at, Verb::Reset);
    }

    fn fork(&self) -> Self {
        Self(self.0.fork())
    }
}

/// One key under several policies of one limiter, with a clock that is set for each decision.
#[derive(Debug)]
pub(crate) struct Policies {
    algorithms: Vec<Algorithm>,
    clock: ManualClock,
    limiter: Limiter,
    past: Vec<(u64, Verb)>,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Charge(u32),
    Refund(u32),
    Settle(u32),
    Reset,
    Block(u64),
    Unblock,
    Override(Algorithm, u64),
    EndOverride,
}

impl Policies {
    /// The policies are named by their places: `0`, `1`, …
    pub(crate) fn new(algorithms: impl Into<Vec<Algorithm>>) -> Self {
        let algorithms = algorithms.into();
        let clock = ManualClock::new();
        let named = algorithms.iter().enumerate();
        let named = named.map(|(place, &algorithm)| (place.to_string(), algorithm));
        Self {
            limiter: limiter(&clock, named),
            algorithms,
            clock,
            past: Vec::new(),
        }
    }

    pub(crate) fn decide(&mut self, at: u64, cost: u32) -> Decision {
        self.past.push((at, Verb::Charge(cost)));
        self.clock.set_micros(Micros::new(at));
        self.limiter.check_now("key", cost)
    }

    fn live(&mut self, at: u64, verb: Verb) {
        if let Verb::Charge(cost) = verb {
            let _ = self.decide(at, cost);
            return;
        }
        self.past.push((at, verb));
        self.clock.set_micros(Micros::new(at));
        match verb {
            Verb::Refund(units) => self.limiter.refund_now("key", units),
            Verb::Settle(units) => self.limiter.settle_now("key", units),
            Verb::Block(length) => self.limiter.block_now("key", Duration::from_micros(length)),
            Verb::Override(limit, length) => {
                let length = Duration::from_micros(length);
                let done = self.limiter.override_limit_now("0", "key", limit, length);
                done.expect("a limit of the same kind and period");
            }
            Verb::EndOverride => self
                .limiter
                .end_override_now("0", "key")
                .expect("a policy of this name"),
            Verb::Unblock => self.limiter.unblock_now("key"),
            _ => self.limiter.reset_now("key"),
        }
    }

    /// Lives through the past once more in another store: in the same store, a fork's look into
    /// the future would make the store forget the key as idle.
    pub(crate) fn fork(&self) -> Self {
        let mut fork = Self::new(self.algorithms.clone());
        for &(at, verb) in &self.past {
            fork.live(at, verb);
        }
        fork
    }
}

/// A limiter over a store of its own in memory.
pub(crate) fn limiter<N: Into<String>>(
    clock: &ManualClock,
    policies: impl IntoIterator<Item = (N, Algorithm)>,
) -> Limiter {
    let store = MemoryStore::new().clock(clock.clone());
    limiter_over(&store, policies)
}

pub(crate) fn limiter_over<N: Into<String>>(
    store: &MemoryStore,
    policies: impl IntoIterator<Item = (N, Algorithm)>,
) -> Limiter {
    policies
        .into_iter()
        .fold(Limiter::builder(), |limiter, (name, algorithm)| {
            limiter.policy(Policy::new(name, algorithm))
        })
        .store(store.clone())
        .build()
        .expect("the policies are good")
}
