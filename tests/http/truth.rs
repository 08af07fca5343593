//! The fields are true, whatever the configuration: whoever waits what we said passes (F66, B5),
//! fields agree with each other (B6), and what remains is there to be used (B7).

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, ManualClock, MemoryStore, Micros,
    Quota, RateLimitLayer, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::exchange::{Answer, Behind, Hello, ask, cost, everybody, get_of_cost};
use crate::structured::list;

const NAMES: [&str; 3] = ["first", "second", "third"];

/// A policy whose cost is what the request says, times a weight.
#[derive(Clone, Debug)]
struct Rule {
    algorithm: Algorithm,
    weight: u32,
    /// What `w` has to be: the period, or for a bucket the time in which it fills at its rate.
    window: u64,
}

impl Rule {
    fn limit(&self) -> u32 {
        self.algorithm.limit().unwrap()
    }

    fn longest_wait(&self) -> Option<u64> {
        let wait = self.algorithm.longest_wait()?;
        Some(u64::try_from(wait.as_micros()).unwrap())
    }
}

/// A rule of weight 1; the number chooses the algorithm: 0 to 4 are windows, 5 to 8 buckets, of
/// which 6 to 8 fill continuously.
fn rule(shape: u8, limit: u32, period: u64, size: u32) -> Rule {
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

/// Rules of these shapes.
fn shaped(shapes: Range<u8>) -> impl Strategy<Value = Rule> {
    let period = prop_oneof![
        1_000_u64..2_000_000,
        1_000_000_u64..100_000_000,
        10_000_000_u64..10_000_000_000,
    ];
    let limit = prop_oneof![1 => Just(0_u32), 20 => 1_u32..60];
    (shapes, limit.clone(), period, limit)
        .prop_map(|(shape, limit, period, size)| rule(shape, limit, period, size))
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let weight = prop_oneof![6 => Just(1_u32), 1 => Just(0_u32), 3 => 2_u32..4];
    let rule = (shaped(0..9), weight).prop_map(|(rule, weight)| Rule { weight, ..rule });
    prop::collection::vec(rule, 1..=NAMES.len())
}

/// A pause as a share of the longest wait, in thousandths, and a cost.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let pause = prop_oneof![3 => Just(0_u64), 3 => 0_u64..100, 1 => 0_u64..2_000];
    let cost = prop_oneof![6 => Just(1_u32), 3 => 0_u32..10, 1 => 0_u32..70];
    prop::collection::vec((pause, cost), 1..40)
}

/// A service under these rules, at a moment that begins no window.
struct Scene {
    rules: Vec<Rule>,
    clock: ManualClock,
    service: Hello,
}

impl Scene {
    fn new(rules: Vec<Rule>, start: u64) -> Self {
        let clock = ManualClock::at(Micros::new(1_800_000_000_000_000 + start));
        let store = MemoryStore::new().clock(clock.clone());
        let mut builder = RateLimitLayer::builder().store(store);
        for (name, rule) in NAMES.iter().zip(&rules) {
            let weight = rule.weight;
            let policy = everybody(name, rule.algorithm);
            builder = builder.policy(policy.cost(move |head| cost(head) * weight));
        }
        Self {
            rules,
            clock,
            service: Hello::behind(&builder.build().unwrap()),
        }
    }

    fn pause(&self, thousandths: u64) {
        let longest = self.rules.iter().filter_map(Rule::longest_wait).max();
        let micros = longest.unwrap_or(1_000) * thousandths / 1_000;
        self.clock.advance(Duration::from_micros(micros));
    }

    fn ask(&self, cost: u32) -> Told {
        Told::by(&ask(&self.service, get_of_cost(cost)))
    }

    fn rule(&self, name: &str) -> &Rule {
        let index = NAMES.iter().position(|other| *other == name).unwrap();
        &self.rules[index]
    }

    fn passes(&self, cost: u32) -> bool {
        passed(&ask(&self.service, get_of_cost(cost)))
    }

    /// Sends the arrivals; what an allowed request is told after them, if there can be one.
    fn after(&self, arrivals: &[(u64, u32)]) -> Option<Told> {
        let mut last = None;
        for (pause, cost) in arrivals {
            self.pause(*pause);
            last = Some(self.ask(*cost)).filter(|told| told.passed);
        }
        last.or_else(|| Some(self.ask(0)).filter(|told| told.passed))
    }
}

/// What one answer says.
#[derive(Debug)]
struct Told {
    passed: bool,
    retry_after: Option<u64>,
    /// Name, `q` and `w`.
    policies: Vec<(String, u64, Option<u64>)>,
    /// Name, `r` and `t`.
    limits: Vec<(String, u64, Option<u64>)>,
}

impl Told {
    fn by(answer: &Answer) -> Self {
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

    /// How many more requests of cost 1 every policy has room for.
    fn room(&self, scene: &Scene) -> Option<u64> {
        let room = self.limits.iter().filter_map(|(name, remaining, _)| {
            remaining.checked_div(scene.rule(name).weight.into())
        });
        room.min()
    }
}

fn passed(answer: &Answer) -> bool {
    match answer.status.as_u16() {
        200 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

/// As many cases as `PROPTEST_CASES` says, or 1,000.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/http/proptest-regressions/truth.txt"
        )))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn f66_b5_whoever_waits_what_retry_after_said_passes_and_a_second_earlier_does_not(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let told = scene.ask(cost);
            let Some(seconds) = told.retry_after else {
                continue;
            };
            prop_assert!(!told.passed);
            prop_assert!(seconds >= 1);
            scene.clock.advance(Duration::from_secs(seconds - 1));
            prop_assert!(!scene.passes(cost), "a second less is enough: {told:?}");
            scene.clock.advance(Duration::from_secs(1));
            prop_assert!(scene.passes(cost), "the wait was too short: {told:?}");
        }
    }

    #[test]
    fn b5_retry_after_is_absent_only_when_no_wait_can_help(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let told = scene.ask(cost);
            let hopeless = scene.rules.iter().any(|rule| {
                rule.limit() == 0 || cost * rule.weight > rule.limit()
            });
            let waits = !told.passed && !hopeless;
            prop_assert_eq!(told.retry_after.is_some(), waits, "{:?}", told);
        }
    }

    #[test]
    fn b6_the_fields_of_one_answer_agree(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let told = scene.ask(cost);
            let asked: Vec<_> = told.policies.iter().map(|(name, ..)| name.as_str()).collect();
            prop_assert_eq!(&asked, &NAMES[..scene.rules.len()]);
            for (name, q, w) in &told.policies {
                let limit = scene.rule(name).limit();
                prop_assert_eq!(*q, u64::from(limit));
                prop_assert_eq!(*w, (limit > 0).then_some(scene.rule(name).window));
            }
            // One policy that can never pass makes the waits of the others useless.
            let helps = told.limits.iter().all(|(name, ..)| {
                let rule = scene.rule(name);
                (1..=rule.limit()).contains(&(cost * rule.weight))
            });
            for (name, r, t) in &told.limits {
                let rule = scene.rule(name);
                let cost = u64::from(cost * rule.weight);
                let limit = u64::from(rule.limit());
                let longest = rule.longest_wait().map(|wait| wait.div_ceil(1_000_000));
                prop_assert!(*r <= limit);
                prop_assert_ne!(*t, Some(0));
                prop_assert!(*t <= longest, "{name}: {told:?}");
                if told.passed {
                    prop_assert_eq!(t.is_some(), limit > 0);
                } else {
                    prop_assert!(*r < cost.max(1), "{name} has enough: {told:?}");
                    prop_assert_eq!(t.is_some(), helps);
                }
            }
            if told.passed {
                prop_assert_eq!(told.limits.len(), told.policies.len());
                prop_assert_eq!(told.retry_after, None);
            } else {
                prop_assert!(!told.limits.is_empty());
                let waits: Option<Vec<u64>> = told.limits.iter().map(|(.., t)| *t).collect();
                let longest = waits.map(|waits| waits.into_iter().max().unwrap());
                prop_assert_eq!(told.retry_after, longest);
            }
        }
    }

    #[test]
    fn b7_exactly_as_many_more_pass_at_once_as_remain(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        let Some(told) = scene.after(&arrivals) else {
            return Ok(());
        };
        let Some(room) = told.room(&scene) else {
            return Ok(());
        };
        for _ in 0..room {
            prop_assert!(scene.passes(1), "{told:?}");
        }
        prop_assert!(!scene.passes(1), "{told:?}");
    }

    #[test]
    fn what_remains_may_be_spread_evenly_over_the_time_it_has_to_last(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        let Some(told) = scene.after(&arrivals) else {
            return Ok(());
        };
        let Some(room @ 1..) = told.room(&scene) else {
            return Ok(());
        };
        let shortest = told.limits.iter().filter_map(|(.., t)| *t).min().unwrap();
        for _ in 0..room {
            scene.clock.advance(Duration::from_micros(shortest * 1_000_000 / room));
            prop_assert!(scene.passes(1), "{told:?}");
        }
    }

    #[test]
    fn a_client_that_paces_itself_by_the_fields_is_never_refused(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let each_takes_one = |rule: Rule| Rule { weight: 1, ..rule };
        let scene = Scene::new(rules.into_iter().map(each_takes_one).collect(), start);
        let Some(mut told) = scene.after(&arrivals) else {
            return Ok(());
        };
        for _ in 0..50 {
            // With r requests for t seconds it sends one each t / r; with none it waits t.
            let pauses = told.limits.iter().filter_map(|(_, r, t)| {
                Some((t.as_ref()? * 1_000_000).div_ceil(*r.max(&1)))
            });
            let pause = pauses.max().unwrap_or(0);
            scene.clock.advance(Duration::from_micros(pause));
            let next = scene.ask(1);
            prop_assert!(next.passed, "{told:?}, then {next:?}");
            told = next;
        }
    }

    #[test]
    fn a_client_that_keeps_the_pace_of_one_answer_of_a_bucket_is_never_refused(
        rule in shaped(6..9),
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(vec![rule], 0);
        let Some(told) = scene.after(&arrivals) else {
            return Ok(());
        };
        let [(_, r @ 1.., Some(t))] = told.limits[..] else {
            return Ok(());
        };
        for _ in 0..50 {
            scene.clock.advance(Duration::from_micros((t * 1_000_000).div_ceil(r)));
            prop_assert!(scene.passes(1), "{told:?}");
        }
    }
}
