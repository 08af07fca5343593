//! The parts of a limiter that its clones share.

use std::sync::Arc;

use super::counting::LimiterCounters;
use super::limits::RequestLimits;
use super::mistakes::Mistakes;
use super::prices::Prices;
use super::refusals::Penalties;
use super::reservation::Lost;
use super::terms::RequestTerms;
use super::waiting::LetWait;
use crate::algorithm::Algorithm;
use crate::clock::Timers;
use crate::decision::{Names, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::line::Lines;
use crate::observe::StoreHealth;
use crate::policy::{DeclaredModes, Unsettled};
use crate::store::{Charge, Guarded, Ledger, answered};

/// The policies of a limiter, and all that its clones share.
pub(super) struct Policies {
    pub(super) names: Arc<Names>,
    /// The timers of requests that wait for their turn.
    pub(super) timers: Timers,
    pub(super) algorithms: Box<[Algorithm]>,
    /// The rules that give limits; `None` if each policy has one limit.
    pub(super) limits: Option<RequestLimits>,
    /// The index of each limited policy, and whether it is soft. Unlimited policies are never charged.
    pub(super) limited: Vec<(usize, bool)>,
    /// The limited policy, if it is the only one, has one limit and is not soft.
    pub(super) only: Option<usize>,
    /// The same, if requests hold slots under it.
    pub(super) only_held: Option<usize>,
    /// The limited policy, if it is the only one and is not soft, whatever its limits.
    pub(super) one: Option<usize>,
    /// Whether no key is looked up, and no refusal counts for a penalty.
    pub(super) is_one_plain: bool,
    /// The limited policy, if it is the only one and is not soft, and no key is looked up.
    pub(super) alone: Option<usize>,
    /// The policy whose requests wait for their turn, and the waiting requests.
    pub(super) queue: Option<(usize, Arc<Lines>)>,
    /// The requests that wait under other policies; `None` if no policy lets requests wait.
    pub(super) waits: Option<Box<dyn LetWait>>,
    pub(super) store: StoreHealth,
    pub(super) mistakes: Mistakes,
    pub(super) terms: RequestTerms,
    /// Whether requests hold slots under a policy.
    pub(super) has_slots: bool,
    /// The prices of the policies that have a factor.
    pub(super) prices: Prices,
    pub(super) counted: LimiterCounters,
    /// How each policy settles a request that is not settled; `None` if all keep their estimates.
    pub(super) unless_settled: Option<Box<[Unsettled]>>,
    pub(super) lost: Lost,
    pub(super) penalties: Penalties,
    pub(super) modes: DeclaredModes,
    /// The ledger of the limiter, which settles what requests hold. They hold it by their policies, since each further
    /// reference that is counted takes as long as a tenth of a decision.
    pub(super) ledger: Guarded<dyn Ledger>,
}

impl Policies {
    #[inline]
    pub(super) fn look_at_costs(&self, charges: &[Charge], outcomes: &Outcomes) {
        self.mistakes.look_at_costs(&self.names, charges, outcomes);
    }

    /// Returns how this policy settles a request that is not settled.
    pub(super) fn unless_settled(&self, policy: usize) -> Unsettled {
        let all = self.unless_settled.as_ref();
        let of_policy = all.and_then(|all| all.get(policy)).copied();
        of_policy.unwrap_or_default()
    }

    /// Returns the index of the policy with this name.
    pub(super) fn place_of(&self, name: &str) -> Result<usize, ConfigError> {
        let place = self.names.iter().position(|known| known == name);
        place.ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().collect();
            let remedy = format!("name one of {}", known.join(", "));
            ConfigError::quoting("policy", name, remedy)
        })
    }

    /// Checks and completes a store's answer to these charges.
    pub(super) fn answered(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let mut answer = answered(charges, answer);
        if let Ok(outcomes) = &mut answer {
            self.store.answered();
            self.look_at_costs(charges, outcomes);
            self.prices.convert_to_units(charges, outcomes);
        }
        self.count(charges, &answer);
        answer
    }

    /// Reports to operators that the store fails, unless the store does so itself.
    #[cold]
    pub(super) fn store_has_failed(&self, error: &StoreError) {
        if !error.is_logged() {
            self.store.failed(error);
        }
    }

    #[inline]
    pub(super) fn sole_plain(&self) -> Option<usize> {
        self.only.filter(|_| self.modes.are_plain())
    }

    /// Returns the only policy, if requests hold slots under it and nothing else is asked of them.
    #[inline]
    pub(super) fn sole_held(&self) -> Option<usize> {
        self.only_held.filter(|_| self.modes.are_plain())
    }

    #[inline]
    pub(super) fn sole_limited(&self) -> Option<usize> {
        self.one.filter(|_| self.modes.are_plain())
    }

    #[inline]
    pub(super) fn alone(&self) -> Option<usize> {
        self.alone.filter(|_| self.modes.are_plain())
    }
}
