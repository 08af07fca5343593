//! A tonic channel, over real connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2::Reason;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::Layer;
use tower_ratelimit::client::{ClientThrottle, ClientThrottleLayer};
use tower_ratelimit::clock::{Clock, Micros};
use tower_ratelimit::key::Key;
use tower_ratelimit::{AnchoredWindow, MemoryStore, Policy, RateLimitLayer, key};

/// A clock that stands still until it is released, and then shows the time as if it had never stood. So the calls
/// before are at one moment on any machine, and the time of the calls after is at least the wait of their client.
#[derive(Clone)]
struct HeldClock {
    start: Instant,
    goes: Arc<AtomicBool>,
}

impl Clock for HeldClock {
    fn now(&self) -> Micros {
        const START: u64 = 1_800_000_000_000_000;
        let gone = if self.goes.load(Ordering::SeqCst) {
            self.start.elapsed()
        } else {
            Duration::ZERO
        };
        Micros::new(START + Micros::from(gone).get())
    }
}

async fn check(client: &HealthClient<ClientThrottle<Channel>>) -> Result<(), Status> {
    let request = HealthCheckRequest::default();
    client.clone().check(request).await.map(drop)
}

/// Returns a listener on a free port, and a client that obeys the headers.
async fn connection() -> (
    TcpListener,
    ClientThrottleLayer,
    HealthClient<ClientThrottle<Channel>>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let channel = Channel::from_shared(url).unwrap().connect_lazy();
    let layer = ClientThrottleLayer::new();
    let client = HealthClient::new(layer.layer(channel));
    (listener, layer, client)
}

#[tokio::test]
async fn a_channel_holds_further_calls_for_the_retry_info_and_the_next_passes() {
    const WAIT: Duration = Duration::from_millis(100);
    let (listener, layer, client) = connection().await;
    let goes = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let clock = HeldClock {
        start,
        goes: Arc::clone(&goes),
    };
    let window = AnchoredWindow::new(1, WAIT).unwrap();
    let limit = RateLimitLayer::builder()
        .policy(Policy::new("calls", window).key(key::global()))
        .store(MemoryStore::new().clock(clock))
        // With these headers the client would know that none remains, and would stop before it is refused.
        .without_headers();
    let limit = limit.build().unwrap();
    let serving = tokio::spawn(async move {
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder().layer(limit).add_service(health);
        let incoming = TcpListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    });

    check(&client).await.unwrap();
    assert_eq!(layer.remaining_hold(Key::GLOBAL), None);
    let refused = check(&client).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let told = refused.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(told, Some(WAIT));
    // Not the whole second in `Retry-After`.
    let hold = layer.remaining_hold(Key::GLOBAL).unwrap_or_default();
    assert!(hold <= WAIT, "{hold:?}");

    goes.store(true, Ordering::SeqCst);
    check(&client).await.unwrap();
    assert!(start.elapsed() >= WAIT);
    serving.abort();
}

#[tokio::test]
async fn a_stream_that_is_reset_tells_of_no_limit_and_holds_nothing() {
    for (reason, code) in [
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (Reason::REFUSED_STREAM, Code::Unavailable),
    ] {
        let (listener, layer, client) = connection().await;
        let serving = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                respond.send_reset(reason);
            }
        });
        for _ in 0..2 {
            let reset = check(&client).await.unwrap_err();
            assert_eq!(reset.code(), code, "{reset:?}");
            assert_eq!(layer.remaining_hold(Key::GLOBAL), None);
        }
        serving.abort();
    }
}
