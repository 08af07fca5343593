use std::collections::BTreeMap;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::standing::{May, PACE, Sent, Standing};

/// The calls of one key: those on their way, and those that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) standing: Standing,
    waiting: BTreeMap<u64, Waiter>,
    joined: u64,
    /// When the first may go, or could have gone.
    due: Option<Instant>,
    /// Where it stands in the table among those that are at rest.
    pub(super) rests: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    /// It could have gone and nobody has polled it: the others go past it.
    is_passed: bool,
}

/// Who has to be woken, outside the lock.
pub(super) type Woken = SmallVec<[Waker; 2]>;

/// Where a call stands that asked to go.
pub(super) enum Turn {
    Go(Sent),
    Wait {
        /// The end of the hold, if there is one.
        held_until: Option<Instant>,
        /// When to ask again, even if nothing has changed.
        again_at: Instant,
    },
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            standing: Standing::new(),
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

    /// Whether a call may go that has not waited.
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

    /// A place behind all others.
    pub(super) fn join(&mut self) -> u64 {
        let place = self.joined;
        self.joined += 1;
        self.waiting.insert(place, Waiter::default());
        place
    }

    pub(super) fn leave(&mut self, place: u64) {
        self.waiting.remove(&place);
    }

    /// Whether the call at this place may go; if so, it has left. Else it is woken when something has
    /// changed for it.
    pub(super) fn ask(&mut self, place: u64, waker: &Waker, now: Instant) -> Turn {
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
                    return Turn::Go(self.send(now));
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
                    // Neither the first nor the one that would go past it is polled.
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
            break Turn::Wait {
                held_until,
                again_at,
            };
        };
        if let Some(waiter) = self.waiting.get_mut(&place) {
            waiter.waker = Some(waker.clone());
        }
        turn
    }

    /// The two at the front, who have to look again whenever something changes: the first since it
    /// may go, the second since it goes past a first that nobody polls.
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
