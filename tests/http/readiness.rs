//! The layer calls only an instance that was polled ready, and a dropped future leaves nothing behind.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::{FixedWindow, RateLimit, RateLimitLayer};
use tower_test::mock::{self, Spawn};

use crate::exchange::{answer, global, limit, now, poll};
use crate::slow_store::SlowStore;

/// Counts of live parts of a probe, and of its calls.
#[derive(Clone, Default)]
struct Watch {
    alive: Arc<()>,
    calls: Arc<AtomicUsize>,
}

impl Watch {
    /// Returns how many services, requests and futures are alive.
    fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn request(&self) -> Request<Arc<()>> {
        Request::new(Arc::clone(&self.alive))
    }
}

/// A service that panics if it is called without having been polled ready; clones start unready. It answers as soon
/// as it may.
struct Probe {
    ready: bool,
    alive: Arc<()>,
    calls: Arc<AtomicUsize>,
    may_answer: Arc<Semaphore>,
}

impl Probe {
    fn new(watch: &Watch) -> Self {
        Self {
            ready: false,
            alive: Arc::clone(&watch.alive),
            calls: Arc::clone(&watch.calls),
            may_answer: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// One that never answers.
    fn stuck(watch: &Watch) -> Self {
        Self {
            may_answer: Arc::new(Semaphore::new(0)),
            ..Self::new(watch)
        }
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            alive: Arc::clone(&self.alive),
            calls: Arc::clone(&self.calls),
            may_answer: Arc::clone(&self.may_answer),
        }
    }
}

type Page = Response<Full<Bytes>>;

impl Service<Request<Arc<()>>> for Probe {
    type Response = Page;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Page, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Arc<()>>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        self.calls.fetch_add(1, Ordering::SeqCst);
        let may_answer = Arc::clone(&self.may_answer);
        Box::pin(async move {
            may_answer.acquire().await.unwrap().forget();
            drop(request);
            Ok(Page::default())
        })
    }
}

fn slow(limit: u32) -> (SlowStore, RateLimitLayer) {
    let store = SlowStore::new();
    let layer = RateLimitLayer::builder()
        .policy(global("default", FixedWindow::per_day(limit)))
        .store(store.clone())
        .build()
        .unwrap();
    (store, layer)
}

fn quick(allowed: u32) -> RateLimitLayer {
    limit([global("default", FixedWindow::per_day(allowed))]).1
}

/// Polls a service ready and calls it.
fn call<S, B>(service: &mut S, request: Request<B>) -> Pin<Box<S::Future>>
where
    S: Service<Request<B>>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(()))));
    Box::pin(service.call(request))
}

fn is_pending<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    poll(future.as_mut()).is_pending()
}

#[test]
fn a_store_that_answers_now_calls_the_instance_that_was_polled_ready() {
    let watch = Watch::default();
    let mut service = quick(2).layer(Probe::new(&watch));
    let calls: Vec<_> = (0..3)
        .map(|_| call(&mut service, watch.request()))
        .collect();
    let statuses: Vec<u16> = calls
        .into_iter()
        .rev()
        .map(|call| answer(now(call).unwrap()).status.as_u16())
        .collect();
    assert_eq!(statuses, [429, 200, 200]);
    assert_eq!(watch.calls(), 2);
}

#[test]
fn a_store_that_answers_later_calls_the_instance_that_was_polled_ready() {
    let watch = Watch::default();
    let (store, layer) = slow(2);
    let mut service = layer.layer(Probe::new(&watch));
    let mut calls: Vec<_> = (0..3)
        .map(|_| call(&mut service, watch.request()))
        .collect();
    assert!(calls.iter_mut().all(is_pending));
    assert_eq!(watch.calls(), 0, "called before the store had answered");

    store.release(3);
    let statuses: Vec<u16> = calls
        .into_iter()
        .rev()
        .map(|call| answer(now(call).unwrap()).status.as_u16())
        .collect();
    assert_eq!(statuses, [429, 200, 200]);
    assert_eq!(watch.calls(), 2);
}

#[test]
fn clones_of_one_service_each_keep_their_own_readiness() {
    let watch = Watch::default();
    for (store, layer) in [slow(10), (SlowStore::new(), quick(10))] {
        let mut first = layer.layer(Probe::new(&watch));
        let one = call(&mut first, watch.request());
        let mut second = first.clone();
        let two = call(&mut second, watch.request());
        let three = call(&mut first, watch.request());
        drop((first, second));
        store.release(3);
        for call in [three, one, two] {
            assert_eq!(now(call).unwrap().status(), StatusCode::OK);
        }
    }
    assert_eq!(watch.calls(), 6);
    assert_eq!(watch.alive(), 0);
}

#[test]
fn a_future_dropped_while_the_store_is_asked_leaves_nothing_and_calls_no_service() {
    let watch = Watch::default();
    let (store, layer) = slow(10);
    let mut service = layer.layer(Probe::new(&watch));
    let before = watch.alive();

    let never_polled = call(&mut service, watch.request());
    let mut polled = call(&mut service, watch.request());
    assert!(is_pending(&mut polled));
    assert!(watch.alive() > before);
    drop((never_polled, polled));
    assert_eq!(watch.alive(), before);

    store.release(2);
    assert_eq!(watch.calls(), 0);
    let call = call(&mut service, watch.request());
    assert_eq!(now(call).unwrap().status(), StatusCode::OK);
    assert_eq!(watch.calls(), 1);
}

#[test]
fn a_future_dropped_while_the_inner_service_is_at_work_leaves_nothing() {
    let watch = Watch::default();
    let (store, slow) = slow(10);
    store.release(1);
    for layer in [slow, quick(10)] {
        let mut service = layer.layer(Probe::stuck(&watch));
        let before = watch.alive();
        let mut call = call(&mut service, watch.request());
        assert!(is_pending(&mut call));
        assert!(watch.alive() > before);
        drop(call);
        assert_eq!(watch.alive(), before);
    }
    assert_eq!(watch.calls(), 2);
}

#[test]
fn a_refusal_drops_the_request_and_does_not_reach_the_inner_service() {
    let watch = Watch::default();
    let (store, slow) = slow(0);
    store.release(1);
    for layer in [slow, quick(0)] {
        let mut service = layer.layer(Probe::new(&watch));
        let before = watch.alive();
        let call = call(&mut service, watch.request());
        let refusal = now(call).unwrap();
        assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(watch.alive(), before);
    }
    assert_eq!(watch.calls(), 0);
}

#[test]
fn a_future_that_was_dropped_stays_charged() {
    let watch = Watch::default();
    let (store, layer) = slow(1);
    let mut service = layer.layer(Probe::new(&watch));
    drop(call(&mut service, watch.request()));
    store.release(1);
    let refusal = now(call(&mut service, watch.request())).unwrap();
    assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn with_a_concurrency_limit_inside_each_call_holds_one_permit_until_it_ends() {
    let watch = Watch::default();
    let (store, slow) = slow(10);
    store.release(10);
    for layer in [slow, quick(10)] {
        let mut service = layer.layer(ConcurrencyLimit::new(Probe::stuck(&watch), 2));
        let mut cx = Context::from_waker(Waker::noop());
        let mut one = call(&mut service, watch.request());
        let mut two = call(&mut service.clone(), watch.request());
        assert!(is_pending(&mut one) && is_pending(&mut two));
        assert!(service.poll_ready(&mut cx).is_pending());
        drop(one);
        let three = call(&mut service, watch.request());
        assert!(service.poll_ready(&mut cx).is_pending());
        drop((two, three));
        assert!(service.poll_ready(&mut cx).is_ready());
    }
}

#[test]
fn a_refusal_gives_back_what_readiness_has_reserved() {
    let watch = Watch::default();
    let (store, slow) = slow(0);
    store.release(10);
    for layer in [slow, quick(0)] {
        let mut refused = layer.layer(ConcurrencyLimit::new(Probe::stuck(&watch), 1));
        let mut other = refused.clone();
        let mut cx = Context::from_waker(Waker::noop());
        let mut answer = call(&mut refused, watch.request());
        assert!(!is_pending(&mut answer));
        assert!(other.poll_ready(&mut cx).is_ready());
        drop(other);
    }
    assert_eq!(watch.calls(), 0);
}

#[tokio::test]
async fn with_a_buffer_inside_each_call_has_a_slot_of_its_own() {
    let watch = Watch::default();
    let (store, slow) = slow(8);
    store.release(10);
    for layer in [slow, quick(8)] {
        let service = layer.layer(Buffer::new(Probe::new(&watch), 4));
        let mut passed = 0;
        for _ in 0..5 {
            let (mut first, mut second) = (service.clone(), service.clone());
            let one = first.ready().await.unwrap().call(watch.request());
            let two = second.ready().await.unwrap().call(watch.request());
            for call in [two, one] {
                passed += u32::from(call.await.unwrap().status() == StatusCode::OK);
            }
        }
        assert_eq!(passed, 8);
    }
    assert_eq!(watch.calls(), 16);
}

type Mocked = Spawn<RateLimit<mock::Mock<Request<()>, Page>>>;
type Handle = mock::Handle<Request<()>, Page>;

fn mocked(limit: u32) -> (Mocked, Handle) {
    mock::spawn_layer(quick(limit))
}

#[test]
fn readiness_is_that_of_the_inner_service() {
    let (mut service, mut handle) = mocked(10);
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    assert!(!service.is_woken());
    handle.allow(1);
    assert!(service.is_woken());
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));

    let mut response = Box::pin(service.call(Request::new(())));
    assert!(is_pending(&mut response));
    let Poll::Ready(Some((_, reply))) = handle.poll_request() else {
        panic!("the request did not arrive");
    };
    assert!(service.poll_ready().is_pending());
    reply.send_response(Page::default());
    assert_eq!(now(response).unwrap().status(), StatusCode::OK);
}

#[test]
fn a_refused_request_never_arrives_at_the_inner_service() {
    let (mut service, mut handle) = mocked(0);
    handle.allow(1);
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    let refusal = now(pin!(service.call(Request::new(())))).unwrap();
    assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(handle.poll_request().is_pending());
}

#[test]
fn errors_of_the_inner_service_pass_unchanged() {
    let (mut service, mut handle) = mocked(10);
    handle.allow(1);
    handle.send_error("not ready, ever");
    let Poll::Ready(Err(error)) = service.poll_ready() else {
        panic!("the error of readiness was lost");
    };
    assert_eq!(error.to_string(), "not ready, ever");

    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    let response = service.call(Request::new(()));
    let Poll::Ready(Some((_, reply))) = handle.poll_request() else {
        panic!("the request did not arrive");
    };
    reply.send_error("broken");
    assert_eq!(now(response).unwrap_err().to_string(), "broken");
}
