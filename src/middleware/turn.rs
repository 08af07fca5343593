//! Holds requests until it is their turn.
//!
//! A timer alone would not keep the order: it bunches what is due within a millisecond or so. Each
//! request therefore waits for the one before it as well.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ahash::RandomState;
use tokio::time::Instant;

use crate::clock::{Micros, Timer, Timers};
use crate::diagnostics::Diagnostic;
use crate::key::Key;

/// The requests that are held, of each key in the order in which they leave.
pub(super) struct Lines {
    of: Mutex<HashMap<Key, Line, RandomState>>,
    timers: Timers,
}

/// Those of one key, each with the one to be woken when it comes to the front.
#[derive(Default)]
struct Line {
    places: BTreeMap<Place, Option<Waker>>,
    /// How many have joined since the line was empty.
    joined: u64,
}

/// When a request leaves by the store's clock, and its number among those of its key: whoever was
/// decided about first stands before the others, even if its thread is slower to join.
type Place = (Micros, u64);

/// A request's turn: ready when it may go on. To keep the order it is dropped after the request has
/// gone on.
pub(super) struct Turn {
    lines: Arc<Lines>,
    key: Key,
    place: Place,
    due: Instant,
    timer: Timer,
    /// What becomes of the place if the request goes away and nobody is behind it.
    give_back: Option<GiveBack>,
}

type GiveBack = Box<dyn FnOnce() + Send + Sync>;

/// There is nothing that would wake a request when it is due.
pub(super) struct NoTimer;

pub(super) const NO_TIMER: Diagnostic = Diagnostic::new(
    "TRL009",
    "waiting",
    "a request has to wait for its turn, and there is no runtime of tokio's to wake it",
    "serve on tokio, with its timers enabled (`Builder::enable_time`), or take policies that let nobody wait",
);

/// One that is due and does not go on, since nobody polls it, holds up those behind it for so long.
const PATIENCE: Duration = Duration::from_secs(1);

impl Lines {
    pub(super) fn new(timers: Timers) -> Self {
        Self {
            of: Mutex::default(),
            timers,
        }
    }

    /// Puts a request that leaves at this moment, after this time, behind those of its key that leave
    /// earlier. `None` if it can go on at once.
    pub(super) fn join(
        self: &Arc<Self>,
        key: Key,
        departure: Micros,
        delay: Duration,
        give_back: impl FnOnce() + Send + Sync + 'static,
    ) -> Result<Option<Turn>, NoTimer> {
        let mut lines = self.lock();
        if delay.is_zero() && !lines.contains_key(&key) {
            return Ok(None);
        }
        let timer = self.timers.after(delay).ok_or(NoTimer)?;
        let due = timer.deadline();
        let line = lines.entry(key).or_default();
        let place = (departure, line.joined);
        line.joined += 1;
        line.places.insert(place, None);
        Ok(Some(Turn {
            lines: Arc::clone(self),
            key,
            place,
            due,
            timer,
            give_back: Some(Box::new(give_back)),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Line, RandomState>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let has_fired = self.timer.poll(cx).is_ready();
            // It was due before, and has waited since for the one before it.
            let was_due = self.timer.deadline() > self.due;
            let is_due = has_fired || was_due;
            let mut lines = self.lines.lock();
            let Some(line) = lines.get_mut(&self.key) else {
                return Poll::Ready(());
            };
            let is_first = line.places.keys().next() == Some(&self.place);
            let is_passed = !line.places.contains_key(&self.place);
            if is_due && (is_first || is_passed) || has_fired && was_due {
                if !is_first && !is_passed {
                    // Nobody polls those before it: they hold up nobody else.
                    line.places = line.places.split_off(&self.place);
                }
                // It is used now, even if the request goes away before it has gone on.
                self.give_back = None;
                return Poll::Ready(());
            }
            if let Some(waker) = line.places.get_mut(&self.place) {
                *waker = Some(cx.waker().clone());
            }
            drop(lines);
            if !has_fired {
                return Poll::Pending;
            }
            let timers = &self.lines.timers;
            let patience = timers.patience(PATIENCE);
            self.timer.reset(timers.now() + patience);
        }
    }
}

/// Its request has gone on, or has gone away.
impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        let was_first = line.places.keys().next() == Some(&self.place);
        let was_last = line.places.keys().next_back() == Some(&self.place);
        line.places.remove(&self.place);
        let next = line.places.first_entry().filter(|_| was_first);
        let next = next.and_then(|mut next| next.get_mut().take());
        if line.places.is_empty() {
            lines.remove(&self.key);
        }
        drop(lines);
        if let Some(next) = next {
            next.wake();
        }
        if was_last && let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
