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
use crate::limiter::Limiter;
use crate::limiter::background::spawn;
use crate::limiter::on_drop::OnDrop;
use crate::store::{Charge, answered};

type PendingReply = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// The pending answer of a store to the charges of a request.
///
/// If the request goes away first, a task waits for the answer: the store may have charged it.
pub(crate) struct PendingOutcomes {
    limiter: Limiter,
    charges: SmallVec<[Charge; 2]>,
    on_dropped: OnDropped,
    /// `None` once the answer is there.
    coming: Option<PendingReply>,
    /// Whether the store was polled: it may begin when it is first polled.
    is_polled: bool,
    /// The runtime in which it was polled, if there was one. The request may be dropped where there is none.
    runtime: Option<Handle>,
}

/// What becomes of the charges of a request that has gone away, once the store has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDropped {
    /// They are settled as those of a request that ended without an answer. If no answer comes, their settlement is lost.
    Settle,
    /// The turn in a queue is given back.
    GiveTurnBack,
    /// All that was charged is given back.
    Forgo,
}

impl OnDropped {
    fn act(self, limiter: &Limiter, charges: &[Charge], outcomes: &Outcomes) {
        match self {
            Self::Settle => {
                if limiter.keeps_its_turns() {
                    limiter.give_turn_back(charges, outcomes);
                }
                drop(ReservationGuard::of(limiter, charges, |_| true, outcomes).later());
            }
            Self::GiveTurnBack => limiter.give_turn_back(charges, outcomes),
            Self::Forgo => limiter.forgo(charges, outcomes),
        }
    }
}

impl PendingOutcomes {
    pub(crate) fn new(
        limiter: &Limiter,
        charges: &[Charge],
        coming: PendingReply,
        on_dropped: OnDropped,
    ) -> Self {
        Self {
            limiter: limiter.clone(),
            charges: SmallVec::from_slice(charges),
            on_dropped,
            coming: Some(coming),
            is_polled: false,
            runtime: None,
        }
    }
}

impl Future for PendingOutcomes {
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

impl Drop for PendingOutcomes {
    fn drop(&mut self) {
        let Some(coming) = self.coming.take().filter(|_| self.is_polled) else {
            return;
        };
        let (limiter, on_dropped) = (self.limiter.clone(), self.on_dropped);
        let charges = mem::take(&mut self.charges);
        let policies = Arc::clone(&limiter.policies);
        let (of, abandoned) = (Arc::clone(&policies), charges.clone());
        let no_answer = OnDrop::new(move || {
            if on_dropped == OnDropped::Settle {
                unanswered(&of, &abandoned);
            }
        });
        spawn(&policies.backend, self.runtime.as_ref(), async move {
            let answer = coming.await;
            no_answer.disarm();
            if let Ok(outcomes) = answered(&charges, answer) {
                on_dropped.act(&limiter, &charges, &outcomes);
            }
        });
    }
}
