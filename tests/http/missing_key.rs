//! Requests without a key.

use http::StatusCode;
use tower_ratelimit::key::{self, Forwarding, Head, Missing};
use tower_ratelimit::policy::OnMissingKey;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{Algorithm, FixedWindow, Policy, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, get, get_with, global, limited_hello};
use crate::forwarding;

fn by_header(on_missing_key: Option<OnMissingKey>) -> Hello {
    let policy = Policy::new("key", FixedWindow::per_day(1)).key(key::header("x-api-key"));
    let policy = match on_missing_key {
        Some(on_missing_key) => policy.on_missing_key(on_missing_key),
        None => policy,
    };
    limited_hello([policy]).1
}

fn by_extension(on_missing_key: OnMissingKey) -> Hello {
    let policy = Policy::new("user", FixedWindow::per_day(1)).key(key::extension::<u64>());
    limited_hello([policy.on_missing_key(on_missing_key)]).1
}

#[test]
fn requests_without_a_key_share_one_quota_by_default() {
    for service in [
        by_header(None),
        by_header(Some(OnMissingKey::Shared)),
        by_extension(OnMissingKey::Shared),
    ] {
        assert_eq!(ask(&service, get()).status, StatusCode::OK);
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(matches!(answer.refusal, Some(Refusal::Denied(_))));
    }
    // Separate from all requests with a key, even an empty one.
    let service = by_header(None);
    for request in [get(), get_with([("x-api-key", 1)])] {
        assert_eq!(ask(&service, request).status, StatusCode::OK);
    }
}

#[test]
fn a_policy_that_skips_them_does_not_apply_to_them() {
    for service in [
        by_header(Some(OnMissingKey::Skip)),
        by_extension(OnMissingKey::Skip),
    ] {
        for _ in 0..3 {
            let answer = ask(&service, get());
            assert_eq!(answer.status, StatusCode::OK);
            answer.assert_no_fields();
        }
    }
    let service = by_header(Some(OnMissingKey::Skip));
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(ask(&service, get_with([("x-api-key", 1)])).status, status);
    }
}

#[test]
fn a_proxy_that_tells_no_client_is_skipped_or_refused_where_that_is_said() {
    let bad = StatusCode::BAD_REQUEST;
    for (on_missing_key, status) in [
        (OnMissingKey::Skip, StatusCode::OK),
        (OnMissingKey::Refuse(bad), bad),
    ] {
        let key = forwarding::in_networks(Forwarding::XForwardedFor).without_fallback();
        let policy = Policy::new("address", FixedWindow::per_day(1)).key(key);
        let (_, service) = limited_hello([policy.on_missing_key(on_missing_key)]);
        let silent = || forwarding::request(forwarding::PROXY.parse().ok(), &[]);
        for _ in 0..2 {
            let answer = ask(&service, silent());
            assert_eq!(answer.status, status);
            answer.assert_no_fields();
        }
    }
}

#[test]
fn a_policy_that_refuses_them_charges_nothing() {
    let refuse = OnMissingKey::Refuse(StatusCode::UNAUTHORIZED);
    let (_, service) = limited_hello([
        global("all", FixedWindow::per_day(1)),
        Policy::new("key", FixedWindow::per_day(9))
            .key(key::header("x-api-key"))
            .on_missing_key(refuse),
    ]);
    for _ in 0..3 {
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            answer.text(),
            r#"{"type":"about:blank","title":"Unauthorized","status":401}"#
        );
        assert_eq!(
            answer.field("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        answer.assert_no_fields();
        assert!(matches!(
            answer.refusal,
            Some(Refusal::MissingKey(Missing::ByClient))
        ));
    }
    assert_eq!(
        ask(&service, get_with([("x-api-key", 1)])).status,
        StatusCode::OK
    );
}

#[test]
fn a_status_without_a_name_of_its_own_has_a_title_all_the_same() {
    let service = by_header(Some(OnMissingKey::Refuse(
        StatusCode::from_u16(499).unwrap(),
    )));
    let answer = ask(&service, get());
    assert_eq!(
        answer.text(),
        r#"{"type":"about:blank","title":"Refused","status":499}"#
    );
}

#[test]
fn a_status_that_refuses_nothing_is_refused_when_the_layer_is_built() {
    for status in [StatusCode::OK, StatusCode::FOUND, StatusCode::CONTINUE] {
        let policy =
            global("all", FixedWindow::per_day(1)).on_missing_key(OnMissingKey::Refuse(status));
        let error = RateLimitLayer::builder()
            .policy(policy)
            .build()
            .unwrap_err();
        assert_eq!(
            (error.field(), error.value()),
            ("on_missing_key", status.as_str())
        );
        assert_eq!(error.remedy(), "give a status of an error, 400 to 599");
    }
}

#[test]
fn a_policy_that_does_not_apply_wants_no_key() {
    let policy = Policy::new("key", FixedWindow::per_day(1))
        .key(key::header("x-api-key"))
        .when(|head: &Head<'_>| head.method() == "POST")
        .on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED));
    let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
    assert_eq!(ask(&Hello::behind(&layer), get()).status, StatusCode::OK);
}

#[test]
fn a_policy_without_a_limit_refuses_those_without_a_key_if_it_is_said() {
    let policy = Policy::new("plan", Algorithm::Unlimited)
        .key(key::header("x-api-key"))
        .on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED));
    let (_, service) = limited_hello([policy]);
    assert_eq!(ask(&service, get()).status, StatusCode::UNAUTHORIZED);
    let answer = ask(&service, get_with([("x-api-key", 1)]));
    assert_eq!(answer.status, StatusCode::OK);
    answer.assert_no_fields();
}
