//! One node of the service, in a process of its own.

use std::io::{Write, stdout};
use std::net::Ipv4Addr;
use std::panic;
use std::process;
use std::time::Duration;

use axum::extract::Path;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use http::HeaderValue;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::RedisStoreBuilder;
use tower_ratelimit::{
    AnchoredWindow, Decision, Limiter, OnStoreFailure, Policy, RateLimitLayer, RedisStore, key,
};

use crate::nodes::NODES;

/// The first argument of a process that is a node. No filter of tests begins so.
pub(crate) const AS_NODE: &str = "--as-node";

/// The beginning of the line with which a node reports a panic.
pub(crate) const PANIC: &str = "panic: ";

pub(crate) const KEY: &str = "x-key";
pub(crate) const DEGRADED: &str = "x-degraded";

/// The limit of each key, until long after the test, so that an excess is never made up for.
pub(crate) const LIMIT: u32 = 60;
/// The requests that a node lets pass by itself.
pub(crate) const SHARE: u32 = LIMIT.div_ceil(SHARED_BY);
#[expect(clippy::cast_possible_truncation, reason = "they are three")]
const SHARED_BY: u32 = NODES as u32;

/// The deadline of a call to Redis.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// The path of a crowd: a request for `/crowd/300` makes the node charge 300 keys of its own at once, and
/// again after [`BEAT`].
pub(crate) const CROWD: &str = "/crowd/";
const BEATS: usize = 5;
const BEAT: Duration = Duration::from_millis(100);

pub(crate) fn policy() -> Policy {
    Policy::new("chaos", AnchoredWindow::per_day(LIMIT))
}

fn store(node: &str) -> RedisStoreBuilder {
    let store = RedisStore::builder().deadline(DEADLINE).nodes(SHARED_BY);
    // The first node remembers denials, as a node does by default. The others send each request to the
    // server, so that they notice lost counts.
    match node {
        "0" => store,
        _ => store.remember_denials_for(Duration::ZERO),
    }
}

/// Serves until it is killed.
pub(crate) fn run(arguments: &[String]) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // The reader may have gone.
        let _ = writeln!(stdout(), "{PANIC}{}", panic.to_string().replace('\n', " "));
        before(panic);
    }));
    let (node, urls) = arguments.split_first().expect("a node is told its number");
    let store = store(node)
        .open_cluster(urls.iter().map(String::as_str))
        .expect("these are addresses");
    let crowds = Limiter::builder()
        .policy(Policy::new("crowd", AnchoredWindow::per_day(LIMIT)))
        .store(store.clone())
        .build()
        .expect("the policy is good");
    let limit = RateLimitLayer::builder()
        .policy(
            policy()
                .key(key::header(KEY))
                .on_store_failure(OnStoreFailure::Local),
        )
        .store(store)
        .expose_decision()
        .build()
        .expect("the policy is good");
    let app = Router::new()
        .route("/", get(admitted))
        .layer(limit)
        .layer(map_response(say_of_a_refusal))
        .route(
            &format!("{CROWD}{{keys}}"),
            get(|Path(keys): Path<u32>| async move {
                tokio::spawn(crowd(crowds, keys));
            }),
        );
    let runtime = Runtime::new().expect("there can be threads");
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        println!("{} {port}", process::id());
        axum::serve(listener, app).await.expect("it serves");
    });
}

/// Sends many calls at once to servers that may be away. Their results do not matter, but they must not delay other
/// requests.
async fn crowd(limiter: Limiter, keys: u32) {
    let mut asked = JoinSet::new();
    for _ in 0..BEATS {
        for key in 0..keys {
            let limiter = limiter.clone();
            asked.spawn(async move { limiter.check(key, 1).await.map(drop) });
        }
        sleep(BEAT).await;
    }
    asked.join_all().await;
}

async fn admitted(Extension(decision): Extension<Decision>) -> [(&'static str, HeaderValue); 1] {
    [(DEGRADED, said(&decision))]
}

async fn say_of_a_refusal(mut response: Response) -> Response {
    if let Some(Refusal::Denied(decision)) = response.extensions().get() {
        let said = said(decision);
        response.headers_mut().insert(DEGRADED, said);
    }
    response
}

fn said(decision: &Decision) -> HeaderValue {
    HeaderValue::from_static(if decision.is_degraded() {
        "true"
    } else {
        "false"
    })
}
