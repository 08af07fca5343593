//! Requests that wait for their turn under any algorithm, and requests that do not, by a clock that tokio has paused.

mod beside;
mod order;
mod refusals;
mod told;

use std::time::Duration;

use http::{Request, StatusCode};
use tokio::time::{Instant, sleep};
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{Algorithm, Policy, RateLimitLayer, TokenBucket, key};

use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::exchange::Received;

pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// One at once, and five a second in the long run.
pub(crate) fn bucket() -> TokenBucket {
    TokenBucket::per_second(5).burst(1)
}

/// Returns a request of one user, by the header `x-user`.
pub(crate) fn by_user(name: &str, algorithm: impl Into<Algorithm>) -> Policy<Http> {
    Policy::new(name, algorithm).key(key::header("x-user"))
}

pub(crate) fn layer(policies: impl IntoIterator<Item = Policy<Http>>) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().policies(policies).store(store());
    builder.build().unwrap()
}

pub(crate) fn costing(number: u32, units: u32) -> Request<()> {
    let mut request = request(1, number);
    request.headers_mut().insert("x-cost", units.into());
    request
}

/// Returns the wait in a refusal, to the microsecond.
#[track_caller]
pub(crate) fn told(answer: &Received) -> Option<Duration> {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    match &answer.refusal {
        Some(Refusal::Denied(decision)) => {
            assert!(!decision.is_allowed());
            decision.retry_after()
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn turns(numbers: impl IntoIterator<Item = (u32, u32)>) -> Vec<(u32, Duration)> {
    let numbers = numbers.into_iter();
    numbers
        .map(|(number, turn)| (number, turn * INTERVAL))
        .collect()
}

/// A service with this limit for user 1, and some places.
pub(crate) async fn the_wait_told_behind_a_line_works(layer: &RateLimitLayer, limit: Algorithm) {
    let service = behind(layer, &Arrivals::new());
    let mut sent = Vec::new();
    for number in 0..20 {
        sent.push(send(&service, request(1, number)).await);
        sleep(7 * TICK).await;
    }
    // No other request goes away, so each wait is the same or longer.
    let start = Instant::now();
    let refused = send(&service, request(1, 20)).await.await.unwrap();
    let wait = told(&refused).unwrap_or_else(|| panic!("{limit:?}: no wait can help"));
    for sent in sent {
        sent.await.unwrap();
    }
    sleep((start + wait).saturating_duration_since(Instant::now())).await;
    let again = Instant::now();
    let answer = send(&service, request(1, 21)).await.await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{limit:?}, {wait:?}");
    let queued = Duration::from_millis(334);
    assert!(again.elapsed() <= queued, "{limit:?}, {wait:?}");
}
