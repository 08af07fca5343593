//! The connections of clients.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::Gateway;
use crate::framing::Framed;

/// Serves HTTP/1 and HTTP/2 on this listener until `stop` ends. Then no connection is accepted, and requests that have
/// begun may end, for `last_requests` at most.
pub async fn serve(
    listener: TcpListener,
    gateway: Gateway,
    stop: impl Future<Output = ()>,
    last_requests: Duration,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    // With a timer, a head has to arrive within 30 seconds.
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("a connection cannot be accepted: {error}");
                // Without free file descriptors the next attempt would fail at once.
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connection = connection(&builder, stream, peer, gateway.clone());
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, "a connection broke off: {error}");
            }
        });
    }
    drop(listener);
    if timeout(last_requests, connections.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("requests have not ended in time");
    }
}

fn connection(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    peer: SocketAddr,
    gateway: Gateway,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = crate::BoxError> + Send + use<> {
    // Small frames of a stream are passed at once.
    let _ = stream.set_nodelay(true);
    let (stream, heads) = Framed::new(stream);
    let service = service_fn(move |request: Request<Incoming>| {
        let (gateway, heads) = (gateway.clone(), heads.clone());
        async move { Ok::<_, Infallible>(gateway.answer(request, peer, &heads).await) }
    });
    builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower_ratelimit::config::Config;

    #[tokio::test]
    async fn a_peer_that_is_no_proxy_finds_nothing_below_the_reserved_path() {
        let limits = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");
        let limits = Config::read(limits).unwrap().watch().unwrap();
        let gateway = {
            let roots = crate::tls::Roots::default();
            Gateway::new(limits, "http://127.0.0.1:1", &roots, Duration::from_secs(1)).unwrap()
        };
        for (peer, path, expected) in [
            ("127.0.0.1:1", "/_limit/check", "200"),
            ("127.0.0.1:1", "/_limit/status", "200"),
            ("192.0.2.1:1", "/_limit/check", "404"),
            ("192.0.2.1:1", "/_limit/status", "404"),
            ("[2001:db8::1]:1", "/_limit/check", "404"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut client = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let builder = Builder::new(TokioExecutor::new());
            let peer = peer.parse().unwrap();
            tokio::spawn(connection(&builder, stream, peer, gateway.clone()));
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(&answer[9..12], expected, "{peer} {path}");
        }
    }
}
