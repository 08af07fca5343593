use redis::{ErrorKind, RedisError, ServerErrorKind};

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

fn kind(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::ResponseError | ServerErrorKind::CrossSlot | ServerErrorKind::NoPerm,
        )
        | ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::UnexpectedReturnType => StoreErrorKind::Misconfigured,
        ErrorKind::Extension => match error.code() {
            Some("WRONGTYPE" | "NOAUTH" | "WRONGPASS") => StoreErrorKind::Misconfigured,
            _ => StoreErrorKind::Unavailable,
        },
        _ => StoreErrorKind::Unavailable,
    }
}
