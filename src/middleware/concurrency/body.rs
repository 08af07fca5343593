use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::adapt::Permit;

pin_project! {
    /// The body of a response: that of the inner service, whose slot is free when it ends or is dropped, or that of a
    /// refusal.
    #[derive(Debug)]
    pub struct ConcurrencyBody<B> {
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
            permit: Option<Permit>,
        },
        Refusal {
            // `None` at its end.
            text: Option<Bytes>,
        },
    }
}

impl<B> ConcurrencyBody<B> {
    pub(super) fn refusal(text: Bytes) -> Self {
        let text = (!text.is_empty()).then_some(text);
        Self {
            source: Source::Refusal { text },
        }
    }
}

impl<B: Body> ConcurrencyBody<B> {
    /// The slot is free at once if the body is empty: nothing may read it.
    pub(super) fn inner(body: B, permit: Option<Permit>) -> Self {
        let permit = permit.filter(|_| !body.is_end_stream());
        Self {
            source: Source::Inner { body, permit },
        }
    }
}

/// Required by outer layers that answer with an empty body.
impl<B: Default> Default for ConcurrencyBody<B> {
    fn default() -> Self {
        Self {
            source: Source::Inner {
                body: B::default(),
                permit: None,
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
        match self.project().source.project() {
            SourceProj::Inner { mut body, permit } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                let is_last = match &frame {
                    None | Some(Err(_)) => true,
                    Some(Ok(frame)) => frame.is_trailers() || body.is_end_stream(),
                };
                if is_last {
                    drop(permit.take());
                }
                Poll::Ready(frame)
            }
            SourceProj::Refusal { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body, .. } => body.is_end_stream(),
            Source::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body, .. } => body.size_hint(),
            Source::Refusal { text } => {
                let length = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
        }
    }
}
