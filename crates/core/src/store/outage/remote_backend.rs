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
use crate::store::{Amendment, Backend, Charge};

/// Any backend as a remote store with one part, which is probed through one of the backends over it.
pub(super) struct RemoteBackend {
    deadline: Duration,
    backends: Mutex<Vec<Opened>>,
    /// The key of the probes, which clients cannot guess.
    key: Key,
}

struct Opened {
    backend: Weak<dyn Backend>,
    /// The index of a policy that has a limit.
    policy: usize,
}

/// How long the block of a probe lasts.
const WRITTEN_FOR: Micros = Micros::from_secs(1);

impl RemoteBackend {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            backends: Mutex::default(),
            key: ("probe", RandomState::new().hash_one(0)).into_key(),
        }
    }

    pub(super) fn add<L: Backend>(&self, backend: &Arc<L>, policies: &[Policy]) {
        let Some(policy) = policies.iter().position(Policy::is_limited) else {
            return;
        };
        let backend: Arc<dyn Backend> = Arc::clone(backend) as _;
        let backend = Arc::downgrade(&backend);
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.retain(|opened| opened.backend.strong_count() > 0);
        backends.push(Opened { backend, policy });
    }

    /// Returns a backend that still exists, and a charge for a probe of it.
    fn any(&self) -> Option<(Arc<dyn Backend>, Charge)> {
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.iter().find_map(|opened| {
            let charge = Charge::new(opened.policy, self.key, 1);
            Some((opened.backend.upgrade()?, charge))
        })
    }
}

impl Remote for RemoteBackend {
    fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Blocks the key of the probes for a moment, which always writes. A store that cannot block is charged.
    fn probe(&self, _: u16) -> Probe {
        let (any, deadline) = (self.any(), self.deadline);
        Box::pin(async move {
            let Some((backend, charge)) = any else {
                return Err(late());
            };
            let charge = [charge];
            let blocked = backend.amend(&charge, Amendment::Block(WRITTEN_FOR));
            match in_time(deadline, blocked.wait()).await {
                Err(error) if error.kind() == StoreErrorKind::Unsupported => {
                    let charged = backend.decide(&charge).wait();
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
pub(in crate::store) async fn in_time<T>(
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
