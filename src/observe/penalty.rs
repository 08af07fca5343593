use crate::clock::Micros;

/// Tells operators that a policy has blocked a key that it refused too often. They are not told the key.
#[cfg(feature = "tracing")]
#[cold]
pub(crate) fn penalized(policy: &str, length: Micros) {
    tracing::info!(
        policy,
        length = ?length.to_duration(),
        "a rate limit policy has refused a key too often, and blocks it"
    );
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn penalized(_: &str, _: Micros) {}
