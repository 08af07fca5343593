//! The keys and values in Redis, and data that must never be in Redis.

use std::collections::HashSet;
use std::net::IpAddr;

use http::Request;
use tower::{ServiceExt, service_fn};
use tower_ratelimit::key::{self, IntoKey, Key, Secret};
use tower_ratelimit::{Algorithm, FixedWindow, Policy, RateLimitLayer, RedisStore, TokenBucket};

use crate::scene::{MINUTE, ask, cluster_store, daily, every, keys, limiter, patient, store, used};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::{Cluster, Server};

/// Values that a client might send.
fn hostile() -> Vec<Key> {
    let texts = [
        "",
        "ann",
        "{",
        "}",
        "{}",
        "}{",
        "{ann}",
        "{}ann",
        "a{b}c{d}",
        "a\r\nFLUSHALL\r\n",
        "\0",
        "a\0b",
        "é",
        "日本語",
        "*",
        "?",
        "[a-z]",
        " ",
        ":",
        "a:b",
        "ratelimit:1:{t:ann}:a",
        "\u{feff}",
        "$6\r\n",
        "missing",
        "EVAL",
        "-1",
        "1",
    ];
    let mut keys: Vec<Key> = texts.iter().map(|text| text.into_key()).collect();
    keys.extend(texts.iter().map(|text| text.as_bytes().into_key()));
    keys.extend([
        Key::MISSING,
        Key::GLOBAL,
        "x".repeat(10_000_000).into_key(),
        "{".repeat(1_000).into_key(),
        [0xff, 0xfe, 0].into_key(),
        1_u8.into_key(),
        (-1_i8).into_key(),
        u128::MAX.into_key(),
        "203.0.113.7".parse::<IpAddr>().unwrap().into_key(),
        "2001:db8::1".parse::<IpAddr>().unwrap().into_key(),
        ("a", "b:c").into_key(),
        ("a:b", "c").into_key(),
        ("a,t:b", "c").into_key(),
        ("a", "b,t:c").into_key(),
        (("a", "b"), "c").into_key(),
        ("a", ("b", "c")).into_key(),
        ("", "ab").into_key(),
        ("ab", "").into_key(),
        Secret::new([7; 16]).unwrap().hash("ann"),
    ]);
    keys
}

#[tokio::test]
async fn every_key_has_a_state_of_its_own_under_a_short_plain_name() {
    let server = Server::start(&[]);
    let (store, policy) = (store(&server), daily("a", 1_000));
    let limiter = limiter(&store, [policy.clone()]);
    let hostile = hostile();
    for (number, key) in (1..).zip(&hostile) {
        assert!(limiter.check(*key, number).await.unwrap().is_allowed());
    }
    for (number, key) in (1..).zip(&hostile) {
        let told = limiter.peek(*key, 0).await.unwrap();
        assert_eq!(used(&told), [number], "{:?}", key.name().as_str());
    }
    let names = keys(&server);
    assert_eq!(names.len(), hostile.len());
    for name in &names {
        assert!(
            name.len() < 200 && name.bytes().all(|byte| byte.is_ascii_graphic()),
            "{name}"
        );
        let braces: String = name.matches(['{', '}']).collect();
        assert_eq!(braces, "{}", "{name}");
    }
    let told: HashSet<String> = hostile
        .iter()
        .map(|key| store.store_key(&policy, *key))
        .collect();
    assert_eq!(told, names.into_iter().collect());
}

#[tokio::test]
async fn all_states_of_one_key_are_in_one_slot_and_decided_on_in_one_call() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let policies: Vec<Policy> = every(5, MINUTE);
    let limiter = limiter(&store, policies.clone());
    let mut slots = HashSet::new();
    for key in hostile() {
        let before: u64 = cluster
            .nodes
            .iter()
            .map(|node| crate::scene::calls(node, "evalsha"))
            .sum();
        assert!(limiter.check(key, 1).await.unwrap().is_allowed());
        let after: u64 = cluster
            .nodes
            .iter()
            .map(|node| crate::scene::calls(node, "evalsha"))
            .sum();
        assert_eq!(after, before + 1);
        let of_key: HashSet<u64> = policies
            .iter()
            .map(|policy| store.store_key(policy, key))
            .map(|name| ask(&cluster.nodes[0], &["CLUSTER", "KEYSLOT", &name]))
            .collect();
        assert_eq!(of_key.len(), 1);
        slots.extend(of_key);
    }
    assert!(slots.len() > 20);
}

#[tokio::test]
async fn a_key_is_where_the_store_says_under_every_algorithm() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(5, MINUTE) {
        let limiter = limiter(&store, [policy.clone()]);
        assert!(limiter.check(("ann", 7_u8), 1).await.unwrap().is_allowed());
        assert_eq!(keys(&server), [store.store_key(&policy, ("ann", 7_u8))]);
        limiter.reset(("ann", 7_u8)).await.unwrap();
    }
}

/// Nodes of several versions share a server, so this format is stable.
#[test]
fn the_layout_is_versioned_and_tells_what_a_state_means_nothing_without() {
    let store = RedisStore::builder().prefix("shop:eu");
    let store = store.open("redis://127.0.0.1:1/").unwrap();
    let policy = Policy::new("daily", FixedWindow::per_day(100));
    assert_eq!(
        store.store_key(&policy, "ann smith"),
        "shop:eu:1:{t:ann%20smith}:daily:fixed-window/day"
    );
    let policy = Policy::new("burst", TokenBucket::per_second(5));
    let store = RedisStore::new("redis://127.0.0.1:1/").unwrap();
    assert_eq!(
        store.store_key(&policy, 42_u8),
        "ratelimit:1:{n:42}:burst:token-bucket/second"
    );
    let address: IpAddr = "203.0.113.7".parse().unwrap();
    let network: IpAddr = "2001:db8::1".parse().unwrap();
    let digest = Secret::new([7; 16]).unwrap().hash("ann");
    let branch = Key::branch("acme", &["blue".into_key()]);
    let names = [
        address.into_key(),
        network.into_key(),
        digest,
        branch,
        ("a", "b:c").into_key(),
        Key::GLOBAL,
        Key::MISSING,
    ];
    let names = names.map(|key| store.store_key(&policy, key));
    let keys = [
        "{ip:203.0.113.7}:",
        "{ip:2001:db8::/64}:",
        "{s:5121E3EC8C475C448F888130B26651FA}:",
        "{t:acme};t:blue;",
        "{p:t:a,t:b:c}:",
        "{global}:",
        "{missing}:",
    ];
    let expected = keys.map(|key| format!("ratelimit:1:{key}burst:token-bucket/second"));
    assert_eq!(names, expected);
    let names = [
        "calendar-day 5 zone Europe/London",
        "calendar-month 5 zone Europe/London start 06:00",
        "concurrency 5",
        "sliding-slots 5/minute slots 60",
        "token-bucket-interval 5/minute",
    ];
    let names = names.map(|text| {
        let algorithm: Algorithm = text.parse().unwrap();
        store.store_key(&Policy::new("p", algorithm), "ann")
    });
    let frames = [
        "calendar-day/day",
        "calendar-month/31d",
        "concurrency/second",
        "sliding-slots/minute/60",
        "token-bucket-interval/minute",
    ];
    assert_eq!(
        names,
        frames.map(|frame| format!("ratelimit:1:{{t:ann}}:p:{frame}"))
    );
}

#[tokio::test]
async fn services_with_prefixes_of_their_own_share_a_server_and_no_state() {
    let server = Server::start(&[]);
    for (prefix, cost) in [("a", 1), ("a:1", 2), ("b", 3)] {
        let store = patient().prefix(prefix).open(server.url()).unwrap();
        let limiter = limiter(&store, [daily("a", 5)]);
        assert_eq!(used(&limiter.check("ann", cost).await.unwrap()), [cost]);
    }
    assert_eq!(keys(&server).len(), 3);
}

/// A client does not choose the policy and the frame in a key of Redis.
#[tokio::test]
async fn a_policy_that_counts_otherwise_begins_anew_and_one_of_another_limit_goes_on() {
    let server = Server::start(&[]);
    let store = store(&server);
    let check = async |policy: Policy| {
        let told = limiter(&store, [policy]).check("ann", 2).await.unwrap();
        used(&told)
    };
    assert_eq!(check(daily("a", 5)).await, [2]);
    assert_eq!(check(daily("a", 50)).await, [4]);
    assert_eq!(check(daily("b", 50)).await, [2]);
    assert_eq!(check(Policy::new("a", TokenBucket::per_day(50))).await, [2]);
}

#[tokio::test]
async fn a_token_is_neither_in_redis_nor_on_the_way_there() {
    const TOKEN: &str = "s3kr3t-t0k3n-of-ann";
    let secret = Secret::new("correct horse battery staple").unwrap();
    let layer = |store: RedisStore| {
        let token = Policy::new("token", TokenBucket::per_second(5));
        let raw = Policy::new("hash", TokenBucket::per_second(5));
        let of_the_closure = secret.clone();
        let hashed = key::from_fn(move |_: &key::Head<'_>| of_the_closure.hash(TOKEN));
        RateLimitLayer::builder()
            .policy(token.key(key::bearer_token()))
            .policy(
                Policy::new("api-key", TokenBucket::per_second(5))
                    .key(key::api_key().hashed(&secret)),
            )
            .policy(raw.key(hashed))
            .store(store)
            .build()
            .unwrap()
    };
    let send = async |store: RedisStore| {
        let service = tower::ServiceBuilder::new()
            .layer(layer(store))
            .service(service_fn(async |_: Request<String>| {
                Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
            }));
        let request = Request::get("/")
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("x-api-key", TOKEN);
        let _ = service.oneshot(request.body(String::new()).unwrap()).await;
    };
    let server = Server::start(&[]);
    send(store(&server)).await;
    let names = keys(&server);
    assert_eq!(names.len(), 3, "{names:?}");
    let all = format!("{names:?}");
    assert!(all.contains("{s:") && !all.contains("s3kr3t"), "{all}");

    let heard = StandIn::start(|_| ScriptedReply::Break(""));
    send(patient().open(heard.url()).unwrap()).await;
    let scripts = format!("{:?}", heard.scripts());
    assert!(
        scripts.contains("{s:") && !scripts.contains("s3kr3t"),
        "{scripts}"
    );
}
