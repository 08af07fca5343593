use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ahash::RandomState;
use tokio::time::Instant;

use super::leaving::Leaving;
use super::order::{Free, Next, Order, PATIENCE};
use super::stretch::Place;
use crate::clock::{Timer, Timers};
use crate::key::Key;

/// The requests that wait for their turn under one policy.
pub(crate) struct Lines {
    /// Only keys with waiting requests have an entry.
    of: Mutex<Orders>,
    leaving: Leaving,
    timers: Timers,
    /// The first number of a new line. Numbers are not reused: a request that was passed by others may still
    /// hold a number of the line before.
    numbers: AtomicU64,
}

/// The runtime has no timer that could wake a request when it is due.
pub(crate) struct NoTimer;

/// The result of entering a line.
pub(super) struct Entered {
    /// The number of the request in the line.
    pub(super) number: u64,
    pub(super) timer: Timer,
    /// Turns that became free, which no request takes.
    pub(super) free: Option<Free>,
}

type Orders = HashMap<Key, Order, RandomState>;

impl Lines {
    /// Creates the lines of the policy with this name.
    pub(crate) fn new(policy: &str, timers: Timers) -> Self {
        Self {
            of: Mutex::default(),
            leaving: Leaving::new(policy),
            timers,
            numbers: AtomicU64::new(0),
        }
    }

    /// Returns how long a request of this key would wait in this place.
    pub(crate) fn wait(&self, key: &Key, place: Place) -> Duration {
        let now = self.timers.now();
        let orders = self.lock();
        let due = match orders.get(key) {
            Some(order) => order.due(place),
            None => self.order(now).due(place),
        };
        due.saturating_duration_since(now)
    }

    /// Lets a request of this key enter its line at this place. The request waits for `delay`, or for the
    /// requests before it. Returns `None` if it can go on at once.
    pub(super) fn enter(
        &self,
        key: Key,
        place: Place,
        delay: Duration,
    ) -> Result<Option<Entered>, NoTimer> {
        let mut orders = self.lock();
        if delay.is_zero() && !orders.contains_key(&key) {
            return Ok(None);
        }
        let timer = self.timers.after(delay).ok_or(NoTimer)?;
        let now = self.timers.now();
        let order = orders.entry(key).or_insert_with(|| self.order(now));
        let (number, free) = order.join(place, now);
        Ok(Some(Entered {
            number,
            timer,
            free,
        }))
    }

    /// Keeps turns that the store could not take back, for the next requests of this key. If such requests
    /// wait already, they move up; returns the turns that they leave.
    pub(crate) fn keep(&self, key: &Key, free: Free) -> Option<Free> {
        // The queue of this process has taken them back itself.
        if free.is_degraded() {
            return None;
        }
        let mut orders = self.lock();
        let (free, next) = orders.get_mut(key)?.keep(free);
        drop(orders);
        if let Some(next) = next {
            next.wake();
        }
        free
    }

    /// Returns what this request does next.
    pub(super) fn look(&self, (key, number): (&Key, u64), now: Instant, waker: &Waker) -> Next {
        let mut orders = self.lock();
        match orders.get_mut(key) {
            Some(order) => order.look(number, now, waker),
            None => Next::GoesOn,
        }
    }

    /// Removes a request from its line, and wakes the next one. Returns the turns that no request takes.
    pub(super) fn leave(&self, (key, number): (&Key, u64), has_gone_on: bool) -> Option<Free> {
        self.leaving.ended(has_gone_on);
        let mut orders = self.lock();
        let order = orders.get_mut(key)?;
        let (free, next) = order.leave(number, self.timers.now());
        if order.is_empty() {
            self.numbers.fetch_max(order.joined(), Ordering::Relaxed);
            orders.remove(key);
        }
        drop(orders);
        if let Some(next) = next {
            next.wake();
        }
        free
    }

    pub(super) fn now(&self) -> Instant {
        self.timers.now()
    }

    fn order(&self, now: Instant) -> Order {
        Order::new(now, self.timers.patience(PATIENCE))
            .numbered_from(self.numbers.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("leaving", &self.leaving)
            .finish_non_exhaustive()
    }
}
