//! The law that holds for many simultaneous requests.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Broken, Stage};
use tower_ratelimit_core::__internal::answered;
use tower_ratelimit_core::algorithm::{Algorithm, AnchoredWindow, TokenBucket};
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::store::{Backend, Charge, Store};

pub(super) const CROWD: &str =
    "of many requests at once exactly as many are allowed as the limit says";

/// The number of tasks, whose waits for a network overlap, and of the requests of each task.
const TASKS: u32 = 24;
const EACH: u32 = 4;

pub(super) async fn exactly_the_limit<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    // Neither of them starts again during the test, not even at midnight.
    let scarce = AnchoredWindow::per_day(TASKS);
    let ample = TokenBucket::per_day(2 * TASKS);
    for algorithms in [
        vec![Algorithm::from(scarce)],
        vec![ample.into(), scarce.into()],
    ] {
        for in_threads in [false, true] {
            let [key] = stage.keys("crowd", 1)[..] else {
                continue;
            };
            let scene = stage.scene(CROWD, &algorithms)?;
            let backend = Arc::new(scene.backend);
            let allowed = crowd(&backend, key, algorithms.len(), in_threads).await?;
            let peeks: Vec<_> = (0..algorithms.len())
                .map(|policy| Charge::new(policy, key, 0))
                .collect();
            let outcomes = answered(&peeks, backend.peek(&peeks).wait().await);
            let outcomes = outcomes.map_err(|error| Broken::failed(CROWD, &error))?;
            let used: Vec<u32> = outcomes.iter().map(|(_, outcome)| outcome.used()).collect();
            if allowed != TASKS || used.iter().any(|used| *used != TASKS) {
                return Err(Broken::new(
                    CROWD,
                    format_args!(
                        "of {} requests at once {allowed} were allowed and {used:?} is used, in place \
                         of {TASKS} under each policy",
                        TASKS * EACH,
                    ),
                ));
            }
        }
    }
    Ok(())
}

async fn crowd<L: Backend>(
    backend: &Arc<L>,
    key: Key,
    policies: usize,
    in_threads: bool,
) -> Result<u32, Broken> {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let backend = Arc::clone(backend);
        let asks = async move {
            let mut allowed = 0;
            for _ in 0..EACH {
                let charges = (0..policies).map(|policy| Charge::new(policy, key, 1));
                let charges: Vec<_> = charges.collect();
                let outcomes = answered(&charges, backend.decide(&charges).wait().await)?;
                allowed += u32::from(outcomes.is_allowed());
            }
            Ok(allowed)
        };
        if in_threads {
            let runtime = tokio::runtime::Handle::current();
            tasks.spawn_blocking(move || runtime.block_on(asks));
        } else {
            tasks.spawn(asks);
        }
    }
    let mut allowed = 0;
    while let Some(done) = tasks.join_next().await {
        let counted =
            done.map_err(|error| Broken::new(CROWD, format_args!("it panicked: {error}")))?;
        allowed += counted.map_err(|error| Broken::failed(CROWD, &error))?;
    }
    Ok(allowed)
}
