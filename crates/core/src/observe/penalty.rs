use crate::decision::Outcome;

/// Reports to operators that a policy has blocked a key of this kind, which it refused too often. The log
/// never has the key itself.
#[cfg(feature = "tracing")]
#[cold]
pub(super) fn penalized(policy: &str, key_kind: &'static str, outcome: &Outcome) {
    tracing::info!(
        target: "tower_ratelimit::penalty",
        policy,
        key_kind,
        wait = ?outcome.retry_after().unwrap_or_default(),
        "a policy has refused a key too often, and blocks it"
    );
}

#[cfg(not(feature = "tracing"))]
pub(super) fn penalized(_: &str, _: &'static str, _: &Outcome) {}
