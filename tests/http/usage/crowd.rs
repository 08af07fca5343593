//! Clients at once pass a limit of tokens by no more than `docs/llm.md` states.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Key;
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit::policy::Http;
use tower_ratelimit::{
    FixedWindow, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, key, usage,
};

use crate::exchange::now;

const CLIENTS: u32 = 64;
const LIMIT: u32 = 100_000;
const PROMPT: u32 = 20;
const MOST: u32 = 480;

/// How a request is charged.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// What it may take at most, before it has its answer.
    ByRequest,
    /// This, before it has its answer.
    Estimate(u32),
    /// Nothing, before it has its answer.
    After,
}

fn tokens(limit: u32) -> Policy<Http> {
    Policy::new("tokens", FixedWindow::per_hour(limit)).key(key::global())
}

fn limits(policy: Policy<Http>) -> RateLimitLayer {
    let store = MemoryStore::new().clock(ManualClock::new());
    let builder = RateLimitLayer::builder().policy(policy).store(store);
    builder.build().unwrap()
}

fn global() -> Key {
    key::global().key_of(()).unwrap()
}

fn used(limiter: &Limiter) -> u32 {
    let decision = now(limiter.peek(global(), 0)).unwrap();
    decision.binding().unwrap().1.used()
}

/// Sends a request that may take `most` tokens beside those of its prompt, and takes this many. It is under way until the body has
/// been read.
fn send(
    layer: &RateLimitLayer,
    most: u32,
    takes: u32,
) -> Option<impl Body<Data = Bytes, Error = Infallible> + use<>> {
    let handler = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| async move {
        let answer = format!(r#"{{"usage":{{"total_tokens":{takes}}}}}"#);
        let response = Response::builder().header(CONTENT_TYPE, "application/json");
        Ok::<_, Infallible>(response.body(Full::<Bytes>::from(answer)).unwrap())
    });
    let prompt = "x".repeat(4 * PROMPT as usize);
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":{most}}}"#);
    let request = Request::post("/v1").header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::<Bytes>::from(body)).unwrap();
    let service = ReadJsonLayer::new().layer(layer.layer(handler));
    let response = now(service.oneshot(request)).unwrap();
    (response.status() == StatusCode::OK).then(|| response.into_body())
}

/// Returns the tokens that are taken in all, if each client sends its next request once it has the answer to the last one, until
/// it is refused.
fn spent(way: Way) -> u32 {
    let layer = match way {
        Way::ByRequest => tokens(LIMIT).estimate_with(usage::estimate::openai()),
        Way::Estimate(tokens_of_one) => tokens(LIMIT).estimate(tokens_of_one),
        Way::After => tokens(LIMIT),
    };
    let layer = match way {
        Way::After => limits(layer),
        _ => limits(layer.settle(usage::openai())),
    };
    let limiter = layer.limiter();
    let mut requests = 0;
    let mut send_next = || {
        requests += 1;
        // Answers of all lengths, in an order of no kind.
        let takes = PROMPT + 1 + requests * 7_919 % MOST;
        if let Way::After = way {
            let is_left = used(&limiter) < LIMIT;
            return is_left.then_some((takes, None));
        }
        send(&layer, MOST, takes).map(|body| (takes, Some(body)))
    };
    let mut under_way: VecDeque<_> = (0..CLIENTS).filter_map(|_| send_next()).collect();
    let mut spent = 0;
    while let Some((takes, body)) = under_way.pop_front() {
        match body {
            Some(body) => drop(now(body.collect())),
            None => now(limiter.settle(global(), takes)).unwrap(),
        }
        spent += takes;
        under_way.extend(send_next());
    }
    // A window tells no more than its limit.
    assert_eq!(used(&limiter), spent.min(LIMIT), "{way:?}");
    spent
}

#[test]
fn the_table_of_the_documentation_says_by_how_much_each_way_passes_the_limit() {
    let page = include_str!("../../../docs/llm.md");
    for (way, says, most_over) in [
        (Way::After, "nothing, as LiteLLM does", u32::MAX),
        (Way::Estimate(100), "`estimate(100)`", 64 * 400),
        (
            Way::Estimate(260),
            "`estimate(260)`, the usual answer",
            64 * 240,
        ),
        (Way::Estimate(500), "`estimate(500)`, the largest answer", 0),
        (Way::ByRequest, "`usage::estimate::openai()`", 0),
    ] {
        let spent = spent(way);
        let over = spent.saturating_sub(LIMIT);
        assert!(over <= most_over, "{way:?}: {over}");
        let grouped = |number: u32| match number {
            0..1_000 => number.to_string(),
            _ => format!("{},{:03}", number / 1_000, number % 1_000),
        };
        let row = format!("| {says} | {} | {} |\n", grouped(spent), grouped(over));
        assert!(page.contains(&row), "docs/llm.md has no line {row}");
    }
}

#[test]
fn threads_at_once_do_not_pass_the_limit() {
    let layer = limits(
        tokens(LIMIT)
            .estimate_with(usage::estimate::openai())
            .settle(usage::openai()),
    );
    let spent = Arc::new(AtomicU32::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (layer, spent) = (layer.clone(), Arc::clone(&spent));
            scope.spawn(move || {
                let answers = (0_u32..).map(|number| {
                    let takes = PROMPT + 1 + (client * 31 + number * 7_919) % MOST;
                    (takes, send(&layer, MOST, takes))
                });
                for (takes, body) in answers {
                    let Some(body) = body else { return };
                    spent.fetch_add(takes, Ordering::Relaxed);
                    drop(now(body.collect()));
                }
            });
        }
    });
    let spent = spent.load(Ordering::Relaxed);
    assert_eq!(used(&layer.limiter()), spent);
    // Clients stop when there is no room for the largest answer beside those that are under way.
    let least = LIMIT - CLIENTS * (PROMPT + MOST);
    assert!((least..=LIMIT).contains(&spent), "{spent}");
}

proptest! {
    /// A limit is passed by what the answers under way take beyond their estimates, and by nothing else.
    #[test]
    fn the_limit_is_passed_by_what_answers_take_beyond_their_estimates(
        limit in 100_u32..2_000,
        steps in prop::collection::vec((0..CLIENTS as usize, 1_u32..200, 1_u32..300), 1..200),
        stay_within in any::<bool>(),
    ) {
        let policy = tokens(limit).estimate_with(usage::estimate::openai());
        let layer = limits(policy.settle(usage::openai()));
        let limiter = layer.limiter();
        let mut clients: [Option<(u32, u32, _)>; CLIENTS as usize] = std::array::from_fn(|_| None);
        let (mut spent, mut under_way, mut beyond) = (0, 0, 0);
        for (client, most, takes) in steps {
            match clients[client].take() {
                None => {
                    let estimate = PROMPT + most;
                    let takes = if stay_within { takes.min(estimate) } else { takes };
                    let sent = send(&layer, most, takes);
                    prop_assert_eq!(sent.is_some(), spent + under_way + estimate <= limit);
                    if let Some(body) = sent {
                        clients[client] = Some((estimate, takes, body));
                        under_way += estimate;
                        beyond = 0;
                    }
                }
                Some((estimate, takes, body)) => {
                    drop(now(body.collect()));
                    under_way -= estimate;
                    spent += takes;
                    beyond += takes.saturating_sub(estimate);
                }
            }
            prop_assert_eq!(used(&limiter), (spent + under_way).min(limit));
            // What has gone beyond since the last request that was admitted, which are answers that were under way then.
            prop_assert!(spent + under_way <= limit + beyond);
            prop_assert!(!stay_within || beyond == 0);
        }
    }
}
