//! A request that waits for `Retry-After` passes, in every dialect, with soft policies and jitter or without.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::clock::Clock;
use tower_ratelimit::response::Dialect::{Draft03, Draft11, XRateLimit, XRateLimitDashed};
use tower_ratelimit::response::Reset;
use tower_ratelimit::{ManualClock, MemoryStore, Micros, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, cost, get_of_cost, global};
use crate::scene::{NAMES, Rule, arrivals, config, passed, rules};

const START: u64 = 1_800_000_000_000_000;

fn service(rules: &[Rule], soft: [bool; 3], jitter: u64, start: u64) -> (ManualClock, Hello) {
    let clock = ManualClock::at(Micros::new(START + start));
    let mut builder = RateLimitLayer::builder()
        .store(MemoryStore::new().clock(clock.clone()))
        .dialects([
            Draft11,
            Draft03,
            XRateLimit(Reset::DeltaMillis),
            XRateLimitDashed(Reset::EpochSeconds),
        ])
        .retry_jitter(Duration::from_secs(jitter));
    for ((name, rule), is_soft) in NAMES.iter().zip(rules).zip(soft) {
        let weight = rule.weight;
        let policy = global(name, rule.algorithm).cost(move |head| cost(head) * weight);
        builder = builder.policy(if is_soft { policy.soft() } else { policy });
    }
    (clock, Hello::behind(&builder.build().unwrap()))
}

proptest! {
    #![proptest_config(config("http/attack_numbers.proptest-regressions"))]

    #[test]
    fn a_client_that_waits_as_any_dialect_tells_passes_beside_soft_policies_and_jitter(
        rules in rules(),
        soft in any::<[bool; 3]>(),
        jitter in 0..3_u64,
        start in 0..2_000_000_u64,
        arrivals in arrivals(),
    ) {
        let (clock, service) = service(&rules, soft, jitter, start);
        let longest = rules.iter().filter_map(Rule::longest_wait).max().unwrap_or(1_000);
        for (pause, cost) in arrivals {
            clock.advance(Duration::from_micros(longest * pause / 1_000));
            let answer = ask(&service, get_of_cost(cost));
            if passed(&answer) {
                prop_assert!(answer.field("retry-after").is_none());
                continue;
            }
            prop_assert!(soft.iter().zip(&rules).any(|(soft, _)| !soft));
            let number = |name| answer.field(name).map(|text| text.parse::<u64>().unwrap());
            let (retry, delta) = (number("retry-after"), number("ratelimit-reset"));
            let (millis, epoch) = (number("x-ratelimit-reset"), number("x-rate-limit-reset"));
            prop_assert_eq!(retry.is_some(), delta.is_some());
            prop_assert_eq!(retry.is_some(), millis.is_some());
            let Some(retry) = retry else { continue };
            let (delta, millis, epoch) = (delta.unwrap(), millis.unwrap(), epoch.unwrap());
            prop_assert!(delta <= retry && millis <= 1_000 * retry);
            let now = clock.now().get();
            let waits = [retry * 1_000_000, delta * 1_000_000, millis * 1_000, epoch * 1_000_000 - now];
            let wait = waits.into_iter().min().unwrap();
            clock.advance(Duration::from_micros(wait));
            prop_assert!(passed(&ask(&service, get_of_cost(cost))), "{waits:?}");
        }
    }
}
