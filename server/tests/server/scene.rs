//! A gateway with limits of a file, before an upstream.

use std::fs;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratelimitd::phase::Phase;
use ratelimitd::server::{Answers, Bounds, Server};
use ratelimitd::socket::Socket;
use ratelimitd::tls::Roots;
use ratelimitd::{Gateway, Upstream, sample};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower_ratelimit_config::{Config, Watched};

pub(crate) const WIDE: &str = "[policies.address]\nquota = \"100/minute\"\nkey = \"client_ip\"\n";

/// Longer than a test waits for an event that has to come.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    pub(crate) address: SocketAddr,
    pub(crate) watched: Watched,
    file: PathBuf,
}

impl Scene {
    /// These limits, before an upstream that answers with what has arrived.
    pub(crate) async fn new(limits: &str) -> Self {
        let (listener, upstream) = listener().await;
        tokio::spawn(sample::serve(listener, |_| false));
        Self::before(&upstream, limits).await
    }

    pub(crate) async fn before(upstream: &str, limits: &str) -> Self {
        Self::until(pending(), upstream, limits, LONG).await.0
    }

    /// Before an upstream, with clients that may take so much.
    pub(crate) async fn within(bounds: Bounds, upstream: &str, limits: &str) -> Self {
        let upstream = Upstream::new(upstream, &Roots::default(), LONG).unwrap();
        Self::start(bounds, pending(), upstream, limits).await.0
    }

    /// Returns a gateway that stops with `stop`, and the task that serves until then.
    pub(crate) async fn until(
        stop: impl Future<Output = ()> + Send + 'static,
        upstream: &str,
        limits: &str,
        timeout: Duration,
    ) -> (Self, JoinHandle<()>) {
        let roots = Roots::default();
        Self::trusting(&roots, stop, upstream, limits, timeout).await
    }

    /// Returns the same before an upstream that these certificates make trusted.
    pub(crate) async fn trusting(
        roots: &Roots,
        stop: impl Future<Output = ()> + Send + 'static,
        upstream: &str,
        limits: &str,
        timeout: Duration,
    ) -> (Self, JoinHandle<()>) {
        let bounds = Bounds {
            drain: LONG,
            ..Bounds::default()
        };
        let upstream = Upstream::new(upstream, roots, timeout).unwrap();
        Self::start(bounds, stop, upstream, limits).await
    }

    async fn start(
        bounds: Bounds,
        stop: impl Future<Output = ()> + Send + 'static,
        upstream: Upstream,
        limits: &str,
    ) -> (Self, JoinHandle<()>) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ratelimitd-{}-{number}.toml", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, limits).unwrap();
        let watched = Config::read(&file).unwrap().watch().unwrap();
        let gateway = Gateway::new(watched.clone(), upstream);
        let (listener, _) = listener().await;
        let address = listener.local_addr().unwrap();
        let phase = watch::Sender::new(Phase::Ready);
        let server = Server::new(bounds, phase.subscribe());
        tokio::spawn(async move {
            stop.await;
            phase.send_replace(Phase::Stopped);
        });
        let serving = tokio::spawn(server.serve(Socket::Tcp(listener), Answers::Gateway(gateway)));
        let scene = Self {
            address,
            watched,
            file,
        };
        (scene, serving)
    }

    pub(crate) fn rewrite(&self, limits: &str) {
        fs::write(&self.file, limits).unwrap();
    }

    /// Returns the answer to a request, whose head and body are given as they are sent.
    pub(crate) async fn ask(&self, request: &str) -> Received {
        ask_at(self.address, request).await
    }

    /// Returns the answer to a GET request with these header fields.
    pub(crate) async fn get(&self, path: &str, fields: &[&str]) -> Received {
        let fields: String = fields.iter().flat_map(|field| [*field, "\r\n"]).collect();
        // A `Connection` of the test stands beside ours.
        let head = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n");
        self.ask(&format!("{head}{fields}\r\n")).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Returns the answer of the server at this address.
pub(crate) async fn ask_at(address: SocketAddr, request: &str) -> Received {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    Received(String::from_utf8(answer).unwrap())
}

pub(crate) async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Reads a head, up to the empty line.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A response as it was received.
#[derive(Debug)]
pub(crate) struct Received(String);

impl Received {
    pub(crate) fn status(&self) -> u16 {
        self.0["HTTP/1.1 ".len()..][..3].parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.0.split_once("\r\n\r\n").unwrap();
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(it, _)| it.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").unwrap().1
    }

    /// What the upstream has received, if it is the sample.
    pub(crate) fn arrived(&self) -> serde_json::Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
