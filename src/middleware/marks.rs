//! The marks of requests that go on although a policy is over its limit.

use crate::decision::Decision;

/// Marks a request over the limit of a [soft](crate::Policy::soft) policy, in its extensions.
///
/// ```
/// use axum::{Extension, Router, body::Body, http::Request, routing::get};
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_ratelimit::middleware::OverLimit;
/// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
///
/// async fn search(over: Option<Extension<OverLimit>>) -> &'static str {
///     if over.is_some() { "the cached answer" } else { "a fresh answer" }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fresh = Policy::new("fresh", FixedWindow::per_hour(1)).soft().key(key::global());
/// let layer = RateLimitLayer::builder().policy(fresh).build()?;
/// let app: Router = Router::new().route("/", get(search)).layer(layer);
///
/// for expected in ["a fresh answer", "the cached answer"] {
///     let response = app.clone().oneshot(Request::new(Body::empty())).await?;
///     assert_eq!(response.into_body().collect().await?.to_bytes(), expected);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OverLimit(pub(super) Decision);

impl OverLimit {
    /// Returns the decision. [`over_limit`](Decision::over_limit) names the policies that the
    /// request is over, and how long until it would be within them again.
    pub fn decision(&self) -> &Decision {
        &self.0
    }
}

/// Marks a request that a policy in [`Mode::Shadow`](crate::policy::Mode::Shadow) would have refused, in its
/// extensions.
///
/// ```
/// use axum::{Extension, Router, body::Body, http::Request, routing::get};
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_ratelimit::middleware::WouldRefuse;
/// use tower_ratelimit::policy::Mode;
/// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
///
/// async fn search(over: Option<Extension<WouldRefuse>>) -> String {
///     let would_refuse = over.iter().flat_map(|over| over.decision().would_refuse());
///     would_refuse.map(|(policy, _)| policy).collect()
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tried = Policy::new("tried", FixedWindow::per_hour(1)).mode(Mode::Shadow).key(key::global());
/// let layer = RateLimitLayer::builder().policy(tried).build()?;
/// let app: Router = Router::new().route("/", get(search)).layer(layer);
///
/// for expected in ["", "tried"] {
///     let response = app.clone().oneshot(Request::new(Body::empty())).await?;
///     assert!(!response.headers().contains_key("ratelimit"));
///     assert_eq!(response.into_body().collect().await?.to_bytes(), expected);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WouldRefuse(pub(super) Decision);

impl WouldRefuse {
    /// Returns the decision. [`would_refuse`](Decision::would_refuse) names the policies, with their numbers.
    pub fn decision(&self) -> &Decision {
        &self.0
    }
}
