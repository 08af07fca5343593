use std::time::Duration;

use crate::error::StoreError;

/// A change of a store.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "the log alone reads what an event says")
)]
pub(crate) enum StoreEvent<'a> {
    /// The store does not answer, and this node goes on without it. The policies are grouped by what happens
    /// to their requests.
    Away {
        store: &'a str,
        error: &'a StoreError,
        local: Option<String>,
        allow: Option<String>,
        refuse: Option<String>,
    },
    /// A call has failed, the first one for a long time. The next may succeed.
    FirstFailure {
        store: &'a str,
        error: &'a StoreError,
    },
    /// The store answers again, after this time and this number of requests that were decided without it.
    Back {
        store: &'a str,
        away: Duration,
        decided: u64,
    },
    /// The store answers, but cannot decide some requests.
    FailedForSome {
        store: &'a str,
        error: &'a StoreError,
    },
    /// The store has failed, and requests are refused.
    Failed { error: &'a StoreError },
    /// The store answers again, and requests are decided.
    Recovered,
}

/// Reports a change of a store to operators.
#[cfg(feature = "tracing")]
#[cold]
pub(crate) fn observe(event: &StoreEvent<'_>) {
    match event {
        StoreEvent::Away {
            store,
            error,
            local,
            allow,
            refuse,
        } => tracing::warn!(
            target: "tower_ratelimit::store",
            server = store,
            error = *error as &dyn std::error::Error,
            reason = error.reason(),
            local,
            allow,
            refuse,
            "the rate limiter's store does not answer; until it does, this node keeps to the policies named in \
             `local` by itself, lets everything go on under those in `allow`, and refuses everything under \
             those in `refuse`"
        ),
        StoreEvent::FirstFailure { store, error } => tracing::warn!(
            target: "tower_ratelimit::store",
            server = store,
            error = *error as &dyn std::error::Error,
            reason = error.reason(),
            "a call to the rate limiter's store has failed, the first one for an hour; after five in a row the store is \
             taken to be away"
        ),
        StoreEvent::Back {
            store,
            away,
            decided,
        } => tracing::info!(
            target: "tower_ratelimit::store",
            server = store,
            ?away,
            decided,
            "the rate limiter's store answers again"
        ),
        StoreEvent::FailedForSome { store, error } => tracing::warn!(
            target: "tower_ratelimit::store",
            server = store,
            error = *error as &dyn std::error::Error,
            reason = error.reason(),
            "the rate limiter's store cannot decide on some requests; they are decided without it"
        ),
        StoreEvent::Failed { error } => tracing::warn!(
            target: "tower_ratelimit::store",
            error = *error as &dyn std::error::Error,
            "the rate limiter's store has failed; requests are refused until it answers again"
        ),
        StoreEvent::Recovered => {
            tracing::info!(target: "tower_ratelimit::store", "the rate limiter's store answers again");
        }
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn observe(_: &StoreEvent<'_>) {}
