//! The wait for several policies with hours.

use std::time::Duration;

use proptest::collection::btree_set;
use proptest::prelude::*;
use tower_ratelimit::store::Store;
use tower_ratelimit::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, Micros, Policy, SharedStore,
};

use super::SECOND;
use super::cases::{Ask, Cost, Gap, cases};
use crate::case::Numbers;
use crate::property;
use crate::support::driver::{micros, now};
use crate::support::items::Map;

/// Several policies, with a key that no other case uses.
pub(crate) trait Several {
    const PRICE: u32;

    /// Times of requests differ by a multiple of this, in microseconds. For a store shared by nodes, whose clocks differ, a step
    /// back of a second is a clock that stands still.
    const GRAIN: i64 = 1;

    fn new(policies: Vec<Policy>) -> Self;

    /// Other policies about the same key, over the same store.
    fn reopened(&self, policies: Vec<Policy>) -> Self;

    fn decide(&self, at: u64, cost: u32) -> Decision;

    fn peek(&self, at: u64, cost: u32) -> Decision;
}

/// A limiter whose store answers at once.
pub(crate) struct AtOnce<S: Store> {
    pub(super) limiter: Limiter,
    pub(super) store: S,
    pub(super) clock: ManualClock,
}

impl<S: Store + Clone> AtOnce<S> {
    pub(super) fn over(store: S, clock: ManualClock, policies: Vec<Policy>) -> Self {
        let limiter = Limiter::builder().policies(policies).store(store.clone());
        let limiter = limiter.build().expect("the policies are good");
        Self {
            limiter,
            store,
            clock,
        }
    }

    pub(super) fn decide(&self, at: u64, cost: u32) -> Decision {
        self.clock.set_micros(Micros::new(at));
        now(self.limiter.check("key", cost)).expect("it decides")
    }

    pub(super) fn peek(&self, at: u64, cost: u32) -> Decision {
        self.clock.set_micros(Micros::new(at));
        now(self.limiter.peek("key", cost)).expect("it tells")
    }
}

macro_rules! at_once {
    ($kind:ty, $grain:literal, $clock:ident => $store:expr) => {
        impl Several for AtOnce<$kind> {
            const PRICE: u32 = 10;
            const GRAIN: i64 = $grain;

            fn new(policies: Vec<Policy>) -> Self {
                let $clock = ManualClock::new();
                Self::over($store, $clock, policies)
            }

            fn reopened(&self, policies: Vec<Policy>) -> Self {
                Self::over(self.store.clone(), self.clock.clone(), policies)
            }

            fn decide(&self, at: u64, cost: u32) -> Decision {
                self.decide(at, cost)
            }

            fn peek(&self, at: u64, cost: u32) -> Decision {
                self.peek(at, cost)
            }
        }
    };
}

at_once!(MemoryStore, 1, clock => MemoryStore::new().clock(clock.clone()));

at_once!(SharedStore<Map>, 2_000_000, clock => SharedStore::new(Map::new(&clock)));

/// Law 10, through switches: the wait of several policies ends at the first moment at which all of them have room. A peek
/// writes nothing, so that each moment can be tried.
pub(super) fn a_wait_for_several_policies_is_true_and_the_shortest<S: Several>() {
    let cases = (cases(), cases(), cases(), btree_set(0..1_000_u64, 24));
    property::check_at(property::seeds!(hours), S::PRICE, cases, &|(
        first,
        second,
        third,
        tried,
    )| {
        let policies: Vec<_> = [first, second, third]
            .iter()
            .zip(["first", "second", "third"])
            // With two queues, one turn would be missed.
            .filter(|(case, _)| case.which != QUEUE)
            .map(|(case, name)| Policy::new(name, case.algorithm()))
            .collect();
        if policies.is_empty() || !policies.iter().all(|policy| is_small(policy.algorithm())) {
            return Ok(());
        }
        let several = S::new(policies);
        let mut at = first.start;
        for Ask { gap, cost } in &first.asks {
            at += match gap {
                Gap::Periods(parts) => first.own.period / 4_096 * parts,
                Gap::Micros(micros) => *micros,
                _ => 0,
            };
            let cost = match cost {
                Cost::This(cost) => *cost % 6,
                _ => 1,
            };
            let decision = several.decide(at, cost);
            let Some(wait) = decision.retry_after().map(micros) else {
                continue;
            };
            // In order: by then, a store may forget keys that are as good as new.
            for part in tried {
                let earlier = wait / 1_000 * part;
                prop_assert!(
                    !several.peek(at + earlier, cost).is_allowed(),
                    "{}",
                    earlier
                );
            }
            prop_assert!(!several.peek(at + wait - 1, cost).is_allowed());
            prop_assert!(
                several.peek(at + wait, cost).is_allowed(),
                "after {} µs",
                wait
            );
        }
        Ok(())
    });
}

/// The index of the leaky queue in the list of all algorithms.
pub(super) const QUEUE: usize = 9;

/// Returns whether its debt drains within a few days.
pub(super) fn is_small(algorithm: &Algorithm) -> bool {
    let longest = algorithm.longest_wait();
    longest.is_none_or(|longest| longest < Duration::from_secs(3 * 86_400))
}

#[test]
pub(super) fn the_queue_is_where_it_is_left_out() {
    let numbers = Numbers {
        limit: 1,
        period: SECOND,
        size: 1,
        slots: 1,
    };
    let queue = crate::MOUNTED[QUEUE](&numbers).algorithm;
    assert!(matches!(queue, Algorithm::LeakyQueue(_)), "{queue}");
}

#[test]
pub(super) fn a_wait_for_several_policies_in_memory() {
    a_wait_for_several_policies_is_true_and_the_shortest::<AtOnce<MemoryStore>>();
}

#[test]
pub(super) fn a_wait_for_several_policies_in_a_shared_store() {
    a_wait_for_several_policies_is_true_and_the_shortest::<AtOnce<SharedStore<Map>>>();
}

#[cfg(feature = "redis")]
#[test]
pub(super) fn a_wait_for_several_policies_in_redis() {
    a_wait_for_several_policies_is_true_and_the_shortest::<crate::redis::SeveralInRedis>();
}
