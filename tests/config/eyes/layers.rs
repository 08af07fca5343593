//! The counts of layers.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::observe::Snapshot;
use tower_ratelimit::policy::{Settle, Spend, TopKeys};
use tower_ratelimit::service::Refused;
use tower_ratelimit::{
    FixedWindow, LeakyQueue, LimitLayer, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer,
    TokenBucket, key,
};

type HttpResponse = http::Response<Body>;

fn app(
    layer: &RateLimitLayer,
) -> impl Service<
    Request<Body>,
    Response = http::Response<tower_ratelimit::middleware::ResponseBody<Body>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let handler = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(HttpResponse::new(Body::empty()))
    });
    layer.layer(handler)
}

async fn status(layer: &RateLimitLayer, path: &str, user: Option<&str>) -> StatusCode {
    let mut request = Request::get(path);
    if let Some(user) = user {
        request = request.header("x-user", user);
    }
    let request = request.body(Body::empty()).unwrap();
    app(layer).oneshot(request).await.unwrap().status()
}

fn user() -> impl key::Extract {
    key::header("x-user")
}

#[tokio::test]
async fn a_layer_counts_what_its_clients_see() {
    let layer = RateLimitLayer::builder()
        .policy(
            Policy::new("user", FixedWindow::per_day(2))
                .key(user())
                .on_missing_key(tower_ratelimit::policy::OnMissingKey::Refuse(
                    StatusCode::UNAUTHORIZED,
                )),
        )
        .policy(
            Policy::new("uploads", FixedWindow::per_day(1))
                .key(key::global())
                .when(|head| head.path() == "/upload"),
        )
        .exempt_paths(["/health"])
        .deny(|head| head.path() == "/secret")
        .build()
        .unwrap();
    for (path, user, answer) in [
        ("/", Some("ann"), 200),
        ("/upload", Some("ann"), 200),
        ("/", Some("ann"), 429),
        ("/upload", Some("bob"), 429),
        ("/", None, 401),
        ("/health", None, 200),
        ("/secret", Some("ann"), 403),
    ] {
        assert_eq!(status(&layer, path, user).await.as_u16(), answer, "{path}");
    }
    let snapshot = layer.monitor().snapshot();
    let requests = &snapshot.requests;
    assert_eq!((requests.allowed, requests.refused), (2, 2));
    assert_eq!(
        (requests.exempt, requests.forbidden, requests.without_key),
        (1, 1, 1)
    );
    let told = |name| {
        let policy = snapshot.policy(name).unwrap();
        [
            policy.allowed,
            policy.refused,
            policy.uncharged,
            policy.skipped,
        ]
    };
    assert_eq!(told("user"), [2, 1, 1, 0]);
    assert_eq!(told("uploads"), [1, 1, 0, 2]);
}

fn costs(snapshot: &Snapshot, policy: &str) -> (u64, u64, u64) {
    let policy = snapshot.policy(policy).unwrap();
    (policy.cost, policy.settled, policy.refunded)
}

/// The estimates were counted, and what was given back of them was not.
#[tokio::test]
async fn the_cost_of_a_request_is_counted_when_it_is_settled() {
    let tokens = Policy::new("tokens", FixedWindow::per_day(3_000))
        .top_keys(TopKeys::new(3).in_the_clear())
        .key(user())
        .estimate(1_024)
        .settle(Settle::from_spend());
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("requests", FixedWindow::per_day(9)).key(user()))
        .policy(tokens)
        .build()
        .unwrap();
    let spends = |units: Option<u32>| {
        let handler = service_fn(move |request: Request<Body>| {
            let spend = request.extensions().get::<Spend>().unwrap();
            if let Some(units) = units {
                spend.add(units);
            }
            async { Ok::<_, Infallible>(HttpResponse::new(Body::from("text"))) }
        });
        let request = Request::get("/").header("x-user", "ann");
        let request = request.body(Body::empty()).unwrap();
        layer.layer(handler).oneshot(request)
    };
    let told = || layer.monitor().snapshot();
    let mut before = 0;
    // A cost below the estimate, above it, and one that is not told.
    for (units, cost) in [(Some(652), 652), (Some(1_100), 1_752), (None, 2_776)] {
        let response = spends(units).await.unwrap();
        assert_eq!(costs(&told(), "tokens").0, before, "it is under way");
        drop(response);
        assert_eq!(costs(&told(), "tokens").0, cost, "{units:?}");
        before = cost;
    }
    assert_eq!(spends(Some(7)).await.unwrap().status(), 429);

    let snapshot = told();
    assert_eq!(costs(&snapshot, "requests"), (3, 0, 0));
    assert_eq!(costs(&snapshot, "tokens"), (2_776, 2, 0));
    let tokens = snapshot.policy("tokens").unwrap();
    assert_eq!((tokens.allowed, tokens.refused), (3, 1));
    // What was asked for, where nothing was spent.
    let heaviest = tokens.heaviest.as_ref().unwrap();
    assert_eq!(heaviest.total, 2_776 + 1_024);
    assert_eq!(heaviest.keys[0].cost, 2_776 + 1_024);
}

#[tokio::test]
async fn the_cost_of_a_call_is_counted_when_its_answer_settles_it() {
    let rows = Policy::new("rows", FixedWindow::per_day(1_000));
    let limiter = Limiter::builder().policy(rows).build_local().unwrap();
    let layer = LimitLayer::new(
        limiter.clone(),
        |_: &u32| "ann",
        |refused| Err(Box::new(refused)),
    )
    .cost(|_| 100)
    .settle(|answer: Result<&u32, &Box<Refused>>| answer.ok().copied());
    let query = layer.layer(service_fn(async |rows: u32| Ok::<_, Box<Refused>>(rows)));
    for (rows, cost) in [(2, 2), (300, 302)] {
        query.clone().oneshot(rows).await.unwrap();
        assert_eq!(costs(&limiter.snapshot(), "rows").0, cost);
    }
    // After the fact: what is charged is cost, and what is given back is counted apart.
    limiter.settle("ann", 40).now();
    limiter.refund("ann", 12).now();
    limiter.refund("bob", 3).await.unwrap();
    assert_eq!(costs(&limiter.snapshot(), "rows"), (342, 5, 15));
}

/// A layer without headers does not know the numbers of requests that it admits.
#[tokio::test]
async fn a_layer_without_headers_counts_too() {
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("user", FixedWindow::per_day(2)).key(user()))
        .without_headers()
        .build()
        .unwrap();
    for answer in [200, 200, 429] {
        assert_eq!(status(&layer, "/", Some("ann")).await.as_u16(), answer);
    }
    let snapshot = layer.monitor().snapshot();
    let policy = snapshot.policy("user").unwrap();
    assert_eq!((policy.allowed, policy.refused, policy.cost), (2, 1, 2));
}

fn queue(snapshot: &Snapshot, policy: &str) -> (u64, Duration, u64, Duration) {
    let policy = snapshot.policy(policy).unwrap();
    let queue = policy.queue.unwrap();
    (
        queue.length,
        queue.longest_wait,
        policy.waited,
        policy.time_waited,
    )
}

#[tokio::test]
async fn requests_that_wait_are_counted_when_they_go_on_or_away() {
    let shaped = Policy::new("line", LeakyQueue::per_second(2).places(5)).key(key::global());
    let patient = Policy::new("line", TokenBucket::per_second(2).burst(1))
        .wait_up_to(Duration::from_secs(5))
        .key(key::global());
    for policy in [shaped, patient] {
        let clock = ManualClock::new();
        let layer = RateLimitLayer::builder()
            .policy(policy)
            .store(MemoryStore::new().clock(clock.clone()))
            .build()
            .unwrap();
        let send = || {
            let layer = layer.clone();
            tokio::spawn(async move { status(&layer, "/", None).await })
        };
        let settle = async || {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        let told = || queue(&layer.monitor().snapshot(), "line");
        let half = Duration::from_millis(500);
        assert_eq!(send().await.unwrap(), StatusCode::OK);
        let [first, second, gone] = [send(), send(), send()];
        settle().await;
        assert_eq!(told(), (3, Duration::ZERO, 0, Duration::ZERO));
        for waiting in [first, second] {
            clock.advance(half);
            assert_eq!(waiting.await.unwrap(), StatusCode::OK);
        }
        assert_eq!(told(), (1, 2 * half, 2, 3 * half));
        gone.abort();
        let _ = gone.await;
        assert_eq!(told(), (0, 2 * half, 3, 5 * half));
        clock.advance(Duration::from_secs(180));
        assert_eq!(told(), (0, Duration::ZERO, 3, 5 * half));
    }
}

#[tokio::test]
async fn the_layer_of_any_service_counts_in_its_limiter() {
    let limiter = Limiter::builder()
        .policy(Policy::new("jobs", FixedWindow::per_day(1)))
        .build()
        .unwrap();
    let layer = LimitLayer::new(
        limiter.clone(),
        |owner: &u32| *owner,
        |_: Refused| Err("refused"),
    );
    let service = layer.layer(service_fn(|_: u32| async { Ok(()) }));
    assert_eq!(service.clone().oneshot(7).await, Ok(()));
    assert_eq!(service.oneshot(7).await, Err("refused"));
    let snapshot = limiter.snapshot();
    let jobs = snapshot.policy("jobs").unwrap();
    assert_eq!((jobs.allowed, jobs.refused, jobs.near_limit), (1, 1, 1));
}
