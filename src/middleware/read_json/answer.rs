//! The body of a response, of which the event of the usage may be taken out.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::stream_usage::WithoutUsage;

pin_project! {
    /// The body of a response under a [`ReadJsonLayer`](super::ReadJsonLayer): that of the inner service, without the event of the usage if
    /// the layer has [asked for it](super::ReadJsonLayer::include_usage_if).
    pub struct ReadJsonBody<B> {
        #[pin]
        body: B,
        // Boxed, because most responses have none.
        filter: Option<Box<Filter>>,
    }
}

#[derive(Default)]
struct Filter {
    without_usage: WithoutUsage,
    trailers: Option<HeaderMap>,
    has_ended: bool,
}

impl<B> ReadJsonBody<B> {
    pub(super) fn of(body: B, takes_usage_out: bool) -> Self {
        Self {
            body,
            filter: takes_usage_out.then(Box::default),
        }
    }
}

impl<B: Default> Default for ReadJsonBody<B> {
    fn default() -> Self {
        Self::of(B::default(), false)
    }
}

impl<B: Body> Body for ReadJsonBody<B>
where
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(filter) = this.filter else {
            return this.body.poll_frame(cx);
        };
        loop {
            if filter.has_ended {
                let trailers = filter.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let passed = match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(mut data) => {
                        let bytes = data.copy_to_bytes(data.remaining());
                        filter.without_usage.pass(&bytes)
                    }
                    Err(frame) => {
                        filter.trailers = frame.into_trailers().ok();
                        filter.has_ended = true;
                        filter.without_usage.end()
                    }
                },
                None => {
                    filter.has_ended = true;
                    filter.without_usage.end()
                }
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.filter {
            Some(filter) => filter.has_ended && filter.trailers.is_none(),
            None => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.filter {
            Some(_) => SizeHint::new(),
            None => self.body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ReadJsonBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadJsonBody").finish_non_exhaustive()
    }
}
