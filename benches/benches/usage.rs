//! Instructions of a settlement by the body of an answer, counted as those of `instructions.rs` are.
//!
//! They need feature `usage`, without which the paths there are counted. An event costs a ninetieth of what a stream of a hundred
//! costs more than one of ten.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use gungraun::prelude::*;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{Gcra, ManualClock, MemoryStore, Policy, RateLimitLayer, key, usage};
use tower_ratelimit_benches::PLENTY;
use tower_ratelimit_benches::growth::TIMES;
use tower_ratelimit_benches::requests::{request, send};

/// An answer of a model, of some six hundred bytes.
const JSON: &str = include_str!("answer.json");

/// An event of a stream, of some two hundred bytes.
const EVENT: &str = "data: {\"id\":\"chatcmpl-9f2c4b7d\",\"object\":\"chat.completion.chunk\",\"created\":1780000000,\
     \"model\":\"large-2026-05\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],\
     \"usage\":null}\n\n";
const LAST: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}\n\n\
     data: [DONE]\n\n";

/// The body of an answer.
#[derive(Clone, Copy)]
enum Answer {
    Json,
    /// So many events before the last.
    Stream(usize),
}

impl Answer {
    fn response(self) -> Response<Body> {
        let (content_type, first, times, last) = match self {
            Self::Json => ("application/json", JSON, 1, None),
            Self::Stream(times) => ("text/event-stream", EVENT, times, Some(LAST)),
        };
        let mut response = Response::new(Body::new(Chunks { first, times, last }));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

/// A body that repeats a chunk. It allocates nothing.
struct Chunks {
    first: &'static str,
    times: usize,
    last: Option<&'static str>,
}

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = match self.times.checked_sub(1) {
            Some(left) => {
                self.times = left;
                Some(self.first)
            }
            None => self.last.take(),
        };
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes())))))
    }
}

type Sent<S> = (S, Vec<Request<Body>>);

/// Returns a layer before a service that answers so, and requests to send.
fn layered(
    answer: Answer,
    settled: bool,
) -> Sent<impl Service<Request<Body>, Response = Response<impl HttpBody>, Error = Infallible>> {
    let policy = Policy::new("tokens", Gcra::per_hour(PLENTY)).key(key::client_ip());
    let policy = match settled {
        true => policy.estimate(100).settle(usage::openai()),
        false => policy,
    };
    let layer = RateLimitLayer::builder()
        .policy(policy)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .without_headers()
        .build()
        .expect("one policy with a good name");
    let mut service = layer.layer(service_fn(move |_: Request<Body>| async move {
        Ok::<_, Infallible>(answer.response())
    }));
    read(send(&mut service, request()));
    (service, (0..TIMES).map(|_| request()).collect())
}

/// Reads an answer to its end, for which nothing has to wait.
fn read(response: Response<impl HttpBody>) {
    let mut body = pin!(response.into_body());
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
        black_box(frame.is_ok());
    }
}

#[library_benchmark]
#[bench::unsettled_json(layered(Answer::Json, false))]
#[bench::settled_json(layered(Answer::Json, true))]
#[bench::unsettled_10_events(layered(Answer::Stream(10), false))]
#[bench::settled_10_events(layered(Answer::Stream(10), true))]
#[bench::unsettled_100_events(layered(Answer::Stream(100), false))]
#[bench::settled_100_events(layered(Answer::Stream(100), true))]
fn answer<S, B>((mut service, mut requests): Sent<S>) -> Sent<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: HttpBody,
{
    for request in requests.drain(..) {
        read(send(&mut service, request));
    }
    (service, requests)
}

library_benchmark_group!(name = answers, benchmarks = [answer]);
main!(library_benchmark_groups = [answers]);
