//! Requests while the server is away. In these tests it is full, for as long as the test needs.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Http;
use tower_ratelimit::store::{Backend, Charge, Reply, Store};
use tower_ratelimit::{
    AnchoredWindow, Limiter, ManualClock, OnStoreFailure, Policy, RateLimitLayer, RedisStore,
    TokenBucket, key,
};

use crate::scene::{PATIENCE, ask, calls, daily, patient, scripts_run, until, used};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::Server;

/// Two nodes share the store.
fn store(server: &Server) -> RedisStore {
    patient().nodes(2).open(server.url()).unwrap()
}

pub(crate) fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let limiter = Limiter::builder().policies(policies);
    limiter.store(store.clone()).build().unwrap()
}

fn refuse(policy: Policy) -> Policy {
    policy.on_store_failure(OnStoreFailure::Refuse)
}

fn allow(policy: Policy) -> Policy {
    policy.on_store_failure(OnStoreFailure::Allow)
}

/// Makes the server refuse writes, and waits until the store knows.
pub(crate) async fn lose(server: &Server, store: &RedisStore) {
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let limiter = limiter(store, [refuse(daily("lose", 1_000))]);
    for _ in 0..5 {
        let error = limiter.check("ann", 1).await.unwrap_err();
        assert_eq!(error.reason(), Some("out of memory"));
    }
    let error = limiter.check("ann", 1).await.unwrap_err();
    assert_eq!(error.reason(), Some("away"));
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

async fn find_again(server: &Server, limiter: &Limiter) {
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let back = async {
        while limiter.peek("nobody", 0).await.unwrap().is_degraded() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, back).await.unwrap();
}

#[tokio::test]
async fn a_node_keeps_to_its_share_until_the_server_is_back() {
    let server = Server::start(&[]);
    let store = store(&server);
    let limiter = limiter(&store, [daily("a", 9)]);
    let first = limiter.check("ann", 2).await.unwrap();
    assert!(!first.is_degraded());
    lose(&server, &store).await;
    let asked = scripts_run(&server).0;
    for count in 1..=5 {
        let told = limiter.check("ann", 1).await.unwrap();
        assert!(told.is_allowed() && told.is_degraded());
        let (_, outcome) = told.binding().unwrap();
        assert_eq!((outcome.limit(), outcome.used()), (5, count));
        assert!(outcome.is_overridden());
    }
    let denied = limiter.check("ann", 1).await.unwrap();
    assert!(!denied.is_allowed() && denied.is_degraded());
    assert!(denied.retry_after().is_some());
    assert_eq!(used(&limiter.peek("ann", 0).await.unwrap()), [5]);
    assert_eq!(scripts_run(&server).0, asked, "a request has asked it");
    find_again(&server, &limiter).await;
    let told = limiter.check("ann", 1).await.unwrap();
    assert!(told.is_allowed() && !told.is_degraded());
    assert_eq!(used(&told), [3]);
    // Units that were counted here still count.
    lose(&server, &store).await;
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn without_a_number_of_nodes_each_has_the_whole_limit() {
    let server = Server::start(&[]);
    let store = patient().open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 9)]);
    lose(&server, &store).await;
    let told = limiter.check("ann", 9).await.unwrap();
    assert!(told.is_allowed());
    assert!(!told.binding().unwrap().1.is_overridden());
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_policy_lets_everything_go_on_or_refuses_everything() {
    let server = Server::start(&[]);
    let store = store(&server);
    let of = |policies: Vec<Policy>| limiter(&store, policies);
    let open = of(vec![allow(daily("open", 1))]);
    let beside = of(vec![allow(daily("open", 1)), daily("here", 4)]);
    let closed = of(vec![daily("here", 4), refuse(daily("closed", 100))]);
    lose(&server, &store).await;
    for _ in 0..20 {
        let told = open.check("ann", 1).await.unwrap();
        assert!(told.is_allowed() && told.is_degraded());
        assert_eq!(told.policies().len(), 0);
    }
    for _ in 0..20 {
        let error = closed.check("ann", 1).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
    // The refusal has charged no policy.
    let told = beside.check("ann", 2).await.unwrap();
    let names: Vec<_> = told.policies().map(|(name, _)| name).collect();
    assert_eq!(names, ["here"]);
    assert!(told.is_allowed());
    assert!(!beside.check("ann", 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn blocks_that_a_node_has_made_or_met_hold() {
    let server = Server::start(&[]);
    let (store, elsewhere) = (store(&server), store(&server));
    let here = limiter(&store, [daily("a", 50), allow(daily("b", 50))]);
    let there = limiter(&elsewhere, [daily("a", 50), allow(daily("b", 50))]);
    let long = Duration::from_secs(3_600);
    for blocked in ["met", "freed", "unseen"] {
        there.block(blocked, long).await.unwrap();
    }
    here.block("made", long).await.unwrap();
    for blocked in ["met", "freed"] {
        assert!(!here.check(blocked, 1).await.unwrap().is_allowed());
    }
    there.unblock("freed").await.unwrap();
    assert!(here.check("freed", 1).await.unwrap().is_allowed());
    lose(&server, &store).await;
    let open = limiter(&store, [allow(daily("a", 50))]);
    for (key, is_blocked) in [
        ("made", true),
        ("met", true),
        ("freed", false),
        ("unseen", false),
    ] {
        let told = here.check(key, 1).await.unwrap();
        assert_eq!(told.is_allowed(), !is_blocked, "{key}");
        let names: Vec<_> = told.policies().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 1 + usize::from(is_blocked), "{key}: {names:?}");
        // Another backend has seen no key.
        assert!(open.check(key, 1).await.unwrap().is_allowed());
    }
    // The block holds here, and no other node knows it.
    here.block("late", long).await.unwrap_err();
    assert!(!here.check("late", 0).await.unwrap().is_allowed());
    here.unblock("late").await.unwrap_err();
    assert!(here.check("late", 0).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_denial_that_is_remembered_holds_for_all_of_its_wait() {
    let server = Server::start(&[]);
    let remembered = Duration::from_millis(1);
    let builder = patient().remember_denials_for(remembered);
    let store = builder.open(server.url()).unwrap();
    let here = limiter(&store, [daily("a", 1)]);
    let open = limiter(&store, [allow(daily("b", 1))]);
    for (limiter, key) in [(&here, "ann"), (&open, "amy")] {
        assert!(limiter.check(key, 1).await.unwrap().is_allowed());
        assert!(!limiter.check(key, 1).await.unwrap().is_allowed());
    }
    lose(&server, &store).await;
    tokio::time::sleep(remembered).await;
    let denied = here.check("ann", 1).await.unwrap();
    assert!(!denied.is_allowed() && denied.is_degraded());
    let nearly_a_day = Duration::from_secs(86_000);
    assert!(denied.retry_after().unwrap() > nearly_a_day);
    assert!(here.check("bob", 1).await.unwrap().is_allowed());
    assert!(open.check("amy", 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn refunds_and_settlements_during_an_outage_count_in_this_process() {
    let server = Server::start(&[]);
    let store = store(&server);
    let here = limiter(&store, [daily("a", 10)]);
    let closed = limiter(&store, [refuse(daily("a", 10))]);
    lose(&server, &store).await;
    assert_eq!(used(&here.check("ann", 4).await.unwrap()), [4]);
    here.refund("ann", 3).await.unwrap();
    assert_eq!(used(&here.peek("ann", 0).await.unwrap()), [1]);
    here.settle("ann", 2).await.unwrap();
    assert_eq!(used(&here.peek("ann", 0).await.unwrap()), [3]);
    let error = here.reset("ann").await.unwrap_err();
    assert_eq!(error.reason(), Some("away"));
    assert_eq!(used(&here.peek("ann", 0).await.unwrap()), [0]);
    closed.refund("ann", 1).await.unwrap_err();
    closed.settle("ann", 1).await.unwrap_err();
}

/// What is owed drains at this node's share of the plan, not at the whole limit, whatever settles it.
#[tokio::test]
async fn a_settlement_and_a_refund_under_a_plan_drain_at_this_nodes_share() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    let store = patient().nodes(12).open(server.url()).unwrap();
    let store = store.clock(clock.clone());
    let bucket = |limit| TokenBucket::per_minute(limit);
    let plans = Plans::new([Plan::new("pro").limit("calls", bucket(120))]);
    let limiter = Limiter::builder()
        .policy(Policy::new("calls", bucket(60)))
        .plans(plans.default_plan("pro"), |_| Some("pro"))
        .store(store.clone())
        .build()
        .unwrap();
    lose(&server, &store).await;
    for key in ["settled", "refunded"] {
        assert!(limiter.check(key, 10).await.unwrap().is_allowed());
        assert!(!limiter.check(key, 1).await.unwrap().is_allowed());
    }
    // A share of ten a minute drains by one in this time, and the whole limit by twelve.
    clock.advance(Duration::from_secs(6));
    limiter.settle("settled", 1).await.unwrap();
    assert!(!limiter.check("settled", 1).await.unwrap().is_allowed());
    limiter.refund("refunded", 1).await.unwrap();
    assert!(limiter.check("refunded", 2).await.unwrap().is_allowed());
    assert!(!limiter.check("refunded", 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn one_call_that_fails_is_decided_here_too() {
    let server = StandIn::start(|_| ScriptedReply::Say("-LOADING Redis is loading\r\n"));
    let store = patient().nodes(2).open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 4)]);
    assert!(limiter.check("ann", 2).await.unwrap().is_degraded());
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    assert_eq!(server.scripts().len(), 2);
}

/// A caller that gives up before the store would never see the deadline.
#[tokio::test]
async fn callers_that_give_up_one_after_the_other_find_the_server_away() {
    let server = StandIn::start(|_| ScriptedReply::Silence);
    let store = patient().deadline(Duration::from_millis(80));
    let store = store.open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 1_000)]);
    // Connecting takes a while too.
    let _ = limiter.check("ann", 1).await;
    let away = async {
        let impatient = Duration::from_millis(40);
        while timeout(impatient, limiter.check("ann", 1)).await.is_err() {}
    };
    timeout(PATIENCE, away).await.unwrap();
    let asked = server.scripts().len();
    assert!(asked < 20, "{asked}");
}

async fn answer(
    policies: impl IntoIterator<Item = Policy<Http>>,
    store: &RedisStore,
) -> (StatusCode, HeaderMap) {
    let layer = RateLimitLayer::builder()
        .policies(policies)
        .store(store.clone());
    let service = layer
        .build()
        .unwrap()
        .layer(service_fn(async |_: Request<String>| {
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }));
    let response = service.oneshot(Request::new(String::new())).await.unwrap();
    (response.status(), response.headers().clone())
}

#[tokio::test]
async fn clients_are_told_the_share_or_nothing_and_never_429_for_our_failure() {
    let server = Server::start(&[]);
    let store = store(&server);
    lose(&server, &store).await;
    let local = || daily("here", 9).key(key::global());
    let open = || allow(daily("open", 9)).key(key::global());
    let closed = || refuse(daily("closed", 9)).key(key::global());

    let (status, fields) = answer([local()], &store).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fields["ratelimit-policy"], r#""here";q=5;w=86400"#);
    assert!(
        fields["ratelimit"]
            .to_str()
            .unwrap()
            .starts_with(r#""here";r=4;"#)
    );

    let (status, fields) = answer([open()], &store).await;
    assert_eq!((status, fields.len()), (StatusCode::OK, 0), "{fields:?}");

    let (status, fields) = answer([open(), local()], &store).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fields["ratelimit-policy"], r#""here";q=5;w=86400"#);

    let (status, fields) = answer([closed(), local()], &store).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fields["retry-after"], "5");
    assert!(!fields.contains_key("ratelimit"));
}

#[tokio::test]
async fn another_type_under_a_key_is_a_failure_of_that_key_alone() {
    let server = Server::start(&[]);
    let store = store(&server);
    let policy = daily("a", 4);
    server.ask(&["LPUSH", &store.store_key(&policy, "ann"), "x"]);
    let limiter = limiter(&store, [policy]);
    for _ in 0..10 {
        assert!(limiter.check("ann", 0).await.unwrap().is_degraded());
    }
    let told = limiter.check("bob", 1).await.unwrap();
    assert!(!told.is_degraded());
    limiter.reset("ann").await.unwrap();
    assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
}

/// No call is sent while the server is away.
#[tokio::test]
async fn the_server_is_found_again_without_traffic_and_asked_seldom() {
    let server = Server::start(&[]);
    let store = store(&server);
    lose(&server, &store).await;
    let asked = calls(&server, "eval");
    until("a probe", || calls(&server, "eval") > asked).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let sets = calls(&server, "set");
    until("a probe that succeeds", || calls(&server, "set") > sets).await;
    let limiter = limiter(&store, [daily("a", 1)]);
    until("what it means", || {
        let peeked = futures_now(limiter.peek("ann", 0));
        peeked.is_none_or(|told| !told.unwrap().is_degraded())
    })
    .await;
    // Four probes within the first four seconds: after a quarter, a half, one and two seconds.
    assert!(calls(&server, "eval") - asked <= 6);
}

/// Available data: a decision without the server waits for nothing.
fn futures_now<T>(future: impl IntoFuture<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future.into_future()).poll(&mut context) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn no_nodes_at_all_are_none() {
    let error = RedisStore::builder()
        .nodes(0)
        .open("redis://127.0.0.1:6379/")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`nodes` cannot be 0: give the number of nodes that share the store, 1 or more",
    );
}

#[tokio::test]
async fn an_operator_is_told_that_it_is_told_by_this_process_alone() {
    let server = Server::start(&[]);
    let store = store(&server);
    let limiter = limiter(
        &store,
        [
            Policy::new("a", TokenBucket::per_day(9)),
            allow(daily("b", 9)),
            Policy::new("c", AnchoredWindow::per_day(2)),
        ],
    );
    lose(&server, &store).await;
    let told = limiter.inspect("ann").await.unwrap().to_string();
    assert_eq!(
        told,
        "a: nothing of 5 used. That limit is this node's share.\n\
         c: nothing of 1 used. That limit is this node's share.\n\
         b: everything goes on.\n\
         Told by this process alone, since the store is away.\n",
    );
}

/// A connection for each request, or for each attempt.
#[tokio::test]
async fn the_store_has_one_connection_before_and_after_an_outage() {
    let server = Server::start(&[]);
    let store = store(&server);
    let limiter = limiter(&store, [daily("a", 1_000)]);
    let connections = || -> usize {
        let list: String = ask(&server, &["CLIENT", "LIST"]);
        // Except the request that asks.
        list.lines().count() - 1
    };
    for round in 0..3 {
        let all = (0..50).map(|_| limiter.check("ann", 1));
        for told in all.collect::<Vec<_>>() {
            assert!(!told.await.unwrap().is_degraded());
        }
        assert_eq!(connections(), 1, "round {round}");
        lose(&server, &store).await;
        find_again(&server, &limiter).await;
    }
}

/// What a waiting request asks, to compute when its turn comes.
#[tokio::test]
async fn an_outlook_does_not_ask_a_server_that_is_away() {
    let server = Server::start(&[]);
    let store = store(&server);
    let backend = store.open(&[daily("a", 9).into()]).unwrap();
    let charge = [Charge::new(0, "ann".into_key(), 1)];
    assert!(matches!(backend.outlook(&charge), Reply::Later(_)));
    lose(&server, &store).await;
    assert!(matches!(backend.outlook(&charge), Reply::Now(Ok(_))));
}
