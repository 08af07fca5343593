//! The operator's page: who may use it, what it changes, and how it ends.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower::ServiceExt;
use tower_ratelimit::admin::{self, Access, Handle};
use tower_ratelimit::key::{self, Head, Secret};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{
    FixedWindow, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket,
};

const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 40_000);

/// Customers by API key, hashed; the plan is the beginning of the key.
fn layer() -> RateLimitLayer {
    let secret = Secret::new("a secret of sixteen bytes").unwrap();
    let minute = |limit| FixedWindow::per_minute(limit);
    let plans = Plans::new([
        Plan::new("free").limit("minute", minute(10)),
        Plan::new("pro").limit("minute", minute(100)),
    ]);
    RateLimitLayer::builder()
        .policy(Policy::new("minute", minute(10)).key(key::api_key().hashed(&secret)))
        .policy(
            Policy::new("all", TokenBucket::per_second(500).burst(1_000))
                .for_all_plans()
                .key(key::global()),
        )
        .plans(plans, |head: &Head<'_>| {
            head.header("x-api-key")?
                .split('-')
                .next()
                .map(str::to_owned)
        })
        .store(MemoryStore::new().clock(ManualClock::new()))
        .adjustable()
        .build()
        .unwrap()
}

fn client(text: &str) -> Option<Request<()>> {
    Request::get("/").header("x-api-key", text).body(()).ok()
}

fn app(access: Access) -> Router {
    let layer = layer();
    let page = Handle::from(&layer).client(client);
    Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest("/dashboard", admin::router(page, access))
        .layer(MockConnectInfo(SocketAddr::from(HERE)))
}

fn writable() -> Router {
    app(Access::loopback().writable())
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}

fn ask(path: &str) -> http::request::Builder {
    Request::builder()
        .uri(path)
        .header("host", "localhost:3000")
}

fn post(path: &str, question: &Value) -> Request<Body> {
    let request = ask(path)
        .method("POST")
        .header("content-type", "application/json");
    request.body(question.to_string().into()).unwrap()
}

async fn told(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn status_of_a_request(app: &Router, key: &str) -> StatusCode {
    let request = Request::get("/").header("x-api-key", key);
    send(app, request.body(Body::empty()).unwrap())
        .await
        .status()
}

const ROUTES: [(&str, &str); 8] = [
    ("GET", ""),
    ("GET", "/events"),
    ("GET", "/history"),
    ("GET", "/snapshot"),
    ("POST", "/inspect"),
    ("POST", "/block"),
    ("POST", "/pardon"),
    ("POST", "/limits"),
];

/// Each route with this question, and a header of the case's own.
async fn all(app: &Router, header: (&str, &str)) -> Vec<(String, StatusCode)> {
    let mut answers = Vec::new();
    for (method, path) in ROUTES {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/dashboard{path}"));
        if header.0 != "host" {
            request = request.header("host", "localhost:3000");
        }
        let request = request
            .header(header.0, header.1)
            .header("content-type", "application/json");
        let response = send(app, request.body(Body::from("{}")).unwrap()).await;
        answers.push((format!("{method} {path}"), response.status()));
    }
    answers
}

#[tokio::test]
async fn no_route_is_open_to_another_name_another_origin_or_a_proxy() {
    let app = writable();
    let attacks = [
        ("host", "evil.example:3000"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("forwarded", "for=127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "https"),
    ];
    for attack in attacks {
        for (route, status) in all(&app, attack).await {
            assert_eq!(status, StatusCode::FORBIDDEN, "{route} with {attack:?}");
        }
    }
    let fine = all(&app, ("origin", "http://localhost:3000")).await;
    assert!(
        fine.iter()
            .all(|(_, status)| *status != StatusCode::FORBIDDEN),
        "{fine:?}"
    );
}

#[tokio::test]
async fn another_machine_and_an_unknown_peer_are_refused() {
    let layer = layer();
    for peer in [Some([192, 0, 2, 1]), None] {
        let app = Router::new().nest("/dashboard", admin::router(&layer, Access::loopback()));
        let app = match peer {
            Some(peer) => app.layer(MockConnectInfo(SocketAddr::from((peer, 1)))),
            None => app,
        };
        for (route, status) in all(&app, ("accept", "*/*")).await {
            assert_eq!(status, StatusCode::FORBIDDEN, "{route} of {peer:?}");
        }
    }
}

#[tokio::test]
async fn a_read_only_page_answers_questions_and_changes_nothing() {
    let app = app(Access::loopback());
    let changes = [
        (
            "/dashboard/limits",
            json!({ "policy": "minute", "plan": "free", "limit": 20 }),
        ),
        (
            "/dashboard/block",
            json!({ "key": "free-ann", "seconds": 60 }),
        ),
        ("/dashboard/pardon", json!({ "key": "free-ann" })),
    ];
    for (path, change) in changes {
        assert_eq!(
            send(&app, post(path, &change)).await.status(),
            403,
            "{path}"
        );
    }
    let (status, client) = told(
        send(
            &app,
            post("/dashboard/inspect", &json!({ "key": "free-ann" })),
        )
        .await,
    )
    .await;
    assert_eq!(
        (status.as_u16(), &client["policies"][0]["limit"]),
        (200, &json!(10))
    );
    assert_eq!(client["blocked_seconds"], Value::Null);
    let (_, snapshot) = told(
        send(
            &app,
            ask("/dashboard/snapshot").body(Body::empty()).unwrap(),
        )
        .await,
    )
    .await;
    assert_eq!(snapshot["writable"], false);
}

#[tokio::test]
async fn a_question_is_json_of_bounded_length() {
    let app = writable();
    let limits = json!({ "policy": "minute", "plan": "free", "limit": 20 }).to_string();
    for of_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json-seq",
        "",
    ] {
        let request = ask("/dashboard/limits")
            .method("POST")
            .header("content-type", of_type);
        let response = send(&app, request.body(limits.clone().into()).unwrap()).await;
        assert_eq!(response.status(), 415, "{of_type:?}");
    }
    let bare = ask("/dashboard/limits")
        .method("POST")
        .body(limits.clone().into())
        .unwrap();
    assert_eq!(send(&app, bare).await.status(), 415);
    let request = ask("/dashboard/limits")
        .method("POST")
        .header("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(
        send(&app, request.body(limits.into()).unwrap())
            .await
            .status(),
        200
    );
    let long = json!({ "key": "k".repeat(20_000) });
    assert_eq!(
        send(&app, post("/dashboard/inspect", &long)).await.status(),
        413
    );
    // A key in the address would stand in the log of each proxy.
    let request = ask("/dashboard/inspect?key=free-ann")
        .body(Body::empty())
        .unwrap();
    assert_eq!(send(&app, request).await.status(), 405);
}

#[tokio::test]
async fn a_question_that_cannot_be_is_told_what_is_wrong() {
    let app = writable();
    for (question, says) in [
        (
            json!({ "policy": "hour", "limit": 1 }),
            "name one of minute, all",
        ),
        (
            json!({ "policy": "minute", "limit": 1 }),
            "name one of free, pro",
        ),
        (
            json!({ "policy": "minute", "plan": "gold", "limit": 1 }),
            "name one of free, pro",
        ),
        (
            json!({ "policy": "all", "plan": "free", "limit": 1 }),
            "no plan speaks of this policy",
        ),
        (
            json!({ "policy": "minute", "plan": "free", "limit": null }),
            "give a number",
        ),
        (
            json!({ "policy": "minute", "plan": "free", "limit": u32::MAX }),
            "below 4,294,967,295",
        ),
        (
            json!({ "policy": "minute", "plan": "free", "limit": -1 }),
            "invalid value",
        ),
        (
            json!({ "policy": "minute", "plan": "free", "limits": 1 }),
            "unknown field",
        ),
        (
            json!({ "policy": "minute", "plan": "free", "key": "free-ann", "limit": 1 }),
            "one limit",
        ),
    ] {
        let (status, answer) = told(send(&app, post("/dashboard/limits", &question)).await).await;
        assert_eq!(status, 400, "{question}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(says), "{question}: {error}");
    }
    let (status, _) = told(
        send(
            &app,
            post("/dashboard/block", &json!({ "key": "a", "seconds": 0 })),
        )
        .await,
    )
    .await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_limit_that_is_moved_holds_for_its_plan_and_keeps_what_was_used() {
    let app = writable();
    for _ in 0..10 {
        assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
    }
    assert_eq!(status_of_a_request(&app, "free-ann").await, 429);

    let more = json!({ "policy": "minute", "plan": "free", "limit": 12 });
    let (status, change) = told(send(&app, post("/dashboard/limits", &more)).await).await;
    assert_eq!(status, 200);
    assert_eq!(
        change,
        json!({ "before": "fixed-window 10/minute", "after": "fixed-window 12/minute" })
    );
    assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
    assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
    assert_eq!(status_of_a_request(&app, "free-ann").await, 429);
    // Another plan has the limit that it had.
    for _ in 0..100 {
        assert_eq!(status_of_a_request(&app, "pro-bob").await, 200);
    }
    assert_eq!(status_of_a_request(&app, "pro-bob").await, 429);

    let (_, snapshot) = told(
        send(
            &app,
            ask("/dashboard/snapshot").body(Body::empty()).unwrap(),
        )
        .await,
    )
    .await;
    assert_eq!(snapshot["limits"][0]["limit"], 12);
    assert_eq!(snapshot["limits"][0]["declared"], 10);
    assert_eq!(snapshot["limits"][1]["limit"], 100);
    let minute = &snapshot["policies"][0];
    assert_eq!([&minute["allowed"], &minute["refused"]], [112, 3]);

    // A burst moves in proportion.
    let half = json!({ "policy": "all", "limit": 250 });
    let (_, change) = told(send(&app, post("/dashboard/limits", &half)).await).await;
    assert_eq!(change["after"], "token-bucket 250/second burst 500");
}

#[tokio::test]
async fn a_client_is_found_by_what_it_sends_and_told_why_it_is_refused() {
    let app = writable();
    for _ in 0..10 {
        assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
    }
    let question = post("/dashboard/inspect", &json!({ "key": "free-ann" }));
    let (_, client) = told(send(&app, question).await).await;
    assert_eq!(client["allowed"], false);
    let minute = &client["policies"][0];
    assert_eq!([&minute["used"], &minute["remaining"]], [10, 0]);
    let sentence = client["sentence"].as_str().unwrap();
    let begin = "The next request is refused by minute (plan free): 10 of 10 used, none remains.";
    assert!(sentence.starts_with(begin), "{sentence}");

    let (_, other) = told(
        send(
            &app,
            post("/dashboard/inspect", &json!({ "key": "pro-bob" })),
        )
        .await,
    )
    .await;
    assert_eq!(other["allowed"], true);
    assert_eq!(other["policies"][0]["limit"], 100);
    // Nothing of that was a request.
    let (_, snapshot) = told(
        send(
            &app,
            ask("/dashboard/snapshot").body(Body::empty()).unwrap(),
        )
        .await,
    )
    .await;
    assert_eq!(snapshot["policies"][0]["allowed"], 10);
    assert_eq!(snapshot["policies"][0]["refused"], 0);
    assert_eq!(snapshot["policies"][0]["skipped"], 0);
}

#[tokio::test]
async fn a_client_is_blocked_pardoned_and_given_a_limit_of_its_own() {
    let app = writable();
    let block = json!({ "key": "free-ann", "seconds": 60 });
    let (_, change) = told(send(&app, post("/dashboard/block", &block)).await).await;
    assert_eq!(
        change,
        json!({ "before": "not blocked", "after": "blocked for 60 s" })
    );
    assert_eq!(status_of_a_request(&app, "free-ann").await, 429);
    assert_eq!(
        status_of_a_request(&app, "free-bob").await,
        429,
        "all share the policy `all`"
    );
    let pardon = json!({ "key": "free-ann" });
    let (_, change) = told(send(&app, post("/dashboard/pardon", &pardon)).await).await;
    assert_eq!(
        change,
        json!({ "before": "blocked for 60 s", "after": "not blocked" })
    );
    assert_eq!(status_of_a_request(&app, "free-ann").await, 200);

    let own = json!({ "policy": "minute", "key": "free-ann", "limit": 2, "seconds": 600 });
    let (status, change) = told(send(&app, post("/dashboard/limits", &own)).await).await;
    assert_eq!(
        (status.as_u16(), change),
        (200, json!({ "before": "10", "after": "2" }))
    );
    assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
    assert_eq!(status_of_a_request(&app, "free-ann").await, 429);
    assert_eq!(status_of_a_request(&app, "free-bob").await, 200);
    let end = json!({ "policy": "minute", "key": "free-ann", "limit": null });
    let (_, change) = told(send(&app, post("/dashboard/limits", &end)).await).await;
    assert_eq!(change, json!({ "before": "2", "after": "10" }));
    assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
}

#[tokio::test]
async fn every_answer_is_protected() {
    let app = writable();
    for (path, status) in [
        ("", 200),
        ("/snapshot", 200),
        ("/nothing", 404),
        ("/inspect", 405),
    ] {
        let request = ask(&format!("/dashboard{path}"))
            .body(Body::empty())
            .unwrap();
        let response = send(&app, request).await;
        assert_eq!(response.status(), status, "{path}");
        let headers = response.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{path}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
    }
}

#[tokio::test]
async fn a_limiter_without_a_layer_has_the_page_too() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_hour(3)))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let app: Router = Router::new()
        .nest(
            "/dashboard",
            admin::router(limiter.clone(), Access::loopback()),
        )
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    assert!(limiter.check_now("ann", 3).is_allowed());
    let (_, client) =
        told(send(&app, post("/dashboard/inspect", &json!({ "key": "ann" }))).await).await;
    let sentence = client["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("The next request is refused by mails (policy): 3 of 3 used"),
        "{sentence}"
    );
}

/// Over real sockets.
struct Served {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    ended: tokio::task::JoinHandle<io::Result<()>>,
}

async fn serve() -> Served {
    let (stop, stopped) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel::<()>();
    let until = async {
        let _ = ended.await;
    };
    let layer = layer();
    let page = Handle::from(&layer).client(client).until(until);
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest("/dashboard", admin::router(page, Access::loopback()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let signal = async move {
        let _ = stopped.await;
        let _ = end.send(());
    };
    let serving = axum::serve(listener, service).with_graceful_shutdown(signal);
    Served {
        address,
        stop: Some(stop),
        ended: tokio::spawn(serving.into_future()),
    }
}

/// Opens the events, and reads until the first of them is there, or the answer has ended.
async fn view(address: SocketAddr) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /dashboard/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer
        .windows(7)
        .any(|at| at == b"data: {" || at == b"\"error\"")
    {
        let read = socket.read_buf(&mut answer).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
    }
    (socket, String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn of_twenty_viewers_sixteen_are_served_and_a_place_is_free_when_one_goes() {
    let service = serve().await;
    let mut viewers = Vec::new();
    for _ in 0..20 {
        viewers.push(view(service.address).await);
    }
    let of = |status: &str| {
        viewers
            .iter()
            .filter(|(_, answer)| answer.starts_with(status))
            .count()
    };
    assert_eq!(of("HTTP/1.1 200 "), 16);
    assert_eq!(of("HTTP/1.1 503 "), 4);
    let first = viewers.remove(0);
    assert!(
        first.1.contains("content-type: text/event-stream"),
        "{}",
        first.1
    );
    drop(first);
    // The server finds out when it has read that the socket was closed.
    while !view(service.address).await.1.starts_with("HTTP/1.1 200 ") {}
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_viewers() {
    let mut service = serve().await;
    let mut viewers = Vec::new();
    for _ in 0..3 {
        let (socket, answer) = view(service.address).await;
        assert!(answer.starts_with("HTTP/1.1 200 "));
        viewers.push(socket);
    }
    service.stop.take().unwrap().send(()).unwrap();
    let ended = timeout(Duration::from_secs(1), service.ended).await;
    ended.expect("within a second").unwrap().unwrap();
    // The viewers are still there: it was the service that ended the streams.
    for socket in &mut viewers {
        socket.read_to_end(&mut Vec::new()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_does_not_read_is_dropped() {
    let app = app(Access::loopback());
    let open = || async { send(&app, ask("/dashboard/events").body(Body::empty()).unwrap()).await };
    let mut viewers = Vec::new();
    for _ in 0..16 {
        viewers.push(open().await);
    }
    assert_eq!(open().await.status(), 503);
    // One reads on, and fifteen do not.
    let mut reader = viewers.pop().unwrap().into_body();
    for _ in 0..12 {
        let event = reader.frame().await.unwrap().unwrap();
        assert!(event.data_ref().unwrap().starts_with(b"data: {"));
    }
    for _ in 0..15 {
        assert_eq!(open().await.status(), 200);
    }
    assert!(
        reader.frame().await.is_some(),
        "the reader has kept its place"
    );
    let dropped = viewers.pop().unwrap().into_body();
    let rest = dropped.collect().await.unwrap().to_bytes();
    assert_eq!(rest.windows(7).filter(|at| *at == b"data: {").count(), 1);
}

#[cfg(feature = "config")]
#[tokio::test]
async fn the_differences_of_a_file_in_shadow_are_told() {
    use tower_ratelimit::config::Config;
    let folder = std::env::temp_dir().join(format!("admin-shadow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let policy = |limit: u32| format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
    let live = format!("shadow = \"next.toml\"\n{}", policy(20));
    std::fs::write(folder.join("limits.toml"), live).unwrap();
    std::fs::write(folder.join("next.toml"), policy(1)).unwrap();
    let config = Config::read(folder.join("limits.toml")).unwrap();
    let layer = config.watch().unwrap().layer();
    let app = Router::new()
        .route("/{*path}", get(|| async {}))
        .layer(layer.clone())
        .nest(
            "/dashboard",
            admin::router(Handle::from(&layer), Access::loopback()),
        )
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    for number in 0..13 {
        let request = ask(&format!("/{number}")).body(Body::empty()).unwrap();
        assert_eq!(send(&app, request).await.status(), StatusCode::OK);
    }
    let request = ask("/dashboard/snapshot").body(Body::empty()).unwrap();
    let (status, snapshot) = told(send(&app, request).await).await;
    assert_eq!(status, StatusCode::OK);
    let shadow = &snapshot["shadow"];
    assert_eq!(
        (&shadow["compared"], &shadow["would_refuse"]),
        (&json!(13), &json!(12))
    );
    assert_eq!(shadow["last"].as_array().unwrap().len(), 10);
    assert_eq!(shadow["last"][0], "GET /12: refused in shadow by a");

    let request = ask("/dashboard").body(Body::empty()).unwrap();
    let page = send(&app, request)
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    let page = String::from_utf8(page.to_bytes().to_vec()).unwrap();
    assert!(page.contains("id=\"shadow-last\""), "the page shows them");
    std::fs::remove_dir_all(&folder).unwrap();
}
