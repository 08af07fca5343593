//! What a call costs by its status, which a server sends in the trailers, or in the head of an answer without a message.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_ratelimit::key::Key;
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use crate::echo::{Running, SERVER_STREAM, UNARY, global, still};

#[tokio::test]
async fn calls_that_fail_are_charged_and_the_others_get_their_charge_back() {
    let (_, store) = still();
    let failures = global("failures", FixedWindow::per_day(1_000));
    let layer = RateLimitLayer::builder()
        .policy(failures.charge_when(|ending| ending.grpc_status() != Some(0)))
        .store(store)
        .build()
        .unwrap();
    let server = Running::echo(layer.clone()).await;
    let mut client = server.client().await;
    let used = async || {
        let told = layer.limiter().peek(Key::GLOBAL, 0).await.unwrap();
        told.binding().unwrap().1.used()
    };
    for (path, words, fails, expected) in [
        (UNARY, &["a"][..], false, 0),
        (SERVER_STREAM, &["a", "b"], false, 0),
        (SERVER_STREAM, &["a", "abort"], true, 1),
        ("/test.Echo/Unknown", &["a"], true, 2),
        (UNARY, &["a"], false, 2),
    ] {
        let answer = client.stream(path, words).await;
        assert_eq!(answer.is_err(), fails, "{path} {words:?}: {answer:?}");
        // The client may see the end of an answer without a message before the server drops it.
        let comes = async {
            while used().await != expected {
                sleep(Duration::from_millis(2)).await;
            }
        };
        let came = timeout(Duration::from_secs(20), comes).await;
        assert!(came.is_ok(), "{path} {words:?}: {} used", used().await);
    }
}
