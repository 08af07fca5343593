//! The body of a response under the layers of this module. What the request holds is held to its end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response under a layer: that of the inner service, or that of a refusal. It holds a guard of its
    /// request until it ends or is dropped.
    pub struct GuardedBody<B: Body, G> {
        #[pin]
        source: Source<B>,
        guard: G,
    }
}

pin_project! {
    #[project = SourceProj]
    enum Source<B: Body> {
        Inner {
            #[pin]
            body: B,
        },
        Refusal {
            // Boxed, because every response has this size and is moved several times. `None` at its end.
            text: Option<Box<B::Data>>,
        },
    }
}

/// The charges, the slot or the count that a request holds until the body of its response has ended.
pub trait Guard: Default {
    /// Observes a frame of the body, or its end. `is_at_its_end` says whether nothing comes after the frame.
    fn frame<D: Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: impl FnOnce() -> bool,
    );
}

/// A guard that only has to be dropped.
impl<T> Guard for Option<T> {
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
            *self = None;
        }
    }
}

impl<B: Body, G: Guard> GuardedBody<B, G> {
    /// Creates the body of an answer of the inner service.
    #[inline]
    // For `tower-ratelimit-adapt`.
    #[doc(hidden)]
    pub fn new(body: B, guard: G) -> Self {
        Self {
            source: Source::Inner { body },
            guard,
        }
    }

    /// Creates the body of a refusal.
    // For `tower-ratelimit-adapt`.
    #[doc(hidden)]
    pub fn refusal(text: Bytes) -> Self
    where
        B::Data: From<Bytes>,
    {
        let text = (!text.is_empty()).then(|| Box::new(text.into()));
        Self {
            source: Source::Refusal { text },
            guard: G::default(),
        }
    }
}

/// Required by outer layers that answer with an empty body.
impl<B: Body + Default, G: Guard> Default for GuardedBody<B, G> {
    fn default() -> Self {
        Self::new(B::default(), G::default())
    }
}

impl<B: Body, G: Guard> Body for GuardedBody<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.source.project() {
            SourceProj::Inner { mut body } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                this.guard.frame(frame.as_ref(), || body.is_end_stream());
                Poll::Ready(frame)
            }
            SourceProj::Refusal { text } => {
                let text = text.take();
                Poll::Ready(text.map(|text| Ok(Frame::data(*text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } => body.is_end_stream(),
            Source::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Refusal { text } => {
                let length = text.as_ref().map_or(0, Buf::remaining);
                SizeHint::with_exact(length as u64)
            }
        }
    }
}

impl<B: Body, G> fmt::Debug for GuardedBody<B, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody").finish_non_exhaustive()
    }
}
