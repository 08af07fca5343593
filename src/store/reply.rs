use std::fmt;
use std::pin::Pin;

/// An answer, now or later.
///
/// A store in this process answers [`Now`](Self::Now), without an allocation. A remote store answers
/// [`Later`](Self::Later).
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
    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U + Send + 'static) -> Reply<U>
    where
        T: 'static,
    {
        match self {
            Self::Now(answer) => Reply::Now(make(answer)),
            Self::Later(answer) => Reply::later(async move { make(answer.await) }),
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

impl<T: fmt::Debug> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.debug_tuple("Later").finish_non_exhaustive(),
        }
    }
}
