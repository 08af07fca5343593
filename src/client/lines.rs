//! The lines of all keys, behind one lock.
//!
//! A call enters here: it goes, waits as a [`WaitingCall`], or is refused. A call on its way is a [`Call`], which tells
//! its line when it comes back. Both do so when they are dropped, since a future can be dropped at any time.
//! Wakers are woken outside the lock, as a task that is woken may ask at once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime};

use ahash::RandomState;
use tokio::time::Instant;

use tower_ratelimit_core::__internal::{Timer, Timers, Woken};

use super::line::{Line, Next};
use super::throttle::{CallPermission, CallResult, Sent};
use super::throttled::{Reason, Throttled};
use crate::key::Key;

/// The lines of all keys. Clones of a layer and of its services share them.
#[derive(Default)]
pub(super) struct Lines {
    table: Mutex<LinesByKey>,
    timers: Timers,
}

#[derive(Default)]
struct LinesByKey {
    lines: HashMap<Key, Line, RandomState>,
    /// The keys without calls, in the order in which they are forgotten: by the end of their hold, or by
    /// their last call. The number distinguishes keys of the same moment.
    resting: BTreeMap<(Instant, u64), Key>,
    rests: u64,
}

/// The settings of the layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) max_hold: Duration,
    pub(super) longest_wait: Option<Duration>,
    pub(super) waiting: usize,
    pub(super) keys: usize,
}

/// The result for a new call.
pub(super) enum Entry {
    /// It goes. `None` if there is no room to learn from its response.
    Go(Option<Call>),
    Wait(WaitingCall),
    Refuse(Throttled),
}

/// A call on its way. Dropping it says that its caller no longer waits for the response.
pub(super) struct Call {
    lines: Arc<Lines>,
    key: Key,
    sent: Sent,
    max_hold: Duration,
    back: CallResult,
}

/// A call that waits. Dropping it leaves the line.
pub(super) struct WaitingCall {
    lines: Arc<Lines>,
    key: Key,
    number: u64,
    max_hold: Duration,
    deadline: Option<Instant>,
    timer: Timer,
    has_gone: bool,
}

impl Lines {
    pub(super) fn new(timers: Timers) -> Self {
        Self {
            table: Mutex::default(),
            timers,
        }
    }

    /// Lets a call of this key in.
    pub(super) fn enter(self: &Arc<Self>, key: Key, bounds: Bounds) -> Entry {
        let now = self.timers.now();
        let mut table = self.lock();
        let Some(line) = table.line(key, bounds.keys) else {
            return Entry::Go(None);
        };
        let call = |sent| Call {
            lines: Arc::clone(self),
            key,
            sent,
            max_hold: bounds.max_hold,
            back: CallResult::Lost,
        };
        let entry = match line.may(now) {
            CallPermission::Go => Entry::Go(Some(call(line.send(now)))),
            CallPermission::NotBefore(at)
                if bounds.longest_wait.is_some_and(|most| at - now > most) =>
            {
                Entry::Refuse(Throttled::new(at - now, Reason::TooLong))
            }
            CallPermission::NotBefore(at) | CallPermission::NotBeforeAnswer(at) => {
                if line.waiting() >= bounds.waiting {
                    Entry::Refuse(Throttled::new(at - now, Reason::TooMany))
                } else if let Some(timer) = self.timers.after(Duration::ZERO) {
                    Entry::Wait(WaitingCall {
                        lines: Arc::clone(self),
                        key,
                        number: line.join(),
                        max_hold: bounds.max_hold,
                        deadline: bounds.longest_wait.and_then(|most| now.checked_add(most)),
                        timer,
                        has_gone: false,
                    })
                } else {
                    Entry::Refuse(Throttled::new(at - now, Reason::NoTimer))
                }
            }
        };
        table.settle(key, now);
        entry
    }

    /// Returns how much longer calls of this key are held.
    pub(super) fn remaining_hold(&self, key: &Key) -> Option<Duration> {
        let now = self.timers.now();
        let table = self.lock();
        let until = table.lines.get(key)?.standing.hold_end(now)?;
        Some(until - now)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().lines.len()
    }

    fn lock(&self) -> MutexGuard<'_, LinesByKey> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinesByKey {
    /// Returns the line of this key. `None` if the table is full of lines with calls.
    fn line(&mut self, key: Key, most: usize) -> Option<&mut Line> {
        if !self.lines.contains_key(&key) && self.lines.len() >= most {
            let (_, forgotten) = self.resting.pop_first()?;
            self.lines.remove(&forgotten);
        }
        Some(self.lines.entry(key).or_insert_with(Line::new))
    }

    /// Notes whether a line is at rest, after something has changed.
    fn settle(&mut self, key: Key, now: Instant) -> Option<&mut Line> {
        let line = self.lines.get_mut(&key)?;
        if let Some(place) = line.rests.take() {
            self.resting.remove(&place);
        }
        if line.is_at_rest() {
            let since = line.standing.hold_end(now).unwrap_or(now);
            let place = (since, self.rests);
            self.rests += 1;
            self.resting.insert(place, key);
            line.rests = Some(place);
        }
        Some(line)
    }

    /// Like [`settle`](Self::settle), for a change that may let calls go: returns their wakers.
    fn settle_and_wake(&mut self, key: Key, now: Instant) -> Woken {
        self.settle(key, now)
            .map(|line| line.wake(now))
            .unwrap_or_default()
    }
}

/// Wakes them. The lock must be free, since a task that is woken may ask at once.
fn wake(woken: impl IntoIterator<Item = Waker>) {
    woken.into_iter().for_each(Waker::wake);
}

impl Call {
    /// Returns the time on the wall.
    pub(super) fn wall(&self) -> SystemTime {
        self.lines.timers.wall()
    }

    /// The call has come back.
    pub(super) fn back(mut self, with: CallResult) {
        self.back = with;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let now = self.lines.timers.now();
        let mut table = self.lines.lock();
        if let Some(line) = table.lines.get_mut(&self.key) {
            let standing = &mut line.standing;
            standing.back(self.sent, self.back, self.max_hold, now);
        }
        let woken = table.settle_and_wake(self.key, now);
        drop(table);
        wake(woken);
    }
}

/// The answer to a call that waits.
enum Admission {
    /// It asks again at this moment, unless it is woken before.
    Again(Instant),
    Done(Result<Call, Throttled>),
}

impl WaitingCall {
    /// Returns whether the call may go.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Call, Throttled>> {
        loop {
            let now = self.lines.timers.now();
            let again_at = match self.ask(cx.waker(), now) {
                Admission::Again(at) => at,
                Admission::Done(end) => return Poll::Ready(end),
            };
            if self.timer.deadline() != again_at {
                self.timer.reset(again_at);
            }
            ready!(self.timer.poll(cx));
        }
    }

    /// Asks whether the call may go.
    fn ask(&mut self, waker: &Waker, now: Instant) -> Admission {
        let mut table = self.lines.lock();
        let Some(line) = table.lines.get_mut(&self.key) else {
            return Admission::Done(Err(Throttled::new(Duration::ZERO, Reason::TooLong)));
        };
        let (hold_end, again_at, woken) = match line.ask(self.number, waker, now) {
            Next::Goes(sent) => {
                let woken = table.settle_and_wake(self.key, now);
                drop(table);
                wake(woken);
                self.has_gone = true;
                return Admission::Done(Ok(Call {
                    lines: Arc::clone(&self.lines),
                    key: self.key,
                    sent,
                    max_hold: self.max_hold,
                    back: CallResult::Lost,
                }));
            }
            Next::Waits {
                hold_end,
                again_at,
                woken,
            } => (hold_end, again_at, woken),
        };
        drop(table);
        wake(woken);
        let end = hold_end.unwrap_or(now);
        // A call that would wait in vain fails at once.
        if self
            .deadline
            .is_some_and(|deadline| deadline < end || deadline <= now)
        {
            return Admission::Done(Err(Throttled::new(end - now, Reason::TooLong)));
        }
        let deadline = self.deadline.unwrap_or(again_at);
        Admission::Again(again_at.min(deadline))
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        if self.has_gone {
            return;
        }
        let now = self.lines.timers.now();
        let mut table = self.lines.lock();
        if let Some(line) = table.lines.get_mut(&self.key) {
            line.leave(self.number);
        }
        let woken = table.settle_and_wake(self.key, now);
        drop(table);
        wake(woken);
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl fmt::Debug for WaitingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingCall").finish_non_exhaustive()
    }
}
