use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::ending::Kept;

pin_project! {
    /// The body of a response: that of the inner service, or that of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: Source<B>,
    }
}

pin_project! {
    #[project = SourceProj]
    #[derive(Debug)]
    enum Source<B> {
        Inner {
            #[pin]
            body: B,
        },
        Kept {
            #[pin]
            body: B,
            // Until the end.
            kept: Kept,
        },
        Refusal {
            // Boxed, because every response has this size and is moved several times. `None` at its
            // end.
            text: Option<Box<Bytes>>,
        },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self {
            source: Source::Inner { body },
        }
    }

    /// A body at whose end a request is settled.
    pub(super) fn kept(body: B, kept: Kept) -> Self {
        Self {
            source: Source::Kept { body, kept },
        }
    }

    pub(super) fn refusal(text: Bytes) -> Self {
        let text = (!text.is_empty()).then(|| Box::new(text));
        Self {
            source: Source::Refusal { text },
        }
    }
}

/// Required by outer layers that answer with an empty body.
impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::inner(B::default())
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
        match self.project().source.project() {
            SourceProj::Inner { body } => body.poll_frame(cx),
            SourceProj::Kept { mut body, kept } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                kept.frame(frame.as_ref(), body.is_end_stream());
                Poll::Ready(frame)
            }
            SourceProj::Refusal { text } => {
                let text = text.take();
                Poll::Ready(text.map(|text| Ok(Frame::data((*text).into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } | Source::Kept { body, .. } => body.is_end_stream(),
            Source::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } | Source::Kept { body, .. } => body.size_hint(),
            Source::Refusal { text } => {
                let length = text.as_ref().map_or(0, |text| text.len());
                SizeHint::with_exact(length as u64)
            }
        }
    }
}
