//! Connections to a server: when they are made, over which transport, and the errors without a server.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use redis::Client;
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::{RedisStore, StoreError};

use crate::scene::{
    PATIENCE, ask, calls, cluster_store, daily, key_on_each, keys, limiter, over, patient, store,
    story, used,
};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::{Cluster, Server};

async fn decides(store: &RedisStore) {
    let limiter = limiter(store, [daily("a", 5), daily("b", 5)]);
    let told = limiter
        .check("ann", 2)
        .await
        .unwrap_or_else(|error| panic!("{}", story(&error)));
    assert_eq!(used(&told), [2, 2]);
}

fn refused<T>(connected: Result<T, StoreError>, kind: StoreErrorKind) -> String {
    let error = connected.map(drop).unwrap_err();
    assert_eq!(error.kind(), kind, "{}", story(&error));
    format!("{}\n{error:?}", story(&error))
}

fn closed_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_store_connects_with_the_first_request_and_once() {
    let server = StandIn::start(|_| ScriptedReply::Allow);
    let store = patient().open(server.url()).unwrap();
    let limiters = [daily("a", 5), daily("b", 5)].map(|policy| limiter(&store, [policy]));
    assert_eq!(server.connections(), 0);
    let questions = (0..20).map(|key: u32| limiters[key as usize % 2].check(key, 1).into_future());
    let questions: Vec<_> = questions.map(tokio::spawn).collect();
    for question in questions {
        assert!(question.await.unwrap().unwrap().is_allowed());
    }
    assert_eq!(server.connections(), 1);
}

/// A configuration has its addresses as `String`s: one address needed `&`, and several needed
/// `.iter().map(String::as_str)`.
#[tokio::test]
async fn an_address_may_be_any_text() {
    let url = format!("redis://127.0.0.1:{}/", closed_port());
    let urls = vec![url.clone(), url.clone()];
    for opened in [
        RedisStore::new(&*url),
        RedisStore::new(&url),
        RedisStore::new(url.clone()),
        patient().open(&url),
        patient().open(std::borrow::Cow::from(&url)),
        patient().open_cluster(&urls),
        patient().open_cluster(urls.clone()),
        patient().open_cluster([&*url]),
        patient().open_sentinel("mymaster", &urls),
        patient().open_sentinel(String::from("mymaster"), urls.clone()),
    ] {
        assert!(opened.is_ok(), "{opened:?}");
    }
    for connected in [
        RedisStore::connect(&url).await,
        RedisStore::connect(url.clone()).await,
        patient().connect_cluster(&urls).await,
        patient().connect_cluster(urls.clone()).await,
        patient().connect_sentinel("mymaster", &urls).await,
        tokio::spawn(patient().connect_sentinel("mymaster", urls))
            .await
            .unwrap(),
    ] {
        refused(connected, StoreErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_store_that_is_built_without_a_server_says_so_with_each_request() {
    let store = patient()
        .open(format!("redis://127.0.0.1:{}/", closed_port()))
        .unwrap();
    let limiter = limiter(&store, [daily("a", 5)]);
    for _ in 0..2 {
        refused(limiter.check("ann", 1).await, StoreErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn to_connect_fails_at_once_where_nothing_listens() {
    let (url, asked) = (
        format!("redis://127.0.0.1:{}/", closed_port()),
        Instant::now(),
    );
    refused(patient().connect(&url).await, StoreErrorKind::Unavailable);
    refused(
        patient().connect_cluster([&*url]).await,
        StoreErrorKind::Unavailable,
    );
    assert!(asked.elapsed() < PATIENCE / 2);
}

#[tokio::test]
async fn to_connect_fails_at_the_deadline_where_nothing_answers() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!(
        "redis://127.0.0.1:{}/",
        listener.local_addr().unwrap().port()
    );
    let hasty = || RedisStore::builder().deadline(Duration::from_millis(50));
    refused(hasty().connect(&url).await, StoreErrorKind::Unavailable);
    refused(
        hasty().connect_cluster([&*url]).await,
        StoreErrorKind::Unavailable,
    );
}

#[tokio::test]
async fn a_wrong_password_is_a_misconfiguration_and_is_not_shown() {
    let server = Server::start(&["--user", "limiter", "on", ">r1ghtpass", "~*", "+@all"]);
    let url = |password: &str| format!("redis://limiter:{password}@127.0.0.1:{}/", server.port());
    let said = refused(
        patient().connect(&url("wr0ngpass")).await,
        StoreErrorKind::Misconfigured,
    );
    assert!(!said.contains("wr0ngpass"), "{said}");
    decides(&patient().connect(&url("r1ghtpass")).await.unwrap()).await;
}

#[tokio::test]
async fn a_password_that_is_missing_is_a_misconfiguration() {
    let server = StandIn::start(|_| ScriptedReply::Say("-NOAUTH Authentication required.\r\n"));
    let connected = patient().connect(server.url()).await;
    let said = refused(connected, StoreErrorKind::Misconfigured);
    assert!(said.contains("NOAUTH"), "{said}");
}

/// The server does not read the arguments of a decision from a client that is not authenticated.
#[tokio::test]
async fn a_password_that_is_missing_is_named_without_connecting_first() {
    let server = Server::start(&[]);
    server.ask(&["CONFIG", "SET", "requirepass", "r1ghtpass"]);
    let limiter = limiter(&store(&server), [daily("a", 5)]);
    let error = limiter.check("ann", 1).await.unwrap_err();
    assert_eq!(error.reason(), Some("no password"), "{}", story(&error));
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_by_name() {
    let server = StandIn::start(|_| ScriptedReply::Say("$22\r\nredis_version:6.0.16\r\n\r\n"));
    let connected = patient().connect(server.url()).await;
    let said = refused(connected, StoreErrorKind::Misconfigured);
    assert!(said.contains("Redis 6.0") && said.contains("6.2"), "{said}");
}

#[tokio::test]
async fn a_unix_socket_leads_to_the_server() {
    let path = std::env::temp_dir().join(format!("trl-{}.sock", std::process::id()));
    let path = path.to_str().unwrap();
    let server = Server::start(&["--unixsocket", path]);
    let store = patient()
        .connect(&format!("redis+unix://{path}"))
        .await
        .unwrap();
    decides(&store).await;
    assert_eq!(keys(&server).len(), 2);
    drop(server);
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_state_is_in_the_database_of_the_address() {
    let server = Server::start(&[]);
    let store = patient().open(format!("{}3", server.url())).unwrap();
    decides(&store).await;
    let info: String = ask(&server, &["INFO", "keyspace"]);
    assert!(
        info.contains("db3:keys=2,") && !info.contains("db0"),
        "{info}"
    );
}

#[tokio::test]
async fn the_newer_protocol_says_the_same() {
    let server = Server::start(&[]);
    decides(
        &patient()
            .connect(&format!("{}?protocol=resp3", server.url()))
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(calls(&server, "hello"), 1);
}

#[tokio::test]
async fn a_connection_of_ones_own_is_taken() {
    let server = Server::start(&[]);
    let client = Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let store = patient().prefix("mine").over(connection).unwrap();
    decides(&store).await;
    let names = keys(&server);
    assert!(
        names.len() == 2 && names.iter().all(|name| name.starts_with("mine:")),
        "{names:?}"
    );
    // The server behind it is unknown, so keys are sent one by one, and none is charged alone.
    let limiter = limiter(&store, [daily("c", 5), daily("d", 1)]);
    let asked = limiter
        .named([("c", "bob", 2), ("d", "cat", 2)])
        .unwrap()
        .check();
    assert!(!asked.await.unwrap().is_allowed());
    assert_eq!(keys(&server), names);
}

#[tokio::test]
async fn a_connection_of_ones_own_to_a_cluster_is_taken() {
    let cluster = Cluster::start();
    let client = redis::cluster::ClusterClient::new(cluster.urls()).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let store = patient().over_cluster(connection).unwrap();
    decides(&store).await;
    let keys = key_on_each(&cluster, &store, &daily("a", 5));
    let limiter = limiter(&store, [daily("a", 5), daily("b", 5)]);
    let asked = limiter
        .named([("a", keys[0], 1), ("b", keys[1], 1)])
        .unwrap()
        .check();
    assert!(asked.await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_cluster_is_found_by_any_one_of_its_nodes() {
    let cluster = Cluster::start();
    for url in cluster.urls() {
        let closed = format!("redis://127.0.0.1:{}/", closed_port());
        let store = patient().connect_cluster([&*closed, &*url]).await;
        let store = store.unwrap_or_else(|error| panic!("{}", story(&error)));
        let keys = key_on_each(&cluster, &store, &daily("a", 5));
        let limiter = limiter(&store, [daily("a", 5)]);
        for key in keys {
            let told = limiter.check(key, 1).await;
            assert!(
                told.unwrap_or_else(|error| panic!("{}", story(&error)))
                    .is_allowed()
            );
        }
    }
}

/// The error says so, and not that the store is away.
#[tokio::test]
async fn a_node_of_a_cluster_that_is_opened_as_a_server_is_a_misconfiguration() {
    let cluster = Cluster::start();
    let as_server = store(&cluster.nodes[0]);
    let keys = key_on_each(&cluster, &as_server, &daily("a", 5));
    let limiter = limiter(&as_server, [daily("a", 5)]);
    assert!(limiter.check(keys[0], 1).await.unwrap().is_allowed());
    let said = refused(
        limiter.check(keys[1], 1).await,
        StoreErrorKind::Misconfigured,
    );
    assert!(said.contains("open_cluster"), "{said}");
}

/// Like tests of a service, each of which has a runtime.
fn outlives_a_runtime(store: &RedisStore) {
    let runtime = || -> Runtime { Builder::new_current_thread().enable_all().build().unwrap() };
    let limiter = limiter(store, [daily("a", 5)]);
    assert!(
        runtime()
            .block_on(limiter.check("ann", 1).into_future())
            .unwrap()
            .is_allowed()
    );
    let again = runtime();
    let first = again.block_on(limiter.check("ann", 1).into_future());
    let second = again.block_on(limiter.check("ann", 1).into_future());
    let told = second.unwrap_or_else(|error| panic!("{}", story(&error)));
    assert_eq!(used(&told), [2 + u32::from(first.is_ok())]);
}

#[test]
fn a_store_outlives_the_runtime_that_it_connected_in() {
    let server = Server::start(&[]);
    outlives_a_runtime(&store(&server));
}

#[test]
fn a_store_on_a_cluster_outlives_the_runtime_that_it_connected_in() {
    let cluster = Cluster::start();
    outlives_a_runtime(&cluster_store(&cluster));
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_its_password() {
    const PASSWORD: &str = "s3kr3t";
    for url in [
        "",
        "s3kr3t",
        "http://ann:s3kr3t@localhost/",
        "redis://ann:s3kr3t@localhost:port/",
        "redis://ann:s3kr3t@localhost/not-a-number",
        "redis://ann:s3kr3t@[::1/",
        "redis://ann:s3kr3t@localhost:70000/",
    ] {
        let error = RedisStore::new(url).unwrap_err();
        let said = format!("{error}{error:?}");
        assert!(error.field() == "url" && !said.contains(PASSWORD), "{said}");
        assert!(error.remedy().contains("redis://["), "{said}");
        let connected = patient().connect(url).await;
        let said = refused(connected, StoreErrorKind::Misconfigured);
        assert!(!said.contains(PASSWORD), "{said}");
        let said = patient().open_cluster([url]).unwrap_err().to_string();
        assert!(!said.contains(PASSWORD), "{said}");
    }
    assert_eq!(patient().open_cluster([""; 0]).unwrap_err().field(), "url");
    for other in [
        "redis://ann:s3kr3t2@10.0.0.2/",
        "redis://bob:s3kr3t@10.0.0.2/",
        "redis://ann:s3kr3t@10.0.0.2/3",
        "redis+unix:///run/s3kr3t",
    ] {
        let nodes = ["redis://ann:s3kr3t@10.0.0.1/", other];
        let error = patient().open_cluster(nodes).unwrap_err();
        let said = format!("{error}{error:?}");
        assert!(error.field() == "url" && !said.contains(PASSWORD), "{said}");
    }
    let store = RedisStore::new("redis://ann:s3kr3t@localhost/").unwrap();
    let shown = format!("{store:?}{:?}", limiter(&store, [daily("a", 5)]));
    assert!(!shown.contains(PASSWORD), "{shown}");
}

#[test]
fn options_out_of_their_ranges_are_refused_by_name() {
    let url = "redis://127.0.0.1:1/";
    for prefix in ["", " ", "a b", "{", "a}", "é", "a\n", &"x".repeat(65)] {
        let error = patient().prefix(prefix).open(url).unwrap_err();
        assert_eq!(error.field(), "prefix", "{error}");
    }
    for deadline in [
        Duration::ZERO,
        Duration::from_micros(999),
        Duration::from_secs(61),
    ] {
        let error = patient().deadline(deadline).open(url).unwrap_err();
        assert_eq!(error.field(), "deadline", "{error}");
    }
    for life in [Duration::from_millis(999), Duration::from_secs(3_601)] {
        let error = patient().slot_ttl(life).open(url).unwrap_err();
        assert_eq!(error.field(), "slot_ttl", "{error}");
    }
    for prefix in ["a", "shop:eu-1", &"x".repeat(64)] {
        assert!(patient().prefix(prefix).open(url).is_ok());
    }
    for deadline in [Duration::from_millis(1), Duration::from_secs(60)] {
        assert!(patient().deadline(deadline).open(url).is_ok());
    }
    for life in [Duration::from_secs(1), Duration::from_secs(3_600)] {
        assert!(patient().slot_ttl(life).open(url).is_ok());
    }
}

#[tokio::test]
async fn a_server_that_restarts_is_found_again() {
    let cluster = Cluster::start();
    let store = over(patient(), &cluster);
    let keys = key_on_each(&cluster, &store, &daily("a", 5));
    let limiter = limiter(&store, [daily("a", 5)]);
    for key in &keys {
        assert!(limiter.check(*key, 1).await.unwrap().is_allowed());
    }
    // Its connections break, as in a restart of the server.
    for node in &cluster.nodes {
        node.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        node.ask(&["SCRIPT", "FLUSH"]);
    }
    for key in &keys {
        let mut tries = 0;
        while limiter.check(*key, 0).await.is_err() {
            tries += 1;
            assert!(tries < 10, "it does not come back");
        }
        assert_eq!(used(&limiter.peek(*key, 0).await.unwrap()), [1]);
    }
}

#[tokio::test]
async fn a_server_that_takes_no_decision_is_not_connected_to() {
    let server = Server::start(&[]);
    for (is_so, ends, reason) in [
        (
            ["REPLICAOF", "127.0.0.1", "1"].as_slice(),
            ["REPLICAOF", "NO", "ONE"].as_slice(),
            "read only",
        ),
        (
            &["CONFIG", "SET", "maxmemory", "1"],
            &["CONFIG", "SET", "maxmemory", "0"],
            "out of memory",
        ),
    ] {
        server.ask(is_so);
        let error = patient().connect(server.url()).await.map(drop).unwrap_err();
        assert_eq!(error.reason(), Some(reason), "{}", story(&error));
        server.ask(ends);
        patient().connect(server.url()).await.unwrap();
    }
}

/// A wrong node decides on some keys, and other keys would reveal it.
#[tokio::test]
async fn a_node_of_a_cluster_is_not_connected_to_as_a_server() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        let error = patient().connect(node.url()).await.map(drop).unwrap_err();
        assert_eq!(
            error.reason(),
            Some("a node of a cluster"),
            "{}",
            story(&error)
        );
    }
    let urls = cluster.urls();
    let store = patient().connect_cluster(urls.iter().map(String::as_str));
    decides(&store.await.unwrap()).await;
}
