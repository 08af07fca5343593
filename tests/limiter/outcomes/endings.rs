//! Exactly one settlement, however a request ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use tower::{Service, ServiceExt};
use tower_ratelimit::key;
use tower_ratelimit::policy::{Http, OnAbandoned, Settle};
use tower_ratelimit::{AnchoredWindow, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

use crate::outcomes::script::{PART, Script, WAYS, Way, estimate, send, service};

pub(crate) const PLENTY: u32 = 1_000_000;

/// By user, reserving what the request says.
pub(crate) fn policy(limit: u32) -> Policy<Http> {
    Policy::new("units", AnchoredWindow::per_day(limit))
        .key(key::header("x-user"))
        .estimate_with(estimate)
}

pub(crate) fn layer(policy: Policy<Http>) -> RateLimitLayer {
    let store = MemoryStore::new().clock(ManualClock::new());
    let builder = RateLimitLayer::builder().policy(policy).store(store);
    builder.build().unwrap()
}

pub(crate) async fn used(layer: &RateLimitLayer, user: &str) -> u32 {
    let limiter: Limiter = layer.limiter();
    let key = key::header("x-user").key_of(user).unwrap();
    let decision = limiter.peek(key, 0).await.unwrap();
    decision.binding().unwrap().1.used()
}

/// What each way costs under a policy, twice, with an estimate of 100 and a cost of 30.
async fn costs(policy: impl Fn() -> Policy<Http>, cost: u32) -> Vec<(Way, u32)> {
    let mut costs = Vec::new();
    for way in WAYS {
        let layer = layer(policy());
        let service = service(&layer);
        for _ in 0..2 {
            send(&service, "ann", 100, &Script::new(way, cost)).await;
        }
        let used = used(&layer, "ann").await;
        assert_eq!(used % 2, 0, "{way:?}");
        costs.push((way, used / 2));
    }
    costs
}

#[tokio::test]
async fn a_header_of_the_response_or_the_end_without_an_answer_says_what_it_costs() {
    for (unsettled, without_an_answer) in [
        (OnAbandoned::Estimate, 100),
        (OnAbandoned::Nothing, 0),
        (OnAbandoned::Units(7), 7),
    ] {
        for source in [Settle::from_header("x-cost"), Settle::from_cost()] {
            for cost in [30, 170] {
                let policy = || {
                    let policy = policy(PLENTY).settle(source.clone());
                    policy.on_abandoned(unsettled)
                };
                for (way, charged) in costs(policy, cost).await {
                    let expected = if way.has_an_answer() {
                        cost
                    } else {
                        without_an_answer
                    };
                    assert_eq!(charged, expected, "{way:?} {unsettled:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_stream_costs_what_its_handler_spends() {
    let policy = || {
        let policy = policy(PLENTY).settle(Settle::from_spend());
        policy.on_abandoned(OnAbandoned::Nothing)
    };
    for (way, charged) in costs(policy, 30).await {
        let frames = match way {
            Way::Read | Way::LengthReached | Way::BodyFails | Way::BodyPanics => 2,
            Way::Trailers => 3,
            Way::BrokenOff => 1,
            // It was given the estimate back only where there was no answer.
            _ if way.has_an_answer() => {
                assert_eq!(charged, 100, "{way:?}");
                continue;
            }
            _ => 0,
        };
        assert_eq!(charged, frames * 30, "{way:?}");
    }
}

#[tokio::test]
async fn the_bytes_that_went_out_are_counted() {
    let part = u32::try_from(PART.len()).unwrap();
    let by_byte = || policy(PLENTY).settle(Settle::from_bytes());
    let by_three = || policy(PLENTY).settle(Settle::from_bytes_in_units_of(3.try_into().unwrap()));
    for (way, charged) in costs(by_byte, 0).await {
        let parts = match way {
            Way::Read | Way::LengthReached | Way::Trailers | Way::BodyFails | Way::BodyPanics => 2,
            Way::BrokenOff => 1,
            _ if way.has_an_answer() => 0,
            _ => {
                assert_eq!(charged, 100, "{way:?}");
                continue;
            }
        };
        assert_eq!(charged, parts * part, "{way:?}");
    }
    let read = costs(by_three, 0).await[0];
    assert_eq!(read, (Way::Read, (2 * part).div_ceil(3)));
}

#[tokio::test]
async fn whether_a_response_is_complete_is_decided_by_its_bytes() {
    type Looks = Arc<Mutex<Vec<bool>>>;
    // By way.
    let all: Mutex<Vec<Looks>> = Mutex::default();
    let policy = || {
        let seen = Looks::default();
        all.lock().unwrap().push(Arc::clone(&seen));
        policy(PLENTY).refund_when(move |ending| {
            seen.lock().unwrap().push(ending.is_complete());
            !ending.is_complete()
        })
    };
    let costs = costs(policy, 30).await;
    for ((way, charged), seen) in costs.into_iter().zip(all.into_inner().unwrap()) {
        let seen = seen.lock().unwrap().clone();
        // Once for each response, and never without one or while the thread panics.
        let is_looked_at = way.has_an_answer() && way != Way::BodyPanics;
        let looks = 2 * usize::from(is_looked_at);
        assert_eq!(seen, vec![way.is_complete(); looks], "{way:?}");
        let is_given_back = is_looked_at && !way.is_complete();
        assert_eq!(charged, if is_given_back { 0 } else { 100 }, "{way:?}");
    }
}

#[tokio::test]
async fn the_status_says_which_requests_are_charged() {
    let switched = |ending: &tower_ratelimit::policy::Ending<'_>| {
        ending.status() == StatusCode::SWITCHING_PROTOCOLS
    };
    let charged = costs(|| policy(PLENTY).charge_when(switched), 1).await;
    let refunded = costs(|| policy(PLENTY).refund_when(switched), 1).await;
    for ((way, charged), (_, refunded)) in charged.into_iter().zip(refunded) {
        let expected = match way {
            Way::Upgrade => (100, 0),
            Way::BodyPanics => (100, 100),
            _ if way.has_an_answer() => (0, 100),
            _ => (100, 100),
        };
        assert_eq!((charged, refunded), expected, "{way:?}");
    }
}

#[tokio::test]
async fn the_status_of_a_call_is_found_in_its_trailers() {
    let policy = || policy(PLENTY).charge_when(|ending| ending.grpc_status() == Some(0));
    for (way, charged) in costs(policy, 1).await {
        let is_unknown = !way.has_an_answer() || way == Way::BodyPanics;
        let is_charged = way == Way::Trailers || is_unknown;
        assert_eq!(charged, if is_charged { 100 } else { 0 }, "{way:?}");
    }
}

#[tokio::test]
async fn a_closure_sees_the_headers_the_bytes_and_the_time() {
    let clock = ManualClock::new();
    let moved = clock.clone();
    let policy = policy(PLENTY).settle(Settle::from_ending(move |ending| {
        let header: u32 = ending.headers()["x-cost"].to_str().ok()?.parse().ok()?;
        let bytes = u32::try_from(ending.bytes()).ok()?;
        let millis = u32::try_from(ending.elapsed().as_millis()).ok()?;
        Some(header + 100 * bytes + 10_000 * millis)
    }));
    let store = MemoryStore::new().clock(clock);
    let layer = RateLimitLayer::builder().policy(policy).store(store);
    let layer = layer.build().unwrap();
    let service = service(&layer);
    let request = http::Request::builder()
        .header("x-user", "ann")
        .extension(Script::new(Way::Read, 5))
        .body(())
        .unwrap();
    let mut service = service;
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    moved.advance(Duration::from_millis(3));
    drop(http_body_util::BodyExt::collect(response.into_body()).await);
    assert_eq!(used(&layer, "ann").await, 5 + 800 + 30_000);
}

#[tokio::test]
async fn the_first_source_that_tells_the_cost_counts() {
    let source = Settle::from_header("x-other")
        .or(Settle::from_ending(|_| None))
        .or(Settle::from_cost())
        .or(Settle::from_bytes());
    let costs = costs(|| policy(PLENTY).settle(source.clone()), 30).await;
    assert_eq!(costs[0], (Way::Read, 30));
}

#[tokio::test]
async fn a_default_estimate_is_cut_to_the_limit_and_another_one_is_refused_for_ever() {
    let by_default = || {
        Policy::new("units", AnchoredWindow::per_day(50))
            .key(key::header("x-user"))
            .estimate(80)
            .settle(Settle::from_cost())
    };
    let script = Script::new(Way::Read, 20);
    let service_by_default = service(&layer(by_default()));
    for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let status = send(&service_by_default, "ann", 0, &script).await;
        assert_eq!(status, Some(expected));
    }
    let asked = by_default().estimate_with(estimate);
    let layer = layer(asked);
    let asking = service(&layer);
    let status = send(&asking, "ann", 51, &script).await;
    assert_eq!(status, Some(StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(used(&layer, "ann").await, 0);
    assert_eq!(
        send(&asking, "ann", 50, &script).await,
        Some(StatusCode::OK)
    );
    assert_eq!(used(&layer, "ann").await, 20);
}

/// A request without an estimate was admitted whatever its client had used.
#[tokio::test]
async fn a_request_that_is_estimated_to_cost_nothing_passes_only_if_anything_is_left() {
    let layer = layer(policy(50).settle(Settle::from_cost()));
    let service = service(&layer);
    let spends = Script::new(Way::Read, 60);
    for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(send(&service, "ann", 0, &spends).await, Some(expected));
    }
    assert_eq!(used(&layer, "ann").await, 50);
    let free = Script::new(Way::Read, 0);
    for _ in 0..60 {
        assert_eq!(send(&service, "bob", 0, &free).await, Some(StatusCode::OK));
    }
    assert_eq!(used(&layer, "bob").await, 0);
}

/// At night the limit is lower than the estimate, and every request would be refused with all of it left.
#[cfg(feature = "calendar")]
#[tokio::test]
async fn a_default_estimate_is_cut_to_the_limit_of_the_hour() {
    use tower_ratelimit::algorithm::HourlyLimit;
    use tower_ratelimit::factor::Factor;
    let limits: [(HourlyLimit, u32); 3] = [
        (AnchoredWindow::per_day(20).into(), 20),
        (Factor::thousandths(500).into(), 25),
        (Factor::thousandths(4_000).into(), 80),
    ];
    for (limit, estimate) in limits {
        let hours = tower_ratelimit::Hours::in_zone("UTC").unwrap();
        let hours = hours.at("00:00-24:00", limit).unwrap();
        let layer = layer(
            Policy::new("units", AnchoredWindow::per_day(50))
                .key(key::header("x-user"))
                .estimate(80)
                .charge_when(|_| true)
                .hours(&hours)
                .unwrap(),
        );
        let status = send(&service(&layer), "ann", 0, &Script::new(Way::Read, 0)).await;
        assert_eq!(status, Some(StatusCode::OK));
        assert_eq!(used(&layer, "ann").await, estimate);
    }
}

/// Five guesses at once, and more: none of them has failed yet, and no more than five are tried.
#[tokio::test]
async fn a_parallel_guesser_gets_no_more_than_the_limit() {
    let layer = layer(
        Policy::new("failures", AnchoredWindow::per_day(5))
            .key(key::header("x-user"))
            .charge_when(|ending| ending.status() == StatusCode::NO_CONTENT),
    );
    let service = service(&layer);
    let script = Script::new(Way::NoContent, 0);
    let guesses = (0..40).map(|_| send(&service, "eve", 1, &script));
    let answers = futures_util::future::join_all(guesses).await;
    let tried = answers
        .iter()
        .filter(|it| **it == Some(StatusCode::NO_CONTENT));
    assert_eq!(tried.count(), 5);
    for _ in 0..40 {
        let right = send(&service, "ann", 1, &Script::new(Way::Read, 0)).await;
        assert_eq!(right, Some(StatusCode::OK));
    }
    assert_eq!(used(&layer, "ann").await, 0);
}

#[test]
fn a_policy_that_cannot_settle_is_refused_when_the_layer_is_built() {
    use tower_ratelimit::LeakyQueue;
    let queue = Policy::new("queue", LeakyQueue::per_second(5).places(3))
        .key(key::global())
        .settle(Settle::from_cost());
    let only_an_estimate = Policy::new("units", AnchoredWindow::per_day(5))
        .key(key::global())
        .estimate(3);
    let of_nothing = Policy::new("units", AnchoredWindow::per_day(5))
        .key(key::global())
        .estimate(0)
        .settle(Settle::from_cost());
    for (policy, expected) in [
        (queue, r#"`settle` cannot be "queue""#),
        (only_an_estimate, r#"`estimate` cannot be "units""#),
        (of_nothing, "`estimate` cannot be 0: give 1 or more"),
    ] {
        let error = RateLimitLayer::builder().policy(policy).build();
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = Settle::try_from_header("x cost").unwrap_err().to_string();
    assert!(
        error.starts_with(r#"`header` cannot be "x cost""#),
        "{error}"
    );
}
