//! HTTP servers with scripted responses, or with the layer of this crate.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::client::{ClientThrottle, ClientThrottleError, ClientThrottleLayer};

/// Answers in the order of a script, and then with 200 and no headers. It counts its calls, and answers none until it
/// may.
#[derive(Clone)]
pub(crate) struct Scripted {
    script: Arc<Mutex<VecDeque<Response<()>>>>,
    pub(crate) calls: Arc<Mutex<Vec<String>>>,
    pub(crate) may_answer: Arc<Semaphore>,
}

impl Scripted {
    pub(crate) fn new(script: impl IntoIterator<Item = Response<()>>) -> Self {
        Self {
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            calls: Arc::default(),
            may_answer: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// Creates a server that answers a call only when it is released.
    pub(crate) fn stuck(script: impl IntoIterator<Item = Response<()>>) -> Self {
        Self {
            may_answer: Arc::new(Semaphore::new(0)),
            ..Self::new(script)
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

impl Service<Request<()>> for Scripted {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.calls.lock().unwrap().push(request.uri().to_string());
        let answer = self.script.lock().unwrap().pop_front().unwrap_or_default();
        let may_answer = Arc::clone(&self.may_answer);
        Box::pin(async move {
            may_answer.acquire().await.unwrap().forget();
            Ok(answer)
        })
    }
}

pub(crate) fn answer(status: u16, fields: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap()
}

pub(crate) fn client_of(server: &Scripted) -> ClientThrottle<Scripted> {
    ClientThrottleLayer::new().layer(server.clone())
}

/// Calls a server and returns the status.
pub(crate) fn call<S, E>(
    client: &S,
    target: &str,
) -> impl Future<Output = Result<u16, ClientThrottleError<E>>> + use<S, E>
where
    S: Service<Request<()>, Response = Response<()>, Error = ClientThrottleError<E>> + Clone,
{
    let request = Request::get(target).body(()).unwrap();
    let response = client.clone().oneshot(request);
    async move { Ok(response.await?.status().as_u16()) }
}

/// A future that is polled by hand.
pub(crate) struct Polled<F>(Pin<Box<F>>);

pub(crate) fn polled<F: Future>(future: F) -> Polled<F> {
    Polled(Box::pin(future))
}

impl<F: Future> Polled<F> {
    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.0.as_mut().poll(&mut cx)
    }
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}
