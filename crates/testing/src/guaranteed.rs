//! The law of limits that are guaranteed in part to the keys below.

use std::time::Duration;

use super::{Broken, Stage};
use tower_ratelimit_core::algorithm::TokenBucket;
use tower_ratelimit_core::key::{IntoKey, Key};
use tower_ratelimit_core::policy::Policy;
use tower_ratelimit_core::quota::Quota;
use tower_ratelimit_core::store::{Amendment, Backend, Charge, Store};

pub(super) const GUARANTEES: &str = "what a key is guaranteed of a limit above is kept while the key asks, and lent when it does not";

pub(super) async fn are_kept<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    if !stage.store.keeps_guarantees() {
        return Ok(());
    }
    let open = || {
        let level = |name| Policy::new(name, TokenBucket::per_day(20));
        let low = level("conformance-team").below("conformance-org");
        let policies = [level("conformance-org"), low.guaranteed(Quota::per_day(8))];
        let backend = stage.store.open(&policies);
        backend.map_err(|error| Broken::refused(GUARANTEES, &error))
    };
    let [org] = stage.keys("guaranteed", 1)[..] else {
        return Ok(());
    };
    let nodes = [open()?, open()?];
    // While the time of the store passes, a part of a unit comes back, for which a whole one is kept.
    let lenience = u32::from(stage.clock.is_none());
    let is = |had: u32, expected: u32, whose: &str| {
        if had.abs_diff(expected) <= lenience {
            return Ok(());
        }
        let seen = format_args!(
            "of a limit of 20, of which each key is guaranteed 8, {whose} had {had} and not {expected}"
        );
        Err(Broken::new(GUARANTEES, seen))
    };
    is(take(&nodes[0], org, "blue", 1).await?, 1, "the first key")?;
    is(take(&nodes[1], org, "red", 30).await?, 12, "another key")?;
    let back = charges(org, "blue");
    let back = nodes[1].amend(&back, Amendment::Refund).wait().await;
    back.map_err(|error| Broken::failed(GUARANTEES, &error))?;
    let of_blue = take(&nodes[0], org, "blue", 30).await?;
    is(of_blue, 8, "the first key, which was refunded,")?;
    if let Some(clock) = &stage.clock {
        clock.advance(Duration::from_secs(86_400));
        let alone = take(&nodes[1], org, "red", 30).await?;
        is(alone, 20, "a key that asks alone")?;
    }
    Ok(())
}

fn charges(org: Key, team: &str) -> [Charge; 2] {
    let team = Key::branch(org, &[team.into_key()]);
    [Charge::new(0, org, 1), Charge::new(1, team, 1)]
}

/// Takes units one by one until one is refused, and returns how many.
async fn take(backend: &impl Backend, org: Key, team: &str, most: u32) -> Result<u32, Broken> {
    for taken in 0..most {
        let answer = backend.decide(&charges(org, team)).wait().await;
        let outcomes = answer.map_err(|error| Broken::failed(GUARANTEES, &error))?;
        if !outcomes.iter().all(|(_, outcome)| outcome.is_allowed()) {
            return Ok(taken);
        }
    }
    Ok(most)
}
