//! The log while Redis is away.
//!
//! These tests have a process of their own: a call site that logs nothing on another thread may be taken for
//! one that never logs.

use std::time::Duration;

use tokio::time::timeout;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{
    AnchoredWindow, Concurrency, Limiter, ManualClock, OnStoreFailure, Policy, RedisStore,
};

use crate::support::items::Map;
use crate::support::log::{Log, LogLine};
use crate::support::redis::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// The life of a slot, so long that none ends while the machine does not run this process.
const LIFE: Duration = Duration::from_secs(6);

fn store(server: &Server) -> RedisStore {
    let builder = RedisStore::builder().deadline(PATIENCE).nodes(2);
    builder.open(server.url()).unwrap()
}

fn daily(name: &str) -> Policy {
    Policy::new(name, AnchoredWindow::per_day(9))
}

fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let limiter = Limiter::builder().policies(policies);
    limiter.store(store.clone()).build().unwrap()
}

/// Fills or empties the server, so that it refuses or accepts writes, and waits until the store knows.
async fn fill(server: &Server, limiter: &Limiter, is_full: bool) {
    server.ask(&[
        "CONFIG",
        "SET",
        "maxmemory",
        if is_full { "1" } else { "0" },
    ]);
    let known = async {
        for number in 0_u32.. {
            let asked = limiter.check(("ann", number), u32::from(is_full));
            if asked.await.unwrap().is_degraded() == is_full && (!is_full || number > 5) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, known).await.unwrap();
}

/// Returns all lines that a scene logs.
fn all_logged(scene: impl Future<Output = ()>) -> Vec<LogLine> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ((), lines) = Log::of_all(|| runtime.unwrap().block_on(scene));
    lines
}

/// Returns the lines about the store that a scene logs.
fn logged(scene: impl Future<Output = ()>) -> Vec<LogLine> {
    let lines = all_logged(scene);
    let of_the_store =
        |line: &LogLine| line.fields["message"].starts_with("the rate limiter's store");
    lines.into_iter().filter(of_the_store).collect()
}

#[test]
fn each_change_is_told_once_with_its_reason_and_no_request_is() {
    let lines = logged(async {
        let server = Server::start(&[]);
        let store = store(&server);
        let limiter = limiter(&store, [daily("a"), daily("b")]);
        fill(&server, &limiter, true).await;
        for _ in 0..20 {
            assert!(limiter.check("ann", 0).await.unwrap().is_degraded());
        }
        fill(&server, &limiter, false).await;
        assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
    });
    let [away, back] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(away.level, tracing::Level::WARN);
    assert_eq!(away.fields["reason"], "out of memory");
    assert!(away.fields["message"].contains("does not answer"));
    assert_eq!(back.level, tracing::Level::INFO);
    assert!(back.fields["message"].contains("answers again"));
    let decided: u64 = back.fields["decided"].parse().unwrap();
    assert!(decided >= 21, "{decided}");
}

/// Once, two requests failed with a server that was killed, and nothing was logged.
#[test]
fn the_first_failure_after_a_quiet_time_is_told_once() {
    let lines = all_logged(async {
        let server = Server::start(&["--maxmemory-policy", "noeviction"]);
        let limiter = limiter(&store(&server), [daily("a")]);
        assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        for _ in 0..3 {
            assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
        }
    });
    let failed = |line: &&LogLine| line.fields["message"].contains("has failed, the first one");
    let failed: Vec<_> = lines.iter().filter(failed).collect();
    assert_eq!(failed.len(), 1, "{lines:?}");
    assert_eq!(failed[0].level, tracing::Level::WARN);
    assert_eq!(failed[0].fields["reason"], "out of memory");
}

#[test]
fn a_renewal_of_slots_that_fails_is_told_and_counted() {
    let lines = all_logged(async {
        let server = Server::start(&[]);
        let builder = RedisStore::builder().deadline(PATIENCE);
        let store = builder.slot_ttl(LIFE).open(server.url());
        let at_once = Policy::new("at once", Concurrency::of(2));
        let limiter = limiter(&store.unwrap(), [at_once]);
        let held = limiter.reserve("ann", 1).await.unwrap();
        server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        let failed = async {
            while limiter.snapshot().store.failed_renewals < 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, failed).await.unwrap();
        drop(held);
    });
    let code = |line: &&LogLine| line.fields.get("code").is_some_and(|code| code == "TRL036");
    let told: Vec<_> = lines.iter().filter(code).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
    assert_eq!(told[0].fields["subject"], "no replicas");
}

/// Slots of requests that go on are lost with the data of the server, and taken again.
#[test]
fn slots_that_were_lost_and_taken_again_are_told() {
    let scene = async {
        let server = Server::start(&[]);
        let builder = RedisStore::builder().deadline(PATIENCE);
        let store = builder.slot_ttl(LIFE).open(server.url());
        let at_once = Policy::new("at once", Concurrency::of(2));
        let limiter = limiter(&store.unwrap(), [at_once]);
        let held = limiter.reserve("ann", 2).await.unwrap();
        assert!(held.is_allowed());
        server.ask(&["FLUSHALL"]);
        let taken_again = async {
            while limiter.peek("ann", 1).await.unwrap().is_allowed() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // The log is written when the answer is there.
            let renewed = limiter.peek("ann", 0).await.unwrap();
            assert_eq!(renewed.binding().unwrap().1.used(), 2);
        };
        timeout(PATIENCE, taken_again).await.unwrap();
        drop(held);
        while limiter
            .peek("ann", 0)
            .await
            .unwrap()
            .binding()
            .unwrap()
            .1
            .used()
            > 0
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let lines = all_logged(scene);
    let told = |line: &&LogLine| line.fields.get("code").is_some_and(|code| code == "TRL027");
    assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");
}

/// With several stores, or several policies, the line named neither the server nor the requests that passed
/// in the meantime.
#[test]
fn an_outage_names_its_server_and_what_each_policy_does() {
    let mut address = String::new();
    let lines = logged(async {
        let server = Server::start(&[]);
        address = format!("127.0.0.1:{}/0", server.port());
        let store = store(&server);
        let [reads, writes] = ["reads", "writes"].map(daily);
        let searches = daily("searches").on_store_failure(OnStoreFailure::Allow);
        let logins = daily("logins").on_store_failure(OnStoreFailure::Refuse);
        let first = limiter(&store, [reads, searches]);
        let _others = [[logins].as_slice(), &[writes]].map(|it| limiter(&store, it.to_vec()));
        drop(limiter(&store, [daily("gone")]));
        fill(&server, &first, true).await;
        fill(&server, &first, false).await;
    });
    let [away, back] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(away.fields["server"], address);
    assert_eq!(away.fields["local"], "reads, writes");
    assert_eq!(away.fields["allow"], "searches");
    assert_eq!(away.fields["refuse"], "logins");
    assert_eq!(back.fields["server"], address);
}

/// One server is full, and then not; the other refuses the password.
#[test]
fn no_line_of_an_outage_has_the_user_or_the_password() {
    for (password, reason) in [
        ("passw0rd", "out of memory"),
        ("0utdated", "wrong password"),
    ] {
        let lines = all_logged(async {
            let server = Server::start(&["--user", "l1miter", "on", ">passw0rd", "~*", "+@all"]);
            let url = format!("redis://l1miter:{password}@127.0.0.1:{}/", server.port());
            let builder = RedisStore::builder().deadline(PATIENCE).nodes(2);
            let limiter = limiter(&builder.open(url).unwrap(), [daily("a")]);
            fill(&server, &limiter, true).await;
            if reason == "out of memory" {
                fill(&server, &limiter, false).await;
            }
        });
        for secret in ["l1miter", password] {
            assert!(!format!("{lines:?}").contains(secret), "{lines:?}");
        }
        let reasons: Vec<_> = lines
            .iter()
            .filter_map(|it| it.fields.get("reason"))
            .collect();
        // Of the first failure, and of the outage.
        assert_eq!(reasons, [reason; 2], "{lines:?}");
    }
}

#[test]
fn an_error_about_keys_is_logged_once_and_names_none() {
    let lines = logged(async {
        let server = Server::start(&[]);
        let store = store(&server);
        let policy = daily("a");
        let limiter = limiter(&store, [policy.clone()]);
        for key in ["amelia", "bob"] {
            server.ask(&["LPUSH", &store.store_key(&policy, key), "x"]);
            assert!(limiter.check(key, 1).await.unwrap().is_degraded());
        }
    });
    let [line] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.fields["reason"], "wrong type");
    assert!(line.fields["server"].starts_with("127.0.0.1:"), "{line:?}");
    assert!(!format!("{line:?}").contains("amelia"), "{line:?}");
}

/// Returns the lines with this code that setting up logs.
fn said(code: &str, set_up: impl FnOnce()) -> Vec<LogLine> {
    let ((), lines) = Log::of(set_up);
    let is_of_it = |line: &LogLine| line.fields.get("code").is_some_and(|said| said == code);
    lines.into_iter().filter(is_of_it).collect()
}

fn unshared(prefix: &str) -> RedisStore {
    let builder = RedisStore::builder().prefix(prefix);
    builder.open("redis://127.0.0.1:1/").unwrap()
}

#[test]
fn an_unknown_number_of_nodes_is_logged_once_for_each_store() {
    let lines = said("TRL012", || {
        for _ in 0..2 {
            limiter(&unshared("untold"), [daily("a")]);
        }
        let told = RedisStore::builder().prefix("told").nodes(1);
        limiter(&told.open("redis://127.0.0.1:1/").unwrap(), [daily("a")]);
        let refuse = daily("a").on_store_failure(OnStoreFailure::Refuse);
        limiter(&unshared("refuses"), [refuse]);
    });
    let [line] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, tracing::Level::WARN);
    assert!(line.fields["subject"].contains("untold"), "{line:?}");
}

/// Each was told as "a shared store", and so the first alone.
#[test]
fn stores_without_a_name_are_told_apart_by_their_policies() {
    let lines = said("TRL012", || {
        for name in ["of this store", "of that store", "of this store"] {
            let store = SharedStore::new(Map::new(&ManualClock::new()));
            let limiter = Limiter::builder().policy(daily(name)).store(store);
            limiter.build().unwrap();
        }
    });
    let subjects: Vec<&str> = lines.iter().map(|line| &*line.fields["subject"]).collect();
    let expected = ["this", "that"].map(|name| format!("the policy \"of {name} store\""));
    assert_eq!(subjects.len(), 2, "{subjects:?}");
    for (told, expected) in subjects.iter().zip(expected) {
        assert!(told.contains(&expected), "{told}");
    }
}

#[test]
fn a_key_that_each_process_hashes_for_itself_is_warned_of_where_they_share_a_store() {
    use tower_ratelimit::key::{self, Secret};

    let build = |name: &str, token| {
        let policy = daily(name).key(token);
        tower_ratelimit::RateLimitLayer::builder().policy(policy)
    };
    let lines = said("TRL013", || {
        let secret = Secret::new("correct horse battery staple").unwrap();
        build("shared", key::bearer_token())
            .store(unshared("a"))
            .build()
            .unwrap();
        build("hashed", key::bearer_token().hashed(&secret))
            .store(unshared("a"))
            .build()
            .unwrap();
        build("here", key::bearer_token()).build().unwrap();
    });
    let [line] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, tracing::Level::WARN);
    assert!(line.fields["subject"].contains("shared"), "{line:?}");
}
