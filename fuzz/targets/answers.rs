//! What a client learns from the limits in an answer: no hold is too long, several lines of a field are one list, and a parameter
//! that is unknown changes nothing.

#![no_main]

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::client::ClientThrottleLayer;
use tower_ratelimit::key::{self, Key};
use tower_ratelimit::{ManualClock, Micros};
use tower_ratelimit_fuzz::{joined, response};

const LONGEST: Duration = Duration::from_secs(100);

thread_local! {
    /// Its time stands still.
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("it can be built");
}

fuzz_target!(|text: &[u8]| {
    let Some(answer) = response(text) else { return };
    let learned = hold(&answer);
    assert!(learned.is_none_or(|hold| hold <= LONGEST));

    let told = answer.headers();
    let mut lists = HeaderMap::new();
    for name in ["ratelimit", "ratelimit-policy"] {
        for value in told.get_all(name) {
            lists.append(name, value.clone());
        }
    }
    let with = |lists: HeaderMap| {
        let mut other = Response::builder()
            .status(answer.status())
            .body(())
            .expect("it is one");
        *other.headers_mut() = told.clone();
        for (name, values) in [("ratelimit", &lists), ("ratelimit-policy", &lists)] {
            other.headers_mut().remove(name);
            for value in values.get_all(name) {
                other.headers_mut().append(name, value.clone());
            }
        }
        hold(&other)
    };
    assert_eq!(learned, with(joined(&lists)));
    let mut longer = HeaderMap::new();
    for (name, value) in &lists {
        let value = [value.as_bytes().trim_ascii_end(), b";unknown=1"].concat();
        longer.append(
            name,
            HeaderValue::from_bytes(&value).expect("each part is one"),
        );
    }
    assert_eq!(learned, with(longer));
});

/// Returns how long calls are held after an answer.
fn hold(answer: &Response<()>) -> Option<Duration> {
    let clock = ManualClock::at(Micros::new(1_788_998_400_000_000));
    let layer = ClientThrottleLayer::new()
        .key(key::global())
        .max_hold(LONGEST)
        .clock(clock);
    let service = layer.layer(service_fn(|_: Request<()>| {
        let mut told = Response::new(());
        *told.status_mut() = answer.status();
        *told.headers_mut() = answer.headers().clone();
        ready(Ok::<_, Infallible>(told))
    }));
    RUNTIME.with(|runtime| {
        let _ = runtime
            .block_on(service.oneshot(Request::new(())))
            .expect("it is sent");
        let _guard = runtime.enter();
        layer.remaining_hold(Key::GLOBAL)
    })
}
