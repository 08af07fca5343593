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

    /// Returns the least that it can be.
    pub fn least(&self) -> f64 {
        self.least
    }

    /// Returns the most that it can be.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// Returns what it is due to, such as `memory 83 %`; `None` if nothing presses.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns since when it is in force.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns what each signal told last; empty if no [`Adapt`](crate::adapt::Adapt) writes the factor.
    pub fn signals(&self) -> &[SignalStats] {
        &self.signals
    }
}

/// What a signal of the load told last.
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

    /// Returns the load: 1 is all of what it can bear, and more is possible. `None` if the signal is absent.
    pub fn load(&self) -> Option<f64> {
        self.load
    }
}
