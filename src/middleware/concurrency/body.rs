use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::adapt::Permit;
use crate::middleware::source::{BodySource, ToTheEnd};

pin_project! {
    /// The body of a response: that of the inner service, whose end or drop frees the slot, or that of a
    /// refusal.
    #[derive(Debug)]
    pub struct ConcurrencyBody<B> {
        #[pin]
        source: BodySource<B, Slot>,
    }
}

/// The slot of a request that has one.
#[derive(Debug, Default)]
struct Slot(Option<Permit>);

impl ToTheEnd for Slot {
    fn frame<D: Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: impl FnOnce() -> bool,
    ) {
        let is_last = match frame {
            None | Some(Err(_)) => true,
            Some(Ok(frame)) => frame.is_trailers() || is_at_its_end(),
        };
        if is_last {
            drop(self.0.take());
        }
    }
}

impl<B> ConcurrencyBody<B> {
    pub(super) fn refusal(text: Bytes) -> Self {
        Self {
            source: BodySource::refusal(text),
        }
    }
}

impl<B: Body> ConcurrencyBody<B> {
    /// Frees the slot at once if the body is empty, since nothing may read it.
    pub(super) fn inner(body: B, permit: Option<Permit>) -> Self {
        let permit = permit.filter(|_| !body.is_end_stream());
        Self {
            source: BodySource::Inner {
                body,
                kept: Slot(permit),
            },
        }
    }
}

/// Required by outer layers that answer with an empty body.
impl<B: Default> Default for ConcurrencyBody<B> {
    fn default() -> Self {
        Self {
            source: BodySource::Inner {
                body: B::default(),
                kept: Slot::default(),
            },
        }
    }
}

impl<B> Body for ConcurrencyBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().source.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
