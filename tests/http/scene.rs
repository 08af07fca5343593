//! Random policies, random requests, and the answers to them.

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::clock::Clock;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, ManualClock, MemoryStore, Micros,
    Quota, RateLimitLayer, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::exchange::{Behind, Hello, Received, ask, cost, get_of_cost, global};
use crate::structured::list;

pub(crate) const NAMES: [&str; 3] = ["first", "second", "third"];

/// A policy whose cost is that of the request, times a weight.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) algorithm: Algorithm,
    pub(crate) weight: u32,
    /// The expected `w`: the period, or for a bucket the time in which it fills at its rate.
    pub(crate) window: u64,
}

impl Rule {
    pub(crate) fn limit(&self) -> u32 {
        self.algorithm.limit().unwrap()
    }

    pub(crate) fn longest_wait(&self) -> Option<u64> {
        let wait = self.algorithm.longest_wait()?;
        Some(u64::try_from(wait.as_micros()).unwrap())
    }
}

/// Creates a rule of weight 1. The number chooses the algorithm: 0 to 4 are windows, 5 to 8 buckets, of which
/// 6 to 8 fill continuously.
pub(crate) fn rule(shape: u8, limit: u32, period: u64, size: u32) -> Rule {
    let slots = size.clamp(1, 128);
    let micros = match shape {
        4 => period.next_multiple_of(slots.into()),
        _ => period,
    };
    let period = Duration::from_micros(micros);
    let quota = Quota::new(limit, period).unwrap();
    let algorithm: Algorithm = match shape {
        0 => FixedWindow::of(quota).into(),
        1 => AnchoredWindow::of(quota).into(),
        2 => SlidingLog::of(quota).unwrap().into(),
        3 => SlidingWindow::of(quota).into(),
        4 => SlidingSlots::cut(quota, slots).unwrap().into(),
        5 => TokenBucket::of(quota).burst(size).by_interval().into(),
        6 => TokenBucket::of(quota).burst(size).into(),
        7 => LeakyBucket::of(quota).capacity(size).into(),
        _ => Gcra::of(quota).burst(size).into(),
    };
    let to_fill = (u64::from(size) * micros).div_ceil(limit.max(1).into());
    let window = if shape < 5 { micros } else { to_fill };
    Rule {
        algorithm,
        weight: 1,
        window: window.div_ceil(1_000_000),
    }
}

/// Returns rules of these shapes.
pub(crate) fn shaped(shapes: Range<u8>) -> impl Strategy<Value = Rule> {
    let period = prop_oneof![
        1_000_u64..2_000_000,
        1_000_000_u64..100_000_000,
        10_000_000_u64..10_000_000_000,
    ];
    let limit = prop_oneof![1 => Just(0_u32), 20 => 1_u32..60];
    (shapes, limit.clone(), period, limit)
        .prop_map(|(shape, limit, period, size)| rule(shape, limit, period, size))
}

pub(crate) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let weight = prop_oneof![6 => Just(1_u32), 1 => Just(0_u32), 3 => 2_u32..4];
    let rule = (shaped(0..9), weight).prop_map(|(rule, weight)| Rule { weight, ..rule });
    prop::collection::vec(rule, 1..=NAMES.len())
}

/// Returns a pause as a share of the longest wait, in thousandths, and a cost.
pub(crate) fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let pause = prop_oneof![3 => Just(0_u64), 3 => 0_u64..100, 1 => 0_u64..2_000];
    let cost = prop_oneof![6 => Just(1_u32), 3 => 0_u32..10, 1 => 0_u32..70];
    prop::collection::vec((pause, cost), 1..40)
}

/// A service under these rules, at a moment that begins no window.
pub(crate) struct Scene {
    pub(crate) rules: Vec<Rule>,
    pub(crate) clock: ManualClock,
    pub(crate) service: Hello,
}

impl Scene {
    pub(crate) fn new(rules: Vec<Rule>, start: u64) -> Self {
        Self::built(rules, start, |builder| builder)
    }

    /// Creates a scene whose layer has these options.
    pub(crate) fn built(
        rules: Vec<Rule>,
        start: u64,
        options: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
    ) -> Self {
        let clock = ManualClock::at(Micros::new(1_800_000_000_000_000 + start));
        let store = MemoryStore::new().clock(clock.clone());
        let mut builder = RateLimitLayer::builder().store(store);
        for (name, rule) in NAMES.iter().zip(&rules) {
            let weight = rule.weight;
            let policy = global(name, rule.algorithm);
            builder = builder.policy(policy.cost(move |head| cost(head) * weight));
        }
        Self {
            rules,
            clock,
            service: Hello::behind(&options(builder).build().unwrap()),
        }
    }

    /// Returns the microseconds since the epoch.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now().get()
    }

    pub(crate) fn pause(&self, thousandths: u64) {
        let longest = self.rules.iter().filter_map(Rule::longest_wait).max();
        let micros = longest.unwrap_or(1_000) * thousandths / 1_000;
        self.clock.advance(Duration::from_micros(micros));
    }

    pub(crate) fn ask(&self, cost: u32) -> RateLimitFields {
        RateLimitFields::by(&ask(&self.service, get_of_cost(cost)))
    }

    pub(crate) fn rule(&self, name: &str) -> &Rule {
        let index = NAMES.iter().position(|other| *other == name).unwrap();
        &self.rules[index]
    }

    pub(crate) fn passes(&self, cost: u32) -> bool {
        passed(&ask(&self.service, get_of_cost(cost)))
    }

    /// Sends the arrivals, and returns the answer to an allowed request after them, if there can be one.
    pub(crate) fn after(&self, arrivals: &[(u64, u32)]) -> Option<RateLimitFields> {
        let mut last = None;
        for (pause, cost) in arrivals {
            self.pause(*pause);
            last = Some(self.ask(*cost)).filter(|told| told.passed);
        }
        last.or_else(|| Some(self.ask(0)).filter(|told| told.passed))
    }
}

/// The content of one answer.
#[derive(Debug)]
pub(crate) struct RateLimitFields {
    pub(crate) passed: bool,
    pub(crate) retry_after: Option<u64>,
    /// The name, `q` and `w` of each policy.
    pub(crate) policies: Vec<(String, u64, Option<u64>)>,
    /// The name, `r` and `t` of each policy.
    pub(crate) limits: Vec<(String, u64, Option<u64>)>,
}

impl RateLimitFields {
    pub(crate) fn by(answer: &Received) -> Self {
        let read = |field, number, time| {
            let members = list(answer.field(field).unwrap());
            let read = members.into_iter().map(|member| {
                let (number, time) = (member.number(number).unwrap(), member.number(time));
                (member.name, number, time)
            });
            read.collect()
        };
        Self {
            passed: passed(answer),
            retry_after: answer
                .field("retry-after")
                .map(|seconds| seconds.parse().unwrap()),
            policies: read("ratelimit-policy", "q", "w"),
            limits: read("ratelimit", "r", "t"),
        }
    }

    /// Returns how many more requests of cost 1 every policy has room for.
    pub(crate) fn room(&self, scene: &Scene) -> Option<u64> {
        let room = self.limits.iter().filter_map(|(name, remaining, _)| {
            remaining.checked_div(scene.rule(name).weight.into())
        });
        room.min()
    }
}

pub(crate) fn passed(answer: &Received) -> bool {
    match answer.status.as_u16() {
        200 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

/// Configures as many cases as `PROPTEST_CASES` says, or 1,000.
pub(crate) fn config(regressions: &'static str) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    config
}
