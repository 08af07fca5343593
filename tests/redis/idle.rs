//! Connections that break while no call is in flight, because the server has restarted or a firewall has closed them.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::{Limiter, RedisStore};

use crate::scene::{cluster_store, daily, limiter, patient, store, story};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::{Cluster, Server};

const LIMIT: u32 = 20;

fn hang_up(server: &Server) {
    server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

/// The request after a restart of Redis found a dead connection and was decided by its node alone. So 21 of 20
/// passed, once for each node and restart.
async fn exactly_the_limit_passes(store: &RedisStore, servers: &[Server]) {
    let limiter: Limiter = limiter(store, [daily("a", LIMIT)]);
    let mut passed = 0;
    for _ in 0..LIMIT + 5 {
        servers.iter().for_each(hang_up);
        let told = limiter.check("ann", 1).await;
        let told = told.unwrap_or_else(|error| panic!("after {passed}: {}", story(&error)));
        passed += u32::from(told.is_allowed());
    }
    assert_eq!(passed, LIMIT);
}

/// The thread of this runtime is busy while the connection breaks, and learns of it late.
#[tokio::test]
async fn a_connection_that_died_while_its_runtime_was_busy_costs_no_request() {
    let server = Server::start(&[]);
    exactly_the_limit_passes(&store(&server), &[server]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_while_idle_costs_no_request() {
    let server = Server::start(&[]);
    exactly_the_limit_passes(&store(&server), &[server]).await;
}

/// With one thread, which is busy while they break; several threads would know before the next request.
#[tokio::test]
async fn in_a_cluster_connections_that_died_while_idle_cost_no_request() {
    let cluster = Cluster::start();
    exactly_the_limit_passes(&cluster_store(&cluster), &cluster.nodes).await;
}

#[tokio::test]
async fn a_unix_socket_that_died_while_idle_costs_no_request() {
    let path = std::env::temp_dir().join(format!("trl-idle-{}.sock", std::process::id()));
    let path = path.to_str().unwrap();
    let server = Server::start(&["--unixsocket", path]);
    let store = patient().open(format!("redis+unix://{path}")).unwrap();
    exactly_the_limit_passes(&store, &[server]).await;
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_server_that_restarted_is_asked_by_the_next_request() {
    let mut server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", LIMIT)]);
    for _ in 0..3 {
        let told = limiter.check("ann", 1).await;
        assert!(told.is_ok_and(|told| told.is_allowed()));
        server.restart();
    }
}

/// Each request runs the runtime, as in a program without an `async` main.
#[test]
fn a_runtime_that_runs_for_each_request_alone_loses_none() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", LIMIT)]);
    let runtime: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..5 {
        assert!(
            runtime
                .block_on(limiter.check("ann", 1).into_future())
                .is_ok()
        );
        hang_up(&server);
    }
}

/// All simultaneous requests are sent again, and each is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_together_after_the_connection_died_are_all_counted_once() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 1_000)]);
    for round in 1..=10_u32 {
        let asked: Vec<_> = (0..50)
            .map(|_| tokio::spawn(limiter.check("ann", 1).into_future()))
            .collect();
        for told in asked {
            let told = told.await.unwrap();
            assert!(
                told.unwrap_or_else(|error| panic!("{}", story(&error)))
                    .is_allowed()
            );
        }
        let told = limiter.peek("ann", 0).await.unwrap();
        assert_eq!(crate::scene::used(&told), [round * 50]);
        hang_up(&server);
    }
}

/// A server that reads a call and hangs up may have counted it.
#[tokio::test]
async fn a_call_that_was_written_on_a_connection_that_was_idle_is_not_sent_again() {
    let server = StandIn::start(|words| {
        if words[3].contains("ann") {
            ScriptedReply::Break("")
        } else {
            ScriptedReply::Allow
        }
    });
    let limiter = limiter(&patient().open(server.url()).unwrap(), [daily("a", LIMIT)]);
    assert!(limiter.check("bob", 1).await.is_ok());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(limiter.check("ann", 1).await.is_err());
    assert_eq!(server.scripts().len(), 2);
    assert_eq!(server.connections(), 1);
}
