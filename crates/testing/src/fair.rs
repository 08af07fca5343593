//! The law of limits that are divided among tenants.

use std::time::Duration;

use super::{Broken, Stage};
use tower_ratelimit_core::algorithm::{Algorithm, LeakyQueue, TokenBucket};
use tower_ratelimit_core::key::{IntoKey, Key};
use tower_ratelimit_core::policy::{Fair, Policy};
use tower_ratelimit_core::store::{Backend, Charge, Store};

pub(super) const SHARES: &str =
    "a limit that is divided is that of all tenants, and what belongs to one of them stays for it";

/// The requests of a second of the tenant that asks for more than there is, and of one that asks for less than its share.
const OF_HOG: u32 = 50;
const OF_OTHER: u32 = 4;

pub(super) async fn are_kept<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    if !stage.store.divides_limits() {
        return Ok(());
    }
    let open = |algorithm: Algorithm| {
        let policy = Policy::new("conformance-fair", algorithm).fair(Fair::new());
        let backend = stage.store.open(&[policy]);
        backend.map_err(|error| Broken::refused(SHARES, &error))
    };
    let [of_bucket, of_queue, each] = stage.keys("fair", 3)[..] else {
        return Ok(());
    };
    let daily: [(Key, Algorithm); 2] = [
        (of_bucket, TokenBucket::per_day(10).into()),
        (of_queue, LeakyQueue::per_day(10).places(9).into()),
    ];
    for (together, daily) in daily {
        let nodes = [open(daily)?, open(daily)?];
        let mut allowed = 0;
        for place in 0..30_usize {
            let tenant = tenant(together, ["ann", "ben", "eve"][place % 3]);
            allowed += u32::from(passes(&nodes[place % 2], tenant).await?);
        }
        // A tenant that pauses for a second, and one whose share is no whole number of units, may have a part of a unit kept for them.
        let least = if stage.clock.is_some() { 10 } else { 8 };
        if !(least..=10).contains(&allowed) {
            let seen = format_args!(
                "of a limit of 10 for three tenants {allowed} requests were allowed: {daily}"
            );
            return Err(Broken::new(SHARES, seen));
        }
    }
    let Some(clock) = &stage.clock else {
        return Ok(());
    };
    let backend = open(TokenBucket::per_second(10).into())?;
    let (mut hogged, mut others) = (0, 0);
    for step in 0..20 * OF_HOG {
        clock.advance(Duration::from_secs(1) / OF_HOG);
        hogged += u32::from(passes(&backend, tenant(each, "hog")).await?);
        if step % (OF_HOG / OF_OTHER) == 0 {
            others += u32::from(passes(&backend, tenant(each, "ann")).await?);
        }
    }
    // A bucket of ten a second, and what was in it at first.
    if others < 78 || hogged + others > 211 || hogged + others < 200 {
        let seen = format_args!(
            "in 20 seconds of 10 units a tenant that asks for 4 got {others}, beside one that got {hogged}"
        );
        return Err(Broken::new(SHARES, seen));
    }
    Ok(())
}

fn tenant(shared: Key, name: &str) -> Key {
    Key::branch(shared, &[name.into_key()])
}

async fn passes(backend: &impl Backend, key: Key) -> Result<bool, Broken> {
    let answer = backend.decide(&[Charge::new(0, key, 1)]).wait().await;
    let outcomes = answer.map_err(|error| Broken::failed(SHARES, &error))?;
    Ok(outcomes.iter().all(|(_, outcome)| outcome.is_allowed()))
}
