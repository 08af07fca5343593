//! Answers of other services than that of the script: a body that has ended at once, trailers with the cost, and work
//! before a failure.

use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::policy::{Ending, OnAbandoned, Settle, Spend};
use tower_ratelimit::{AnchoredWindow, Policy, RateLimitLayer, key};

use crate::outcomes::endings::{PLENTY, layer, policy, used};

/// Sends a request of an estimate of 50, and returns the body of its response.
async fn answer<B, E, F>(
    layer: &RateLimitLayer,
    inner: impl FnMut(Request<()>) -> F + Clone,
) -> Result<impl Body<Data = Bytes, Error: Debug>, E>
where
    B: Body<Data = Bytes, Error: Debug>,
    F: Future<Output = Result<Response<B>, E>>,
{
    let request = Request::builder().header("x-user", "ann");
    let request = request.header("x-estimate", 50).body(()).unwrap();
    let response = layer.layer(service_fn(inner)).oneshot(request).await?;
    Ok(response.into_body())
}

/// It has no length, and nothing to read: a server may drop it at once.
struct Ended;

impl Body for Ended {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_body_that_says_it_has_ended_is_complete_without_being_read() {
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method itself is of one lifetime only"
    )]
    let layer = layer(policy(PLENTY).refund_when(|ending| ending.is_complete()));
    let inner = |_| async { Ok::<_, Infallible>(Response::new(Ended)) };
    drop(answer(&layer, inner).await.unwrap());
    assert_eq!(used(&layer, "ann").await, 0);
}

/// Two layers, the inner one of which refuses: the outer one has charged the request once by then.
#[tokio::test]
async fn an_outer_layer_counts_what_an_inner_one_refuses_once_or_gives_it_back() {
    let daily = |limit| {
        let policy = Policy::new("units", AnchoredWindow::per_day(limit));
        policy.key(key::header("x-user"))
    };
    let is_refused = |ending: &Ending<'_>| ending.status() == StatusCode::TOO_MANY_REQUESTS;
    for (outer, expected) in [
        (daily(PLENTY), 3),
        (daily(PLENTY).refund_when(is_refused), 1),
    ] {
        let (outer, inner) = (layer(outer), layer(daily(1)));
        let hello = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Ended)) };
        let service = outer.layer(inner.layer(service_fn(hello)));
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let request = Request::builder().header("x-user", "ann").body(()).unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            statuses.push(response.status().as_u16());
        }
        assert_eq!(statuses, [200, 429, 429]);
        assert_eq!(used(&outer, "ann").await, expected);
    }
}

/// The page about express-rate-limit translates its two options by these conditions.
#[tokio::test]
async fn answers_that_are_broken_off_count_as_in_express() {
    fn fails(ending: &Ending<'_>) -> bool {
        ending.status().as_u16() >= 400 || !ending.is_complete()
    }
    let skips_failed = || {
        let policy = policy(PLENTY).refund_when(fails);
        layer(policy.on_abandoned(OnAbandoned::Nothing))
    };
    let skips_successful = || layer(policy(PLENTY).charge_when(fails));

    for (layer, whole, broken_off, gone) in [
        (skips_failed as fn() -> _, 50, 0, 0),
        (skips_successful, 0, 50, 50),
    ] {
        let each: [(_, u32); 3] = [(Some(true), whole), (Some(false), broken_off), (None, gone)];
        for (ends, expected) in each {
            let layer = layer();
            match ends {
                Some(true) => {
                    let inner = |_| async { Ok::<_, Infallible>(Response::new(Ended)) };
                    drop(answer(&layer, inner).await.unwrap());
                }
                Some(false) => {
                    let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>;
                    let inner = |_| async move {
                        Ok::<_, Infallible>(Response::new(StreamBody::new(frames())))
                    };
                    drop(answer(&layer, inner).await.unwrap());
                }
                None => {
                    let inner = |_| std::future::pending::<Result<Response<Ended>, Infallible>>();
                    let gone = answer(&layer, inner);
                    assert!(tokio::time::timeout(Duration::ZERO, gone).await.is_err());
                }
            }
            assert_eq!(used(&layer, "ann").await, expected, "{ends:?}");
        }
    }
}

#[tokio::test]
async fn what_a_trailer_says_counts_and_not_what_the_head_has_said() {
    let layer = layer(policy(PLENTY).settle(Settle::from_header("x-rows")));
    let inner = |_| async {
        let trailers = HeaderMap::from_iter([("x-rows".parse().unwrap(), 12.into())]);
        let body = Full::<Bytes>::from("rows").with_trailers(async { Some(Ok(trailers)) });
        let head = Response::builder().header("x-rows", 3);
        Ok::<_, Infallible>(head.body(body).unwrap())
    };
    let body = answer(&layer, inner).await.unwrap();
    drop(body.collect().await.unwrap());
    assert_eq!(used(&layer, "ann").await, 12);
}

/// The cost of the fallback in the trailers replaced the real one in the head.
#[tokio::test]
async fn the_earlier_source_counts_whether_the_head_or_a_trailer_tells_it() {
    for (in_head, in_trailers) in [("x-tokens", "x-most"), ("x-most", "x-tokens")] {
        let source = Settle::from_header("x-tokens").or(Settle::from_header("x-most"));
        let layer = layer(policy(PLENTY).settle(source));
        let cost = |name| if name == "x-tokens" { 5 } else { 900 };
        let inner = |_| async {
            let trailers =
                HeaderMap::from_iter([(in_trailers.parse().unwrap(), cost(in_trailers).into())]);
            let body = Full::<Bytes>::from("text").with_trailers(async { Some(Ok(trailers)) });
            let head = Response::builder().header(in_head, cost(in_head));
            Ok::<_, Infallible>(head.body(body).unwrap())
        };
        let body = answer(&layer, inner).await.unwrap();
        drop(body.collect().await.unwrap());
        assert_eq!(used(&layer, "ann").await, 5, "{in_head} in the head");
    }
}

/// All tries have the extensions of one request, and each was charged for those before it too.
#[tokio::test]
async fn each_try_inside_of_a_retry_costs_what_it_has_spent_and_all_of_them_around_it() {
    let [outer, inner] =
        [9_000, PLENTY].map(|limit| layer(policy(limit).settle(Settle::from_spend())));
    let calls = AtomicU32::new(0);
    let handler = service_fn(|request: Request<()>| {
        let spend = request.extensions().get::<Spend>().unwrap();
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => {
                spend.add(1_024);
                spend.sub(24);
            }
            1 => spend.add(652),
            _ => {
                spend.add(1_024);
                spend.set(5);
            }
        }
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let (handler, inner) = (inner.layer(handler), &inner);
    let retried = |request: Request<()>| {
        let handler = handler.clone();
        let (head, ()) = request.into_parts();
        let each = [head.clone(), head.clone(), head].map(|head| Request::from_parts(head, ()));
        async move {
            let mut used_after = Vec::new();
            for request in each {
                drop(handler.clone().oneshot(request).await.unwrap());
                used_after.push(used(inner, "ann").await);
            }
            assert_eq!(used_after, [1_000, 1_652, 1_657]);
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    };
    drop(answer(&outer, retried).await.unwrap());
    assert_eq!(used(&outer, "ann").await, 1_657);
}

#[tokio::test]
async fn what_the_handler_has_spent_before_it_fails_is_spent() {
    let policy = policy(PLENTY).settle(Settle::from_spend());
    let layer = layer(policy.on_abandoned(OnAbandoned::Nothing));
    for (spends, expected) in [(Some(30), 30), (Some(0), 30), (None, 30)] {
        let inner = |request: Request<()>| async move {
            if let Some(units) = spends {
                request.extensions().get::<Spend>().unwrap().add(units);
            }
            Err::<Response<String>, _>("it fails")
        };
        assert!(answer(&layer, inner).await.is_err());
        assert_eq!(used(&layer, "ann").await, expected, "{spends:?}");
    }
}
