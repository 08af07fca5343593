//! How long the caller of a gRPC method waits, as `grpc-timeout` tells it: a call whose turn comes later is refused at once, and any
//! other one waits for its turn.

#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::{MemoryStore, Micros, Policy, RateLimitLayer, TokenBucket, key};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("it can be built");
}

/// The wait of the second call.
const TURN: Duration = Duration::from_millis(200);

/// Timers are late by a millisecond or so.
const MARGIN: Duration = Duration::from_millis(10);

/// The time of tokio, which goes on when all wait.
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Micros {
        let since = Micros::from(self.0.elapsed());
        Micros::new(1_788_998_400_000_000).saturating_add(since)
    }
}

fuzz_target!(|text: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(text) else {
        return;
    };
    let told = timeout(value.as_bytes());
    if told.is_some_and(|told| told.abs_diff(TURN) <= MARGIN) {
        return;
    }
    let (passes, waited) = RUNTIME.with(|runtime| runtime.block_on(call(value)));
    let expected = told.is_none_or(|told| told > TURN);
    assert_eq!(passes, expected, "{told:?}");
    assert!(passes || waited < MARGIN, "it was refused after {waited:?}");
});

/// A timeout by the grammar: `TimeoutValue` of 1 to 8 digits, and `TimeoutUnit`.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits
        .iter()
        .fold(0, |sum, digit| 10 * sum + u64::from(digit - b'0'));
    let nanos = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    let nanos = u128::from(amount) * nanos;
    Some(Duration::new(
        u64::try_from(nanos / 1_000_000_000).expect("8 digits of hours are fewer seconds"),
        u32::try_from(nanos % 1_000_000_000).expect("it is below a second"),
    ))
}

/// Returns whether a call with this timeout passes as the second one, and after which time it is answered.
async fn call(timeout: HeaderValue) -> (bool, Duration) {
    let policy = Policy::new("queue", TokenBucket::per_second(5).burst(1))
        .key(key::global())
        .wait_up_to(Duration::from_secs(9));
    let layer = RateLimitLayer::builder()
        .policy(policy)
        .store(MemoryStore::new().clock(Paused(Instant::now())))
        .build()
        .expect("the policy is good");
    let service = layer.layer(service_fn(async |_: Request<String>| {
        let response = Response::builder().header("x-served", "yes");
        Ok::<_, Infallible>(response.body(String::new()).expect("it is one"))
    }));
    let request = || {
        let request = Request::post("/a.B/C").header("content-type", "application/grpc");
        request.body(String::new()).expect("it is one")
    };
    let Ok(first) = service.clone().oneshot(request()).await;
    assert!(first.headers().contains_key("x-served"));
    let begun = Instant::now();
    let mut second = request();
    second.headers_mut().insert("grpc-timeout", timeout);
    let Ok(second) = service.oneshot(second).await;
    (second.headers().contains_key("x-served"), begun.elapsed())
}
