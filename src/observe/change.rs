//! Reports changes of the factor in force.

#[cfg(feature = "adapt")]
use crate::factor::Explanation;

/// Reports to operators that another share of a limit is in force.
#[cfg(feature = "adapt")]
pub(crate) fn factor_changed(before: &Explanation, now: &Explanation) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "tower_ratelimit::adapt",
        factor = %now.factor(),
        before = %before.factor(),
        cause = now.cause(),
        "the share of the limits that is in force has changed"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (before, now);
}
