use std::time::Duration;

use http::StatusCode;

use super::RateLimitLayer;
use super::gate::Gate;
use super::lists::Lists;
use crate::error::ConfigError;
use crate::key::{Head, Secret};
use crate::limiter::{check_policies, split};
use crate::policy::{Http, Keyed, Policy, warn_of_those_that_never_bind};
#[cfg(feature = "tonic")]
use crate::response::Grpc;
use crate::response::{AnswerOptions, Answers, Dialect, RefusalBody};
use crate::store::{MemoryStore, Store};

/// Puts a [`RateLimitLayer`] together; see [`RateLimitLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimitLayerBuilder<S = MemoryStore> {
    policies: Vec<Policy<Http>>,
    store: S,
    lists: Lists,
    answers: AnswerOptions,
    exposes_decision: bool,
    wait_places: u32,
    nodes: u32,
}

impl RateLimitLayerBuilder {
    pub(super) fn new() -> Self {
        Self {
            policies: Vec::new(),
            store: MemoryStore::new(),
            lists: Lists::default(),
            answers: AnswerOptions::default(),
            exposes_decision: false,
            wait_places: 10_000,
            nodes: 1,
        }
    }
}

impl<S> RateLimitLayerBuilder<S> {
    /// Adds a policy. All policies that apply are asked about a request, and it is charged to
    /// all of them or to none.
    pub fn policy<R: Keyed>(mut self, policy: Policy<R>) -> Self {
        self.policies.push(R::keyed(policy));
        self
    }

    /// Adds policies, as [`policy`](Self::policy) does.
    pub fn policies<R: Keyed>(mut self, policies: impl IntoIterator<Item = Policy<R>>) -> Self {
        self.policies.extend(policies.into_iter().map(R::keyed));
        self
    }

    /// Keeps state in this store.
    pub fn store<T: Store>(self, store: T) -> RateLimitLayerBuilder<T> {
        RateLimitLayerBuilder {
            policies: self.policies,
            store,
            lists: self.lists,
            answers: self.answers,
            exposes_decision: self.exposes_decision,
            wait_places: self.wait_places,
            nodes: self.nodes,
        }
    }

    /// Lets this node take its share of every limit, of so many nodes that serve the same clients and share
    /// no store: see [`LimiterBuilder::split_over`](crate::limiter::LimiterBuilder::split_over), which says what
    /// they then may admit together. Clients are told the share.
    pub fn split_over(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    /// Lets requests of these paths go on, without a limit and without fields: the probes of a load
    /// balancer, say, which must not find the service gone because they ask often.
    ///
    /// A path is compared as it is sent, whole and without its query. Within a router that is
    /// nested in another, axum has cut the outer part off.
    pub fn exempt_paths<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        for path in paths {
            self.lists.exempt_path(path.into());
        }
        self
    }

    /// Lets requests for which this holds go on, without a limit and without fields. May be said
    /// several times.
    ///
    /// The extractors of [`key`](crate::key) make conditions of lists, and any closure is one:
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

    /// Refuses requests for which this holds with `403 Forbidden`, before any policy is asked and
    /// whatever else allows them. May be said several times.
    pub fn deny(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.lists.deny(condition);
        self
    }

    /// Tells limits in these dialects; unless said, in [`Dialect::Draft11`] alone.
    ///
    /// Dialects that share a field cannot be sent together. None at all is
    /// [`without_fields`](Self::without_fields).
    pub fn dialects(mut self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        self.answers.dialects = dialects.into_iter().collect();
        self
    }

    /// Leaves the fields that tell limits out of all responses, as where clients are not to learn
    /// theirs. A refusal still has its `Retry-After` and its body.
    ///
    /// A request that is allowed then costs less: the store is asked for no numbers of it
    /// ([`Ledger::admit`](crate::store::Ledger::admit)), unless
    /// [`expose_decision`](Self::expose_decision) wants them.
    pub fn without_fields(self) -> Self {
        self.dialects([])
    }

    /// Leaves the fields out of responses whose `Cache-Control` has `public` or `s-maxage`: a
    /// shared cache would tell one client's numbers to others.
    ///
    /// Such a cache may keep a response with a `max-age` or `Expires` too, unless it says
    /// `private` or the request had an `Authorization` (RFC 9111, section 3).
    pub fn without_fields_if_public(mut self) -> Self {
        self.answers.fields_unless_public = true;
        self
    }

    /// The status of a refusal by a policy, 400 to 599; 429 unless said.
    ///
    /// Clients that know nothing else of rate limits know that 429 and 503 can be tried again.
    /// Requests that are refused for other reasons keep their status: see
    /// [`Refusal`](crate::response::Refusal).
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.answers.refusal_status = status;
        self
    }

    /// The body of a refusal by a policy; [`RefusalBody::Problem`] unless said.
    pub fn refusal_body(mut self, body: RefusalBody) -> Self {
        self.answers.refusal_body = body;
        self
    }

    /// Adds a random number of whole seconds, 0 to `most`, to the `Retry-After` of each refusal by
    /// a policy; none unless said.
    ///
    /// Clients that were refused in one window then come back one after the other. No other time
    /// is changed: `t` and resets say when the request can pass, and `Retry-After` is never earlier.
    pub fn retry_jitter(mut self, most: Duration) -> Self {
        self.answers.retry_jitter = most;
        self
    }

    /// Adds `pk`, the partition key of draft 11, to the items of both fields: 128 bits of a hash of
    /// the policy's key with this secret, by which a client sees which of its requests are counted
    /// together, and nobody sees the key. Off unless said; the other dialects have no place for it.
    ///
    /// It is one more thing by which a client can be recognized again, and so do not ask for it
    /// where a shared cache may keep a response.
    pub fn partition_keys(mut self, secret: &Secret) -> Self {
        self.answers.partition_secret = Some(secret.clone());
        self
    }

    /// How many requests may wait for their turn at the same time, of all keys and under all policies
    /// that [let them](Policy::wait_up_to); 10,000 unless said. Whoever comes when they do is refused
    /// at once, as if no policy waited. Those that a [`LeakyQueue`](crate::LeakyQueue) holds are not counted.
    ///
    /// It bounds the memory that they take: a request and a timer each.
    pub fn wait_places(mut self, places: u32) -> Self {
        self.wait_places = places;
        self
    }

    /// How calls of gRPC are refused; [`Grpc::detected`] unless said.
    #[cfg(feature = "tonic")]
    pub fn grpc(mut self, grpc: Grpc) -> Self {
        self.answers.grpc = grpc;
        self
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of each request that goes on,
    /// for handlers to read; off unless said, since it allocates.
    ///
    /// A request to which no policy applied gets none; where layers are stacked, what is there is
    /// the decision of the innermost layer that was asked.
    pub fn expose_decision(mut self) -> Self {
        self.exposes_decision = true;
        self
    }
}

#[cfg(feature = "tonic")]
impl<S> RateLimitLayerBuilder<S> {
    /// Refuses what an interceptor cannot do.
    pub(super) fn check_for_interceptor(&self) -> Result<(), ConfigError> {
        if let Some(path) = self.lists.exempt_paths().first() {
            let remedy =
                "leave it out, since an interceptor is not told the path, or build a layer";
            return Err(ConfigError::quoting("exempt_paths", path, remedy));
        }
        let mut policies = self.policies.iter();
        if let Some(patient) = policies.find(|policy| policy.patience().is_any()) {
            let remedy = "leave it out, since an interceptor cannot hold a call, or build a layer";
            return Err(ConfigError::quoting("wait_up_to", patient.name(), remedy));
        }
        match self.policies.iter().find(|policy| policy.shapes()) {
            None => Ok(()),
            Some(queue) => {
                let remedy = "build a layer, since an interceptor cannot hold a call, or give the policy an algorithm that only counts";
                Err(ConfigError::quoting("leaky queue", queue.name(), remedy))
            }
        }
    }

    /// Takes every request for a call.
    pub(super) fn all_calls(mut self) -> Self {
        self.answers.grpc.take_all();
        self
    }
}

impl<S: Store> RateLimitLayerBuilder<S> {
    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// When there is no policy, when a name cannot stand in a header field or is there twice,
    /// when the store cannot hold a policy exactly, when two dialects share a field, when a status
    /// of refusals is not that of an error, when a soft policy is to wait, when the jitter is not whole seconds,
    /// when a message of gRPC is too long, when limits are split over no node or over those that share a
    /// store, and when an exempt path cannot be one.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        self.build_gate().map(RateLimitLayer::of)
    }

    pub(super) fn build_gate(self) -> Result<Gate, ConfigError> {
        self.lists.check()?;
        self.policies.iter().try_for_each(Policy::check)?;
        if self.store.is_shared() {
            self.policies
                .iter()
                .for_each(Policy::warn_if_of_this_process);
        }
        let scopes: Vec<_> = self.policies.iter().map(Policy::<Http>::scope).collect();
        warn_of_those_that_never_bind(&scopes);
        let (policies, readers): (Vec<_>, Vec<_>) =
            self.policies.into_iter().map(Policy::split).unzip();
        check_policies(&policies)?;
        self.answers.check()?;
        let policies = split(policies, self.nodes, &self.store)?;
        let ledger = self.store.open(&policies)?;
        let answers = Answers::new(self.answers, &policies);
        let mut gate = Gate::new(&policies, readers, ledger, answers);
        gate.look_up_in(self.lists);
        gate.bound_those_who_wait(self.wait_places);
        if self.exposes_decision {
            gate.expose_decision();
        }
        Ok(gate)
    }
}
