use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Observes the body of a response until it ends or is dropped.
pub(super) trait ToTheEnd {
    /// Observes a frame of the body, or its end. `is_at_its_end` says whether nothing comes after the frame.
    fn frame<D: Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: impl FnOnce() -> bool,
    );
}

pin_project! {
    /// The source of a response's body: the inner service, or the text of a refusal.
    #[project = BodySourceProj]
    #[derive(Debug)]
    pub(super) enum BodySource<B, K> {
        Inner {
            #[pin]
            body: B,
            kept: K,
        },
        Refusal {
            // Boxed, because every response has this size and is moved several times. `None` at its end.
            text: Option<Box<Bytes>>,
        },
    }
}

impl<B, K> BodySource<B, K> {
    pub(super) fn refusal(text: Bytes) -> Self {
        let text = (!text.is_empty()).then(|| Box::new(text));
        Self::Refusal { text }
    }
}

impl<B, K> Body for BodySource<B, K>
where
    B: Body,
    B::Data: From<Bytes>,
    K: ToTheEnd,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project() {
            BodySourceProj::Inner { mut body, kept } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                kept.frame(frame.as_ref(), || body.is_end_stream());
                Poll::Ready(frame)
            }
            BodySourceProj::Refusal { text } => {
                let text = text.take();
                Poll::Ready(text.map(|text| Ok(Frame::data((*text).into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Inner { body, .. } => body.is_end_stream(),
            Self::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Inner { body, .. } => body.size_hint(),
            Self::Refusal { text } => {
                let length = text.as_ref().map_or(0, |text| text.len());
                SizeHint::with_exact(length as u64)
            }
        }
    }
}
