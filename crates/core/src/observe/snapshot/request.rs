//! The counts of requests in a snapshot.

use super::table::{FromCount, counters, stats};
use crate::observe::metric::{Metric, counter};

/// A request, by what became of it.
const fn requests(outcome: &'static str) -> Metric<u64> {
    counter(
        "ratelimit_requests_total",
        "Requests, each counted once, by what became of them",
    )
    .label("outcome", outcome)
}

counters! {
    /// The counts of requests, each counted once.
    #[derive(Default)]
    struct RequestStats, counted by Request {
        /// How many requests went on after all policies decided.
        allowed: u64 = Allowed => requests("allowed"),
        /// How many requests a policy refused.
        refused: u64 = Refused => requests("refused"),
        /// How many requests were refused because the store could not decide.
        failed: u64 = Failed => requests("failed"),
        /// How many of the allowed and refused requests were decided without the store.
        degraded: u64 = Degraded,
        /// How many requests went on without a decision: no policy applies to them, or the layer exempts them by path or
        /// allow list.
        exempt: u64 = Exempt => requests("exempt"),
        /// How many requests the deny list refused.
        forbidden: u64 = Forbidden => requests("forbidden"),
        /// How many requests were refused because they have no key.
        without_key: u64 = WithoutKey => requests("without_key"),
        /// How many charges were a guess at their settlement, because the body of the response did not tell its usage. A
        /// request has one for each policy that reads it.
        guessed: u64 = Guessed
            => counter("ratelimit_guessed_total", "Charges that were guessed, because a response did not tell its usage"),
    }
}
