//! Requests in flight while the server goes away or comes back.

use std::convert::Infallible;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{self, Secret};
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{
    AnchoredWindow, Limiter, OnStoreFailure, Policy, RateLimitLayer, RedisStore,
};

use crate::scene::{PATIENCE, daily, patient, until_told};
use crate::support::proxy::Proxy;
use crate::support::redis::Server;

fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let limiter = Limiter::builder().policies(policies);
    limiter.store(store.clone()).build().unwrap()
}

/// Makes the server refuse writes, and waits until the store knows.
async fn lose(server: &Server, store: &RedisStore) {
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let limiter = limiter(store, [daily("lose", 1_000)]);
    for _ in 0..5 {
        assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
    }
}

/// A remembered denial held for a charge and not for a peek. So a request that takes the available units asked both
/// in turn for ever, without a pause.
#[test]
fn a_client_that_takes_what_there_is_gets_nothing_while_a_denial_is_remembered() {
    let (tell, told) = channel();
    thread::spawn(move || {
        let server = Server::start(&[]);
        let runtime = Runtime::new().unwrap();
        let took = runtime.block_on(async {
            let store = RedisStore::builder().deadline(PATIENCE);
            let store = store.open(server.url()).unwrap();
            let limiter = limiter(&store, [daily("a", 1)]);
            assert_eq!(limiter.acquire_up_to("ann", 1).await.unwrap().0, 1);
            assert_eq!(limiter.acquire_up_to("ann", 1).await.unwrap().0, 0);
            lose(&server, &store).await;
            let took = limiter.acquire_up_to("ann", 1).await.unwrap();
            let peeked = limiter.peek("ann", 1).await.unwrap();
            assert!(!peeked.is_allowed() && peeked.is_degraded());
            took
        });
        tell.send(took).unwrap();
    });
    let (took, decision) = told.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(took, 0);
    assert!(!decision.is_allowed() && decision.is_degraded());
}

/// Then this node's share holds, and a policy that allows everything limits nothing.
#[tokio::test]
async fn while_the_server_is_away_what_there_is_here_is_taken() {
    let server = Server::start(&[]);
    let store = patient().nodes(2).open(server.url()).unwrap();
    let open = || daily("open", 3).on_store_failure(OnStoreFailure::Allow);
    let limiters = [
        limiter(&store, [open()]),
        limiter(&store, [open(), daily("here", 9)]),
    ];
    lose(&server, &store).await;
    for (limiter, expected) in limiters.iter().zip([[4, 4], [4, 1]]) {
        for units in expected {
            let (taken, decision) = limiter.acquire_up_to("ann", 4).await.unwrap();
            assert_eq!(taken, units);
            assert!(decision.is_allowed() && decision.is_degraded());
        }
        limiter.block("ann", PATIENCE).await.unwrap_err();
        let (taken, decision) = limiter.acquire_up_to("ann", 4).await.unwrap();
        assert_eq!((taken, decision.is_allowed()), (0, false));
    }
}

/// Then a task runs only while a request waits, and none does while the server is away.
#[test]
fn a_runtime_that_runs_for_each_request_alone_finds_the_server_again() {
    let server = Server::start(&[]);
    // A call that no task goes on with is over then.
    let store = patient().deadline(Duration::from_secs(1));
    let store = store.open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 1_000)]);
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(lose(&server, &store));
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let started = Instant::now();
    while runtime
        .block_on(limiter.check("ann", 1).into_future())
        .unwrap()
        .is_degraded()
    {
        assert!(started.elapsed() < PATIENCE, "it is not found again");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A client whose requests end before their answers could keep a node from its store.
#[tokio::test]
async fn callers_that_give_up_do_not_send_away_a_server_that_answers_others_in_time() {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let store = RedisStore::builder().deadline(Duration::from_secs(5));
    let store = store.open(proxy.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 1_000)]);
    assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
    proxy.delay(Duration::from_millis(300));
    let mut hostile = JoinSet::new();
    for number in 0..6_u32 {
        let limiter = limiter.clone();
        hostile.spawn(async move {
            loop {
                let _ = timeout(Duration::from_millis(250), limiter.check(number, 1)).await;
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..6 {
        assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
    }
    hostile.abort_all();
}

type TenantRequest = Request<String>;

fn of(user: &str, tenant: &str) -> TenantRequest {
    let request = Request::get("/").header("x-user", user);
    let request = request.header("x-tenant", tenant);
    request.body(String::new()).unwrap()
}

/// The first policy allows everything while the server is away; the second lets requests wait.
fn policies(period: Duration, patience: Duration) -> [Policy<Http>; 2] {
    let open = daily("open", 1_000).on_store_failure(OnStoreFailure::Allow);
    let here = Policy::new("here", AnchoredWindow::new(1, period).unwrap());
    [
        open.key(key::header("x-tenant")),
        here.key(key::header("x-user")).wait_up_to(patience),
    ]
}

/// With these replies, unless another is set.
fn layer(store: &RedisStore, policies: [Policy<Http>; 2]) -> RateLimitLayerBuilder<RedisStore> {
    let layer = RateLimitLayer::builder().policies(policies);
    layer.store(store.clone())
}

async fn answer(layer: &RateLimitLayer, request: TenantRequest) -> (StatusCode, String) {
    let service = layer.layer(service_fn(async |_: TenantRequest| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let answer = service.oneshot(request).await.unwrap();
    let told = answer.headers()["ratelimit"].to_str().unwrap();
    (answer.status(), told.to_owned())
}

/// Only the policies that were kept without the server decided it.
#[tokio::test]
async fn a_request_that_waits_is_asked_about_as_a_whole_when_the_server_is_back() {
    let server = Server::start(&[]);
    let store = patient().open(server.url()).unwrap();
    let period = Duration::from_secs(3);
    let layer = layer(&store, policies(period, PATIENCE)).build().unwrap();
    let mut user = String::from("ann");
    until_told(async || {
        user.push('!');
        lose(&server, &store).await;
        let (status, told) = answer(&layer, of(&user, &user)).await;
        assert_eq!((status, told.contains("open")), (StatusCode::OK, false));
        let begun = Instant::now();
        let waits = answer(&layer, of(&user, &user));
        let back = async {
            server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
            let limiter = limiter(&store, [daily("lose", 1_000)]);
            while limiter.peek("nobody", 0).await.unwrap().is_degraded() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            begun.elapsed() < period * 3 / 4
        };
        let ((status, told), is_back_in_time) = tokio::join!(waits, back);
        assert_eq!(status, StatusCode::OK);
        is_back_in_time.then(|| assert!(told.contains(r#""open";r=999"#), "{told}"))
    })
    .await;
}

#[tokio::test]
async fn the_policy_that_counts_without_the_server_has_a_partition_key_too() {
    let server = Server::start(&[]);
    let store = patient().open(server.url()).unwrap();
    let secret = Secret::new([7; 32]).unwrap();
    let period = Duration::from_secs(60);
    let layer = layer(&store, policies(period, period)).partition_keys(&secret);
    let layer = layer.build().unwrap();
    let counted = |told: &str| {
        let (_, here) = told.split_once(r#""here""#).unwrap();
        here.split_once(";pk=").unwrap().1.to_owned()
    };
    let (_, told) = answer(&layer, of("ann", "shop")).await;
    let ann = counted(&told);
    lose(&server, &store).await;
    let (_, told) = answer(&layer, of("ann", "shop")).await;
    assert_eq!(counted(&told), ann, "of one that passes");
    let refused = async {
        // Another request has come before it, and waits.
        tokio::task::yield_now().await;
        let (status, told) = answer(&layer, of("ann", "shop")).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(counted(&told), ann, "of one that would wait for too long");
    };
    tokio::select! {
        waited = answer(&layer, of("ann", "shop")) => panic!("{waited:?}"),
        () = refused => {}
    }
}
