//! What time it is, in whole microseconds since the Unix epoch.
//!
//! A store reads its clock once per decision. [`SystemClock`] is the default; [`ManualClock`]
//! is for tests, yours as well as ours. With feature `quanta` there is a faster one,
//! `QuantaClock`, with a warning.

mod anchor;
mod any;
mod manual;
mod micros;
#[cfg(feature = "quanta")]
mod quanta;
mod system;
mod timer;

use std::sync::Arc;

pub(crate) use self::any::AnyClock;
pub use self::manual::ManualClock;
pub use self::micros::Micros;
#[cfg(feature = "quanta")]
pub use self::quanta::QuantaClock;
pub use self::system::SystemClock;
pub(crate) use self::timer::timer;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// The time now, since the Unix epoch.
    ///
    /// It is read for each decision, and once more when another thread was quicker: it must not
    /// block. Time that stands still is fine. Time that steps back is survived: state from the future
    /// moves back to now, which lets through at most one limit more for each step.
    fn now(&self) -> Micros;
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now(&self) -> Micros {
        (**self).now()
    }
}
