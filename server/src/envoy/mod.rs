//! What Envoy asks over gRPC: whether a request that it describes is within the limits.

mod authorization;
pub mod messages;
mod original;
mod rate_limit;

use axum::Router;
use tokio::sync::watch;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder as Reflection;

use self::authorization::Authorization;
use self::messages::envoy::service::auth::v3::authorization_server::AuthorizationServer;
use self::messages::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use self::rate_limit::RateLimitService;
use crate::phase::Phase;
use crate::{BoxError, Gateway};

/// The most bytes of a message. Envoy bounds the head of a request, to 60 KiB at first and to 8 MiB at most. A larger message
/// would be an error, upon which Envoy lets the request pass.
const LONGEST_MESSAGE: usize = 10 << 20;

/// The name under which the probes of `envoyproxy/ratelimit` ask for its health.
const THEIR_NAME: &str = "ratelimit";

/// The calls of a connection at once. Envoy has a connection for each of its threads.
pub(crate) const STREAMS: u32 = 1_024;

/// Returns the routes of `envoy.service.auth.v3.Authorization`, `grpc.health.v1.Health` and reflection, and those of
/// `envoy.service.ratelimit.v3.RateLimitService` if the gateway has limits of descriptors. A task of this runtime keeps the health
/// that of the phase.
///
/// # Errors
///
/// When the descriptors of the messages cannot be read, which would be a mistake of the build.
pub fn router(gateway: Gateway, phase: watch::Receiver<Phase>) -> Result<Router, BoxError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let rate_limit = gateway.rate_limits().cloned().map(|limits| {
        let spans = gateway.spans().cloned();
        let refusals = gateway.refusals().clone();
        RateLimitServiceServer::new(RateLimitService::new(limits, refusals, spans))
            .max_decoding_message_size(LONGEST_MESSAGE)
    });
    let authorization = AuthorizationServer::new(Authorization::new(gateway))
        .max_decoding_message_size(LONGEST_MESSAGE);
    let reflection = Reflection::configure()
        .register_encoded_file_descriptor_set(messages::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let mut services = vec!["", AuthorizationServer::<Authorization>::NAME];
    let mut routes = Routes::new(health)
        .add_service(authorization)
        .add_service(reflection);
    if let Some(rate_limit) = rate_limit {
        routes = routes.add_service(rate_limit);
        services.push(RateLimitServiceServer::<RateLimitService>::NAME);
        services.push(THEIR_NAME);
    }
    tokio::spawn(report(reporter, services, phase));
    Ok(routes.prepare().into_axum_router())
}

/// Keeps the health that of the phase, until the server has stopped. Who watches it would otherwise keep its connection for the
/// whole time to drain.
async fn report(
    mut reporter: HealthReporter,
    services: Vec<&'static str>,
    mut phase: watch::Receiver<Phase>,
) {
    while *phase.borrow_and_update() < Phase::Stopped {
        let status = match phase.borrow().why_not_ready() {
            None => tonic_health::ServingStatus::Serving,
            Some(_) => tonic_health::ServingStatus::NotServing,
        };
        for service in &services {
            reporter.set_service_status(*service, status).await;
        }
        if phase.changed().await.is_err() {
            return;
        }
    }
    for service in services {
        reporter.clear_service_status(service).await;
    }
}
