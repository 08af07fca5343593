use std::fmt;
use std::sync::Arc;

use http::{Method, Request};
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Code, Status};

use tower_ratelimit_core::__internal::Verdict;

use super::RateLimitLayerBuilder;
use super::enforcer::Enforcer;
use crate::error::ConfigError;
use crate::key::Pathless;
use crate::store::MemoryStore;

/// The policies of a layer as a tonic [`Interceptor`], for generated code that takes one:
/// `GreeterServer::with_interceptor(greeter, limit)`.
///
/// [`RateLimitLayerBuilder::build_interceptor`] builds it. An interceptor is a function of the metadata and
/// the extensions of a call, and answers at once. So it can do less than a layer; prefer a layer where
/// possible:
///
/// - The store is in this process, because other stores cannot answer at once. An interceptor and a
///   layer with clones of one [`MemoryStore`] share the budget of policies with the same name and
///   algorithm.
/// - It holds no calls: building it fails with a [`LeakyQueue`](crate::LeakyQueue), and with a
///   policy that [waits](crate::Policy::wait_up_to).
/// - It does not see the path or the version. Building it fails with exempt paths.
///   [`grpc_method`](crate::key::grpc_method) and [`grpc_service`](crate::key::grpc_service) read
///   nothing (`TRL011`), and a closure sees the path `/`.
/// - The answer to an allowed call has no rate limit headers, because the interceptor does not see the
///   response. A refusal has them, as that of a layer does; its content type is always `application/grpc`.
/// - An outer layer does not learn the reason of a refusal: there is no
///   [`Refusal`](crate::response::Refusal) in the response.
///
/// ```
/// use tonic::service::Interceptor;
/// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
///
/// let tenant = Policy::new("tenant", FixedWindow::per_day(1)).key(key::metadata("x-tenant"));
/// let mut limit = RateLimitLayer::builder().policy(tenant).build_interceptor()?;
///
/// assert!(limit.call(tonic::Request::new(())).is_ok());
/// let status = limit.call(tonic::Request::new(())).unwrap_err();
/// assert_eq!(status.code(), tonic::Code::ResourceExhausted);
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct RateLimitInterceptor {
    enforcer: Arc<Enforcer>,
}

impl RateLimitLayerBuilder<MemoryStore> {
    /// Builds a [`RateLimitInterceptor`] in place of a layer.
    ///
    /// # Errors
    ///
    /// See [`build`](Self::build); also when a policy holds requests or a path is exempt, because an
    /// interceptor supports neither.
    pub fn build_interceptor(self) -> Result<RateLimitInterceptor, ConfigError> {
        self.check_for_interceptor()?;
        let enforcer = self.all_calls().build_enforcer()?;
        Ok(RateLimitInterceptor {
            enforcer: Arc::new(enforcer),
        })
    }
}

impl Interceptor for RateLimitInterceptor {
    fn call(&mut self, request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        let (metadata, extensions, ()) = request.into_parts();
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.headers_mut() = metadata.into_headers();
        *request.extensions_mut() = extensions;
        request.extensions_mut().insert(Pathless);
        match self.enforcer.ask(&mut request) {
            Verdict::Pass(..) => {
                let (mut head, ()) = request.into_parts();
                head.extensions.remove::<Pathless>();
                let metadata = MetadataMap::from_headers(head.headers);
                Ok(tonic::Request::from_parts(metadata, head.extensions, ()))
            }
            Verdict::Refuse(mut response) => {
                let status = response.extensions_mut().remove::<Status>();
                // An answer to a call has its status in its extensions.
                Err(status.unwrap_or_else(unanswered))
            }
            // A store in this process returns neither without a queue.
            Verdict::Hold(..) | Verdict::Pending(_) => Err(unanswered()),
        }
    }
}

fn unanswered() -> Status {
    Status::new(Code::Unavailable, "the rate limiter is unavailable")
}

impl fmt::Debug for RateLimitInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitInterceptor")
            .finish_non_exhaustive()
    }
}
