//! The timeout of the upstream.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, sleep_until};

/// The time of the last progress of a request. A long upload is no stall.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    last: Arc<Mutex<Instant>>,
}

/// The upstream has not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled;

pin_project! {
    /// The body of a request, which notes its progress.
    #[derive(Debug)]
    pub(crate) struct Watched<B> {
        #[pin]
        inner: B,
        progress: Progress,
    }
}

impl Progress {
    pub(crate) fn new() -> Self {
        let last = Arc::new(Mutex::new(Instant::now()));
        Self { last }
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
            let deadline = self.last() + timeout;
            tokio::select! {
                biased;
                response = &mut response => return Ok(response),
                () = sleep_until(deadline) => {}
            }
            if self.last() + timeout <= deadline {
                return Err(Stalled);
            }
        }
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl<B: Body<Data = Bytes>> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let polled = this.inner.poll_frame(cx);
        if polled.is_ready() {
            this.progress.made();
        }
        polled
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

    #[tokio::test(start_paused = true)]
    async fn a_request_stalls_once_nothing_happens() {
        let progress = Progress::new();
        let start = Instant::now();
        let stalled = progress.within(TIMEOUT, pending::<()>()).await;
        assert_eq!(stalled, Err(Stalled));
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
        assert_eq!(stalled, Err(Stalled));
        assert_eq!(start.elapsed() + Duration::from_secs(3), 4 * TIMEOUT);
    }
}
