//! The limiter: policies and a store that decide, without HTTP.
//!
//! The layers are thin shells around it. Decisions are in this file, and the other verbs in files
//! of their own. Each verb has a form `…_now` for the store in this process, which always answers
//! at once, and a future for any store.

#[cfg(feature = "admin")]
mod about;
mod adjusting;
mod builder;
mod by_name;
mod counting;
mod deciding;
mod demands;
mod inspection;
mod limits;
mod mistakes;
mod monitored;
mod overriding;
mod prices;
mod queueing;
mod reservation;
mod reserving;
mod verbs;

use std::borrow::Cow;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::adjusting::AdjustableLimit;
pub use self::builder::LimiterBuilder;
pub use self::inspection::Inspection;
pub use self::reservation::Reservation;

pub(crate) use self::reservation::{Answer, Held, RealCost};

#[cfg(feature = "http")]
pub(crate) use self::builder::{check_policies, in_parts, split};
#[cfg(feature = "http")]
pub(crate) use self::limits::Sources;
pub(crate) use self::limits::{PreparedLimits, RequestLimits, heed};

use self::counting::Counting;
use self::deciding::Deciding;
use self::demands::Demands;
use self::mistakes::Mistakes;
use self::prices::Prices;
use self::reservation::Lost;
use crate::algorithm::Algorithm;
#[cfg(feature = "http")]
use crate::algorithm::Limit;
use crate::clock::{Micros, Timers};
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::factor::Class;
use crate::key::{IntoKey, Key};
use crate::line::Lines;
use crate::plan::{Asker, Finding, Look};
use crate::policy::{DeclaredModes, Mode, Modes, Policy, Unsettled};
use crate::store::{
    Amendment, Charge, Charged, Guarded, Ledger, MemoryLedger, Reply, Slot, Wanted, answered, check,
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
    demands: Demands,
    /// Whether requests hold slots under a policy.
    has_slots: bool,
    /// Of the policies that have a factor.
    prices: Prices,
    counted: Counting,
    /// What a request ends with that is not settled, by policy; `None` if all keep their estimates.
    unless_settled: Option<Box<[Unsettled]>>,
    lost: Lost,
    modes: DeclaredModes,
}

impl Policies {
    #[inline]
    fn look_at_costs(&self, charges: &[Charge], outcomes: &Outcomes) {
        self.mistakes.look_at_costs(&self.names, charges, outcomes);
    }

    /// What a request is charged by this policy that is not settled.
    fn unless_settled(&self, policy: usize) -> Unsettled {
        let all = self.unless_settled.as_ref();
        let of_policy = all.and_then(|all| all.get(policy)).copied();
        of_policy.unwrap_or_default()
    }

    /// The place of the policy with this name.
    fn place_of(&self, name: &str) -> Result<usize, ConfigError> {
        let place = self.names.iter().position(|known| known == name);
        place.ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().collect();
            let remedy = format!("name one of {}", known.join(", "));
            ConfigError::quoting("policy", name, remedy)
        })
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
            self.note_shadow(outcomes);
        }
        self.count(charges, &answer);
        answer
    }

    #[inline]
    fn only(&self) -> Option<usize> {
        self.only.filter(|_| self.modes.are_plain())
    }

    #[inline]
    fn one(&self) -> Option<usize> {
        self.one.filter(|_| self.modes.are_plain())
    }

    /// Leaves out what is off, and marks what is in shadow.
    #[inline]
    fn heed_modes(&self, charges: &mut Charges) {
        if !self.modes.are_plain() {
            self.heed_each_mode(charges);
        }
    }

    #[cold]
    fn heed_each_mode(&self, charges: &mut Charges) {
        charges.retain(|charge| {
            let mode = self.modes.of(charge.policy);
            if mode == Mode::Shadow {
                *charge = charge.shadow();
            }
            mode != Mode::Off
        });
    }

    /// Counts what policies in shadow would have refused.
    #[inline]
    fn note_shadow(&self, outcomes: &Outcomes) {
        if !self.modes.are_plain() {
            for policy in outcomes.would_refuse() {
                self.modes.would_have_refused(policy);
            }
        }
    }
}

pub(crate) type Charges = SmallVec<[Charge; 8]>;

impl Limiter {
    /// Starts a limiter with its state in this process.
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one has to be given
    /// - store: a new [`MemoryStore`](crate::MemoryStore)
    /// - not split: this node admits all of each limit
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
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
        match self.policies.only() {
            Some(policy) => {
                let decision =
                    Decision::new(names, self.ledger.inner().charge_one(policy, &key, cost));
                self.policies
                    .count_one(policy, &key, cost, decision.outcomes());
                decision
            }
            None => match self.policies.one() {
                Some(policy) => {
                    let charge = self.charge_of_one(policy, key, cost);
                    self.decide_all(names, charge.as_slice())
                }
                None => self.decide_all(names, &self.alike(key, cost)),
            },
        }
    }

    #[inline]
    fn decide_all(&self, names: Arc<Names>, charges: &[Charge]) -> Decision {
        let decision = Decision::new(names, self.charge_all(charges));
        self.policies.count_decided(charges, decision.outcomes());
        self.policies.note_shadow(decision.outcomes());
        decision
    }

    /// The same under policies of which one has a factor.
    fn decide_priced(&self, key: Key, cost: u32) -> Decision {
        let charges = self.alike(key, cost);
        let names = Arc::clone(&self.policies.names);
        let mut decision = Decision::new(names, self.ledger.inner().charge_now(&charges));
        let prices = &self.policies.prices;
        decision.change(|outcomes| prices.tell(&charges, outcomes));
        self.policies.count_decided(&charges, decision.outcomes());
        self.policies.note_shadow(decision.outcomes());
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
        if self.policies.prices.are_any() || !self.policies.modes.are_plain() {
            // A limit that was reached is one that may grow, and the numbers tell that.
            return self.check_now(key, cost).is_allowed();
        }
        let is_admitted = match self.policies.only {
            Some(policy) => {
                let is_admitted = self.ledger.inner().admit_one(policy, &key, cost);
                let verdict = is_admitted.then_some(()).ok_or(policy);
                let asked = std::iter::once((policy, cost));
                self.policies.count_judged(asked, &key, verdict);
                is_admitted
            }
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
        if let Some(policy) = self.policies.one() {
            return self.admit_charges(self.charge_of_one(policy, *key, cost).as_slice());
        }
        if limits.is_some() || self.policies.demands.are_any() {
            return self.admit_charges(&self.alike(*key, cost));
        }
        mistakes.are_asked_alike();
        match self.ledger.inner().admit_alike(limited, key, cost) {
            Some(verdict) => {
                let asked = limited.iter().map(|(policy, _)| (*policy, cost));
                self.policies.count_judged(asked, key, verdict);
                verdict.is_ok()
            }
            None => self.admit_charges(&self.charges(*key, cost)),
        }
    }

    fn admit_charges(&self, charges: &[Charge]) -> bool {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let ledger = self.ledger.inner();
        let answer = ledger.charge(charges, Wanted::Refusals, &mut outcomes);
        let is_admitted = matches!(answer, Charged::Now(Ok(true)));
        if is_admitted {
            self.policies.count_allowed(charges);
        } else {
            // The store in this process tells of each charge.
            let _ = check(charges, &mut outcomes);
            self.policies.count_decided(charges, &outcomes);
        }
        is_admitted
    }

    /// Changes what the store in this process keeps of a key.
    fn amend_now(&self, charges: &[Charge], amendment: Amendment) {
        self.policies.count_amended(charges, amendment);
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
        match self.policies.only() {
            // A slice of one charge: a `Charges` has room for several, all of which would be
            // copied.
            Some(policy) => {
                let mut charge = Charge::new(policy, key, cost);
                self.price(&mut charge, Class::default);
                self.deciding(&[charge])
            }
            None => match (self.policies.one(), self.look(&key)) {
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
        let mut charge = self.limited(Charge::new(policy, key, cost), asker, None)?;
        self.demand(&mut charge, asker.is_low_priority);
        Some(charge)
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
        let mut charges = self.charges_for(asker, key, cost, finding);
        self.policies.heed_modes(&mut charges);
        charges
    }

    /// The same of some policies, each about a key and at a cost of its own.
    fn asked_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.are_asked_apart();
        self.charges_by_name(asked)
    }

    /// The same of a request, of which policies may demand something.
    fn asked_now_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.are_asked_apart();
        let mut charges = self.unpriced_by_name(asked)?;
        self.demand_of_all(&mut charges);
        self.price_all(&mut charges);
        Ok(charges)
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
        self.demand_of_all(&mut charges);
        self.price_all(&mut charges);
        self.policies.heed_modes(&mut charges);
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
        if self.policies.demands.are_any() {
            for charge in &mut charges {
                self.demand(charge, asker.is_low_priority);
            }
        }
        self.price_all(&mut charges);
        charges
    }

    /// A charge for each limited policy, at the price of now, to change what is kept: no policy demands anything of it.
    fn charges_to_amend(&self, key: Key, units: u32) -> Charges {
        let finding = self.found_now(&key);
        let mut charges = self.unpriced(self.asker(), key, units, finding.as_ref());
        self.price_all(&mut charges);
        charges
    }

    /// Turns a charge into what the store is asked about a request of this priority.
    #[inline]
    pub(crate) fn demand(&self, charge: &mut Charge, is_low: bool) {
        self.policies.demands.apply(charge, is_low);
    }

    /// How many units a request can take at once, of so many.
    fn most_at_once(&self, key: Key, most: u32) -> u32 {
        if !self.policies.demands.are_any() {
            return most;
        }
        self.policies.demands.most_of(&self.charges(key, 0), most)
    }

    /// Whether requests hold slots under a policy.
    pub(crate) fn has_slots(&self) -> bool {
        self.policies.has_slots
    }

    /// Lets a request take slots under this policy, if it is one on concurrency, and hold them to its end.
    #[inline]
    pub(crate) fn hold(&self, charge: &mut Charge) {
        if self.policies.has_slots {
            let algorithm = self.policies.algorithms.get(charge.policy);
            let is_held = algorithm.is_some_and(Algorithm::is_held);
            charge.slot = is_held.then(Slot::unique);
        }
    }

    /// The same of all charges of a request.
    pub(crate) fn hold_all(&self, charges: &mut [Charge]) {
        for charge in charges {
            self.hold(charge);
        }
    }

    fn demand_of_all(&self, charges: &mut [Charge]) {
        if self.policies.demands.are_any() {
            let is_low = self.asker().is_low_priority;
            for charge in charges {
                self.demand(charge, is_low);
            }
        }
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

    /// Cuts the cost of a charge that is not priced yet to what can pass.
    #[cfg(feature = "http")]
    pub(crate) fn cut(&self, charge: &mut Charge) {
        let own = charge.limit.map(Limit::most);
        let whole = || self.policies.prices.whole(charge.policy)?.limit();
        let policys = || self.policies.algorithms.get(charge.policy)?.limit();
        let limit = own.or_else(whole).or_else(policys).unwrap_or(u32::MAX);
        let hard = Charge {
            is_soft: false,
            ..*charge
        };
        let most = self.policies.demands.most_of(&[hard], limit);
        charge.cost = charge.cost.min(most);
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
        let limited = &self.policies.limited;
        let mut charges = Charges::new();
        let mut named: SmallVec<[usize; 8]> = SmallVec::new();
        for (name, key, cost) in asked {
            let policy = self.policies.place_of(name)?;
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
        self.policies.count_amended(charges, amendment);
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

    /// Whether something becomes of these charges when their request ends without an answer.
    #[cfg(feature = "http")]
    pub(crate) fn holds_any(&self, charges: &[Charge]) -> bool {
        self.settles_the_unanswered() || charges.iter().any(|charge| charge.slot.is_some())
    }

    /// Whether a request that ends without an answer may cost something else than its estimate.
    pub(crate) fn settles_the_unanswered(&self) -> bool {
        self.policies.unless_settled.is_some()
    }

    /// Whether the requests of this policy wait for their turn.
    pub(crate) fn is_a_queue(&self, policy: usize) -> bool {
        let queue = self.policies.queue.as_ref();
        queue.is_some_and(|(queue, _)| *queue == policy)
    }

    /// Returns the switches of the policies' modes, which the limiter shares with its clones and its layer.
    pub fn modes(&self) -> Modes {
        self.policies.modes.modes().clone()
    }

    /// Counts what policies in shadow would have refused.
    pub(crate) fn note_shadow(&self, outcomes: &Outcomes) {
        self.policies.note_shadow(outcomes);
    }

    /// The modes that hold for the next request.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn declared_modes(&self) -> &DeclaredModes {
        &self.policies.modes
    }

    /// The decision of outcomes that are [told](Self::told).
    pub(crate) fn decision(&self, outcomes: Outcomes) -> Decision {
        Decision::new(Arc::clone(&self.policies.names), outcomes)
    }
}

impl<L: Ledger> Limiter<L> {
    /// Makes a limiter from policies with checked names, and a ledger that was opened for them.
    #[cfg(feature = "http")]
    pub(crate) fn of(
        policies: &[Policy],
        ledger: Guarded<L>,
        limits: PreparedLimits,
        modes: DeclaredModes,
    ) -> Self {
        let mistakes = Mistakes::of_costs(policies);
        Self::with(policies, ledger, mistakes, limits, modes)
    }

    fn with(
        policies: &[Policy],
        ledger: Guarded<L>,
        mistakes: Mistakes,
        PreparedLimits { limits, rules }: PreparedLimits,
        modes: DeclaredModes,
    ) -> Self {
        let limited = policies.iter().enumerate();
        let limited: Vec<_> = limited
            .filter(|(_, policy)| policy.is_limited())
            .map(|(index, policy)| (index, policy.is_soft()))
            .collect();
        let demands = Demands::of(policies);
        let has_penalties = policies
            .iter()
            .any(|policy| policy.named_penalty().is_some());
        let has_slots = policies.iter().any(|policy| policy.algorithm().is_held());
        let only = match *limited {
            [(policy, false)]
                if limits.is_none() && !demands.are_any() && !has_penalties && !has_slots =>
            {
                Some(policy)
            }
            _ => None,
        };
        let are_looked_up = limits.as_ref().is_some_and(RequestLimits::are_looked_up);
        let one = match *limited {
            [(policy, false)] if !are_looked_up && !demands.are_any() && !has_slots => Some(policy),
            _ => None,
        };
        let timers = Timers::of(ledger.clock());
        let unless_settled: Box<[_]> = policies.iter().map(Policy::if_unsettled).collect();
        let all_keep_estimates = unless_settled.iter().all(|it| *it == Unsettled::Estimate);
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
                demands,
                has_slots,
                prices: Prices::of(policies),
                counted: Counting::new(policies),
                unless_settled: (!all_keep_estimates).then_some(unless_settled),
                lost: Lost::default(),
                modes,
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
