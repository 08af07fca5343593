use super::combinators::{combinators, hashed, map};
use super::grpc_method::call;
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};

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
pub fn grpc_service() -> GrpcService {
    GrpcService(())
}

/// The extractor that [`grpc_service`] returns.
#[derive(Clone, Copy, Debug)]
pub struct GrpcService(());

impl Take for GrpcService {
    type Out<'a> = &'a str;

    fn take<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        call(head).map(|(_, service)| service)
    }

    fn reads(&self) -> Option<String> {
        self.identity()
    }
}

impl Extract for GrpcService {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.take(head)?.into_key())
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl KeyOf for GrpcService {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

combinators!(GrpcService);
hashed!(GrpcService);
map!(GrpcService, &str);
