//! Modes: a policy in shadow, a policy that is off, and their switches.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use http::Request;
use tower_ratelimit::middleware::{RateLimitLayer, WouldRefuse};
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{
    AnchoredWindow, Decision, LeakyQueue, ManualClock, MemoryStore, Policy, key,
};
use tower_ratelimit_config::Config;

use crate::folder::Folder;
use crate::scene::{Received, config, get, layer, mistakes, now, send, sent};

const TRIED: &str = "
    [policies.live]
    quota = \"3/hour\"
    key = { header = \"x-live\" }
    [policies.next]
    quota = \"1/hour\"
    key = { header = \"x-next\" }
    mode = \"shadow\"
    [responses]
    expose_decision = true
";

fn ask(layer: &RateLimitLayer, live: &str, next: &str) -> Received {
    send(
        layer,
        get("/").header("x-live", live).header("x-next", next),
    )
}

fn would_have_refused(layer: &RateLimitLayer, policy: &str) -> u64 {
    let snapshot = layer.monitor().snapshot();
    snapshot.policy(policy).unwrap().shadow_refused
}

type Found = (Option<WouldRefuse>, Option<Decision>);

/// Returns the extensions of a request as the handler sees them.
fn found(layer: &RateLimitLayer, live: &str, next: &str) -> (Option<WouldRefuse>, Decision) {
    use tower::{Layer, ServiceExt, service_fn};
    let request = Request::get("/")
        .header("x-live", live)
        .header("x-next", next)
        .body(())
        .unwrap();
    let service = layer.layer(service_fn(async |request: Request<()>| {
        let found = request.extensions();
        let found: Found = (found.get().cloned(), found.get().cloned());
        let mut response = http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
        response.extensions_mut().insert(found);
        Ok::<_, std::convert::Infallible>(response)
    }));
    let response = now(service.oneshot(request)).unwrap();
    let (would_refuse, decision) = response.extensions().get::<Found>().cloned().unwrap();
    (would_refuse, decision.unwrap())
}

#[test]
fn a_policy_in_shadow_refuses_nothing_tells_nothing_and_is_seen() {
    let config = config(TRIED);
    let layer = layer(&config);
    let (would_refuse, decision) = found(&layer, "a", "k");
    assert!(would_refuse.is_none());
    assert_eq!(decision.policies().count(), 2);
    assert_eq!(decision.binding().unwrap().0, "live");

    let (would_refuse, decision) = found(&layer, "a", "k");
    assert!(decision.is_allowed());
    let would_refuse = would_refuse.unwrap();
    let (policy, outcome) = would_refuse.decision().would_refuse().next().unwrap();
    assert_eq!(
        (policy, outcome.is_shadow(), outcome.is_soft()),
        ("next", true, false)
    );
    assert!(outcome.retry_after().is_some());
    assert_eq!(decision.over_limit().count(), 0);

    let last = ask(&layer, "a", "k");
    assert_eq!(last.status, 200);
    assert_eq!(last.policies.unwrap(), "\"live\";q=3;w=3600");
    assert_eq!(last.limits.unwrap(), "\"live\";r=0;t=3600");
    let refused = ask(&layer, "a", "k");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.policies.unwrap(), "\"live\";q=3;w=3600");
    let body = String::from_utf8(refused.body.to_vec()).unwrap();
    assert!(body.contains("\"violated-policies\":[\"live\"]"), "{body}");
    // The last request was refused by the other policy.
    assert_eq!(would_have_refused(&layer, "next"), 2);
    assert_eq!(would_have_refused(&layer, "live"), 0);
}

#[test]
fn a_policy_in_shadow_is_charged_what_it_allows_if_the_enforced_ones_allow_it() {
    let text = TRIED.replace("1/hour", "5/hour");
    let layer = layer(&config(&text));
    let remaining = |next: &str| {
        let (_, decision) = found(&layer, next, next);
        let next = decision.policies().find(|(name, _)| *name == "next");
        next.unwrap().1.remaining()
    };
    for _ in 0..3 {
        assert_eq!(ask(&layer, "a", "k").status, 200);
    }
    for _ in 0..4 {
        assert_eq!(ask(&layer, "a", "k").status, 429);
    }
    // Three requests were charged, and this is the fourth.
    let (_, decision) = found(&layer, "b", "k");
    let next = decision.policies().find(|(name, _)| *name == "next");
    assert_eq!(next.unwrap().1.remaining(), 1);
    assert_eq!(remaining("other"), 4);
}

#[test]
fn a_key_that_is_blocked_is_not_refused_by_a_policy_in_shadow() {
    let config = config(TRIED);
    let layer = layer(&config);
    let key = key::header("x-next").key_of("k").unwrap();
    let limiter = layer.limiter();
    now(limiter.block(key, Duration::from_secs(60))).unwrap();
    let (would_refuse, _) = found(&layer, "a", "k");
    let would_refuse = would_refuse.unwrap();
    let (_, outcome) = would_refuse.decision().would_refuse().next().unwrap();
    assert!(outcome.is_blocked());
    // The enforced policy was charged.
    assert_eq!(ask(&layer, "a", "k").limits.unwrap(), "\"live\";r=1;t=3600");
}

#[test]
fn all_policies_of_a_file_are_switched_together() {
    let one = "mode = \"off\"\n[policies.a]\nquota = \"1/hour\"\nkey = \"global\"\n";
    for (mode, headers) in [("enforce", true), ("shadow", false), ("off", false)] {
        let config = config(&one.replace("off", mode));
        let layer = layer(&config);
        let first = send(&layer, get("/"));
        assert_eq!(first.limits.is_some(), headers, "{mode}");
        let second = send(&layer, get("/")).status;
        assert_eq!(second == 429, headers, "{mode}");
        assert_eq!(would_have_refused(&layer, "a"), u64::from(mode == "shadow"));
        // The handle decides last.
        config.modes().set_all(Mode::Enforce);
        let mut last = send(&layer, get("/"));
        if mode == "off" {
            last = send(&layer, get("/"));
        }
        assert_eq!(last.status, 429, "{mode}");
    }
    let wrong =
        mistakes("mode = \"of\"\n[policies.a]\nquota = \"1/hour\"\nkey = \"global\"\nmode = 1\n");
    assert!(wrong[0].contains("did you mean \"off\""), "{wrong:?}");
    assert_eq!(wrong.len(), 2);
}

#[test]
fn a_policy_that_is_off_asks_for_no_key() {
    let text =
        "[policies.a]\nquota = \"1/hour\"\nkey = { header = \"x-id\" }\non_missing_key = 401\n";
    let config = config(text);
    let layer = layer(&config);
    assert_eq!(send(&layer, get("/")).status, 401);
    for mode in [Mode::Shadow, Mode::Off] {
        config.modes().set("a", mode).unwrap();
        assert_eq!(send(&layer, get("/")).status, 200, "{mode}");
    }
    config.modes().unset("a").unwrap();
    assert_eq!(send(&layer, get("/")).status, 401);
}

#[test]
fn a_queue_in_shadow_holds_no_request() {
    let queue = LeakyQueue::per_minute(1).places(5);
    let layer = RateLimitLayer::builder()
        .policy(
            Policy::new("queue", queue)
                .mode(Mode::Shadow)
                .key(key::global()),
        )
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    for _ in 0..10 {
        // The answer is there at the first poll.
        assert_eq!(send(&layer, get("/")).status, 200);
    }
    assert_eq!(would_have_refused(&layer, "queue"), 4);
}

#[test]
fn a_policy_in_shadow_lets_no_request_wait() {
    let window = AnchoredWindow::per_minute(1);
    let policy = Policy::new("a", window).wait_up_to(Duration::from_secs(90));
    let layer = RateLimitLayer::builder()
        .policy(policy.mode(Mode::Shadow).key(key::global()))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(send(&layer, get("/")).status, 200);
    }
}

/// A server that accepts connections and never answers.
#[test]
fn a_layer_is_switched_off_at_once_while_its_store_hangs() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", server.local_addr().unwrap());
    let text = format!(
        "[policies.a]\nquota = \"1/hour\"\nkey = \"global\"\non_store_failure = \"refuse\"\n\
         [store]\nredis = \"{url}\"\ndeadline = \"200ms\"\n"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let config = config(&text);
    let _entered = runtime.enter();
    let layer = config.layer().unwrap();
    let ask = || sent(&layer, get("/"));
    assert_eq!(runtime.block_on(ask()).status, 503);
    config.modes().set_all(Mode::Off);
    // Polled once.
    assert_eq!(now(ask()).status, 200);
    config.modes().set_all(Mode::Shadow);
    assert_eq!(runtime.block_on(ask()).status, 200);
    config.modes().unset_all();
    assert_eq!(runtime.block_on(ask()).status, 503);
}

/// The reload asks the store nothing.
#[test]
fn a_file_that_switches_all_off_is_in_force_while_the_store_hangs() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", server.local_addr().unwrap());
    let folder = Folder::new("off");
    let write = |mode: &str| {
        let text = format!(
            "mode = \"{mode}\"\n[policies.a]\nquota = \"1/hour\"\nkey = \"global\"\non_store_failure = \"refuse\"\n\
             [store]\nredis = \"{url}\"\ndeadline = \"200ms\"\n"
        );
        fs::write(folder.file(), text).unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    write("enforce");
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let layer = watched.layer();
    let ask = || sent(&layer, get("/"));
    assert_eq!(runtime.block_on(ask()).status, 503);
    write("off");
    watched.reload().unwrap();
    // Polled once.
    assert_eq!(now(ask()).status, 200);
    write("enforce");
    watched.reload().unwrap();
    assert_eq!(runtime.block_on(ask()).status, 503);
}
