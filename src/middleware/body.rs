use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response: the inner service's, or that of a refusal.
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
        Refusal {
            bytes: Bytes,
        },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self {
            source: Source::Inner { body },
        }
    }

    pub(super) fn refusal(bytes: Bytes) -> Self {
        Self {
            source: Source::Refusal { bytes },
        }
    }
}

/// Layers outside that answer with an empty body of their own ask for this.
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
            SourceProj::Refusal { bytes } => {
                let bytes = std::mem::take(bytes);
                let frame = (!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into())));
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } => body.is_end_stream(),
            Source::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
