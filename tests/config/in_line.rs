//! Requests that wait while the file changes.

use std::fs;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tower_ratelimit::MemoryStore;
use tower_ratelimit_config::Config;

use crate::folder::Folder;
use crate::scene::{get, sent};
use crate::support::tokio_clock::TokioClock;

const WAITS: &str = "[policies.a]\nquota = \"1/second\"\nkey = \"global\"\nwait_up_to = \"5s\"\n";
const HELD: &str = "[policies.a]\nalgorithm = \"leaky-queue\"\nquota = \"1/second\"\nplaces = 5\nkey = \"global\"\n";

/// Whatever the new file says, the request passes at the announced time, and the response has the limit under which
/// the request began to wait.
#[tokio::test(start_paused = true)]
async fn a_request_in_line_keeps_what_it_was_told() {
    for (place, (before, after)) in [
        (WAITS, WAITS.replace("1/second", "0/second")),
        (WAITS, WAITS.replace("1/second", "1/hour")),
        (WAITS, WAITS.replace("wait_up_to = \"5s\"", "")),
        (WAITS, WAITS.replace("policies.a", "policies.b")),
        (WAITS, format!("mode = \"off\"\n{WAITS}")),
        (HELD, HELD.replace("1/second", "1/hour")),
        (HELD, HELD.replace("policies.a", "policies.b")),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = Folder::new(&format!("line-{place}"));
        fs::write(folder.file(), before).unwrap();
        let store = MemoryStore::new().clock(TokioClock::new());
        let builder = Config::builder().store(store);
        let watched = builder.read(folder.file()).unwrap().watch().unwrap();
        let layer = watched.layer();
        assert_eq!(sent(&layer, get("/")).await.status, 200);

        let mut waiting = pin!(sent(&layer, get("/")));
        let polled = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "{before}");
        let begun = Instant::now();
        fs::write(folder.file(), &after).unwrap();
        watched.reload().unwrap();
        let answer = waiting.await;
        assert_eq!(answer.status, 200, "{after}");
        assert_eq!(begun.elapsed().as_secs(), 1, "{after}");
        assert!(begun.elapsed() < Duration::from_millis(1_100), "{after}");
        if before == WAITS {
            assert_eq!(answer.policies.as_deref(), Some("\"a\";q=1;w=1"), "{after}");
        }
    }
}
