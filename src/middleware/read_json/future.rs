//! The future of a request: its body is read, and then the inner service is called.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::Begin;
use super::reading::Reading;
use super::stream_usage::{asking, fit, fit_answer, has_events, may_change};
use super::{GuardedBody, LookingAhead, ReadBody, ReadJsonBody, Unreadable};
use crate::key::{Head, JsonFields, Unread};
use crate::response::unread;

/// The body of a response.
pub(super) type AnswerBody<B> = GuardedBody<ReadJsonBody<B>, Option<()>>;

pin_project! {
    /// The response of a [`ReadJson`](super::ReadJson) service.
    pub struct ReadJsonFuture<S, B>
    where
        S: Service<Request<ReadBody<B>>>,
        B: Body,
    {
        #[pin]
        stage: Stage<S, S::Future, B, B::Error>,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<S, F, B, E> {
        // The limits may refuse the request, whatever its body says.
        Looking {
            request: Option<Box<(Looked<S>, Request<B>)>>,
        },
        Reading {
            // Boxed, since the body moves on to the inner service.
            body: Option<Pin<Box<B>>>,
            begin: Begin<E>,
            request: Option<Box<Waiting<S>>>,
        },
        Calling {
            #[pin]
            future: F,
            // Whether the stream of the answer has an event that the client does not want.
            has_usage: bool,
        },
        Refused {
            response: Option<Box<Response<Bytes>>>,
        },
    }
}

/// How a request is read, and what is called then.
pub(super) struct Reader<S> {
    pub(super) reading: Reading,
    pub(super) unreadable: Unreadable,
    pub(super) inner: S,
}

/// A request that is decided ahead of its body.
struct Looked<S> {
    reader: Reader<S>,
    looking: Box<LookingAhead>,
}

/// A request whose body is being read.
struct Waiting<S> {
    parts: Parts,
    includes_usage: bool,
    reader: Reader<S>,
}

impl<S, B> ReadJsonFuture<S, B>
where
    S: Service<Request<ReadBody<B>>>,
    B: Body,
{
    pub(super) fn reading(reader: Reader<S>, request: Request<B>) -> Self {
        Self {
            stage: Stage::reading(reader, request),
        }
    }

    /// Reads the body of a request unless these limits refuse it.
    pub(super) fn looking(
        reader: Reader<S>,
        looking: Box<LookingAhead>,
        request: Request<B>,
    ) -> Self {
        let looked = Looked { reader, looking };
        Self {
            stage: Stage::Looking {
                request: Some(Box::new((looked, request))),
            },
        }
    }

    pub(super) fn calling(future: S::Future) -> Self {
        Self {
            stage: Stage::Calling {
                future,
                has_usage: false,
            },
        }
    }

    pub(super) fn unread(why: Unread, parts: Parts) -> Self {
        Self {
            stage: Stage::unread(why, parts),
        }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        Self {
            stage: Stage::refused(response),
        }
    }
}

impl<S, F, B, E> Stage<S, F, B, E> {
    fn reading(reader: Reader<S>, request: Request<B>) -> Self {
        let includes_usage = reader.reading.includes_usage(&Head::of(&request));
        let (parts, body) = request.into_parts();
        let request = Waiting {
            parts,
            includes_usage,
            reader,
        };
        Self::Reading {
            body: Some(Box::pin(body)),
            begin: Begin::nothing(),
            request: Some(Box::new(request)),
        }
    }

    fn unread(why: Unread, mut parts: Parts) -> Self {
        Self::refused(unread(why, &mut parts.extensions))
    }

    fn refused(response: Response<Bytes>) -> Self {
        Self::Refused {
            response: Some(Box::new(response)),
        }
    }
}

impl<S> Waiting<S> {
    /// Has the body ask for the usage of a stream, if the request is one of those that do. Returns whether it does now.
    fn asks_for_usage<E>(&mut self, begin: &mut Begin<E>) -> bool {
        let headers = &mut self.parts.headers;
        let may_change = may_change(headers) && begin.trailers().is_none_or(may_change);
        if !self.includes_usage || !may_change || begin.has_broken_off() {
            return false;
        }
        let Some(body) = asking(begin.bytes()) else {
            return false;
        };
        fit(headers, &body);
        begin.replace(body);
        true
    }

    /// Returns the fields of a body of which this has been read.
    fn fields<E>(&self, begin: &Begin<E>, has_ended: bool, left: u64) -> JsonFields {
        let (wanted, bytes) = (&self.reader.reading.wanted, begin.bytes());
        if !has_ended {
            let length = (bytes.len() as u64).saturating_add(left);
            wanted.unread(Unread::TooLong, length)
        } else if begin.has_broken_off() {
            wanted.unread(Unread::Malformed, bytes.len() as u64)
        } else {
            wanted.read(bytes).under(&self.parts.headers)
        }
    }
}

impl<S, B, R> Future for ReadJsonFuture<S, B>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<AnswerBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProj::Calling { future, has_usage } => {
                    let mut answer = ready!(future.poll(cx))?;
                    let takes_usage_out = *has_usage && has_events(answer.headers());
                    if takes_usage_out {
                        fit_answer(answer.headers_mut());
                    }
                    let answered = |body| {
                        let body = ReadJsonBody::of(body, takes_usage_out);
                        AnswerBody::new(body, None)
                    };
                    return Poll::Ready(Ok(answer.map(answered)));
                }
                StageProj::Refused { response } => {
                    return match response.take() {
                        Some(refusal) => Poll::Ready(Ok(refusal.map(AnswerBody::refusal))),
                        // A future that is ready is not polled again.
                        None => Poll::Pending,
                    };
                }
                StageProj::Looking { request: looked } => {
                    let Some(pending) = looked.as_mut() else {
                        return Poll::Pending;
                    };
                    let (Looked { looking, .. }, request) = &mut **pending;
                    let refusal = ready!(looking.poll(request, cx));
                    let Some(pending) = looked.take() else {
                        return Poll::Pending;
                    };
                    match (refusal, *pending) {
                        (Some(response), _) => Stage::refused(response),
                        (None, (looked, request)) => Stage::reading(looked.reader, request),
                    }
                }
                StageProj::Reading {
                    body,
                    begin,
                    request,
                } => {
                    let (Some(reads), Some(waiting)) = (body.as_mut(), request.as_ref()) else {
                        return Poll::Pending;
                    };
                    let most = waiting.reader.reading.max_bytes;
                    let has_ended = ready!(begin.poll_read(reads.as_mut(), most, cx));
                    let left = reads.size_hint().lower();
                    let fields = waiting.fields(begin, has_ended, left);
                    let Some(mut waiting) = request.take() else {
                        return Poll::Pending;
                    };
                    if let (Some(why), Unreadable::Refuse) =
                        (fields.unread(), waiting.reader.unreadable)
                    {
                        Stage::unread(why, waiting.parts)
                    } else {
                        let rest = body.take().filter(|_| !has_ended);
                        let mut begin = std::mem::replace(begin, Begin::nothing());
                        let asks = has_ended && waiting.asks_for_usage(&mut begin);
                        waiting.parts.extensions.insert(fields);
                        let body = ReadBody::again(begin, rest);
                        let request = Request::from_parts(waiting.parts, body);
                        Stage::Calling {
                            future: waiting.reader.inner.call(request),
                            has_usage: asks,
                        }
                    }
                }
            };
            stage.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ReadJsonFuture<S, B>
where
    S: Service<Request<ReadBody<B>>>,
    B: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadJsonFuture").finish_non_exhaustive()
    }
}
