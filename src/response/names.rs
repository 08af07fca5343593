use http::HeaderName;
use http::header::RETRY_AFTER;

/// Every header that a layer can send, in any [`Dialect`](super::Dialect), and `Retry-After`.
///
/// A script in a browser sees none of them unless the server exposes them (Fetch standard,
/// `Access-Control-Expose-Headers`). Put `CorsLayer` outside the limit, so that refusals have its
/// headers too:
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_http::cors::CorsLayer;
/// use tower_ratelimit::response::EXPOSED_HEADERS;
/// use tower_ratelimit::{RateLimitLayer, TokenBucket, key};
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5).burst(10)))
///     .layer(CorsLayer::permissive().expose_headers(EXPOSED_HEADERS));
/// ```
pub const EXPOSED_HEADERS: [HeaderName; 14] = [
    RETRY_AFTER,
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
    HeaderName::from_static("x-ratelimit-used"),
    HeaderName::from_static("x-ratelimit-resource"),
    HeaderName::from_static("x-rate-limit-limit"),
    HeaderName::from_static("x-rate-limit-remaining"),
    HeaderName::from_static("x-rate-limit-reset"),
];

/// Every header of a refused gRPC-Web call that [`EXPOSED_HEADERS`] does not have.
///
/// ```
/// use tower_http::cors::CorsLayer;
/// use tower_ratelimit::response::{EXPOSED_HEADERS, EXPOSED_GRPC_HEADERS};
///
/// let exposed: Vec<_> = EXPOSED_HEADERS.into_iter().chain(EXPOSED_GRPC_HEADERS).collect();
/// let cors = CorsLayer::permissive().expose_headers(exposed);
/// ```
#[cfg(feature = "tonic")]
pub const EXPOSED_GRPC_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
    HeaderName::from_static("grpc-retry-pushback-ms"),
];

pub(super) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The headers of drafts 07 and 11.
pub(super) static COMBINED: [HeaderName; 2] = [
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("ratelimit"),
];

/// Limit, remaining, reset, and the policies, which draft 03 has in no header of their own.
pub(super) static SEPARATE: [HeaderName; 4] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
    HeaderName::from_static("ratelimit-policy"),
];

/// Limit, remaining, reset, and the additions of GitHub: used and resource.
pub(super) static X_RATELIMIT: [HeaderName; 5] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
    HeaderName::from_static("x-ratelimit-used"),
    HeaderName::from_static("x-ratelimit-resource"),
];

/// Limit, remaining and reset.
pub(super) static X_RATE_LIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-rate-limit-limit"),
    HeaderName::from_static("x-rate-limit-remaining"),
    HeaderName::from_static("x-rate-limit-reset"),
];
