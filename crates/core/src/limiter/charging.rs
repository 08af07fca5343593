//! The charges of a request. One function makes a charge of what a request asks of a policy: it applies plan, limit, terms,
//! slots and price. Another one does so for several policies, in their modes.

use std::convert::Infallible;
use std::slice;

use smallvec::SmallVec;

use super::either::Members;
use super::findings::Findings;
use super::limits::RequestLimits;
use super::policies::Policies;
use super::{Charges, Limiter};
use crate::algorithm::{Algorithm, Limit};
use crate::clock::Micros;
use crate::decision::WindowSecs;
use crate::error::ConfigError;
use crate::factor::Class;
use crate::key::Key;
use crate::plan::{Finding, LimitContext, Limits};
use crate::policy::{Demand, Mode, NoDemand};
use crate::store::{Backend, Charge, Slot};

/// Reads a request for one policy.
pub trait Reads {
    /// How a request without a key is refused.
    type Refusal;

    /// Returns what the request asks of the policy.
    ///
    /// # Errors
    ///
    /// When it asks nothing.
    fn demand(&self) -> Result<Demand, NoDemand<Self::Refusal>>;

    /// Returns the plan and the operation of the request.
    fn context(&self, policy: usize, limits: &Limits) -> LimitContext;

    /// Returns the finding of a resolver for the request.
    fn finding(&self) -> Option<&Finding>;

    /// Returns whether it has all of a request that names plans, and not only the key.
    #[inline]
    fn is_whole(&self) -> bool {
        false
    }

    /// Returns the key in tables, before it is hashed.
    fn plain_key(&self) -> Option<Key>;

    /// Returns the limit of the policy's closure over the request.
    fn limit(&self) -> Option<Algorithm>;

    /// Returns the limit of the caller, which applies whatever the other limits of the policy are.
    #[inline]
    fn limit_of_caller(&self) -> Option<LimitOfCaller> {
        None
    }
}

/// A limit that a caller has for one request of a policy.
#[derive(Clone, Copy, Debug)]
pub struct LimitOfCaller {
    pub(super) policy: usize,
    pub(super) limit: Limit,
    /// The time to which it applies, or `None` if it denies every request.
    pub(super) window: Option<WindowSecs>,
}

/// What charges are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A decision, also one that is only looked at, as by `peek`, and one on as much as there is, as by `acquire_up_to`.
    Decide,
    /// A decision on a request that has an end, with its slots. `explain` describes one.
    Reserve,
    /// A look at a state, whatever the modes of the policies.
    Look,
    /// A charge after the fact, whatever a single request may cost.
    Amend,
    /// The same, at the least price.
    GiveBack,
    /// A change by an operator, who names a key.
    Manage,
}

impl Purpose {
    fn has_terms(self) -> bool {
        matches!(self, Self::Decide | Self::Reserve | Self::Look)
    }

    /// Returns whether all is known of the plan of a request or of a key: if none is named, it has none. An operator names a key
    /// without its plan, which requests may name. A settlement follows the charge, which was made without a plan if the lookup fails.
    fn knows_the_plan<R: Reads>(self, limits: &RequestLimits, reads: &R) -> bool {
        match (self, reads.finding()) {
            (Self::Decide | Self::Reserve, _) => true,
            (Self::Amend | Self::GiveBack, Some(finding)) => finding.is_that_of_requests(),
            (Self::Amend | Self::GiveBack, None) => !limits.has_a_resolver(),
            (Self::Look | Self::Manage, Some(finding)) => finding.is_of_customer(),
            (Self::Look | Self::Manage, None) => reads.is_whole() || limits.name_plans(),
        }
    }

    /// Returns whether a request is decided.
    pub(super) fn is_decided(self) -> bool {
        matches!(self, Self::Decide | Self::Reserve)
    }
}

/// Sees how a request gets its charges. `()` sees nothing.
pub trait Steps<R> {
    /// Whether the first policy that refuses a request ends it.
    const END_AT_REFUSAL: bool = true;

    /// The policy counts a request with this key, at this cost in units.
    fn counts(&mut self, demand: &Demand, units: u32) {
        let _ = (demand, units);
    }

    /// The policy charges a request.
    fn charges(&mut self, charge: &Charge) {
        let _ = charge;
    }

    /// The policy, which has charged the request, is not charged after all: another one of its group pays, or nothing would show
    /// what it decides.
    fn passes_over(&mut self, policy: usize) {
        let _ = policy;
    }

    /// The policy charges nothing.
    fn charges_nothing(&mut self, policy: usize, why: NoDemand<R>) {
        let _ = (policy, why);
    }
}

impl<R> Steps<R> for () {}

/// The arguments of a verb, or what the closures of a layer say, read as a request.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'a> {
    demand: Demand,
    context: LimitContext,
    finding: Option<&'a Finding>,
    limit: Option<LimitOfCaller>,
}

impl Arguments<'_> {
    /// Says whether the request is settled at its end, or gives its slots back there.
    pub(crate) fn reserved(mut self, is_reserved: bool) -> Self {
        self.demand.is_reserved = is_reserved;
        self
    }
}

impl Reads for Arguments<'_> {
    type Refusal = Infallible;

    #[inline]
    fn demand(&self) -> Result<Demand, NoDemand<Infallible>> {
        Ok(self.demand)
    }

    #[inline]
    fn context(&self, _: usize, _: &Limits) -> LimitContext {
        self.context
    }

    #[inline]
    fn finding(&self) -> Option<&Finding> {
        self.finding
    }

    #[inline]
    fn plain_key(&self) -> Option<Key> {
        Some(self.demand.key)
    }

    #[inline]
    fn limit(&self) -> Option<Algorithm> {
        None
    }

    #[inline]
    fn limit_of_caller(&self) -> Option<LimitOfCaller> {
        self.limit
    }
}

/// Policies that decide on a key each, some of them under a limit of the caller.
#[derive(Clone, Default)]
pub(super) struct Named {
    pub(super) demands: SmallVec<[(usize, Demand); 4]>,
    pub(super) limits: SmallVec<[LimitOfCaller; 2]>,
}

impl Named {
    /// Returns the place of the demand whose key finds the plan: for a level of a tree that of the lowest level of it that is
    /// named.
    pub(super) fn lowest_of_its_tree(&self, place: usize, policies: &Policies) -> usize {
        let Some((policy, _)) = self
            .demands
            .get(place)
            .filter(|_| policies.limits.is_some())
        else {
            return place;
        };
        let above = |other: usize| policies.names.above(other);
        let each = self.demands.iter().enumerate();
        let below = each.filter(|(_, (other, _))| above(*other).any(|it| it == *policy));
        let lowest = below.max_by_key(|(_, (other, _))| above(*other).count());
        lowest.map_or(place, |(place, _)| place)
    }
}

impl Policies {
    /// Returns the charge of a request under one policy.
    ///
    /// It changes nothing: `peek` and `explain` make charges too, and what is made may be thrown away. The order of the steps
    /// counts. The limit comes first, then what lowers it for the request, then the ceiling on the cost, which replaces the cost
    /// of a refused request, and the price last.
    ///
    /// # Errors
    ///
    /// When the request asks nothing of the policy, or when its limit is none.
    #[inline]
    pub fn charge_of<R: Reads>(
        &self,
        policy: usize,
        reads: &R,
        purpose: Purpose,
        steps: &mut impl Steps<R::Refusal>,
    ) -> Result<Charge, NoDemand<R::Refusal>> {
        let mut demand = reads.demand()?;
        let mut charge = Charge::new(policy, demand.key, demand.cost);
        charge.is_soft = demand.is_soft;
        charge.is_reserved = demand.is_reserved && purpose == Purpose::Reserve;
        if self.are_bare && !demand.is_estimate {
            steps.counts(&demand, charge.cost);
            return Ok(charge);
        }
        if let Some(limits) = &self.limits {
            let context = reads.context(policy, limits.limits());
            let (plain, of_layer) = (|| reads.plain_key(), || reads.limit());
            if !limits.apply(&mut charge, &context, reads.finding(), &plain, &of_layer) {
                return Err(NoDemand::Exempt(charge.rule));
            }
            if let Some(own) = reads.limit_of_caller() {
                charge.limit = Some(own.limit);
                charge.window = own.window;
            }
            if let Some(weights) = &self.weights {
                let is_found = reads.finding().is_some_and(Finding::finds_limits);
                let knows_its_plan = !is_found && purpose.knows_the_plan(limits, reads);
                if weights.apply(&mut charge, &context, limits.limits(), knows_its_plan) {
                    demand.key = charge.key;
                }
            }
        }
        let has_terms = self.terms.are_any() && purpose.has_terms();
        if has_terms && demand.is_low_priority {
            self.terms.leave_reserve(&mut charge);
        }
        if demand.is_estimate {
            self.cut(&mut charge);
        }
        steps.counts(&demand, charge.cost);
        if has_terms {
            self.terms.refuse_above_ceiling(&mut charge);
        }
        if charge.is_reserved && self.has_slots {
            let algorithm = self.algorithms.get(policy);
            let takes_a_slot = algorithm.is_some_and(Algorithm::limits_concurrency);
            charge.slot = takes_a_slot.then(Slot::unique);
        }
        if self.prices.are_any() {
            match purpose {
                Purpose::GiveBack => self.prices.price_at_least(&mut charge),
                _ => self.prices.price(&mut charge, demand.class),
            }
        }
        Ok(charge)
    }

    /// Puts the charges of a request under the policies that are not off into this list, which is large to move.
    ///
    /// # Errors
    ///
    /// When a policy that is enforced refuses the request, or when no member of a group of policies has a key for it.
    pub fn charges_for<R: Reads, S: Steps<R::Refusal>>(
        &self,
        readers: impl IntoIterator<Item = (usize, R)>,
        purpose: Purpose,
        steps: &mut S,
        charges: &mut Charges,
    ) -> Result<(), R::Refusal> {
        let modes = &self.modes;
        let are_plain = modes.are_plain() || !purpose.is_decided();
        let groups = self.groups.as_ref();
        let mut members = groups.filter(|_| purpose.is_decided()).map(Members::of);
        for (policy, reads) in readers {
            let mode = if are_plain {
                Mode::Enforce
            } else {
                modes.of(policy)
            };
            if mode == Mode::Off {
                steps.charges_nothing(policy, NoDemand::Off);
                continue;
            }
            let its = members.as_ref().and_then(|members| members.place(policy));
            let mut written = self.charge_of(policy, &reads, purpose, steps);
            if let Ok(charge) = &mut written {
                match &mut members {
                    _ if mode == Mode::Shadow => *charge = charge.shadow(),
                    Some(members) => members.charged(charge, has_key(&reads)),
                    None => {}
                }
                steps.charges(charge);
                if mode == Mode::Shadow && its.is_some() {
                    // It never pays, and nothing else would show what it has decided.
                    steps.passes_over(policy);
                } else {
                    charges.push(*charge);
                }
            }
            let Err(why) = written else {
                continue;
            };
            let ends = mode == Mode::Enforce && S::END_AT_REFUSAL;
            match (why, its.zip(members.as_mut())) {
                (NoDemand::Refused(refusal), None) if ends => return Err(refusal),
                (NoDemand::Refused(refusal), Some((its, members))) if ends => {
                    members.refused(its, refusal);
                }
                (why, of_group) => {
                    if let Some((its, members)) = of_group
                        && mode == Mode::Enforce
                    {
                        members.charged_nothing(its, &why, has_key(&reads));
                    }
                    steps.charges_nothing(policy, why);
                }
            }
        }
        match members {
            Some(members) => members.choose(charges, &mut |policy| steps.passes_over(policy)),
            None => Ok(()),
        }
    }

    /// Reduces the cost of a charge that is not priced yet to what can pass.
    fn cut(&self, charge: &mut Charge) {
        let own = self.prices.limit_in_units(charge);
        let own = own.map(Limit::most);
        let whole = || self.prices.whole(charge.policy)?.limit();
        let policys = || self.algorithms.get(charge.policy)?.limit();
        let own = self.limit_of_the_hour(charge).or(own);
        let limit = own.or_else(whole).or_else(policys).unwrap_or(u32::MAX);
        let ceiling = self.terms.ceiling(charge.policy);
        charge.cost = charge.cost.min(limit).min(ceiling.unwrap_or(u32::MAX));
    }

    /// Returns the limit of a charge that is in force at present, in units, if that depends on the hour. By the
    /// clock of a server, another hour may have begun.
    fn limit_of_the_hour(&self, charge: &Charge) -> Option<u32> {
        let own = self.algorithms.get(charge.policy)?;
        if !own.has_hours() {
            return None;
        }
        let clock = self.backend.clock();
        let now = clock.map_or_else(Micros::by_this_node, |clock| clock.now());
        self.limit_of_charge(charge, *own)?.limit_at(now)
    }

    /// Returns the limit of a charge in units, for a policy with this algorithm, or `None` if it cannot have
    /// that limit.
    pub fn limit_of_charge(&self, charge: &Charge, own: Algorithm) -> Option<Algorithm> {
        let prices = &self.prices;
        let own = prices.whole(charge.policy).unwrap_or(own);
        match prices.limit_in_units(charge) {
            None => Some(own),
            Some(limit) => own.under(limit),
        }
    }
}

impl<L: Backend + ?Sized> Limiter<L> {
    /// Returns whether requests hold slots under a policy.
    pub(crate) fn has_slots(&self) -> bool {
        self.policies.has_slots
    }

    #[inline]
    fn arguments<'a>(
        &self,
        mut context: LimitContext,
        (key, cost, is_soft): (Key, u32, bool),
        (planned, finding): (&Key, Option<&'a Finding>),
    ) -> Arguments<'a> {
        context.plan = self.plan_of(context.plan, planned, finding);
        let demand = Demand {
            is_soft,
            is_low_priority: context.is_low_priority,
            ..Demand::of(key, cost)
        };
        Arguments {
            demand,
            context,
            finding,
            limit: None,
        }
    }

    /// Passes on the charge of the only policy, which has a price and nothing else that would change a charge.
    #[inline]
    pub(super) fn with_price<T>(
        &self,
        policy: usize,
        (key, cost): (&Key, u32),
        then: impl FnOnce(&Charge) -> T,
    ) -> T {
        let mut charge = Charge::new(policy, *key, cost);
        self.policies.prices.price(&mut charge, Class::default());
        then(&charge)
    }

    /// Passes on the charge of the only policy, for a request with this finding of a resolver, or nothing if the policy
    /// does not count the request. A charge is large to move, and a list has room for several of them.
    #[inline]
    pub(super) fn with_charge_of_one<T>(
        &self,
        policy: usize,
        (key, cost): (Key, u32),
        purpose: Purpose,
        finding: Option<&Finding>,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T {
        let arguments = self.arguments(self.context(), (key, cost, false), (&key, finding));
        match &self
            .policies
            .charge_of(policy, &arguments, purpose, &mut ())
        {
            Ok(charge) => then(slice::from_ref(charge)),
            Err(_) => then(&[]),
        }
    }

    /// Passes on the charges of all policies for one key at one cost, by the finding of a resolver that is known now.
    pub(crate) fn with_charges_now<T>(
        &self,
        key: Key,
        cost: u32,
        purpose: Purpose,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T {
        let finding = self.found_now(&key);
        self.with_charges_alike((key, cost), purpose, finding.as_ref(), then)
    }

    /// Passes on the charges of all policies for one key at one cost, with the finding of a resolver.
    pub(crate) fn with_charges_alike<T>(
        &self,
        (key, cost): (Key, u32),
        purpose: Purpose,
        finding: Option<&Finding>,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T {
        let readers = self.readers_alike(self.context(), (key, cost), purpose, finding);
        let mut charges = Charges::new();
        let Ok(()) = self
            .policies
            .charges_for(readers, purpose, &mut (), &mut charges);
        then(&charges)
    }

    /// Returns, for each policy, what a request of this plan and operation asks of it, for one key at one cost, with the
    /// finding of a resolver.
    pub(crate) fn readers_alike<'a>(
        &self,
        context: LimitContext,
        (key, cost): (Key, u32),
        purpose: Purpose,
        finding: Option<&'a Finding>,
    ) -> impl Iterator<Item = (usize, Arguments<'a>)> {
        if purpose.is_decided() {
            self.policies.mistakes.note_alike();
        }
        let arguments = self.arguments(context, (key, cost, false), (&key, finding));
        let limited = self.policies.limited.iter();
        limited.map(move |&(policy, is_soft)| {
            let demand = Demand {
                is_soft,
                ..arguments.demand
            };
            let arguments = Arguments {
                demand,
                ..arguments
            };
            (policy, arguments)
        })
    }

    /// Returns the numbers of a limit that a caller has for one request of this policy.
    ///
    /// # Errors
    ///
    /// When there is no such policy, its limits do not depend on the request, or it cannot have this limit.
    pub(super) fn limit_for(
        &self,
        policy: &str,
        limit: &Algorithm,
    ) -> Result<LimitOfCaller, ConfigError> {
        let place = self.policies.place_of(policy)?;
        let limits = self.policies.limits.as_ref();
        if limits.is_none_or(|limits| limits.limits().are_by_plan_alone(place)) {
            let remedy = "declare it with `limit_by`, so that its store expects several limits";
            return Err(ConfigError::quoting("policy", policy, remedy));
        }
        let own = &self.policies.algorithms[place];
        let window = limit.period().map(WindowSecs::of);
        let fits = limit.differs_in_its_limit_alone(own) && !self.policies.prices.has(place);
        let numbers = limit.limits().filter(|_| fits);
        let limit = numbers.ok_or_else(|| {
            let remedy = format!(
                "give one that differs from that of {policy:?}, {own}, in its numbers alone, and to a policy without a factor",
            );
            ConfigError::new("limit", limit, remedy)
        })?;
        Ok(LimitOfCaller {
            policy: place,
            limit,
            window,
        })
    }

    /// Passes on the charges of the named policies, with the findings of a resolver for their keys.
    pub(super) fn with_charges_named<T>(
        &self,
        named: &Named,
        findings: &Findings,
        purpose: Purpose,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T {
        if purpose.is_decided() {
            self.policies.mistakes.note_apart();
        }
        let demands = named.demands.iter().enumerate();
        let readers = demands.map(|(place, (policy, demand))| {
            let one = (demand.key, demand.cost, demand.is_soft);
            let mut limits = named.limits.iter();
            let limit = limits.find(|own| own.policy == *policy).copied();
            let lowest = named.lowest_of_its_tree(place, &self.policies);
            let planned = (&named.demands[lowest].1.key, findings.of(lowest));
            let arguments = self.arguments(self.context(), one, planned);
            (*policy, Arguments { limit, ..arguments })
        });
        let mut charges = Charges::new();
        let Ok(()) = self
            .policies
            .charges_for(readers, purpose, &mut (), &mut charges);
        then(&charges)
    }

    /// Returns how many units, up to `most`, a request can take at once.
    pub(super) fn most_at_once(&self, key: Key, most: u32, finding: Option<&Finding>) -> u32 {
        if !self.policies.terms.are_any() {
            return most;
        }
        self.with_charges_alike((key, 0), Purpose::Look, finding, |charges| {
            let hard = charges.iter().filter(|charge| !charge.is_soft);
            let ceilings = hard.filter_map(|charge| self.policies.terms.ceiling(charge.policy));
            ceilings.min().map_or(most, |ceiling| ceiling.min(most))
        })
    }
}

/// Returns whether a request has a key for a policy, and is not counted together with others that have none.
fn has_key(reads: &impl Reads) -> bool {
    reads.demand().is_ok_and(|demand| !demand.key.is_missing())
}
