//! Requests are charged what the answer says, or the guess that the documentation states.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{Full, StreamBody};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::policy::Settle;
use tower_ratelimit::usage::{self, Usage};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key};

use super::conversation::{Conversation, Form};
use crate::exchange::now;

/// More than any answer uses.
const PLENTY: u32 = 4_000_000_000;

fn layer(settle: impl Into<Settle>) -> RateLimitLayer {
    let tokens = Policy::new("tokens", FixedWindow::per_hour(PLENTY))
        .key(key::global())
        .estimate(1_024)
        .settle(settle);
    let builder = RateLimitLayer::builder().policy(tokens);
    let store = MemoryStore::new().clock(ManualClock::new());
    builder.store(store).build().unwrap()
}

pub(super) fn used(layer: &RateLimitLayer) -> u32 {
    let limiter = layer.limiter();
    let key = key::global().key_of(()).unwrap();
    let decision = now(limiter.peek(key, 0)).unwrap();
    decision.binding().unwrap().1.used()
}

/// Sends one request, reads as much of the response as there is, and returns it.
pub(super) fn send<B>(
    layer: &RateLimitLayer,
    prompt: u64,
    response: impl FnOnce() -> Response<B>,
) -> Vec<u8>
where
    B: Body<Data = Bytes, Error = Infallible>,
{
    let mut read = Vec::new();
    send_to(layer, prompt, response, |data| read.extend(data));
    read
}

/// Sends one request, and passes on as much of the response as there is.
fn send_to<B>(
    layer: &RateLimitLayer,
    prompt: u64,
    response: impl FnOnce() -> Response<B>,
    mut client: impl FnMut(Bytes),
) where
    B: Body<Data = Bytes, Error = Infallible>,
{
    let response = Rc::new(Cell::new(Some(response())));
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let response = response.take().unwrap();
        async move { Ok::<_, Infallible>(response) }
    }));
    let request = Request::post("/v1").header(CONTENT_LENGTH, prompt);
    let response = now(service.oneshot(request.body(()).unwrap())).unwrap();
    let mut body = pin!(response.into_body());
    now(poll_fn(|cx| {
        loop {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => client(frame.into_data().unwrap()),
                // The client of a body that breaks off goes away.
                Poll::Ready(None) | Poll::Pending => return Poll::Ready(()),
            }
        }
    }));
}

pub(super) fn usage_of(form: Form) -> Usage {
    match form {
        Form::Chat
        | Form::ChatStream
        | Form::ChatStreamCumulative
        | Form::Responses
        | Form::ResponsesStream => usage::openai(),
        Form::Messages | Form::MessagesStream => usage::anthropic(),
        Form::Gemini | Form::GeminiArray | Form::GeminiStream => usage::gemini(),
    }
}

proptest! {
    #[test]
    fn an_answer_costs_what_it_says_or_the_guess_and_goes_on_unchanged(said in Conversation::any()) {
        let layer = layer(usage_of(said.form));
        let read = send(&layer, said.prompt, || {
            let response = Response::builder().header(CONTENT_TYPE, said.content_type());
            let response = if said.is_compressed {
                response.header(CONTENT_ENCODING, "gzip")
            } else {
                response
            };
            response.body(said.body()).unwrap()
        });
        prop_assert_eq!(read, said.bytes());
        prop_assert_eq!(used(&layer), said.cost());
        let guessed = layer.limiter().snapshot().requests.guessed;
        prop_assert_eq!(guessed, u64::from(!said.tells_its_usage()));
    }
}

/// A response with this body.
pub(super) fn json(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

const CHAT: &str = r#"{"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30},"cost":{"rows":2.5}}"#;

#[test]
fn numbers_weigh_what_the_policy_says() {
    for (usage, cost) in [
        (usage::openai(), 30),
        (usage::openai().weighted(1, 4), 90),
        (usage::openai().weighted(0, 0), 0),
        (usage::json("usage.completion_tokens"), 20),
        (usage::json("cost.rows"), 3),
        (
            usage::json_sum([("usage.prompt_tokens", 1), ("usage.completion_tokens", 5)]).unwrap(),
            110,
        ),
        (
            usage::json_sum([("usage.none", 7), ("cost.rows", 2)]).unwrap(),
            6,
        ),
        (
            usage::json_sum([("usage.total_tokens", u32::MAX)]).unwrap(),
            u32::MAX,
        ),
    ] {
        let layer = layer(usage.clone());
        send(&layer, 0, || json(CHAT));
        let used = used(&layer);
        assert_eq!(used, cost.min(PLENTY), "{usage:?}");
    }
}

#[test]
fn a_total_alone_weighs_as_its_heaviest_part() {
    let layer = layer(usage::openai().weighted(1, 4));
    send(&layer, 0, || json(r#"{"usage":{"total_tokens":30}}"#));
    assert_eq!(used(&layer), 120);
}

#[test]
fn another_source_counts_before_the_guess() {
    let settle = || Settle::from_usage(usage::openai()).or(Settle::from_header("x-tokens"));
    let with = |header: Option<&'static str>, body: &'static str| {
        let layer = layer(settle());
        send(&layer, 400, || {
            let mut response = json(body);
            if let Some(tokens) = header {
                response
                    .headers_mut()
                    .insert("x-tokens", tokens.parse().unwrap());
            }
            response
        });
        used(&layer)
    };
    assert_eq!(with(Some("7"), CHAT), 30);
    assert_eq!(with(Some("7"), "{}"), 7);
    assert_eq!(with(None, "{}"), 101);
}

#[test]
fn what_is_refunded_costs_nothing_whatever_the_body_says() {
    let tokens = Policy::new("tokens", FixedWindow::per_hour(PLENTY))
        .key(key::global())
        .settle(usage::openai())
        .refund_when(|ending| ending.status().is_server_error());
    let layer = RateLimitLayer::builder().policy(tokens).build().unwrap();
    send(&layer, 4_000, || {
        let mut response = json(CHAT);
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    });
    assert_eq!(used(&layer), 0);
}

#[test]
fn a_body_of_another_type_or_coding_costs_the_guess() {
    for (name, value) in [
        (CONTENT_TYPE, "text/plain"),
        (CONTENT_ENCODING, "br"),
        (CONTENT_ENCODING, "zstd"),
        (CONTENT_ENCODING, "gzip, gzip"),
        // It is not what it says.
        (CONTENT_ENCODING, "gzip"),
    ] {
        let layer = layer(usage::openai());
        send(&layer, 11, || {
            let mut response = json(CHAT);
            response.headers_mut().insert(&name, value.parse().unwrap());
            response
        });
        let bytes = u32::try_from(CHAT.len()).unwrap();
        assert_eq!(used(&layer), (11 + bytes).div_ceil(4), "{name}: {value}");
    }
}

#[test]
fn a_body_that_inflates_without_bound_is_read_no_further() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(b"{\"text\":\"").unwrap();
    for _ in 0..64 << 10 {
        encoder.write_all(&[b' '; 1 << 10]).unwrap();
    }
    encoder
        .write_all(b"\",\"usage\":{\"total_tokens\":3}}")
        .unwrap();
    let bomb = encoder.finish().unwrap();
    let layer = layer(usage::openai());
    let length = u32::try_from(bomb.len()).unwrap();
    send(&layer, 0, || {
        let mut response = json(bomb);
        response
            .headers_mut()
            .insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        response
    });
    assert_eq!(used(&layer), length.div_ceil(4));
}

#[test]
fn two_policies_read_the_same_body() {
    let policy = |name: &str, usage: Usage| {
        let policy = Policy::new(name, FixedWindow::per_hour(PLENTY));
        policy.key(key::global()).settle(usage)
    };
    let layer = RateLimitLayer::builder()
        .policy(policy("tokens", usage::openai()))
        .policy(policy("spend", usage::openai().weighted(3, 15)))
        .build()
        .unwrap();
    send(&layer, 0, || json(CHAT));
    let key = || key::global().key_of(()).unwrap();
    let limiter = layer.limiter();
    let decision = now(limiter.peek(key(), 0)).unwrap();
    let used: Vec<_> = decision
        .policies()
        .map(|(_, outcome)| outcome.used())
        .collect();
    assert_eq!(used, [30, 330]);
}

#[test]
fn paths_that_are_none_are_errors_with_the_remedy() {
    let long = "x".repeat(65);
    for path in ["", "a..b", "a.", &long, "a.b.c.d.e.f.g.h.i"] {
        let error = usage::try_json(path).unwrap_err().to_string();
        assert!(error.contains("`usage.total_tokens`"), "{error}");
    }
    assert!(usage::json_sum([]).is_err());
    let many: Vec<String> = (0..33).map(|place| format!("n{place}")).collect();
    let error = usage::json_sum(many.iter().map(|path| (path.as_str(), 1))).unwrap_err();
    assert!(error.to_string().contains("1 to 32"), "{error}");
}

/// Returns how many mebibytes of a stream are passed: `STREAM_MIB=1024 tests/run http::usage` passes a gibibyte.
pub(super) fn mebibytes() -> usize {
    let set = std::env::var("STREAM_MIB");
    set.map_or(32, |number| number.parse().unwrap())
}

#[test]
fn a_stream_of_any_length_takes_the_same_memory() {
    let event = format!("data: {{\"text\":\"{}\"}}\n\n", "x".repeat(105_000));
    let event = Bytes::from(event);
    let most = |events: usize| {
        let layer = layer(usage::openai());
        let measured = allocation_counter::measure(|| {
            let frames = (0..events).map(|_| Ok(Frame::data(event.clone())));
            let body = StreamBody::new(stream::iter(frames));
            let response = Response::builder().header(CONTENT_TYPE, "text/event-stream");
            send_to(&layer, 0, || response.body(body).unwrap(), drop);
        });
        measured.bytes_max
    };
    // What a process does once, such as telling the guess in the log, is done.
    most(1);
    assert_eq!(most(10 * mebibytes()), most(3));
}
