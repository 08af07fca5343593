//! A server on a Unix socket, with a proxy at its other end.

#![cfg(unix)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, Proxies};
use tower_ratelimit::{AnchoredWindow, RateLimitLayer};

/// A server on a socket of its own; dropping it stops it.
struct Server {
    path: PathBuf,
    _runtime: Runtime,
}

impl Server {
    /// Counts by this key, one request a day.
    fn start(name: &str, key: Extractor<ClientIp>) -> Self {
        let runtime = Runtime::new().unwrap();
        let file = format!("tower-ratelimit-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _of_a_process_before = std::fs::remove_file(&path);
        let _within = runtime.enter();
        let listener = UnixListener::bind(&path).unwrap();
        let app = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(RateLimitLayer::new(key, AnchoredWindow::per_day(1)));
        runtime.spawn(async { axum::serve(listener, app).await });
        Self {
            path,
            _runtime: runtime,
        }
    }

    /// Returns the status of a request that the proxy passes on for this client.
    fn ask(&self, client: &str) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).unwrap();
        write!(
            stream,
            "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {client}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn the_proxy_at_the_other_end_speaks_for_clients_if_it_is_declared() {
    let key = key::client_ip().behind(Proxies::unix_socket(), Forwarding::XForwardedFor);
    let server = Server::start("declared", key);
    for (client, status) in [
        ("203.0.113.7", "200"),
        ("203.0.113.7", "429"),
        ("203.0.113.8", "200"),
        ("198.51.100.9, 203.0.113.8", "429"),
    ] {
        assert_eq!(server.ask(client), status, "{client}");
    }
}

#[test]
fn a_socket_that_is_not_declared_is_the_servers_fault() {
    let server = Server::start("undeclared", key::client_ip());
    assert_eq!(server.ask("203.0.113.7"), "500");
}
