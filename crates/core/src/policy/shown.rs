//! The policy as decisions, responses and snapshots show it, which may have its state under another name, and
//! count it in other units.

use super::names::PARTS;
use super::{Mode, Policy};
use crate::algorithm::Algorithm;
use crate::decision::Rule;
use crate::factor::FactorCell;
use crate::observe::PolicyStats;

impl Policy {
    /// Returns the name in decisions and responses, which may differ from that of its state.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn shown_name(&self) -> &str {
        self.shown.as_ref().map_or(&self.name, |(name, _)| name)
    }

    /// Returns its description for decisions and responses.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn rule(&self) -> Rule {
        let (name, algorithm) = match &self.shown {
            None => (&self.name, &self.algorithm),
            Some((name, algorithm)) => (name, algorithm),
        };
        let rule = Rule::new(name, algorithm.limit(), algorithm.period());
        let rule = rule
            .at_once(algorithm.limits_concurrency())
            .announced(!self.is_unannounced);
        let rule = rule.by_hours(algorithm.hours_at_fn()).below(self.above());
        let rule = rule.guaranteed(self.guarantee());
        rule.scaled_by(self.factor.clone())
    }

    /// Returns its statistics at zero, and its factor.
    pub(crate) fn stats(&self) -> (PolicyStats, Option<FactorCell>) {
        let (name, algorithm) = match &self.shown {
            None => (&self.name, &self.algorithm),
            Some((name, algorithm)) => (name, algorithm),
        };
        let stats = PolicyStats {
            name: name.clone(),
            algorithm: algorithm.name(),
            mode: if self.is_soft { "soft" } else { "enforce" },
            limit: algorithm.limit(),
            period: algorithm.period(),
            ..PolicyStats::default()
        };
        (stats, self.factor.clone())
    }

    /// Returns whether requests over its limit go on.
    pub(super) fn refuses_none(&self) -> bool {
        self.is_soft || self.mode != Mode::Enforce
    }

    /// Returns the name in responses, and the mode.
    pub(crate) fn declared_mode(&self) -> (String, Mode) {
        (self.shown_name().to_owned(), self.mode)
    }

    /// Returns the factor, and the algorithm in units, of a policy that counts in parts.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn parts(&self) -> Option<(&FactorCell, &Algorithm)> {
        if !self.name.ends_with(PARTS) {
            return None;
        }
        let (_, algorithm) = self.shown.as_ref()?;
        Some((self.factor.as_ref()?, algorithm))
    }
}
