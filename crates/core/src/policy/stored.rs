//! A policy in the form in which a store is opened for it.

use std::collections::HashSet;

use super::OnAbandoned;
use super::Policy;
use super::names::{PARTS, PRINTABLE};
use super::scope::{Keyless, Scope};
use crate::algorithm::{Algorithm, Limit};
use crate::error::ConfigError;
use crate::plan::Plans;

impl Policy {
    /// Returns the same policy with another limit.
    pub(crate) fn limited_by(&self, algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            ..self.clone()
        }
    }

    /// Sets whether requests may have another limit than the policy's own. `planned` are the policies that plans mention,
    /// if there are plans.
    pub(crate) fn may_have_several_limits(
        &mut self,
        planned: Option<&HashSet<&str>>,
        (is_resolved, is_adjustable): (bool, bool),
    ) {
        let is_spoken_of = planned.is_some_and(|planned| planned.contains(self.name.as_str()));
        // What a resolver finds leaves a limit that is divided as it is.
        let is_resolved = is_resolved && self.fair.is_none();
        let is_planned = is_resolved || is_spoken_of || self.has_limits_of_requests();
        // Requests of low priority have the limit without the reserve.
        self.limits_differ = is_planned || self.terms.reserve() > 0;
        self.has_several_limits = self.limits_differ;
        if planned.is_some() && !is_planned && !self.ignores_plans && self.is_limited() {
            Plans::warn_of_silence_about(&self.name);
        }
        self.has_several_limits |= is_adjustable && self.factor.is_none();
    }

    /// Returns the same policy in the form for a backend: under the name of its state, and counting in parts
    /// if it has a factor.
    pub(crate) fn into_stored(mut self) -> Result<Self, ConfigError> {
        let Some(was) = self.renamed_from.take() else {
            return self.in_parts();
        };
        let name = std::mem::replace(&mut self.name, was);
        let mut stored = self.in_parts()?;
        let units = match stored.shown.take() {
            Some((_, units)) => units,
            None => stored.algorithm,
        };
        stored.shown = Some((name, units));
        Ok(stored)
    }

    /// Returns the same policy, counting in parts if it has a factor.
    ///
    /// The unit of its limits is then a thousandth of a unit at the highest factor. The name is marked by a
    /// character that no policy has in its name, since states in parts and in units do not mix.
    fn in_parts(self) -> Result<Self, ConfigError> {
        let (Some(cell), Some(limits)) = (&self.factor, self.algorithm.limits()) else {
            return Ok(self);
        };
        if matches!(self.algorithm, Algorithm::ByHours(_)) {
            let remedy = "leave out the factor or the hours: a policy has one of them";
            return Err(ConfigError::quoting("factor", &self.name, remedy));
        }
        if self.terms.reserve() > 0 {
            let remedy = "give it no reserve, or leave the factor out";
            return Err(ConfigError::quoting("factor", &self.name, remedy));
        }
        let most = cell.most().get();
        let parts = limits.in_parts(most);
        let Some(algorithm) = parts.and_then(|parts| self.algorithm.under(parts)) else {
            let remedy = format!(
                "give at most {} where a factor of at most {} is to apply",
                Limit::MOST_PARTS / most,
                cell.most(),
            );
            return Err(ConfigError::new("limit", self.algorithm, remedy));
        };
        Ok(Self {
            algorithm,
            name: format!("{}{PARTS}", self.name),
            shown: Some((self.name, self.algorithm)),
            has_several_limits: true,
            limits_differ: true,
            ..self
        })
    }

    /// Returns whether two requests of one key may have different limits at the same time.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn limits_differ(&self) -> bool {
        self.limits_differ
    }

    /// Returns whether requests are known to be settled, which can charge more than they were admitted for, and give
    /// charges back.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn is_settled(&self) -> bool {
        self.is_settled || self.unsettled != OnAbandoned::Estimate
    }

    /// Rejects the mark of a policy that counts in parts in the name of one that does not.
    pub(crate) fn check_mark(&self) -> Result<(), ConfigError> {
        if self.shown.is_none() && self.name.ends_with(PARTS) {
            return Err(ConfigError::quoting("name", &self.name, PRINTABLE));
        }
        Ok(())
    }

    /// Describes this policy for the comparison with others. It applies to every request.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn scope(&self) -> Scope<'_> {
        let may_differ = self.has_several_limits || self.has_limits_of_requests();
        Scope {
            name: &self.name,
            above: self.above(),
            algorithm: &self.algorithm,
            factor: self.factor.as_ref(),
            refuses_none: self.refuses_none(),
            // Limits that differ between requests are unknown here.
            counts: (!may_differ && self.terms.are_none()).then(String::new),
            is_conditional: false,
            refuses: Keyless::None,
            on_store_failure: self.on_store_failure,
        }
    }
}
