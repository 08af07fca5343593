//! Requests are charged the money that their tokens cost, exactly, and are refused by what is left of a budget.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::JsonFields;
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit::policy::{Http, Settle};
use tower_ratelimit::usage::{self, Money, Price, Prices};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key};

use super::conversation::Conversation;
use super::requests::post;
use super::settled::{json, send, usage_of, used};
use crate::exchange::now;

/// Millionths for a million tokens of the input, those read from a cache, those written to one, and the output.
const LARGE: [u32; 4] = [2_500_000, 1_250_000, 3_125_000, 10_000_000];
const SMALL: [u32; 4] = [150_000, 75_000, 150_000, 600_000];

fn price([input, cached, written, output]: [u32; 4]) -> Price {
    let of = Money::millionths;
    let price = Price::new(of(input), of(output)).cached(of(cached));
    price.cache_write(of(written))
}

fn prices() -> Prices {
    Prices::new([("large", price(LARGE)), ("small", price(SMALL))]).unwrap()
}

fn layer(settle: impl Into<Settle>) -> RateLimitLayer {
    limited(
        Policy::new("spend", FixedWindow::per_hour(4_000_000_000))
            .key(key::global())
            .settle(settle),
    )
}

fn limited(policy: Policy<Http>) -> RateLimitLayer {
    let store = MemoryStore::new().clock(ManualClock::new());
    let builder = RateLimitLayer::builder().policy(policy).store(store);
    let builder = builder.too_large_status(StatusCode::PAYLOAD_TOO_LARGE);
    builder.build().unwrap()
}

/// What a conversation costs in units of so many millionths, by plain arithmetic.
fn cost(said: &Conversation, unit: u64) -> u32 {
    let (told, read) = (said.told(), said.read());
    let [input, cached, written, output] = match told.last_model(read) {
        Some("small-2024-08-06") => SMALL,
        // Each of these prices is higher.
        _ => LARGE,
    }
    .map(u64::from);
    let last = |name| told.last(name, read);
    let parts = ["input", "cached", "written", "output", "thoughts"].map(last);
    let sum: u64 = parts.iter().flatten().sum();
    let total = last("total");
    let mut costs = if parts.iter().any(Option::is_some) || total.is_some() {
        let [read, from_cache, to_cache, wrote, thought] = parts.map(|part| part.unwrap_or(0));
        let of_input = last("of input").unwrap_or(0).min(read);
        let beyond = total.unwrap_or(0).saturating_sub(sum);
        (read - of_input) * input
            + (from_cache + of_input) * cached
            + to_cache * written
            + (wrote + thought + beyond) * output
    } else {
        // No layer has read what the request asks for.
        let bytes = said.bytes().len() as u64;
        let guess =
            said.prompt.div_ceil(4) * u64::from(LARGE[0]) + bytes.div_ceil(4) * u64::from(LARGE[3]);
        guess.max(1)
    };
    costs = costs.div_ceil(unit * 1_000_000);
    u32::try_from(costs).unwrap()
}

proptest! {
    #[test]
    fn an_answer_costs_what_its_tokens_cost(said in Conversation::any(), unit in prop::sample::select(vec![1_u32, 100, 10_000])) {
        let prices = prices().unit(Money::millionths(unit)).unwrap();
        let layer = layer(usage_of(said.form).priced(&prices));
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
        prop_assert_eq!(used(&layer), cost(&said, unit.into()));
    }
}

/// What a service answers whose prompt and completion have 1,000 tokens each, and names this model.
fn answer(model: &str) -> String {
    let tokens = r#""usage":{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}"#;
    format!("{{\"model\":\"{model}\",{tokens}}}")
}

/// Sends a request for a model through a layer that reads it, and returns what it has cost.
fn cost_of(asked: &str, answered: String) -> u32 {
    let limits = layer(usage::openai().priced(&prices()));
    let handler = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| {
        let answer = json(answered.clone());
        async { Ok::<_, Infallible>(answer) }
    });
    let service = ReadJsonLayer::new().layer(limits.layer(handler));
    let response = now(service.oneshot(post(asked))).unwrap();
    now(response.into_body().collect()).unwrap();
    used(&limits)
}

#[test]
fn the_model_is_that_of_the_answer_and_else_that_of_the_request() {
    let (small, large) = (r#"{"model":"small"}"#, r#"{"model":"large"}"#);
    assert_eq!(cost_of(small, answer("large")), 12_500);
    assert_eq!(cost_of(large, answer("small")), 750);
    assert_eq!(cost_of(small, answer("alias")), 750);
    assert_eq!(cost_of(r#"{"model":"alias"}"#, answer("alias")), 12_500);
    // A request that names two models has asked for neither.
    let two = r#"{"model":"small","model":"large"}"#;
    assert_eq!(cost_of(two, answer("alias")), 12_500);
    let unnamed = answer("").replace(r#""model":"","#, "");
    assert_eq!(cost_of(small, unnamed), 750);
    // One token is guessed.
    assert_eq!(cost_of(small, "{}".to_owned()), 1);
    assert_eq!(cost_of(large, "{}".to_owned()), 10);
}

#[test]
fn a_model_that_is_read_for_its_price_alone_is_no_key() {
    let limits = limited(Policy::new("models", FixedWindow::per_hour(9)).key(key::json("model")));
    let handler = service_fn(async |request: Request<ReadBody<Full<Bytes>>>| {
        let fields = request.extensions().get::<JsonFields>().unwrap();
        assert_eq!(fields.text("model"), Some("small"));
        Ok::<_, Infallible>(json(""))
    });
    let service = ReadJsonLayer::new().layer(limits.layer(handler));
    let status = now(service.oneshot(post(r#"{"model":"small"}"#)));
    assert_eq!(status.unwrap().status(), 500);
    let service = ReadJsonLayer::new()
        .text("model")
        .layer(limits.layer(handler));
    let status = now(service.oneshot(post(r#"{"model":"small"}"#)));
    assert_eq!(status.unwrap().status(), 200);
}

/// Sends a request whose answer is under way, and returns the status and what the answer tells of the limit.
fn ask(limits: &RateLimitLayer, body: &str) -> (StatusCode, String) {
    let handler = service_fn(async |_: Request<ReadBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Forever))
    });
    let service = ReadJsonLayer::new().layer(limits.layer(handler));
    let response = now(service.oneshot(post(body))).unwrap();
    let told = response.headers().get("ratelimit");
    let told = told.map(|told| told.to_str().unwrap().to_owned());
    let status = response.status();
    // Its answer never ends.
    mem::forget(response);
    (status, told.unwrap_or_default())
}

/// A body that never ends.
struct Forever;

impl Body for Forever {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

fn asking(model: &str, tokens: u32) -> String {
    format!("{{\"model\":\"{model}\",\"max_tokens\":{tokens}}}")
}

#[test]
fn an_estimate_of_money_that_does_not_fit_is_refused_with_what_would() {
    let spend = usage::openai().priced(&prices());
    let limit = prices().limit(Money::cents(10)).unwrap();
    let limits = limited(
        Policy::new("spend", FixedWindow::per_hour(limit))
            .key(key::global())
            .estimate_with(spend.estimate())
            .settle(spend),
    );
    // Two tokens of the name of the model at 2.50, and 6,000 of the answer at 10.
    let (status, told) = ask(&limits, &asking("large", 6_000));
    assert_eq!(status, 200);
    assert!(told.starts_with("\"spend\";r=39995;"), "{told}");
    let (status, told) = ask(&limits, &asking("large", 4_000));
    assert_eq!(status, 429);
    assert!(told.starts_with("\"spend\";r=39995;"), "{told}");
    // What would fit, and the same tokens of a cheaper model.
    assert_eq!(ask(&limits, &asking("large", 3_000)).0, 200);
    assert_eq!(ask(&limits, &asking("small", 4_000)).0, 200);
    // More than the budget will ever be: 0.100005.
    assert_eq!(ask(&limits, &asking("large", 10_000)).0, 413);
    // A model without a price is the dearest.
    assert_eq!(ask(&limits, &asking("unpriced", 10_000)).0, 413);
    assert_eq!(ask(&limits, &asking("small", 20_000)).0, 429);
}

#[test]
fn an_estimate_of_tokens_that_does_not_fit_is_refused_with_what_would() {
    let limits = limited(
        Policy::new("tokens", FixedWindow::per_hour(1_000))
            .key(key::global())
            .estimate_with(usage::openai().estimate())
            .settle(usage::openai()),
    );
    assert_eq!(ask(&limits, &asking("large", 600)).0, 200);
    let (status, told) = ask(&limits, &asking("large", 400));
    assert_eq!(status, 429);
    assert!(told.starts_with("\"tokens\";r=398;"), "{told}");
    assert_eq!(ask(&limits, &asking("large", 999)).0, 413);
    assert_eq!(ask(&limits, &asking("large", 396)).0, 200);
    assert_eq!(ask(&limits, &asking("large", 1)).0, 429);
}

#[test]
fn a_default_estimate_above_the_budget_is_cut_to_it() {
    let limit = prices().limit(Money::cents(1)).unwrap();
    let limits = limited(
        Policy::new("spend", FixedWindow::per_hour(limit))
            .key(key::global())
            .estimate(20_000)
            .settle(usage::openai().priced(&prices())),
    );
    assert_eq!(ask(&limits, "{}").0, 200);
    assert_eq!(ask(&limits, "{}").0, 429);
}

#[test]
fn estimates_weigh_what_their_answers_do() {
    let tokens = usage::anthropic().weighted(3, 15);
    let limits = limited(
        Policy::new("tokens", FixedWindow::per_hour(10_000))
            .key(key::global())
            .estimate_with(tokens.estimate())
            .settle(tokens),
    );
    let (_, told) = ask(&limits, &asking("large", 100));
    // 2 · 3 + 100 · 15
    assert!(told.starts_with("\"tokens\";r=8494;"), "{told}");
}
