//! The answer of a store to a request that may go away before it.

use std::pin::Pin;
use std::sync::Arc;
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

/// The pending answer of a store to the charges of a request.
///
/// If the request goes away first, a task waits for the answer: the store may have charged it.
pub(crate) struct PendingOutcomes<L: Ledger + ?Sized> {
    charges: AbandonedCharges<L>,
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

/// Charges of a request that may go away.
struct AbandonedCharges<L: Ledger + ?Sized> {
    limiter: Limiter<L>,
    charges: SmallVec<[Charge; 2]>,
    gone: Gone<L>,
    /// Whether a task waits for the answer, which may never come.
    is_awaited: bool,
}

/// What becomes of the charges of a request that has gone away, once the store has answered, or if no answer comes. It is
/// made of pointers, so that a program that settles nothing does not contain the code.
struct Gone<L: Ledger + ?Sized> {
    answered: fn(&Limiter<L>, &[Charge], &Outcomes),
    unanswered: fn(&Limiter<L>, &[Charge]),
}

impl<L: Ledger + ?Sized> PendingOutcomes<L> {
    /// Holds the charges. They are settled as those of a request that ended without an answer. If no answer comes, their
    /// settlement is lost.
    pub(crate) fn new(limiter: &Limiter<L>, charges: &[Charge], coming: PendingReply) -> Self {
        let gone = Gone {
            answered: |limiter, charges, outcomes| {
                if limiter.keeps_its_turns() {
                    limiter.give_turn_back(charges, outcomes);
                }
                drop(Held::of(limiter, charges, outcomes).later());
            },
            unanswered: |limiter, charges| unanswered(&limiter.policies, charges),
        };
        Self::ending(limiter, charges, coming, gone)
    }

    /// Gives the turn in a queue back.
    pub(crate) fn of_turn(limiter: &Limiter<L>, charges: &[Charge], coming: PendingReply) -> Self {
        let gone = Gone {
            answered: Limiter::give_turn_back,
            unanswered: |_, _| {},
        };
        Self::ending(limiter, charges, coming, gone)
    }

    /// Gives back all that was charged.
    pub(crate) fn forgone(limiter: &Limiter<L>, charges: &[Charge], coming: PendingReply) -> Self {
        let gone = Gone {
            answered: Limiter::forgo,
            unanswered: |_, _| {},
        };
        Self::ending(limiter, charges, coming, gone)
    }

    fn ending(
        limiter: &Limiter<L>,
        charges: &[Charge],
        coming: PendingReply,
        gone: Gone<L>,
    ) -> Self {
        Self {
            charges: AbandonedCharges {
                limiter: limiter.clone(),
                charges: SmallVec::from_slice(charges),
                gone,
                is_awaited: false,
            },
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
            limiter: self.charges.limiter.clone(),
            charges: self.charges.charges.clone(),
            gone: self.charges.gone,
            is_awaited: true,
        };
        let policies = Arc::clone(&left.limiter.policies);
        spawn(&policies.ledger, first.as_ref(), async move {
            left.end(coming.await);
        });
    }
}

impl<L: Ledger + ?Sized> AbandonedCharges<L> {
    fn end(mut self, answer: Result<Outcomes, StoreError>) {
        self.is_awaited = false;
        if let Ok(outcomes) = answered(&self.charges, answer) {
            (self.gone.answered)(&self.limiter, &self.charges, &outcomes);
        }
    }
}

impl<L: Ledger + ?Sized> Drop for AbandonedCharges<L> {
    fn drop(&mut self) {
        if self.is_awaited {
            (self.gone.unanswered)(&self.limiter, &self.charges);
        }
    }
}

impl<L: Ledger + ?Sized> Clone for Gone<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Ledger + ?Sized> Copy for Gone<L> {}
