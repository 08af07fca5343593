//! The usage in an answer: the body passes unchanged, and its frames and its compression do not change what is read.
//!
//! The first line says which API, the content type and the length of a frame, such as `openai json 7`.

#![no_main]

use std::convert::Infallible;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::usage::{self, Money, Price, Prices, Usage};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key};
use tower_ratelimit_fuzz::{body, line, now};

fuzz_target!(|text: &[u8]| {
    let (first, text) = line(text);
    let Ok(first) = std::str::from_utf8(first) else {
        return;
    };
    let mut words = first.split(' ');
    let (Some(api), Some(kind)) = (
        words.next().and_then(usage_of),
        words.next().and_then(content_type),
    ) else {
        return;
    };
    let frame = words
        .next()
        .and_then(|length| length.parse().ok())
        .unwrap_or(1);
    let whole = read(&api, kind, "identity", text, text.len());
    assert_eq!(whole, read(&api, kind, "identity", text, frame));
    // These bytes may be gzip, too. One frame may become too long, and not the frames of another division.
    let packed = read(&api, kind, "gzip", text, text.len());
    if text.len() < 32 {
        assert_eq!(packed, read(&api, kind, "gzip", text, frame));
    }

    // It is not made shorter, so that no frame becomes too long.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(text).expect("a vector takes all");
    let gzip = gzip.finish().expect("a vector takes all");
    let packed = read(&api, kind, "gzip", &gzip, frame);
    assert!(
        whole == packed || whole.guessed && packed.guessed,
        "{whole:?} and {packed:?}"
    );
});

/// What a request was charged, and whether that is a guess.
#[derive(Debug, PartialEq)]
struct Charged {
    units: u32,
    guessed: bool,
}

fn read(usage: &Usage, kind: &str, coding: &str, text: &[u8], frame: usize) -> Charged {
    let tokens = Policy::new("tokens", FixedWindow::per_hour(u32::MAX / 2)).key(key::global());
    let tokens = tokens.estimate(1_024).settle(usage.clone());
    let store = MemoryStore::new().clock(ManualClock::new());
    let layer = RateLimitLayer::builder()
        .policy(tokens)
        .store(store)
        .build()
        .expect("the policy is good");
    let service = layer.layer(service_fn(|_: Request<()>| {
        let response = Response::builder()
            .header(CONTENT_TYPE, kind)
            .header(CONTENT_ENCODING, coding);
        std::future::ready(Ok::<_, Infallible>(
            response.body(body(text, frame)).expect("it is one"),
        ))
    }));
    let response = now(service.oneshot(Request::new(()))).expect("it is answered");
    let passed = now(response.into_body().collect())
        .expect("it has no errors")
        .to_bytes();
    assert_eq!(passed, text, "the body has changed");
    let limiter = layer.limiter();
    let decision = limiter.peek(key::Key::GLOBAL, 0).into_future();
    let decision = now(decision).expect("the store is here");
    let (_, outcome) = decision.binding().expect("there is a policy");
    Charged {
        units: outcome.used(),
        guessed: limiter.snapshot().requests.guessed > 0,
    }
}

fn usage_of(api: &str) -> Option<Usage> {
    match api {
        "openai" => Some(usage::openai()),
        "anthropic" => Some(usage::anthropic()),
        "gemini" => Some(usage::gemini()),
        "path" => Some(usage::json("meta.usage")),
        "sum" => usage::json_sum([("usage.in", 1), ("usage.out", 3)]).ok(),
        "priced" => {
            let prices = Prices::of_all_models(Price::new(Money::cents(1), Money::cents(5)));
            Some(usage::openai().priced(&prices))
        }
        _ => None,
    }
}

fn content_type(kind: &str) -> Option<&'static str> {
    match kind {
        "json" => Some("application/json"),
        "lines" => Some("application/x-ndjson"),
        "events" => Some("text/event-stream"),
        _ => None,
    }
}
