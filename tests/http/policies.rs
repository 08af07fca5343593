//! Conditions, costs, and several policies for one request.

use std::time::Duration;

use http::{Method, StatusCode};
use tower_ratelimit::key::Head;
use tower_ratelimit::{
    Algorithm, FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket, key,
};

use crate::exchange::{
    Behind, Hello, ask, cost, get, get_of_cost, get_with, global, limited_hello,
};

#[test]
fn a_request_to_which_no_policy_applies_goes_on_as_if_there_were_no_layer() {
    let writes = global("writes", FixedWindow::per_day(1))
        .when(|head: &Head<'_>| head.method() == Method::POST);
    let (_, service) = limited_hello([writes]);
    let post = || {
        let mut request = get();
        *request.method_mut() = Method::POST;
        request
    };
    for _ in 0..3 {
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::OK);
        answer.assert_no_fields();
    }
    let answer = ask(&service, post());
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.field("ratelimit"), Some(r#""writes";r=0;t=86400"#));
    assert_eq!(ask(&service, post()).status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
}

#[test]
fn a_policy_that_does_not_apply_is_not_listed_and_needs_no_key() {
    let (_, service) = limited_hello([
        global("all", FixedWindow::per_day(9)),
        Policy::new("some", FixedWindow::per_day(9))
            .key(key::extension::<u64>())
            .when(|head| head.extension::<u64>().is_some()),
    ]);
    let answer = ask(&service, get());
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some(r#""all";q=9;w=86400"#)
    );
    assert_eq!(answer.field("ratelimit"), Some(r#""all";r=8;t=86400"#));

    let mut identified = get();
    identified.extensions_mut().insert(7_u64);
    let answer = ask(&service, identified);
    assert_eq!(
        answer.field("ratelimit"),
        Some(r#""all";r=7;t=86400, "some";r=8;t=86400"#)
    );
}

#[test]
fn a_request_takes_as_much_as_its_cost_says() {
    let (_, service) = limited_hello([global("units", FixedWindow::per_day(10)).cost(cost)]);
    let mut statuses_and_r = Vec::new();
    for cost in [4, 7, 0, 6, 0, 1] {
        let answer = ask(&service, get_of_cost(cost));
        let limit = answer.field("ratelimit").unwrap().to_owned();
        statuses_and_r.push((answer.status.as_u16(), limit));
    }
    let expected = [(200, 6), (429, 6), (200, 6), (200, 0), (200, 0), (429, 0)]
        .map(|(status, r)| (status, format!(r#""units";r={r};t=86400"#)));
    assert_eq!(statuses_and_r, expected);
}

#[test]
fn a_request_is_charged_to_all_policies_or_to_none() {
    let limit =
        |header| move |head: &Head<'_>| head.header(header).map_or(0, |n| n.parse().unwrap());
    for order in [["roomy", "tight"], ["tight", "roomy"]] {
        let policies = order.map(|name| {
            let allowed = if name == "roomy" { 10 } else { 2 };
            global(name, FixedWindow::per_day(allowed)).cost(limit(name))
        });
        let (_, service) = limited_hello(policies);
        let status =
            |roomy, tight| ask(&service, get_with([("roomy", roomy), ("tight", tight)])).status;

        assert_eq!(status(1, 2), StatusCode::OK);
        for _ in 0..20 {
            assert_eq!(status(1, 1), StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(status(9, 0), StatusCode::OK, "a denial was charged");
        assert_eq!(status(1, 0), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[test]
fn each_policy_has_a_key_of_its_own() {
    let (_, service) = limited_hello([
        Policy::new("a", FixedWindow::per_day(1)).key(key::header("x-a")),
        Policy::new("b", FixedWindow::per_day(2)).key(key::header("x-b")),
    ]);
    let status = |a, b| ask(&service, get_with([("x-a", a), ("x-b", b)])).status;
    assert_eq!(status(1, 1), StatusCode::OK);
    assert_eq!(status(1, 2), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(2, 1), StatusCode::OK);
    assert_eq!(status(3, 1), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(3, 2), StatusCode::OK);
}

#[test]
fn an_unlimited_policy_passes_everything_and_sends_nothing() {
    let (_, service) = limited_hello([global("free", Algorithm::Unlimited)]);
    for _ in 0..100 {
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::OK);
        answer.assert_no_fields();
    }
}

#[test]
fn an_unlimited_policy_needs_no_key_and_is_not_listed_beside_others() {
    let (_, service) = limited_hello([
        Policy::new("free", Algorithm::Unlimited).key(key::client_ip()),
        global("paid", FixedWindow::per_minute(1)),
    ]);
    let answer = ask(&service, get());
    assert_eq!(answer.field("ratelimit-policy"), Some(r#""paid";q=1;w=60"#));
    assert_eq!(answer.field("ratelimit"), Some(r#""paid";r=0;t=60"#));
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.text().contains(r#""violated-policies":["paid"]"#));
}

#[test]
fn clients_that_wait_come_back_one_by_one_under_a_bucket() {
    let (clock, service) = limited_hello([global("b", TokenBucket::per_second(2))]);
    let status = || ask(&service, get()).status;
    assert_eq!([status(), status()], [StatusCode::OK; 2]);
    for _ in 0..10 {
        assert_eq!(status(), StatusCode::TOO_MANY_REQUESTS);
        clock.advance(Duration::from_micros(499_999));
        assert_eq!(status(), StatusCode::TOO_MANY_REQUESTS);
        clock.advance(Duration::from_micros(1));
        assert_eq!(status(), StatusCode::OK);
    }
}

#[test]
fn layers_over_clones_of_one_store_count_a_policy_of_the_same_name_together() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let service = |name, window| {
        let builder = RateLimitLayer::builder().policy(global(name, window));
        Hello::behind(&builder.store(store.clone()).build().unwrap())
    };
    let daily = FixedWindow::per_day(1);
    let (one, other) = (service("a", daily), service("a", daily));
    assert_eq!(ask(&one, get()).status, 200);
    assert_eq!(ask(&other, get()).status, 429);
    assert_eq!(ask(&service("b", daily), get()).status, 200);
    let hourly = service("a", FixedWindow::per_hour(1));
    assert_eq!(ask(&hourly, get()).status, 200);
    // The state lives as long as a layer uses it.
    drop((one, other));
    assert_eq!(ask(&service("a", daily), get()).status, 200);
}
