//! The limiter: policies and a store that decide, without HTTP.
//!
//! The layers are thin shells around it. Decisions are in this file, and the other verbs in files
//! of their own. Each verb has a form `…_now` for the store in this process, which always answers
//! at once, and a future for any store.

mod by_name;
mod deciding;
mod inspection;
mod mistakes;
mod overriding;
mod prices;
mod queueing;
mod verbs;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::inspection::Inspection;

use self::deciding::Deciding;
use self::mistakes::Mistakes;
use self::prices::Prices;
use crate::algorithm::Algorithm;
use crate::clock::Timers;
use crate::decision::{Decision, Names, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::factor::Class;
use crate::key::{IntoKey, Key};
use crate::line::Lines;
use crate::policy::{Policy, check_names};
use crate::store::{
    Amendment, Charge, Charged, Ledger, MemoryLedger, MemoryStore, Reply, Store, Wanted, answered,
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
    ledger: Arc<L>,
}

struct Policies {
    names: Arc<Names>,
    /// By which requests wait that were told to.
    timers: Timers,
    algorithms: Box<[Algorithm]>,
    /// The index of each limited policy, and whether it is soft. Unlimited policies are never
    /// asked.
    limited: Vec<(usize, bool)>,
    /// The limited policy, if it is the only one and not soft.
    only: Option<usize>,
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
            Some(policy) => Decision::new(names, self.ledger.charge_one(policy, &key, cost)),
            None => Decision::new(names, self.ledger.charge_now(&self.alike(key, cost))),
        }
    }

    /// The same under policies of which one has a factor.
    fn decide_priced(&self, key: Key, cost: u32) -> Decision {
        let charges = self.alike(key, cost);
        let names = Arc::clone(&self.policies.names);
        let mut decision = Decision::new(names, self.ledger.charge_now(&charges));
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
            Some(policy) => self.ledger.admit_one(policy, &key, cost),
            None => self.admit_alike(&key, cost),
        };
        if !is_admitted && self.policies.mistakes.may_cost_too_much(cost) {
            let charges = self.charges(key, cost);
            self.look_at_costs(&charges, &self.ledger.peek_now(&charges));
        }
        is_admitted
    }

    fn admit_alike(&self, key: &Key, cost: u32) -> bool {
        let Policies {
            mistakes, limited, ..
        } = &*self.policies;
        mistakes.are_asked_alike();
        let admitted = self.ledger.admit_alike(limited, key, cost);
        admitted.unwrap_or_else(|| self.ledger.admit_now(&self.charges(*key, cost)))
    }

    /// Changes what the store in this process keeps of a key.
    fn amend_now(&self, charges: &[Charge], amendment: Amendment) {
        // An override alone can fail, for want of room.
        let _ = self.ledger.amend_now(charges, amendment);
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
            None => self.deciding(&self.alike(key, cost)),
        }
    }

    fn deciding(&self, charges: &[Charge]) -> Deciding {
        Deciding::new(&self.policies, &*self.ledger, charges)
    }

    /// All policies about one key at one cost, as a request asks.
    pub(crate) fn alike(&self, key: Key, cost: u32) -> Charges {
        self.policies.mistakes.are_asked_alike();
        self.charges(key, cost)
    }

    /// The same of some policies, each about a key and at a cost of its own.
    fn asked_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.are_asked_apart();
        self.charges_by_name(asked)
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
        let mut charges = self.unpriced(key, cost);
        self.price_all(&mut charges);
        charges
    }

    /// The same at the least price, for what is given back.
    fn charges_at_least(&self, key: Key, units: u32) -> Charges {
        let mut charges = self.unpriced(key, units);
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

    fn unpriced(&self, key: Key, cost: u32) -> Charges {
        let mut charges = Charges::new();
        for &(policy, is_soft) in &self.policies.limited {
            charges.push(Charge {
                is_soft,
                ..Charge::new(policy, key, cost)
            });
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

    fn unpriced_by_name<'a, K: IntoKey>(
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
    pub(crate) fn of(policies: &[Policy], ledger: L) -> Self {
        Self::with(policies, ledger, Mistakes::of_costs(policies))
    }

    fn with(policies: &[Policy], ledger: L, mistakes: Mistakes) -> Self {
        let limited = policies.iter().enumerate();
        let limited: Vec<_> = limited
            .filter(|(_, policy)| policy.is_limited())
            .map(|(index, policy)| (index, policy.is_soft()))
            .collect();
        let only = match *limited {
            [(policy, false)] => Some(policy),
            _ => None,
        };
        let timers = Timers::of(ledger.clock());
        Self {
            policies: Arc::new(Policies {
                queue: queueing::queue(policies, &timers),
                timers,
                names: Arc::new(Names::new(policies.iter().map(Policy::rule))),
                algorithms: policies.iter().map(|policy| *policy.algorithm()).collect(),
                limited,
                only,
                mistakes,
                prices: Prices::of(policies),
            }),
            ledger: Arc::new(ledger),
        }
    }

    /// Returns the same limiter with its store type erased.
    pub fn erased(self) -> Limiter<dyn Ledger> {
        Limiter {
            policies: self.policies,
            ledger: self.ledger,
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
            ledger: Arc::clone(&self.ledger),
        }
    }
}

impl<L: fmt::Debug + ?Sized> fmt::Debug for Limiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.policies.names.iter().collect::<Vec<_>>())
            .field("ledger", &&*self.ledger)
            .finish()
    }
}

/// Builds a [`Limiter`]; see [`Limiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<S = MemoryStore> {
    policies: Vec<Policy>,
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

    /// Sets the store that keeps the state.
    pub fn store<T: Store>(self, store: T) -> LimiterBuilder<T> {
        LimiterBuilder {
            policies: self.policies,
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
    ///     .split_over(3)
    ///     .build()?;
    /// assert!(limiter.check_now("ann", 334).is_allowed());
    /// assert!(!limiter.check_now("ann", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn split_over(self, nodes: u32) -> Self {
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
    /// - limits are [split](Self::split_over) over no node, or over nodes that share a store, or
    /// - the store cannot hold a policy exactly.
    pub fn build(self) -> Result<Limiter<S::Ledger>, ConfigError> {
        check_policies(&self.policies)?;
        #[cfg(feature = "http")]
        check_patience(&self.policies)?;
        let policies = split(self.policies, self.nodes, &self.store)?;
        let mut never_bind = Mistakes::of_costs(&policies);
        never_bind.look_whether_all_bind(&policies);
        let policies = in_parts(policies)?;
        let ledger = self.store.open(&policies)?;
        let mistakes = never_bind.of_parts(&policies);
        Ok(Limiter::with(&policies, ledger, mistakes))
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
        return Err(ConfigError::new("split_over", nodes, remedy));
    };
    if store.is_shared() {
        let remedy = "leave it out: nodes that share a store share each limit already";
        return Err(ConfigError::new("split_over", nodes, remedy));
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
