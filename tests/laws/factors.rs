//! A factor changes the charge of a request, and not whether the request passes. So a change of the factor makes no
//! wait false.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::limiter::Inspection;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter, LocalLimiter,
    ManualClock, Micros, Policy, Quota, SlidingLog, SlidingSlots, SlidingWindow, StoreError,
    TokenBucket,
};

use crate::property::{check_at, seeds};
use crate::support::driver::{Seen, small_store};
use crate::support::items::Map;

/// One key of a limiter with one policy.
pub(crate) trait Scaled: Sized {
    /// The number of cases over a store in this process that cost as much as one case here.
    const PRICE: u32 = 1;

    fn over(policy: Policy) -> Self;

    /// Decides at this moment, in microseconds since the epoch.
    fn decide(&self, at: u64, cost: u32) -> Seen;

    /// Decides a request of low priority.
    fn decide_low(&self, at: u64, cost: u32) -> Seen;

    fn give_back(&self, at: u64, units: u32);

    /// Ends the block of the key.
    fn pardon(&self, at: u64);

    /// Returns the refusals of the key that count towards a penalty.
    fn refusals(&self, at: u64) -> Option<u32>;
}

/// Returns the refusals in an inspection of the only policy.
pub(crate) fn refusals_of(inspection: &Inspection) -> Option<u32> {
    inspection.refusals().next().map(|(_, refusals)| refusals)
}

/// A limiter in this process.
pub(crate) struct Memory {
    clock: ManualClock,
    limiter: LocalLimiter,
}

impl Scaled for Memory {
    fn over(policy: Policy) -> Self {
        let clock = ManualClock::new();
        let store = small_store(&clock);
        let limiter = Limiter::builder().policy(policy).store(store).build_local();
        let limiter = limiter.expect("the policy is good");
        Self { clock, limiter }
    }

    fn decide(&self, at: u64, cost: u32) -> Seen {
        self.clock.set_micros(Micros::new(at));
        let decision = self.limiter.check("key", cost).now();
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn decide_low(&self, at: u64, cost: u32) -> Seen {
        self.clock.set_micros(Micros::new(at));
        let decision = self.limiter.low_priority().check("key", cost).now();
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn give_back(&self, at: u64, units: u32) {
        self.clock.set_micros(Micros::new(at));
        self.limiter.refund("key", units).now();
    }

    fn pardon(&self, at: u64) {
        self.clock.set_micros(Micros::new(at));
        self.limiter.unblock("key").now();
    }

    fn refusals(&self, at: u64) -> Option<u32> {
        self.clock.set_micros(Micros::new(at));
        refusals_of(&self.limiter.inspect("key").now())
    }
}

/// A limiter over a shared map.
pub(crate) struct Shared {
    map: Map,
    limiter: Limiter,
}

impl Scaled for Shared {
    fn over(policy: Policy) -> Self {
        let map = Map::new(&ManualClock::new());
        let store = SharedStore::new(map.clone());
        let limiter = Limiter::builder().policy(policy).store(store).build();
        let limiter = limiter.expect("the policy is good");
        Self { map, limiter }
    }

    fn decide(&self, at: u64, cost: u32) -> Seen {
        self.map.clock.set_micros(Micros::new(at));
        let decision = now(self.limiter.check("key", cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn decide_low(&self, at: u64, cost: u32) -> Seen {
        self.map.clock.set_micros(Micros::new(at));
        let decision = now(self.limiter.low_priority().check("key", cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn give_back(&self, at: u64, units: u32) {
        self.map.clock.set_micros(Micros::new(at));
        now(self.limiter.refund("key", units));
    }

    fn pardon(&self, at: u64) {
        self.map.clock.set_micros(Micros::new(at));
        now(self.limiter.unblock("key"));
    }

    fn refusals(&self, at: u64) -> Option<u32> {
        self.map.clock.set_micros(Micros::new(at));
        refusals_of(&now(self.limiter.inspect("key")))
    }
}

/// Returns the output of a future that does not wait.
fn now<T>(future: impl IntoFuture<Output = Result<T, StoreError>>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future.into_future()).poll(&mut context) {
        Poll::Ready(answer) => answer.expect("a map does not fail"),
        Poll::Pending => panic!("it waits"),
    }
}

#[derive(Clone, Debug)]
struct Case {
    algorithm: Algorithm,
    /// The policy's own limit, if a closure returns it for each request.
    own: Option<Algorithm>,
    most: u32,
    start: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// The gap in 2^12ths of a period.
    gap: u64,
    cost: u32,
    /// The factors at the request, just before the end of its wait, and at the end.
    factors: [u32; 3],
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Alone,
    /// A request for what remains.
    Drains,
    /// A refund, so that a key owes parts of a unit.
    GivesBack,
}

pub(crate) fn algorithms() -> impl Strategy<Value = Algorithm> {
    pairs().prop_map(|(algorithm, _)| algorithm)
}

/// Returns two algorithms that differ in their limits alone.
fn pairs() -> impl Strategy<Value = (Algorithm, Algorithm)> {
    let periods = select(vec![60_000_u64, 1_000_000, 60_000_000, 3_600_000_000]);
    let limits = prop_oneof![4 => 1_u32..40, 1 => select(vec![100_u32, 997])];
    let sizes = prop_oneof![4 => 1_u32..40, 1 => select(vec![100_u32, 997])];
    let other = (1_u32..40, 1_u32..40);
    (periods, limits, sizes, 0..10_usize, other).prop_map(|(period, limit, size, kind, other)| {
        let one = |(limit, size)| of_kind(kind, period, limit, size);
        (one((limit, size)), one(other))
    })
}

fn of_kind(kind: usize, period: u64, limit: u32, size: u32) -> Algorithm {
    let quota = Quota::new(limit, Duration::from_micros(period)).unwrap();
    match kind {
        0 => FixedWindow::of(quota).into(),
        1 => AnchoredWindow::of(quota).into(),
        2 => SlidingWindow::of(quota).into(),
        3 => SlidingSlots::cut(quota, 10).unwrap().into(),
        4 => SlidingLog::up_to(u32::MAX, quota).unwrap().into(),
        5 => TokenBucket::of(quota).burst(size).into(),
        6 => TokenBucket::of(quota).burst(size).by_interval().into(),
        7 => LeakyBucket::of(quota).capacity(size).into(),
        8 => Gcra::of(quota).burst(size).into(),
        _ => LeakyQueue::of(quota).places(size - 1).into(),
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let factor = || {
        prop_oneof![
            3 => select(vec![1_u32, 10, 50, 100, 333, 500, 750, 999, 1_000, 5_000]),
            1 => 1_u32..1_500,
        ]
    };
    let kind = select(vec![
        Kind::Alone,
        Kind::Alone,
        Kind::Drains,
        Kind::GivesBack,
    ]);
    let gap = prop_oneof![2 => Just(0), 2 => 0_u64..4_096, 1 => 0_u64..20_000];
    let cost = prop_oneof![4 => Just(1_u32), 2 => 1_u32..12, 1 => 0_u32..1_200];
    let factors = [factor(), factor(), factor()];
    (gap, cost, factors, kind).prop_map(|(gap, cost, factors, kind)| Step {
        gap,
        cost,
        factors,
        kind,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let start = 1_600_000_000_000_000_u64..1_700_000_000_000_000;
    (
        pairs(),
        any::<bool>(),
        select(vec![1_000, 1_500, 5_000]),
        start,
        vec(steps(), 1..12),
    )
        .prop_map(|((algorithm, own), is_given, most, start, steps)| Case {
            algorithm,
            own: is_given.then_some(own),
            most,
            start,
            steps,
        })
}

/// Returns the units that a new key can take: the base or, with growth, the most, in parts of the price.
fn quota_told(limit: u32, most: u32, factor: u32) -> u32 {
    let (limit, most, factor) = (u64::from(limit), u64::from(most), u64::from(factor));
    let price = (1_000 * most).div_ceil(factor);
    u32::try_from((limit * most - 1_000) / price + 1).unwrap()
}

fn a_wait_stays_true<D: Scaled>(case: &Case) -> Result<(), TestCaseError> {
    let cell = FactorCell::between(Factor::LEAST, Factor::thousandths(case.most));
    let given = case.algorithm;
    let driver = D::over(match case.own {
        None => Policy::new("0", given).factor(&cell),
        Some(own) => Policy::new("0", own)
            .limit_by(move |_| Some(given))
            .factor(&cell),
    });
    let whole = case.algorithm.limit().unwrap();
    let period = u64::try_from(case.algorithm.period().unwrap().as_micros()).unwrap();
    let mut at = case.start;
    let set = |factor| {
        cell.set(Factor::thousandths(factor), "a test");
        cell.get().get()
    };
    for step in &case.steps {
        at += step.gap * period / 4_096;
        let factor = set(step.factors[0]);
        let mut seen = driver.decide(at, step.cost);
        prop_assert_eq!(seen.limit, quota_told(whole, case.most, factor));
        prop_assert!(seen.remaining <= seen.limit);
        let can_pass = whole * case.most / 1_000 >= step.cost;
        prop_assert_eq!(
            seen.allowed || seen.retry_after.is_some(),
            can_pass,
            "{:?}",
            seen
        );
        if let Some(wait) = seen.retry_after {
            at += wait - 1;
            set(step.factors[1]);
            let early = driver.decide(at, step.cost);
            prop_assert!(!early.allowed, "1 µs early: {:?}, then {:?}", seen, early);
            prop_assert_eq!(early.retry_after, Some(1));
            at += 1;
            set(step.factors[2]);
            let due = driver.decide(at, step.cost);
            prop_assert!(due.allowed, "told {:?}, and then {:?}", seen, due);
            seen = due;
        }
        match step.kind {
            Kind::Alone => {}
            Kind::GivesBack => driver.give_back(at, step.cost.min(3)),
            Kind::Drains => {
                for left in (0..seen.remaining).rev() {
                    let next = driver.decide(at, 1);
                    prop_assert!(next.allowed, "{} were told to remain", left + 1);
                    prop_assert_eq!(next.remaining, left);
                }
                prop_assert!(!driver.decide(at, 1).allowed);
            }
        }
    }
    Ok(())
}

/// A client that sends requests as early as possible gets what was announced at once, and its share of the rate in
/// the long run.
fn a_share_is_exact<D: Scaled>() {
    let minute = 60_000_000;
    for (most, factors) in [
        (1_000, &[(100, 10), (500, 50), (750, 75), (1_000, 100)][..]),
        (
            5_000,
            &[(100, 10), (500, 50), (750, 75), (1_000, 100), (5_000, 500)],
        ),
    ] {
        for &(factor, share) in factors {
            let cell = FactorCell::between(Factor::LEAST, Factor::thousandths(most));
            cell.set(Factor::thousandths(factor), "a test");
            let bucket = TokenBucket::per_minute(100);
            let driver = D::over(Policy::new("0", bucket).factor(&cell));
            let start = 1_600_000_000_000_000;
            let (mut at, mut passed, mut at_once) = (start, 0, 0);
            while at < start + 5 * minute {
                let seen = driver.decide(at, 1);
                passed += u32::from(seen.allowed);
                at_once += u32::from(seen.allowed && at == start);
                at += seen.retry_after.unwrap_or(0);
            }
            assert_eq!(at_once, share, "at once, under a factor of {factor}");
            let in_five = 6 * share;
            assert!(
                passed.abs_diff(in_five) <= 1 + in_five / 1_000,
                "{passed} under {factor}"
            );
        }
    }
}

macro_rules! mount {
    ($($(#[$when:meta])* $store:ident: $driver:ty;)+) => {$(
        $(#[$when])*
        mod $store {
            use super::*;

            #[test]
            fn a_wait_that_was_told_stays_true_under_a_factor_that_jumps() {
                let price = <$driver as Scaled>::PRICE;
                check_at(seeds!(factors), price, cases(), &a_wait_stays_true::<$driver>);
            }

            #[test]
            fn a_share_of_the_limit_is_exact_at_once_and_in_the_long_run() {
                a_share_is_exact::<$driver>();
            }
        }
    )+};
}
mount! {
    memory: Memory;
    shared: Shared;
    #[cfg(feature = "redis")]
    redis: crate::redis::Redis;
}
