use super::grpc_method::call;
use crate::key::extract::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};

/// The called gRPC service: `package.Service`.
///
/// A client chooses it, and may invent one: the caveats of [`grpc_method`](super::grpc_method()) apply here
/// too.
///
/// ```
/// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
///
/// let layer = RateLimitLayer::builder()
///     .policy(Policy::new("address", TokenBucket::per_second(20)).key(key::client_ip()))
///     // Probes are not limited.
///     .allow(key::grpc_service().one_of(["grpc.health.v1.Health"]))
///     .build()?;
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
pub fn grpc_service() -> Extractor<GrpcService> {
    Extractor::of(GrpcService(()))
}

#[derive(Clone, Copy, Debug)]
pub struct GrpcService(());

impl Origin for GrpcService {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some("the service that is called".to_owned())
    }
}

impl Typed for GrpcService {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        call(head).map(|(_, service)| service)
    }
}

impl Keyed for GrpcService {
    fn key(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}
