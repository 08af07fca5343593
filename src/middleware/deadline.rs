use std::time::{Duration, Instant};

use http::{Extensions, HeaderMap};
use tokio::time;

use tower_ratelimit_core::__internal::Timers;

use super::grpc_timeout::grpc_timeout;
use crate::response::is_call;

/// The moment until which the caller waits for an answer, from the extensions of a request.
///
/// A request whose turn would come later is refused at once, both under a policy that
/// [waits](crate::Policy::wait_up_to) and under a [`LeakyQueue`](crate::LeakyQueue). A deadline shortens
/// waits and never lengthens them. A gRPC call with `grpc-timeout` does not need it; if both are present, the
/// earlier one counts.
///
/// ```
/// use std::time::Duration;
///
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_ratelimit::middleware::Deadline;
/// use tower_ratelimit::{AnchoredWindow, Policy, RateLimitLayer, key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hourly = Policy::new("hourly", AnchoredWindow::per_hour(1))
///     .wait_up_to(Duration::from_secs(3_600))
///     .key(key::global());
/// let limit = RateLimitLayer::builder().policy(hourly).build()?;
/// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
///
/// // An outer layer that knows the patience of its callers does this.
/// let send = || {
///     let deadline = Deadline::after(Duration::from_millis(500));
///     app.clone().oneshot(Request::builder().extension(deadline).body(Body::empty()).unwrap())
/// };
/// assert_eq!(send().await?.status(), 200);
/// assert_eq!(send().await?.status(), 429);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Creates a deadline at this moment.
    pub fn at(moment: Instant) -> Self {
        Self(Some(moment))
    }

    /// Creates a deadline this long from now, by the clock of tokio's timers. A time beyond the range of the
    /// platform is no deadline.
    pub fn after(time: Duration) -> Self {
        let moment = time::Instant::now().checked_add(time);
        Self(moment.map(time::Instant::into_std))
    }

    /// Creates the deadline of a gRPC call that has arrived now with these headers, from its `grpc-timeout`.
    pub fn of_call(headers: &HeaderMap) -> Option<Self> {
        grpc_timeout(headers).map(Self::after)
    }

    /// Returns the moment, or `None` if the platform cannot hold it.
    pub fn moment(&self) -> Option<Instant> {
        self.0
    }
}

/// Returns until when the caller of this request, which arrives now, waits.
pub(super) fn deadline(
    headers: &HeaderMap,
    extensions: &Extensions,
    timers: &Timers,
) -> Option<time::Instant> {
    let said = extensions.get().and_then(Deadline::moment);
    let timeout = grpc_timeout(headers).filter(|_| is_call(headers));
    let called = timeout.and_then(|timeout| timers.now().checked_add(timeout));
    let said = said.map(|moment| timers.moment(moment));
    said.into_iter().chain(called).min()
}
