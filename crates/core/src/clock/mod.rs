//! The time, in whole microseconds since the Unix epoch.
//!
//! A store reads its clock once per decision. [`SystemClock`] is the default. [`ManualClock`] is for tests:
//! requests that wait go on when it is moved. Feature `quanta` adds a faster clock, `QuantaClock`, with a
//! warning.

mod anchor;
mod any;
mod manual;
mod micros;
#[cfg(feature = "quanta")]
mod quanta;
mod system;
pub(crate) mod timer;

use std::pin::Pin;
use std::sync::Arc;

pub(crate) use self::any::AnyClock;
pub use self::manual::ManualClock;
pub use self::micros::Micros;
#[cfg(feature = "quanta")]
pub use self::quanta::QuantaClock;
pub use self::system::SystemClock;
pub(crate) use self::timer::{Timer, Timers};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time now, since the Unix epoch.
    ///
    /// It is called for each decision, and again if another thread was faster, so it must not block. The time
    /// may stand still. If it steps back, state from the future moves back to now, which admits at most one
    /// limit more for each step.
    fn now(&self) -> Micros;

    /// Waits until the clock shows this moment or a later one: at once, if it does already.
    ///
    /// A clock that a test moves returns `Some`, and requests that wait for their turn then go on when the
    /// clock is moved. It does not need a tokio runtime. By default, a clock returns `None`: requests wait by
    /// tokio's timers, for as long as the clock says, which is right where the clock runs in real time. A
    /// clock returns `Some` always, or never.
    fn sleep_until(&self, moment: Micros) -> Option<Sleep> {
        let _ = moment;
        None
    }
}

/// A wait until a [clock](Clock::sleep_until) shows a moment.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn sleep_until(&self, moment: Micros) -> Option<Sleep> {
        (**self).sleep_until(moment)
    }
}
