use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::future::{AnswerBody, Reader};
use super::reading::Readings;
use super::{Ahead, CurrentEnforcer, ReadBody, ReadJsonFuture, Unreadable};
use crate::key::Head;

/// The service that a [`ReadJsonLayer`](super::ReadJsonLayer) makes of an inner service.
#[derive(Clone, Debug)]
pub struct ReadJson<S> {
    inner: S,
    readings: Readings,
    limits: Option<CurrentEnforcer>,
}

impl<S> ReadJson<S> {
    pub(super) fn new(inner: S, readings: Readings, limits: Option<CurrentEnforcer>) -> Self {
        Self {
            inner,
            readings,
            limits,
        }
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let reading = self.readings.now();
        let (length, is_at_its_end) = (request.body().size_hint(), request.body().is_end_stream());
        let (why, unreadable) = match reading.look(&Head::of(&request), length, is_at_its_end) {
            Ok(unreadable) => {
                let looked = self.limits.as_ref().map(|limits| {
                    let (fields, ahead) = reading.wanted.ahead();
                    request.extensions_mut().insert(fields);
                    limits.look_ahead(&mut request, &ahead)
                });
                if let Some(Ahead::Refused(response)) = looked {
                    return ReadJsonFuture::refused(response);
                }
                // The instance that is ready reads the body first, and is then called.
                let clone = self.inner.clone();
                let reader = Reader {
                    reading,
                    unreadable,
                    inner: mem::replace(&mut self.inner, clone),
                };
                return match looked {
                    Some(Ahead::Asked(looking)) => {
                        ReadJsonFuture::looking(reader, looking, request)
                    }
                    _ => ReadJsonFuture::reading(reader, request),
                };
            }
            Err(unread) => unread,
        };
        if unreadable == Unreadable::Refuse {
            return ReadJsonFuture::unread(why, request.into_parts().0);
        }
        let length = request.body().size_hint();
        let length = length.exact().unwrap_or(length.lower());
        let mut request = request.map(ReadBody::whole);
        let fields = reading.wanted.unread(why, length);
        request.extensions_mut().insert(fields);
        ReadJsonFuture::calling(self.inner.call(request))
    }
}
