//! What Envoy asks over gRPC: whether a request that it describes is within the limits.

mod authorization;
pub mod messages;
mod original;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder as Reflection;

use self::authorization::Authorization;
use self::messages::envoy::service::auth::v3::authorization_server::AuthorizationServer;
use crate::phase::Phase;
use crate::{BoxError, Gateway};

/// The most bytes of a message. Envoy bounds the head of a request, to 60 KiB at first and to 8 MiB at most. A larger message
/// would be an error, upon which Envoy lets the request pass.
const LONGEST_MESSAGE: usize = 10 << 20;

/// The calls of a connection at once. Envoy has a connection for each of its threads.
const STREAMS: u32 = 1_024;

/// The time between two pings, and for the answer to one.
const PING: Duration = Duration::from_secs(30);

/// Answers `envoy.service.auth.v3.Authorization`, `grpc.health.v1.Health` and reflection on this listener, until `stop` ends.
/// Then calls that have begun may end, for `last_calls` at most. The health is that of the phase.
///
/// # Errors
///
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    gateway: Gateway,
    phase: watch::Receiver<Phase>,
    stop: impl Future<Output = ()>,
    last_calls: Duration,
) -> Result<(), BoxError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let authorization = AuthorizationServer::new(Authorization::new(gateway))
        .max_decoding_message_size(LONGEST_MESSAGE);
    let reflection = Reflection::configure()
        .register_encoded_file_descriptor_set(messages::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let services = Server::builder()
        .max_concurrent_streams(STREAMS)
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING))
        .add_service(health)
        .add_service(authorization)
        .add_service(reflection);
    let (last, stopped) = oneshot::channel::<()>();
    let incoming = TcpListenerStream::new(listener);
    let serving = services.serve_with_incoming_shutdown(incoming, async { drop(stopped.await) });
    let serving = async {
        tokio::select! {
            served = serving => served,
            never = report(reporter, phase) => match never {},
        }
    };
    let mut serving = pin!(serving);
    tokio::select! {
        served = &mut serving => return served.map_err(Into::into),
        () = stop => drop(last),
    }
    if let Ok(served) = timeout(last_calls, serving).await {
        served?;
    } else {
        tracing::warn!("calls of gRPC have not ended in time");
    }
    Ok(())
}

/// Keeps the health that of the phase.
async fn report(reporter: HealthReporter, mut phase: watch::Receiver<Phase>) -> Infallible {
    loop {
        let status = match phase.borrow_and_update().why_not_ready() {
            None => tonic_health::ServingStatus::Serving,
            Some(_) => tonic_health::ServingStatus::NotServing,
        };
        for service in ["", AuthorizationServer::<Authorization>::NAME] {
            reporter.set_service_status(service, status).await;
        }
        if phase.changed().await.is_err() {
            // The server has ended.
            pending::<()>().await;
        }
    }
}
