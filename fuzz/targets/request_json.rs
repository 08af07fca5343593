//! Fields of the body of a request: they are those that a parser of JSON reads, in whatever frames they come, and the body passes
//! unchanged, or with nothing but the question for the usage of its stream.
//!
//! The first line is the length of a frame.

#![no_main]

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{JsonFields, Unread};
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit::response::Refusal;
use tower_ratelimit_fuzz::{body, line, now};

fuzz_target!(|text: &[u8]| {
    let (first, text) = line(text);
    let Some(frame) = std::str::from_utf8(first)
        .ok()
        .and_then(|first| first.parse().ok())
    else {
        return;
    };
    let layer = ReadJsonLayer::new()
        .text("model")
        .text("params.name")
        .number("max_tokens");
    let whole = read(&layer, text, text.len());
    assert_eq!(whole, read(&layer, text, frame));
    let mcp = ReadJsonLayer::new().mcp();
    assert_eq!(read(&mcp, text, text.len()), read(&mcp, text, frame));
    asks_for_usage(text, frame);

    let Ok(Fields {
        model,
        name,
        number,
    }) = whole
    else {
        return;
    };
    let parsed: Value = serde_json::from_slice(text).expect("what is no JSON is refused");
    assert!(parsed.is_object());
    for (read, parsed) in [(model, &parsed["model"]), (name, &parsed["params"]["name"])] {
        match parsed {
            Value::String(parsed) => assert_eq!(read.as_ref(), Some(parsed)),
            Value::Null | Value::Array(_) | Value::Object(_) => assert_eq!(read, None),
            // As it was spelled.
            _ => assert!(read.is_some()),
        }
    }
    if let Some(told) = parsed["max_tokens"].as_u64() {
        // Of several, the largest counts.
        assert!(
            number.is_some_and(|read| read >= told),
            "{number:?} for {told}"
        );
    }
});

#[derive(Debug, PartialEq)]
struct Fields {
    model: Option<String>,
    name: Option<String>,
    number: Option<u64>,
}

/// The body that is passed on differs by that question alone.
fn asks_for_usage(text: &[u8], frame: usize) {
    let layer = ReadJsonLayer::new().include_usage_if(|_| true);
    let passed = send(&layer, body(text, frame)).map(|(_, passed)| passed);
    let whole = send(&layer, body(text, text.len())).map(|(_, passed)| passed);
    assert_eq!(passed, whole);
    let Some(passed) = passed.ok().filter(|passed| passed != text) else {
        return;
    };
    let parse = |text| serde_json::from_slice::<Value>(text).expect("it is JSON");
    let mut asked = parse(text);
    assert_eq!(asked["stream"], true);
    asked["stream_options"]["include_usage"] = true.into();
    assert_eq!(parse(&passed), asked);
}

/// Returns what stands in a body, or why it is refused.
fn read(layer: &ReadJsonLayer, text: &[u8], frame: usize) -> Result<Fields, Unread> {
    let (fields, passed) = send(layer, body(text, frame))?;
    assert_eq!(passed, text, "the body has changed");
    fields
}

/// Returns what stands in a body and what is passed on of it, or why it is refused.
fn send<B>(layer: &ReadJsonLayer, body: B) -> Result<(Result<Fields, Unread>, Bytes), Unread>
where
    B: Body<Data = Bytes, Error = Infallible>,
{
    let got = RefCell::new(None);
    let handler = service_fn(|request: Request<ReadBody<B>>| {
        *got.borrow_mut() = Some(request);
        ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    let request = Request::post("/").header(CONTENT_TYPE, "application/json");
    let request = request.body(body).expect("it is one");
    let response = now(layer.layer(handler).oneshot(request)).expect("it is answered");
    if let Some(Refusal::Unread(why)) = response.extensions().get() {
        return Err(*why);
    }
    let request = got.borrow_mut().take().expect("it is passed on");
    let (head, body) = request.into_parts();
    let passed = now(body.collect()).expect("it has no errors").to_bytes();
    let fields: &JsonFields = head.extensions.get().expect("the layer leaves them");
    let fields = match fields.unread() {
        Some(why) => Err(why),
        None => Ok(Fields {
            model: fields.text("model").map(str::to_owned),
            name: fields.text("params.name").map(str::to_owned),
            number: fields.number("max_tokens"),
        }),
    };
    Ok((fields, passed))
}
