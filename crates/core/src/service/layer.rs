//! The layer for services of any kind.
//!
//! It reads a request by closures alone, so it needs no feature and no HTTP types.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use tower_layer::Layer;
use tower_service::Service;

use super::{Limit, Refused};
use crate::decision::Outcomes;
use crate::key::{IntoKey, Key};
use crate::limiter::{Charges, Limiter, Purpose, RealCost, ReservationGuard};
use crate::plan::{Finding, PlanLookup, PlanOf, Resolver, ResolverOf, Sources, Subject};
use crate::store::Charge;

/// Limits the rate of requests to any service, and refuses requests over the limit with a closure.
///
/// `Q` is the request, `T` the response and `E` the error of the service, so the type has a name:
/// `LimitLayer<Mail, Receipt, BoxError>`. Clones, and all services that they wrap, share one state.
/// See the [module](crate::service) for examples.
///
/// # Defaults
///
/// - cost: 1, which is not [settled](Self::settle)
pub struct LimitLayer<Q, T, E> {
    rules: Rules<Q, T, E>,
}

/// A whole request, for the closures that find its plan.
pub(super) struct Whole<Q>(PhantomData<Q>);

impl<Q> Subject for Whole<Q> {
    type Of<'a> = Q;
}

/// Returns the present limiter.
type Current = Arc<dyn Fn() -> Limiter + Send + Sync>;

/// A closure that reads a value from a request.
type Reader<Q, T> = Arc<dyn Fn(&Q) -> T + Send + Sync>;

/// Returns the cost of a request by its answer.
type RealCostOf<T, E> = dyn Fn(Result<&T, &E>) -> Option<u32> + Send + Sync;

/// The charges and slots that a request holds until its answer, and the rules that settle them. A request that is dropped
/// before that has no answer.
pub(super) type CallGuard<Q, T, E> = (ReservationGuard, Arc<Rules<Q, T, E>>);

pub(super) struct Rules<Q, T, E> {
    pub(super) limiter: Limiter,
    /// `None` if the limiter never changes.
    current: Option<Current>,
    key: Reader<Q, Key>,
    cost: Option<Reader<Q, u32>>,
    sources: Sources<Whole<Q>>,
    operation: Option<Reader<Q, Option<Key>>>,
    refuse: Arc<dyn Fn(Refused) -> Result<T, E> + Send + Sync>,
    real_cost: Option<Arc<RealCostOf<T, E>>>,
}

impl<Q, T, E> LimitLayer<Q, T, E> {
    /// Creates a layer that decides each request by this limiter.
    ///
    /// `key` returns the key of a request, and all policies of the limiter count it. To count requests
    /// without a key together, return [`Key::MISSING`] for them. `refuse` returns the result for a refused
    /// request: `Ok` with a response, or `Err` with an error.
    pub fn new<K: IntoKey>(
        limiter: impl Into<Limiter>,
        key: impl Fn(&Q) -> K + Send + Sync + 'static,
        refuse: impl Fn(Refused) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rules: Rules {
                limiter: limiter.into(),
                current: None,
                key: Arc::new(move |request| key(request).into_key()),
                cost: None,
                sources: Sources::default(),
                operation: None,
                refuse: Arc::new(refuse),
                real_cost: None,
            },
        }
    }

    /// Creates a layer that decides each request by the present limiter: `limiter` is called for each
    /// request, and has to be fast. `key` and `refuse` are as in [`new`](Self::new). A request keeps its
    /// limiter until it is answered.
    ///
    /// With [`Watched::limiter`][limiter]
    /// of the crate `tower-ratelimit-config`, the limits of any service follow a file. Here, code replaces the limiter:
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use std::sync::{Arc, RwLock};
    ///
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_ratelimit::{FixedWindow, LimitLayer, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// // Limiters over one store share the state of policies with the same name.
    /// let store = MemoryStore::new();
    /// let limiter = |most| {
    ///     let policy = Policy::new("mails", FixedWindow::per_day(most));
    ///     Limiter::builder().policy(policy).store(store.clone()).build()
    /// };
    /// let current = Arc::new(RwLock::new(limiter(1)?));
    /// let present = Arc::clone(&current);
    /// let present = move || present.read().unwrap().clone();
    /// let limit = LimitLayer::following(present, |_: &&str| "ann", |refused| Err(refused.into()));
    /// let send = limit.layer(service_fn(async |mail: &str| Ok::<_, BoxError>(mail.len())));
    ///
    /// assert!(send.clone().oneshot("hello").await.is_ok());
    /// assert!(send.clone().oneshot("hello").await.is_err());
    /// *current.write().unwrap() = limiter(2)?;
    /// assert!(send.oneshot("hello").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [limiter]: https://docs.rs/tower-ratelimit-config/latest/tower_ratelimit_config/struct.Watched.html#method.limiter
    pub fn following<K: IntoKey>(
        limiter: impl Fn() -> Limiter + Send + Sync + 'static,
        key: impl Fn(&Q) -> K + Send + Sync + 'static,
        refuse: impl Fn(Refused) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let mut layer = Self::new(limiter(), key, refuse);
        layer.rules.current = Some(Arc::new(limiter));
        layer
    }

    /// Sets how many units a request takes; the default is 1.
    ///
    /// A request of cost 0 is counted by no policy, and refused only if its key is blocked.
    pub fn cost(mut self, cost: impl Fn(&Q) -> u32 + Send + Sync + 'static) -> Self {
        self.rules.cost = Some(Arc::new(cost));
        self
    }

    /// Settles each request at its real cost, which the closure computes from the answer of the inner
    /// service. The [`cost`](Self::cost) is then an estimate, and stays charged if the closure returns
    /// `None`.
    ///
    /// A request whose future is dropped before the answer, or panics, costs what
    /// [`Policy::on_abandoned`](crate::Policy::on_abandoned) says. All policies of the limiter are
    /// settled at the same cost, except for a [`LeakyQueue`](crate::LeakyQueue), whose places are not
    /// settled. See [`Reservation`](crate::limiter::Reservation) for what a settlement does.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_ratelimit::{FixedWindow, LimitLayer, Limiter, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// let rows = Policy::new("rows", FixedWindow::per_hour(1_000));
    /// let limiter = Limiter::builder().policy(rows).build_local()?;
    /// let limit = LimitLayer::new(limiter.clone(), |_: &&str| "ann", |refused| Err(refused.into()))
    ///     .cost(|_| 100)
    ///     .settle(|answer: Result<&Vec<&str>, &BoxError>| u32::try_from(answer.ok()?.len()).ok());
    ///
    /// let query = limit.layer(service_fn(async |_: &str| Ok::<_, BoxError>(vec!["a", "b"])));
    /// query.oneshot("SELECT name").await?;
    /// assert_eq!(limiter.peek("ann", 0).now().binding().unwrap().1.used(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle(
        mut self,
        real_cost: impl Fn(Result<&T, &E>) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        self.rules.real_cost = Some(Arc::new(real_cost));
        self
    }

    /// Sets a closure that returns the name of a request's plan. `None`, and a name without a plan, stand for
    /// the default plan.
    ///
    /// The limiter has the [plans](crate::limiter::LimiterBuilder::plans). Without this, they find the plan
    /// by the key.
    pub fn plan<R: AsRef<str>>(
        mut self,
        plan: impl Fn(&Q) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        self.rules.sources.plan_of = Some(PlanOf::<Whole<Q>>::new(plan));
        self
    }

    /// Sets a resolver that finds the plan or the limits of a request by its customer. `customer` reads what
    /// the resolver looks up; a request for which it returns `None` is not looked up. Without this, the
    /// limiter's [resolver](crate::limiter::LimiterBuilder::resolver) finds them by the key.
    ///
    /// The limiter has the [plans](crate::limiter::LimiterBuilder::plans_by_name) that the resolver names, or
    /// [takes limits](crate::limiter::LimiterBuilder::takes_resolved_limits). A plan that the resolver names comes
    /// before that of [`plan`](Self::plan). A request waits for a lookup before anything is charged.
    pub fn resolver<K>(
        mut self,
        resolver: Resolver<K>,
        customer: impl Fn(&Q) -> Option<K> + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        self.rules.sources.resolver = Some(ResolverOf::<Whole<Q>>::new(resolver, customer));
        self
    }

    /// Sets the [operation](crate::Policy::operations) of a request.
    pub fn operation<K: IntoKey>(
        mut self,
        operation: impl Fn(&Q) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        self.rules.operation = Some(Arc::new(move |request| {
            operation(request).map(IntoKey::into_key)
        }));
        self
    }
}

impl<Q, T, E> Rules<Q, T, E> {
    /// Returns these rules with the present limiter, if that has changed.
    pub(super) fn newest(&self) -> Option<Arc<Self>> {
        let limiter = (self.current.as_ref()?)();
        let newest = || {
            Arc::new(Self {
                limiter: limiter.clone(),
                ..self.clone()
            })
        };
        (!limiter.is(&self.limiter)).then(newest)
    }

    /// Looks up this request.
    pub(super) fn look(&self, request: &Q) -> Option<PlanLookup> {
        if self.sources.resolver.is_some() {
            return self.sources.look(request);
        }
        let is_by_key = self.sources.plan_of.is_none() && self.limiter.has_a_resolver();
        is_by_key.then(|| self.limiter.look(&(self.key)(request)))?
    }

    /// Returns whether requests are held until their answers.
    pub(super) fn settles(&self) -> bool {
        self.real_cost.is_some()
            || self.limiter.settles_the_unanswered()
            || self.limiter.has_slots()
    }

    /// Holds the charges of an allowed request, if any of them has to be settled.
    pub(super) fn guard(
        self: &Arc<Self>,
        charges: &[Charge],
        outcomes: &Outcomes,
    ) -> Option<Box<CallGuard<Q, T, E>>> {
        self.settles().then(|| {
            let is_held = |charge: &Charge| charge.is_reserved;
            let reservation = ReservationGuard::of(&self.limiter, charges, is_held, outcomes);
            Box::new((reservation, Arc::clone(self)))
        })
    }

    /// Settles a request at the cost in its answer.
    pub(super) fn settle(&self, reservation: &mut ReservationGuard, answer: Result<&T, &E>) {
        let units = self.real_cost.as_ref().and_then(|cost| cost(answer));
        let cost = units.map_or(RealCost::Estimate, RealCost::Units);
        reservation.settle(|_| cost);
    }

    /// Returns the charges of this request, with this finding of a resolver.
    pub(super) fn read(&self, request: &Q, finding: Option<&Finding>) -> Charges {
        let key = (self.key)(request);
        let cost = self.cost.as_ref().map_or(1, |cost| cost(request));
        let mut context = self.limiter.context();
        let choose = |limits: &_| self.sources.choose(request, limits);
        let plan = self.limiter.policies().plan_by(finding, choose);
        context.plan = plan.or(context.plan);
        if let Some(operation) = &self.operation {
            context.operation = operation(request);
        }
        let limiter = &self.limiter;
        let settles = self.settles();
        let purpose = Purpose::Reserve;
        let readers = limiter.readers_alike(context, (key, cost), purpose, finding);
        let readers = readers.map(|(policy, reads)| {
            // The places of a queue are not settled: a request behind has moved up already, or not.
            let is_reserved = settles && !limiter.is_a_queue(policy);
            (policy, reads.reserved(is_reserved))
        });
        let mut charges = Charges::new();
        let Ok(()) = limiter
            .policies()
            .charges_for(readers, purpose, &mut (), &mut charges);
        charges
    }

    pub(super) fn refuse(&self, refused: Refused) -> Result<T, E> {
        (self.refuse)(refused)
    }
}

impl<S: Service<Q>, Q> Layer<S> for LimitLayer<Q, S::Response, S::Error> {
    type Service = Limit<S, Q>;

    fn layer(&self, inner: S) -> Limit<S, Q> {
        Limit::new(inner, Arc::new(self.rules.clone()))
    }
}

impl<Q, T, E> Clone for Rules<Q, T, E> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            current: self.current.clone(),
            key: Arc::clone(&self.key),
            cost: self.cost.clone(),
            sources: self.sources.clone(),
            operation: self.operation.clone(),
            refuse: Arc::clone(&self.refuse),
            real_cost: self.real_cost.clone(),
        }
    }
}

impl<Q, T, E> Clone for LimitLayer<Q, T, E> {
    fn clone(&self) -> Self {
        Self {
            rules: self.rules.clone(),
        }
    }
}

impl<Q, T, E> fmt::Debug for LimitLayer<Q, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("limiter", &self.rules.limiter)
            .finish_non_exhaustive()
    }
}
