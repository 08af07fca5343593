//! Several controllers, the most cautious of which decides.

use std::fmt;
use std::time::Duration;

use super::{Controller, Target};
use crate::Loads;
use tower_ratelimit::factor::Factor;

/// Several controllers. The one with the least factor decides, and names the cause.
///
/// The limits can grow if all controllers allow it.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit_adapt::{Aimd, Controller, Load, Loads, Steps, Worst};
///
/// let mut both = Worst::of(Steps::standard()).and(Aimd::on("latency", Load::FULL));
/// let loads = Loads::new().with("cpu", Load::percent(95)).with("latency", Load::percent(40));
/// let target = both.step(Duration::ZERO, &loads);
/// assert_eq!(target.cause(), Some("cpu 95 %"));
/// ```
pub struct Worst {
    controllers: Vec<Box<dyn Controller>>,
}

impl Worst {
    /// Starts with this controller.
    pub fn of(controller: impl Controller + 'static) -> Self {
        let controllers = vec![Box::new(controller) as _];
        Self { controllers }
    }

    /// Adds a controller.
    pub fn and(mut self, controller: impl Controller + 'static) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }
}

impl Controller for Worst {
    fn step(&mut self, now: Duration, loads: &Loads) -> Target {
        let targets = self
            .controllers
            .iter_mut()
            .map(|each| each.step(now, loads));
        let least = targets.min_by_key(Target::factor);
        least.unwrap_or_else(|| Target::of(Factor::ONE))
    }

    fn most(&self) -> Factor {
        let most = self.controllers.iter().map(Controller::most);
        most.min().unwrap_or(Factor::ONE)
    }
}

impl fmt::Debug for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worst")
            .field("controllers", &self.controllers.len())
            .finish()
    }
}
