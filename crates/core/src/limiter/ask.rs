//! What a verb of a limiter returns: a question that is asked once it is awaited, or at once.

use std::fmt;

use super::findings::{Findings, Looks};
use super::subject::Subject;
use super::{Limiter, LocalLimiter};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{Backend, MemoryBackend, Reply};

/// What a verb of a [`Limiter`] is about to do. Nothing happens until it is awaited, or until [`now`](Self::now) is
/// called.
///
/// | limiter | ask | answer |
/// | --- | --- | --- |
/// | any | `limiter.check("ann", 1).await` | `Result<Decision, StoreError>` |
/// | [`LocalLimiter`] | `limiter.check("ann", 1).now()` | `Decision` |
///
/// [`into_future`](IntoFuture::into_future) gives the future itself, for a task or a `select!`. It is `Send` and does
/// not borrow the limiter. The store in this process has decided by then; any other store may begin when the future is
/// first polled. If the future is dropped after that and before the store has answered, the store may have charged the
/// request all the same. A [reservation](Limiter::reserve) is settled then.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::{FixedWindow, Limiter, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("mails", FixedWindow::per_hour(2)))
///     .build_local()?;
///
/// assert!(limiter.check("ann", 1).now().is_allowed());
/// assert!(limiter.check("ann", 1).await?.is_allowed());
/// let third = tokio::spawn(limiter.check("ann", 1).into_future());
/// assert!(!third.await??.is_allowed());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens until it is awaited, or `now` is called"]
pub struct Ask<'a, V, L: ?Sized = dyn Backend> {
    pub(super) limiter: &'a Limiter<L>,
    pub(super) verb: V,
}

/// A verb of a [`Limiter`], such as [`check`](Limiter::check), with its arguments. No other crate can have one.
pub trait Verb: sealed::Sealed + Sized + Send + 'static {
    /// What it answers.
    type Answer: Send + 'static;

    /// Starts to look up the keys for whose limits the verb waits.
    // A limiter calls it, and users write `.await` or `.now()`.
    #[doc(hidden)]
    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        let _ = limiter;
        Looks::none()
    }

    /// Asks the store of this limiter, by the findings of a resolver.
    // A limiter calls it, and users write `.await` or `.now()`.
    #[doc(hidden)]
    fn ask<L: Backend + ?Sized>(
        self,
        limiter: &Limiter<L>,
        findings: &Findings,
    ) -> Reply<Result<Self::Answer, StoreError>>;

    /// Asks the store in this process.
    // A limiter calls it, and users write `.await` or `.now()`.
    #[doc(hidden)]
    fn now(self, limiter: &LocalLimiter) -> Self::Answer;

    /// Asks the store in this process as any other one, by what is known of the keys.
    // A limiter calls it, and users write `.await` or `.now()`.
    #[doc(hidden)]
    fn at_once(self, limiter: &LocalLimiter) -> Option<Self::Answer> {
        let findings = self.look(limiter).now();
        self.ask(limiter, &findings).at_once()?.ok()
    }
}

/// A verb that asks the store of this process as it asks any other.
pub(super) struct PlainVerb<S, F, A> {
    subject: S,
    ask: F,
    /// Makes an answer of an empty decision, if there were none.
    otherwise: fn(Decision) -> A,
}

impl<S, F, A> PlainVerb<S, F, A>
where
    F: FnOnce(&Limiter, S, &Findings) -> Reply<Result<A, StoreError>>,
{
    pub(super) fn new(subject: S, ask: F, otherwise: fn(Decision) -> A) -> Self {
        Self {
            subject,
            ask,
            otherwise,
        }
    }
}

pub(super) mod sealed {
    pub trait Sealed {}
}

impl<S, F, A> sealed::Sealed for PlainVerb<S, F, A> {}

impl<S: Subject, F, A: Send + 'static> Verb for PlainVerb<S, F, A>
where
    F: FnOnce(&Limiter, S, &Findings) -> Reply<Result<A, StoreError>> + Send + 'static,
{
    type Answer = A;

    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        self.subject.look(limiter)
    }

    fn ask<L: Backend + ?Sized>(
        self,
        limiter: &Limiter<L>,
        findings: &Findings,
    ) -> Reply<Result<A, StoreError>> {
        (self.ask)(&limiter.any(), self.subject, findings)
    }

    fn now(self, limiter: &LocalLimiter) -> A {
        let otherwise = self.otherwise;
        let answer = self.at_once(limiter);
        answer.unwrap_or_else(|| otherwise(limiter.no_decision()))
    }
}

impl<V: Verb> Ask<'_, V, MemoryBackend> {
    /// Asks the store in this process, which always answers at once.
    ///
    /// It waits for nothing: where a limiter has a resolver for its keys, it takes what is known of the key, even
    /// if it is stale, or else the default plan.
    #[inline]
    pub fn now(self) -> V::Answer {
        self.verb.now(self.limiter)
    }
}

impl<V: Verb, L: Backend + ?Sized> IntoFuture for Ask<'_, V, L> {
    type Output = Result<V::Answer, StoreError>;
    type IntoFuture = Reply<Self::Output>;

    #[inline]
    fn into_future(self) -> Self::IntoFuture {
        let Self { limiter, verb } = self;
        match verb.look(limiter).wait() {
            Reply::Now(findings) => match findings.require_plans() {
                Ok(()) => verb.ask(limiter, &findings),
                Err(error) => Reply::Now(Err(error)),
            },
            Reply::Later(findings) => {
                let limiter = limiter.clone();
                Reply::later(async move {
                    let findings = findings.await;
                    findings.require_plans()?;
                    verb.ask(&limiter, &findings).await
                })
            }
        }
    }
}

impl<V, L: Backend + ?Sized> fmt::Debug for Ask<'_, V, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
