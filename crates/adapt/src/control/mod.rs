//! How a factor follows the loads: controllers.
//!
//! A controller is a pure function of the time, the loads and what it decided before. It reads no clock, does no I/O, and
//! counts in whole numbers, so that a recorded trace gives the same factors each time.

mod aimd;
#[cfg(test)]
#[path = "../../tests/unit/control/driven.rs"]
mod driven;
#[cfg(test)]
#[path = "../../tests/unit/control/driven_tests.rs"]
mod driven_tests;
mod gradient;
mod smooth;
mod steps;
#[cfg(test)]
mod tests;
mod watched;
mod worst;

use std::time::Duration;

pub use self::aimd::Aimd;
pub use self::gradient::Gradient;
pub use self::steps::Steps;
pub use self::worst::Worst;

use super::Loads;
use tower_ratelimit::factor::Factor;

/// Decides which factor the loads call for.
pub trait Controller: Send {
    /// Returns the factor from now on. `now` is the time since the first step. A moment before the last one
    /// counts as the last one.
    fn step(&mut self, now: Duration, loads: &Loads) -> Target;

    /// Returns the largest possible factor. Above 1, the limits may grow.
    fn most(&self) -> Factor {
        Factor::ONE
    }
}

impl<C: Controller + ?Sized> Controller for Box<C> {
    fn step(&mut self, now: Duration, loads: &Loads) -> Target {
        (**self).step(now, loads)
    }

    fn most(&self) -> Factor {
        (**self).most()
    }
}

/// The cause of a factor that rises and is still below 1. The load that has lowered it is over.
const RISES: &str = "the load has fallen, and the limits rise again";

/// The factor that a controller calls for, with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    factor: Factor,
    cause: Option<String>,
}

impl Target {
    /// Creates a target without a cause.
    pub fn of(factor: Factor) -> Self {
        Self {
            factor,
            cause: None,
        }
    }

    /// Adds the cause, such as `memory 83 %`.
    pub fn because(self, cause: impl Into<String>) -> Self {
        Self {
            cause: Some(cause.into()),
            ..self
        }
    }

    /// Returns the factor.
    pub fn factor(&self) -> Factor {
        self.factor
    }

    /// Returns the cause of the last change, or `None` if there is no load.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}
