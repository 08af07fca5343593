//! A call that may have been executed is not sent again.

use std::time::Duration;

use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::{RedisStore, StoreError};

use crate::scene::{
    calls, cluster_store, daily, key_on_each, limiter, node_of, over, patient, store, story, until,
    until_told, used,
};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::{Cluster, Server};

/// A deadline that may be over before a call is sent.
const SHORT: Duration = Duration::from_millis(60);
/// A deadline that is over only if there is no answer.
const LONG: Duration = Duration::from_secs(4);

fn assert_unavailable<T>(answer: Result<T, StoreError>) {
    let error = answer.map(drop).unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unavailable,
        "{}",
        story(&error)
    );
    assert!(error.is_transient());
}

/// Sends each verb once to a server with this reply to every script, with a short deadline again until no deadline
/// is over before the server is asked.
async fn each_verb_arrives_once(answer: ScriptedReply, deadline: Duration) {
    until_told(async || each_verb_arrives(answer, deadline).await.then_some(())).await;
}

/// Returns whether the server was asked about each verb, and asserts that it was asked once.
async fn each_verb_arrives(answer: ScriptedReply, deadline: Duration) -> bool {
    let server = StandIn::start(move |_| answer);
    // Five failures in a row would open the breaker.
    let limiters = [(); 2].map(|()| {
        let store = patient().deadline(deadline).open(server.url()).unwrap();
        limiter(&store, [daily("a", 5), daily("b", 5)])
    });
    for number in 0..6 {
        let key = format!("key-{number}");
        let limiter = &limiters[number % 2];
        match number {
            0 => assert_unavailable(limiter.check(&key, 1).await),
            1 => assert_unavailable(limiter.refund(&key, 1).await),
            2 => assert_unavailable(limiter.settle(&key, 1).await),
            3 => assert_unavailable(limiter.reset(&key).await),
            4 => assert_unavailable(limiter.block(&key, Duration::from_secs(1)).await),
            _ => assert_unavailable(limiter.acquire_up_to(&key, 3).await),
        }
    }
    let scripts = server.scripts();
    let about = |number| {
        let name = format!("{{t:key-{number}}}");
        let found = scripts.iter().filter(|words| words[3].contains(&name));
        found.count()
    };
    let times = [0, 1, 2, 3, 4, 5].map(about);
    if deadline == SHORT && times.iter().all(|times| *times <= 1) && times != [1; 6] {
        return false;
    }
    assert_eq!(times, [1; 6], "{scripts:?}");
    // A connection with this failure is not used again.
    assert_eq!(server.connections(), 6);
    true
}

#[tokio::test]
async fn a_connection_that_closes_after_the_command_loses_it_for_good() {
    each_verb_arrives_once(ScriptedReply::Break(""), crate::scene::PATIENCE).await;
}

#[tokio::test]
async fn half_an_answer_is_no_reason_to_ask_again() {
    each_verb_arrives_once(ScriptedReply::Break("*4\r\n:17"), crate::scene::PATIENCE).await;
}

#[tokio::test]
async fn a_server_that_stays_silent_is_asked_once_until_the_deadline() {
    each_verb_arrives_once(ScriptedReply::Silence, SHORT).await;
}

/// Two settlements, to a server that decides and behaves so with everything else.
async fn each_settlement_arrives_once(answer: ScriptedReply, deadline: Duration) {
    let decides = |words: &[String]| words.iter().any(|word| word == "charge");
    let server = StandIn::start(move |words| {
        if decides(words) {
            ScriptedReply::Allow
        } else {
            answer
        }
    });
    let store = patient().deadline(deadline).open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 5)]);
    for (lost, cost) in [(1, 0), (2, 4)] {
        limiter.reserve("ann", 2).await.unwrap().settle(cost);
        until("it is lost", || limiter.lost_settlements() == lost).await;
    }
    // A second attempt would come before this.
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    let scripts = server.scripts();
    let settlements = scripts.iter().filter(|words| !decides(words));
    assert_eq!(settlements.count(), 2, "{scripts:?}");
}

#[tokio::test]
async fn a_settlement_whose_answer_is_lost_is_not_repeated() {
    each_settlement_arrives_once(ScriptedReply::Break(""), crate::scene::PATIENCE).await;
    each_settlement_arrives_once(ScriptedReply::Silence, LONG).await;
}

#[tokio::test]
async fn a_text_that_was_sent_is_not_sent_again() {
    let server = StandIn::start(|words| match &*words[0] {
        "EVALSHA" => ScriptedReply::Say("-NOSCRIPT No matching script.\r\n"),
        _ => ScriptedReply::Break(""),
    });
    let store = patient().open(server.url()).unwrap();
    assert_unavailable(limiter(&store, [daily("a", 5)]).check("ann", 1).await);
    let names: Vec<String> = server
        .scripts()
        .iter()
        .map(|words| words[0].clone())
        .collect();
    assert_eq!(names, ["EVALSHA", "EVAL"]);
}

/// Neither answer is late by itself.
#[tokio::test]
async fn the_deadline_is_that_of_both_round_trips_together() {
    let deadline = Duration::from_millis(400);
    let server = StandIn::start(move |words| {
        std::thread::sleep(deadline * 6 / 10);
        match &*words[0] {
            "EVALSHA" => ScriptedReply::Say("-NOSCRIPT No matching script.\r\n"),
            _ => ScriptedReply::Say("*4\r\n:1\r\n:1\r\n:0\r\n$5\r\n0 0 0\r\n"),
        }
    });
    let store = patient().deadline(deadline).open(server.url()).unwrap();
    assert_unavailable(limiter(&store, [daily("a", 5)]).check("ann", 1).await);
}

/// After a failover behind one name, the old connection leads to a server that is a replica now.
#[tokio::test]
async fn a_server_that_may_not_write_is_left() {
    let refusal = "-READONLY You can't write against a read only replica.\r\n";
    let server = StandIn::start(move |_| ScriptedReply::Say(refusal));
    let store = patient().open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 5)]);
    for connections in 1..=3 {
        assert_unavailable(limiter.check("ann", 1).await);
        assert_eq!(server.connections(), connections);
    }
}

/// The server continues after the deadline, and then executes the command.
async fn is_charged_once(hasty: &RedisStore, calm: &RedisStore, server: &Server, key: u64) {
    let hasty = limiter(hasty, [daily("a", 5)]);
    let calm = limiter(calm, [daily("a", 5)]);
    // The script is known there, and the connection exists.
    assert!(calm.check(key, 1).await.unwrap().is_allowed());
    let mut connected = hasty.peek(key, 0).await;
    while connected.is_err() {
        connected = hasty.peek(key, 0).await;
    }
    server.freeze();
    let answer = hasty.check(key, 2).await;
    server.thaw();
    assert_unavailable(answer);
    let mut told = calm.peek(key, 0).await.unwrap();
    while used(&told) == [1] {
        told = calm.peek(key, 0).await.unwrap();
    }
    assert_eq!(used(&told), [3]);
    // A command that the client has sent again comes before this one.
    while hasty.peek(key, 0).await.is_err() {}
    assert_eq!(used(&calm.peek(key, 0).await.unwrap()), [3]);
}

#[tokio::test]
async fn a_server_that_stops_over_the_deadline_charges_once() {
    let server = Server::start(&[]);
    let hasty = patient().deadline(LONG).open(server.url()).unwrap();
    is_charged_once(&hasty, &store(&server), &server, 7).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_that_stops_over_the_deadline_charges_once() {
    let cluster = Cluster::start();
    let hasty = over(patient().deadline(LONG), &cluster);
    let calm = cluster_store(&cluster);
    let key = key_on_each(&cluster, &calm, &daily("a", 5))[1];
    is_charged_once(&hasty, &calm, &cluster.nodes[1], key).await;
}

/// Its connections break while the proxy holds the command back, so that the command is never executed.
async fn is_lost(store: &RedisStore, server: &Server, key: u64) {
    let limiter = limiter(store, [daily("a", 5)]);
    assert!(limiter.check(key, 1).await.unwrap().is_allowed());
    let before = calls(server, "evalsha");
    server.ask(&["CLIENT", "PAUSE", "20000", "WRITE"]);
    let asked = tokio::spawn(limiter.check(key, 1).into_future());
    until("the command", || {
        let clients: String = crate::scene::ask(server, &["CLIENT", "LIST"]);
        clients.lines().any(|client| client.contains(" flags=b "))
    })
    .await;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert_unavailable(asked.await.unwrap());
    server.ask(&["CLIENT", "UNPAUSE"]);
    let mut told = limiter.peek(key, 0).await;
    while told.is_err() {
        told = limiter.peek(key, 0).await;
    }
    assert_eq!(used(&told.unwrap()), [1]);
    assert_eq!(calls(server, "evalsha"), before + 1);
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_and_the_call_is_not_made_on_the_next() {
    let server = Server::start(&[]);
    is_lost(&store(&server), &server, 7).await;
}

#[tokio::test]
async fn the_same_in_a_cluster() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let key = key_on_each(&cluster, &store, &daily("a", 5))[2];
    let node = node_of(&cluster, &store.store_key(&daily("a", 5), key));
    is_lost(&store, node, key).await;
}
