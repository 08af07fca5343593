//! Settings for the real cost of requests.

use std::convert::Infallible;
use std::fs;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Head;
use tower_ratelimit::policy::Cost;
use tower_ratelimit::{ManualClock, MemoryStore, key};
use tower_ratelimit_config::Config;

use crate::folder::Folder;
use crate::scene::{config, mistakes, now};

pub(crate) const UNITS: &str = "[policies.units]\nkey = \"global\"\nquota = \"1000/hour\"\n";

/// Returns the cost of a request whose response has this status and these headers, and a body of five bytes that is
/// read or not.
pub(crate) fn cost(config: &Config, response: &Response<()>, is_read: bool) -> u32 {
    cost_of(config, response, "bytes", is_read)
}

/// Returns the same for this body.
fn cost_of(config: &Config, response: &Response<()>, body: &'static str, is_read: bool) -> u32 {
    let layer = config
        .layer_over(MemoryStore::new().clock(ManualClock::new()))
        .unwrap();
    let limiter = layer.limiter();
    let (status, headers) = (response.status(), response.headers().clone());
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let headers = headers.clone();
        async move {
            let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response.extensions_mut().insert(Cost(11));
            Ok::<_, Infallible>(response)
        }
    }));
    let response = now(service.oneshot(Request::new(()))).unwrap();
    if is_read {
        now(response.into_body().collect()).unwrap();
    } else {
        drop(response);
    }
    let told = now(limiter.peek(key::global().key_of(()).unwrap(), 0)).unwrap();
    told.binding().unwrap().1.used()
}

#[test]
fn the_real_cost_is_found_where_the_file_says() {
    let response = Response::builder().header("x-cost", 7).body(()).unwrap();
    for (says, expected) in [
        ("settle = \"cost\"", 11),
        ("settle = \"bytes\"", 5),
        ("settle = \"spend\"", 100),
        ("settle = { header = \"x-cost\" }", 7),
        ("settle = { bytes = 2 }", 3),
        (
            "settle = [{ header = \"x-other\" }, \"spend\", \"cost\"]",
            11,
        ),
    ] {
        let config = config(&format!("{UNITS}estimate = 100\n{says}"));
        assert_eq!(cost(&config, &response, true), expected, "{says}");
    }
}

#[test]
fn the_body_says_what_was_used_where_the_file_names() {
    let tokens = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"input_tokens":1,"output_tokens":1},"usageMetadata":{"totalTokenCount":9},"rows":2}"#;
    for (says, expected) in [
        ("settle = \"openai\"", 7),
        ("settle = \"anthropic\"", 2),
        ("settle = \"gemini\"", 9),
        ("settle = { json = \"rows\" }", 2),
        (
            "settle = { json = { \"usage.prompt_tokens\" = 1, \"usage.completion_tokens\" = 4 } }",
            19,
        ),
        ("settle = [{ header = \"x-cost\" }, \"openai\"]", 7),
        ("settle = [{ json = \"columns\" }, \"cost\"]", 11),
    ] {
        let config = config(&format!("{UNITS}estimate = 100\n{says}"));
        let response = Response::builder().header("content-type", "application/json");
        let response = response.body(()).unwrap();
        assert_eq!(
            cost_of(&config, &response, tokens, true),
            expected,
            "{says}"
        );
    }
}

#[test]
fn the_end_says_whether_a_request_is_charged() {
    for (when, status, is_read, holds) in [
        ("{ status = 401 }", 401, true, true),
        ("{ status = [401, \"5xx\"] }", 503, true, true),
        ("{ status = [401, \"5xx\"] }", 404, true, false),
        ("{ grpc_status = [0, 5] }", 200, true, true),
        ("{ grpc_status = 0 }", 200, true, false),
        ("{ complete = false }", 200, false, true),
        ("{ complete = false }", 200, true, false),
        ("{ status = 200, complete = false }", 200, true, false),
        ("[{ status = 200 }, { complete = false }]", 200, true, true),
    ] {
        let response = Response::builder().status(status).header("grpc-status", 5);
        let response = response.body(()).unwrap();
        for (field, charged) in [("charge_when", holds), ("refund_when", !holds)] {
            let config = config(&format!("{UNITS}estimate = 100\n{field} = {when}"));
            let expected = if charged { 100 } else { 0 };
            let cost = cost(&config, &response, is_read);
            assert_eq!(cost, expected, "{field} = {when}, status {status}");
        }
    }
}

#[test]
fn an_estimate_may_be_a_function_of_code() {
    let config = Config::builder()
        .cost(
            "guess",
            |head: &Head<'_>| if head.path() == "/" { 30 } else { 1 },
        )
        .parse(
            &format!("{UNITS}estimate = {{ function = \"guess\" }}\nsettle = \"spend\""),
            tower_ratelimit_config::Format::Toml,
        )
        .unwrap();
    assert_eq!(cost(&config, &Response::new(()), true), 30);
}

#[test]
fn an_end_without_an_answer_costs_what_the_file_says() {
    for (says, expected) in [("\"estimate\"", 60), ("\"nothing\"", 0), ("7", 7)] {
        let config = config(&format!("{UNITS}on_abandoned = {says}"));
        let limiter = config
            .limiter_over(MemoryStore::new().clock(ManualClock::new()))
            .unwrap();
        drop(now(limiter.reserve("ann", 60)).unwrap());
        let told = now(limiter.peek("ann", 0)).unwrap();
        let used = told.binding().unwrap().1.used();
        assert_eq!(used, expected, "{says}");
    }
}

/// While a response is on its way, another limit comes into force, other terms, or no such policy.
#[test]
fn what_a_request_cost_goes_to_the_policy_that_has_charged_it_whatever_file_comes_meanwhile() {
    let first = format!("{UNITS}estimate = 100\nsettle = \"bytes\"\n");
    let other = "[policies.other]\nkey = \"global\"\nquota = \"9/hour\"\n";
    for (number, meanwhile) in [
        first.replace("1000", "50"),
        format!("{UNITS}cost = 3\n"),
        format!("{other}{first}"),
        other.to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = Folder::new(&format!("endings-{number}"));
        fs::write(folder.file(), &first).unwrap();
        let watched = Config::read(folder.file()).unwrap().watch().unwrap();
        let service = watched.layer().layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"bytes"))))
        }));
        let used = || {
            let key = key::global().key_of(()).unwrap();
            let told = now(watched.limiter().peek(key, 0)).unwrap();
            let units = told.policies().find(|(name, _)| *name == "units");
            units.map(|(_, told)| told.used())
        };
        let responses = [(); 2].map(|()| now(service.clone().oneshot(Request::new(()))).unwrap());
        assert_eq!(used(), Some(200));
        fs::write(folder.file(), &meanwhile).unwrap();
        assert_eq!(watched.reload().unwrap().version(), 2);
        let [ends_now, ends_later] = responses;
        now(ends_now.into_body().collect()).unwrap();
        fs::write(folder.file(), &first).unwrap();
        assert_eq!(watched.reload().unwrap().version(), 3);
        assert_eq!(used(), Some(105), "{meanwhile}");
        now(ends_later.into_body().collect()).unwrap();
        assert_eq!(used(), Some(10), "{meanwhile}");
    }
}

#[test]
fn an_impossible_settlement_is_a_mistake_with_its_line() {
    for (says, mistake) in [
        (
            "estimate = 5",
            "<text>:4:12: policies.units.estimate: `settle` is missing; say where the real cost is found, such as \
             settle = \"cost\", or say `cost` in place of `estimate`",
        ),
        (
            "estimate = 0\nsettle = \"cost\"",
            "<text>:4:12: policies.units.estimate: a request that asks for nothing is never refused; give 1 or more",
        ),
        (
            "settle = \"header\"",
            "<text>:4:10: policies.units.settle: \"header\" is unknown; known are cost, spend, bytes, openai, anthropic, gemini",
        ),
        (
            "settle = { header = \"x cost\" }",
            "<text>:4:21: policies.units.settle.header: `header` cannot be \"x cost\": give the name of a header, such as \
             `x-cost`",
        ),
        (
            "settle = { bytes = 0 }",
            "<text>:4:20: policies.units.settle.bytes: a unit has no bytes; give 1 or more",
        ),
        (
            "settle = { json = \"usage..tokens\" }",
            "<text>:4:19: policies.units.settle.json: `json` cannot be \"usage..tokens\": give the names of members with dots \
             between them, such as `usage.total_tokens`: at most eight, each of 1 to 64 bytes",
        ),
        (
            "settle = { json = {} }",
            "<text>:4:19: policies.units.settle.json: `json` cannot be 0: name 1 to 32 numbers, such as `usage.total_tokens`",
        ),
        (
            "settle = { header = \"a\", bytes = 2 }",
            "<text>:4:10: policies.units.settle: give one place, such as { header = \"x-cost\" }",
        ),
        (
            "settle = []",
            "<text>:4:10: policies.units.settle: an empty list tells no cost; leave it out",
        ),
        (
            "charge_when = {}",
            "<text>:4:15: policies.units.charge_when: an empty condition always holds; leave it out",
        ),
        (
            "refund_when = { status = 700 }",
            "<text>:4:26: policies.units.refund_when.status: 700 is not a status; give 100 to 599, or a class such as \
             \"5xx\"",
        ),
    ] {
        let mistakes = mistakes(&format!("{UNITS}{says}"));
        assert_eq!(mistakes.len(), 1, "{says}: {mistakes:?}");
        assert!(mistakes[0].starts_with(mistake), "{says}: {mistakes:?}");
    }
    let queue = "[policies.queue]\nkey = \"global\"\nalgorithm = \"leaky-queue\"\nquota = \"5/second\"\nplaces = 3\n";
    let mistakes = mistakes(&format!("{queue}settle = \"cost\""));
    assert!(
        mistakes[0].starts_with(
            "<text>:6:10: policies.queue.settle: the places of a queue are not settled"
        ),
        "{mistakes:?}"
    );
}
