//! The limiter: policies and a store that decide, without HTTP.
//!
//! The layers are thin shells around it. `charging.rs` makes the charges of a request, and `deciding.rs` asks the
//! backend about them. `verdict.rs` gives the layers the verdict on a request. The verbs have files of their own: each returns an
//! [`Ask`], and has one body for all stores.

mod adjusting;
mod amending;
mod ask;
mod background;
mod builder;
pub(crate) mod charging;
pub(crate) mod client_charges;
mod counting;
mod deciding;
mod either;
mod findings;
mod inspection;
pub(crate) mod limits;
mod monitored;
mod named;
mod on_drop;
mod overriding;
mod pointless;
pub(crate) mod policies;
mod prices;
mod queueing;
pub(crate) mod reservation;
mod reserving;
mod subject;
mod terms;
mod verbs;
pub(crate) mod verdict;
pub(crate) mod waiting;
mod weights;

use std::fmt;
use std::sync::Arc;

pub use self::adjusting::AdjustableLimit;
pub use self::ask::{Ask, Verb};
pub use self::builder::LimiterBuilder;
pub use self::inspection::Inspection;
pub use self::named::NamedPolicies;
pub use self::overriding::Override;
pub use self::reservation::Reservation;

pub(crate) use self::charging::Purpose;

pub(crate) use self::reservation::{RealCost, ReservationGuard};
pub(crate) use self::verdict::{ChargedRequest, Denial, LimiterVerdict, Numbers, PendingDecision};

pub(crate) use self::waiting::WaitingRoom;
use self::weights::Weights;
pub(crate) use crate::store::Charges;

pub(crate) use self::limits::{PreparedLimits, require_plan};

use self::counting::LimiterCounters;
use self::policies::{Policies, Shape};
use self::prices::Prices;
use self::reservation::{Lost, OnDropped, PendingOutcomes};
use self::terms::RequestTerms;
use crate::advice::Mistakes;
use crate::clock::Timers;
use crate::decision::Names;
use crate::error::StoreError;
use crate::observe::{Count, StoreHealth};
use crate::plan::LimitContext;
use crate::policy::{DeclaredModes, Groups, Mode, Modes, OnAbandoned, Policy, guaranteed_below};
use crate::store::{
    Amendment, Backend, Charge, Guarded, MemoryBackend, MemoryStore, Outlook, Reply,
};

/// Decides whether a request may go on, under one or more policies. It does not depend on HTTP.
///
/// Clones share their state and are cheap: two reference counts. A request is charged to every policy or to none: a
/// request that the last policy denies costs nothing under the first.
///
/// A `Limiter` has the same type over every store. [`LimiterBuilder::build`] gives it, and so do the handles of a
/// layer and of a file of limits. Its verbs are awaited: each returns an [`Ask`]. Those of a [`LocalLimiter`], which has
/// its state in this process, also answer without `await`.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::{FixedWindow, Limiter, Policy, TokenBucket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter: Limiter = Limiter::builder()
///     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)))
///     .policy(Policy::new("daily", FixedWindow::per_day(10_000)))
///     .build()?;
///
/// assert!(limiter.check("ann", 20).await?.is_allowed());
/// assert!(!limiter.check("ann", 20).await?.is_allowed());
/// assert!(limiter.check("bob", 20).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub struct Limiter<L: ?Sized = dyn Backend> {
    policies: Arc<Policies>,
    /// The plan and the operation of the requests, if they are set.
    context: Option<Arc<LimitContext>>,
    backend: Guarded<L>,
}

/// A limiter with its state in this process, whose verbs also answer at once: see [`Ask::now`].
///
/// [`LimiterBuilder::build_local`] gives it. [`erased`](Limiter::erased), or `into()`, makes it a [`Limiter`] with the
/// same state.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::{FixedWindow, Limiter, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("burst", TokenBucket::per_second(10).burst(20)))
///     .policy(Policy::new("daily", FixedWindow::per_day(10_000)))
///     .build_local()?;
///
/// assert!(limiter.check("ann", 20).now().is_allowed());
/// assert!(!limiter.check("ann", 20).now().is_allowed());
/// assert!(limiter.check("bob", 20).now().is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
pub type LocalLimiter = Limiter<MemoryBackend>;

impl<L: Backend + ?Sized> Limiter<L> {
    /// Returns whether it is the same limiter, and not another one over the same state.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let asks_alike = self.context.is_none() && other.context.is_none();
        asks_alike && Arc::ptr_eq(&self.policies, &other.policies)
    }

    /// Changes the states of keys, and returns what [`Backend::amend`] answers.
    pub(crate) fn amended(
        &self,
        charges: &[Charge],
        amendment: Amendment,
    ) -> Reply<Result<bool, StoreError>> {
        match amendment {
            Amendment::Settle => self.policies.count_corrected(charges, Some(Count::Cost)),
            Amendment::Refund => self
                .policies
                .count_corrected(charges, Some(Count::Refunded)),
            _ => {}
        }
        self.backend.amend(charges, amendment)
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        self.backend.outlook(charges)
    }

    /// Returns whether a request that ends without an answer may cost something other than its estimate.
    pub(crate) fn settles_the_unanswered(&self) -> bool {
        self.policies.on_abandoned.is_some()
    }

    /// Returns whether the requests of this policy wait for their turn.
    pub(crate) fn is_a_queue(&self, policy: usize) -> bool {
        let queue = self.policies.queue.as_ref();
        queue.is_some_and(|(queue, _)| *queue == policy)
    }

    /// Returns the switches of the policies' modes, which the limiter shares with its clones and its layer.
    pub fn modes(&self) -> Modes {
        self.policies.modes.modes().clone()
    }
}

impl<L: ?Sized> Limiter<L> {
    /// Returns what it shares with its clones: what its policies make of a request.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    #[inline]
    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// Returns the same limiter, over a backend of any kind.
    fn any(&self) -> Limiter {
        Limiter {
            policies: Arc::clone(&self.policies),
            context: self.context.clone(),
            backend: self.policies.backend.clone(),
        }
    }
}

impl LocalLimiter {
    /// Makes a limiter of policies with a name, an algorithm and nothing else, over a memory of its own. The program then
    /// contains no code for anything else.
    // For `RateLimitLayer::new`.
    #[doc(hidden)]
    pub fn of_plain(policies: &[Policy]) -> Self {
        let declared = policies.iter().map(Policy::declared_mode);
        Self::of(
            policies,
            Guarded::in_process(MemoryStore::new().backend(policies)),
            Mistakes::of(policies),
            PreparedLimits::of_one_each(),
            (Modes::new().declared(Mode::Enforce, declared), None),
            WaitingRoom::closed(),
        )
    }
}

impl<L: Backend> Limiter<L> {
    /// Makes a limiter from policies with checked names, and a backend that was opened for them.
    fn of(
        policies: &[Policy],
        backend: Guarded<L>,
        mistakes: Mistakes,
        PreparedLimits { limits, rules }: PreparedLimits,
        (modes, groups): (DeclaredModes, Option<Groups>),
        waiting: WaitingRoom,
    ) -> Self {
        let limited = policies.iter().enumerate();
        let limited: Vec<_> = limited
            .filter(|(_, policy)| policy.is_limited())
            .map(|(index, policy)| (index, policy.is_soft()))
            .collect();
        let terms = RequestTerms::of(policies);
        let named: Vec<_> = groups.iter().flat_map(Groups::names).collect();
        let penalties = policies.iter().map(Policy::named_penalty);
        let penalties = penalties.map(|named| Some(named?.penalty.refusals()));
        let has_penalties = penalties.clone().any(|of| of.is_some());
        let has_slots = policies
            .iter()
            .any(|policy| policy.algorithm().limits_concurrency());
        let prices = Prices::of(policies);
        let divided = policies.iter().enumerate();
        let divided = divided.filter(|(_, policy)| policy.fairness().is_some());
        let divided: Box<[usize]> = divided.map(|(place, _)| place).collect();
        let guaranteed = guaranteed_below(policies);
        let guaranteed = policies.iter().enumerate().filter_map(|(place, policy)| {
            let (_, below, _) = guaranteed.get(policy.shown_name())?;
            Some((place, *below))
        });
        let is_bare = !terms.are_any() && !has_slots && !has_penalties && divided.is_empty();
        let shape = match *limited {
            [(policy, false)] if !is_bare => Shape::One(policy),
            [(policy, false)] => match &limits {
                None if prices.are_any() => Shape::OnePriced(policy),
                None => Shape::OnePlain(policy),
                Some(limits) if prices.are_any() || limits.has_a_resolver() => Shape::One(policy),
                Some(_) => Shape::OneLimited(policy),
            },
            _ if groups.is_some() => Shape::Any,
            _ if limits.is_some() || terms.are_any() || prices.are_any() => Shape::Any,
            _ => Shape::SeveralPlain,
        };
        let weights = Weights::of(policies, limits.as_ref());
        let are_bare = limits.is_none() && !terms.are_any() && !has_slots && !prices.are_any();
        let timers = Timers::of(backend.clock());
        let on_abandoned: Box<[_]> = policies.iter().map(Policy::if_unsettled).collect();
        let all_keep_estimates = on_abandoned.iter().all(|it| *it == OnAbandoned::Estimate);
        Self {
            policies: Arc::new(Policies {
                queue: queueing::queue(policies, &timers),
                waits: waiting.open(policies, &timers),
                store: StoreHealth::default(),
                timers,
                names: Arc::new(
                    Names::new(policies.iter().map(Policy::rule), rules).with_groups(named),
                ),
                groups,
                limits,
                algorithms: policies.iter().map(|policy| *policy.algorithm()).collect(),
                limited,
                shape,
                are_bare,
                mistakes,
                terms,
                has_slots,
                prices,
                weights,
                divided,
                guaranteed: guaranteed.collect(),
                counted: LimiterCounters::new(policies),
                on_abandoned: (!all_keep_estimates).then_some(on_abandoned),
                lost: Lost::default(),
                penalties: penalties.collect(),
                modes,
                backend: backend.clone().erased(),
            }),
            context: None,
            backend,
        }
    }

    /// Returns the same limiter, with the type that all limiters share.
    pub fn erased(self) -> Limiter {
        Limiter {
            policies: self.policies,
            context: self.context,
            backend: self.backend.erased(),
        }
    }
}

/// See [`Limiter::erased`].
impl<L: Backend> From<Limiter<L>> for Limiter {
    fn from(limiter: Limiter<L>) -> Self {
        limiter.erased()
    }
}

impl<L: ?Sized> Clone for Limiter<L> {
    fn clone(&self) -> Self {
        Self {
            policies: Arc::clone(&self.policies),
            context: self.context.clone(),
            backend: self.backend.clone(),
        }
    }
}

impl<L: fmt::Debug + ?Sized> fmt::Debug for Limiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.policies)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}
