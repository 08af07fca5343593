use super::Policy;
use crate::error::ConfigError;

/// The demands of a policy on single requests, beside its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The most that a request may cost.
    most: Option<u32>,
    /// The units that requests of low priority leave to others.
    reserve: u32,
}

impl Terms {
    /// Returns the most that a request may cost.
    pub(crate) fn most(self) -> Option<u32> {
        self.most
    }

    /// Returns the units that requests of low priority leave to others.
    pub(crate) fn reserve(self) -> u32 {
        self.reserve
    }

    /// Returns whether the policy demands nothing of single requests.
    pub(crate) fn are_none(self) -> bool {
        self == Self::default()
    }
}

impl Policy {
    /// Sets the most units that one request may cost. A request that costs more is refused, however much is left.
    pub fn most(mut self, units: u32) -> Self {
        self.terms.most = Some(units);
        self
    }

    /// Keeps this many units of the limit for requests that are not of low priority.
    pub fn reserve(mut self, units: u32) -> Self {
        self.terms.reserve = units;
        self
    }

    /// Returns its demands on single requests.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }
}

impl Policy {
    /// Rejects a ceiling and a reserve that do not fit the limit.
    pub(crate) fn check_terms(&self) -> Result<(), ConfigError> {
        let Terms { most, reserve } = self.terms;
        let limit = self.algorithm.limit().unwrap_or(u32::MAX);
        // For a request above the ceiling, the store is asked for more than any limit.
        let highest = limit.min(u32::MAX - 1);
        if let Some(most) = most
            && !(1..=highest).contains(&most)
        {
            let remedy = format!("give 1 to {highest}, the limit of policy {:?}", self.name);
            return Err(ConfigError::new("most", most, remedy));
        }
        if most.is_some() && limit == u32::MAX && self.is_limited() {
            let remedy = "give a limit of at most 4294967294 beside `most`";
            return Err(ConfigError::new("limit", limit, remedy));
        }
        if reserve > 0 && self.is_limited() && reserve >= limit {
            let remedy = format!(
                "give less than {limit}, the limit of policy {:?}",
                self.name
            );
            return Err(ConfigError::new("reserve", reserve, remedy));
        }
        Ok(())
    }

    /// Returns the policy with one node's share of the reserve, rounded up, and below the share of the limit.
    pub(crate) fn with_reserve_shared_by(mut self, nodes: std::num::NonZeroU32) -> Self {
        let highest = self.algorithm.limit().unwrap_or(0).saturating_sub(1);
        self.terms.reserve = self.terms.reserve.div_ceil(nodes.get()).min(highest);
        self
    }
}
