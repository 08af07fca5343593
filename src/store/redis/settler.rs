use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::script::Script;
use crate::clock::Micros;
use crate::error::StoreError;
use crate::store::Charge;

/// Runs the script that settles the real cost of requests. While a call is under way, the settlements that
/// come meanwhile share the next call, or as many calls as they fill: no request waits for them, and a server
/// that is far away gets no backlog.
pub(super) struct Settler {
    pub(super) script: Script,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    waiting: VecDeque<Waiting>,
    /// The number of tasks that make calls.
    under_way: usize,
    /// The number of these tasks that do not include any settlement yet.
    starting: usize,
}

pub(super) struct Waiting {
    pub(super) charge: Charge,
    /// Negative for units to give back.
    pub(super) amount: i64,
    /// Until when it can be given back.
    pub(super) until: Micros,
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// The number of settlements in a call at most: other clients of the server wait meanwhile.
const MOST_TOGETHER: usize = 64;

/// The number of calls under way at most.
const MOST_CALLS: usize = 256;

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

    /// Adds settlements. Returns whether another task has to make calls.
    pub(super) fn add(&self, waiting: Vec<Waiting>) -> bool {
        let mut gathered = self.gathered();
        gathered.waiting.extend(waiting);
        let is_needed = gathered.needs_a_task();
        if is_needed {
            gathered.under_way += 1;
            gathered.starting += 1;
        }
        is_needed
    }

    /// Takes the settlements of the next call. If there are none, the task is over.
    pub(super) fn take(&self, has_begun: bool) -> Vec<Waiting> {
        let mut gathered = self.gathered();
        let together = gathered.waiting.len().min(MOST_TOGETHER);
        gathered.starting -= usize::from(!has_begun);
        gathered.under_way -= usize::from(together == 0);
        gathered.waiting.drain(..together).collect()
    }

    /// Records that a task has ended with its runtime. If it was the last, the waiting settlements are
    /// dropped, which tells their callers.
    pub(super) fn let_go(&self, has_begun: bool) {
        let mut gathered = self.gathered();
        gathered.starting -= usize::from(!has_begun);
        gathered.under_way -= 1;
        if gathered.under_way == 0 {
            let waiting = mem::take(&mut gathered.waiting);
            drop(gathered);
            drop(waiting);
        }
    }
}

impl Gathered {
    /// Returns whether the waiting settlements fill a call more than the starting tasks will take.
    fn needs_a_task(&self) -> bool {
        let left = self
            .waiting
            .len()
            .saturating_sub(self.starting * MOST_TOGETHER);
        let is_full = left >= MOST_TOGETHER && self.under_way < MOST_CALLS;
        is_full || left > 0 && self.under_way == 0
    }
}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settler").finish_non_exhaustive()
    }
}
