//! A store in Redis with connections that fall silent, callers that give up, and limits that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisFuture, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tower_ratelimit::{AnchoredWindow, Limiter, Policy, RedisStore};

use crate::scene::{PATIENCE, until_told};
use crate::support::redis::Server;

fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let builder = Limiter::builder().policies(policies);
    builder.store(store.clone()).build().unwrap()
}

fn daily(name: &'static str, limit: u32) -> Policy {
    Policy::new(name, AnchoredWindow::per_day(limit))
}

/// A proxy before a server. Bytes on the first `holes` connections are lost.
struct Proxy {
    port: u16,
    holes: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (holes, to) = (Arc::new(AtomicUsize::new(0)), server.port());
        let shared = Arc::clone(&holes);
        tokio::spawn(async move {
            for number in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let (mut answers, mut calls) = server.into_split();
                let (mut from_client, mut to_client) = client.into_split();
                let holes = Arc::clone(&shared);
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut to_client).await });
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                        if number >= holes.load(Ordering::SeqCst) {
                            calls.write_all(&bytes[..length]).await.unwrap();
                        }
                    }
                });
            }
        });
        Self { port, holes }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_left_also_by_callers_that_give_up_before_the_deadline() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(&server).await;
    let store = RedisStore::builder().deadline(Duration::from_millis(200));
    let store = store.open(proxy.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 1_000)]);
    while limiter.check("ann", 1).await.is_err() {}

    proxy.holes.store(1, Ordering::SeqCst);
    for _ in 0..100 {
        let checked = limiter.check("ann", 1);
        if let Ok(Ok(decision)) = timeout(Duration::from_millis(150), checked).await {
            assert!(decision.is_allowed());
            return;
        }
    }
    panic!("the connection was never replaced");
}

#[tokio::test]
async fn a_limit_of_ones_own_that_has_ended_denies_no_request_any_more() {
    let server = Server::start(&[]);
    let store = RedisStore::builder().remember_denials_for(Duration::from_secs(600));
    let store = store.deadline(PATIENCE);
    let store = store.open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 10)]);
    let own = AnchoredWindow::per_day(1);
    let length = Duration::from_millis(500);
    let mut key = 0_u32;
    until_told(async || {
        key += 1;
        let overriding = limiter.override_limit("a", key, own, length).unwrap();
        overriding.await.unwrap();
        assert!(limiter.check(key, 1).await.unwrap().is_allowed());
        // The limit may have ended meanwhile.
        let is_denied = !limiter.check(key, 1).await.unwrap().is_allowed();
        is_denied.then_some(())
    })
    .await;
    // A peek asks the server.
    while !limiter.peek(key, 1).await.unwrap().is_allowed() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(limiter.check(key, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn units_that_another_node_gives_back_are_available_at_the_next_attempt() {
    let server = Server::start(&[]);
    let open = || {
        let store = RedisStore::builder().remember_denials_for(Duration::from_secs(600));
        let store = store.deadline(PATIENCE);
        limiter(&store.open(server.url()).unwrap(), [daily("a", 1)])
    };
    let (here, elsewhere) = (open(), open());
    assert!(here.check("ann", 1).await.unwrap().is_allowed());
    assert!(!here.check("ann", 1).await.unwrap().is_allowed());
    elsewhere.refund("ann", 1).await.unwrap();
    let taken = timeout(PATIENCE, here.acquire_up_to("ann", 1)).await;
    let (taken, _) = taken.expect("it is not asked over and over").unwrap();
    assert_eq!(taken, 1);
}

#[tokio::test]
async fn a_denial_that_is_remembered_still_tells_its_wait_when_one_of_two_is_over() {
    let server = Server::start(&[]);
    let store = RedisStore::builder().remember_denials_for(Duration::from_secs(600));
    let store = store.deadline(PATIENCE);
    let store = store.open(server.url()).unwrap();
    let short = AnchoredWindow::new(1, Duration::from_millis(200)).unwrap();
    let limiter = limiter(&store, [Policy::new("short", short), daily("long", 1)]);
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    tokio::time::sleep(Duration::from_millis(200)).await;

    let remembered = limiter.check("ann", 1).await.unwrap();
    let asked = limiter.peek("ann", 1).await.unwrap();
    for decision in [remembered, asked] {
        let retry_after = decision.retry_after().expect("a day is enough");
        assert!(retry_after > Duration::from_secs(80_000), "{retry_after:?}");
        let mut policies = decision.policies();
        let (_, short) = policies.find(|(name, _)| *name == "short").unwrap();
        assert!(short.is_allowed());
    }
}
#[tokio::test]
async fn a_node_that_does_not_answer_keeps_no_request_from_the_other_nodes() {
    let cluster = crate::support::redis::Cluster::start();
    cluster.nodes[2].freeze();
    let urls = cluster.urls();
    for deadline in [100, 2_000] {
        let store = RedisStore::builder().deadline(Duration::from_millis(deadline));
        let store = store.open_cluster(urls.iter().map(String::as_str)).unwrap();
        let limiter = limiter(&store, [daily("a", 1_000)]);
        let started = std::time::Instant::now();
        let mut key = 0_u32;
        while limiter.check(key, 1).await.is_err() {
            key += 1;
            assert!(started.elapsed() < PATIENCE, "{key} keys at {deadline} ms");
        }
    }
}

/// A connection on which refunds have a fault.
#[derive(Clone)]
struct Tampered {
    connection: MultiplexedConnection,
    tamper: Tamper,
}

#[derive(Clone)]
enum Tamper {
    /// Refunds fail.
    Fail,
    /// Refunds arrive, are executed when the test wishes, and are never answered.
    Hold {
        arrived: Arc<Notify>,
        wished: Arc<Notify>,
        done: Arc<Notify>,
    },
}

impl Tampered {
    async fn to(server: &Server, tamper: Tamper) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { connection, tamper }
    }
}

impl ConnectionLike for Tampered {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let command = command.clone();
        let words = command.get_packed_command();
        let is_refund = words.windows(10).any(|word| word == b"\r\nrefund\r\n");
        Box::pin(async move {
            if !is_refund {
                return self.connection.req_packed_command(&command).await;
            }
            match &self.tamper {
                Tamper::Fail => Err((ErrorKind::Io, "it is not to be").into()),
                Tamper::Hold {
                    arrived,
                    wished,
                    done,
                } => {
                    arrived.notify_one();
                    wished.notified().await;
                    let answer = self.connection.req_packed_command(&command).await;
                    if let Err(error) = answer.and_then(Value::extract_error) {
                        // It is sent again, with the text of the script.
                        wished.notify_one();
                        return Err(error);
                    }
                    done.notify_one();
                    std::future::pending().await
                }
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

#[tokio::test]
async fn a_denial_stands_if_what_was_taken_cannot_be_given_back() {
    let server = Server::start(&[]);
    let connection = Tampered::to(&server, Tamper::Fail).await;
    let store = RedisStore::builder().deadline(PATIENCE);
    let store = store.over(connection).unwrap();
    let limiter = limiter(&store, [daily("a", 5), daily("b", 1)]);
    let checked = limiter.named([("a", "ann", 2), ("b", "bob", 2)]);
    let decision = checked.unwrap().check().await.unwrap();
    assert!(!decision.is_allowed());
}

#[tokio::test]
async fn a_refund_that_is_given_up_ends_what_is_remembered() {
    let server = Server::start(&[]);
    let (arrived, wished, done) = <(Arc<Notify>, Arc<Notify>, Arc<Notify>)>::default();
    let tamper = Tamper::Hold {
        arrived: Arc::clone(&arrived),
        wished: Arc::clone(&wished),
        done: Arc::clone(&done),
    };
    let store = RedisStore::builder().remember_denials_for(Duration::from_secs(600));
    let store = store.deadline(PATIENCE);
    let store = store.over(Tampered::to(&server, tamper).await).unwrap();
    let limiter = Arc::new(limiter(&store, [daily("a", 1)]));
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());

    let refunding = Arc::clone(&limiter);
    let refund = tokio::spawn(async move { refunding.refund("ann", 1).await });
    arrived.notified().await;
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    wished.notify_one();
    done.notified().await;
    refund.abort();
    refund.await.unwrap_err();
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
}

#[test]
fn denials_are_not_remembered_for_ever() {
    let store = RedisStore::builder().remember_denials_for(Duration::MAX);
    let error = store.open("redis://127.0.0.1:6379/").unwrap_err();
    assert!(
        error.to_string().contains("remember_denials_for"),
        "{error}"
    );
}
