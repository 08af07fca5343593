use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cost of a request, in the extensions of its response: the handler adds it, for
/// [`Settle::from_cost`](super::Settle::from_cost).
///
/// ```
/// use axum::{Extension, response::IntoResponse};
/// use tower_ratelimit::policy::Cost;
///
/// async fn search() -> impl IntoResponse {
///     let rows = ["a", "b"];
///     (Extension(Cost(2)), rows.concat())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost(
    /// In units of the policy.
    pub u32,
);

/// A handle in the extensions of a request, by which the handler reports the cost so far, also while the body
/// of the response streams: see [`Settle::from_spend`](super::Settle::from_spend).
///
/// Clones add to the same sum. Units that are added after the body has ended do not count.
///
/// ```
/// use axum::Extension;
/// use tower_ratelimit::policy::Spend;
///
/// async fn words(Extension(spend): Extension<Spend>) -> String {
///     let mut said = String::new();
///     for word in ["one ", "two ", "three "] {
///         spend.add(1);
///         said.push_str(word);
///     }
///     said
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Spend {
    /// One more than the sum; 0 if nothing was added.
    sum: Arc<AtomicU64>,
}

impl Spend {
    /// Adds units. Adding 0 reports that the request has cost nothing so far.
    pub fn add(&self, units: u32) {
        let add = |sum: u64| Some(sum.max(1).saturating_add(units.into()));
        // The update never fails, since the closure always returns a sum.
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the sum, or `None` if nothing was added.
    pub fn total(&self) -> Option<u64> {
        self.sum.load(Ordering::Relaxed).checked_sub(1)
    }
}
