//! The charges and slots that a request holds until its response has ended, as the rest of the layer sees them.

use std::fmt;

use http::response::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response};
use http_body::{Body, Frame};

use super::ResponseBody;
use super::source::ToTheEnd;
use crate::decision::Outcomes;
use crate::limiter::{HoldAnswer, Limiter};
use crate::store::Charge;

/// The charges and slots that a request holds until its end: first in the future of the response, and then in the body. It is dropped exactly
/// once, which settles the request. For most requests it is empty.
#[derive(Default)]
pub(crate) struct Kept(Option<Box<dyn ToSettle>>);

/// Holds requests until their end. The gate calls it through a trait object, as it calls [`ToSettle`], and does not know
/// how requests are settled.
pub(super) trait Keep: fmt::Debug + Send + Sync {
    /// Holds the charges of this request until its end, if a policy settles them.
    fn keep(
        &self,
        limiter: &Limiter,
        charges: &[Charge],
        outcomes: &Outcomes,
        is_head: bool,
        extensions: &mut Extensions,
    ) -> Kept;

    /// Returns whether the charges of this policy are settled at the end of their requests.
    fn settles(&self, policy: usize) -> bool;

    /// Returns what holds an answer that the store gives later.
    fn hold_answer(&self) -> HoldAnswer;
}

/// Settles a request by what it observes of the response.
pub(super) trait ToSettle: Send + Sync {
    fn answered(&mut self, head: &Parts, body: &dyn SentBody);

    /// Observes a frame of the body, or its end. Returns whether it is the last.
    fn notes(&mut self, part: Part<'_>, is_at_its_end: bool) -> bool;

    /// Holds this as well, until the same end.
    #[cfg(feature = "config")]
    fn join(&mut self, beside: Kept);

    /// Settles by what is known now.
    fn settle(self: Box<Self>);
}

/// A frame of a body, or its end.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Frame {
        bytes: u64,
        trailers: Option<&'a HeaderMap>,
    },
    Failure,
    End,
}

/// The length of a body, as far as it is known.
pub(super) trait SentBody {
    fn exact_length(&self) -> Option<u64>;

    fn is_over(&self) -> bool;
}

impl<B: Body> SentBody for B {
    fn exact_length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    fn is_over(&self) -> bool {
        self.is_end_stream()
    }
}

impl Kept {
    /// Holds the charges of this request until its end, if a policy settles them.
    pub(super) fn of<B>(
        settles: Option<&dyn Keep>,
        limiter: &Limiter,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Self {
        let Some(settles) = settles else {
            return Self::default();
        };
        let is_head = request.method() == Method::HEAD;
        settles.keep(
            limiter,
            charges,
            outcomes,
            is_head,
            request.extensions_mut(),
        )
    }

    /// Holds a request that this settles.
    pub(super) fn to_settle(kept: Box<dyn ToSettle>) -> Self {
        Self(Some(kept))
    }

    /// Moves the contents out, so that the request ends when the result is dropped.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Holds this as well, until the same end.
    #[cfg(feature = "config")]
    pub(super) fn join(&mut self, beside: Self) {
        match &mut self.0 {
            Some(kept) => kept.join(beside),
            None => *self = beside,
        }
    }

    /// Returns whether there is nothing to settle.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// Continues with the body of this response.
    pub(super) fn answered<R: Body>(mut self, response: Response<R>) -> Response<ResponseBody<R>> {
        let (head, body) = response.into_parts();
        self.note_head(&head, &body);
        Response::from_parts(head, ResponseBody::kept(body, self))
    }

    pub(super) fn note_head(&mut self, head: &Parts, body: &dyn SentBody) {
        if let Some(kept) = &mut self.0 {
            kept.answered(head, body);
        }
    }

    pub(super) fn note(&mut self, part: Part<'_>, is_at_its_end: bool) {
        if let Some(kept) = &mut self.0
            && kept.notes(part, is_at_its_end)
        {
            drop(self.take());
        }
    }
}

/// The request ends with the last frame.
impl ToTheEnd for Kept {
    fn frame<D: bytes::Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: impl FnOnce() -> bool,
    ) {
        if self.is_nothing() {
            return;
        }
        let part = match frame {
            Some(Ok(frame)) => Part::Frame {
                bytes: frame.data_ref().map_or(0, |data| data.remaining() as u64),
                trailers: frame.trailers_ref(),
            },
            Some(Err(_)) => Part::Failure,
            None => Part::End,
        };
        self.note(part, is_at_its_end());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(kept) = self.0.take() {
            kept.settle();
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}
