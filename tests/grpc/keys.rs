//! The keys of calls.

use std::time::Duration;

use http::{HeaderValue, Request};
use hyper_util::rt::TokioIo;
use tonic::Code;
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Endpoint, Server};
use tower::service_fn;
use tower_ratelimit::key::{self, Extract, Forwarding, Head, IntoKey, Key, Missing, Proxies};
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer};

use crate::echo::{Client, Echo, Running, SERVER_STREAM, global, still};

fn from(address: &str) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(TcpConnectInfo {
        local_addr: None,
        remote_addr: Some(address.parse().unwrap()),
    });
    request
}

#[test]
fn a_peer_of_tonic_is_counted_by_address() {
    let address: std::net::IpAddr = "192.0.2.1".parse().unwrap();
    for (peer, ip) in [
        ("192.0.2.1:4711", address),
        ("[::ffff:192.0.2.1]:4711", address),
    ] {
        let request = from(peer);
        let head = Head::of(&request);
        assert_eq!(key::peer_ip().extract(&head), Ok(ip.into_key()));
        assert_eq!(key::client_ip().extract(&head), Ok(ip.into_key()));
    }

    let mut unknown = from("192.0.2.1:1");
    unknown.extensions_mut().insert(TcpConnectInfo {
        local_addr: None,
        remote_addr: None,
    });
    let head = Head::of(&unknown);
    assert!(matches!(
        key::peer_ip().extract(&head),
        Err(Missing::ByServer(_))
    ));
}

#[test]
fn what_a_call_counts_under_is_what_an_operator_names() {
    let request = Request::post("/shop.Orders/Export")
        .header("tenant", "acme")
        .header("tenant-bin", "AQI")
        .body(())
        .unwrap();
    let head = Head::of(&request);
    let (text, bytes) = (key::metadata("tenant"), key::metadata("tenant-bin"));
    assert_eq!(text.extract(&head), text.key_of(b"acme"));
    assert_eq!(bytes.extract(&head), bytes.key_of(&[1, 2]));
    let method = key::grpc_method();
    assert_eq!(method.extract(&head), method.key_of("shop.Orders/Export"));
    let service = key::grpc_service();
    assert_eq!(service.extract(&head), service.key_of("shop.Orders"));
    let certificate = key::client_certificate().key_of(b"DER");
    assert_eq!(certificate, Ok(b"DER".into_key()));
}

#[test]
fn a_proxy_before_tonic_can_be_trusted() {
    let key = key::client_ip().behind(
        Proxies::in_networks(["10.0.0.0/8"]),
        Forwarding::XForwardedFor,
    );
    let mut request = from("10.0.0.1:1");
    let told = HeaderValue::from_static("198.51.100.1, 192.0.2.1");
    request.headers_mut().insert("x-forwarded-for", told);
    let client: std::net::IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(key.extract(&Head::of(&request)), Ok(client.into_key()));
}

#[tokio::test]
async fn connections_of_one_address_share_a_quota() {
    let (clock, store) = still();
    let peer = Policy::new("peer", FixedWindow::per_hour(2)).key(key::peer_ip());
    let layer = RateLimitLayer::builder().policy(peer).store(store);
    let server = Running::echo(layer.build().unwrap()).await;
    assert!(server.client().await.say("a").await.is_ok());
    assert!(server.client().await.say("a").await.is_ok());
    let refused = server.client().await.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    clock.advance(Duration::from_secs(3_600));
    assert!(server.client().await.say("a").await.is_ok());
}

fn path(path: &str) -> Request<()> {
    Request::post(path).body(()).unwrap()
}

#[test]
fn a_method_and_its_service_are_read_from_the_path() {
    for (sent, method, service) in [
        (
            "/shop.Orders/Export",
            Some("shop.Orders/Export"),
            Some("shop.Orders"),
        ),
        ("/Orders/Export", Some("Orders/Export"), Some("Orders")),
        ("/a/b/c", Some("a/b/c"), Some("a/b")),
        ("/", None, None),
        ("//", None, None),
        ("/Orders", None, None),
        ("/Orders/", None, None),
        ("//Export", None, None),
    ] {
        let request = path(sent);
        let head = Head::of(&request);
        let as_key = |text: Option<&str>| text.map(Key::from_text).ok_or(Missing::ByClient);
        assert_eq!(key::grpc_method().extract(&head), as_key(method), "{sent}");
        assert_eq!(
            key::grpc_service().extract(&head),
            as_key(service),
            "{sent}"
        );
    }
}

/// Like `IntoKey`, for `map`.
trait FromText {
    fn from_text(text: &str) -> Key;
}

impl FromText for Key {
    fn from_text(text: &str) -> Key {
        text.into_key()
    }
}

#[tokio::test]
async fn methods_are_told_apart_and_so_are_services() {
    let by = |key: fn() -> Policy<tower_ratelimit::policy::Http>| {
        let layer = RateLimitLayer::builder().policy(key());
        layer.build().unwrap()
    };
    let window = || FixedWindow::per_day(1);
    let server = Running::echo(by(|| {
        Policy::new("method", FixedWindow::per_day(1)).key(key::grpc_method())
    }))
    .await;
    let mut client = server.client().await;
    assert!(client.say("a").await.is_ok());
    assert!(client.say("a").await.is_err());
    assert!(client.stream(SERVER_STREAM, &["a"]).await.is_ok());

    let by_service = Policy::new("service", window()).key(key::grpc_service());
    let layer = RateLimitLayer::builder()
        .policy(by_service)
        .build()
        .unwrap();
    let server = Running::echo(layer).await;
    let mut client = server.client().await;
    assert!(client.say("a").await.is_ok());
    assert!(client.stream(SERVER_STREAM, &["a"]).await.is_err());

    let exports = global("exports", window()).when(key::grpc_method().one_of(["test.Echo/Unary"]));
    let layer = RateLimitLayer::builder().policy(exports).build().unwrap();
    let server = Running::echo(layer).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        assert!(client.stream(SERVER_STREAM, &["a"]).await.is_ok());
    }
    assert!(client.say("a").await.is_ok());
    assert!(client.say("a").await.is_err());
}

fn with(name: &'static str, value: &[u8]) -> Request<()> {
    let mut request = Request::new(());
    let value = HeaderValue::from_bytes(value).unwrap();
    request.headers_mut().insert(name, value);
    request
}

#[test]
fn binary_metadata_is_the_same_with_padding_and_without() {
    let tenant = key::metadata("tenant-bin");
    for sent in ["/+A=", "/+A", "/+B=", " /+A , AAAA"] {
        let request = with("tenant-bin", sent.as_bytes());
        let bytes: &[u8] = &[0xff, 0xe0];
        assert_eq!(
            tenant.extract(&Head::of(&request)),
            Ok(bytes.into_key()),
            "{sent}"
        );
    }
    for sent in [&b"?"[..], b"\xff\xff", b"A", b"_-A", b"===="] {
        let request = with("tenant-bin", sent);
        let read = tenant.extract(&Head::of(&request));
        assert_eq!(read, Err(Missing::ByClient), "{sent:?}");
    }
    let missing = Request::new(());
    assert_eq!(tenant.extract(&Head::of(&missing)), Err(Missing::ByClient));
}

#[test]
fn other_metadata_is_text() {
    let tenant = key::metadata("Tenant");
    let request = with("tenant", b"acme");
    let head = Head::of(&request);
    assert_eq!(tenant.extract(&head), Ok("acme".into_key()));
    assert_eq!(tenant.extract(&head), key::header("tenant").extract(&head));
    let first = key::metadata("tenant").map(|value| u64::from(value[0]));
    assert_eq!(first.extract(&head), Ok(u64::from(b'a').into_key()));
    assert_eq!(key::try_metadata("a b").unwrap_err().field(), "metadata");
}

#[tokio::test]
async fn clients_are_told_apart_by_what_they_send() {
    let tenant = Policy::new("tenant", FixedWindow::per_day(1)).key(key::metadata("tenant"));
    let layer = RateLimitLayer::builder().policy(tenant).build().unwrap();
    let server = Running::echo(layer).await;
    let client = server.client().await;
    let say = |tenant: &'static str| {
        let mut client: Client = client.clone();
        async move {
            let mut request = tonic::Request::new("a".to_owned());
            let tenant = tenant.parse().unwrap();
            request.metadata_mut().insert("tenant", tenant);
            client.call(crate::echo::UNARY, request).await.is_ok()
        }
    };
    assert!(say("ann").await);
    assert!(!say("ann").await);
    assert!(say("bob").await);
}

/// Returns a client of a server in this process, without a socket between them.
async fn in_process(layer: RateLimitLayer) -> Client {
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let server = Server::builder().layer(layer).add_service(Echo);
        let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far));
        server.serve_with_incoming(incoming).await.unwrap();
    });
    let mut near = Some(near);
    let connect = service_fn(move |_: http::Uri| {
        let near = near.take().map(TokioIo::new);
        async { near.ok_or_else(|| std::io::Error::other("it was connected before")) }
    });
    let endpoint = Endpoint::from_static("http://in.process");
    Client::of(endpoint.connect_with_connector(connect).await.unwrap())
}

#[tokio::test]
async fn without_a_socket_there_is_no_address_and_other_keys_are_there() {
    let by_address = Policy::new("address", FixedWindow::per_day(1)).key(key::peer_ip());
    let layer = RateLimitLayer::builder().policy(by_address);
    let mut client = in_process(layer.build().unwrap()).await;
    let refused = client.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal);

    let by_method = Policy::new("method", FixedWindow::per_day(1)).key(key::grpc_method());
    let layer = RateLimitLayer::builder().policy(by_method);
    let mut client = in_process(layer.build().unwrap()).await;
    assert_eq!(client.say("a").await.unwrap(), "a");
    let refused = client.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}
