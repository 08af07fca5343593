//! States in Redis as earlier versions have left them. Nodes of two versions share a server while a service is rolled out, so a change
//! of what stands here needs a new layout: the number in the name of a key.

use std::time::Duration;

use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::{Decision, FixedWindow, Limiter, ManualClock, Micros, Policy, RedisStore};

use crate::scene::{ask, limiter, store};
use crate::support::redis::Server;

/// No window begins or ends at this time.
const NOW: u64 = 1_795_203_725_622_145;
const LATER: Duration = Duration::from_millis(2_500);

/// What stands under a key after a charge of 2 of 5 in a minute, and another one of 1 [`LATER`]: a text, or the parts of a list.
const STATES: [(&str, &str); 10] = [
    ("fixed-window 5/minute", "29920062 3 0"),
    ("anchored-window 5/minute", "1795203725622145 3 0"),
    (
        "sliding-log 5/minute",
        " 0 1795203725622145 2 1795203728122145 3",
    ),
    ("sliding-window 5/minute", "29920062 0 3"),
    ("sliding-slots 5/minute", "299200621 0 0 0 0 2 1 0 0 0 0 0"),
    ("token-bucket 5/minute", "1795203728122145 2 47500000 5"),
    ("token-bucket-interval 5/minute", "1795203725622145 3 5"),
    ("leaky-bucket 5/minute", "1795203728122145 2 47500000 5"),
    ("gcra 5/minute", "1795203728122145 2 47500000 5"),
    (
        "leaky-queue 5/minute places 4",
        "1795203728122145 2 47500000 5",
    ),
];

/// A server, and a store that decides at a time of ours.
struct Scene {
    server: Server,
    store: RedisStore,
    clock: ManualClock,
}

impl Scene {
    fn new() -> Self {
        let server = Server::start(&[]);
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(NOW));
        let store = store(&server).clock(clock.clone());
        Self {
            server,
            store,
            clock,
        }
    }

    fn under(&self, algorithm: &str) -> (Policy, Limiter) {
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let policy = Policy::new("frozen", algorithm);
        (policy.clone(), limiter(&self.store, [policy]))
    }

    fn state(&self, policy: &Policy, key: &str) -> String {
        let key = self.store.store_key(policy, key);
        let kind: String = ask(&self.server, &["TYPE", &key]);
        match kind.as_str() {
            "list" => ask::<Vec<String>>(&self.server, &["LRANGE", &key, "0", "-1"]).join(" "),
            _ => ask(&self.server, &["GET", &key]),
        }
    }

    fn write(&self, policy: &Policy, key: &str, state: &str) {
        let name = self.store.store_key(policy, key);
        if policy.algorithm().name() == "sliding-log" {
            // The first part has spaces, or nothing.
            let (marks, log) = state.split_once(" 0 ").unwrap();
            let mut command = vec!["RPUSH", &name, marks, "0"];
            command.extend(log.split(' '));
            self.server.ask(&command);
        } else {
            self.server.ask(&["SET", &name, state]);
        }
    }
}

fn remaining(decision: &Decision) -> u32 {
    decision.binding().unwrap().1.remaining()
}

#[tokio::test]
async fn a_state_is_written_as_ever_and_one_that_was_written_so_is_counted_on() {
    let scene = Scene::new();
    for (algorithm, state) in STATES {
        scene.clock.set_micros(Micros::new(NOW));
        let (policy, limiter) = scene.under(algorithm);
        assert!(limiter.check("ann", 2).await.unwrap().is_allowed());
        scene.clock.advance(LATER);
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
        assert_eq!(scene.state(&policy, "ann"), state, "{algorithm}");

        scene.write(&policy, "bob", state);
        let told = limiter.peek("bob", 3).await.unwrap();
        assert!(!told.is_allowed(), "{algorithm}");
        let told = limiter.check("bob", 1).await.unwrap();
        assert!(told.is_allowed(), "{algorithm}");
        assert_eq!(remaining(&told), 1, "{algorithm}");
    }
}

/// What stands before a state. In a list it is the first part.
#[tokio::test]
async fn a_block_and_an_override_are_written_as_ever_and_hold_where_they_stand() {
    let scene = Scene::new();
    for (algorithm, state) in [
        (
            "fixed-window 5/minute",
            "!1795203725622145 1795203728122145;29920062 1 0",
        ),
        (
            "sliding-log 5/minute",
            "!1795203725622145 1795203728122145 0 1795203725622145 1",
        ),
    ] {
        scene.clock.set_micros(Micros::new(NOW));
        let (policy, limiter) = scene.under(algorithm);
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
        limiter.block("ann", LATER).await.unwrap();
        assert_eq!(scene.state(&policy, "ann"), state);
        scene.write(&policy, "bob", state);
        assert!(!limiter.check("bob", 1).await.unwrap().is_allowed());
        scene.clock.advance(LATER);
        let told = limiter.check("bob", 1).await.unwrap();
        assert_eq!(remaining(&told), 3, "{algorithm}");
    }

    let state = "=1795203728122145 1795203730622145 9 60000000 0 9;29920062 1 0";
    scene.clock.set_micros(Micros::new(NOW));
    scene.clock.advance(LATER);
    let (policy, limiter) = scene.under("fixed-window 5/minute");
    assert!(limiter.check("cyd", 1).await.unwrap().is_allowed());
    let more = limiter.override_limit("frozen", "cyd", FixedWindow::per_minute(9), LATER);
    more.unwrap().await.unwrap();
    assert_eq!(scene.state(&policy, "cyd"), state);
    scene.write(&policy, "dan", state);
    assert_eq!(remaining(&limiter.check("dan", 3).await.unwrap()), 5);
}
