//! Keys that an operator has blocked through the limiter of the layer.

use std::time::Duration;

use http::StatusCode;
use tower_ratelimit::key::Key;
use tower_ratelimit::response::{Dialect, Refusal};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, cost, get, get_of_cost, global, limit, now};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_blocked_key_is_refused_with_the_wait_to_the_end() {
    let (clock, layer) = limit([global("a", FixedWindow::per_minute(10)).cost(cost)]);
    let service = Hello::behind(&layer);
    let limiter = layer.limiter();
    assert_eq!(
        ask(&service, get()).field("ratelimit"),
        Some(r#""a";r=9;t=60"#)
    );
    now(limiter.block(Key::GLOBAL, HOUR)).unwrap();
    for units in [0, 1, 11] {
        let answer = ask(&service, get_of_cost(units));
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.field("retry-after"), Some("3600"));
        assert_eq!(answer.field("ratelimit"), Some(r#""a";r=0;t=3600"#));
        assert!(answer.text().contains(r#""violated-policies":["a"]"#));
        match answer.refusal {
            Some(Refusal::Denied(decision)) => {
                assert!(decision.binding().unwrap().1.is_blocked());
            }
            other => panic!("{other:?}"),
        }
    }
    clock.advance(HOUR);
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
    now(limiter.block(Key::GLOBAL, HOUR)).unwrap();
    assert_eq!(ask(&service, get()).status, StatusCode::TOO_MANY_REQUESTS);
    now(limiter.unblock(Key::GLOBAL)).unwrap();
    assert_eq!(
        ask(&service, get()).field("ratelimit"),
        Some(r#""a";r=8;t=60"#)
    );
}

#[test]
fn a_layer_without_headers_or_with_soft_policies_alone_refuses_a_blocked_key_too() {
    let soft = || global("a", FixedWindow::per_minute(10)).soft();
    let hard = || global("a", FixedWindow::per_minute(10));
    let layer = |policies: Vec<_>| {
        let store = MemoryStore::new().clock(ManualClock::new());
        RateLimitLayer::builder().policies(policies).store(store)
    };
    let both = || vec![global("b", FixedWindow::per_day(5)), soft()];
    for builder in [
        layer(vec![hard()]).without_headers(),
        layer(vec![soft()]).without_headers(),
        layer(both()).without_headers(),
        layer(both()).expose_decision(),
        layer(both()).dialects([Dialect::GitHub, Dialect::Draft07]),
    ] {
        let layer = builder.build().unwrap();
        let service = Hello::behind(&layer);
        now(layer.limiter().block(Key::GLOBAL, HOUR)).unwrap();
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.field("retry-after"), Some("3600"));
        now(layer.limiter().unblock(Key::GLOBAL)).unwrap();
        assert_eq!(ask(&service, get()).status, StatusCode::OK);
    }
}
