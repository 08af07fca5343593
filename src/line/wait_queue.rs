//! The requests that wait under a policy of any algorithm, each in the line of one key under one policy, in
//! the order of their arrival.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::row::{Position, Row};
use crate::clock::Timers;
use crate::key::Key;

/// The lines of a limiter.
#[derive(Default)]
pub(crate) struct WaitQueue {
    lines: Mutex<Lines>,
    /// The number of requests in all lines, which is read without a lock.
    waiting: AtomicUsize,
    timers: Timers,
}

#[derive(Default)]
struct Lines {
    /// Only lines with waiting requests have an entry.
    of: HashMap<LineId, Row<Number, Cost>, RandomState>,
    joined: u64,
    waiting: usize,
}

/// A policy, by its index in the limiter, and a key under it.
pub(crate) type LineId = (usize, Key);

/// When a request arrived, and its number among all that have begun to wait. The request keeps both when it
/// moves to another line, so that two requests have the same order in every line and never wait for each
/// other.
type Number = (Instant, u64);

type Cost = u32;

/// How long a request at the front that does nothing holds up the requests behind it. They look after that
/// time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The place of a request in a line. Dropping it leaves the line.
pub(crate) struct WaitPlace {
    queue: Arc<WaitQueue>,
    line: LineId,
    number: Number,
}

impl WaitQueue {
    pub(crate) fn new(timers: Timers) -> Self {
        Self {
            timers,
            ..Self::default()
        }
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Returns how long a request at the front that does nothing holds up the requests behind it.
    pub(crate) fn patience(&self) -> Duration {
        self.timers.patience(PATIENCE)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Returns whether a request stands in this line.
    pub(crate) fn has_line(&self, line: &LineId) -> bool {
        self.lock().of.contains_key(line)
    }

    /// Takes a place in this line for a request that arrived at this moment. Returns `None` if the line or
    /// the whole queue is full.
    pub(crate) fn stand(
        self: &Arc<Self>,
        line: LineId,
        cost: u32,
        arrived: Instant,
        (places, in_all): (u32, u32),
    ) -> Option<WaitPlace> {
        let mut lines = self.lock();
        if !lines.has_room(&line, places) || !is_less(lines.waiting, in_all) {
            return None;
        }
        let number = (arrived, lines.joined);
        lines.joined += 1;
        lines.join(line, number, cost);
        self.waiting.store(lines.waiting, Ordering::Release);
        Some(WaitPlace {
            queue: Arc::clone(self),
            line,
            number,
        })
    }

    /// Returns the costs of the requests before this place, or of all requests in the line, in their order.
    pub(crate) fn costs(&self, line: &LineId, before: Option<&WaitPlace>) -> SmallVec<[u32; 16]> {
        let lines = self.lock();
        let row = lines.of.get(line).into_iter();
        row.flat_map(|row| row.before(before.map(|place| place.number)))
            .copied()
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_less(taken: usize, places: u32) -> bool {
    u32::try_from(taken).is_ok_and(|taken| taken < places)
}

impl Lines {
    fn has_room(&self, line: &LineId, places: u32) -> bool {
        is_less(self.of.get(line).map_or(0, Row::len), places)
    }

    fn join(&mut self, line: LineId, number: Number, cost: Cost) {
        self.of.entry(line).or_default().join(number, cost);
        self.waiting += 1;
    }

    /// Removes a request. Returns the waker of the request that is at the front now.
    fn leave(&mut self, line: LineId, number: Number, queue: &WaitQueue) -> Option<Waker> {
        let row = self.of.get_mut(&line)?;
        let (was_there, next) = row.leave(number, queue.timers.now(), queue.patience());
        if row.is_empty() {
            self.of.remove(&line);
        }
        self.waiting -= usize::from(was_there);
        next
    }
}

impl WaitPlace {
    /// Returns where the request stands, given that it can go on at `due` if it is at the front. If it stands
    /// behind another request, it is woken when it comes to the front.
    pub(crate) fn look(&self, cx: &Context<'_>, now: Instant, due: Instant) -> Position {
        let patience = self.queue.patience();
        let mut lines = self.queue.lock();
        let Some(row) = lines.of.get_mut(&self.line) else {
            return Position::Front;
        };
        let (stand, woken) = row.look(self.number, (now, due), patience, cx.waker());
        drop(lines);
        woken.into_iter().for_each(Waker::wake);
        stand
    }

    /// Returns one of these lines in which another request stands before this one.
    pub(crate) fn is_behind_in(
        &self,
        others: impl IntoIterator<Item = LineId>,
        now: Instant,
    ) -> Option<LineId> {
        let lines = self.queue.lock();
        others.into_iter().find(|other| {
            let row = lines.of.get(other).filter(|_| *other != self.line);
            row.is_some_and(|row| row.is_behind(self.number, now))
        })
    }

    /// Moves to another line, to the place that the request would have if it had always stood there. Returns
    /// `false` and stays if the line is full.
    pub(crate) fn move_to(&mut self, line: LineId, cost: u32, places: u32) -> bool {
        if line == self.line {
            return true;
        }
        let mut lines = self.queue.lock();
        if !lines.has_room(&line, places) {
            return false;
        }
        let next = lines.leave(self.line, self.number, &self.queue);
        lines.join(line, self.number, cost);
        drop(lines);
        self.line = line;
        next.into_iter().for_each(Waker::wake);
        true
    }
}

/// Lets the next request move up.
impl Drop for WaitPlace {
    fn drop(&mut self) {
        let mut lines = self.queue.lock();
        let next = lines.leave(self.line, self.number, &self.queue);
        self.queue.waiting.store(lines.waiting, Ordering::Release);
        drop(lines);
        next.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (u32, u32) = (3, 5);

    fn line(policy: usize) -> LineId {
        (policy, Key::GLOBAL)
    }

    #[test]
    fn an_empty_line_leaves_nothing_behind_in_any_order_of_leaving() {
        for leaving in [[0, 0, 0], [2, 1, 0], [1, 1, 0]] {
            let queue = Arc::<WaitQueue>::default();
            let now = Instant::now();
            let stand = |policy| queue.stand(line(policy), 1, now, BOUNDS);
            let mut places: Vec<_> = (0..3).filter_map(|_| stand(0)).collect();
            assert!(stand(0).is_none(), "full");
            let others: Vec<_> = (0..2).filter_map(|_| stand(1)).collect();
            assert!(stand(1).is_none(), "full in all");
            drop(others);
            for place in leaving {
                assert!(!queue.is_empty());
                drop(places.remove(place));
            }
            assert!(queue.is_empty());
            let lines = queue.lock();
            assert_eq!((lines.of.len(), lines.waiting), (0, 0));
        }
    }

    #[test]
    fn a_request_that_moves_stands_where_it_would_have_stood_all_the_time() {
        let queue = Arc::<WaitQueue>::default();
        let now = Instant::now();
        let mut first = queue.stand(line(0), 5, now, BOUNDS).unwrap();
        let second = queue.stand(line(1), 7, now, BOUNDS).unwrap();
        let later = now + Duration::from_millis(1);
        let third = queue.stand(line(1), 9, later, BOUNDS).unwrap();
        assert_eq!(third.is_behind_in([line(0)], now), Some(line(0)));
        assert_eq!(second.is_behind_in([line(1)], now), None);
        assert!(!first.move_to(line(1), 6, 2), "full");
        assert!(first.move_to(line(1), 6, 3));
        assert_eq!(queue.costs(&line(1), Some(&second))[..], [6]);
        assert_eq!(queue.costs(&line(1), None)[..], [6, 7, 9]);
        assert!(!queue.has_line(&line(0)));
        drop((first, third));
        assert_eq!(queue.costs(&line(1), None)[..], [7]);
    }
}
