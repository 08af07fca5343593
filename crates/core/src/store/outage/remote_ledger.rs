use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use ahash::RandomState;

use super::watch::{Probe, Remote, late};
use crate::clock::{Micros, Timers};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{IntoKey, Key};
use crate::policy::Policy;
use crate::store::{Amendment, Charge, Ledger};

/// Any ledger as a remote store with one part, which is probed through one of the ledgers over it.
pub(super) struct RemoteLedger {
    deadline: Duration,
    ledgers: Mutex<Vec<Opened>>,
    /// The key of the probes, which clients cannot guess.
    key: Key,
}

struct Opened {
    ledger: Weak<dyn Ledger>,
    /// The index of a policy that has a limit.
    policy: usize,
}

/// How long the block of a probe lasts.
const WRITTEN_FOR: Micros = Micros::from_secs(1);

impl RemoteLedger {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            ledgers: Mutex::default(),
            key: ("probe", RandomState::new().hash_one(0)).into_key(),
        }
    }

    pub(super) fn add<L: Ledger>(&self, ledger: &Arc<L>, policies: &[Policy]) {
        let Some(policy) = policies.iter().position(Policy::is_limited) else {
            return;
        };
        let ledger: Arc<dyn Ledger> = Arc::clone(ledger) as _;
        let ledger = Arc::downgrade(&ledger);
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.retain(|opened| opened.ledger.strong_count() > 0);
        ledgers.push(Opened { ledger, policy });
    }

    /// Returns a ledger that still exists, and a charge for a probe of it.
    fn any(&self) -> Option<(Arc<dyn Ledger>, Charge)> {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.iter().find_map(|opened| {
            let charge = Charge::new(opened.policy, self.key, 1);
            Some((opened.ledger.upgrade()?, charge))
        })
    }
}

impl Remote for RemoteLedger {
    fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Blocks the key of the probes for a moment, which always writes. A store that cannot block is charged.
    fn probe(&self, _: u16) -> Probe {
        let (any, deadline) = (self.any(), self.deadline);
        Box::pin(async move {
            let Some((ledger, charge)) = any else {
                return Err(late());
            };
            let charge = [charge];
            let blocked = ledger.amend(&charge, Amendment::Block(WRITTEN_FOR));
            match in_time(deadline, blocked.wait()).await {
                Err(error) if error.kind() == StoreErrorKind::Unsupported => {
                    let charged = ledger.decide(&charge).wait();
                    in_time(deadline, charged).await.map(drop)
                }
                blocked => blocked.map(drop),
            }
        })
    }

    fn longest_probe(&self) -> Duration {
        self.deadline * 4
    }
}

/// Waits at most this long for the answer to a call. Without a runtime that has timers, it waits for the
/// answer.
pub(super) async fn in_time<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut timer = Timers::default().after(deadline);
    let mut answer = std::pin::pin!(answer);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        match timer.as_mut().map(|timer| timer.poll(cx)) {
            // It may be the write that hangs, of a store that answers whatever writes nothing.
            Some(Poll::Ready(())) => Poll::Ready(Err(late().of_a_write())),
            _ => Poll::Pending,
        }
    })
    .await
}
