use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::util::MapRequestLayer;

use super::scene::{LONG, Scene, WIDE, listener};

const LIMITS: &str = "[policies.address]\nquota = \"3/minute\"\nkey = \"client_ip\"\n";

#[tokio::test]
async fn calls_of_grpc_pass_with_their_streams_and_their_trailers() {
    let (listener, upstream) = listener().await;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::Serving)
        .await;
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let scene = Scene::before(&upstream, LIMITS).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", scene.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let about = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };

    let response = client.check(about("shop")).await.unwrap();
    assert!(response.metadata().contains_key("ratelimit"));
    assert_eq!(response.get_ref().status, 1);

    let mut stream = client.watch(about("shop")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::NotServing)
        .await;
    assert_eq!(stream.message().await.unwrap().unwrap().status, 2);
    drop(stream);

    // The status of the upstream, not of the gateway.
    let unknown = client.check(about("none")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let refused = client.check(about("shop")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn the_upstream_of_grpc_is_told_the_authority_of_the_client_over_one_connection() {
    let (listener, upstream) = listener().await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let connections = Arc::new(AtomicUsize::new(0));
    let note = {
        let seen = Arc::clone(&seen);
        move |request: http::Request<tonic::body::Body>| {
            seen.lock().unwrap().push(request.uri().to_string());
            request
        }
    };
    let count = {
        let connections = Arc::clone(&connections);
        move |stream| {
            connections.fetch_add(1, Ordering::Relaxed);
            stream
        }
    };
    let (_, health) = tonic_health::server::health_reporter();
    let mut server = Server::builder().layer(MapRequestLayer::new(note));
    let accepted = TcpListenerStream::new(listener).map(count);
    tokio::spawn(server.add_service(health).serve_with_incoming(accepted));

    let scene = Scene::before(&upstream, LIMITS).await;
    let hosts = ["shop.example", "news.example:8443"];
    for host in hosts {
        let endpoint = Endpoint::from_shared(format!("http://{}", scene.address)).unwrap();
        let endpoint = endpoint.origin(format!("http://{host}").parse().unwrap());
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
    let expected = hosts.map(|host| format!("http://{host}/grpc.health.v1.Health/Check"));
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_call_goes_to_an_upstream_that_has_closed_its_connection_and_is_there_again() {
    let (listener, upstream) = listener().await;
    let address = listener.local_addr().unwrap();
    let scene = Scene::before(&upstream, LIMITS).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", scene.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let mut listening = Some(listener);
    for _ in 0..2 {
        let listener = match listening.take() {
            Some(listener) => listener,
            None => TcpListener::bind(address).await.unwrap(),
        };
        let (_, health) = tonic_health::server::health_reporter();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder().add_service(health);
        let incoming = TcpListenerStream::new(listener);
        let stopped = async { drop(stopped.await) };
        let serving = tokio::spawn(server.serve_with_incoming_shutdown(incoming, stopped));
        client.check(HealthCheckRequest::default()).await.unwrap();
        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
    }
}

/// Answers each call with this many bytes.
async fn long(listener: TcpListener, bytes: usize) {
    const PIECE: Bytes = Bytes::from_static(&[b'x'; 16 * 1024]);
    while let Ok((stream, _)) = listener.accept().await {
        let service = service_fn(move |_: Request<Incoming>| async move {
            let pieces = std::iter::repeat_n(PIECE, bytes / PIECE.len());
            let pieces = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            let body = StreamBody::new(tokio_stream::iter(pieces));
            Ok::<_, Infallible>(Response::new(body))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
    }
}

/// An upstream takes so many calls of a connection at once, and other calls of it wait.
#[tokio::test]
async fn calls_that_do_not_end_leave_others_theirs() {
    let (listener, upstream) = listener().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let accepted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::Relaxed);
            let service = service_fn(|_: Request<Incoming>| async {
                let body =
                    StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
                Ok::<_, Infallible>(Response::new(body))
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(100);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    let limits = "[policies.address]\nquota = \"1000/minute\"\nkey = \"client_ip\"\n";
    let scene = Scene::before(&upstream, limits).await;
    let call = || {
        let call = Request::post("http://a/a.B/C").header("content-type", "application/grpc");
        call.body(Empty::<Bytes>::new()).unwrap()
    };
    let mut clients = Vec::new();
    let mut begin = async |calls: usize| {
        let stream = TokioIo::new(scene.connect().await);
        let opened = http2::handshake(TokioExecutor::new(), stream);
        let (mut client, connection) = opened.await.unwrap();
        tokio::spawn(connection);
        let mut begun = Vec::new();
        for _ in 0..calls {
            let response = tokio::time::timeout(LONG, client.send_request(call()));
            begun.push(response.await.unwrap().unwrap());
        }
        clients.push(client);
        begun
    };
    let _open = [begin(90).await, begin(90).await];
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

/// All calls share one connection to the upstream.
#[tokio::test]
async fn calls_whose_responses_nobody_takes_leave_others_theirs() {
    const LENGTH: usize = 16 << 20;
    let (listener, upstream) = listener().await;
    tokio::spawn(long(listener, LENGTH));
    let scene = Scene::before(&upstream, WIDE).await;
    let open = async || {
        let stream = TokioIo::new(scene.connect().await);
        let opened = http2::handshake(TokioExecutor::new(), stream);
        let (calls, connection) = opened.await.unwrap();
        tokio::spawn(connection);
        calls
    };
    let call = || {
        let call = Request::post("http://a/a.B/C").header("content-type", "application/grpc");
        call.body(Empty::<Bytes>::new()).unwrap()
    };
    let mut mute = open().await;
    let mut untaken = Vec::new();
    for _ in 0..10 {
        untaken.push(mute.send_request(call()).await.unwrap());
    }
    let other = async {
        let response = open().await.send_request(call()).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let taken = tokio::time::timeout(LONG, other).await.unwrap();
    assert_eq!(taken.len(), LENGTH);
    drop(untaken);
}
