//! The charge of a request on arrival, and its settlement, for a policy of a layer.

mod ending;
mod estimate;
mod settle;
mod spend;

use std::sync::Arc;

use http::{Extensions, HeaderMap};

pub(crate) use self::ending::Ended;
pub use self::ending::Ending;
pub use self::settle::Settle;
pub(crate) use self::settle::{KnownCosts, ReportedCost};
pub use self::spend::{Cost, Spend};

use self::estimate::Estimate;
use super::{Http, Policy};
use crate::error::ConfigError;
use crate::key::Head;
use crate::usage::{Usage, UsageReader};

/// How a policy estimates and settles the cost of a request.
#[derive(Clone, Default)]
pub(crate) struct Settlement {
    estimate: Option<Estimate>,
    settle: Option<Settle>,
    charge_when: Option<Arc<When>>,
    refund_when: Option<Arc<When>>,
}

type When = dyn Fn(&Ending<'_>) -> bool + Send + Sync;

impl Policy<Http> {
    /// Sets how many units a request is charged on arrival; its real cost is [settled](Self::settle) at the
    /// end of the response.
    ///
    /// The estimate is the layer's own guess, so it is cut to the limit: a limit below it still admits
    /// requests. It is also cut to the limit of a [plan](crate::plan), and not to an
    /// [override](crate::Limiter::override_limit). The headers of a response have the numbers with the
    /// estimate, because they are sent before the end.
    pub fn estimate(mut self, units: u32) -> Self {
        self.reads.settlement_mut().estimate_by(units);
        self
    }

    /// Sets the estimate of each request by a closure, for example from a number in the request. If it
    /// returns `None`, the estimate is that of [`estimate`](Self::estimate), or 1.
    ///
    /// The result is not cut: above the limit, the request is refused as one that no wait helps. A result of 0
    /// counts as 1, so a request passes only if a unit is left.
    ///
    /// A handler that has to read the body for an estimate makes its own reservation:
    /// [`Limiter::reserve`](crate::Limiter::reserve).
    pub fn estimate_with<U: Into<Option<u32>>>(
        mut self,
        estimate: impl Fn(&Head<'_>) -> U + Send + Sync + 'static,
    ) -> Self {
        let estimate = move |head: &Head<'_>| estimate(head).into();
        self.reads
            .settlement_mut()
            .estimate_with(Arc::new(estimate));
        self
    }

    /// Sets where the real cost of a request is found: a [`Settle`], or with feature `usage` what the body of the response
    /// says, such as [`usage::openai()`](crate::usage::openai). If it is not found, the request costs its estimate.
    ///
    /// ```
    /// use axum::{Router, body::Body, routing::get};
    /// use http::Request;
    /// use tower::ServiceExt;
    /// use tower_ratelimit::policy::Settle;
    /// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = Policy::new("rows", FixedWindow::per_hour(1_000))
    ///     .key(key::global())
    ///     .estimate(100)
    ///     .settle(Settle::from_header("x-rows"));
    /// let layer = RateLimitLayer::builder().policy(rows).build()?;
    /// let limiter = layer.limiter();
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { [("x-rows", "7")] }))
    ///     .layer(layer);
    ///
    /// let response = app.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.headers()["ratelimit"].to_str()?.split(';').nth(1), Some("r=900"));
    /// drop(response);
    /// let told = limiter.peek(key::global().key_of(())?, 0).await?;
    /// assert_eq!(told.binding().unwrap().1.used(), 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle(mut self, settle: impl Into<Settle>) -> Self {
        self.reads.settlement_mut().settle = Some(settle.into());
        self
    }

    /// Charges only requests whose response matches this condition. The others get their charge back.
    ///
    /// A request is charged on arrival, so simultaneous requests are admitted up to the limit and no further.
    /// With a limit of five failures, at most five guesses are in flight, whatever their results; while a
    /// client has five in flight, its other requests are refused, including correct ones.
    ///
    /// A request that ends without an answer costs what [`on_abandoned`](Self::on_abandoned) says.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_ratelimit::{AnchoredWindow, Policy, Quota, key};
    /// use std::time::Duration;
    ///
    /// let quota = Quota::new(5, Duration::from_secs(15 * 60))?;
    /// let failures = Policy::new("failures", AnchoredWindow::of(quota))
    ///     .key(key::client_ip())
    ///     .charge_when(|ending| ending.status() == StatusCode::UNAUTHORIZED);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn charge_when(
        mut self,
        condition: impl Fn(&Ending<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.reads.settlement_mut().charge_when = Some(Arc::new(condition));
        self
    }

    /// Gives the charge back to requests whose response matches this condition, such as an error of the
    /// server: `.refund_when(|ending| ending.status().is_server_error())`.
    pub fn refund_when(
        mut self,
        condition: impl Fn(&Ending<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.reads.settlement_mut().refund_when = Some(Arc::new(condition));
        self
    }

    /// Returns whether requests are held to their end.
    pub(crate) fn settles(&self) -> bool {
        let settlement = self.reads.settlement();
        settlement.is_some_and(|settlement| settlement.is_any()) || self.rule.is_settled()
    }

    /// Rejects settling the places of a queue: a request behind has moved up already, or not.
    pub(super) fn check_settling(&self) -> Result<(), ConfigError> {
        if self.rule.shapes() && self.settles() {
            let remedy =
                "leave a queue out of what is settled, and let another policy count the cost";
            return Err(ConfigError::quoting("settle", self.name(), remedy));
        }
        let estimate = self.reads.settlement().and_then(|it| it.estimate.as_ref());
        if estimate.is_some_and(Estimate::asks_for_nothing) {
            let remedy = "give 1 or more: a request that asks for nothing is never refused";
            return Err(ConfigError::new("estimate", 0, remedy));
        }
        let only_estimates = self
            .reads
            .settlement()
            .is_some_and(|settlement| settlement.estimate.is_some() && !settlement.is_any());
        if only_estimates {
            let remedy =
                "say what settles it, such as `.settle(Settle::from_cost())`, or give it a `cost`";
            return Err(ConfigError::quoting("estimate", self.name(), remedy));
        }
        Ok(())
    }
}

impl Settlement {
    fn estimate_by(&mut self, units: u32) {
        let with = self.estimate.take().and_then(|estimate| estimate.with);
        self.estimate = Some(Estimate { units, with });
    }

    fn estimate_with(&mut self, with: Arc<estimate::With>) {
        let units = self.estimate.take().map_or(1, |estimate| estimate.units);
        let with = Some(with);
        self.estimate = Some(Estimate { units, with });
    }

    pub(super) fn estimate(&self) -> Option<&Estimate> {
        self.estimate.as_ref()
    }

    fn is_any(&self) -> bool {
        self.settle.is_some() || self.asks_about_the_end()
    }

    /// Returns whether a closure looks at the end of a request.
    pub(crate) fn asks_about_the_end(&self) -> bool {
        let asks = self.settle.as_ref().is_some_and(Settle::asks_about_the_end);
        asks || self.charge_when.is_some() || self.refund_when.is_some()
    }

    /// Returns whether the handler gets a [`Spend`].
    pub(crate) fn takes_a_spend(&self) -> bool {
        self.settle.as_ref().is_some_and(Settle::takes_a_spend)
    }

    /// Returns the cost in the head of a response, or in its trailers.
    pub(crate) fn reported_cost(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Option<ReportedCost> {
        self.settle.as_ref()?.reported_cost(headers, extensions)
    }

    /// Returns what reads the body of a response with these headers, if the body tells the cost.
    pub(crate) fn reader(&self, headers: &HeaderMap) -> Option<UsageReader> {
        self.settle.as_ref()?.reader(headers)
    }

    /// Returns what the body of a response tells, if that is the cost.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.settle.as_ref()?.usage()
    }

    /// Returns whether the cost depends on the model that a request asks for.
    pub(crate) fn is_priced(&self) -> bool {
        self.usage().is_some_and(Usage::is_priced)
    }

    /// Returns the cost of the request, or `None` if no source has it.
    pub(crate) fn cost(&self, known: KnownCosts, ending: &Ending<'_>) -> Option<u32> {
        let is_charged = self.charge_when.as_ref().is_none_or(|when| when(ending));
        let is_refunded = self.refund_when.as_ref().is_some_and(|when| when(ending));
        if is_refunded || !is_charged {
            return Some(0);
        }
        self.settle.as_ref()?.cost(known, ending)
    }

    /// Returns whether a source was expected to have the cost.
    pub(crate) fn expects_a_cost(&self) -> bool {
        self.settle.is_some()
    }
}
