//! The parts of a limiter that its clones share.

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::Arc;

use super::counting::LimiterCounters;
use super::limits::RequestLimits;
use super::prices::Prices;
use super::reservation::Lost;
use super::terms::RequestTerms;
use super::waiting::LetWait;
use super::weights::Weights;
use crate::advice::Mistakes;
use crate::algorithm::Algorithm;
use crate::clock::Timers;
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::line::Lines;
use crate::observe::StoreHealth;
use crate::policy::{DeclaredModes, Groups, OnAbandoned};
use crate::store::{Amendment, Backend, Charge, Guarded, Reply};

/// What the policies make of a request that asks all of them alike: how few steps a decision has. It is known when the
/// limiter is built, and holds while all policies are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One policy, which is not soft, with one limit: the store is asked without a charge.
    OnePlain(usize),
    /// The same with a factor.
    OnePriced(usize),
    /// One policy, which is not soft, with several limits.
    OneLimited(usize),
    /// One policy, which is not soft, with a penalty, terms or slots.
    One(usize),
    /// Several policies, each with one limit.
    SeveralPlain,
    Any,
}

/// The policies of a limiter, and all that its clones share.
pub struct Policies {
    pub(super) names: Arc<Names>,
    /// The policies of which one pays.
    pub(super) groups: Option<Groups>,
    /// The timers of requests that wait for their turn.
    pub(super) timers: Timers,
    pub(super) algorithms: Box<[Algorithm]>,
    /// The rules that give limits; `None` if each policy has one limit.
    pub(super) limits: Option<RequestLimits>,
    /// The index of each limited policy, and whether it is soft. Unlimited policies are never charged.
    pub(super) limited: Vec<(usize, bool)>,
    pub(super) shape: Shape,
    /// Whether a charge is what a request demands: no policy has limits by request, terms, slots or a price.
    pub(super) are_bare: bool,
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
    /// The weights of plans, under limits that are divided; `None` if all weigh the same.
    pub(super) weights: Option<Weights>,
    /// The policies whose limits are divided among tenants.
    pub(super) divided: Box<[usize]>,
    /// The policies that guarantee something to the keys of another one, each with that one.
    pub(super) guaranteed: Box<[(usize, usize)]>,
    pub(super) counted: LimiterCounters,
    /// How each policy settles a request that is not settled; `None` if all keep their estimates.
    pub(super) on_abandoned: Option<Box<[OnAbandoned]>>,
    pub(super) lost: Lost,
    /// How many refusals block a key, under the policies with a penalty.
    pub(super) penalties: Box<[Option<u32>]>,
    pub(super) modes: DeclaredModes,
    /// The backend of the limiter, which settles what requests hold. They hold it by their policies, since each further
    /// reference that is counted takes as long as a tenth of a decision.
    pub(super) backend: Guarded<dyn Backend>,
}

impl Policies {
    /// Converts outcomes of these charges to units.
    pub fn convert_to_units(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        self.prices.convert_to_units(charges, outcomes);
    }

    /// Makes a decision of outcomes in units.
    #[inline]
    pub fn decision(&self, outcomes: Outcomes) -> Decision {
        Decision::new(Arc::clone(&self.names), outcomes)
    }

    /// Returns the timers of the clock.
    #[inline]
    pub fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Returns the modes for the next request.
    #[inline]
    pub fn declared_modes(&self) -> &DeclaredModes {
        &self.modes
    }

    #[inline]
    pub(super) fn look_at_costs(&self, charges: &[Charge], outcomes: &Outcomes) {
        self.mistakes.look_at_costs(&self.names, charges, outcomes);
    }

    /// Returns how this policy settles a request that is not settled.
    pub(super) fn on_abandoned(&self, policy: usize) -> OnAbandoned {
        let all = self.on_abandoned.as_ref();
        let of_policy = all.and_then(|all| all.get(policy)).copied();
        of_policy.unwrap_or_default()
    }

    /// Returns the policy to whose keys this one guarantees something.
    #[inline]
    pub fn guaranteed_below(&self, policy: usize) -> Option<usize> {
        let mut all = self.guaranteed.iter();
        let found = all.find(|(above, _)| *above == policy)?;
        Some(found.1)
    }

    /// Changes what was charged to a request, one of whose charges this is: the key to which it guarantees something stands in another
    /// one.
    pub(super) fn amend_one<'a>(
        &self,
        charge: &Charge,
        mut others: impl Iterator<Item = &'a Charge>,
        amendment: Amendment,
    ) -> Reply<Result<bool, StoreError>> {
        let below = self.guaranteed_below(charge.policy);
        match below.and_then(|below| others.find(|other| other.policy == below)) {
            Some(child) => self
                .backend
                .amend(&[*charge, child.at_no_cost()], amendment),
            None => self.backend.amend(slice::from_ref(charge), amendment),
        }
    }

    /// Returns the index of the policy with this name.
    pub(super) fn place_of(&self, name: &str) -> Result<usize, ConfigError> {
        self.names.place_of(name).ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().collect();
            let remedy = format!("name one of {}", known.join(", "));
            ConfigError::quoting("policy", name, remedy)
        })
    }

    /// Returns the charges that units were taken from. A store may leave slots out, which are held and not taken.
    pub(super) fn taken_from<'a>(
        &self,
        charges: &'a [Charge],
        outcomes: &Outcomes,
    ) -> Cow<'a, [Charge]> {
        if !self.has_slots {
            return Cow::Borrowed(charges);
        }
        let is_taken_from = |charge: &&Charge| {
            let algorithm = self.algorithms.get(charge.policy);
            !algorithm.is_some_and(Algorithm::limits_concurrency)
                || outcomes.iter().any(|(policy, _)| policy == charge.policy)
        };
        charges.iter().filter(is_taken_from).copied().collect()
    }

    /// Reports to operators that the store fails, unless the store does so itself.
    #[cold]
    pub(super) fn store_has_failed(&self, error: &StoreError) {
        if !error.is_logged() {
            self.store.failed(error);
        }
    }

    /// Returns the shape of a request at the moment, which may be in modes.
    #[inline]
    pub(super) fn shape(&self) -> Shape {
        if self.modes.are_plain() {
            self.shape
        } else {
            Shape::Any
        }
    }

    /// Returns the only policy, if it has one limit and nothing else is asked of a request at this cost.
    #[inline]
    pub(super) fn only_plain(&self, cost: u32) -> Option<usize> {
        match self.shape {
            Shape::OnePlain(policy)
                if !self.mistakes.may_cost_too_much(cost) && self.modes.are_plain() =>
            {
                Some(policy)
            }
            _ => None,
        }
    }

    /// Returns the shape of a request at this cost. One that may cost more than a limit is reported.
    #[inline]
    pub(super) fn shape_at(&self, cost: u32) -> Shape {
        if self.mistakes.may_cost_too_much(cost) {
            Shape::Any
        } else {
            self.shape()
        }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names.iter()).finish()
    }
}

impl Shape {
    /// Returns the only policy, if there is one.
    #[inline]
    pub(super) fn sole(self) -> Option<usize> {
        match self {
            Self::OnePlain(policy)
            | Self::OnePriced(policy)
            | Self::OneLimited(policy)
            | Self::One(policy) => Some(policy),
            Self::SeveralPlain | Self::Any => None,
        }
    }
}
