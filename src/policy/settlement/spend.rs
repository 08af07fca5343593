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
/// Clones change the same sum. Changes after the body has ended do not count. Every layer around the handler that
/// settles by a `Spend` charges the sum, whichever of them has given the handle.
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
///
/// A handler that knows the cost only at the end adds an estimate, and then [sets](Self::set) what it was:
///
/// ```
/// use tower_ratelimit::policy::Spend;
///
/// let spend = Spend::default();
/// spend.add(1_024);
/// // The model has reported how many tokens there were.
/// spend.set(652);
/// assert_eq!(spend.total(), Some(652));
/// // The client has not read the last of them.
/// spend.sub(52);
/// assert_eq!(spend.total(), Some(600));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Spend {
    sum: Arc<Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    /// One more than the sum; 0 if nothing was reported.
    units: AtomicU64,
    /// The handle of the layer around the one that has made this, which has every change too. It is another one,
    /// because a request may be tried several times in between.
    around: Option<Spend>,
}

impl Spend {
    /// Creates a handle, inside of that of a layer around this one.
    pub(crate) fn within(around: Option<Self>) -> Self {
        let units = AtomicU64::new(0);
        Self {
            sum: Arc::new(Sum { units, around }),
        }
    }

    /// Adds units. Adding 0 reports that the request has cost nothing so far.
    pub fn add(&self, units: u32) {
        self.change(|sum| sum.saturating_add(units.into()));
    }

    /// Gives units back, such as those of an estimate that was added. The sum does not fall below 0.
    pub fn sub(&self, units: u32) {
        self.change(|sum| sum.saturating_sub(units.into()));
    }

    /// Sets the sum to this many units, whatever was added before.
    pub fn set(&self, units: u32) {
        self.change(|_| units.into());
    }

    /// Returns the sum, or `None` if nothing was reported.
    pub fn total(&self) -> Option<u64> {
        self.sum.units.load(Ordering::Relaxed).checked_sub(1)
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let changed = |units: u64| change(units.saturating_sub(1));
        let update = |units| Some(changed(units).saturating_add(1));
        let before = self
            .sum
            .units
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        // The update never fails, since the closure always returns a sum.
        if let (Some(around), Ok(before)) = (&self.sum.around, before) {
            let (before, after) = (before.saturating_sub(1), changed(before));
            around.change_by(before, after);
        }
    }

    /// Follows the change of one of the sums that are part of this one.
    fn change_by(&self, before: u64, after: u64) {
        self.change(|sum| sum.saturating_sub(before).saturating_add(after));
    }
}
