//! Finds connections whose client does nothing: it sends no request, or takes none of a response.
//!
//! It counts requests and not bytes, so pings, half a head and half a preface of HTTP/2 are silence too. hyper has a
//! timeout for a head of HTTP/1 only, and the keep-alive of HTTP/2 ends connections of peers that are gone, but not those
//! of peers that answer pings.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::places::Place;

/// The time for the head of the first request, if a client may not do nothing for a shorter time.
pub(crate) const FIRST: Duration = Duration::from_secs(30);

/// What a client does on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    /// The time until the next request, and for a client to take more of a response.
    idle: Duration,
    state: Arc<Mutex<ConnectionState>>,
    has_begun: Arc<Notify>,
}

#[derive(Debug)]
struct ConnectionState {
    /// The requests that the client has sent and the gateway has not answered, or not as far as the client would read.
    waiting: usize,
    /// Whether the requests are those of HTTP/2, once the first has arrived.
    is_http2: Option<bool>,
    /// Whether the connection is to end.
    is_old: bool,
    /// The time of the last event.
    last: Instant,
}

/// A request that is not yet answered to its end.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    activity: Activity,
    /// Whether the client waits for the gateway, and not the gateway for the client.
    is_waiting: bool,
}

pin_project! {
    /// The body of a response, which notes what the client takes.
    #[derive(Debug)]
    pub(crate) struct Answer<B> {
        #[pin]
        inner: B,
        request: OpenRequest,
    }
}

pin_project! {
    /// The bytes of a connection. It notes when the client takes some after it took none, and has the place of the
    /// connection, also after a switch to another protocol.
    #[derive(Debug)]
    pub(crate) struct Socket<T> {
        #[pin]
        inner: T,
        activity: Activity,
        is_full: bool,
        place: Place,
    }
}

impl Activity {
    /// A connection that has just opened.
    pub(crate) fn new(idle: Duration) -> Self {
        let state = ConnectionState {
            waiting: 0,
            is_http2: None,
            is_old: false,
            last: Instant::now(),
        };
        Self {
            idle,
            state: Arc::new(Mutex::new(state)),
            has_begun: Arc::default(),
        }
    }

    /// Waits until the client has been silent for too long.
    pub(crate) async fn silence(&self) {
        loop {
            let (is_waiting, deadline) = {
                let state = self.lock();
                let patience = match state.is_http2 {
                    None => FIRST.min(self.idle),
                    Some(_) => self.idle,
                };
                (state.waiting > 0, state.last + patience)
            };
            let now = Instant::now();
            if is_waiting {
                // It is silent no earlier than a whole time after the answer.
                sleep_until(now + self.idle).await;
            } else if deadline <= now {
                return;
            } else {
                sleep_until(deadline).await;
            }
        }
    }

    /// Waits until a request has arrived.
    pub(crate) async fn begin(&self) {
        // The notification of the past is kept, and the state is checked first.
        while self.is_http2().is_none() {
            self.has_begun.notified().await;
        }
    }

    /// Returns whether the connection is one of HTTP/2, once a request has arrived.
    pub(crate) fn is_http2(&self) -> Option<bool> {
        self.lock().is_http2
    }

    pub(crate) fn is_old(&self) -> bool {
        self.lock().is_old
    }

    pub(crate) fn grow_old(&self) {
        self.lock().is_old = true;
    }

    /// Notes that a request has arrived.
    pub(crate) fn ask(&self, is_http2: bool) -> OpenRequest {
        if self.lock().is_http2.replace(is_http2).is_none() {
            self.has_begun.notify_one();
        }
        let mut request = OpenRequest {
            activity: self.clone(),
            is_waiting: false,
        };
        request.wait(true);
        request
    }

    pub(crate) fn socket<T>(&self, inner: T, place: Place) -> Socket<T> {
        Socket {
            inner,
            activity: self.clone(),
            is_full: false,
            place,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRequest {
    pub(crate) fn answer<B>(self, inner: B) -> Answer<B> {
        Answer {
            inner,
            request: self,
        }
    }

    fn wait(&mut self, is_waiting: bool) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            let mut state = self.activity.lock();
            if is_waiting {
                state.waiting += 1;
            } else {
                state.waiting -= 1;
            }
            state.last = Instant::now();
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.wait(false);
    }
}

impl<B: Body> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        // hyper asks for a part when there is place for it, which the client makes.
        this.request.wait(true);
        let polled = this.inner.poll_frame(cx);
        this.request.wait(polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<T> Socket<T> {
    fn note<R>(self: Pin<&mut Self>, written: &Poll<R>) {
        let this = self.project();
        if written.is_pending() {
            *this.is_full = true;
        } else if std::mem::take(this.is_full) {
            this.activity.lock().last = Instant::now();
        }
    }
}

impl<T: AsyncRead> AsyncRead for Socket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.project().inner.poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite> AsyncWrite for Socket<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.as_mut().project().inner.poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self
            .as_mut()
            .project()
            .inner
            .poll_write_vectored(cx, buffers);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
