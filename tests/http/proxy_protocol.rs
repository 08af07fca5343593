//! A listener of the PROXY protocol, whose connection info is a type of the user.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower_ratelimit::key::{self, Extract, Forwarding, Peer, Proxies};
use tower_ratelimit::{AnchoredWindow, RateLimitLayer};

/// Expects one line of version 1 before each connection's requests.
struct ProxyListener(TcpListener);

/// The address of a connection: `None` if the proxy says `UNKNOWN`.
#[derive(Clone, Copy, Debug)]
struct ProxiedAddr(Option<IpAddr>);

impl Listener for ProxyListener {
    type Io = tokio::net::TcpStream;
    type Addr = ProxiedAddr;

    async fn accept(&mut self) -> (Self::Io, ProxiedAddr) {
        loop {
            let Ok((stream, _)) = self.0.accept().await else {
                continue;
            };
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") && line.len() < 107 && stream.readable().await.is_ok() {
                let mut byte = [0];
                match stream.try_read(&mut byte) {
                    Ok(1) => line.extend(byte),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            let source = line
                .split(' ')
                .nth(2)
                .and_then(|source| source.parse().ok());
            return (stream, ProxiedAddr(source));
        }
    }

    fn local_addr(&self) -> std::io::Result<ProxiedAddr> {
        Ok(ProxiedAddr(
            self.0.local_addr().ok().map(|address| address.ip()),
        ))
    }
}

impl Connected<IncomingStream<'_, ProxyListener>> for ProxiedAddr {
    fn connect_info(stream: IncomingStream<'_, ProxyListener>) -> Self {
        *stream.remote_addr()
    }
}

struct Server {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    /// Counts by this key, one request a day.
    fn start(key: impl Extract) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(RateLimitLayer::new(key, AnchoredWindow::per_day(1)));
        let service = app.into_make_service_with_connect_info::<ProxiedAddr>();
        runtime.spawn(async { axum::serve(ProxyListener(listener), service).await });
        Self {
            address,
            _runtime: runtime,
        }
    }

    /// Returns the status of a request on a connection with this announcement of the proxy.
    fn ask(&self, announced: &str, forwarded_for: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).unwrap();
        write!(
            stream,
            "PROXY {announced}\r\nGET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {forwarded_for}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }
}

fn source(source: &ProxiedAddr) -> Peer {
    source.0.into()
}

#[test]
fn the_source_that_the_proxy_announces_is_the_peer() {
    let server = Server::start(key::peer_ip().connect_info(source));
    for (announced, status) in [
        ("TCP4 203.0.113.7 192.0.2.1 4711 443", "200"),
        ("TCP4 203.0.113.7 192.0.2.1 4712 443", "429"),
        ("TCP4 203.0.113.8 192.0.2.1 4711 443", "200"),
        ("TCP6 2001:db8::1 2001:db8::f 4711 443", "200"),
        ("TCP6 2001:db8::2 2001:db8::f 4711 443", "429"),
        ("UNKNOWN", "500"),
    ] {
        assert_eq!(server.ask(announced, "198.51.100.1"), status, "{announced}");
    }
}

#[test]
fn a_chain_may_go_on_behind_the_source_if_it_is_trusted() {
    let proxies = Proxies::in_networks(["10.0.0.0/8"]).and_unix_socket();
    let key = key::client_ip()
        .connect_info(source)
        .behind(proxies, Forwarding::XForwardedFor);
    let server = Server::start(key);
    for (announced, forwarded_for, status) in [
        ("TCP4 10.0.0.1 192.0.2.1 1 443", "203.0.113.7", "200"),
        ("TCP4 10.0.0.2 192.0.2.1 1 443", "203.0.113.7", "429"),
        // The peer is not trusted, so its announcement is not read.
        ("TCP4 203.0.113.7 192.0.2.1 1 443", "198.51.100.2", "429"),
        // An unknown peer is no Unix socket, even if Unix sockets are trusted.
        ("UNKNOWN", "198.51.100.3", "500"),
    ] {
        let seen = server.ask(announced, forwarded_for);
        assert_eq!(seen, status, "{announced} {forwarded_for}");
    }
}
