//! The one place where what happened is told.
//!
//! It stands below the stores, the limiter and the layers. They tell it events, and it tells operators: in the
//! log, with feature `tracing`. It needs no feature itself.
//! [`diagnostics`](crate::diagnostics) lists mistakes and their remedies, which are logged apart.

#[cfg(feature = "http")]
mod health;
mod penalty;
mod store;

#[cfg(feature = "http")]
pub(crate) use self::health::StoreHealth;
pub(crate) use self::penalty::penalized;
pub(crate) use self::store::{StoreEvent, observe};
