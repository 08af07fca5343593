use std::fmt;
use std::future::pending;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// An answer, now or later.
///
/// A store in this process answers [`Now`](Self::Now), without an allocation. A remote store answers
/// [`Later`](Self::Later). As a future, it waits for the answer.
#[must_use = "the answer may still have to be waited for"]
#[non_exhaustive]
pub enum Reply<T> {
    /// The answer.
    Now(T),
    /// The answer comes from this future.
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Reply<T> {
    /// Makes a reply from this future.
    pub fn later(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// Maps the answer, once it is there.
    pub fn map<U>(self, make: impl FnOnce(T) -> U + Send + 'static) -> Reply<U>
    where
        T: 'static,
    {
        match self {
            Self::Now(answer) => Reply::Now(make(answer)),
            Self::Later(answer) => Reply::later(async move { make(answer.await) }),
        }
    }

    /// Returns the answer, if it is there without a wait.
    pub(crate) fn at_once(mut self) -> Option<T>
    where
        T: 'static,
    {
        match Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Waits for the answer.
    pub async fn wait(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(future) => future.await,
        }
    }
}

impl<T: 'static> Future for Reply<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        if let Self::Later(answer) = this {
            return answer.as_mut().poll(cx);
        }
        match mem::replace(this, Self::Later(Box::pin(pending()))) {
            Self::Now(answer) => Poll::Ready(answer),
            Self::Later(_) => Poll::Pending,
        }
    }
}

impl<T> Unpin for Reply<T> {}

impl<T: fmt::Debug> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.debug_tuple("Later").finish_non_exhaustive(),
        }
    }
}
