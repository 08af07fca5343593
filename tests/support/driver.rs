//! Ways to put one request after another to one key under one policy.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tower_ratelimit::algorithm::{Limit, State};
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{
    Amendment, Charge, Ledger, MemoryLedger, Reply, SharedLedger, SharedStore, Store,
};
use tower_ratelimit::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, Micros, Outcome, Policy, StoreError,
};

use super::items::Map;

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

    /// Whether it can be asked about this algorithm at any time of a case.
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

/// A driver whose requests can have limits of their own.
pub(crate) trait Limited: Driver {
    /// From now on, all that is asked has this limit: that of this algorithm, which differs in it alone.
    fn under(&mut self, algorithm: Algorithm, limit: Limit);
}

impl Limited for Step {
    fn under(&mut self, algorithm: Algorithm, _: Limit) {
        self.algorithm = algorithm;
    }
}

/// A driver that can block the key.
pub(crate) trait Blocking: Driver {
    /// Whether a question that may write nothing makes it forget a block that has ended.
    const FORGETS_WHEN_ASKED: bool = true;

    /// Blocks the key for so many microseconds.
    fn block(&mut self, at: u64, length: u64);

    fn unblock(&mut self, at: u64);
}

/// A limiter over a store of its own in memory.
#[derive(Debug)]
pub(crate) struct Memory(Policies);

impl Blocking for Memory {
    fn block(&mut self, at: u64, length: u64) {
        self.0.live(at, Verb::Block(length));
    }

    fn unblock(&mut self, at: u64) {
        self.0.live(at, Verb::Unblock);
    }
}

/// A driver that can give the key a limit of its own.
pub(crate) trait Overriding: Driver {
    /// Lets the key have another limit for so many microseconds.
    fn override_limit(&mut self, at: u64, limit: Algorithm, length: u64);

    fn end_override(&mut self, at: u64);
}

impl Overriding for Memory {
    fn override_limit(&mut self, at: u64, limit: Algorithm, length: u64) {
        self.0.live(at, Verb::Override(limit, length));
    }

    fn end_override(&mut self, at: u64) {
        self.0.live(at, Verb::EndOverride);
    }
}

impl Driver for Memory {
    fn new(algorithm: Algorithm) -> Self {
        Self(Policies::new([algorithm]))
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(charge) = self.0.charge_under(cost) {
            self.0.past.push((at, Verb::Charge(cost)));
            self.0.clock.set_micros(Micros::new(at));
            return seen(&self.0.ledger.charge_now(&[charge]));
        }
        let decision = self.0.decide(at, cost);
        let (_, outcome) = decision.binding().expect("one policy was asked");
        Seen::from(outcome)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        self.0.clock.set_micros(Micros::new(at));
        if let Some(charge) = self.0.charge_under(cost) {
            return seen(&self.0.ledger.peek_now(&[charge]));
        }
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

impl Limited for Memory {
    fn under(&mut self, _: Algorithm, limit: Limit) {
        self.0.past.push((0, Verb::Under(limit)));
        self.0.limit = Some(limit);
    }
}

/// A limiter in memory that is built again whenever the limit changes, over the same store.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    memory: Memory,
    algorithm: Algorithm,
    past: Vec<(u64, Verb, Algorithm)>,
}

impl Rebuilt {
    fn live(&mut self, at: u64, verb: Verb) {
        self.past.push((at, verb, self.algorithm));
        self.memory.0.live(at, verb);
    }
}

impl Limited for Rebuilt {
    fn under(&mut self, algorithm: Algorithm, _: Limit) {
        self.algorithm = algorithm;
        let policies = &mut self.memory.0;
        policies.limiter = limiter_over(&policies.store, [("0", algorithm)]);
    }
}

impl Driver for Rebuilt {
    fn new(algorithm: Algorithm) -> Self {
        Self {
            memory: Memory::new(algorithm),
            algorithm,
            past: Vec::new(),
        }
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        self.past.push((at, Verb::Charge(cost), self.algorithm));
        self.memory.decide(at, cost)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        self.memory.peek(at, cost)
    }

    fn refund(&mut self, at: u64, units: u32) {
        self.live(at, Verb::Refund(units));
    }

    fn settle(&mut self, at: u64, units: u32) {
        self.live(at, Verb::Settle(units));
    }

    fn reset(&mut self, at: u64) {
        self.live(at, Verb::Reset);
    }

    fn fork(&self) -> Self {
        let mut fork = Self::new(self.memory.0.algorithms[0]);
        let unread = Limit::new(0, 0);
        for &(at, verb, algorithm) in &self.past {
            if algorithm != fork.algorithm {
                fork.under(algorithm, unread);
            }
            fork.live(at, verb);
        }
        if fork.algorithm != self.algorithm {
            fork.under(self.algorithm, unread);
        }
        fork
    }
}

/// A limiter over items in a map.
#[derive(Debug)]
pub(crate) struct Shared {
    algorithm: Algorithm,
    limiter: Limiter<SharedLedger<Map>>,
    ledger: SharedLedger<Map>,
    limit: Option<Limit>,
    map: Map,
}

impl Shared {
    fn over(algorithm: Algorithm, map: Map) -> Self {
        let (policy, store) = (Policy::new("0", algorithm), SharedStore::new(map.clone()));
        let ledger = store.open(std::slice::from_ref(&policy));
        let limiter = Limiter::builder().policy(policy).store(store).build();
        Self {
            algorithm,
            limiter: limiter.expect("the policy is good"),
            ledger: ledger.expect("the policy is good"),
            limit: None,
            map,
        }
    }

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter<SharedLedger<Map>>) -> F) -> T
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.map.clock.set_micros(Micros::new(at));
        now(ask(&self.limiter)).expect("a map does not fail")
    }

    /// The same of a request that has a limit of its own.
    fn ask_under<T>(
        &self,
        at: u64,
        cost: u32,
        ask: impl FnOnce(&SharedLedger<Map>, &[Charge]) -> Reply<Result<T, StoreError>>,
    ) -> Option<T> {
        let charge = Charge::new(0, "key".into_key(), cost).under(self.limit?);
        self.map.clock.set_micros(Micros::new(at));
        let reply = ask(&self.ledger, &[charge]);
        Some(now(reply.wait()).expect("a map does not fail"))
    }
}

impl Limited for Shared {
    fn under(&mut self, _: Algorithm, limit: Limit) {
        self.limit = Some(limit);
    }
}

/// What is told of the only policy.
pub(crate) fn seen(outcomes: &Outcomes) -> Seen {
    Seen::from(outcomes.iter().next().expect("one policy was asked").1)
}

impl Driver for Shared {
    fn new(algorithm: Algorithm) -> Self {
        Self::over(algorithm, Map::new(&ManualClock::new()))
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(told) = self.ask_under(at, cost, tower_ratelimit::store::Ledger::decide) {
            return seen(&told);
        }
        let decision = self.ask(at, |limiter| limiter.check("key", cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(told) = self.ask_under(at, cost, tower_ratelimit::store::Ledger::peek) {
            return seen(&told);
        }
        let decision = self.ask(at, |limiter| limiter.peek("key", cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn refund(&mut self, at: u64, units: u32) {
        let refunded = self.ask_under(at, units, |ledger, charges| {
            ledger.amend(charges, Amendment::Refund)
        });
        if refunded.is_none() {
            self.ask(at, |limiter| limiter.refund("key", units));
        }
    }

    fn settle(&mut self, at: u64, units: u32) {
        let settled = self.ask_under(at, units, |ledger, charges| {
            ledger.amend(charges, Amendment::Settle)
        });
        if settled.is_none() {
            self.ask(at, |limiter| limiter.settle("key", units));
        }
    }

    fn reset(&mut self, at: u64) {
        self.ask(at, |limiter| limiter.reset("key"));
    }

    fn fork(&self) -> Self {
        Self {
            limit: self.limit,
            ..Self::over(self.algorithm, self.map.fork())
        }
    }
}

impl Overriding for Shared {
    fn override_limit(&mut self, at: u64, limit: Algorithm, length: u64) {
        let length = Duration::from_micros(length);
        self.ask(at, |limiter| {
            let overridden = limiter.override_limit("0", "key", limit, length);
            overridden.expect("it differs in its limit alone")
        });
    }

    fn end_override(&mut self, at: u64) {
        self.ask(at, |limiter| {
            let ended = limiter.end_override("0", "key");
            ended.expect("there is such a policy")
        });
    }
}

impl Blocking for Shared {
    fn block(&mut self, at: u64, length: u64) {
        let length = Duration::from_micros(length);
        self.ask(at, |limiter| limiter.block("key", length));
    }

    fn unblock(&mut self, at: u64) {
        self.ask(at, |limiter| limiter.unblock("key"));
    }
}

/// What comes of a future that does not wait.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// One key under several policies of one limiter, with a clock that is set for each decision.
#[derive(Debug)]
pub(crate) struct Policies {
    algorithms: Vec<Algorithm>,
    clock: ManualClock,
    store: MemoryStore,
    limiter: Limiter,
    ledger: MemoryLedger,
    /// The limit that requests bring.
    limit: Option<Limit>,
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
    /// From then on requests bring this limit.
    Under(Limit),
}

impl Policies {
    /// The policies are named by their places: `0`, `1`, …
    pub(crate) fn new(algorithms: impl Into<Vec<Algorithm>>) -> Self {
        let algorithms = algorithms.into();
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        let named = algorithms.iter().enumerate();
        let named = named.map(|(place, &algorithm)| Policy::new(place.to_string(), algorithm));
        let policies: Vec<Policy> = named.collect();
        let ledger = store.open(&policies).expect("the policies are good");
        let builder = Limiter::builder().policies(policies).store(store.clone());
        Self {
            limiter: builder.build().expect("the policies are good"),
            ledger,
            limit: None,
            algorithms,
            clock,
            store,
            past: Vec::new(),
        }
    }

    /// The charge of a request that brings a limit.
    fn charge_under(&self, cost: u32) -> Option<Charge> {
        let charge = Charge::new(0, "key".into_key(), cost);
        Some(charge.under(self.limit?))
    }

    pub(crate) fn decide(&mut self, at: u64, cost: u32) -> Decision {
        self.past.push((at, Verb::Charge(cost)));
        self.clock.set_micros(Micros::new(at));
        self.limiter.check_now("key", cost)
    }

    fn live(&mut self, at: u64, verb: Verb) {
        if let Verb::Under(limit) = verb {
            self.past.push((at, verb));
            self.limit = Some(limit);
            return;
        }
        if let (Verb::Charge(cost), None) = (verb, self.limit) {
            let _ = self.decide(at, cost);
            return;
        }
        self.past.push((at, verb));
        self.clock.set_micros(Micros::new(at));
        let amend = |cost: u32, amendment| {
            let charge = self.charge_under(cost)?;
            self.ledger
                .amend_now(&[charge], amendment)
                .expect("there is room");
            Some(())
        };
        let amended = match verb {
            Verb::Charge(cost) => self.charge_under(cost).map(|charge| {
                let _ = self.ledger.charge_now(&[charge]);
            }),
            Verb::Refund(units) => amend(units, Amendment::Refund),
            Verb::Settle(units) => amend(units, Amendment::Settle),
            Verb::Reset => amend(0, Amendment::Reset),
            _ => None,
        };
        if amended.is_some() {
            return;
        }
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
