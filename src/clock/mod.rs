//! The time, in whole microseconds since the Unix epoch.
//!
//! A store reads its clock once per decision. [`SystemClock`] is the default, and [`ManualClock`]
//! is for tests. With feature `quanta`, `QuantaClock` is faster, but not right for every machine.

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
    /// Returns the time now, since the Unix epoch.
    ///
    /// It is called for each decision, and again if another thread was quicker, so it must not
    /// block. The time may stand still. If it steps back, state from the future moves back to now,
    /// which admits at most one limit more for each step.
    fn now(&self) -> Micros;
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now(&self) -> Micros {
        (**self).now()
    }
}
