//! Reports changes of the limits in force.

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

/// Reports to operators that another configuration is in force.
#[cfg(feature = "config")]
pub(crate) fn configuration_changed(version: u64, sha256: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "tower_ratelimit::config",
        version,
        sha256,
        "the limits of a changed file are in force"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (version, sha256);
}

/// Logs the file that is followed, and the place to which its links lead.
#[cfg(feature = "config")]
pub(crate) fn file_is_followed(path: &std::path::Path) {
    #[cfg(feature = "tracing")]
    {
        let place = path.canonicalize();
        let place = place.as_deref().unwrap_or(path);
        tracing::info!(
            target: "tower_ratelimit::config",
            path = %path.display(),
            place = %place.display(),
            "the limits follow a file"
        );
    }
    #[cfg(not(feature = "tracing"))]
    let _ = path;
}
