//! Every dialect is true and valid, whatever the configuration: a request that waits as announced passes, no time
//! exceeds `Retry-After`, and a third-party parser reads the headers.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::response::Reset::{DeltaMillis, DeltaSeconds, EpochSeconds};
use tower_ratelimit::response::{Dialect, EXPOSED_HEADERS};

use crate::exchange::{Received, ask, get_of_cost};
use crate::scene::{self, NAMES, Scene, arrivals, rules};
use crate::structured::{dictionary, integer, list, quotas};

fn config() -> ProptestConfig {
    scene::config(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/http/proptest-regressions/dialect_truth.txt"
    ))
}

fn dialects() -> impl Strategy<Value = Dialect> {
    let reset = prop_oneof![Just(DeltaSeconds), Just(DeltaMillis), Just(EpochSeconds)];
    prop_oneof![
        Just(Dialect::Draft11),
        Just(Dialect::Draft07),
        Just(Dialect::Draft06),
        Just(Dialect::Draft03),
        reset.clone().prop_map(Dialect::XRateLimit),
        reset.prop_map(Dialect::XRateLimitDashed),
        Just(Dialect::GitHub),
    ]
}

/// The headers of a response about the binding policy, in microseconds from the decision.
#[derive(Debug, Default, PartialEq)]
struct FieldValues {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<u64>,
}

impl FieldValues {
    /// Reads the headers of this dialect, and fails if they violate its specification.
    fn by(answer: &Received, dialect: Dialect, now: u64) -> Self {
        let field = |name: &str| answer.field(name);
        let three = |limit: Option<u64>, prefix: &str, reset| {
            let [remaining, time] =
                ["remaining", "reset"].map(|name| field(&format!("{prefix}-{name}")).map(integer));
            let reset = time.map(|time| match reset {
                DeltaSeconds => time * 1_000_000,
                DeltaMillis => time * 1_000,
                EpochSeconds => (time * 1_000_000).checked_sub(now).unwrap(),
                other => panic!("{other:?}"),
            });
            Self {
                limit,
                remaining,
                reset,
            }
        };
        match dialect {
            Dialect::Draft11 => {
                let limits = list(field("ratelimit").unwrap());
                let policies = list(field("ratelimit-policy").unwrap());
                let times = limits.iter().filter_map(|limit| limit.number("t"));
                let seconds = match answer.status.as_u16() {
                    200 => None,
                    _ => times.max(),
                };
                let least = limits
                    .iter()
                    .min_by_key(|limit| limit.number("r"))
                    .filter(|_| answer.status == 200);
                let policy = least
                    .and_then(|least| policies.iter().find(|policy| policy.name == least.name));
                Self {
                    limit: policy.and_then(|policy| policy.number("q")),
                    remaining: least.and_then(|least| least.number("r")),
                    reset: seconds
                        .or_else(|| least.and_then(|least| least.number("t")))
                        .map(|seconds| seconds * 1_000_000),
                }
            }
            Dialect::Draft07 => {
                let policies = quotas(field("ratelimit-policy").unwrap_or_default());
                let Some(limits) = field("ratelimit") else {
                    return Self::default();
                };
                let limits = dictionary(limits);
                let names: Vec<_> = limits.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(names, ["limit", "remaining", "reset"]);
                assert!(policies.iter().any(|(quota, _)| *quota == limits[0].1));
                Self {
                    limit: Some(limits[0].1),
                    remaining: Some(limits[1].1),
                    reset: Some(limits[2].1 * 1_000_000),
                }
            }
            Dialect::Draft06 => {
                let policies = quotas(field("ratelimit-policy").unwrap_or_default());
                let limit = field("ratelimit-limit").map(integer);
                let is_listed = |limit| policies.iter().any(|(quota, _)| *quota == limit);
                assert!(limit.is_none_or(is_listed));
                assert_eq!(limit.is_some(), field("ratelimit-reset").is_some());
                three(limit, "ratelimit", DeltaSeconds)
            }
            Dialect::Draft03 => {
                let limit = field("ratelimit-limit").map(|limit| {
                    let (limit, policies) = limit.split_once(", ").unwrap();
                    let is_listed = |(quota, _): &(u64, u64)| *quota == integer(limit);
                    assert!(quotas(policies).iter().any(is_listed));
                    integer(limit)
                });
                assert_eq!(limit.is_some(), field("ratelimit-reset").is_some());
                three(limit, "ratelimit", DeltaSeconds)
            }
            Dialect::XRateLimit(reset) => {
                let limit = field("x-ratelimit-limit").map(integer);
                three(limit, "x-ratelimit", reset)
            }
            Dialect::XRateLimitDashed(reset) => {
                let limit = field("x-rate-limit-limit").map(integer);
                three(limit, "x-rate-limit", reset)
            }
            Dialect::GitHub => {
                let limit = field("x-ratelimit-limit").map(integer);
                let told = three(limit, "x-ratelimit", EpochSeconds);
                let used = field("x-ratelimit-used").map(integer);
                assert_eq!(used, Some(limit.unwrap() - told.remaining.unwrap()));
                assert!(NAMES.contains(&field("x-ratelimit-resource").unwrap()));
                told
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_client_that_waits_to_the_reset_or_as_retry_after_says_passes(
        dialect in dialects(),
        jitter in prop_oneof![Just(0_u64), 1_u64..100],
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
        waits_for_reset: bool,
    ) {
        let scene = Scene::built(rules, start, |builder| {
            builder.dialects([dialect]).retry_jitter(Duration::from_secs(jitter))
        });
        let send = |cost| ask(&scene.service, get_of_cost(cost));
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let now = scene.now();
            let answer = send(cost);
            let told = FieldValues::by(&answer, dialect, now);
            for name in &EXPOSED_HEADERS {
                prop_assert!(answer.lines(name.as_str()).len() <= 1);
            }
            prop_assert!(told.remaining <= told.limit || dialect == Dialect::Draft11);
            prop_assert_ne!(told.reset, Some(0));
            let retry_after = answer.field("retry-after").map(integer);
            if answer.status == 200 {
                prop_assert_eq!(retry_after, None);
                continue;
            }
            prop_assert_eq!(answer.status, 429);
            // One without the other would be a wait that does not help, or a missing wait.
            prop_assert_eq!(told.reset.is_some(), retry_after.is_some());
            let (Some(reset), Some(retry_after)) = (told.reset, retry_after) else {
                continue;
            };
            // A second by the wall clock ends less than a second after the wait.
            let slack = if is_epoch(dialect) { 999_999 } else { 0 };
            prop_assert!(reset <= retry_after * 1_000_000 + slack, "{:?}", told);
            prop_assert!(reset + jitter * 1_000_000 + 1_000_000 > retry_after * 1_000_000);
            let wait = if waits_for_reset { reset } else { retry_after * 1_000_000 };
            scene.clock.advance(Duration::from_micros(wait));
            prop_assert_eq!(send(cost).status, 200, "{:?} was too short", told);
        }
    }

    #[test]
    fn every_dialect_tells_the_same_numbers(
        dialect in dialects(),
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scenes = [Dialect::GitHub, dialect].map(|dialect| {
            let told_in = |builder: tower_ratelimit::middleware::RateLimitLayerBuilder| {
                builder.dialects([dialect])
            };
            Scene::built(rules.clone(), start, told_in)
        });
        for (pause, cost) in arrivals {
            let [github, told] = [0, 1].map(|scene| {
                scenes[scene].pause(pause);
                let dialect = [Dialect::GitHub, dialect][scene];
                let answer = ask(&scenes[scene].service, get_of_cost(cost));
                (answer.status, FieldValues::by(&answer, dialect, scenes[scene].now()))
            });
            prop_assert_eq!(github.0, told.0);
            let (github, told) = (github.1, told.1);
            if told.limit.is_some() {
                prop_assert_eq!(github.limit, told.limit);
                prop_assert_eq!(github.remaining, told.remaining);
            }
            if let (Some(github), Some(told)) = (github.reset, told.reset) {
                prop_assert!(github.abs_diff(told) < 1_000_000);
            }
        }
    }
}

fn is_epoch(dialect: Dialect) -> bool {
    matches!(
        dialect,
        Dialect::GitHub
            | Dialect::XRateLimit(EpochSeconds)
            | Dialect::XRateLimitDashed(EpochSeconds)
    )
}
