//! The requests that wait under a policy of any algorithm, each in the line of one key under one policy, in
//! the order of their arrival. Requests of low priority that leave a reserve stand behind all others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::row::{Position, Row};
use crate::algorithm::Limit;
use crate::clock::Timers;
use crate::decision::Outcomes;
use crate::key::Key;
use crate::store::Charge;

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
    /// Only lines of keys about which waiting requests ask have an entry.
    of: HashMap<LineId, Line, RandomState>,
    /// All waiting requests, with what they ask.
    requests: BTreeMap<Number, QueuedCharges>,
    joined: u64,
    /// How many requests of low priority are among them.
    low: usize,
}

#[derive(Default)]
struct Line {
    /// The requests that stand in this line.
    row: Row<Number>,
    /// All waiting requests that are charged here when they go on, whatever line they stand in.
    asking: BTreeSet<Number>,
}

/// A policy, by its index in the limiter, and a key under it.
pub(crate) type LineId = (usize, Key);

/// The order of a request among all that wait. The request keeps it when it moves to another line, so that two
/// requests have the same order in every line and never wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number {
    is_low: bool,
    arrived: Instant,
    joined: u64,
}

/// What a waiting request is to be charged by one policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedCharge {
    pub(crate) line: LineId,
    pub(crate) cost: u32,
    pub(crate) limit: Option<Limit>,
    /// From when on the policy lets the request pass, as far as is known.
    pub(crate) passes_at: Instant,
}

pub(crate) type QueuedCharges = SmallVec<[QueuedCharge; 2]>;

/// Returns what a request of these charges is to be charged by the policies that can deny it.
pub(crate) fn queued_charges(charges: &[Charge], now: Instant) -> QueuedCharges {
    let asking = charges.iter();
    let asking = asking.filter(|charge| charge.cost > 0 && !charge.is_soft);
    let asks = asking.map(|charge| QueuedCharge {
        line: (charge.policy, charge.key),
        cost: charge.cost,
        limit: charge.limit,
        passes_at: now,
    });
    asks.collect()
}

/// The number of waiting requests before another one that are counted when its wait is computed. It bounds the work.
const MOST_BEFORE: usize = 256;

/// How long a request at the front that does nothing holds up the requests behind it. They look after that
/// time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The place of a request in a line. Dropping it leaves the line.
pub(crate) struct WaitPlace {
    queue: Arc<WaitQueue>,
    line: LineId,
    number: Number,
}

impl Number {
    /// Returns the number of a request that does not wait: behind all others of its priority.
    pub(crate) fn of_a_newcomer(is_low: bool, now: Instant) -> Self {
        Self {
            is_low,
            arrived: now,
            joined: u64::MAX,
        }
    }

    /// Returns whether the request waits.
    pub(super) fn has_joined(self) -> bool {
        self.joined < u64::MAX
    }
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

    /// Returns whether a newcomer has to stand behind another request in this line.
    pub(crate) fn has_before(&self, line: &LineId, is_low: bool) -> bool {
        let lines = self.lock();
        let first = lines
            .of
            .get(line)
            .and_then(|line| line.row.numbers().next());
        first.is_some_and(|first| is_low || !first.is_low)
    }

    /// Takes a place in this line for a request that asks this, and arrived at this moment. Returns `None` if the line
    /// or the whole queue is full. Requests of low priority have as many places as all others, in both.
    pub(crate) fn stand(
        self: &Arc<Self>,
        line: LineId,
        asks: QueuedCharges,
        (is_low, arrived): (bool, Instant),
        (places, in_all): (u32, u32),
    ) -> Option<WaitPlace> {
        let mut lines = self.lock();
        if !lines.has_room(&line, is_low, places) || !is_less(lines.waiting(is_low), in_all) {
            return None;
        }
        let number = Number {
            is_low,
            arrived,
            joined: lines.joined,
        };
        lines.joined += 1;
        lines.add(number, asks);
        lines.join(line, number);
        self.waiting.store(lines.requests.len(), Ordering::Release);
        Some(WaitPlace {
            queue: Arc::clone(self),
            line,
            number,
        })
    }

    /// Returns whether a waiting request asks about one of these keys.
    pub(crate) fn asks_about(&self, asks: &[QueuedCharge]) -> bool {
        let lines = self.lock();
        let mut asking = asks.iter().filter_map(|ask| lines.of.get(&ask.line));
        asking.any(|line| !line.asking.is_empty())
    }

    /// Returns the other requests that wait and ask about the same keys, in their order.
    pub(crate) fn beside(
        &self,
        asks: &[QueuedCharge],
        own: Number,
    ) -> Vec<(Number, QueuedCharges)> {
        let lines = self.lock();
        let asking = asks.iter().filter_map(|ask| lines.of.get(&ask.line));
        let asking = asking.flat_map(|line| line.asking.iter().take(MOST_BEFORE));
        let mut numbers: Vec<_> = asking.filter(|number| **number != own).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(MOST_BEFORE);
        let asks = |number: &Number| Some((*number, lines.requests.get(number)?.clone()));
        numbers.into_iter().filter_map(asks).collect()
    }

    /// Returns what the requests before this one in a line cost together.
    pub(crate) fn cost_before(&self, line: &LineId, own: Number) -> u32 {
        let lines = self.lock();
        let row = lines.of.get(line).into_iter();
        let before = row.flat_map(|line| line.row.numbers().take_while(|it| *it < own));
        let cost = |number| {
            let mut asks = lines.requests.get(&number)?.iter();
            Some(asks.find(|ask| ask.line == *line)?.cost)
        };
        before.filter_map(cost).fold(0, u32::saturating_add)
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_less(taken: usize, places: u32) -> bool {
    u32::try_from(taken).is_ok_and(|taken| taken < places)
}

impl Lines {
    fn waiting(&self, is_low: bool) -> usize {
        if is_low {
            self.low
        } else {
            self.requests.len() - self.low
        }
    }

    fn has_room(&self, line: &LineId, is_low: bool, places: u32) -> bool {
        let taken = self.of.get(line).map_or(0, |line| {
            let others = line.row.leading(|number| !number.is_low);
            if is_low {
                line.row.len() - others
            } else {
                others
            }
        });
        is_less(taken, places)
    }

    fn add(&mut self, number: Number, asks: QueuedCharges) {
        for ask in &asks {
            self.of.entry(ask.line).or_default().asking.insert(number);
        }
        self.requests.insert(number, asks);
        self.low += usize::from(number.is_low);
    }

    fn remove(&mut self, number: Number) {
        let Some(asks) = self.requests.remove(&number) else {
            return;
        };
        self.low -= usize::from(number.is_low);
        for ask in asks {
            if let Some(line) = self.of.get_mut(&ask.line) {
                line.asking.remove(&number);
            }
            self.end(ask.line);
        }
    }

    fn join(&mut self, line: LineId, number: Number) {
        self.of.entry(line).or_default().row.join(number);
    }

    /// Removes a request from a line. Returns the waker of the request that is at the front now.
    fn leave(&mut self, line: LineId, number: Number, queue: &WaitQueue) -> Option<Waker> {
        let row = &mut self.of.get_mut(&line)?.row;
        let (_, next) = row.leave(number, queue.timers.now(), queue.patience());
        self.end(line);
        next
    }

    /// Forgets a line about which no request asks.
    fn end(&mut self, line: LineId) {
        let is_over = |line: &Line| line.row.is_empty() && line.asking.is_empty();
        if self.of.get(&line).is_some_and(is_over) {
            self.of.remove(&line);
        }
    }
}

impl WaitPlace {
    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// Returns where the request stands, given that it can go on at `due` if it is at the front. If it stands
    /// behind another request, it is woken when it comes to the front.
    pub(crate) fn look(&self, cx: &Context<'_>, now: Instant, due: Instant) -> Position {
        let patience = self.queue.patience();
        let mut lines = self.queue.lock();
        let Some(line) = lines.of.get_mut(&self.line) else {
            return Position::Front;
        };
        let (stand, woken) = line.row.look(self.number, (now, due), patience, cx.waker());
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
            let line = lines.of.get(other).filter(|_| *other != self.line);
            line.is_some_and(|line| line.row.is_behind(self.number, now))
        })
    }

    /// Notes when each policy lets the request pass, for the waits of others.
    pub(crate) fn note(&self, outcomes: &Outcomes, now: Instant) {
        let mut lines = self.queue.lock();
        for ask in lines.requests.get_mut(&self.number).into_iter().flatten() {
            let mut of_it = outcomes.iter().filter(|(policy, _)| *policy == ask.line.0);
            let wait = of_it.find_map(|(_, outcome)| outcome.retry_after());
            let passes_at = now.checked_add(wait.unwrap_or_default());
            ask.passes_at = passes_at.unwrap_or(now);
        }
    }

    /// Moves to another line, to the place that the request would have if it had always stood there. Returns
    /// `false` and stays if the line is full.
    pub(crate) fn move_to(&mut self, line: LineId, places: u32) -> bool {
        if line == self.line {
            return true;
        }
        let mut lines = self.queue.lock();
        if !lines.has_room(&line, self.number.is_low, places) {
            return false;
        }
        let next = lines.leave(self.line, self.number, &self.queue);
        lines.join(line, self.number);
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
        lines.remove(self.number);
        self.queue
            .waiting
            .store(lines.requests.len(), Ordering::Release);
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
    use crate::clock::Micros;
    use crate::decision::Outcome;

    const BOUNDS: (u32, u32) = (3, 5);

    fn line(policy: usize) -> LineId {
        (policy, Key::GLOBAL)
    }

    /// What a request asks that is charged these costs, by policy.
    fn asks(costs: &[u32]) -> QueuedCharges {
        let charges = costs.iter().enumerate();
        let charges = charges.map(|(policy, cost)| Charge::new(policy, Key::GLOBAL, *cost));
        queued_charges(&charges.collect::<Vec<_>>(), Instant::now())
    }

    #[test]
    fn an_empty_line_leaves_nothing_behind_in_any_order_of_leaving() {
        for leaving in [[0, 0, 0], [2, 1, 0], [1, 1, 0]] {
            let queue = Arc::<WaitQueue>::default();
            let now = Instant::now();
            let stand = |policy| queue.stand(line(policy), asks(&[1, 1, 1]), (false, now), BOUNDS);
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
            assert_eq!((lines.of.len(), lines.requests.len(), lines.low), (0, 0, 0));
        }
    }

    #[test]
    fn a_request_that_moves_stands_where_it_would_have_stood_all_the_time() {
        let queue = Arc::<WaitQueue>::default();
        let now = Instant::now();
        let stand = |policy, costs: &[u32], arrived| {
            let place = queue.stand(line(policy), asks(costs), (false, arrived), BOUNDS);
            place.unwrap()
        };
        let mut first = stand(0, &[5, 6], now);
        let second = stand(1, &[7, 7], now);
        let later = now + Duration::from_millis(1);
        let third = stand(1, &[9, 9], later);
        assert_eq!(third.is_behind_in([line(0)], now), Some(line(0)));
        assert_eq!(second.is_behind_in([line(1)], now), None);
        assert!(!first.move_to(line(1), 2), "full");
        assert!(first.move_to(line(1), 3));
        let before = |place: &WaitPlace| queue.cost_before(&line(1), place.number());
        assert_eq!([&first, &second, &third].map(before), [0, 6, 13]);
        assert!(!queue.has_before(&line(0), true));
        drop((first, third));
        assert_eq!(before(&second), 0);
    }

    /// Low priority filled the line of a key, and any other request of the key was refused at once.
    #[test]
    fn low_priority_stands_behind_all_others_and_takes_none_of_their_places() {
        let queue = Arc::<WaitQueue>::default();
        let now = Instant::now();
        let stand = |policy, is_low, arrived| {
            queue.stand(line(policy), asks(&[1, 1]), (is_low, arrived), BOUNDS)
        };
        let low: Vec<_> = (0..4).filter_map(|_| stand(0, true, now)).collect();
        assert_eq!(low.len(), 3, "full");
        assert!(!queue.has_before(&line(0), false) && queue.has_before(&line(0), true));
        let later = now + Duration::from_secs(1);
        let others: Vec<_> = (0..4).filter_map(|_| stand(0, false, later)).collect();
        assert_eq!(others.len(), 3, "full");
        assert!(queue.has_before(&line(0), false));
        let before = |place: &WaitPlace| queue.cost_before(&line(0), place.number());
        assert_eq!(before(&low[0]), 3);
        assert_eq!(before(&others[2]), 2);
        // All places together are bounded for each priority.
        let more = |is_low| {
            (0..4)
                .map_while(|_| stand(1, is_low, later))
                .collect::<Vec<_>>()
        };
        let more = [more(true), more(false)];
        assert_eq!(more.each_ref().map(Vec::len), [2, 2]);
    }

    #[test]
    fn a_request_is_beside_those_that_ask_about_a_key_of_its_own_in_whatever_line_they_stand() {
        let queue = Arc::<WaitQueue>::default();
        let now = Instant::now();
        let _two = queue.stand(line(1), asks(&[2, 2]), (false, now), BOUNDS);
        let _three = queue.stand(line(2), asks(&[0, 0, 3]), (false, now), BOUNDS);
        let own = Number::of_a_newcomer(false, now);
        let costs = |of: &[u32]| {
            let beside = queue.beside(&asks(of), own);
            let cost = |(_, asks): &(Number, QueuedCharges)| asks[0].cost;
            beside.iter().map(cost).collect::<Vec<_>>()
        };
        assert_eq!(costs(&[1]), [2]);
        assert_eq!(costs(&[1, 1, 1]), [2, 3]);
        assert!(costs(&[0, 0, 0, 1]).is_empty());
    }

    #[test]
    fn others_know_when_each_policy_lets_a_request_pass() {
        let queue = Arc::<WaitQueue>::default();
        let (now, wait) = (Instant::now(), Micros::new(3_000_000));
        let place = queue.stand(line(0), asks(&[1, 1]), (false, now), BOUNDS);
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let allowed = Outcome::allowed(5, 0, wait);
        outcomes.push(0, allowed);
        outcomes.push(1, allowed.denied(Some(wait)));
        place.as_ref().unwrap().note(&outcomes, now);
        let beside = queue.beside(&asks(&[1]), Number::of_a_newcomer(false, now));
        let passes_at = beside[0].1.iter().map(|ask| ask.passes_at);
        assert!(passes_at.eq([now, now + wait.to_duration()]));
    }
}
