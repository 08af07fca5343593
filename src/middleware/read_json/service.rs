use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body::Body;
use tower_service::Service;

use super::future::AnswerBody;
use super::reading::{Reading, Readings};
use super::{ReadBody, ReadJsonFuture, Unreadable};
use crate::key::{Head, Unread};

/// The service that a [`ReadJsonLayer`](super::ReadJsonLayer) makes of an inner service.
#[derive(Clone, Debug)]
pub struct ReadJson<S> {
    inner: S,
    readings: Readings,
}

impl<S> ReadJson<S> {
    pub(super) fn new(inner: S, readings: Readings) -> Self {
        Self { inner, readings }
    }
}

impl<S, B, R> Service<Request<B>> for ReadJson<S>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<AnswerBody<R>>;
    type Error = S::Error;
    type Future = ReadJsonFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reading = self.readings.now();
        let (why, unreadable) = match look(&reading, &request) {
            Ok(unreadable) => {
                // The instance that is ready reads the body first, and is then called.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                return ReadJsonFuture::reading(inner, reading, unreadable, request);
            }
            Err(unread) => unread,
        };
        if unreadable == Unreadable::Refuse {
            return ReadJsonFuture::refused(why, request.into_parts().0);
        }
        let length = request.body().size_hint();
        let length = length.exact().unwrap_or(length.lower());
        let mut request = request.map(ReadBody::whole);
        let fields = reading.wanted.unread(why, length);
        request.extensions_mut().insert(fields);
        ReadJsonFuture::calling(self.inner.call(request))
    }
}

/// Returns what happens if a body cannot be read, or why it is not read.
fn look<B: Body>(
    reading: &Reading,
    request: &Request<B>,
) -> Result<Unreadable, (Unread, Unreadable)> {
    const UNWANTED: (Unread, Unreadable) = (Unread::Unwanted, Unreadable::Pass);
    let length = request.body().size_hint();
    if request.body().is_end_stream() || length.exact() == Some(0) {
        return Err(UNWANTED);
    }
    let unreadable = match &reading.read_if {
        Some(read_if) => read_if(&Head::of(request)).ok_or(UNWANTED)?,
        None => Unreadable::Refuse,
    };
    if !is_json(request.headers()) {
        return Err((Unread::NotJson, unreadable));
    }
    if length.lower() > reading.max_bytes as u64 {
        return Err((Unread::TooLong, unreadable));
    }
    Ok(unreadable)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if !codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return false;
    }
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        return false;
    };
    let kind = kind.as_bytes().split(|byte| *byte == b';').next();
    let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind == b"application/json" || kind.ends_with(b"+json")
}
