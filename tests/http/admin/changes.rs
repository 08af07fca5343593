//! Changes that an operator makes to a client, and to limits on a writable page.

use serde_json::{Value, json};

use crate::admin::{post, send, snapshot, status_of_a_request, told, writable};

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
    // The other plan keeps its limit.
    for _ in 0..100 {
        assert_eq!(status_of_a_request(&app, "pro-bob").await, 200);
    }
    assert_eq!(status_of_a_request(&app, "pro-bob").await, 429);

    let snapshot = snapshot(&app).await;
    assert_eq!(snapshot["limits"][0]["limit"], 12);
    assert_eq!(snapshot["limits"][0]["declared"], 10);
    assert_eq!(snapshot["limits"][1]["limit"], 100);
    let minute = &snapshot["policies"][0];
    assert_eq!([&minute["allowed"], &minute["refused"]], [112, 3]);

    // A burst changes in proportion.
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
    // None of these changes was counted as a request.
    let snapshot = snapshot(&app).await;
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
    let unblock = json!({ "key": "free-ann" });
    let (_, change) = told(send(&app, post("/dashboard/unblock", &unblock)).await).await;
    assert_eq!(
        change,
        json!({ "before": "blocked for 60 s", "after": "not blocked", "was_blocked": true })
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

/// It was an operator's work of a quarter of an hour to find out that the block had never been there.
#[tokio::test]
async fn a_client_that_has_used_up_its_limit_is_reset_and_the_page_says_so() {
    let app = writable();
    let ann = json!({ "key": "free-ann" });
    let ask = async |path: &str, question: &Value| {
        let (status, told) = told(send(&app, post(path, question)).await).await;
        assert_eq!(status, 200, "{told}");
        told
    };
    let client = ask("/dashboard/inspect", &ann).await;
    assert_eq!(client["remedy"], Value::Null);
    while status_of_a_request(&app, "free-ann").await == 200 {}

    let client = ask("/dashboard/inspect", &ann).await;
    assert_eq!(client["remedy"], "reset");
    let sentence = client["sentence"].as_str().unwrap();
    assert!(
        sentence.ends_with("It is not blocked: a reset lets it pass."),
        "{sentence}"
    );
    let change = ask("/dashboard/unblock", &ann).await;
    assert_eq!(change["was_blocked"], false);
    assert_eq!(status_of_a_request(&app, "free-ann").await, 429);

    let block = json!({ "key": "free-ann", "seconds": 60 });
    ask("/dashboard/block", &block).await;
    let client = ask("/dashboard/inspect", &ann).await;
    assert_eq!(client["remedy"], "unblock");
    let change = ask("/dashboard/unblock", &ann).await;
    assert_eq!(change["was_blocked"], true);
    assert_eq!(status_of_a_request(&app, "free-ann").await, 429);

    let change = ask("/dashboard/reset", &ann).await;
    assert_eq!(
        change,
        json!({ "before": "minute 10 of 10, all 10 of 1000", "after": "minute 0 of 10, all 0 of 1000" })
    );
    assert_eq!(status_of_a_request(&app, "free-ann").await, 200);
}
