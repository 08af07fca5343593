use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::Held;
use super::settlement::unanswered;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::limiter::Limiter;
use crate::limiter::background::spawn;
use crate::store::{Charge, Ledger, answered};

type PendingReply = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// The pending answer of a store to charges that are held.
///
/// If the request goes away first, a task waits for the answer: the store may have charged it, and then it is
/// settled as a request that ended without an answer.
pub(crate) struct PendingOutcomes<L: Ledger + ?Sized> {
    limiter: Limiter<L>,
    charges: SmallVec<[Charge; 2]>,
    /// `None` once the answer is there.
    coming: Option<PendingReply>,
    asked: Polled,
}

/// Whether the store was polled: it may begin when it is first polled.
enum Polled {
    NotYet,
    /// In this runtime, if there was one. The request may be dropped where there is none.
    In(Option<Handle>),
}

/// Charges of a request that has gone away. If no answer comes, their settlement is lost.
struct AbandonedCharges<L: Ledger + ?Sized> {
    limiter: Limiter<L>,
    charges: SmallVec<[Charge; 2]>,
    is_answered: bool,
}

impl<L: Ledger + ?Sized> PendingOutcomes<L> {
    pub(crate) fn new(limiter: &Limiter<L>, charges: &[Charge], coming: PendingReply) -> Self {
        Self {
            limiter: limiter.clone(),
            charges: SmallVec::from_slice(charges),
            coming: Some(coming),
            asked: Polled::NotYet,
        }
    }
}

impl<L: Ledger + ?Sized> Future for PendingOutcomes<L> {
    type Output = Result<Outcomes, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Polled::NotYet = this.asked {
            this.asked = Polled::In(Handle::try_current().ok());
        }
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
        let (Polled::In(first), Some(coming)) = (&self.asked, self.coming.take()) else {
            return;
        };
        let left = AbandonedCharges {
            limiter: self.limiter.clone(),
            charges: self.charges.clone(),
            is_answered: false,
        };
        let current = Handle::try_current();
        if let Some(runtime) = current.as_ref().ok().or(first.as_ref()) {
            spawn(runtime, async move { left.settle(coming.await) });
        }
    }
}

impl<L: Ledger + ?Sized> AbandonedCharges<L> {
    fn settle(mut self, answer: Result<Outcomes, StoreError>) {
        self.is_answered = true;
        if let Ok(outcomes) = answered(&self.charges, answer) {
            drop(Held::of(&self.limiter, &self.charges, &outcomes).later());
        }
    }
}

impl<L: Ledger + ?Sized> Drop for AbandonedCharges<L> {
    fn drop(&mut self) {
        if !self.is_answered {
            unanswered(&self.limiter.policies, &self.charges);
        }
    }
}
