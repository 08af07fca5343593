//! Examples in the documentation that need more dependencies than the crate's own tests.

#[cfg(all(
    doctest,
    feature = "axum",
    feature = "client",
    feature = "redis",
    feature = "tonic"
))]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../src/client/clients.md")]
mod clients {}

#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../docs/outgoing.md")]
mod outgoing {}

#[cfg(all(doctest, feature = "tonic"))]
#[doc = include_str!("../docs/grpc.md")]
mod grpc {}
