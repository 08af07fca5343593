//! The limiter: policies and a store that decide, without HTTP.
//!
//! The layers are thin shells around it. Decisions are in this file, and the other verbs in files
//! of their own. Each verb has a form `…_now` for the store in this process, which always answers
//! at once, and a future for any store.

mod by_name;
mod deciding;
mod inspection;
mod limits;
mod mistakes;
mod overriding;
mod prices;
mod queueing;
mod verbs;

use std::borrow::Cow;
use std::fmt;
use std::future::ready;
#[cfg(feature = "resolver")]
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::inspection::Inspection;

pub(crate) use self::limits::{PreparedLimits, RequestLimits, Sources, heed};

use self::deciding::Deciding;
use self::limits::PlanOf;
#[cfg(feature = "resolver")]
use self::limits::ResolverOf;
use self::mistakes::Mistakes;
use self::prices::Prices;
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::clock::Timers;
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::factor::Class;
use crate::key::{IntoKey, Key};
use crate::line::Lines;
#[cfg(feature = "resolver")]
use crate::plan::Resolver;
use crate::plan::{Asker, Finding, Look, Plans};
use crate::policy::{Policy, check_names};
use crate::store::{
    Amendment, Charge, Charged, Guarded, Ledger, MemoryLedger, MemoryStore, Reply, Store, Wanted,
    answered, check,
};

/// Decides whether a key may go on, under one or more policies. It knows nothing of HTTP.
///
/// Clones share their state. A request is charged to every policy or to none: a request that the
/// last policy denies costs nothing under the first.
///
/// ```
/// use tower_ratelimit::{FixedWindow, Limiter, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)))
///     .policy(Policy::new("daily", FixedWindow::per_day(10_000)))
///     .build()?;
///
/// assert!(limiter.check_now("ann", 20).is_allowed());
/// assert!(!limiter.check_now("ann", 20).is_allowed());
/// assert!(limiter.check_now("bob", 20).is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
pub struct Limiter<L: ?Sized = MemoryLedger> {
    policies: Arc<Policies>,
    /// The plan and the operation of the requests, if they are said.
    asker: Option<Arc<Asker>>,
    ledger: Guarded<L>,
}

struct Policies {
    names: Arc<Names>,
    /// By which requests wait that were told to.
    timers: Timers,
    algorithms: Box<[Algorithm]>,
    /// The rules that give limits; `None` if each policy has one limit.
    limits: Option<RequestLimits>,
    /// The index of each limited policy, and whether it is soft. Unlimited policies are never
    /// asked.
    limited: Vec<(usize, bool)>,
    /// The limited policy, if it is the only one, has one limit and is not soft.
    only: Option<usize>,
    /// The limited policy, if it is the only one and is not soft, whatever its limits, and no key is looked up.
    one: Option<usize>,
    /// The policy whose requests wait for their turn, and those that do.
    queue: Option<(usize, Arc<Lines>)>,
    mistakes: Mistakes,
    /// Of the policies that have a factor.
    prices: Prices,
}

impl Policies {
    #[inline]
    fn look_at_costs(&self, charges: &[Charge], outcomes: &Outcomes) {
        self.mistakes.look_at_costs(&self.names, charges, outcomes);
    }

    /// A store's answer to these charges, looked through and told.
    fn answered(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let mut answer = answered(charges, answer);
        if let Ok(outcomes) = &mut answer {
            self.look_at_costs(charges, outcomes);
            self.prices.tell(charges, outcomes);
        }
        answer
    }
}

pub(crate) type Charges = SmallVec<[Charge; 8]>;

impl Limiter {
    /// Starts a limiter with its state in this process.
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one has to be given
    /// - store: a new [`MemoryStore`]
    /// - not split: this node admits all of each limit
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder {
            policies: Vec::new(),
            plans: None,
            sources: Sources::default(),
            store: MemoryStore::new(),
            nodes: 1,
        }
    }

    /// Decides on one request of this key at this cost, and charges every policy if all allow it.
    pub fn check_now(&self, key: impl IntoKey, cost: u32) -> Decision {
        let key = key.into_key();
        if self.policies.mistakes.may_cost_too_much(cost) {
            return self.check_large(key, cost);
        }
        self.decide_now(key, cost)
    }

    /// Returns the decision where it is made, because a move of it costs as much as the decision.
    #[inline]
    fn decide_now(&self, key: Key, cost: u32) -> Decision {
        if self.policies.prices.are_any() {
            return self.decide_priced(key, cost);
        }
        let names = Arc::clone(&self.policies.names);
        match self.policies.only {
            Some(policy) => {
                Decision::new(names, self.ledger.inner().charge_one(policy, &key, cost))
            }
            None => Decision::new(names, self.charge_alike(key, cost)),
        }
    }

    fn charge_alike(&self, key: Key, cost: u32) -> Outcomes {
        match self.policies.one {
            Some(policy) => self.charge_all(self.charge_of_one(policy, key, cost).as_slice()),
            None => self.charge_all(&self.alike(key, cost)),
        }
    }

    /// The same under policies of which one has a factor.
    fn decide_priced(&self, key: Key, cost: u32) -> Decision {
        let charges = self.alike(key, cost);
        let names = Arc::clone(&self.policies.names);
        let mut decision = Decision::new(names, self.ledger.inner().charge_now(&charges));
        let prices = &self.policies.prices;
        decision.change(|outcomes| prices.tell(&charges, outcomes));
        decision
    }

    /// Decides on a request that may cost more than a limit, and diagnoses it if it does.
    #[cold]
    #[inline(never)]
    fn check_large(&self, key: Key, cost: u32) -> Decision {
        let decision = self.decide_now(key, cost);
        self.look_at_costs(&self.charges(key, cost), decision.outcomes());
        decision
    }

    /// Decides and charges as [`check_now`](Self::check_now) does, and returns only the verdict.
    ///
    /// Without the numbers, a decision costs a fraction.
    #[inline]
    pub fn admit_now(&self, key: impl IntoKey, cost: u32) -> bool {
        let key = key.into_key();
        if self.policies.prices.are_any() {
            // A limit that was reached is one that may grow, and the numbers tell that.
            return self.check_now(key, cost).is_allowed();
        }
        let is_admitted = match self.policies.only {
            Some(policy) => self.ledger.inner().admit_one(policy, &key, cost),
            None => self.admit_alike(&key, cost),
        };
        if !is_admitted && self.policies.mistakes.may_cost_too_much(cost) {
            let charges = self.charges(key, cost);
            self.look_at_costs(&charges, &self.ledger.inner().peek_now(&charges));
        }
        is_admitted
    }

    /// Charges these policies in this process, and marks what their outcomes tell beside the store.
    fn charge_all(&self, charges: &[Charge]) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let wanted = Wanted::Everything;
        let _ = self.ledger.inner().charge(charges, wanted, &mut outcomes);
        // The store in this process tells of each charge.
        let _ = check(charges, &mut outcomes);
        outcomes
    }

    fn admit_alike(&self, key: &Key, cost: u32) -> bool {
        let Policies {
            mistakes,
            limited,
            limits,
            ..
        } = &*self.policies;
        let ledger = self.ledger.inner();
        if let Some(policy) = self.policies.one {
            return ledger.admit_now(self.charge_of_one(policy, *key, cost).as_slice());
        }
        if limits.is_some() {
            return ledger.admit_now(&self.alike(*key, cost));
        }
        mistakes.are_asked_alike();
        let admitted = ledger.admit_alike(limited, key, cost);
        admitted.unwrap_or_else(|| ledger.admit_now(&self.charges(*key, cost)))
    }

    /// Changes what the store in this process keeps of a key.
    fn amend_now(&self, charges: &[Charge], amendment: Amendment) {
        // An override alone can fail, for want of room.
        let _ = self.ledger.inner().amend_now(charges, amendment);
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Decides on one request of this key at this cost, and charges every policy if all allow it.
    ///
    /// The store in this process decides during this call. Any other store may begin only when the
    /// future is first polled.
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    pub fn check(
        &self,
        key: impl IntoKey,
        cost: u32,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send + 'static {
        let key = key.into_key();
        match self.policies.only {
            // A slice of one charge: a `Charges` has room for several, all of which would be
            // copied.
            Some(policy) => {
                let mut charge = Charge::new(policy, key, cost);
                self.price(&mut charge, Class::default);
                self.deciding(&[charge])
            }
            None => match (self.policies.one, self.look(&key)) {
                (Some(policy), _) => {
                    let mut charge = self.charge_of_one(policy, key, cost);
                    self.price_all(charge.as_mut_slice());
                    self.deciding(charge.as_slice())
                }
                (None, None) => self.deciding(&self.alike_for(self.asker(), key, cost, None)),
                (None, Some(look)) => self.deciding_for(look, key, cost),
            },
        }
    }

    fn deciding_for(&self, look: Look, key: Key, cost: u32) -> Deciding {
        match look {
            Look::Known(finding) => match heed(&finding) {
                Ok(()) => self.deciding(&self.alike_for(self.asker(), key, cost, Some(&finding))),
                Err(error) => Deciding::later(&self.policies, ready(Err(error))),
            },
            Look::Coming(coming) => {
                Deciding::later(&self.policies, self.check_after(coming, key, cost))
            }
        }
    }

    /// The charge of the one policy; `None` if it counts nothing of the request. A list of charges has room for
    /// several, all of which would be moved.
    #[inline]
    fn charge_of_one(&self, policy: usize, key: Key, cost: u32) -> Option<Charge> {
        self.policies.mistakes.are_asked_alike();
        let asker = self.with_plan_of(self.asker(), &key, None);
        self.limited(Charge::new(policy, key, cost), asker, None)
    }

    fn deciding(&self, charges: &[Charge]) -> Deciding {
        Deciding::new(&self.policies, &self.ledger, charges)
    }

    /// All policies about one key at one cost, as a request asks.
    pub(crate) fn alike(&self, key: Key, cost: u32) -> Charges {
        let finding = self.found_now(&key);
        self.alike_for(self.asker(), key, cost, finding.as_ref())
    }

    /// The same of a request of this plan and operation, for which a resolver has this.
    pub(crate) fn alike_for(
        &self,
        asker: Asker,
        key: Key,
        cost: u32,
        finding: Option<&Finding>,
    ) -> Charges {
        self.policies.mistakes.are_asked_alike();
        self.charges_for(asker, key, cost, finding)
    }

    /// The same of some policies, each about a key and at a cost of its own.
    fn asked_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.are_asked_apart();
        self.charges_by_name(asked)
    }

    /// Asks some policies by name, once it is known what a resolver has for their keys.
    fn ask_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Reply<Result<Outcomes, StoreError>>, ConfigError> {
        self.policies.mistakes.are_asked_apart();
        let charges = self.named(asked)?;
        Ok(match self.find(&charges) {
            Reply::Now(findings) => self.ask_found(&charges, &findings),
            Reply::Later(findings) => {
                let limiter = self.clone();
                Reply::later(async move {
                    let findings = findings.await;
                    limiter.ask_found(&charges, &findings).wait().await
                })
            }
        })
    }

    fn ask_found(
        &self,
        charges: &[Charge],
        findings: &[Option<Finding>],
    ) -> Reply<Result<Outcomes, StoreError>> {
        if let Err(error) = findings.iter().flatten().try_for_each(heed) {
            return Reply::Now(Err(error));
        }
        let mut charges = self.limited_each(charges, findings);
        self.price_all(&mut charges);
        let policies = Arc::clone(&self.policies);
        let reply = self.ask(&charges);
        reply.map(move |answer| policies.answered(&charges, answer))
    }

    /// The same at the least price, for what is given back.
    fn asked_by_name_at_least<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.are_asked_apart();
        let mut charges = self.unpriced_by_name(asked)?;
        for charge in &mut charges {
            self.policies.prices.price_at_least(charge);
        }
        Ok(charges)
    }

    /// Looks whether a request was denied since it costs more than a limit.
    #[inline]
    pub(crate) fn look_at_costs(&self, charges: &[Charge], outcomes: &Outcomes) {
        self.policies.look_at_costs(charges, outcomes);
    }

    /// A charge for each limited policy, at the price of now.
    pub(crate) fn charges(&self, key: Key, cost: u32) -> Charges {
        let finding = self.found_now(&key);
        self.charges_found(key, cost, finding.as_ref())
    }

    /// The same of a request for which a resolver has this.
    fn charges_found(&self, key: Key, cost: u32, finding: Option<&Finding>) -> Charges {
        self.charges_for(self.asker(), key, cost, finding)
    }

    fn charges_for(&self, asker: Asker, key: Key, cost: u32, finding: Option<&Finding>) -> Charges {
        let mut charges = self.unpriced(asker, key, cost, finding);
        self.price_all(&mut charges);
        charges
    }

    /// The same at the least price, for what is given back.
    fn charges_at_least(&self, key: Key, units: u32) -> Charges {
        let finding = self.found_now(&key);
        let mut charges = self.unpriced(self.asker(), key, units, finding.as_ref());
        for charge in &mut charges {
            self.policies.prices.price_at_least(charge);
        }
        charges
    }

    /// Turns the cost of a charge from units to what the store is asked for.
    #[inline]
    pub(crate) fn price(&self, charge: &mut Charge, class: impl FnOnce() -> Class) {
        if self.policies.prices.are_any() {
            self.policies.prices.price(charge, class());
        }
    }

    fn price_all(&self, charges: &mut [Charge]) {
        if self.policies.prices.are_any() {
            for charge in charges {
                self.price(charge, Class::default);
            }
        }
    }

    /// What the store has answered to these charges, as it is told.
    #[inline]
    pub(crate) fn told<'a>(&self, charges: &[Charge], outcomes: &'a Outcomes) -> Cow<'a, Outcomes> {
        if !self.policies.prices.are_any() {
            return Cow::Borrowed(outcomes);
        }
        let mut told = outcomes.clone();
        self.policies.prices.tell(charges, &mut told);
        Cow::Owned(told)
    }

    fn unpriced(&self, asker: Asker, key: Key, cost: u32, finding: Option<&Finding>) -> Charges {
        let asker = self.with_plan_of(asker, &key, finding);
        let mut charges = Charges::new();
        for &(policy, is_soft) in &self.policies.limited {
            let charge = Charge {
                is_soft,
                ..Charge::new(policy, key, cost)
            };
            charges.extend(self.limited(charge, asker, finding));
        }
        charges
    }

    /// Makes a charge for each of these policies, by name, with a key of its own, at the price of now.
    fn charges_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        let mut charges = self.unpriced_by_name(asked)?;
        self.price_all(&mut charges);
        Ok(charges)
    }

    /// The same without their prices.
    fn unpriced_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        let charges = self.named(asked)?;
        let found = |charge: &Charge| self.found_now(&charge.key);
        let findings: Vec<_> = charges.iter().map(found).collect();
        Ok(self.limited_each(&charges, &findings))
    }

    /// The same charges under the limits of their requests.
    fn limited_each(&self, charges: &[Charge], findings: &[Option<Finding>]) -> Charges {
        let each = charges.iter().zip(findings);
        let limited = |(charge, finding): (&Charge, &Option<Finding>)| {
            let finding = finding.as_ref();
            let asker = self.with_plan_of(self.asker(), &charge.key, finding);
            self.limited(*charge, asker, finding)
        };
        each.filter_map(limited).collect()
    }

    /// The same without the limits of their requests.
    fn named<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        let Policies { names, limited, .. } = &*self.policies;
        let mut charges = Charges::new();
        let mut named: SmallVec<[usize; 8]> = SmallVec::new();
        for (name, key, cost) in asked {
            let Some(policy) = names.iter().position(|known| known == name) else {
                let known: Vec<&str> = names.iter().collect();
                let remedy = format!("name one of {}", known.join(", "));
                return Err(ConfigError::quoting("policy", name, remedy));
            };
            if named.contains(&policy) {
                let remedy = "ask each policy about one key, at the cost of all of it";
                return Err(ConfigError::quoting("policy", name, remedy));
            }
            named.push(policy);
            if let Some(&(_, is_soft)) = limited.iter().find(|(limited, _)| *limited == policy) {
                charges.push(Charge {
                    is_soft,
                    ..Charge::new(policy, key.into_key(), cost)
                });
            }
        }
        charges.sort_unstable_by_key(Charge::policy);
        Ok(charges)
    }

    /// Decides, and puts the outcomes where the caller needs them: see [`Ledger::charge`].
    #[inline]
    pub(crate) fn charge(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> Charged {
        self.ledger.charge(charges, wanted, outcomes)
    }

    /// Decides, and returns the outcomes by value.
    pub(crate) fn ask(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ledger.decide(charges)
    }

    fn amend(
        &self,
        charges: &[Charge],
        amendment: Amendment,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static + use<L> {
        let reply = self.ledger.amend(charges, amendment);
        async move { reply.wait().await.map(drop) }
    }

    #[cfg(feature = "http")]
    pub(crate) fn peek_charges(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ledger.peek(charges)
    }

    /// The rules that give limits; `None` if each policy has one limit.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn limits(&self) -> Option<&RequestLimits> {
        self.policies.limits.as_ref()
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.policies.timers
    }

    /// The decision of outcomes that are [told](Self::told).
    pub(crate) fn decision(&self, outcomes: Outcomes) -> Decision {
        Decision::new(Arc::clone(&self.policies.names), outcomes)
    }
}

impl<L: Ledger> Limiter<L> {
    /// Makes a limiter from policies with checked names, and a ledger that was opened for them.
    #[cfg(feature = "http")]
    pub(crate) fn of(policies: &[Policy], ledger: Guarded<L>, limits: PreparedLimits) -> Self {
        Self::with(policies, ledger, Mistakes::of_costs(policies), limits)
    }

    fn with(
        policies: &[Policy],
        ledger: Guarded<L>,
        mistakes: Mistakes,
        PreparedLimits { limits, rules }: PreparedLimits,
    ) -> Self {
        let limited = policies.iter().enumerate();
        let limited: Vec<_> = limited
            .filter(|(_, policy)| policy.is_limited())
            .map(|(index, policy)| (index, policy.is_soft()))
            .collect();
        let only = match *limited {
            [(policy, false)] if limits.is_none() => Some(policy),
            _ => None,
        };
        let are_looked_up = limits.as_ref().is_some_and(RequestLimits::are_looked_up);
        let one = match *limited {
            [(policy, false)] if !are_looked_up => Some(policy),
            _ => None,
        };
        let timers = Timers::of(ledger.clock());
        Self {
            policies: Arc::new(Policies {
                queue: queueing::queue(policies, &timers),
                timers,
                names: Arc::new(Names::new(policies.iter().map(Policy::rule), rules)),
                limits,
                algorithms: policies.iter().map(|policy| *policy.algorithm()).collect(),
                limited,
                only,
                one,
                mistakes,
                prices: Prices::of(policies),
            }),
            asker: None,
            ledger,
        }
    }

    /// Returns the same limiter with its store type erased.
    pub fn erased(self) -> Limiter<dyn Ledger> {
        Limiter {
            policies: self.policies,
            asker: self.asker,
            ledger: self.ledger.erased(),
        }
    }
}

/// [`Limiter::erased`].
impl<L: Ledger> From<Limiter<L>> for Limiter<dyn Ledger> {
    fn from(limiter: Limiter<L>) -> Self {
        limiter.erased()
    }
}

impl<L: ?Sized> Clone for Limiter<L> {
    fn clone(&self) -> Self {
        Self {
            policies: Arc::clone(&self.policies),
            asker: self.asker.clone(),
            ledger: self.ledger.clone(),
        }
    }
}

impl<L: fmt::Debug + ?Sized> fmt::Debug for Limiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.policies.names.iter().collect::<Vec<_>>())
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

/// Builds a [`Limiter`]; see [`Limiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<S = MemoryStore> {
    policies: Vec<Policy>,
    plans: Option<Plans>,
    sources: Sources,
    store: S,
    nodes: u32,
}

impl<S> LimiterBuilder<S> {
    /// Adds a policy. Every request is charged to all policies or to none.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds policies, as [`policy`](Self::policy) does.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// Sets the plans, and how the plan of a key is found: the name that the closure returns. `None`, and a name
    /// that no plan has, is the default plan. [`Limiter::plan`] names the plan of a request in its place.
    ///
    /// See [`plan`](crate::plan) for an example.
    pub fn plans<R: AsRef<str>>(
        mut self,
        plans: Plans,
        plan_of: impl Fn(&Key) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        self.plans = Some(plans);
        self.sources.plan_of = Some(PlanOf::new(plan_of));
        self
    }

    /// Sets the plans, for those who name the plan of a request: [`Limiter::plan`], a
    /// [`LimitLayer`](crate::LimitLayer), or a resolver. A request of which no plan is named has the default plan.
    pub fn plans_by_name(mut self, plans: Plans) -> Self {
        self.plans = Some(plans);
        self
    }

    /// Finds the plan or the limits of a request by looking its key up. `customer` makes of a key what the resolver
    /// looks up; a key for which it returns `None` is not looked up.
    ///
    /// The futures of `check`, `check_with`, `take_up_to`, `peek` and `inspect` wait for a lookup. All else has what is
    /// known already, or else the default plan, and begins a lookup if there is a tokio runtime: so do the verbs that
    /// end in `_now`, since they have nothing to wait in. A request of a plan that is [named](Limiter::plan) is not
    /// looked up.
    ///
    /// See [`Resolver`] for an example.
    #[cfg(feature = "resolver")]
    pub fn resolver<K>(
        mut self,
        resolver: Resolver<K>,
        customer: impl Fn(&Key) -> Option<K> + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        let look_up = move |key: &Key| Some(resolver.look(&customer(key)?));
        self.sources.resolver = Some(ResolverOf::new(look_up));
        self.takes_resolved_limits()
    }

    /// Lets the resolver of a [`LimitLayer`](crate::LimitLayer) give limits. It can name plans without this.
    #[cfg(feature = "resolver")]
    pub fn takes_resolved_limits(mut self) -> Self {
        self.sources.are_resolved = true;
        self
    }

    /// Sets the store that keeps the state.
    pub fn store<T: Store>(self, store: T) -> LimiterBuilder<T> {
        LimiterBuilder {
            policies: self.policies,
            plans: self.plans,
            sources: self.sources,
            store,
            nodes: self.nodes,
        }
    }

    /// Divides every limit by the number of nodes that serve the same clients and share no store.
    ///
    /// Each limit and each burst is divided by `nodes` and rounded up. Decisions tell the share.
    /// Nothing coordinates the nodes:
    ///
    /// - If requests are spread evenly, all nodes together admit the limit, plus less than one for
    ///   each node from rounding: a limit of 1 over ten nodes is ten.
    /// - A client whose requests go to one node, as behind a load balancer with affinity, gets only
    ///   a share.
    /// - With fewer nodes than `nodes`, clients get less; with more, they get more, until all nodes
    ///   are told the new number.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("daily", FixedWindow::per_day(1_000)))
    ///     .nodes(3)
    ///     .build()?;
    /// assert!(limiter.check_now("ann", 334).is_allowed());
    /// assert!(!limiter.check_now("ann", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn nodes(self, nodes: u32) -> Self {
        Self { nodes, ..self }
    }
}

impl<S: Store> LimiterBuilder<S> {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// When
    ///
    /// - there is no policy,
    /// - a name cannot stand in a header, or is there twice,
    /// - a policy lets requests [wait](Policy::wait_up_to), which only an HTTP layer can do,
    /// - limits are [split](Self::nodes) over no node, or over nodes that share a store, or
    /// - a plan, a limit by key or a limit by operation cannot be: see [`Plans`], [`KeyLimits`](crate::plan::KeyLimits)
    ///   and [`Operations`](crate::plan::Operations), or
    /// - the store cannot hold a policy exactly.
    pub fn build(self) -> Result<Limiter<S::Ledger>, ConfigError> {
        check_policies(&self.policies)?;
        #[cfg(feature = "http")]
        check_patience(&self.policies)?;
        let mut policies = split(self.policies, self.nodes, &self.store)?;
        let plans = self.plans.as_ref();
        let limits = PreparedLimits::new(plans, self.sources, &mut policies, self.nodes)?;
        let mut never_bind = Mistakes::of_costs(&policies);
        never_bind.look_whether_all_bind(&policies);
        let policies = in_parts(policies)?;
        let ledger = Guarded::open(&self.store, &policies)?;
        let mistakes = never_bind.of_parts(&policies);
        Ok(Limiter::with(&policies, ledger, mistakes, limits))
    }
}

/// Returns the share of one of `nodes` nodes without a shared store.
pub(crate) fn split(
    policies: Vec<Policy>,
    nodes: u32,
    store: &impl Store,
) -> Result<Vec<Policy>, ConfigError> {
    if nodes == 1 {
        return Ok(policies);
    }
    let Some(over) = NonZeroU32::new(nodes) else {
        let remedy = "give the number of nodes, 1 or more";
        return Err(ConfigError::new("nodes", nodes, remedy));
    };
    if store.is_shared() {
        let remedy = "leave it out: nodes that share a store share each limit already";
        return Err(ConfigError::new("nodes", nodes, remedy));
    }
    let share = |policy: Policy| policy.limited_by(policy.algorithm().shared_by(over));
    Ok(policies.into_iter().map(share).collect())
}

/// Returns the policies as a store is opened for them.
pub(crate) fn in_parts(policies: Vec<Policy>) -> Result<Vec<Policy>, ConfigError> {
    policies.into_iter().map(Policy::in_parts).collect()
}

/// Refuses policies that let requests wait, because a limiter holds no requests.
#[cfg(feature = "http")]
fn check_patience(policies: &[Policy]) -> Result<(), ConfigError> {
    let patient = |policy: &&Policy| policy.patience().is_any();
    match policies.iter().find(patient) {
        None => Ok(()),
        Some(policy) => {
            let remedy = "leave it out: a limiter holds nobody; ask it again after the decision's \
                          `retry_after`";
            Err(ConfigError::quoting("wait_up_to", policy.name(), remedy))
        }
    }
}

/// Refuses an empty list, and policies with the same name.
pub(crate) fn check_policies(policies: &[Policy]) -> Result<(), ConfigError> {
    if policies.is_empty() {
        let remedy = "add a policy with `.policy(Policy::new(name, algorithm))`";
        return Err(ConfigError::new("policies", "empty", remedy));
    }
    check_names(&policies.iter().map(Policy::name))?;
    policies.iter().try_for_each(Policy::check_mark)?;
    check_queues(policies)
}

/// Refuses queues that could not keep their promise.
fn check_queues(policies: &[Policy]) -> Result<(), ConfigError> {
    let mut queues = policies.iter().filter(|policy| policy.shapes());
    let Some(queue) = queues.next() else {
        return Ok(());
    };
    if queue.is_soft() {
        let remedy = "let it not be soft: what is over its limit would overtake those who wait";
        return Err(ConfigError::quoting("leaky queue", queue.name(), remedy));
    }
    match queues.next() {
        None => Ok(()),
        Some(second) => {
            let remedy = "leave one queue: a request that waits for its turn in one would miss it in \
                          the other; give the others an algorithm that only counts";
            Err(ConfigError::quoting("leaky queue", second.name(), remedy))
        }
    }
}
