//! Requests of the Model Context Protocol: each tool has its limit, and header and body agree.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{Head, Unread};
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer, Unreadable};
use tower_ratelimit::plan::Operations;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key};

use crate::exchange::now;

fn limits() -> RateLimitLayer {
    let operations = Operations::new()
        .limit("search", FixedWindow::per_hour(1))
        .limit("file:///a", FixedWindow::per_hour(1));
    let tools = Policy::new("tools", FixedWindow::per_hour(100))
        .key(key::global())
        .operation(key::mcp_name())
        .operations(operations);
    let store = MemoryStore::new().clock(ManualClock::new());
    let builder = RateLimitLayer::builder().policy(tools).store(store);
    builder.build().unwrap()
}

fn request(headers: &[(&'static str, &str)], body: &str) -> Request<Full<Bytes>> {
    let mut request = Request::post("/mcp").header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body.to_owned())).unwrap()
}

fn send(
    read: &ReadJsonLayer,
    limits: &RateLimitLayer,
    request: Request<Full<Bytes>>,
) -> Response<impl http_body::Body<Data = Bytes, Error = Infallible> + use<>> {
    let handler = service_fn(async |_: Request<ReadBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    now(read.layer(limits.layer(handler)).oneshot(request)).unwrap()
}

const SEARCH: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}"#;
const RESOURCE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a","name":"x"}}"#;

#[test]
fn headers_that_say_something_else_than_the_body_are_refused() {
    let read = ReadJsonLayer::new().mcp();
    let (method, name) = ("mcp-method", "mcp-name");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (headers, body, is_right) in [
        (&[][..], SEARCH, true),
        (&[(method, "tools/call"), (name, "search")], SEARCH, true),
        (&[(name, "=?base64?c2VhcmNo?=")], SEARCH, true),
        (&[(name, "mail")], SEARCH, false),
        (&[(name, "Search")], SEARCH, false),
        (&[(name, "=?base64?bWFpbA==?=")], SEARCH, false),
        (&[(name, "=?base64?c2VhcmN?=")], SEARCH, false),
        (&[(name, "search"), (name, "search")], SEARCH, false),
        (&[(method, "tools/list"), (name, "search")], SEARCH, false),
        (&[(name, "file:///a")], RESOURCE, true),
        (&[(name, "x")], RESOURCE, false),
        (&[(method, "tools/list")], list, true),
        (&[(method, "tools/call")], list, false),
        // What the header is for other methods, the protocol does not say.
        (&[(name, "anything")], list, true),
        (&[(method, "tools/call")], "{}", false),
        // A body with two names is unclear.
        (
            &[(name, "mail")],
            r#"{"method":"tools/call","params":{"name":"search","name":"mail"}}"#,
            false,
        ),
    ] {
        let response = send(&read, &limits(), request(headers, body));
        let status = if is_right {
            StatusCode::OK
        } else {
            StatusCode::BAD_REQUEST
        };
        assert_eq!(response.status(), status, "{headers:?} {body}");
    }
}

#[test]
fn the_refusal_is_that_of_the_protocol() {
    let read = ReadJsonLayer::new().mcp();
    let response = send(&read, &limits(), request(&[("mcp-name", "mail")], SEARCH));
    let reason = response.extensions().get();
    assert!(
        matches!(reason, Some(Refusal::Unread(Unread::HeaderMismatch))),
        "{reason:?}"
    );
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = now(response.into_body().collect()).unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["jsonrpc"], "2.0");
    assert_eq!(body["error"]["code"], -32_020);
}

#[test]
fn each_tool_has_its_limit_however_its_name_is_written() {
    let read = ReadJsonLayer::new().mcp();
    let limits = limits();
    let ask = |headers: &[(&'static str, &str)], body: &str| {
        send(&read, &limits, request(headers, body))
            .status()
            .as_u16()
    };
    assert_eq!(ask(&[("mcp-name", "search")], SEARCH), 200);
    assert_eq!(ask(&[("mcp-name", "=?base64?c2VhcmNo?=")], SEARCH), 429);
    // An older client has no headers.
    assert_eq!(ask(&[], SEARCH), 429);
    assert_eq!(ask(&[], RESOURCE), 200);
    assert_eq!(ask(&[("mcp-name", "file:///a")], RESOURCE), 429);
    assert_eq!(ask(&[], &SEARCH.replace("search", "other")), 200);
    assert_eq!(ask(&[], "{\"method\":\"tools/list\"}"), 200);
}

#[test]
fn the_body_counts_where_a_request_may_pass_that_does_not_agree() {
    let read = ReadJsonLayer::new()
        .mcp()
        .read_if(|_| Some(Unreadable::Pass));
    let limits = limits();
    let ask = |name: &str| {
        let request = request(&[("mcp-name", name)], SEARCH);
        send(&read, &limits, request).status().as_u16()
    };
    assert_eq!(ask("mail"), 200);
    assert_eq!(ask("mail"), 429);
}

#[test]
fn a_name_is_read_from_the_header_where_no_layer_reads_the_body() {
    let name = |value: &str| {
        let request = request(&[("mcp-name", value)], SEARCH);
        let name = key::mcp_name().map(|name: std::borrow::Cow<'_, str>| name.into_owned());
        key::Extract::extract(&name, &Head::of(&request))
    };
    let search = key::mcp_name().key_of("search").unwrap();
    assert_eq!(name("search"), Ok(search));
    assert_eq!(name("=?base64?c2VhcmNo?="), Ok(search));
    assert!(name("=?base64?c2VhcmN?=").is_err());
}
