//! The body of a request of which some may have been read.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request under a [`ReadJsonLayer`](super::ReadJsonLayer): the same bytes, trailers and errors, some of which may
    /// have been read already.
    pub struct ReadBody<B: Body> {
        begin: Begin<B::Error>,
        #[pin]
        rest: Rest<B>,
    }
}

pin_project! {
    #[project = RestProj]
    enum Rest<B> {
        Whole {
            #[pin]
            body: B,
        },
        Begun {
            body: Pin<Box<B>>,
        },
        Ended,
    }
}

/// What has been read of a body.
pub(super) struct Begin<E> {
    data: Data,
    trailers: Option<HeaderMap>,
    error: Option<E>,
}

/// A body of one frame, which is most of them, is not copied. One of many small frames is held as one, since each frame has a
/// head.
enum Data {
    None,
    One(Bytes),
    Several(BytesMut),
}

impl Data {
    fn add(&mut self, data: Bytes) {
        match self {
            _ if data.is_empty() => {}
            Self::None => *self = Self::One(data),
            Self::One(first) => {
                let mut all = BytesMut::from(&first[..]);
                all.extend_from_slice(&data);
                *self = Self::Several(all);
            }
            Self::Several(all) => all.extend_from_slice(&data),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::One(data) => data,
            Self::Several(data) => data,
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        match std::mem::replace(self, Self::None) {
            Self::None => None,
            Self::One(data) => Some(data),
            Self::Several(data) => Some(data.freeze()),
        }
    }
}

impl<E> Begin<E> {
    pub(super) fn nothing() -> Self {
        Self {
            data: Data::None,
            trailers: None,
            error: None,
        }
    }

    /// Reads a body to its end, or until it is longer than this. Returns whether it has ended.
    pub(super) fn poll_read<B: Body<Data = Bytes, Error = E>>(
        &mut self,
        mut body: Pin<&mut B>,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        loop {
            if self.bytes().len() > most {
                return Poll::Ready(false);
            }
            if body.is_end_stream() {
                return Poll::Ready(true);
            }
            let frame = match body.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(error))) => {
                    self.error = Some(error);
                    return Poll::Ready(true);
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(data) => self.data.add(data),
                Err(frame) => {
                    self.trailers = frame.into_trailers().ok();
                    return Poll::Ready(true);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.data.as_slice()
    }

    /// Puts other data in place of what was read.
    pub(super) fn replace(&mut self, data: Bytes) {
        self.data = Data::One(data);
    }

    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    pub(super) fn has_broken_off(&self) -> bool {
        self.error.is_some()
    }
}

impl<B: Body> ReadBody<B> {
    pub(super) fn whole(body: B) -> Self {
        Self {
            begin: Begin::nothing(),
            rest: Rest::Whole { body },
        }
    }

    /// Puts together again what has been read and what is still to come.
    pub(super) fn again(begin: Begin<B::Error>, rest: Option<Pin<Box<B>>>) -> Self {
        let rest = rest.map_or(Rest::Ended, |body| Rest::Begun { body });
        Self { begin, rest }
    }
}

impl<B: Body<Data = Bytes>> Body for ReadBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(data) = this.begin.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = this.begin.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if let Some(error) = this.begin.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match this.rest.project() {
            RestProj::Whole { body } => body.poll_frame(cx),
            RestProj::Begun { body } => body.as_mut().poll_frame(cx),
            RestProj::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_at_its_end = match &self.rest {
            Rest::Whole { body } => body.is_end_stream(),
            Rest::Begun { body } => body.is_end_stream(),
            Rest::Ended => true,
        };
        let Begin {
            data,
            trailers,
            error,
        } = &self.begin;
        is_at_its_end && data.as_slice().is_empty() && trailers.is_none() && error.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.begin.bytes().len() as u64;
        let rest = match &self.rest {
            Rest::Whole { body } => body.size_hint(),
            Rest::Begun { body } => body.size_hint(),
            // Of a body that broke off, more was to come.
            Rest::Ended if self.begin.has_broken_off() => SizeHint::new(),
            Rest::Ended => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        if let Some(most) = rest.upper() {
            hint.set_upper(most.saturating_add(read));
        }
        hint.set_lower(rest.lower().saturating_add(read));
        hint
    }
}

impl<B: Body + Default> Default for ReadBody<B> {
    fn default() -> Self {
        Self::whole(B::default())
    }
}

impl<B: Body> fmt::Debug for ReadBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBody").finish_non_exhaustive()
    }
}
