//! The lines of a queue, each with the requests of one key in this process.

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
use super::round::Tenant;
use super::stretch::{Place, Stretch};
use crate::clock::{Timer, Timers};
use crate::key::Key;

/// The requests that wait for their turn under one policy.
pub(crate) struct Lines {
    of: Mutex<Orders>,
    leaving: Leaving,
    timers: Timers,
    /// The first number of a new line. Numbers are not reused: a request that was passed by others may still
    /// hold a number of the line before.
    numbers: AtomicU64,
    /// How many tenants of a line are told apart, if tenants share its key.
    tenants: Option<usize>,
}

/// Whose turns a line has: those of a key, or those of the entry that keys share for which a full store in memory
/// has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LineOf {
    Key(Key),
    Overflow,
}

#[derive(Default)]
struct Orders {
    /// Only lines with waiting requests or spare turns have an entry.
    of: HashMap<LineOf, Order, RandomState>,
    /// The number of lines without requests.
    idle: usize,
}

/// The number of lines without requests whose spare turns are kept. Those of further lines pass unused.
const MOST_IDLE: usize = 1_024;

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

impl Lines {
    /// Creates the lines of the policy with this name.
    pub(crate) fn new(policy: &str, timers: Timers) -> Self {
        Self {
            of: Mutex::default(),
            leaving: Leaving::new(policy),
            timers,
            numbers: AtomicU64::new(0),
            tenants: None,
        }
    }

    /// Lets the tenants of a key take turns, of which this many are told apart.
    pub(crate) fn shared_by(self, tenants: usize) -> Self {
        Self {
            tenants: Some(tenants),
            ..self
        }
    }

    /// Returns whether tenants share the key of a line.
    pub(crate) fn are_shared(&self) -> bool {
        self.tenants.is_some()
    }

    /// Returns how long a request of this tenant would wait in this place.
    pub(crate) fn wait(&self, line: LineOf, place: Place, tenant: Option<Tenant>) -> Duration {
        let now = self.timers.now();
        let orders = self.lock();
        let due = match orders.of.get(&line) {
            Some(order) => order.due(place, tenant, now),
            None => self.order(now).due(place, tenant, now),
        };
        due.saturating_duration_since(now)
    }

    /// Lets a request enter a line at this place. The request waits for `delay`, or for the requests before
    /// it. Returns `None` if it can go on at once.
    pub(super) fn enter(
        &self,
        line: LineOf,
        (place, tenant): (Place, Option<Tenant>),
        delay: Duration,
    ) -> Result<Option<Entered>, NoTimer> {
        let mut orders = self.lock();
        if delay.is_zero() {
            match orders.of.get_mut(&line) {
                None => return Ok(None),
                // The store counts no turn that has not begun.
                Some(order) if order.is_empty() => {
                    order.forget_spare_before(&Stretch::all_of(place));
                    return Ok(None);
                }
                Some(_) => {}
            }
        }
        let timer = self.timers.after(delay).ok_or(NoTimer)?;
        let now = self.timers.now();
        let (number, free) = self.change(&mut orders, line, now, |order| {
            let number = order.join(place, tenant, now);
            (number, order.next_return(now))
        });
        Ok(Some(Entered {
            number,
            timer,
            free,
        }))
    }

    /// Adds turns that no request takes, so that the requests behind them move up. Returns turns to give back
    /// to the store; [`answered`](Self::answered) has to follow.
    pub(crate) fn free(&self, line: LineOf, free: Free) -> Option<Free> {
        let (mut orders, now) = (self.lock(), self.timers.now());
        let (next, free) = self.change(&mut orders, line, now, |order| {
            (order.free(free, now), order.next_return(now))
        });
        drop(orders);
        wake(next);
        free
    }

    /// Records whether the store has taken these turns back, if that is known. If not, they are kept for the
    /// next requests of the line until they begin, and those that wait already move up. Returns turns to give
    /// back next; [`answered`](Self::answered) has to follow.
    pub(crate) fn answered(
        &self,
        line: LineOf,
        free: Free,
        are_given_back: Option<bool>,
    ) -> Option<Free> {
        let (mut orders, now) = (self.lock(), self.timers.now());
        let (free, next) = self.change(&mut orders, line, now, |order| {
            order.answered(free, are_given_back, now)
        });
        drop(orders);
        wake(next);
        free
    }

    /// Returns what this request does next.
    pub(super) fn look(&self, (line, number): (LineOf, u64), now: Instant, waker: &Waker) -> Next {
        let mut orders = self.lock();
        match orders.of.get_mut(&line) {
            Some(order) => order.look(number, now, waker),
            None => Next::GoesOn,
        }
    }

    /// Removes a request from its line, and wakes the next one. Returns turns to give back to the store;
    /// [`answered`](Self::answered) has to follow.
    pub(super) fn leave(&self, (line, number): (LineOf, u64), has_gone_on: bool) -> Option<Free> {
        self.leaving.ended(has_gone_on);
        let (mut orders, now) = (self.lock(), self.timers.now());
        if !orders.of.contains_key(&line) {
            return None;
        }
        let (free, next) = self.change(&mut orders, line, now, |order| {
            let (are_free, next) = order.leave(number, now);
            let free = if are_free {
                order.next_return(now)
            } else {
                None
            };
            (free, next)
        });
        drop(orders);
        wake(next);
        free
    }

    /// Changes a line, which begins and ends with that if need be.
    fn change<T>(
        &self,
        orders: &mut Orders,
        line: LineOf,
        now: Instant,
        change: impl FnOnce(&mut Order) -> T,
    ) -> T {
        let mut was_idle = false;
        let entry = orders.of.entry(line);
        let order = entry
            .and_modify(|order| was_idle = order.is_empty())
            .or_insert_with(|| self.order(now));
        let changed = change(order);
        let (is_idle, is_over) = (order.is_empty(), order.is_over(now));
        orders.idle -= usize::from(was_idle);
        if is_over || is_idle && !self.has_room(orders, now) {
            if let Some(order) = orders.of.remove(&line) {
                self.ends(&order);
            }
        } else {
            orders.idle += usize::from(is_idle);
        }
        changed
    }

    /// Returns whether one more line without requests can be kept.
    fn has_room(&self, orders: &mut Orders, now: Instant) -> bool {
        if orders.idle < MOST_IDLE {
            return true;
        }
        let before = orders.of.len();
        orders.of.retain(|_, order| {
            let is_over = order.is_over(now);
            if is_over {
                self.ends(order);
            }
            !is_over
        });
        orders.idle -= before - orders.of.len();
        orders.idle < MOST_IDLE
    }

    fn ends(&self, order: &Order) {
        self.numbers.fetch_max(order.joined(), Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Instant {
        self.timers.now()
    }

    fn order(&self, now: Instant) -> Order {
        Order::new(now, self.timers.patience(PATIENCE))
            .numbered_from(self.numbers.load(Ordering::Relaxed))
            .shared_by(self.tenants)
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(next: Option<Waker>) {
    if let Some(next) = next {
        next.wake();
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
    use super::*;
    use crate::clock::Micros;
    use crate::key::IntoKey;

    fn turn() -> Free {
        let moments = [0, 1_000_000, 2_000_000].map(Micros::new);
        let due = Instant::now() + Duration::from_secs(1);
        Free::all_of(Place::new(1, moments, due), None)
    }

    #[test]
    fn a_line_without_requests_ends_once_the_store_has_its_turns_back() {
        let lines = Lines::new("queue", Timers::default());
        let free = lines.free(LineOf::Overflow, turn()).unwrap();
        let kept = |lines: &Lines| {
            let orders = lines.lock();
            (orders.of.len(), orders.idle)
        };
        assert_eq!(kept(&lines), (1, 1));
        assert!(lines.answered(LineOf::Overflow, free, Some(true)).is_none());
        assert_eq!(kept(&lines), (0, 0));
    }

    /// However many keys clients invent.
    #[test]
    fn a_bounded_number_of_lines_without_requests_is_kept() {
        let lines = Lines::new("queue", Timers::default());
        for key in 0..2_000_u32 {
            assert!(lines.free(LineOf::Key(key.into_key()), turn()).is_some());
        }
        assert_eq!(lines.lock().of.len(), MOST_IDLE);
    }
}
