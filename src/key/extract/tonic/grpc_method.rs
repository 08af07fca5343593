use crate::diagnostics::Diagnostic;
use crate::key::extract::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};

/// The called gRPC method with its service: `package.Service/Method`.
///
/// A client chooses it, and this extractor does not know which methods exist: each invented name is
/// another key with a fresh quota. Use it in a condition
/// (`.when(key::grpc_method().one_of(["shop.Orders/Export"]))`), or beside a policy on the address.
///
/// Requests whose path is not that of a call share one quota. An
/// [interceptor](crate::middleware::RateLimitInterceptor) does not know the path: it refuses calls
/// with `INTERNAL`, and the log says so once (`TRL011`).
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let exports = Policy::new("exports", TokenBucket::per_minute(2))
///     .key(key::client_ip())
///     .when(key::grpc_method().one_of(["shop.Orders/Export"]));
/// ```
pub fn grpc_method() -> Extractor<GrpcMethod> {
    Extractor::of(GrpcMethod(()))
}

#[derive(Clone, Copy, Debug)]
pub struct GrpcMethod(());

/// Marks a request, in its extensions, whose path is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pathless;

const PATHLESS: Diagnostic = Diagnostic::new(
    "TRL011",
    "interceptor",
    "an interceptor is not told which method is called, so methods cannot be told apart",
    "put a layer in its place: `Server::builder().layer(limit)`, or around the one service",
);

/// Splits the path of a request into the call, `service/method`, and its service (gRPC over HTTP/2,
/// `Path`).
pub(super) fn call<'a>(head: &Head<'a>) -> Result<(&'a str, &'a str), Missing> {
    if head.extension::<Pathless>().is_some() {
        return Err(Missing::ByServer(PATHLESS));
    }
    let call = head.path().strip_prefix('/').and_then(|call| {
        let (service, method) = call.rsplit_once('/')?;
        (!service.is_empty() && !method.is_empty()).then_some((call, service))
    });
    call.ok_or(Missing::ByClient)
}

impl Origin for GrpcMethod {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some("the method that is called".to_owned())
    }
}

impl Typed for GrpcMethod {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        call(head).map(|(call, _)| call)
    }
}

impl Keyed for GrpcMethod {
    fn key(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}
