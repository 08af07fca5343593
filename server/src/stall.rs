//! The timeout of a request, and the side that caused it: the upstream or the client.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::{Instant, sleep_until};
use tower_ratelimit::middleware::ReadBody;

/// The time of the last progress of a request, and the side that keeps the other waiting. A long upload is no stall.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    state: Arc<Mutex<ProgressState>>,
}

#[derive(Clone, Copy, Debug)]
struct ProgressState {
    last: Instant,
    /// Whether the upstream would take more of the request than has arrived.
    waits_for_client: bool,
    /// Whether the body of the request has ended with an error.
    has_broken_off: bool,
    /// Whether another timeout has begun.
    is_over: bool,
}

/// Nothing has happened for too long, because one side did not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// It has neither answered nor taken more of the request.
    Upstream,
    /// It has not sent the rest of its request.
    Client,
}

/// The body of a request on its way from the client.
pub(crate) type Arriving = Watched<Incoming>;

/// The body of a request that the limits may have read.
pub(crate) type RequestBody = ReadBody<Arriving>;

pin_project! {
    /// The body of a request, without trailers, which notes its progress.
    #[derive(Debug)]
    pub(crate) struct Watched<B> {
        #[pin]
        inner: B,
        progress: Progress,
    }
}

impl Progress {
    pub(crate) fn new() -> Self {
        let state = ProgressState {
            last: Instant::now(),
            waits_for_client: false,
            has_broken_off: false,
            is_over: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(crate) fn watch<B>(&self, inner: B) -> Watched<B> {
        let progress = self.clone();
        Watched { inner, progress }
    }

    /// Waits for the response, until nothing has happened for this time.
    pub(crate) async fn within<F: Future>(
        &self,
        timeout: Duration,
        response: F,
    ) -> Result<F::Output, Stalled> {
        let mut response = std::pin::pin!(response);
        loop {
            let deadline = self.state().last + timeout;
            tokio::select! {
                biased;
                response = &mut response => return Ok(response),
                () = sleep_until(deadline) => {}
            }
            let state = *self.state();
            if state.last + timeout <= deadline {
                return Err(if state.waits_for_client {
                    Stalled::Client
                } else {
                    Stalled::Upstream
                });
            }
        }
    }

    /// Waits for the response, until the client has sent nothing for this time while its body is read. `None` if so.
    pub(crate) async fn unless_it_stalls<F: Future>(
        &self,
        timeout: Duration,
        response: F,
    ) -> Option<F::Output> {
        let mut response = std::pin::pin!(response);
        loop {
            let stalled_at = self.stalled_at(timeout);
            let next = stalled_at.unwrap_or_else(|| Instant::now() + timeout);
            tokio::select! {
                biased;
                response = &mut response => return Some(response),
                () = sleep_until(next) => {}
            }
            if self.stalled_at(timeout).is_some_and(|at| at <= next) {
                return None;
            }
        }
    }

    fn stalled_at(&self, timeout: Duration) -> Option<Instant> {
        let state = self.state();
        let waits = state.waits_for_client && !state.is_over;
        waits.then(|| state.last + timeout)
    }

    /// Notes that the request goes to the upstream, which has a timeout of its own.
    pub(crate) fn is_over(&self) {
        self.state().is_over = true;
    }

    /// Returns whether the client has sent a body that breaks off or that cannot be read.
    pub(crate) fn has_broken_off(&self) -> bool {
        self.state().has_broken_off
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the upstream has got when it polled for more of the request.
    fn polled<T>(&self, more: &Poll<T>) {
        let mut state = self.state();
        let has_waited = std::mem::replace(&mut state.waits_for_client, more.is_pending());
        if !(state.waits_for_client && has_waited) {
            state.last = Instant::now();
        }
    }
}

impl<B: Body<Data = Bytes>> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let polled = this.inner.as_mut().poll_frame(cx);
        this.progress.polled(&polled);
        match polled {
            Poll::Ready(Some(Err(error))) => {
                this.progress.state().has_broken_off = true;
                Poll::Ready(Some(Err(error)))
            }
            // Trailers would pass for fields of the head, which are counted and replaced.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => Poll::Ready(None),
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};
    use std::future::pending;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A body of which nothing arrives.
    struct Unsent;

    impl Body for Unsent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_stalls_once_nothing_happens() {
        let progress = Progress::new();
        let start = Instant::now();
        let stalled = progress.within(TIMEOUT, pending::<()>()).await;
        assert_eq!(stalled, Err(Stalled::Upstream));
        assert_eq!(start.elapsed(), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_goes_on_is_no_stall() {
        let progress = Progress::new();
        let start = Instant::now();
        let slow_upload = async {
            for _ in 0..3 {
                tokio::time::sleep(TIMEOUT.saturating_sub(Duration::from_secs(1))).await;
                let mut piece = progress.watch(Full::new(Bytes::from_static(b"x")));
                piece.frame().await.unwrap().unwrap();
            }
            pending::<()>().await;
        };
        let stalled = progress.within(TIMEOUT, slow_upload).await;
        assert_eq!(stalled, Err(Stalled::Upstream));
        assert_eq!(start.elapsed() + Duration::from_secs(3), 4 * TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_send_the_rest_is_told_from_an_upstream_that_does_not_take_it() {
        let progress = Progress::new();
        let unsent = async {
            let _ = progress.watch(Unsent).frame().await;
        };
        let stalled = progress.within(TIMEOUT, unsent).await;
        assert_eq!(stalled, Err(Stalled::Client));
    }
}
