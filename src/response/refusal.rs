//! The reason of a refusal, as a type.

use crate::clock::Micros;
use crate::decision::Decision;
use crate::diagnostics::Diagnostic;
use crate::error::StoreErrorKind;
use crate::key::Missing;
#[cfg(feature = "usage")]
use crate::key::Unread;

/// Why a request was refused. It is in the extensions of the response.
///
/// The statuses are those of HTTP; the [module](crate::response#grpc) has the codes of gRPC.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_ratelimit::response::Refusal;
/// use tower_ratelimit::{FixedWindow, RateLimitLayer, key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let nothing = RateLimitLayer::new(key::global(), FixedWindow::per_day(0));
/// let app: Router = Router::new().route("/", get(|| async {})).layer(nothing);
///
/// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// match response.extensions().get::<Refusal>() {
///     Some(Refusal::Denied(decision)) => assert_eq!(decision.binding().unwrap().0, "default"),
///     other => panic!("{other:?}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A policy denied the request: 429, or the chosen status.
    Denied(Decision),
    /// The key of a policy is missing: 500 if the server has to provide it, unless
    /// [`OnMissingKey`](crate::policy::OnMissingKey) says otherwise.
    MissingKey(Missing),
    /// The body has to be read for its key or its cost, and cannot be: 413 if it is too long, 415 if it is no JSON, and 400 else.
    #[cfg(feature = "usage")]
    Unread(Unread),
    /// The request is on the deny list of the layer: 403.
    Forbidden,
    /// The request has to wait for its turn, but there is no timer to wake it: 500.
    CannotHold(Diagnostic),
    /// As many requests are in flight as the adaptive limit allows: 503, or 429 if that was chosen.
    Saturated {
        /// How many may be in flight at once.
        limit: u32,
    },
    /// The store could not decide: 503.
    StoreFailed(StoreErrorKind),
}

/// The longest `Retry-After`. Some clients take more seconds as "for ever" (RFC 9110, section
/// 5.6.7), because they use 31 bits.
pub(super) const LONGEST_RETRY: Micros = Micros::from_secs(2_147_483_647);
