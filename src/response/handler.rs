//! Lets a handler that uses a limiter answer as a layer does.

use std::error::Error;
use std::fmt;

#[cfg(feature = "axum")]
use axum::response::{IntoResponse, IntoResponseParts, ResponseParts};
use bytes::Bytes;
use http::Response;

use super::{Refusal, Responder};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::limiter::Reservation;

/// Why a handler refuses a request: the error of [`or_refuse`](OrRefuse::or_refuse), made for `?`.
///
/// With feature `axum` it is a response, the one that a layer with the defaults sends. Without axum,
/// [`into_http`](Self::into_http) makes that response. A [`Responder`] makes others.
///
/// A [`StoreError`] also converts to it: `503 Service Unavailable`, which says nothing of the cause.
/// [`source`](Error::source) returns the cause, for a log.
#[derive(Debug)]
pub struct Refused {
    // A decision is large, and results of handlers are moved often.
    inner: Box<RefusedCall>,
}

#[derive(Debug)]
struct RefusedCall {
    refusal: Refusal,
    source: Option<StoreError>,
}

impl Refused {
    /// Returns the reason.
    pub fn refusal(&self) -> &Refusal {
        &self.inner.refusal
    }

    /// Returns the response that a layer with the defaults sends.
    pub fn into_http<B: From<Bytes>>(self) -> Response<B> {
        Refusal::from(self).into_http()
    }
}

/// Turns a denied request into the error that answers it: `check(…).await?.or_refuse()?`.
///
/// A [`Decision`] has this method, and a [`Reservation`]. See [In a handler](crate::response#in-a-handler) for an
/// example.
// The limiter knows no HTTP, so what answers in HTTP is added to its types from here.
pub trait OrRefuse: Sized {
    /// Returns itself if the request may go on.
    ///
    /// # Errors
    ///
    /// When a policy denied the request.
    fn or_refuse(self) -> Result<Self, Refused>;
}

impl OrRefuse for Decision {
    fn or_refuse(self) -> Result<Self, Refused> {
        if self.is_allowed() {
            return Ok(self);
        }
        Err(Refusal::Denied(self).into())
    }
}

impl OrRefuse for Reservation {
    fn or_refuse(self) -> Result<Self, Refused> {
        if self.is_allowed() {
            return Ok(self);
        }
        Err(Refusal::Denied(self.decision().clone()).into())
    }
}

impl Refusal {
    /// Returns the response that a layer with the defaults sends, with any body that can be made from bytes.
    ///
    /// A request without a key is answered with 500 if the server has to provide it, and with 400 if
    /// the client has left it out. A [`Responder`] makes other responses.
    pub fn into_http<B: From<Bytes>>(self) -> Response<B> {
        Responder::default().refuse(self)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let inner = RefusedCall {
            refusal,
            source: None,
        };
        Self {
            inner: Box::new(inner),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        let inner = RefusedCall {
            refusal: Refusal::StoreFailed(error.kind()),
            source: Some(error),
        };
        Self {
            inner: Box::new(inner),
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        refused.inner.refusal
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusal() {
            Refusal::Denied(decision) => {
                let name = decision.binding().map_or("", |(name, _)| name);
                write!(f, "over the limit of {name:?}")
            }
            Refusal::MissingKey(_) => f.write_str("the request has no key"),
            #[cfg(feature = "usage")]
            Refusal::Unread(why) => why.fmt(f),
            Refusal::Forbidden => f.write_str("the request is on the list of the denied"),
            Refusal::CannotHold(diagnostic) => diagnostic.fmt(f),
            Refusal::Saturated { limit } => {
                write!(f, "{limit} requests are in flight, and no more may be")
            }
            Refusal::StoreFailed(_) => f.write_str("the rate limiter's store could not decide"),
        }
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.inner.source.as_ref()?;
        Some(source)
    }
}

#[cfg(feature = "axum")]
impl IntoResponse for Refusal {
    /// Returns the response that a layer with the defaults sends.
    fn into_response(self) -> axum::response::Response {
        self.into_http()
    }
}

#[cfg(feature = "axum")]
impl IntoResponse for Refused {
    /// Returns the response that a layer with the defaults sends.
    fn into_response(self) -> axum::response::Response {
        self.into_http()
    }
}

/// A part of a handler's response: the headers that a layer with the defaults adds for this decision.
///
/// A handler returns `(Answer(decision), response)`. A [`Responder`] adds the headers of other dialects.
#[cfg(feature = "axum")]
#[derive(Clone, Debug)]
pub struct Answer(pub Decision);

#[cfg(feature = "axum")]
impl IntoResponseParts for Answer {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        if let Some(fields) = Responder::default().fields(&self.0) {
            fields.add_to_headers(parts.headers_mut());
        }
        Ok(parts)
    }
}
