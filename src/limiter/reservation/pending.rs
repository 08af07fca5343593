//! The answer of a store to a request that may go away before it.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::ReservationGuard;
use super::settlement::unanswered;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::limiter::background::spawn;
use crate::limiter::on_drop::OnDrop;
use crate::limiter::{Limiter, Policies};
use crate::store::{Charge, Ledger, answered};

type PendingReply = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// The pending answer of a store to the charges of a request.
///
/// If the request goes away first, a task waits for the answer: the store may have charged it.
pub(crate) struct PendingOutcomes<L: Ledger + ?Sized> {
    limiter: Limiter<L>,
    charges: SmallVec<[Charge; 2]>,
    gone: Gone<L>,
    /// `None` once the answer is there.
    coming: Option<PendingReply>,
    /// Whether the store was polled: it may begin when it is first polled.
    is_polled: bool,
    /// The runtime in which it was polled, if there was one. The request may be dropped where there is none.
    runtime: Option<Handle>,
}

/// What becomes of the charges of a request that has gone away, once the store has answered, or if no answer comes. It is
/// made of pointers, so that a program that settles nothing does not contain the code.
struct Gone<L: Ledger + ?Sized> {
    answered: fn(&Limiter<L>, &[Charge], &Outcomes),
    unanswered: fn(&Policies, &[Charge]),
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
                drop(ReservationGuard::of(limiter, charges, outcomes).later());
            },
            unanswered,
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
            limiter: limiter.clone(),
            charges: SmallVec::from_slice(charges),
            gone,
            coming: Some(coming),
            is_polled: false,
            runtime: None,
        }
    }
}

impl<L: Ledger + ?Sized> Future for PendingOutcomes<L> {
    type Output = Result<Outcomes, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.is_polled {
            this.is_polled = true;
            this.runtime = Handle::try_current().ok();
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
        let Some(coming) = self.coming.take().filter(|_| self.is_polled) else {
            return;
        };
        let (limiter, gone) = (self.limiter.clone(), self.gone);
        let charges = mem::take(&mut self.charges);
        let policies = Arc::clone(&limiter.policies);
        let (of, abandoned) = (Arc::clone(&policies), charges.clone());
        let no_answer = OnDrop::new(move || (gone.unanswered)(&of, &abandoned));
        spawn(&policies.ledger, self.runtime.as_ref(), async move {
            let answer = coming.await;
            no_answer.disarm();
            if let Ok(outcomes) = answered(&charges, answer) {
                (gone.answered)(&limiter, &charges, &outcomes);
            }
        });
    }
}

impl<L: Ledger + ?Sized> Clone for Gone<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Ledger + ?Sized> Copy for Gone<L> {}
