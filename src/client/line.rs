//! The line of one key: who goes next.
//!
//! The first call in line goes when [`Learned`] lets it. A task may not poll its call when it is woken, and must
//! not block the others: so the second call looks too, and goes past the first after [`PACE`]; any later
//! call does so after twice that time.

use std::collections::BTreeMap;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::learned::{Learned, May, PACE, Sent};

/// The calls of one key: those on their way, and those that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) standing: Learned,
    waiting: BTreeMap<u64, Waiter>,
    joined: u64,
    /// When the first call may go, or could have gone.
    due: Option<Instant>,
    /// Its place in the table among the lines at rest.
    pub(super) rests: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    /// It could have gone and was not polled, so that the others go past it.
    is_passed: bool,
}

/// The wakers to wake outside the lock.
pub(super) type Woken = SmallVec<[Waker; 2]>;

/// The answer to a call that asks to go.
pub(super) enum Readiness {
    Go(Sent),
    Wait {
        /// The end of the hold, if calls are held.
        held_until: Option<Instant>,
        /// When to ask again, even if nothing has changed.
        again_at: Instant,
    },
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            standing: Learned::new(),
            waiting: BTreeMap::new(),
            joined: 0,
            due: None,
            rests: None,
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && self.standing.is_at_rest()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a call may go without waiting.
    pub(super) fn may(&self, now: Instant) -> May {
        match self.standing.may(now) {
            May::Go if !self.waiting.is_empty() => May::NotBeforeAnswer(now),
            may => may,
        }
    }

    pub(super) fn send(&mut self, now: Instant) -> Sent {
        self.due = None;
        self.standing.send(now)
    }

    /// Takes a place behind all others.
    pub(super) fn join(&mut self) -> u64 {
        let place = self.joined;
        self.joined += 1;
        self.waiting.insert(place, Waiter::default());
        place
    }

    pub(super) fn leave(&mut self, place: u64) {
        self.waiting.remove(&place);
    }

    /// Whether the call at this place may go. If so, it has left the line. If not, its waker is woken when
    /// something changes for it.
    pub(super) fn ask(&mut self, place: u64, waker: &Waker, now: Instant) -> Readiness {
        if let Some(waiter) = self.waiting.get_mut(&place) {
            waiter.is_passed = false;
        }
        let turn = loop {
            let [first, second] = self.front();
            let is_first = first == Some(place);
            let is_second = second == Some(place);
            let (held_until, may_go_at) = match self.standing.may(now) {
                May::Go if is_first => {
                    self.leave(place);
                    return Readiness::Go(self.send(now));
                }
                May::Go => {
                    let due = self.due.map_or(now, |due| due.min(now));
                    self.due = Some(due);
                    if is_second && due + PACE <= now {
                        if let Some(first) = first.and_then(|first| self.waiting.get_mut(&first)) {
                            first.is_passed = true;
                        }
                        continue;
                    }
                    // Neither the first call nor the second is polled.
                    if !is_second && due + 2 * PACE <= now {
                        for idle in [first, second].into_iter().flatten() {
                            if let Some(idle) = self.waiting.get_mut(&idle) {
                                idle.is_passed = true;
                            }
                        }
                        self.due = Some(now);
                        continue;
                    }
                    (None, due)
                }
                May::NotBefore(at) => (Some(at), at),
                May::NotBeforeAnswer(at) => (None, at),
            };
            self.due = Some(may_go_at);
            let again_at = match (is_first, is_second) {
                (true, _) => may_go_at,
                (_, true) => may_go_at + PACE,
                _ => may_go_at + 2 * PACE,
            };
            break Readiness::Wait {
                held_until,
                again_at,
            };
        };
        if let Some(waiter) = self.waiting.get_mut(&place) {
            waiter.waker = Some(waker.clone());
        }
        turn
    }

    /// Takes the wakers of the first two calls, which look again whenever something changes: the first may
    /// go, and the second may go past a first that is not polled.
    pub(super) fn wake(&mut self) -> Woken {
        let front = self.front().into_iter().flatten();
        let wakers = front.filter_map(|place| self.waiting.get_mut(&place)?.waker.take());
        wakers.collect()
    }

    fn front(&self) -> [Option<u64>; 2] {
        let alive = self.waiting.iter().filter(|(_, waiter)| !waiter.is_passed);
        let mut places = alive.map(|(place, _)| *place);
        [places.next(), places.next()]
    }
}
