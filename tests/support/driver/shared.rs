//! A shared store.

use std::time::Duration;

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{
    Amendment, Backend, Charge, Reply, SharedBackend, SharedStore, Store,
};
use tower_ratelimit::{Algorithm, Limiter, ManualClock, Micros, StoreError};

use super::super::items::Map;
use super::{Blocking, Driver, Limited, Overriding, Seen, now, seen};

/// A limiter over items in a map.
#[derive(Debug)]
pub(crate) struct Shared {
    algorithm: Algorithm,
    limiter: Limiter,
    backend: SharedBackend<Map>,
    limit: Option<Limit>,
    map: Map,
}

impl Shared {
    fn over(algorithm: Algorithm, map: Map) -> Self {
        let (policy, store) = (Rule::new("0", algorithm), SharedStore::new(map.clone()));
        let backend = store.open(std::slice::from_ref(&policy));
        let limiter = Limiter::builder().policy(policy).store(store).build();
        Self {
            algorithm,
            limiter: limiter.expect("the policy is good"),
            backend: backend.expect("the policy is good"),
            limit: None,
            map,
        }
    }

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter) -> F) -> T
    where
        F: IntoFuture<Output = Result<T, StoreError>>,
    {
        self.map.clock.set_micros(Micros::new(at));
        now(ask(&self.limiter)).expect("a map does not fail")
    }

    /// Returns the same of a request that has a limit of its own.
    fn ask_under<T>(
        &self,
        at: u64,
        cost: u32,
        ask: impl FnOnce(&SharedBackend<Map>, &[Charge]) -> Reply<Result<T, StoreError>>,
    ) -> Option<T> {
        let charge = Charge::new(0, "key".into_key(), cost).under(self.limit?);
        self.map.clock.set_micros(Micros::new(at));
        let reply = ask(&self.backend, &[charge]);
        Some(now(reply.wait()).expect("a map does not fail"))
    }
}

impl Limited for Shared {
    fn under(&mut self, _: Algorithm, limit: Limit) {
        self.limit = Some(limit);
    }
}

impl Driver for Shared {
    fn new(algorithm: Algorithm) -> Self {
        Self::over(algorithm, Map::new(&ManualClock::new()))
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(told) = self.ask_under(at, cost, tower_ratelimit::store::Backend::decide) {
            return seen(&told);
        }
        let decision = self.ask(at, |limiter| limiter.check("key", cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(told) = self.ask_under(at, cost, tower_ratelimit::store::Backend::peek) {
            return seen(&told);
        }
        let decision = self.ask(at, |limiter| limiter.peek("key", cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn refund(&mut self, at: u64, units: u32) {
        let refunded = self.ask_under(at, units, |backend, charges| {
            backend.amend(charges, Amendment::Refund)
        });
        if refunded.is_none() {
            self.ask(at, |limiter| limiter.refund("key", units));
        }
    }

    fn settle(&mut self, at: u64, units: u32) {
        let settled = self.ask_under(at, units, |backend, charges| {
            backend.amend(charges, Amendment::Settle)
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

    fn unblock(&mut self, at: u64) -> bool {
        self.ask(at, |limiter| limiter.unblock("key"))
    }
}
