//! What happened, told to those who run the service.
//!
//! With feature `tracing`, mistakes in the set-up are logged as errors with a stable code, each
//! once per process:
//!
//! | code | what is wrong | what mends it |
//! | --- | --- | --- |
//! | `TRL001` | the server does not tell the peer's address | `app.into_make_service_with_connect_info::<SocketAddr>()` |
//! | `TRL002` | an extension that a key is made of is not there | put the layer that provides it outside the rate limiting layer |

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::{Diagnostic, StoreError};

/// Logs a diagnostic, the first time that it is met.
pub(crate) fn diagnose(diagnostic: &Diagnostic) {
    static SAID: LazyLock<Mutex<HashSet<Diagnostic>>> = LazyLock::new(Mutex::default);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(*diagnostic) {
        drop(said);
        log(diagnostic);
    }
}

/// Logs that a request was refused because its store could not decide.
pub(crate) fn store_failed(error: &StoreError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the rate limiter's store has failed"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

#[cfg(feature = "tracing")]
fn log(diagnostic: &Diagnostic) {
    tracing::error!(
        code = diagnostic.code(),
        subject = diagnostic.subject(),
        remedy = diagnostic.remedy(),
        "{}",
        diagnostic.problem(),
    );
}

#[cfg(not(feature = "tracing"))]
fn log(_: &Diagnostic) {}
