//! Invalid requests to the page, and pages that cannot change anything.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use serde_json::{Value, json};
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
use tower_ratelimit_ops::admin::{self, Access};

use crate::admin::{HERE, app, ask, post, send, snapshot, told, writable};

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
        ("/dashboard/unblock", json!({ "key": "free-ann" })),
        ("/dashboard/reset", json!({ "key": "free-ann" })),
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
    let snapshot = snapshot(&app).await;
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
    // A key in the URL would appear in the log of each proxy.
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
async fn a_limiter_without_a_layer_has_the_page_too() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_hour(3)))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build_local()
        .unwrap();
    let app: Router = Router::new()
        .nest(
            "/dashboard",
            admin::router(limiter.clone(), Access::loopback()),
        )
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    assert!(limiter.check("ann", 3).now().is_allowed());
    let (_, client) =
        told(send(&app, post("/dashboard/inspect", &json!({ "key": "ann" }))).await).await;
    let sentence = client["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("The next request is refused by mails (policy): 3 of 3 used"),
        "{sentence}"
    );
}

#[tokio::test]
async fn a_client_is_told_with_the_policy_that_would_pay_for_its_next_request() {
    let policies = [("plan", 1), ("credits", 1)];
    let policies = policies.map(|(name, limit)| Policy::new(name, FixedWindow::per_day(limit)));
    let limiter = Limiter::builder()
        .policies(policies)
        .first_of("spend", ["plan", "credits"])
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let page = admin::router(limiter.clone(), Access::loopback());
    let app: Router = Router::new()
        .nest("/dashboard", page)
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    let mut sentences = Vec::new();
    for payers in [
        json!({ "spend": "plan" }),
        json!({ "spend": "credits" }),
        json!({}),
    ] {
        let question = post("/dashboard/inspect", &json!({ "key": "ann" }));
        let (_, client) = told(send(&app, question).await).await;
        assert_eq!(client["payers"], payers);
        assert_eq!(client["policies"].as_array().unwrap().len(), 2);
        sentences.push(client["sentence"].as_str().unwrap().to_owned());
        let _ = limiter.check("ann", 1).await.unwrap();
    }
    assert!(
        sentences[0].contains("Of spend, plan pays."),
        "{sentences:?}"
    );
    assert!(
        sentences[1].contains("Of spend, credits pays."),
        "{sentences:?}"
    );
    assert!(!sentences[2].contains("pays"), "{sentences:?}");
    // One in shadow never pays.
    limiter.modes().set("plan", Mode::Shadow).unwrap();
    let question = post("/dashboard/inspect", &json!({ "key": "ben" }));
    let (_, client) = told(send(&app, question).await).await;
    assert_eq!(client["payers"], json!({ "spend": "credits" }));
}
