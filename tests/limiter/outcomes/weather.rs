//! Random requests, the policies that count them, and the cost of each request.

use tower_ratelimit::policy::{Ending, OnAbandoned, Settle};
use tower_ratelimit::store::Store;
use tower_ratelimit::{AnchoredWindow, Concurrency, Policy, RateLimitLayer, SlidingWindow, key};

use super::script::{Script, WAYS, Way};

/// A limit that refuses no request.
const PLENTY: u32 = 1_000_000_000;

/// The cost under `units` of a request without an answer.
pub(crate) const UNSETTLED: u32 = 7;

/// A deterministic source of random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u32) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(seed + 1) << 20)
    }

    pub(crate) fn below(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 32).unwrap() % most
    }
}

/// A request before it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    pub(crate) user: u32,
    pub(crate) estimate: u32,
    pub(crate) cost: u32,
    pub(crate) way: Way,
}

impl Drawn {
    pub(crate) fn by(dice: &mut Dice, users: u32) -> Self {
        Self {
            way: WAYS[dice.below(u32::try_from(WAYS.len()).unwrap()) as usize],
            estimate: dice.below(100),
            cost: dice.below(200),
            user: dice.below(users),
        }
    }

    pub(crate) fn script(&self) -> Script {
        Script::new(self.way, self.cost)
    }

    /// Returns whether the client leaves before it sees a refusal. Only the state tells whether such a
    /// request was admitted, so each is in a team of its own.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.way, Way::NeverPolled | Way::GoneAtOnce)
    }

    /// Returns what the request is charged when it is admitted, under `units` and `successes`.
    pub(crate) fn charged(&self) -> [u32; 2] {
        [self.estimate.max(1), 1]
    }

    /// Returns whether an admitted request is charged. One that is never polled does not reach a store that
    /// answers later.
    fn is_charged(&self, is_charged_unpolled: bool) -> bool {
        self.way != Way::NeverPolled || is_charged_unpolled
    }

    /// Returns the cost of the request under `units` and `successes` if it is admitted.
    pub(crate) fn costs(&self, is_charged_unpolled: bool) -> [u32; 2] {
        let units = match self.way {
            way if way.has_an_answer() => self.cost,
            _ if self.is_charged(is_charged_unpolled) => UNSETTLED,
            _ => 0,
        };
        [units, u32::from(self.way.is_complete())]
    }

    /// Returns how many settlements change what an admitted request was charged, under `units` and `successes`.
    pub(crate) fn settlements(&self, is_charged_unpolled: bool) -> [u64; 2] {
        if !self.is_charged(is_charged_unpolled) {
            return [0; 2];
        }
        let (charged, costs) = (self.charged(), self.costs(is_charged_unpolled));
        [0, 1].map(|policy| u64::from(charged[policy] != costs[policy]))
    }
}

pub(crate) fn user(number: u32) -> String {
    format!("user-{number}")
}

/// Creates a layer that lets this many requests of a team be inside at once. Requests with the same header
/// `x-team` are a team.
pub(crate) fn layer(at_once: u32, store: impl Store) -> RateLimitLayer {
    let units = Policy::new("units", AnchoredWindow::per_day(PLENTY))
        .key(key::header("x-user"))
        .estimate_with(super::script::estimate)
        .settle(Settle::from_header("x-cost"))
        .on_abandoned(OnAbandoned::Units(UNSETTLED));
    let successes = Policy::new("successes", SlidingWindow::per_day(PLENTY))
        .key(key::header("x-user"))
        .charge_when(|ending: &Ending<'_>| ending.is_complete())
        .on_abandoned(OnAbandoned::Nothing);
    let at_once = Policy::new("at once", Concurrency::of(at_once)).key(key::header("x-team"));
    RateLimitLayer::builder()
        .policy(units)
        .policy(successes)
        .policy(at_once)
        .store(store)
        .build()
        .unwrap()
}

/// Returns the usage of a key under each policy.
pub(crate) async fn used(layer: &RateLimitLayer, header: &str, value: &str) -> [u32; 3] {
    let key = key::header(header).key_of(value).unwrap();
    let decision = layer.limiter().peek(key, 0).await.unwrap();
    // Without the store, a node would answer from this process, which knows nothing.
    assert!(!decision.is_degraded(), "{value}: told without the store");
    let numbers: Vec<u32> = decision.policies().map(|(_, told)| told.used()).collect();
    numbers.try_into().unwrap()
}
