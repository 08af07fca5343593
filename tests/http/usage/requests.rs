//! Fields of a request's body decide its key, its operation and its estimate, and the handler gets the body as it was sent.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, StreamBody};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{Head, JsonFields, Unread};
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer, Unreadable};
use tower_ratelimit::plan::Operations;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{
    FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key, policy::Http, usage,
};

use super::settled::mebibytes;
use crate::exchange::{now, poll};

const JSON: &str = "application/json";

fn limits(policy: Policy<Http>) -> RateLimitLayer {
    let store = MemoryStore::new().clock(ManualClock::new());
    let builder = RateLimitLayer::builder().policy(policy).store(store);
    builder.build().unwrap()
}

fn used(limits: &RateLimitLayer, key: key::Key) -> u32 {
    let decision = now(limits.limiter().peek(key, 0)).unwrap();
    decision.binding().unwrap().1.used()
}

pub(super) fn post(body: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/v1").header(CONTENT_TYPE, JSON);
    request.body(Full::from(body.to_owned())).unwrap()
}

/// Sends a request through both layers, and returns the status.
fn send<B>(read: &ReadJsonLayer, limits: &RateLimitLayer, request: Request<B>) -> StatusCode
where
    B: Body<Data = Bytes>,
{
    let handler = service_fn(async |_: Request<ReadBody<B>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = read.layer(limits.layer(handler));
    now(service.oneshot(request)).unwrap().status()
}

/// What a handler has got.
#[derive(Debug)]
struct Got {
    fields: JsonFields,
    hint: SizeHint,
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    error: Option<&'static str>,
}

/// Returns what a handler gets behind the layer, or the refusal.
fn got<B>(read: &ReadJsonLayer, request: Request<B>) -> Result<Got, (StatusCode, Unread)>
where
    B: Body<Data = Bytes, Error = &'static str>,
{
    let got = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&got);
    let handler = service_fn(move |request: Request<ReadBody<B>>| {
        let seen = Arc::clone(&seen);
        async move {
            let fields = request.extensions().get::<JsonFields>().unwrap().clone();
            let mut body = Box::pin(request.into_body());
            let mut got = Got {
                fields,
                hint: body.size_hint(),
                data: Vec::new(),
                trailers: None,
                error: None,
            };
            while let Some(frame) = body.frame().await {
                match frame.map(Frame::into_data) {
                    Ok(Ok(data)) => got.data.extend(data),
                    Ok(Err(frame)) => got.trailers = frame.into_trailers().ok(),
                    Err(error) => {
                        got.error = Some(error);
                        break;
                    }
                }
            }
            *seen.lock().unwrap() = Some(got);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let response = now(read.layer(handler).oneshot(request)).unwrap();
    match response.extensions().get() {
        Some(Refusal::Unread(why)) => Err((response.status(), *why)),
        _ => Ok(got.lock().unwrap().take().unwrap()),
    }
}

fn whole(body: impl Into<Bytes>) -> impl Body<Data = Bytes, Error = &'static str> {
    Full::new(body.into()).map_err(|never| match never {})
}

#[test]
fn requests_are_counted_by_a_field_of_their_body() {
    let model = key::json("model");
    let limits = limits(Policy::new("models", FixedWindow::per_hour(2)).key(model.clone()));
    let read = ReadJsonLayer::new().text("model");
    let large = r#"{"model":"large","stream":true}"#;
    assert_eq!(send(&read, &limits, post(large)), 200);
    // A spelling is no other model.
    assert_eq!(
        send(&read, &limits, post(r#"{"m\u006fdel":"l\u0061rge"}"#)),
        200
    );
    assert_eq!(send(&read, &limits, post(large)), 429);
    assert_eq!(send(&read, &limits, post(r#"{"model":"small"}"#)), 200);
    assert_eq!(used(&limits, model.key_of("large").unwrap()), 2);
    // Without the field, and without a body, all share one quota.
    assert_eq!(send(&read, &limits, post("{}")), 200);
    let empty = Request::get("/").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(send(&read, &limits, empty), 200);
    assert_eq!(used(&limits, key::Key::MISSING), 2);
}

#[test]
fn the_operation_of_a_request_is_in_its_body() {
    let tools = Policy::new("tools", FixedWindow::per_hour(100))
        .key(key::global())
        .operation(key::json("params.name"))
        .operations(Operations::new().limit("search", FixedWindow::per_hour(1)));
    let limits = limits(tools);
    let read = ReadJsonLayer::new().text("params.name");
    let call = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"search"}}"#;
    assert_eq!(send(&read, &limits, post(call)), 200);
    assert_eq!(send(&read, &limits, post(call)), 429);
    assert_eq!(
        send(&read, &limits, post(&call.replace("search", "read"))),
        200
    );
}

#[test]
fn the_estimate_of_a_preset_is_the_prompt_and_the_most_of_the_answer() {
    let global = key::global().key_of(()).unwrap();
    for (of, body, expected) in [
        (
            "openai",
            r#"{"messages":[{"role":"user","content":"12345678"}]}"#,
            3 + 1_024,
        ),
        ("openai", r#"{"prompt":"1234","max_tokens":100}"#, 1 + 100),
        (
            "openai",
            r#"{"prompt":"12345","max_completion_tokens":100,"n":3}"#,
            2 + 300,
        ),
        (
            "openai",
            r#"{"input":"","max_output_tokens":7,"max_tokens":9,"n":0}"#,
            9,
        ),
        ("openai", r#"{"max_tokens":1,"max_tokens":50}"#, 50),
        (
            "openai",
            r#"{"max_tokens":99999999999,"n":99999999999}"#,
            1_000_000,
        ),
        (
            "anthropic",
            r#"{"system":"1234","max_tokens":20,"n":3}"#,
            1 + 20,
        ),
        (
            "gemini",
            r#"{"contents":"1234","generationConfig":{"maxOutputTokens":20,"candidateCount":2}}"#,
            1 + 40,
        ),
        (
            "gemini",
            r#"{"generation_config":{"max_output_tokens":20}}"#,
            20,
        ),
    ] {
        let tokens = Policy::new("tokens", FixedWindow::per_hour(1_000_000)).key(key::global());
        let tokens = match of {
            "openai" => tokens.estimate_with(usage::estimate::openai()),
            "anthropic" => tokens.estimate_with(usage::estimate::anthropic()),
            _ => tokens.estimate_with(usage::estimate::gemini()),
        };
        let tokens = tokens.settle(tower_ratelimit::policy::Settle::from_header("x-cost"));
        let limits = limits(tokens);
        let status = send(&ReadJsonLayer::new(), &limits, post(body));
        if expected == 1_000_000 {
            assert_eq!(status, 429, "{body}");
        } else {
            assert_eq!(used(&limits, global), expected, "{of} {body}");
        }
    }
}

#[test]
fn an_estimate_is_a_number_in_the_body_or_the_default() {
    let global = key::global().key_of(()).unwrap();
    for (body, expected) in [
        (r#"{"page":{"size":30}}"#, 30),
        (r#"{"page":{"size":"40"}}"#, 40),
        (r#"{"page":{"size":0}}"#, 1),
        (r#"{"page":{}}"#, 500),
        ("{}", 500),
    ] {
        let rows = Policy::new("rows", FixedWindow::per_hour(10_000))
            .key(key::global())
            .estimate(500)
            .estimate_with(usage::estimate::json("page.size"))
            .settle(usage::json("rows"));
        let limits = limits(rows.on_abandoned(tower_ratelimit::policy::OnAbandoned::Estimate));
        let read = ReadJsonLayer::new().number("page.size");
        let seen = Arc::new(Mutex::new(0));
        let note = Arc::clone(&seen);
        let asked = limits.clone();
        let handler = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| {
            // While the request is under way, it is charged its estimate.
            *note.lock().unwrap() = used(&asked, global);
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
        });
        now(read.layer(limits.layer(handler)).oneshot(post(body))).unwrap();
        assert_eq!(*seen.lock().unwrap(), expected, "{body}");
    }
}

#[test]
fn a_body_that_cannot_be_read_is_refused_or_passes_without_its_fields() {
    let with = |name, value: &str, body: &str| {
        let mut request = post(body);
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    let long = format!(r#"{{"model":"a","text":"{}"}}"#, "x".repeat(64));
    let good = r#"{"model":"a"}"#;
    for (request, status, why) in [
        (post(&long), 413, Unread::TooLong),
        (with(CONTENT_TYPE, "text/plain", good), 415, Unread::NotJson),
        (with(CONTENT_ENCODING, "gzip", good), 415, Unread::NotJson),
        (post("[]"), 400, Unread::Malformed),
        (post(r#"{"model":"a""#), 400, Unread::Malformed),
        (post(r#"{"model":"a","model":"b"}"#), 400, Unread::Unclear),
        (post(r#"{"Model":"a"}"#), 400, Unread::Unclear),
    ] {
        let read = ReadJsonLayer::new().text("model").max_bytes(64);
        let request = request.map(|body| body.map_err(|never| match never {}));
        let (parts, body) = request.into_parts();
        let bytes = now(body.collect()).unwrap().to_bytes();
        let again = || Request::from_parts(parts.clone(), whole(bytes.clone()));
        let refused = got(&read, again()).unwrap_err();
        assert_eq!(refused, (StatusCode::from_u16(status).unwrap(), why));

        let passing = read.clone().read_if(|_| Some(Unreadable::Pass));
        let passed = got(&passing, again()).unwrap();
        assert_eq!(passed.data, bytes, "{why:?}");
        assert_eq!(passed.fields.text("model"), None);
        assert_eq!(passed.fields.unread(), Some(why));
        let unwanted = read.read_if(|_: &Head<'_>| None);
        let passed = got(&unwanted, again()).unwrap();
        assert_eq!(
            (passed.data.len(), passed.fields.unread()),
            (bytes.len(), Some(Unread::Unwanted))
        );
    }
    for kind in ["application/json; charset=utf-8", "Application/LD+JSON"] {
        let read = ReadJsonLayer::new().text("model");
        let request = with(CONTENT_TYPE, kind, good).map(|_| whole(good));
        assert_eq!(got(&read, request).unwrap().fields.text("model"), Some("a"));
    }
}

#[test]
fn an_estimate_of_a_body_that_is_too_long_is_made_of_its_length() {
    let tokens = Policy::new("tokens", FixedWindow::per_hour(1_000_000))
        .key(key::global())
        .estimate_with(usage::estimate::openai())
        .settle(tower_ratelimit::policy::Settle::from_header("x-cost"));
    let limits = limits(tokens);
    let read = ReadJsonLayer::new().read_if(|_| Some(Unreadable::Pass));
    let body = format!(r#"{{"prompt":"{}","max_tokens":5}}"#, "x".repeat(400_000));
    assert_eq!(send(&read, &limits, post(&body)), 200);
    let global = key::global().key_of(()).unwrap();
    let expected = body.len().div_ceil(4) + 1_024;
    assert_eq!(used(&limits, global) as usize, expected);
}

#[test]
fn a_layer_follows_another_one() {
    let current = Arc::new(Mutex::new(ReadJsonLayer::new().text("a")));
    let latest = Arc::clone(&current);
    let read = ReadJsonLayer::following(move || latest.lock().unwrap().clone());
    let request = || post(r#"{"a":"1","b":"2"}"#).map(|_| whole(r#"{"a":"1","b":"2"}"#));
    let fields = got(&read, request()).unwrap().fields;
    assert_eq!((fields.text("a"), fields.text("b")), (Some("1"), None));
    *current.lock().unwrap() = ReadJsonLayer::new().text("b");
    let fields = got(&read, request()).unwrap().fields;
    assert_eq!((fields.text("a"), fields.text("b")), (None, Some("2")));
}

#[test]
fn a_field_that_no_layer_reads_is_the_fault_of_the_server() {
    let policy = || Policy::new("models", FixedWindow::per_hour(2)).key(key::json("model"));
    let body = r#"{"model":"a","user":"b"}"#;
    assert_eq!(
        send(
            &ReadJsonLayer::new().text("user"),
            &limits(policy()),
            post(body)
        ),
        500
    );
    let unread = limits(policy()).layer(service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    assert_eq!(now(unread.oneshot(post(body))).unwrap().status(), 500);
    // Another request, without its body, is as one of a log.
    let mut unknown = post(body);
    unknown.extensions_mut().insert(JsonFields::unknown());
    let limits = limits(policy());
    let service = limits.layer(service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    assert_eq!(now(service.oneshot(unknown)).unwrap().status(), 200);
    assert_eq!(used(&limits, key::Key::MISSING), 1);
}

#[test]
fn mistakes_in_paths_are_told() {
    for path in ["", "a.", "a..b", "a.b.c.d.e.f.g.h.i"] {
        assert!(key::try_json(path).is_err(), "{path}");
        assert!(ReadJsonLayer::new().try_text(path).is_err(), "{path}");
        assert!(ReadJsonLayer::new().try_number(path).is_err(), "{path}");
    }
    let error = key::try_json("a..b").unwrap_err();
    assert_eq!((error.field(), error.value()), ("json", "\"a..b\""));
    let many = (0..64).try_fold(ReadJsonLayer::new(), |read, place| {
        read.try_text(&format!("field{place}"))
    });
    assert!(many.unwrap_err().remedy().contains("64 fields"));
}

#[test]
fn no_value_is_shown() {
    let read = ReadJsonLayer::new().text("token");
    let request = post("").map(|_| whole(r#"{"token":"s3cret"}"#));
    let fields = got(&read, request).unwrap().fields;
    assert_eq!(fields.text("token"), Some("s3cret"));
    let shown = format!("{fields:?} {read:?}");
    assert!(
        !shown.contains("s3cret") && shown.contains("token"),
        "{shown}"
    );
}

#[test]
fn a_stream_tells_its_usage_to_the_limits_and_not_to_the_client() {
    let events = |usage: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{}}}}],\"usage\":null}}\n\n{usage}data: [DONE]\n\n"
        )
    };
    let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n";
    let (with, without) = (events(usage), events(""));
    let stream = r#"{"stream":true}"#;
    let asking = r#"{"stream_options":{"include_usage":true},"stream":true}"#;
    let own = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    for (path, body, arrives, is_taken_out) in [
        ("/chat", stream, asking, true),
        ("/chat", own, own, false),
        ("/chat", r#"{"stream":false}"#, r#"{"stream":false}"#, false),
        ("/other", stream, stream, false),
    ] {
        let tokens = Policy::new("tokens", FixedWindow::per_hour(1_000)).key(key::global());
        let limits = limits(tokens.settle(usage::openai()));
        let read = ReadJsonLayer::new()
            .read_if(|_| None)
            .include_usage_if(|head| head.path() == "/chat");
        let answer = with.clone();
        let handler = service_fn(move |request: Request<ReadBody<Full<Bytes>>>| {
            let answer = answer.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                assert_eq!(body, arrives);
                assert_eq!(head.headers[CONTENT_LENGTH], *body.len().to_string());
                assert_eq!(
                    head.headers[ACCEPT_ENCODING],
                    if is_taken_out { "identity" } else { "gzip" }
                );
                let response = Response::builder()
                    .header(CONTENT_TYPE, "text/event-stream; charset=utf-8")
                    .header(CONTENT_LENGTH, answer.len());
                Ok::<_, Infallible>(response.body(Full::<Bytes>::from(answer)).unwrap())
            }
        });
        let mut request = post(body);
        *request.uri_mut() = path.parse().unwrap();
        request
            .headers_mut()
            .insert(CONTENT_LENGTH, body.len().into());
        request
            .headers_mut()
            .insert(ACCEPT_ENCODING, "gzip".parse().unwrap());
        let response = now(read.layer(limits.layer(handler)).oneshot(request)).unwrap();
        assert_eq!(
            response.headers().contains_key(CONTENT_LENGTH),
            !is_taken_out
        );
        let received = now(response.into_body().collect()).unwrap().to_bytes();
        assert_eq!(
            received,
            if is_taken_out { &without } else { &with },
            "{path} {body}"
        );
        assert_eq!(used(&limits, key::global().key_of(()).unwrap()), 7);
    }
}

#[test]
fn a_request_with_a_digest_of_its_body_keeps_it() {
    let read = ReadJsonLayer::new().include_usage_if(|_| true);
    let stream = r#"{"stream":true}"#;
    let mut request = post(stream).map(|_| whole(stream));
    let digest = "sha-256=:AAAA:".parse().unwrap();
    request.headers_mut().insert("content-digest", digest);
    assert_eq!(got(&read, request).unwrap().data, stream.as_bytes());
}

#[test]
fn a_request_with_a_digest_behind_its_body_keeps_it() {
    let read = ReadJsonLayer::new().include_usage_if(|_| true);
    let stream = r#"{"stream":true}"#;
    for (name, changes) in [("content-digest", false), ("x-other", true)] {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, "sha-256=:AAAA:".parse().unwrap());
        let frames = [Frame::data(Bytes::from(stream)), Frame::trailers(trailers)];
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, &'static str>)));
        let got = got(&read, post("").map(|_| body)).unwrap();
        assert_eq!(got.data != stream.as_bytes(), changes, "{name}");
        assert!(got.trailers.unwrap().contains_key(name));
    }
}

#[test]
fn a_body_of_the_longest_length_asks_for_the_usage_too() {
    let stream = r#"{"stream":true}"#;
    let asking = r#"{"stream_options":{"include_usage":true},"stream":true}"#;
    for (max_bytes, expected) in [(stream.len(), asking), (stream.len() - 1, stream)] {
        let read = ReadJsonLayer::new().max_bytes(max_bytes);
        let read = read
            .read_if(|_| Some(Unreadable::Pass))
            .include_usage_if(|_| true);
        let frames = [&stream[..7], &stream[7..]].map(|part| Ok(Frame::data(Bytes::from(part))));
        let request = post("").map(|_| StreamBody::new(stream::iter(frames)));
        let got = got(&read, request).unwrap();
        assert_eq!(got.data, expected.as_bytes());
        let is_read = max_bytes == stream.len();
        assert_eq!(got.hint.exact() == Some(expected.len() as u64), is_read);
    }
}

/// Returns what a client gets of an answer, in these pieces, to a stream that is made to tell its usage.
fn answered(
    fields: &[(&'static str, &'static str)],
    frames: Vec<Result<Frame<Bytes>, &'static str>>,
) -> (HeaderMap, Vec<u8>, Result<Option<HeaderMap>, &'static str>) {
    let read = ReadJsonLayer::new().include_usage_if(|_| true);
    let frames = Mutex::new(Some(frames));
    let handler = service_fn(|_: Request<ReadBody<Full<Bytes>>>| {
        let mut response = Response::new(StreamBody::new(stream::iter(
            frames.lock().unwrap().take().unwrap(),
        )));
        for (name, value) in fields {
            let value = HeaderValue::from_static(value);
            response.headers_mut().append(*name, value);
        }
        async { Ok::<_, Infallible>(response) }
    });
    let response = now(read.layer(handler).oneshot(post(r#"{"stream":true}"#))).unwrap();
    let (head, body) = response.into_parts();
    let (mut body, mut data, mut trailers) = (Box::pin(body), Vec::new(), None);
    while let Some(frame) = now(body.frame()) {
        match frame.map(Frame::into_data) {
            Ok(Ok(piece)) => data.extend(piece),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(error) => return (head.headers, data, Err(error)),
        }
    }
    (head.headers, data, Ok(trailers))
}

const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n";

#[test]
fn what_holds_for_the_bytes_of_an_answer_does_not_stay_when_they_change() {
    let fields = [
        ("content-length", "100"),
        ("etag", "\"a\""),
        ("content-digest", "sha-256=:AAAA:"),
        ("x-request-id", "7"),
    ];
    let mut trailers = HeaderMap::new();
    for (name, value) in &fields[2..] {
        trailers.insert(*name, HeaderValue::from_static(value));
    }
    let frames = || {
        let data = Frame::data(Bytes::from(format!("{USAGE}data: [DONE]\n\n")));
        vec![Ok(data), Ok(Frame::trailers(trailers.clone()))]
    };
    for (kind, coding, changes) in [
        ("text/event-stream", "identity", true),
        // What cannot be read goes to the client as it is.
        ("text/event-stream", "gzip", false),
        ("application/json", "identity", false),
    ] {
        let of_the_kind = [("content-type", kind), ("content-encoding", coding)];
        let all = [&fields[..], &of_the_kind].concat();
        let (headers, data, trailers) = answered(&all, frames());
        let trailers = trailers.unwrap().unwrap();
        assert_eq!(data == b"data: [DONE]\n\n", changes, "{kind}");
        for name in ["content-length", "etag", "content-digest"] {
            assert_eq!(headers.contains_key(name), !changes, "{kind} {name}");
        }
        assert_eq!(trailers.contains_key("content-digest"), !changes, "{kind}");
        assert!(headers.contains_key("x-request-id") && trailers.contains_key("x-request-id"));
    }
}

#[test]
fn a_stream_that_breaks_off_reaches_the_client_as_far_as_it_came() {
    let cut = "data: {\"choices\":[{}]}\n\ndata: {\"cho";
    for at in 0..cut.len() {
        let pieces = [&cut[..at], &cut[at..]].map(|piece| Ok(Frame::data(Bytes::from(piece))));
        let frames = pieces.into_iter().chain([Err("gone")]).collect();
        let (_, data, end) = answered(&[("content-type", "text/event-stream")], frames);
        assert_eq!((&*data, end), (cut.as_bytes(), Err("gone")));
    }
}

/// The usage of a long stream is settled and taken out in the memory of some events.
#[test]
fn a_stream_of_any_length_takes_the_same_memory_without_its_usage() {
    let text = "x".repeat(52_300);
    let event = Bytes::from(format!(
        "data: {{\"choices\":[{{\"delta\":\"{text}\"}}],\"usage\":null}}\n\n"
    ));
    let most = |events: usize| {
        let tokens = Policy::new("tokens", FixedWindow::per_hour(1_000)).key(key::global());
        let limits = limits(tokens.settle(usage::openai()));
        let read = ReadJsonLayer::new().include_usage_if(|_| true);
        let handler = service_fn(|_: Request<ReadBody<Full<Bytes>>>| {
            let events = std::iter::repeat_n(event.clone(), events);
            let frames = events.chain([Bytes::from(USAGE)]);
            let frames = frames.map(|event| Ok::<_, Infallible>(Frame::data(event)));
            let response = Response::builder().header(CONTENT_TYPE, "text/event-stream");
            let response = response.body(StreamBody::new(stream::iter(frames)));
            async { Ok::<_, Infallible>(response.unwrap()) }
        });
        let asked = read.layer(limits.layer(handler));
        let response = now(asked.oneshot(post(r#"{"stream":true}"#))).unwrap();
        let mut passed = 0;
        let measured = allocation_counter::measure(|| {
            let mut body = pin!(response.into_body());
            while let Some(frame) = now(body.frame()) {
                passed += frame.unwrap().into_data().unwrap().len();
            }
        });
        assert_eq!(passed, events * event.len());
        assert_eq!(used(&limits, key::global().key_of(()).unwrap()), 7);
        measured.bytes_max
    };
    most(1);
    let constant = most(3);
    assert_eq!(most(20 * mebibytes()), constant);
    // The event that is held back, and its room as it grows.
    assert!(constant < 5 * event.len() as u64, "{constant}");
}

/// The handler is not called before the body has arrived, and then gets what has arrived so far, and the rest as it comes.
#[tokio::test]
async fn a_body_may_arrive_slowly() {
    for max_bytes in [64, 5] {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let frames = stream::unfold(receiver, async |mut receiver| {
            let piece: &'static str = receiver.recv().await?;
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from(piece))),
                receiver,
            ))
        });
        let request = Request::post("/").header(CONTENT_TYPE, JSON);
        let request = request.body(StreamBody::new(Box::pin(frames))).unwrap();
        let handler = service_fn(async |request: Request<ReadBody<_>>| {
            let model = request.extensions().get::<JsonFields>().unwrap();
            let model = model.text("model").unwrap_or("unknown").to_owned();
            let body = request.into_body().collect().await?.to_bytes();
            Ok::<_, Infallible>(
                Response::builder()
                    .header("x-model", model)
                    .body(Full::new(body))
                    .unwrap(),
            )
        });
        let read = ReadJsonLayer::new().text("model").max_bytes(max_bytes);
        let read = read.read_if(|_| Some(Unreadable::Pass));
        let mut answer = pin!(read.layer(handler).oneshot(request));
        for piece in ["{\"model\"", ":\"a\"}", " "] {
            assert!(poll(answer.as_mut()).is_pending());
            sender.send(piece).unwrap();
        }
        assert!(poll(answer.as_mut()).is_pending());
        drop(sender);
        let response = answer.await.unwrap();
        let expected = if max_bytes == 64 { "a" } else { "unknown" };
        assert_eq!(response.headers()["x-model"], expected);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "{\"model\":\"a\"} ");
    }
}

/// How a body ends after its data.
#[derive(Clone, Copy, Debug)]
enum End {
    Plain,
    Trailers,
    Error,
}

proptest! {
    #[test]
    fn a_handler_gets_the_body_as_it_was_sent_in_whatever_pieces(
        text in "[a-z]{0,60}",
        cuts in prop::collection::vec(0_usize..100, 0..8),
        end in prop::sample::select(vec![End::Plain, End::Trailers, End::Error]),
        max_bytes in 0_usize..120,
        is_passed in any::<bool>(),
    ) {
        let document = format!(r#"{{"model":"small","text":"{text}"}}"#);
        let bytes = Bytes::from(document.clone());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut frames: Vec<Result<Frame<Bytes>, &'static str>> = cuts
            .windows(2)
            .map(|cut| Ok(Frame::data(bytes.slice(cut[0]..cut[1]))))
            .collect();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-digest", "abc".parse().unwrap());
        match end {
            End::Plain => {}
            End::Trailers => frames.push(Ok(Frame::trailers(trailers.clone()))),
            End::Error => frames.push(Err("gone")),
        }
        let request = Request::post("/").header(CONTENT_TYPE, JSON);
        let request = request.body(StreamBody::new(stream::iter(frames))).unwrap();
        let unreadable = if is_passed { Unreadable::Pass } else { Unreadable::Refuse };
        let read = ReadJsonLayer::new().text("model").max_bytes(max_bytes);
        let got = got(&read.read_if(move |_| Some(unreadable)), request);

        let why = if bytes.len() > max_bytes {
            Some(Unread::TooLong)
        } else if matches!(end, End::Error) {
            Some(Unread::Malformed)
        } else {
            None
        };
        match got {
            Err((_, refused)) => {
                prop_assert!(!is_passed);
                prop_assert_eq!(Some(refused), why);
            }
            Ok(got) => {
                prop_assert!(is_passed || why.is_none());
                prop_assert_eq!(got.fields.unread(), why);
                prop_assert_eq!(got.fields.text("model"), why.is_none().then_some("small"));
                prop_assert_eq!(got.data, document.into_bytes());
                prop_assert_eq!(got.trailers, matches!(end, End::Trailers).then_some(trailers));
                prop_assert_eq!(got.error, matches!(end, End::Error).then_some("gone"));
                prop_assert!(got.hint.lower() <= bytes.len() as u64);
                prop_assert!(got.hint.upper().is_none_or(|most| most >= bytes.len() as u64));
                if why.is_none() {
                    prop_assert_eq!(got.hint.exact(), Some(bytes.len() as u64));
                }
            }
        }
    }
}
