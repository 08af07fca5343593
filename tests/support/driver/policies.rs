//! Several policies over one store, for a key of each.

use std::time::Duration;

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Amendment, Charge, MemoryBackend, Store};
use tower_ratelimit::{
    Algorithm, Decision, Limiter, LocalLimiter, ManualClock, MemoryStore, Micros,
};

use super::small_store;

/// One key under several policies of one limiter, with a clock that is set for each decision.
#[derive(Debug)]
pub(crate) struct Policies {
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) clock: ManualClock,
    pub(super) store: MemoryStore,
    pub(super) limiter: LocalLimiter,
    pub(super) backend: MemoryBackend,
    /// The limit that requests bring.
    pub(super) limit: Option<Limit>,
    pub(super) past: Vec<(u64, Verb)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
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
        let store = small_store(&clock);
        let named = algorithms.iter().enumerate();
        let named = named.map(|(place, &algorithm)| Rule::new(place.to_string(), algorithm));
        let policies: Vec<Rule> = named.collect();
        let backend = store.open(&policies).expect("the policies are good");
        let builder = Limiter::builder().policies(policies).store(store.clone());
        Self {
            limiter: builder.build_local().expect("the policies are good"),
            backend,
            limit: None,
            algorithms,
            clock,
            store,
            past: Vec::new(),
        }
    }

    /// Returns the charge of a request that brings a limit.
    pub(super) fn charge_under(&self, cost: u32) -> Option<Charge> {
        let charge = Charge::new(0, "key".into_key(), cost);
        Some(charge.under(self.limit?))
    }

    pub(crate) fn decide(&mut self, at: u64, cost: u32) -> Decision {
        self.past.push((at, Verb::Charge(cost)));
        self.clock.set_micros(Micros::new(at));
        self.limiter.check("key", cost).now()
    }

    pub(super) fn live(&mut self, at: u64, verb: Verb) {
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
            self.backend
                .amend_now(&[charge], amendment)
                .expect("there is room");
            Some(())
        };
        let amended = match verb {
            Verb::Charge(cost) => self.charge_under(cost).map(|charge| {
                let _ = self.backend.charge_now(&[charge]);
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
            Verb::Refund(units) => self.limiter.refund("key", units).now(),
            Verb::Settle(units) => self.limiter.settle("key", units).now(),
            Verb::Block(length) => self
                .limiter
                .block("key", Duration::from_micros(length))
                .now(),
            Verb::Override(limit, length) => {
                let length = Duration::from_micros(length);
                let given = self.limiter.override_limit("0", "key", limit, length);
                let given = given.expect("a limit of the same kind and period");
                given.now().expect("there is room");
            }
            Verb::EndOverride => self
                .limiter
                .end_override("0", "key")
                .expect("a policy of this name")
                .now(),
            Verb::Unblock => {
                self.limiter.unblock("key").now();
            }
            _ => self.limiter.reset("key").now(),
        }
    }

    /// Returns whether the key was blocked.
    pub(super) fn unblock(&mut self, at: u64) -> bool {
        self.past.push((at, Verb::Unblock));
        self.clock.set_micros(Micros::new(at));
        self.limiter.unblock("key").now()
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
