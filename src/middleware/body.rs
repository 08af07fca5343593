use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::kept::Kept;
use super::source::BodySource;

pin_project! {
    /// The body of a response: that of the inner service, or that of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: BodySource<B, Kept>,
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self::kept(body, Kept::default())
    }

    /// Creates a body at whose end a request is settled.
    pub(super) fn kept(body: B, kept: Kept) -> Self {
        Self {
            source: BodySource::Inner { body, kept },
        }
    }

    pub(super) fn refusal(text: Bytes) -> Self {
        Self {
            source: BodySource::refusal(text),
        }
    }
}

/// Required by outer layers that answer with an empty body.
impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self {
            source: BodySource::Inner {
                body: B::default(),
                kept: Kept::default(),
            },
        }
    }
}

impl<B> Body for ResponseBody<B>
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
