//! Builds a limiter, and checks its policies.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;

use super::limits::{LaterLimits, PreparedLimits};
use super::waiting::WaitingRoom;
use super::{Limiter, LocalLimiter};
use crate::advice::Mistakes;
use crate::error::ConfigError;
use crate::key::Key;
use crate::plan::{PlanOf, Plans, Resolver, ResolverOf, Sources};
use crate::policy::{
    FirstOf, Groups, Mode, Modes, Policy, check_guarantees, check_names, check_shares,
};
use crate::store::{Guarded, MemoryStore, Payers, Store};

/// Builds a [`Limiter`]; see [`Limiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<S = MemoryStore> {
    policies: Vec<Policy>,
    groups: Vec<FirstOf>,
    /// The names of those in which the next members take what an answer costs beyond the room of one.
    spilling: Vec<String>,
    pub(super) plans: Option<Plans>,
    sources: Sources<Key>,
    pub(super) later: LaterLimits,
    store: S,
    nodes: u32,
    wait_places: u32,
    mode: Mode,
    modes: Option<Modes>,
}

/// The default for the number of requests that wait under all policies together.
const WAIT_PLACES: u32 = 10_000;

impl Limiter {
    /// Starts a limiter, with its state in this process unless it gets a [store](LimiterBuilder::store).
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one is required
    /// - store: a new [`MemoryStore`]
    /// - not split: this node admits all of each limit
    /// - places for requests that wait in a layer: 10,000
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }
}

impl LimiterBuilder {
    /// Makes a builder with the defaults of [`Limiter::builder`].
    pub(super) fn new() -> Self {
        Self {
            policies: Vec::new(),
            groups: Vec::new(),
            spilling: Vec::new(),
            plans: None,
            sources: Sources::default(),
            later: LaterLimits::default(),
            store: MemoryStore::new(),
            nodes: 1,
            wait_places: WAIT_PLACES,
            mode: Mode::Enforce,
            modes: None,
        }
    }
}

impl<S> LimiterBuilder<S> {
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn its_store(&self) -> &S {
        &self.store
    }
}

impl<S> LimiterBuilder<S> {
    /// Adds a policy. Every request is charged to all policies or to none.
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policies.push(policy.into());
        self
    }

    /// Adds policies, as [`policy`](Self::policy) does.
    pub fn policies(mut self, policies: impl IntoIterator<Item: Into<Policy>>) -> Self {
        self.policies.extend(policies.into_iter().map(Into::into));
        self
    }

    /// Declares that one of these policies pays for a request: the first that has room is charged, and the others are left
    /// alone. It is decided in one step, together with the policies that are always charged.
    ///
    /// A decision has the outcome of the policy that pays, and not those of the others;
    /// [`Decision::payer`](crate::Decision::payer) names it. If none has room, the decision has the outcome of the policy with the
    /// shortest wait. The page `either_or` of the guide says what goes with it.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("plan", FixedWindow::per_day(2)))
    ///     .policy(Policy::new("credits", FixedWindow::per_day(1)))
    ///     .first_of("spend", ["plan", "credits"])
    ///     .build_local()?;
    ///
    /// let payer = || limiter.check("ann", 1).now().payer("spend").map(str::to_owned);
    /// assert_eq!(payer().as_deref(), Some("plan"));
    /// assert_eq!(payer().as_deref(), Some("plan"));
    /// assert_eq!(payer().as_deref(), Some("credits"));
    /// assert_eq!(payer(), None);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn first_of(
        mut self,
        name: impl Into<String>,
        policies: impl IntoIterator<Item: Into<String>>,
    ) -> Self {
        self.groups.push(FirstOf::new(name, policies));
        self
    }

    /// Lets what an answer costs beyond its estimate go from member to member of this group of [`first_of`](Self::first_of).
    ///
    /// The member that has paid takes as much of it as it has room for. The next ones take the rest in their order, each as much as it
    /// has room for, and the last one takes what is left, even above its limit. Without this, the member that has paid takes
    /// all of it. One unit of a member is one unit of the next, so let all of them count the same.
    ///
    /// It concerns the charges of a request that are settled at its end. What is less than the estimate is given back to the member that
    /// has paid.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("plan", FixedWindow::per_day(1_000)))
    ///     .policy(Policy::new("credits", FixedWindow::per_day(500)))
    ///     .first_of("spend", ["plan", "credits"])
    ///     .spill("spend")
    ///     .build_local()?;
    ///
    /// let answer = limiter.reserve("ann", 900).now();
    /// answer.settle(1_200);
    /// let inspection = limiter.inspect("ann").now();
    /// let used: Vec<_> = inspection.policies().map(|(_, told)| told.used()).collect();
    /// assert_eq!(used, [1_000, 200]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn spill(mut self, group: impl Into<String>) -> Self {
        self.spilling.push(group.into());
        self
    }

    /// Sets the plans, and a closure that returns the name of a key's plan. `None`, and a name without a
    /// plan, stand for the default plan. [`Limiter::plan`] names the plan of a request instead.
    ///
    /// See [`plan`](crate::plan) for an example.
    pub fn plans<R: AsRef<str>>(
        mut self,
        plans: Plans,
        plan_of: impl Fn(&Key) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        self.plans = Some(plans);
        self.sources.plan_of = Some(PlanOf::<Key>::new(plan_of));
        self
    }

    /// Sets the plans, for callers that name the plan of a request: [`Limiter::plan`], a
    /// [`LimitLayer`](crate::LimitLayer), or a resolver. A request without a named plan has the default plan.
    pub fn plans_by_name(mut self, plans: Plans) -> Self {
        self.plans = Some(plans);
        self
    }

    /// Sets a resolver that finds the plan or the limits of a request by its key. `customer` converts a key
    /// to what the resolver looks up; a key for which it returns `None` is not looked up.
    ///
    /// A verb that decides or looks waits for a lookup when it is awaited. Refunds, settlements, resets and blocks do not
    /// wait, and no verb does that is run by [`now`](crate::limiter::Ask::now): they use what is known already, or
    /// else the default plan, and begin a lookup if there is a tokio runtime. A request whose plan is
    /// [named](Limiter::plan) is not looked up.
    ///
    /// See [`Resolver`] for an example.
    pub fn resolver<K>(
        mut self,
        resolver: Resolver<K>,
        customer: impl Fn(&Key) -> Option<K> + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        self.sources.resolver = Some(ResolverOf::<Key>::new(resolver, customer));
        self.takes_resolved_limits()
    }

    /// Lets the resolver of a [`LimitLayer`](crate::LimitLayer) set limits. It can name plans without this.
    pub fn takes_resolved_limits(mut self) -> Self {
        self.later.are_resolved = true;
        self
    }

    /// Lets limits change while they are in force: [`Limiter::adjust_limit`]. A decision then reads one more
    /// number for each policy.
    pub fn adjustable(mut self) -> Self {
        self.later.is_adjustable = true;
        self
    }

    /// Sets the store that keeps the state.
    pub fn store<T: Store>(self, store: T) -> LimiterBuilder<T> {
        LimiterBuilder {
            policies: self.policies,
            groups: self.groups,
            spilling: self.spilling,
            plans: self.plans,
            sources: self.sources,
            later: self.later,
            store,
            nodes: self.nodes,
            wait_places: self.wait_places,
            mode: self.mode,
            modes: self.modes,
        }
    }

    /// Divides every limit by the number of nodes that serve the same clients without a shared store.
    ///
    /// Each limit and each burst is divided by `nodes` and rounded up. Decisions have the numbers of the
    /// share. Nothing coordinates the nodes:
    ///
    /// - If requests are spread evenly, all nodes together admit the limit, plus less than one for
    ///   each node from rounding: a limit of 1 over ten nodes is ten.
    /// - A client whose requests go to one node, as behind a load balancer with affinity, gets only
    ///   a share.
    /// - With fewer nodes than `nodes`, clients get less; with more, they get more, until every node is
    ///   configured with the new number.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("daily", FixedWindow::per_day(1_000)))
    ///     .nodes(3)
    ///     .build_local()?;
    /// assert!(limiter.check("ann", 334).now().is_allowed());
    /// assert!(!limiter.check("ann", 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn nodes(self, nodes: u32) -> Self {
        Self { nodes, ..self }
    }

    /// Sets how many requests may wait for their turn at the same time in layers with this limiter, for all keys and
    /// under all policies that [let them](Policy::wait_up_to); the default is 10,000.
    ///
    /// A request beyond that is refused at once, as if no policy waited. Requests that a
    /// [`LeakyQueue`](crate::LeakyQueue) holds are not counted. This bounds the memory of waiting requests: a request
    /// and a timer each. Requests of low priority that leave a [reserve](Policy::reserve) have as many places of their own.
    pub fn wait_places(self, places: u32) -> Self {
        Self {
            wait_places: places,
            ..self
        }
    }

    /// Sets the mode of all policies together, which can only weaken their own; the default is
    /// [`Mode::Enforce`].
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Shares these switches, which change the modes of the policies. By default, the limiter has switches of
    /// its own.
    pub fn modes(self, modes: &Modes) -> Self {
        let modes = Some(modes.clone());
        Self { modes, ..self }
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
    /// - a name cannot be part of a header, or appears twice,
    /// - a soft policy waits,
    /// - limits are [split](Self::nodes) over no node, or over nodes that share a store, or
    /// - a plan, a limit by key or a limit by operation is invalid: see [`Plans`],
    ///   [`KeyLimits`](crate::plan::KeyLimits) and [`Operations`](crate::plan::Operations), or
    /// - [`spill`](Self::spill) names no group,
    /// - a group of [`first_of`](Self::first_of) is not one of two or more policies, stands beside what it does not go with, or has a
    ///   store that cannot choose,
    /// - a policy has a [share](Policy::share) of one that is not before it,
    /// - a limit that is divided [fairly](Policy::fair) stands beside what it does not go with, or has a store that cannot divide it,
    /// - a policy is [guaranteed](Policy::guaranteed) what the one above cannot keep, or the store keeps no guarantees, or
    /// - the store cannot hold a policy exactly.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        self.open(true).map(|(limiter, _)| limiter.erased())
    }

    /// Opens the store for these policies of a layer, which finds those that never bind by itself, and says whether a resolver may set
    /// the limits of requests, and whether none names a plan. Returns the policies as they are stored, too.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn open_for(
        mut self,
        policies: Vec<Policy>,
        (are_resolved, is_no_plan_named): (bool, bool),
    ) -> Result<(Limiter<S::Backend>, Vec<Policy>), ConfigError> {
        self.later.are_resolved = are_resolved;
        self.later.is_no_plan_named = is_no_plan_named;
        self.policies(policies).open(false)
    }

    fn open(
        mut self,
        warns_if_pointless: bool,
    ) -> Result<(Limiter<S::Backend>, Vec<Policy>), ConfigError> {
        check_policies(&self.policies)?;
        for group in &self.spilling {
            FirstOf::spill(&mut self.groups, group)?;
        }
        let groups = Groups::find(&self.groups, &self.policies)?;
        self.check_divisions()?;
        self.check_keeping()?;
        if let Some(group) = self.groups.first()
            && let Payers::None(remedy) = self.store.chooses_payers()
        {
            return Err(ConfigError::quoting("first_of", group.name(), remedy));
        }
        let mut policies = split(self.policies, self.nodes, &self.store)?;
        let plans = self.plans.as_ref();
        let limits =
            PreparedLimits::new(plans, (self.sources, self.later), &mut policies, self.nodes)?;
        let mut mistakes = Mistakes::of(&policies);
        if warns_if_pointless && groups.is_none() {
            mistakes.watch_whether_all_bind(&policies);
        }
        policies.iter().try_for_each(Policy::check_one_limit)?;
        let policies = policies.into_iter().map(Policy::into_stored);
        let policies: Vec<_> = policies.collect::<Result<_, _>>()?;
        let backend = Guarded::open(&self.store, &policies)?;
        let mistakes = mistakes.of_parts(&policies);
        let modes = self.modes.unwrap_or_default();
        let modes = modes.declared(self.mode, policies.iter().map(Policy::declared_mode));
        let waiting = WaitingRoom::with(self.wait_places);
        let limiter = Limiter::of(
            &policies,
            backend,
            mistakes,
            limits,
            (modes, groups),
            waiting,
        );
        Ok((limiter, policies))
    }

    /// Rejects a limit that is divided among tenants beside what does not know of them.
    fn check_divisions(&self) -> Result<(), ConfigError> {
        let mut divided = self.policies.iter().filter(|it| it.fairness().is_some());
        let Some(policy) = divided.next() else {
            return Ok(());
        };
        for fair in self.policies.iter().filter_map(Policy::fairness) {
            fair.check_plans(self.plans.as_ref())?;
        }
        let has_hours = self.policies.iter().any(|it| it.algorithm().has_hours());
        let unfit = [
            (
                !self.store.divides_limits(),
                "keep the state in this process, by a `MemoryStore`, in Redis, or in items of which several can change at once: this store does not divide limits among tenants",
            ),
            (
                !self.groups.is_empty(),
                "leave out `first_of`, or leave out `fair`: who pays is chosen without a look at shares",
            ),
            (
                has_hours,
                "leave the hours out of all policies, or leave out `fair`: what a tenant waits for is counted out without hours",
            ),
            (
                self.later.is_adjustable,
                "leave out `adjustable`, or leave out `fair`: shares are parts of a limit that stays as it is",
            ),
        ];
        match unfit.into_iter().find(|(is_unfit, _)| *is_unfit) {
            Some((_, remedy)) => Err(ConfigError::quoting("fair", policy.name(), remedy)),
            None => Ok(()),
        }
    }

    /// Rejects a guarantee beside what does not know of it.
    fn check_keeping(&self) -> Result<(), ConfigError> {
        let mut policies = self.policies.iter();
        let Some(policy) = policies.find(|it| it.guarantee().is_some()) else {
            return Ok(());
        };
        let has_hours = self.policies.iter().any(|it| it.algorithm().has_hours());
        let unfit = [
            (
                !self.store.keeps_guarantees(),
                "keep the state in this process, by a `MemoryStore`, in Redis, or in items of which several can change at once, or leave `guaranteed` out: this store keeps no guarantees",
            ),
            (
                !self.groups.is_empty(),
                "leave out `first_of`, or leave out `guaranteed`: who pays is chosen without a look at guarantees",
            ),
            (
                has_hours,
                "leave the hours out of all policies, or leave out `guaranteed`: what a request waits for is counted out without hours",
            ),
        ];
        match unfit.into_iter().find(|(is_unfit, _)| *is_unfit) {
            Some((_, remedy)) => Err(ConfigError::quoting("guaranteed", policy.name(), remedy)),
            None => Ok(()),
        }
    }
}

impl LimiterBuilder {
    /// Builds a limiter whose verbs also answer at once, by [`now`](super::Ask::now), because its state is in this
    /// process.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_local(self) -> Result<LocalLimiter, ConfigError> {
        self.open(true).map(|(limiter, _)| limiter)
    }
}

/// Returns the share of one of `nodes` nodes without a shared store.
fn split(
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
    let share = |policy: Policy| {
        let share = policy.algorithm().shared_by(over);
        let policy = policy.limited_by(share).with_guarantee_shared_by(over);
        policy.with_reserve_shared_by(over)
    };
    Ok(policies.into_iter().map(share).collect())
}

/// Rejects an empty list, and policies with the same name.
fn check_policies(policies: &[Policy]) -> Result<(), ConfigError> {
    if policies.is_empty() {
        let remedy = "add a policy with `.policy(Policy::new(name, algorithm))`";
        return Err(ConfigError::new("policies", "empty", remedy));
    }
    check_names(policies.iter().map(Policy::name))?;
    check_first_names(policies)?;
    policies.iter().try_for_each(Policy::check_mark)?;
    policies.iter().try_for_each(Policy::check_terms)?;
    policies.iter().try_for_each(Policy::check_patience)?;
    policies.iter().try_for_each(Policy::check_concurrency)?;
    policies.iter().try_for_each(Policy::check_fair)?;
    policies.iter().try_for_each(Policy::check_penalty)?;
    check_shares(policies)?;
    check_guarantees(policies)?;
    check_queues(policies)
}

/// Rejects policies that would share a state, and names of states that no policy can have had.
fn check_first_names(policies: &[Policy]) -> Result<(), ConfigError> {
    let is_renamed = |policy: &&Policy| policy.original_name() != policy.name();
    let renamed: Vec<&Policy> = policies.iter().filter(is_renamed).collect();
    if renamed.is_empty() {
        return Ok(());
    }
    let mut taken: HashMap<String, usize> = HashMap::new();
    for policy in policies {
        let first = policy.original_name().to_ascii_lowercase();
        let name = policy.name().to_ascii_lowercase();
        *taken.entry(first.clone()).or_default() += 1;
        if name != first {
            *taken.entry(name).or_default() += 1;
        }
    }
    for policy in renamed {
        let was = policy.original_name();
        check_names(std::iter::once(was))?;
        if !was.is_ascii() {
            let remedy = "name a policy with 1 to 64 printable characters of ASCII";
            return Err(ConfigError::quoting("renamed_from", was, remedy));
        }
        if taken[&was.to_ascii_lowercase()] > 1 {
            let remedy = "name a policy that no longer exists, and name it once";
            return Err(ConfigError::quoting("renamed_from", was, remedy));
        }
    }
    Ok(())
}

/// Rejects queues that could not keep their promise.
fn check_queues(policies: &[Policy]) -> Result<(), ConfigError> {
    let mut queues = policies.iter().filter(|policy| policy.shapes());
    let Some(queue) = queues.next() else {
        return Ok(());
    };
    if queue.is_soft() {
        let remedy =
            "let it not be soft: what is over its limit would overtake the requests that wait";
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
