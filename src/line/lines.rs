use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ahash::RandomState;
use tokio::time::Instant;

use super::leaving::Leaving;
use super::order::{Free, Next, Order, PATIENCE};
use super::stretch::Place;
use super::turn::{GiveBack, NoTimer, Turn};
use crate::clock::Timers;
use crate::key::Key;

/// The requests that wait for their turn under one policy.
pub(crate) struct Lines {
    /// By key. None is empty.
    of: Mutex<Orders>,
    leaving: Leaving,
    timers: Timers,
    /// Lines that begin anew number their requests from here on: a request that others have passed may still hold
    /// a number of the line before.
    numbers: AtomicU64,
}

type Orders = HashMap<Key, Order, RandomState>;

impl Lines {
    /// No lines yet, under the policy of this name.
    pub(crate) fn new(policy: &str, timers: Timers) -> Self {
        Self {
            of: Mutex::default(),
            leaving: Leaving::new(policy),
            timers,
            numbers: AtomicU64::new(0),
        }
    }

    /// How long a request of this key would wait in this place.
    #[cfg(feature = "http")]
    pub(crate) fn wait(&self, key: &Key, place: Place) -> Duration {
        let now = self.timers.now();
        let orders = self.lock();
        let due = match orders.get(key) {
            Some(order) => order.due(place),
            None => self.order(now).due(place),
        };
        due.saturating_duration_since(now)
    }

    /// Lets a request of this key wait in this place for `delay`, or for those before it. `None` if it can
    /// go on at once. `give_back` is called with turns that no request takes, now or when this one leaves.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: Key,
        place: Place,
        delay: Duration,
        give_back: GiveBack,
    ) -> Result<Option<Turn>, NoTimer> {
        let mut orders = self.lock();
        if delay.is_zero() && !orders.contains_key(&key) {
            return Ok(None);
        }
        let timer = self.timers.after(delay).ok_or(NoTimer)?;
        let now = self.timers.now();
        let order = orders.entry(key).or_insert_with(|| self.order(now));
        let (number, free) = order.join(place, now);
        drop(orders);
        if let Some(free) = free {
            give_back(free);
        }
        let lines = Arc::clone(self);
        Ok(Some(Turn::new(lines, (key, number), timer, give_back)))
    }

    /// Keeps turns for the next requests of this key that the store could not take back. If they have come
    /// already they move up; returns the turns that they leave then.
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

    /// What this request does next.
    pub(super) fn look(&self, (key, number): (&Key, u64), now: Instant, waker: &Waker) -> Next {
        let mut orders = self.lock();
        match orders.get_mut(key) {
            Some(order) => order.look(number, now, waker),
            None => Next::GoesOn,
        }
    }

    /// Takes a request out of its line, and wakes the next; returns the turns that no request takes.
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

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;
    use crate::clock::Micros;
    use crate::key::IntoKey;

    const TURN: Duration = Duration::from_millis(100);

    fn join(lines: &Arc<Lines>, number: u64) -> Turn {
        let delay = TURN * u32::try_from(number).unwrap();
        let moments = [number, number + 1].map(|turn| Micros::new(100_000 * turn));
        let place = Place::new(1, moments.into(), Instant::now() + delay);
        let turn = lines.join("ann".into_key(), place, delay, Box::new(|_| {}));
        turn.unwrap_or_else(|_| panic!("no timer")).unwrap()
    }

    fn is_ready(turn: &mut Turn) -> bool {
        turn.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// A request that is not polled was passed by the last of its line, and had the number of the first in the
    /// next line: when it was dropped, that one went on at once.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_passed_takes_no_turn_of_the_next_line() {
        let lines = Arc::new(Lines::new("queue", Timers::default()));
        let passed = join(&lines, 1);
        let mut last = join(&lines, 2);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(is_ready(&mut last));
        drop(last);
        let mut next = join(&lines, 5);
        drop(passed);
        assert!(!is_ready(&mut next));
        tokio::time::advance(5 * TURN).await;
        assert!(is_ready(&mut next));
    }
}
