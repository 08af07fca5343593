use std::sync::Arc;

use proptest::prelude::*;
use tower_ratelimit::{Gcra, LeakyBucket, TokenBucket};

use crate::case::{Case, stepping_back};
use crate::property::{check, seeds};
use crate::support::buckets::Bucket;
use crate::support::driver::{Driver, Step};
use crate::support::model::Model;

/// GCRA, the token bucket and the leaky bucket are one mechanism under three names.
#[test]
fn gcra_token_bucket_and_leaky_bucket_decide_alike() {
    check(seeds!(buckets), stepping_back(), &|case| {
        let (quota, size) = (case.numbers.quota(), case.numbers.size);
        let mut token_bucket = Step::new(TokenBucket::of(quota).burst(size).into());
        let mut leaky_bucket = Step::new(LeakyBucket::of(quota).capacity(size).into());
        let mut gcra = Step::new(Gcra::of(quota).burst(size).into());
        case.play(&mut gcra, |gcra, asked, seen| {
            for other in [&mut token_bucket, &mut leaky_bucket] {
                prop_assert_eq!(other.decide(asked.at, asked.cost), seen);
                prop_assert_eq!(&other.state, &gcra.state);
            }
            Ok(())
        })
    });
}

/// Law 8: a debt above the capacity, which a larger bucket has left, is cut to the capacity.
#[test]
fn law_8_a_debt_above_the_capacity_is_cut() {
    let sizes = (stepping_back(), 0..8_u32, any::<prop::sample::Index>());
    check(seeds!(buckets), sizes, &|(case, smaller, at)| {
        let Case { numbers, asks, .. } = case;
        let smaller = (*smaller).min(numbers.size);
        let gcra = |size| Gcra::of(numbers.quota()).burst(size);
        let rule = |size| {
            Arc::new(Bucket {
                limit: numbers.limit,
                period: numbers.period,
                burst: size,
            })
        };
        let mut model = Model::new(rule(numbers.size));
        let mut driver = Step::new(gcra(numbers.size).into());
        let mut walk = case.walk();
        let change = at.index(asks.len());
        for place in 0.. {
            if place == change {
                model = model.under(rule(smaller));
                driver.algorithm = gcra(smaller).into();
            }
            let Some(asked) = walk.ask() else { break };
            let seen = driver.decide(asked.at, asked.cost);
            walk.told(seen);
            prop_assert_eq!(seen, model.decide(asked.at, asked.cost), "{:?}", asked);
        }
        Ok(())
    });
}
