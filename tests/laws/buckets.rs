use proptest::prelude::*;
use tower_ratelimit::{Gcra, LeakyBucket, TokenBucket};

use crate::case::stepping_back;
use crate::property::{check, seeds};
use crate::support::driver::{Driver, Step};

/// GCRA, the token bucket and the leaky bucket are one algorithm with three names.
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
