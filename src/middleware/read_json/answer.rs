//! The body of a response, of which the event of the usage may be taken out.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::stream_usage::{WithoutUsage, fit_answer};

pin_project! {
    /// The body of a response under a [`ReadJsonLayer`](super::ReadJsonLayer): that of the inner service, without the event of the usage if
    /// the layer has [asked for it](super::ReadJsonLayer::include_usage_if).
    pub struct ReadJsonBody<B: Body> {
        #[pin]
        body: B,
        // Boxed, because most responses have none.
        filter: Option<Box<Filter<B::Error>>>,
    }
}

struct Filter<E> {
    without_usage: WithoutUsage,
    /// What comes after the data: trailers, or an error.
    last: Option<Result<HeaderMap, E>>,
    has_ended: bool,
}

impl<B: Body> ReadJsonBody<B> {
    pub(super) fn of(body: B, takes_usage_out: bool) -> Self {
        let filter = || Filter {
            without_usage: WithoutUsage::default(),
            last: None,
            has_ended: false,
        };
        Self {
            body,
            filter: takes_usage_out.then(|| Box::new(filter())),
        }
    }
}

impl<B: Body + Default> Default for ReadJsonBody<B> {
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
                let last = filter.last.take();
                return Poll::Ready(last.map(|last| last.map(Frame::trailers)));
            }
            let frame = ready!(this.body.as_mut().poll_frame(cx)).transpose();
            let data = frame.map(|frame| frame.map(Frame::into_data));
            let passed = if let Ok(Some(Ok(mut data))) = data {
                let bytes = data.copy_to_bytes(data.remaining());
                filter.without_usage.pass(&bytes)
            } else {
                filter.has_ended = true;
                filter.last = match data {
                    Ok(Some(Err(frame))) => frame.into_trailers().ok().map(|mut trailers| {
                        fit_answer(&mut trailers);
                        Ok(trailers)
                    }),
                    Err(error) => Some(Err(error)),
                    Ok(_) => None,
                };
                filter.without_usage.end()
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.filter {
            Some(filter) => filter.has_ended && filter.last.is_none(),
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

impl<B: Body> fmt::Debug for ReadJsonBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadJsonBody").finish_non_exhaustive()
    }
}
