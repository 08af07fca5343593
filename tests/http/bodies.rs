//! Bodies of any type.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Head;
use tower_ratelimit::{RateLimitLayer, TokenBucket};

use crate::exchange::{ask, now, poll};

fn once() -> RateLimitLayer {
    RateLimitLayer::new(|_: &Head<'_>| "global", TokenBucket::per_day(1))
}

/// A service over these bodies, called twice.
macro_rules! passes_once {
    ($request:expr, $response:expr, $expected:expr) => {
        let service = once().layer(service_fn(|_: Request<_>| async {
            Ok::<_, Infallible>(Response::new($response))
        }));
        let answer = ask(&service, Request::new($request));
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, $expected));
        let answer = ask(&service, Request::new($request));
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(answer.text().starts_with(r#"{"type":"#), "{answer:?}");
    };
}

#[test]
fn requests_and_responses_may_have_bodies_of_any_type() {
    passes_once!((), Full::<Bytes>::from("full"), "full");
    passes_once!("text".to_owned(), Empty::<Bytes>::new(), "");
    passes_once!(7_u8, "text".to_owned(), "text");
    passes_once!(Full::<Bytes>::from("x"), Chunk::full("chunk"), "chunk");
    passes_once!((), Full::<Bytes>::from("boxed").boxed(), "boxed");
    passes_once!((), axum::body::Body::from("axum"), "axum");
}

#[test]
fn the_body_of_the_request_arrives_as_it_was() {
    let service = once().layer(service_fn(|request: Request<String>| async {
        Ok::<_, Infallible>(request.map(|body| body + "!"))
            .map(|request| Response::new(request.into_body()))
    }));
    assert_eq!(ask(&service, Request::new("hello".into())).text(), "hello!");
}

/// Body data that is not `Bytes`, and converts from it.
#[derive(Debug)]
struct Chunk(Bytes);

impl Chunk {
    fn full(text: &'static str) -> Full<Self> {
        Full::new(Self(Bytes::from_static(text.as_bytes())))
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

/// A body of these frames, with a pause before each.
struct Stream {
    frames: VecDeque<Result<Frame<Bytes>, &'static str>>,
    rested: bool,
}

impl Stream {
    fn of<const N: usize>(frames: [Result<Frame<Bytes>, &'static str>; N]) -> Self {
        Self {
            frames: frames.into(),
            rested: false,
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.rested = !self.rested;
        if self.rested {
            return Poll::Pending;
        }
        Poll::Ready(self.frames.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(3);
        hint.set_upper(5);
        hint
    }
}

#[test]
fn a_streamed_body_passes_frame_by_frame() {
    let service = once().layer(service_fn(|_: Request<()>| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", 7.into());
        Ok::<_, Infallible>(Response::new(Stream::of([
            Ok(Frame::data(Bytes::from_static(b"one"))),
            Ok(Frame::data(Bytes::from_static(b"two"))),
            Ok(Frame::trailers(trailers)),
            Err("cut"),
        ])))
    }));
    let mut body = now(service.oneshot(Request::new(()))).unwrap().into_body();
    assert_eq!(
        (body.size_hint().lower(), body.size_hint().upper()),
        (3, Some(5))
    );
    assert!(!body.is_end_stream());

    let mut next = || {
        assert!(poll(pin!(body.frame())).is_pending());
        now(body.frame())
    };
    assert_eq!(next().unwrap().unwrap().into_data().unwrap(), "one");
    assert_eq!(next().unwrap().unwrap().into_data().unwrap(), "two");
    let trailers = next().unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["x-sum"], "7");
    assert_eq!(next().unwrap().unwrap_err(), "cut");
    assert!(next().is_none());
    assert!(body.is_end_stream());
}

#[test]
fn the_body_of_a_refusal_is_one_frame_of_known_length() {
    let service = once().layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    now(service.clone().oneshot(Request::new(()))).unwrap();
    let refusal = now(service.oneshot(Request::new(()))).unwrap();
    assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);

    let mut body = refusal.into_body();
    let length = body.size_hint().exact().unwrap();
    assert!(!body.is_end_stream());
    let data = now(body.frame()).unwrap().unwrap().into_data().unwrap();
    assert_eq!(data.len() as u64, length);
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(now(body.frame()).is_none());
}

#[test]
fn an_error_of_the_inner_service_passes_unchanged_and_is_counted() {
    #[derive(Debug, PartialEq)]
    struct Broken(u32);
    let service = once().layer(service_fn(|_: Request<()>| async {
        Err::<Response<Full<Bytes>>, _>(Broken(7))
    }));
    let first = now(service.clone().oneshot(Request::new(())));
    assert_eq!(first.map(|_| ()), Err(Broken(7)));
    let second = now(service.oneshot(Request::new(()))).unwrap();
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
}
