use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::Held;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::limiter::Limiter;
use crate::limiter::background::spawn;
use crate::store::{Charge, Ledger, answered};

type Coming = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// The pending answer of a store to charges that are held.
///
/// If the request goes away first, a task waits for the answer: the store may have charged it, and then it is
/// settled as a request that ended without an answer.
pub(crate) struct PendingOutcomes<L: Ledger + ?Sized> {
    limiter: Limiter<L>,
    charges: SmallVec<[Charge; 2]>,
    /// `None` once the answer is there.
    coming: Option<Coming>,
    /// Whether the store was polled: it may begin when it is first polled.
    was_asked: bool,
}

impl<L: Ledger + ?Sized> PendingOutcomes<L> {
    pub(crate) fn new(limiter: &Limiter<L>, charges: &[Charge], coming: Coming) -> Self {
        Self {
            limiter: limiter.clone(),
            charges: SmallVec::from_slice(charges),
            coming: Some(coming),
            was_asked: false,
        }
    }
}

impl<L: Ledger + ?Sized> Future for PendingOutcomes<L> {
    type Output = Result<Outcomes, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.was_asked = true;
        let Some(coming) = &mut this.coming else {
            return Poll::Pending;
        };
        let answer = ready!(coming.as_mut().poll(cx));
        this.coming = None;
        Poll::Ready(answer)
    }
}

impl<L: Ledger + ?Sized> Unpin for PendingOutcomes<L> {}

impl<L: Ledger + ?Sized> Drop for PendingOutcomes<L> {
    fn drop(&mut self) {
        if let (true, Some(coming), Ok(runtime)) =
            (self.was_asked, self.coming.take(), Handle::try_current())
        {
            let (limiter, charges) = (self.limiter.clone(), self.charges.clone());
            spawn(&runtime, async move {
                if let Ok(outcomes) = answered(&charges, coming.await) {
                    drop(Held::of(&limiter, &charges, &outcomes).later());
                }
            });
        }
    }
}
