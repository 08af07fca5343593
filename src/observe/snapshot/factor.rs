use std::time::SystemTime;

#[cfg(feature = "serde")]
use super::seconds;

/// The share of a policy's limit that is in force.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FactorStats {
    pub(crate) factor: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) cause: Option<String>,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
    pub(crate) since: SystemTime,
    pub(crate) signals: Vec<SignalStats>,
}

impl FactorStats {
    /// Returns the factor: 1 is the whole limit.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Returns the least possible factor.
    pub fn least(&self) -> f64 {
        self.least
    }

    /// Returns the greatest possible factor.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// Returns the cause of the factor, such as `memory 83 %`, or `None` if there is no load.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns when it was put into force.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns the last readings of the signals; empty if no [`Adapt`](crate::adapt::Adapt) writes the
    /// factor.
    pub fn signals(&self) -> &[SignalStats] {
        &self.signals
    }
}

/// The last reading of a signal of the load.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SignalStats {
    pub(crate) name: String,
    pub(crate) load: Option<f64>,
}

impl SignalStats {
    /// Returns the name of the signal.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the load: 1 is the target, and more is possible. `None` if the signal is absent.
    pub fn load(&self) -> Option<f64> {
        self.load
    }
}
