//! What the log says of a file in force.

use super::mistake::Mistake;

/// Reports to operators that another configuration is in force.
pub(super) fn configuration_changed(version: u64, sha256: &str) {
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
pub(super) fn file_is_followed(path: &std::path::Path) {
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

/// Reports that new connections to the store are made by a URL that has changed.
pub(super) fn login_is_renewed() {
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "tower_ratelimit::config",
        "the URL of the store has changed, and new connections log in by it"
    );
}

/// Warns operators of what a reload cannot do, such as put a secret into use.
pub(super) fn operators_are_warned(warning: &Mistake) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_ratelimit::config", "{warning}");
    #[cfg(not(feature = "tracing"))]
    let _ = warning;
}
