//! Calls that wait by a clock that the test moves.
//!
//! They waited by tokio's timers alone: a test had to pause tokio's time, even if its servers had another clock.

use std::task::Poll;
use std::time::Duration;

use tower::Layer;
use tower_ratelimit::ManualClock;
use tower_ratelimit::client::{ClientThrottleLayer, Reason};

use crate::client::server::{Scripted, answer, call, polled};

const SERVER: &str = "http://api.example/";
const SECOND: Duration = Duration::from_secs(1);

fn spent(seconds: u64) -> http::Response<()> {
    let limit = format!("\"a\";r=0;t={seconds}");
    answer(200, &[("ratelimit", &limit)])
}

#[test]
fn a_call_goes_when_the_clock_shows_the_end_of_its_hold_and_not_before() {
    let clock = ManualClock::new();
    let layer = ClientThrottleLayer::new().clock(clock.clone());
    let server = Scripted::new([spent(5)]);
    let client = layer.layer(server.clone());
    assert!(polled(call(&client, SERVER)).poll().is_ready());
    assert_eq!(
        layer.remaining_hold(("api.example", 80_u16)),
        Some(5 * SECOND)
    );
    let mut waiting = polled(call(&client, SERVER));
    assert!(waiting.poll().is_pending());
    clock.advance(Duration::from_micros(4_999_999));
    assert!(waiting.poll().is_pending());
    assert_eq!(server.calls(), 1);
    clock.advance(Duration::from_micros(1));
    assert!(matches!(waiting.poll(), Poll::Ready(Ok(status)) if status == 200));
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn the_clock_wakes_a_call_that_waits() {
    let clock = ManualClock::new();
    let client = ClientThrottleLayer::new().clock(clock.clone());
    let client = client.layer(Scripted::new([spent(3_600)]));
    call(&client, SERVER).await.unwrap();
    let waiting = tokio::spawn(async move { call(&client, SERVER).await.is_ok() });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    clock.advance(3_600 * SECOND);
    let woken = tokio::time::timeout(20 * SECOND, waiting).await;
    assert!(woken.unwrap().unwrap());
}

#[test]
fn the_wait_of_a_call_is_measured_by_the_clock() {
    let clock = ManualClock::new();
    let layer = ClientThrottleLayer::new()
        .clock(clock.clone())
        .wait_up_to(2 * SECOND);
    let client = layer.layer(Scripted::new([spent(2), spent(9)]));
    assert!(polled(call(&client, SERVER)).poll().is_ready());
    let [mut first, mut second] = [(); 2].map(|()| polled(call(&client, SERVER)));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    clock.advance(2 * SECOND);
    assert!(matches!(first.poll(), Poll::Ready(Ok(_))));
    // The server has announced the first of nine more seconds.
    let Poll::Ready(Err(error)) = second.poll() else {
        panic!("it waits still");
    };
    let held = error.throttled().unwrap();
    assert_eq!(
        (held.reason(), held.retry_after()),
        (Reason::TooLong, 9 * SECOND)
    );
}

#[test]
fn a_date_is_read_by_the_clock() {
    let clock = ManualClock::new();
    let layer = ClientThrottleLayer::new().clock(clock.clone());
    // A minute after the midnight at which the clock starts.
    let date = "Mon, 01 Jan 2024 00:01:00 GMT";
    let server = Scripted::new([answer(429, &[("retry-after", date)])]);
    let client = layer.layer(server);
    assert!(polled(call(&client, SERVER)).poll().is_ready());
    assert_eq!(
        layer.remaining_hold(("api.example", 80_u16)),
        Some(60 * SECOND)
    );
}
