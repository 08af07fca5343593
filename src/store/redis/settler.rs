use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::script::Script;
use crate::clock::Micros;
use crate::error::StoreError;
use crate::store::Charge;

/// The script that settles what requests have really cost. One call is under way at a time, and those that come meanwhile
/// share the next: nothing waits for them.
pub(super) struct Settler {
    pub(super) script: Script,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    waiting: Vec<Waiting>,
    is_under_way: bool,
}

pub(super) struct Waiting {
    pub(super) charge: Charge,
    /// Less than 0 to give it back.
    pub(super) amount: i64,
    /// Until when it can be given back.
    pub(super) until: Micros,
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// How many settlements share a call at most: other clients of the server wait meanwhile.
const MOST_TOGETHER: usize = 64;

impl Settler {
    pub(super) fn new(script: Script) -> Self {
        Self {
            script,
            gathered: Mutex::default(),
        }
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a task has to make the calls.
    pub(super) fn add(&self, waiting: Vec<Waiting>) -> bool {
        let mut gathered = self.gathered();
        gathered.waiting.extend(waiting);
        !mem::replace(&mut gathered.is_under_way, true)
    }

    /// Those that share the next call. If there are none, the task is over.
    pub(super) fn take(&self) -> Vec<Waiting> {
        let mut gathered = self.gathered();
        let together = gathered.waiting.len().min(MOST_TOGETHER);
        gathered.is_under_way = together > 0;
        gathered.waiting.drain(..together).collect()
    }

    /// The task has ended with its runtime: those that wait are let go, and told so by that.
    pub(super) fn let_go(&self) {
        let mut gathered = self.gathered();
        gathered.is_under_way = false;
        let waiting = mem::take(&mut gathered.waiting);
        drop(gathered);
        drop(waiting);
    }
}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settler").finish_non_exhaustive()
    }
}
