//! The store in this process, and limiters that are built again over it.

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::{Algorithm, Micros};

use super::{Blocking, Driver, Limited, Overriding, Seen, limiter_over, seen};
use super::{Policies, Verb};

/// A limiter over a store of its own in memory.
#[derive(Debug)]
pub(crate) struct Memory(Policies);

impl Blocking for Memory {
    fn block(&mut self, at: u64, length: u64) {
        self.0.live(at, Verb::Block(length));
    }

    fn unblock(&mut self, at: u64) -> bool {
        self.0.unblock(at)
    }
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
            return seen(&self.0.backend.charge_now(&[charge]));
        }
        let decision = self.0.decide(at, cost);
        let (_, outcome) = decision.binding().expect("one policy was asked");
        Seen::from(outcome)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        self.0.clock.set_micros(Micros::new(at));
        if let Some(charge) = self.0.charge_under(cost) {
            return seen(&self.0.backend.peek_now(&[charge]));
        }
        let decision = self.0.limiter.peek("key", cost).now();
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
