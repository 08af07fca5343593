//! The builder of the layer.
//!
//! It only collects options. `build` checks all of them in one place, and an error names the option.

mod build;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use tower_ratelimit_core::__internal::{PlanOf, ResolverOf, Sources};

use super::hooks::Hooks;
use super::lists::Lists;
use super::plan_of;
use crate::decision::Decision;
use crate::key::{Head, Key, Secret};
use crate::limiter::{Limiter, LimiterBuilder};
use crate::plan::{Plans, Resolver};
use crate::policy::{Http, Keyed, Mode, Modes, Policy};
#[cfg(feature = "tonic")]
use crate::response::Grpc;
use crate::response::{AnswerOptions, Dialect, RefusalBody};
use crate::store::{MemoryStore, Store};

/// Builds a [`RateLimitLayer`](crate::RateLimitLayer); see [`RateLimitLayer::builder`](crate::RateLimitLayer::builder).
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimitLayerBuilder<S = MemoryStore> {
    /// All options but the policies, which read requests of HTTP.
    limiter: LimiterBuilder<S>,
    policies: Vec<Policy<Http>>,
    sources: Sources<Head<'static>>,
    lists: Lists,
    answers: AnswerOptions,
    exposes_decision: bool,
    hooks: Hooks,
}

impl RateLimitLayerBuilder {
    pub(super) fn new() -> Self {
        Self {
            limiter: Limiter::builder(),
            policies: Vec::new(),
            sources: Sources::default(),
            lists: Lists::default(),
            answers: AnswerOptions::default(),
            exposes_decision: false,
            hooks: Hooks::default(),
        }
    }
}

impl<S> RateLimitLayerBuilder<S> {
    /// Adds a policy. A request is charged to all policies that apply, or to none.
    pub fn policy<R: Keyed>(mut self, policy: Policy<R>) -> Self {
        self.policies.push(R::keyed(policy));
        self
    }

    /// Adds policies, as [`policy`](Self::policy) does.
    pub fn policies<R: Keyed>(mut self, policies: impl IntoIterator<Item = Policy<R>>) -> Self {
        self.policies.extend(policies.into_iter().map(R::keyed));
        self
    }

    /// Declares that one of these policies pays for a request: the first that has room is charged, and the others are left
    /// alone.
    ///
    /// A policy that does not apply, or has no key for the request, is passed over. Responses tell of the policy that pays, and
    /// `expose_decision` tells the handler: [`Decision::payer`]. See [`LimiterBuilder::first_of`] and the page
    /// [`either_or`](crate::guide::either_or) of the guide.
    pub fn first_of(
        mut self,
        name: impl Into<String>,
        policies: impl IntoIterator<Item: Into<String>>,
    ) -> Self {
        self.limiter = self.limiter.first_of(name, policies);
        self
    }

    /// Lets what an answer costs beyond its [estimate](Policy::estimate) go from member to member of this group of
    /// [`first_of`](Self::first_of): [`LimiterBuilder::spill`] says how.
    ///
    /// The real cost is that of the member that has paid, as its [`settle`](Policy::settle) reads it from the answer.
    pub fn spill(mut self, group: impl Into<String>) -> Self {
        self.limiter = self.limiter.spill(group);
        self
    }

    /// Sets the plans, and a closure that returns the name of a request's plan, for example from the
    /// extension that authentication adds. `None`, and a name without a plan, stand for the default plan.
    ///
    /// Take the plan from a verified source. A client that chooses its plan by a header has the largest one.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use tower_ratelimit::key::{self, Head};
    /// use tower_ratelimit::plan::{Plan, Plans};
    /// use tower_ratelimit::{AnchoredWindow, Policy, RateLimitLayer};
    ///
    /// /// The authentication layer, outside this one, puts it into the extensions of the request.
    /// #[derive(Clone)]
    /// struct Customer {
    ///     id: u64,
    ///     plan: Arc<str>,
    /// }
    ///
    /// let plans = Plans::new([
    ///     Plan::new("free").limit("minute", AnchoredWindow::per_minute(10)),
    ///     Plan::new("pro").limit("minute", AnchoredWindow::per_minute(100)),
    /// ]);
    /// let customer = key::extension::<Customer>().map(|customer: &Customer| customer.id);
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("minute", AnchoredWindow::per_minute(10)).key(customer))
    ///     .plans(plans, |head: &Head<'_>| {
    ///         let customer = head.extension::<Customer>()?;
    ///         Some(Arc::clone(&customer.plan))
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn plans<R: AsRef<str>>(
        self,
        plans: Plans,
        plan_of: impl Fn(&Head<'_>) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        self.plans_of(plans, plan_of::compared(plan_of))
    }

    fn plans_of(mut self, plans: Plans, plan_of: PlanOf<Head<'static>>) -> Self {
        self.sources.plan_of = Some(plan_of);
        self.plans_by_name(plans)
    }

    /// Sets the plans for a resolver, which names the plan of a request. A request without a named plan has
    /// the default plan.
    pub fn plans_by_name(mut self, plans: Plans) -> Self {
        self.limiter = self.limiter.plans_by_name(plans);
        self
    }

    /// Sets a resolver that finds the plan or the limits of a request by its customer. `customer` reads what
    /// the resolver looks up; a request for which it returns `None` is not looked up. A plan that the
    /// resolver names comes before that of [`plans`](Self::plans).
    ///
    /// The request waits for a lookup before anything is charged, and meanwhile does not use the readiness of
    /// the inner service. An interceptor cannot wait: it uses what is known already, or else the default
    /// plan.
    ///
    /// A resolver keeps what `customer` returns, so bound its length: a header value may be as long as the
    /// server allows.
    ///
    /// See [`Resolver`](crate::plan::Resolver) for an example.
    pub fn resolver<K>(
        mut self,
        resolver: Resolver<K>,
        customer: impl Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        self.sources.resolver = Some(ResolverOf::<Head<'_>>::new(resolver, customer));
        self
    }

    /// Sets what looks customers up, in place of a resolver.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn looking_up_by(mut self, looks: ResolverOf<Head<'static>>) -> Self {
        self.sources.resolver = Some(looks);
        self
    }

    /// Sets the store that keeps the state.
    pub fn store<T: Store>(self, store: T) -> RateLimitLayerBuilder<T> {
        RateLimitLayerBuilder {
            limiter: self.limiter.store(store),
            policies: self.policies,
            sources: self.sources,
            lists: self.lists,
            answers: self.answers,
            exposes_decision: self.exposes_decision,
            hooks: self.hooks,
        }
    }

    /// Lets limits change while they are in force, by [`Limiter::adjust_limit`](crate::Limiter::adjust_limit)
    /// of the layer's [limiter](crate::RateLimitLayer::limiter). A decision then reads one more number for
    /// each policy.
    pub fn adjustable(mut self) -> Self {
        self.limiter = self.limiter.adjustable();
        self
    }

    /// Divides every limit by the number of nodes that serve the same clients without a shared store.
    ///
    /// See [`LimiterBuilder::nodes`](crate::limiter::LimiterBuilder::nodes) for what all nodes together may
    /// admit. Clients see the share.
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.limiter = self.limiter.nodes(nodes);
        self
    }

    /// Lets requests of these paths go on without a limit and without headers.
    ///
    /// Use it for the probes of a load balancer, which are frequent and must always succeed. A path is
    /// compared as it is sent, whole and without its query. In a nested router, axum has removed the outer
    /// part.
    pub fn exempt_paths<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        for path in paths {
            self.lists.exempt_path(path.into());
        }
        self
    }

    /// Lets requests that match the condition go on without a limit and without headers. It may be
    /// called several times.
    ///
    /// Use a list by an extractor of [`key`](crate::key), or any closure:
    ///
    /// ```
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("address", TokenBucket::per_second(5)).key(key::client_ip()))
    ///     .exempt_paths(["/health", "/ready"])
    ///     .allow(|head| head.method() == "OPTIONS")
    ///     .deny(|head| head.header("user-agent").is_some_and(|agent| agent.contains("scraper")))
    ///     .build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn allow(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.lists.allow(condition);
        self
    }

    /// Refuses requests that match the condition with `403 Forbidden`, before any policy decides and even if
    /// something else allows them. It may be called several times.
    pub fn deny(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.lists.deny(condition);
        self
    }

    /// Sets the dialects of the rate limit headers; the default is [`Dialect::Draft11`] alone.
    ///
    /// Dialects with a common header cannot be sent together. An empty list is
    /// [`without_headers`](Self::without_headers).
    pub fn dialects(mut self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        self.answers.set_dialects(dialects);
        self
    }

    /// Leaves the rate limit headers out of all responses, if clients must not learn their limits.
    /// A refusal still has its `Retry-After` and its body.
    ///
    /// An allowed request then costs less, because the layer asks the store for the numbers of
    /// [refusals](crate::store::Wanted::Refusals) alone, unless
    /// [`expose_decision`](Self::expose_decision) needs the others.
    pub fn without_headers(self) -> Self {
        self.dialects([])
    }

    /// Leaves the headers out of responses whose `Cache-Control` has `public` or `s-maxage`,
    /// because a shared cache would tell the numbers of one client to others.
    ///
    /// A shared cache may also keep a response with `max-age` or `Expires`, unless it says
    /// `private` or the request has an `Authorization` header (RFC 9111, section 3).
    pub fn without_headers_if_public(mut self) -> Self {
        self.answers.write_unless_public();
        self
    }

    /// Sets the status of a refusal by a policy, from 400 to 599; the default is 429.
    ///
    /// Every client knows that it may try again after 429 and 503. Refusals for other reasons keep their
    /// status: see [`Refusal`](crate::response::Refusal).
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.answers.refusal_status = status;
        self
    }

    /// Sets the status of a refusal of a request that costs more than a policy ever admits, from 400 to 599, such as
    /// `413 Content Too Large`; the default is that of other refusals.
    ///
    /// Such a request is above the [ceiling](crate::Policy::most) or the limit of a policy, so no wait helps, and the
    /// response has no `Retry-After`. A gRPC call has the code of other refusals.
    ///
    /// ```
    /// use axum::{Router, body::Body, http::{Request, StatusCode}, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = Policy::new("rows", FixedWindow::per_hour(10_000))
    ///     .most(500)
    ///     .key(key::global())
    ///     .cost(|head| head.header("x-rows").and_then(|rows| rows.parse().ok()).unwrap_or(1));
    /// let limit = RateLimitLayer::builder()
    ///     .policy(rows)
    ///     .too_large_status(StatusCode::PAYLOAD_TOO_LARGE)
    ///     .build()?;
    /// let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
    /// let request = Request::get("/").header("x-rows", "501").body(Body::empty())?;
    /// let response = app.oneshot(request).await?;
    /// assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    /// assert!(!response.headers().contains_key("retry-after"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn too_large_status(mut self, status: StatusCode) -> Self {
        self.answers.too_large_status = Some(status);
        self
    }

    /// Sets the body of a refusal by a policy; the default is [`RefusalBody::Problem`].
    pub fn refusal_body(mut self, body: RefusalBody) -> Self {
        self.answers.refusal_body = body;
        self
    }

    /// Adds a random number of whole seconds, from 0 to `most`, to the `Retry-After` of each
    /// refusal by a policy; the default is none.
    ///
    /// Clients that were refused in one window then come back spread out. No other time changes: `t` and the
    /// resets say when the request can pass, and `Retry-After` is never earlier.
    pub fn retry_jitter(mut self, most: Duration) -> Self {
        self.answers.retry_jitter = most;
        self
    }

    /// Adds `pk`, the partition key of draft 11, to the items of both headers; off by default.
    ///
    /// It is 128 bits of a hash of the key with this secret. A client sees which of its requests
    /// are counted together, and cannot see the key. The other dialects have no place for it. A
    /// partition key also makes a client recognizable, so do not use it where a shared cache may
    /// keep a response.
    pub fn partition_keys(mut self, secret: &Secret) -> Self {
        self.answers.partition_by(secret);
        self
    }

    /// Sets how many requests may wait for their turn at the same time, for all keys and under all
    /// policies that [let them](Policy::wait_up_to); the default is 10,000.
    ///
    /// A request beyond that is refused at once, as if no policy waited. Requests that a
    /// [`LeakyQueue`](crate::LeakyQueue) holds are not counted. This bounds the memory of waiting
    /// requests: a request and a timer each. Requests of low priority that leave a [reserve](Policy::reserve) have
    /// as many places of their own.
    pub fn wait_places(mut self, places: u32) -> Self {
        self.limiter = self.limiter.wait_places(places);
        self
    }

    /// Sets the mode of all policies together, which can only weaken their own; the default is
    /// [`Mode::Enforce`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.limiter = self.limiter.mode(mode);
        self
    }

    /// Shares these switches, which change the modes of the policies. By default, the layer has [switches of
    /// its own](crate::RateLimitLayer::modes).
    pub fn modes(mut self, modes: &Modes) -> Self {
        self.limiter = self.limiter.modes(modes);
        self
    }

    /// Sets plans as [`plans`](Self::plans) does, and does not compare the plan of a request with its headers.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn verified_plans<R: AsRef<str>>(
        self,
        plans: Plans,
        plan_of: impl Fn(&Head<'_>) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        self.plans_of(plans, PlanOf::<Head<'_>>::new(plan_of))
    }

    /// Prepares the layer for requests that are replayed from a log, which names their keys and plans. No
    /// customer is looked up.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn for_a_log(mut self) -> Self {
        let policies = self.policies.into_iter();
        self.policies = policies.map(Policy::<Http>::for_a_log).collect();
        self.sources.plan_of = self.sources.plan_of.map(plan_of::or_logged);
        self.sources.resolver = None;
        self
    }

    /// Sets how gRPC calls are refused; the default is [`Grpc::detected`].
    #[cfg(feature = "tonic")]
    pub fn grpc(mut self, grpc: Grpc) -> Self {
        self.answers.grpc = grpc;
        self
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of each allowed request, for
    /// handlers to read; off by default, because it allocates.
    ///
    /// A request to which no policy applies gets none. If several layers are stacked, the extension is the
    /// decision of the innermost layer with a policy that applies.
    pub fn expose_decision(mut self) -> Self {
        self.exposes_decision = true;
        self
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of each response too, for outer layers to read; off by
    /// default, because it allocates.
    ///
    /// A response to a request to which no policy applies gets none. If several layers are stacked, the
    /// extension is the decision of the outermost layer with a policy that applies.
    ///
    /// ```
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{Decision, FixedWindow, Policy, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("all", FixedWindow::per_day(9)).key(key::global()))
    ///     .expose_decision_in_response()
    ///     .build()?;
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// let response = app.oneshot(Request::new(Body::empty())).await?;
    /// let decision = response.extensions().get::<Decision>().unwrap();
    /// assert_eq!(decision.binding().unwrap().1.remaining(), 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expose_decision_in_response(mut self) -> Self {
        self.hooks.in_response = true;
        self
    }

    /// Calls this with each decision, allowed or denied: with the head of the request, the key under the policy that
    /// [binds](crate::Decision::binding), and the decision. A layer has one such hook, and by default none.
    ///
    /// The hook runs on the path of the request, before the inner service: it has to be fast and must not
    /// block. It does not run for a request to which no policy applies, that has no key or is on a list, or
    /// that the store cannot decide. For a request that waits under [`wait_up_to`](Policy::wait_up_to) it
    /// runs once, when the wait is over.
    ///
    /// A key may be a secret of its client: take care where it goes.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("daily", FixedWindow::per_day(10_000)).key(key::client_ip()))
    ///     .on_decision(|head, key, decision| {
    ///         if !decision.is_allowed() {
    ///             println!("{} {key:?} {:?}", head.path(), decision.retry_after());
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn on_decision(
        mut self,
        hook: impl Fn(&Head<'_>, Key, &Decision) + Send + Sync + 'static,
    ) -> Self {
        self.hooks.on_decision = Some(Arc::new(hook));
        self
    }
}
