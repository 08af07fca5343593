//! Law 9: Redis and the store in memory give the same answers for the same past, number by number.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Backend, Charge, MemoryBackend, RedisBackend, Store};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter,
    LocalLimiter, ManualClock, MemoryStore, Micros, Outcome, Policy, Quota, RedisStore, SlidingLog,
    SlidingSlots, SlidingWindow, StoreError, TokenBucket,
};

use crate::scene::{cluster_store, shown, store};
use crate::support::redis::{Cluster, Server};

#[test]
fn law_9_a_server_tells_what_memory_tells() {
    let server = Server::start(&[]);
    let counts = compare(&store(&server), 1_500);
    println!("law 9, on a server: {counts:?}");
}

#[test]
fn law_9_a_cluster_tells_what_memory_tells() {
    let cluster = Cluster::start();
    let counts = compare(&cluster_store(&cluster), 500);
    println!("law 9, on a cluster of three primaries: {counts:?}");
}

/// A list of policies, and the operations on them.
#[derive(Clone, Debug)]
struct Case {
    policies: Vec<Shape>,
    /// The start of the clock, in microseconds since the epoch.
    start: u64,
    steps: Vec<(Gap, Verb)>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: u8,
    limit: u32,
    period: u64,
    size: u32,
    is_soft: bool,
}

/// The time since the previous step.
#[derive(Clone, Copy, Debug)]
enum Gap {
    None,
    Micros(u64),
    /// A time in 2^12ths of the first policy's period.
    Periods(u64),
    /// The retry time of the last answer.
    Retry,
    JustBeforeRetry,
    Reset,
    JustBeforeReset,
}

#[derive(Clone, Debug)]
enum Verb {
    Check(u64, Cost),
    Peek(u64, Cost),
    TakeUpTo(u64, Cost),
    /// The same of some policies, up to a number for each, at least one.
    TakeUpToEach(u64, [Option<Cost>; 4]),
    /// Concurrent requests, which share calls and are decided in this order.
    Together(Vec<(u64, Cost)>),
    /// A check of some policies, each with a key of its own.
    CheckWith([Option<(u64, Cost)>; 4]),
    Refund(u64, Cost),
    Settle(u64, Cost),
    /// A refund to some policies, each with a key of its own.
    RefundWith([Option<(u64, Cost)>; 4]),
    SettleWith([Option<(u64, Cost)>; 4]),
    Reset(u64),
    Block(u64, u64),
    Unblock(u64),
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    This(u32),
    /// A cost in 2^8ths of the first policy's limit.
    Part(u64),
    OneAboveLimit,
    /// The remaining units of the binding policy, according to the last answer.
    Remaining,
}

const KEYS: u32 = 3;

const GCRA: u8 = 8;
const QUEUE: u8 = 9;

fn cases() -> impl Strategy<Value = Case> {
    let start = 1_704_067_200_000_000..7_258_118_400_000_000_u64;
    let steps = vec((gap(), verb()), 4..=24);
    let cases = (vec(shape(), 1..=4), start, steps);
    cases.prop_map(|(mut policies, start, steps)| {
        // A request can stand in one queue only.
        let queues = policies.iter_mut().filter(|shape| shape.kind == QUEUE);
        queues.skip(1).for_each(|shape| shape.kind = GCRA);
        Case {
            policies,
            start,
            steps,
        }
    })
}

fn shape() -> impl Strategy<Value = Shape> {
    let limit = prop_oneof![
        8 => 1..=6_u32,
        3 => 7..=100_u32,
        2 => select(vec![0, 997, 60_000, 65_537, 1_000_000, u32::MAX / 2, u32::MAX]),
    ];
    let period = prop_oneof![
        4 => 1_000..=10_000_u64,
        4 => select(vec![1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
        2 => select(vec![1_009, 1_000_003, 86_399_999_999, 30 * 86_400_000_000]),
    ];
    let soft = prop_oneof![3 => Just(false), 1 => Just(true)];
    (0..11_u8, limit, period, 0..=8_u32, soft).prop_map(|(kind, limit, period, size, is_soft)| {
        Shape {
            kind,
            limit,
            period,
            // The size is that of the limit, or half or twice as much.
            size: match size {
                6 => limit,
                7 => limit / 2,
                8 => limit.saturating_mul(2),
                small => small,
            },
            // A request over a queue's limit would overtake requests that wait.
            is_soft: is_soft && kind != QUEUE,
        }
    })
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => Just(Gap::None),
        2 => (1..2_000_u64).prop_map(Gap::Micros),
        3 => (0..10_000_u64).prop_map(Gap::Periods),
        2 => Just(Gap::Retry),
        1 => Just(Gap::JustBeforeRetry),
        1 => Just(Gap::Reset),
        1 => Just(Gap::JustBeforeReset),
    ]
}

fn verb() -> impl Strategy<Value = Verb> {
    let key = || 0..u64::from(KEYS);
    let asked = || proptest::option::of((key(), cost()));
    prop_oneof![
        8 => (key(), cost()).prop_map(|(key, cost)| Verb::Check(key, cost)),
        2 => (key(), cost()).prop_map(|(key, cost)| Verb::Peek(key, cost)),
        2 => (key(), cost()).prop_map(|(key, cost)| Verb::TakeUpTo(key, cost)),
        2 => (key(), proptest::array::uniform4(proptest::option::of(cost())))
            .prop_map(|(key, most)| Verb::TakeUpToEach(key, most)),
        3 => vec((key(), cost()), 2..40).prop_map(Verb::Together),
        4 => [asked(), asked(), asked(), asked()].prop_map(Verb::CheckWith),
        2 => (key(), cost()).prop_map(|(key, cost)| Verb::Refund(key, cost)),
        2 => (key(), cost()).prop_map(|(key, cost)| Verb::Settle(key, cost)),
        2 => [asked(), asked(), asked(), asked()].prop_map(Verb::RefundWith),
        2 => [asked(), asked(), asked(), asked()].prop_map(Verb::SettleWith),
        1 => key().prop_map(Verb::Reset),
        1 => (key(), 1..3_000_u64).prop_map(|(key, parts)| Verb::Block(key, parts)),
        1 => key().prop_map(Verb::Unblock),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        5 => (0..=3_u32).prop_map(Cost::This),
        3 => (0..=256_u64).prop_map(Cost::Part),
        1 => Just(Cost::OneAboveLimit),
        2 => Just(Cost::Remaining),
    ]
}

impl Shape {
    fn policy(self, place: usize) -> Policy {
        let quota = Quota::new(self.limit, Duration::from_micros(self.period)).unwrap();
        let slots = (1..=16)
            .rev()
            .find(|slots| self.period.is_multiple_of((*slots).into()));
        let algorithm: Algorithm = match self.kind {
            0 => FixedWindow::of(quota).into(),
            1 => AnchoredWindow::of(quota).into(),
            2 => SlidingLog::up_to(u32::MAX, quota).unwrap().into(),
            3 => SlidingWindow::of(quota).into(),
            4 => SlidingSlots::cut(quota, slots.unwrap()).unwrap().into(),
            5 => TokenBucket::of(quota).burst(self.size).into(),
            6 => TokenBucket::of(quota).burst(self.size).by_interval().into(),
            7 => LeakyBucket::of(quota).capacity(self.size).into(),
            GCRA => Gcra::of(quota).burst(self.size).into(),
            QUEUE => LeakyQueue::of(quota).places(self.size).into(),
            _ => Algorithm::Unlimited,
        };
        let policy = Policy::new(place.to_string(), algorithm);
        if self.is_soft { policy.soft() } else { policy }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    decisions: u64,
    denied: u64,
    of_several_keys: u64,
    other_verbs: u64,
    together: u64,
}

fn compare(store: &RedisStore, cases: u32) -> Counts {
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (counts, number) = (Cell::new(Counts::default()), Cell::new(0));
    let played = TestRunner::new_with_rng(config, random).run(&self::cases(), |case| {
        number.set(number.get() + 1);
        let mut pair = Pair::new(store, &runtime, &case, number.get());
        pair.counts = counts.get();
        for (gap, verb) in &case.steps {
            pair.wait(*gap);
            pair.play(verb)?;
        }
        counts.set(pair.counts);
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let counts = counts.get();
    assert!(counts.denied > 0 && counts.denied < counts.decisions);
    assert!(counts.of_several_keys > 0 && counts.other_verbs > 0 && counts.together > 0);
    counts
}

/// The same policies in both stores, with one clock.
struct Pair<'a> {
    redis: Limiter,
    memory: LocalLimiter,
    /// The backends of both.
    backends: (RedisBackend, MemoryBackend),
    clock: ManualClock,
    runtime: &'a Runtime,
    shapes: &'a [Shape],
    /// The number of the case, so that its keys are its own.
    case: u64,
    now: u64,
    last: Option<Decision>,
    /// The units that may yet be settled for each key: some counts in memory hold only twice the limit.
    settled: Vec<u32>,
    counts: Counts,
}

impl<'a> Pair<'a> {
    fn new(store: &RedisStore, runtime: &'a Runtime, case: &'a Case, number: u64) -> Self {
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(case.start));
        let policies = case.policies.iter().enumerate();
        let policies: Vec<Policy> = policies.map(|(place, shape)| shape.policy(place)).collect();
        let rules: Vec<Rule> = policies.iter().cloned().map(Rule::from).collect();
        let limiter = Limiter::builder().policies(policies);
        let memory = MemoryStore::new().clock(clock.clone());
        let opened = memory.open(&rules).unwrap();
        let least = case.policies.iter().map(|shape| shape.limit).min();
        let in_redis = store.clone().clock(clock.clone());
        let backends = (in_redis.open(&rules).unwrap(), opened);
        let redis = limiter.clone().store(in_redis).build().unwrap();
        // Each node learns the script. While one does not know it, simultaneous calls are sent twice, and a later one
        // may be decided between the two times of an earlier one.
        for key in 0..u64::from(KEYS) {
            drop(
                runtime
                    .block_on(redis.peek((number, key), 0).into_future())
                    .unwrap(),
            );
        }
        Self {
            redis,
            memory: limiter.store(memory).build_local().unwrap(),
            backends,
            clock,
            runtime,
            shapes: &case.policies,
            case: number,
            now: case.start,
            last: None,
            settled: (0..KEYS).map(|_| least.unwrap()).collect(),
            counts: Counts::default(),
        }
    }

    fn wait(&mut self, gap: Gap) {
        let told = self.last.as_ref().and_then(Decision::binding);
        let told = told.map(|(_, told)| told);
        let retry = told.and_then(Outcome::retry_after);
        let reset = told.map(Outcome::reset_after);
        let micros = |time: Option<Duration>| time.map_or(0, |time| Micros::from(time).get());
        // A wait is bounded by the longest time of a case.
        let longest = 400 * 86_400_000_000;
        let gap = match gap {
            Gap::None => 0,
            Gap::Micros(micros) => micros,
            Gap::Periods(parts) => self.shapes[0].period * parts / 4096,
            Gap::Retry => micros(retry),
            Gap::JustBeforeRetry => micros(retry).saturating_sub(1),
            Gap::Reset => micros(reset),
            Gap::JustBeforeReset => micros(reset).saturating_sub(1),
        };
        self.now += gap.min(longest);
        self.clock.set_micros(Micros::new(self.now));
    }

    fn cost(&self, cost: Cost) -> u32 {
        let limit = self.shapes[0].limit;
        match cost {
            Cost::This(cost) => cost,
            Cost::Part(parts) => u32::try_from(u64::from(limit) * parts / 256).unwrap(),
            Cost::OneAboveLimit => limit.saturating_add(1),
            Cost::Remaining => {
                let told = self.last.as_ref().and_then(Decision::binding);
                told.map_or(1, |(_, told)| told.remaining())
            }
        }
    }

    /// Takes units of some policies, up to a number for each, and compares what both stores tell.
    fn take_up_to_each(&self, key: Key, most: [Option<Cost>; 4]) -> Result<(), TestCaseError> {
        let shapes = self.shapes.iter().enumerate().zip(most);
        let limited = shapes.filter(|((_, shape), _)| shape.kind <= QUEUE);
        let charges = limited.filter_map(|((place, shape), most)| {
            let charge = Charge::new(place, key, self.cost(most?).max(1));
            Some(if shape.is_soft { charge.soft() } else { charge })
        });
        let charges: Vec<Charge> = charges.collect();
        if charges.is_empty() {
            return Ok(());
        }
        let (redis, memory) = &self.backends;
        let told = self.wait_for(redis.acquire_up_to(&charges).wait());
        let in_memory = self.wait_for(memory.acquire_up_to(&charges).wait());
        prop_assert_eq!(told.0, in_memory.0);
        prop_assert_eq!(shown(&told.1), shown(&in_memory.1));
        Ok(())
    }

    fn play(&mut self, verb: &Verb) -> Result<(), TestCaseError> {
        let case = self.case;
        match *verb {
            Verb::Check(key, cost) => {
                let (key, cost) = ((case, key), self.cost(cost));
                let told = self.wait_for(self.redis.check(key, cost));
                self.same(told, &self.memory.check(key, cost).now())?;
            }
            Verb::Peek(key, cost) => {
                let (key, cost) = ((case, key), self.cost(cost));
                let told = self.wait_for(self.redis.peek(key, cost));
                self.same(told, &self.memory.peek(key, cost).now())?;
            }
            Verb::TakeUpTo(key, most) => {
                let (key, most) = ((case, key), self.cost(most));
                let (taken, told) = self.wait_for(self.redis.acquire_up_to(key, most));
                let (expected, in_memory) = self.memory.acquire_up_to(key, most).now();
                prop_assert_eq!(taken, expected);
                self.same(told, &in_memory)?;
            }
            Verb::TakeUpToEach(key, most) => self.take_up_to_each((case, key).into_key(), most)?,
            Verb::Together(ref asked) => {
                let asked: Vec<_> = asked
                    .iter()
                    .map(|(key, cost)| ((case, *key), self.cost(*cost)))
                    .collect();
                let told: Vec<Decision> = self.runtime.block_on(async {
                    let checks = asked
                        .iter()
                        .map(|(key, cost)| self.redis.check(*key, *cost).into_future());
                    let checks: Vec<_> = checks.map(tokio::spawn).collect();
                    let mut told = Vec::new();
                    for check in checks {
                        told.push(check.await.unwrap().unwrap());
                    }
                    told
                });
                for ((key, cost), told) in asked.into_iter().zip(told) {
                    self.same(told, &self.memory.check(key, cost).now())?;
                }
                self.counts.together += 1;
            }
            Verb::CheckWith(asked) => {
                let asked = self.by_name(asked);
                let told = self.wait_for(self.redis.named(asked.iter().copied()).unwrap().check());
                let in_memory = self.memory.named(asked.iter().copied()).unwrap();
                let in_memory = in_memory.check().now();
                let of_several = asked.iter().any(|(_, key, _)| *key != asked[0].1);
                self.counts.of_several_keys += u64::from(of_several);
                self.same(told, &in_memory)?;
            }
            Verb::Refund(key, units) => {
                let (key, units) = ((case, key), self.cost(units));
                self.wait_for(self.redis.refund(key, units));
                self.memory.refund(key, units).now();
                self.counts.other_verbs += 1;
            }
            Verb::Settle(key, units) => {
                let left = &mut self.settled[usize::try_from(key).unwrap()];
                let most = *left;
                *left = 0;
                let (key, units) = ((case, key), self.cost(units).min(most));
                self.wait_for(self.redis.settle(key, units));
                self.memory.settle(key, units).now();
                self.counts.other_verbs += 1;
            }
            Verb::RefundWith(amounts) => {
                let amounts = self.by_name(amounts);
                self.wait_for(self.redis.named(amounts.iter().copied()).unwrap().refund());
                self.memory.named(amounts).unwrap().refund().now();
                self.counts.other_verbs += 1;
            }
            Verb::SettleWith(amounts) => {
                let mut amounts = self.by_name(amounts);
                for (_, (_, key), units) in &mut amounts {
                    let left = &mut self.settled[usize::try_from(*key).unwrap()];
                    *units = (*units).min(std::mem::take(left));
                }
                self.wait_for(self.redis.named(amounts.iter().copied()).unwrap().settle());
                self.memory.named(amounts).unwrap().settle().now();
                self.counts.other_verbs += 1;
            }
            Verb::Reset(key) => {
                self.wait_for(self.redis.reset((case, key)));
                self.memory.reset((case, key)).now();
                self.counts.other_verbs += 1;
            }
            Verb::Block(key, parts) => {
                let length = Duration::from_micros(self.shapes[0].period * parts / 1000);
                self.wait_for(self.redis.block((case, key), length));
                self.memory.block((case, key), length).now();
                self.counts.other_verbs += 1;
            }
            Verb::Unblock(key) => {
                let in_redis = self.wait_for(self.redis.unblock((case, key)));
                let in_memory = self.memory.unblock((case, key)).now();
                prop_assert_eq!(in_redis, in_memory, "whether key {} was blocked", key);
                self.counts.other_verbs += 1;
            }
        }
        Ok(())
    }

    /// Returns the policies of a request by name.
    fn by_name(&self, asked: [Option<(u64, Cost)>; 4]) -> Vec<(&'static str, (u64, u64), u32)> {
        let asked = ["0", "1", "2", "3"].into_iter().zip(asked);
        let asked = asked.take(self.shapes.len()).filter_map(|(name, asked)| {
            let (key, cost) = asked?;
            Some((name, (self.case, key), self.cost(cost)))
        });
        asked.collect()
    }

    fn wait_for<T: Debug>(&self, answer: impl IntoFuture<Output = Result<T, StoreError>>) -> T {
        let answer = self.runtime.block_on(answer.into_future());
        answer.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Compares two decisions by their debug forms, which show every number and the time.
    fn same(&mut self, in_redis: Decision, in_memory: &Decision) -> Result<(), TestCaseError> {
        if in_memory.policies().len() > 0 {
            prop_assert_eq!(format!("{in_redis:?}"), format!("{in_memory:?}"));
            self.counts.decisions += 1;
            self.counts.denied += u64::from(!in_memory.is_allowed());
        }
        self.last = Some(in_redis);
        Ok(())
    }
}
