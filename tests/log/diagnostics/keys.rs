//! Requests without a key, and servers that do not provide one.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use tower::ServiceExt;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::key::{self, Extract, Forwarding, Head, IntoKey, Key, Missing, Proxies};
use tower_ratelimit::policy::OnMissingKey;
use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket};
use tracing::Level;

use super::{ask, assert_logs_once, diagnostic_of, hello, limit, statuses};
use crate::support::log::Log;

#[test]
fn a_server_that_forgot_connect_info_says_once_what_to_write() {
    // Both extractors, several layers and many requests are one mistake.
    let mut lines = Vec::new();
    let mut answers = Vec::new();
    for limit in [
        limit(key::client_ip()),
        limit(key::client_ip()),
        limit(key::peer_ip()),
    ] {
        let (more_answers, more_lines) = ask(&limit, 100);
        answers.extend(more_answers);
        lines.extend(more_lines);
    }
    let diagnostic = diagnostic_of(&answers);
    assert_eq!(answers.len(), 300);
    assert_eq!(diagnostic.code(), "TRL001");
    let line_of_code = "`app.into_make_service_with_connect_info::<SocketAddr>()`";
    assert!(diagnostic.remedy().contains(line_of_code), "{diagnostic}");
    assert_logs_once(&lines, &diagnostic);
}

#[derive(Clone)]
struct UserId;

#[derive(Clone)]
struct Tenant;

impl IntoKey for UserId {
    fn into_key(self) -> Key {
        "user".into_key()
    }
}

impl IntoKey for Tenant {
    fn into_key(self) -> Key {
        "tenant".into_key()
    }
}

#[test]
fn an_extension_that_is_not_there_is_named_once_for_each_type() {
    for (limit, name) in [
        (limit(key::extension::<UserId>()), "UserId"),
        (limit(key::extension::<Tenant>()), "Tenant"),
    ] {
        let (answers, lines) = ask(&limit, 100);
        let diagnostic = diagnostic_of(&answers);
        assert_eq!(diagnostic.code(), "TRL002");
        assert_eq!(diagnostic.subject(), format!("{}::{name}", module_path!()));
        assert_logs_once(&lines, &diagnostic);
    }
}

#[test]
fn an_extractor_of_ones_own_has_a_diagnostic_of_its_own() {
    const NO_SHARD: Diagnostic = Diagnostic::new("APP7", "shard", "no shard", "call `shard()`");
    let key = |_: &Head<'_>| Err::<u8, _>(Missing::ByServer(NO_SHARD));
    let (answers, lines) = ask(&limit(key), 100);
    assert_eq!(diagnostic_of(&answers), NO_SHARD);
    assert_logs_once(&lines, &NO_SHARD);
    let remedy_and_all = "APP7: no shard (shard); call `shard()`";
    assert_eq!(NO_SHARD.to_string(), remedy_and_all);
}

#[test]
fn a_server_that_is_set_up_well_logs_nothing() {
    let limit = limit(key::client_ip());
    let app = Router::<()>::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let request = || {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::from(([192, 0, 2, 1], 40_000));
        request.extensions_mut().insert(peer);
        request
    };
    let ((), lines) = Log::of(|| {
        for _ in 0..3 {
            runtime.block_on(app.clone().oneshot(request())).unwrap();
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn a_private_peer_that_sends_forwarding_fields_and_is_not_trusted_is_warned_of_once() {
    let trusting = || {
        let proxies = Proxies::in_networks(["10.0.0.0/8"]);
        key::client_ip().behind(proxies, Forwarding::XForwardedFor)
    };
    let logged = |key: &dyn Extract, peer: [u8; 4], field: &'static str| {
        let mut request = Request::new(());
        let peer = SocketAddr::from((peer, 40_000));
        request.extensions_mut().insert(peer);
        let value = "203.0.113.7".parse().unwrap();
        request.headers_mut().insert(field, value);
        let (key, lines) = Log::of(|| key.extract(&Head::of(&request)));
        assert!(key.is_ok());
        lines
    };
    let (inside, outside) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    for quiet in [
        logged(&key::client_ip(), outside, "x-forwarded-for"),
        logged(&key::client_ip(), inside, "x-other"),
        logged(&key::peer_ip(), inside, "x-forwarded-for"),
        logged(&trusting(), inside, "x-forwarded-for"),
        logged(&trusting(), outside, "x-forwarded-for"),
    ] {
        assert!(quiet.is_empty(), "{quiet:?}");
    }

    let lines = logged(&trusting(), [192, 168, 0, 1], "x-forwarded-for");
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::WARN);
    assert_eq!(line.fields["code"], "TRL003");
    let subject = "forwarding header fields of 192.168.0.1";
    assert_eq!(line.fields["subject"], subject);
    assert!(line.fields["remedy"].contains(".behind("), "{line:?}");
    // An operator of a file, such as that of the gateway, writes no Rust.
    assert!(line.fields["remedy"].contains("[proxies]"), "{line:?}");
    let said = format!("{line:?}");
    assert!(!said.contains("203.0.113.7"), "{said}");

    for field in ["x-forwarded-for", "forwarded", "cf-connecting-ip"] {
        let again = logged(&key::client_ip(), [127, 0, 0, 1], field);
        assert!(again.is_empty(), "{again:?}");
    }
}

/// A developer who tries `curl` sees that a forged address is believed.
#[test]
fn a_peer_on_this_machine_that_tells_the_client_is_warned_of_once() {
    let logged = |proxies: Proxies, peer: [u8; 4], told: Option<&'static str>| {
        let key = key::client_ip().behind(proxies, Forwarding::XForwardedFor);
        let mut request = Request::new(());
        let peer = SocketAddr::from((peer, 40_000));
        request.extensions_mut().insert(peer);
        if let Some(told) = told {
            let told = told.parse().unwrap();
            request.headers_mut().insert("x-forwarded-for", told);
        }
        let (key, lines) = Log::of(|| key.extract(&Head::of(&request)));
        assert!(key.is_ok());
        lines
    };
    let private = || Proxies::in_networks(["10.0.0.0/8", "127.0.0.0/8", "::1"]);
    let (local, told) = ([127, 0, 0, 1], Some("203.0.113.7"));
    for quiet in [
        logged(private(), local, None),
        logged(private(), local, Some("unknown")),
        logged(private(), [10, 0, 0, 1], told),
        logged(Proxies::hops(1), [10, 0, 0, 1], told),
        // The proxy runs on this machine.
        logged(Proxies::in_networks(["127.0.0.0/8", "::1"]), local, told),
    ] {
        assert!(quiet.is_empty(), "{quiet:?}");
    }
    let lines = logged(private(), local, told);
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::WARN);
    assert_eq!(line.fields["code"], "TRL037");
    assert_eq!(
        line.fields["subject"],
        "forwarding header fields of 127.0.0.1"
    );
    assert!(!format!("{line:?}").contains("203.0.113.7"), "{line:?}");
    for proxies in [private(), Proxies::hops(1)] {
        assert!(logged(proxies, local, told).is_empty());
    }
}

#[test]
fn a_key_that_is_said_to_be_missing_at_times_is_no_mistake() {
    for on_missing_key in [OnMissingKey::Skip, OnMissingKey::Shared] {
        let policy = Policy::new("user", TokenBucket::per_second(9))
            .key(key::extension::<u8>().optional())
            .on_missing_key(on_missing_key);
        let limit = RateLimitLayer::builder().policy(policy).build().unwrap();
        let (answers, lines) = statuses(&hello().layer(limit), 3);
        assert_eq!(answers, [StatusCode::OK; 3]);
        assert!(lines.is_empty(), "{lines:?}");
    }
}

#[test]
fn a_server_that_tells_no_key_is_told_so_though_the_policy_goes_on_without() {
    for (on_missing_key, key) in [
        (OnMissingKey::Shared, key::extension::<u16>().prefix("a")),
        (OnMissingKey::Skip, key::extension::<u16>().prefix("b")),
    ] {
        let policy = Policy::new("user", TokenBucket::per_second(9)).key(key);
        let limit = RateLimitLayer::builder().policy(policy.on_missing_key(on_missing_key));
        let app = hello().layer(limit.build().unwrap());
        let (answers, lines) = statuses(&app, 3);
        assert_eq!(answers, [StatusCode::OK; 3]);
        // Both are one mistake.
        assert_eq!(
            lines.len(),
            usize::from(on_missing_key == OnMissingKey::Shared),
            "{lines:?}"
        );
    }
}
