//! Either–or: of several policies, the first that has room is charged.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Limiter, ManualClock, MemoryStore, Micros,
    OnStoreFailure, Policy, Quota, SharedStore, SlidingWindow, StoreError, TokenBucket,
};

use crate::property::{check_at, seeds};
use crate::support::driver::{Seen, micros, now};
use crate::support::items::Map;
use crate::support::model::{Model, Rule, decide_first_of, spill};
use crate::support::{buckets, windows};

/// New Year 2024, midnight UTC, in microseconds.
const START: u64 = 1_704_067_200_000_000;

#[derive(Clone, Copy, Debug)]
struct Drawn {
    kind: u8,
    limit: u32,
    seconds: u64,
}

impl Drawn {
    fn algorithm(self) -> Algorithm {
        let period = std::time::Duration::from_secs(self.seconds);
        let quota = Quota::new(self.limit, period).expect("a period in range");
        match self.kind {
            0 => FixedWindow::of(quota).into(),
            1 => AnchoredWindow::of(quota).into(),
            2 => SlidingWindow::of(quota).into(),
            _ => TokenBucket::of(quota).burst(self.limit).into(),
        }
    }

    fn model(self) -> Model {
        let (limit, period) = (self.limit, self.seconds * 1_000_000);
        let rule: Arc<dyn Rule> = match self.kind {
            0 => Arc::new(windows::FixedWindow { limit, period }),
            1 => Arc::new(windows::AnchoredWindow { limit, period }),
            2 => Arc::new(windows::SlidingWindow { limit, period }),
            _ => Arc::new(buckets::Bucket {
                limit,
                period,
                burst: limit,
            }),
        };
        Model::new(rule)
    }
}

#[derive(Clone, Debug)]
struct Case {
    members: Vec<Drawn>,
    always: Vec<Drawn>,
    /// The order in which the members are declared as policies, by a rotation.
    rotation: usize,
    /// The time since the request before, and the cost.
    requests: Vec<(u64, u32)>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let numbers = (0_u8..4, 1_u32..6, 1_u64..9);
    numbers.prop_map(|(kind, limit, seconds)| Drawn {
        kind,
        limit,
        seconds,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let gap = prop_oneof![Just(0), 1_u64..4_000_000, Just(1_000_000)];
    let requests = vec((gap, 1_u32..5), 1..40);
    let cases = (vec(drawn(), 2..5), vec(drawn(), 0..3), 0_usize..4, requests);
    cases.prop_map(|(members, always, rotation, requests)| Case {
        members,
        always,
        rotation,
        requests,
    })
}

/// A limiter whose state is where it may be.
pub(crate) trait Chooser {
    /// How many cases of the store in memory one case costs.
    const PRICE: u32;

    fn new(builder: LimiterBuilder) -> Self;

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter) -> F) -> T
    where
        F: IntoFuture<Output = Result<T, StoreError>>;

    /// Charges a request this estimate, by a limiter of the same policies, and settles it at this cost. Returns who has paid for it, when
    /// that is done.
    fn spend(&self, _: LimiterBuilder, at: u64, estimate: u32, cost: u32) -> Option<String> {
        let reservation = self.ask(at, |it| it.reserve("ann", estimate));
        let payer = reservation.decision().payer("spend").map(str::to_owned);
        reservation.settle(cost);
        payer
    }
}

struct InMemory(ManualClock, Limiter);

impl Chooser for InMemory {
    const PRICE: u32 = 1;

    fn new(builder: LimiterBuilder) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        Self(clock, builder.store(store).build().unwrap())
    }

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter) -> F) -> T
    where
        F: IntoFuture<Output = Result<T, StoreError>>,
    {
        self.0.set_micros(Micros::new(at));
        now(ask(&self.1)).unwrap()
    }
}

struct Shared(ManualClock, Limiter);

impl Chooser for Shared {
    const PRICE: u32 = 1;

    fn new(builder: LimiterBuilder) -> Self {
        let clock = ManualClock::new();
        let store = SharedStore::new(Map::new(&clock));
        Self(clock, builder.store(store).build().unwrap())
    }

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter) -> F) -> T
    where
        F: IntoFuture<Output = Result<T, StoreError>>,
    {
        self.0.set_micros(Micros::new(at));
        now(ask(&self.1)).unwrap()
    }
}

fn named(prefix: &str, drawn: &[Drawn]) -> Vec<Policy> {
    let each = drawn.iter().enumerate();
    let each = each.map(|(place, drawn)| (format!("{prefix}{place}"), drawn.algorithm()));
    let policies = each.map(|(name, algorithm)| Policy::new(name, algorithm));
    policies
        .map(|policy| policy.on_store_failure(OnStoreFailure::Refuse))
        .collect()
}

/// The model names the payer, and the wait is the shortest after which the request passes: both at the same time, by
/// another limiter that plays the same past, which is what a client does who comes back.
fn the_first_member_with_room_pays_and_a_wait_is_the_shortest_that_works<C: Chooser>() {
    check_at(seeds!(either_or), C::PRICE, cases(), &|case| {
        let mut declared = named("member", &case.members);
        let order: Vec<String> = declared.iter().map(|it| it.name().to_owned()).collect();
        let rotation = case.rotation % declared.len();
        declared.rotate_left(rotation);
        let builder = Limiter::builder()
            .policies(declared)
            .policies(named("always", &case.always))
            .first_of("spend", order.clone());
        let limiter = C::new(builder);
        let models =
            |drawn: &[Drawn]| -> Vec<Model> { drawn.iter().map(|it| it.model()).collect() };
        let (mut members, mut always) = (models(&case.members), models(&case.always));
        let mut at = START;
        for &(gap, cost) in &case.requests {
            at += gap;
            let expected = decide_first_of(&mut always, &mut members, at, cost);
            let peeked = limiter.ask(at, |it| it.peek("ann", cost));
            let decision = limiter.ask(at, |it| it.check("ann", cost));
            prop_assert_eq!(peeked.is_allowed(), decision.is_allowed());
            prop_assert_eq!(peeked.retry_after(), decision.retry_after());
            prop_assert_eq!(peeked.payer("spend"), decision.payer("spend"));
            prop_assert_eq!(decision.policies().len(), case.always.len() + 1);
            let told = match decision.payer("spend") {
                Some(payer) => Ok(order.iter().position(|name| name == payer).unwrap()),
                None => Err(decision.retry_after().map(micros)),
            };
            prop_assert_eq!(told, expected, "{:?} at {}", cost, at);
        }
        Ok(())
    });
}

fn what_an_answer_costs_beyond_a_member_goes_to_the_next_ones<C: Chooser>() {
    let gap = prop_oneof![Just(0), 1_u64..4_000_000, Just(1_000_000)];
    let requests = vec((gap, 1_u32..5, 0_u32..9), 1..20);
    let cases = (vec(drawn(), 2..5), requests);
    check_at(seeds!(either_or), C::PRICE, cases, &|(drawn, requests)| {
        let declared = named("member", drawn);
        let order: Vec<String> = declared.iter().map(|it| it.name().to_owned()).collect();
        let builder = || {
            let builder = Limiter::builder().policies(declared.clone());
            builder.first_of("spend", order.clone()).spill("spend")
        };
        let limiter = C::new(builder());
        let mut members: Vec<Model> = drawn.iter().map(|it| it.model()).collect();
        let mut at = START;
        for &(gap, estimate, more) in requests {
            at += gap;
            let expected = decide_first_of(&mut [], &mut members, at, estimate);
            let payer = limiter.spend(builder(), at, estimate, estimate + more);
            let payer = payer.map(|payer| order.iter().position(|name| *name == payer).unwrap());
            prop_assert_eq!(payer, expected.ok());
            if let Some(payer) = payer {
                spill(&mut members, payer, at, more);
            }
            let inspection = limiter.ask(at, |it| it.inspect("ann"));
            let left: Vec<u32> = inspection
                .policies()
                .map(|(_, it)| it.remaining())
                .collect();
            let expected = members.clone();
            let expected: Vec<u32> = expected
                .into_iter()
                .map(|mut model| model.decide(at, 0).remaining)
                .collect();
            prop_assert_eq!(left, expected, "{} and {} more at {}", estimate, more, at);
        }
        Ok(())
    });
}

/// An operation on two groups and a policy that is always charged.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Check([u32; 5]),
    Take(u32),
    Block(u64),
    Unblock,
    Override(usize, u32),
    Settle(usize, u32),
    Refund(usize, u32),
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The key of `b` where each policy has its own, which is blocked for it alone.
const BLOCKED: &str = "bob";

fn operations() -> impl Strategy<Value = Vec<(u64, Operation)>> {
    let gap = prop_oneof![3 => Just(0), 2 => 1_u64..4_000_000, 1 => Just(1_000_000)];
    let costs = proptest::array::uniform5(0_u32..5);
    let operation = prop_oneof![
        6 => costs.prop_map(Operation::Check),
        2 => (1_u32..9).prop_map(Operation::Take),
        1 => (1_u64..5_000_000).prop_map(Operation::Block),
        1 => Just(Operation::Unblock),
        1 => (0_usize..5, 0_u32..9).prop_map(|(of, limit)| Operation::Override(of, limit)),
        1 => (0_usize..5, 1_u32..5).prop_map(|(of, units)| Operation::Settle(of, units)),
        1 => (0_usize..5, 1_u32..5).prop_map(|(of, units)| Operation::Refund(of, units)),
    ];
    vec((gap, operation), 1..40)
}

/// Returns what an operation tells.
fn told<C: Chooser>(by: &C, at: u64, drawn: &[Drawn], operation: Operation) -> Vec<String> {
    let write = |decision: Decision| -> Vec<String> {
        let each = decision.policies();
        let each = each.map(|(name, outcome)| format!("{name}: {:?}", Seen::from(outcome)));
        let payers = decision.payers().map(|payer| format!("{payer:?}"));
        each.chain(payers).collect()
    };
    let key = |name| if name == "b" { BLOCKED } else { "ann" };
    let named = |policy: usize, units| [(NAMES[policy], key(NAMES[policy]), units)];
    match operation {
        Operation::Check(costs) => {
            let each = NAMES.into_iter().zip(costs);
            let each = each.map(|(name, cost)| (name, key(name), cost));
            let peeked = by.ask(at, |it| it.peek("ann", costs[0].max(1)));
            let decided = by.ask(at, |it| it.named(each).unwrap().check());
            [write(peeked), write(decided)].concat()
        }
        Operation::Take(most) => {
            let (units, decision) = by.ask(at, |it| it.acquire_up_to("ann", most));
            [vec![units.to_string()], write(decision)].concat()
        }
        Operation::Block(length) => {
            by.ask(at, |it| it.block(BLOCKED, Duration::from_micros(length)));
            Vec::new()
        }
        Operation::Unblock => vec![by.ask(at, |it| it.unblock(BLOCKED)).to_string()],
        Operation::Override(policy, limit) => {
            let limit = Drawn {
                limit,
                ..drawn[policy]
            };
            let hour = Duration::from_secs(3_600);
            by.ask(at, |it| {
                let overridden =
                    it.override_limit(NAMES[policy], key(NAMES[policy]), limit.algorithm(), hour);
                overridden.unwrap()
            });
            Vec::new()
        }
        Operation::Settle(policy, units) => {
            by.ask(at, |it| it.named(named(policy, units)).unwrap().settle());
            Vec::new()
        }
        Operation::Refund(policy, units) => {
            by.ask(at, |it| it.named(named(policy, units)).unwrap().refund());
            Vec::new()
        }
    }
}

fn every_store_tells_what_this_process_would<C: Chooser>() {
    let drawn = proptest::array::uniform5(drawn());
    let cases = (drawn, any::<bool>(), any::<bool>(), operations());
    check_at(seeds!(either_or), C::PRICE, cases, &|case| {
        let (drawn, is_soft, has_two, operations) = case;
        let builder = || {
            let policies = NAMES.into_iter().zip(drawn).map(|(name, drawn)| {
                let policy = Policy::new(name, drawn.algorithm());
                let policy = policy.on_store_failure(OnStoreFailure::Refuse);
                if name == "e" && *is_soft {
                    policy.soft()
                } else {
                    policy
                }
            });
            let builder = Limiter::builder()
                .policies(policies)
                .first_of("first", ["b", "a"]);
            if *has_two {
                builder.first_of("second", ["c", "d"])
            } else {
                builder
            }
        };
        let (here, there) = (InMemory::new(builder()), C::new(builder()));
        let mut at = START;
        for &(gap, operation) in operations {
            at += gap;
            let expected = told(&here, at, drawn, operation);
            prop_assert_eq!(
                told(&there, at, drawn, operation),
                expected,
                "{:?} at {}",
                operation,
                at
            );
        }
        Ok(())
    });
}

/// Mounts the laws for a store.
macro_rules! mount {
    ($($(#[$cfg:meta])? $store:ident: $chooser:ty: $($law:ident)+;)+) => {$(
        $(#[$cfg])?
        mod $store {
            $(
            #[test]
            fn $law() {
                super::$law::<$chooser>();
            }
            )+
        }
    )+};
}

mount! {
    memory: super::InMemory:
        the_first_member_with_room_pays_and_a_wait_is_the_shortest_that_works
        what_an_answer_costs_beyond_a_member_goes_to_the_next_ones;
    shared: super::Shared:
        the_first_member_with_room_pays_and_a_wait_is_the_shortest_that_works
        what_an_answer_costs_beyond_a_member_goes_to_the_next_ones
        every_store_tells_what_this_process_would;
    #[cfg(feature = "redis")]
    redis: crate::redis::ChoosingInRedis:
        the_first_member_with_room_pays_and_a_wait_is_the_shortest_that_works
        what_an_answer_costs_beyond_a_member_goes_to_the_next_ones
        every_store_tells_what_this_process_would;
}
