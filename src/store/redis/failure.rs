use redis::{ErrorKind, RedisError};

use crate::error::{StoreError, StoreErrorKind};

/// What the store says when a call has failed.
pub(super) fn failure(error: RedisError) -> StoreError {
    StoreError::new(kind(&error)).caused_by(error)
}

/// The server answered with something that its scripts do not.
pub(super) fn nonsense(about: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured).caused_by(about)
}

/// The runtime has ended before the answer came.
pub(super) fn interrupted() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable).caused_by("the runtime has ended")
}

/// Whether the server may not write, as a replica, or as a primary whose replicas have another one: so is the
/// primary of before after a failover.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    matches!(code(error), "READONLY" | "MASTERDOWN" | "NOREPLICAS")
}

/// What the server calls the error.
fn code(error: &RedisError) -> &str {
    /// Those that Redis 6.2 calls `ERR` if a script has met them, which then stand in its sentence.
    const INSIDE: [&str; 4] = ["OOM", "READONLY", "MISCONF", "NOREPLICAS"];
    let said = error.detail().unwrap_or_default();
    let inside = INSIDE
        .into_iter()
        .find(|code| said.contains(&format!(": -{code} ")));
    inside.or(error.code()).unwrap_or_default()
}

fn kind(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::UnexpectedReturnType => StoreErrorKind::Misconfigured,
        ErrorKind::Server(_) | ErrorKind::Extension => match code(error) {
            "ERR" | "CROSSSLOT" | "NOPERM" | "WRONGTYPE" | "NOAUTH" | "WRONGPASS" => {
                StoreErrorKind::Misconfigured
            }
            _ => StoreErrorKind::Unavailable,
        },
        _ => StoreErrorKind::Unavailable,
    }
}
