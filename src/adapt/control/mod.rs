//! How a factor follows the loads: controllers.
//!
//! A controller is a pure function of the time, the loads and what it decided before. It reads no clock, does no I/O, and
//! counts in whole numbers, so that a recorded trace gives the same factors each time.

mod aimd;
#[cfg(test)]
mod driven;
#[cfg(test)]
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
use crate::factor::Factor;

/// Decides which factor the loads call for.
pub trait Controller: Send {
    /// Returns the factor from now on. `now` is the time since the first step; a moment before the last counts as the
    /// last.
    fn step(&mut self, now: Duration, loads: &Loads) -> Target;

    /// The most that the factor can be. Above 1, the limits may grow.
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

/// The factor that a controller calls for, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    factor: Factor,
    cause: Option<String>,
}

impl Target {
    /// A factor that nothing presses for.
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

    /// The factor.
    pub fn factor(&self) -> Factor {
        self.factor
    }

    /// What it is due to; `None` if nothing presses.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}
