//! The line of one key: the first call in line goes when [`Throttle`] lets it.

use std::task::Waker;

use tokio::time::Instant;

use tower_ratelimit_core::__internal::{Position, Row, Woken};

use super::throttle::{CallPermission, PACE, Sent, Throttle};

/// The calls of one key: those on their way, and those that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) standing: Throttle,
    waiting: Row<u64>,
    joined: u64,
    /// Its place in the table among the lines at rest.
    pub(super) rests: Option<(Instant, u64)>,
}

/// The answer to a call that asks to go.
pub(super) enum Next {
    Goes(Sent),
    Waits {
        /// The end of the hold, if calls are held.
        hold_end: Option<Instant>,
        /// When to ask again, even if nothing has changed.
        again_at: Instant,
        /// A call that is at the front since others did nothing.
        woken: Option<Waker>,
    },
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            standing: Throttle::new(),
            waiting: Row::default(),
            joined: 0,
            rests: None,
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && self.standing.is_at_rest()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether a call may go without waiting.
    pub(super) fn may(&self, now: Instant) -> CallPermission {
        match self.standing.may(now) {
            CallPermission::Go if !self.waiting.is_empty() => CallPermission::NotBeforeAnswer(now),
            may => may,
        }
    }

    pub(super) fn send(&mut self, now: Instant) -> Sent {
        self.standing.send(now)
    }

    /// Takes a place behind all others.
    pub(super) fn join(&mut self) -> u64 {
        let number = self.joined;
        self.joined += 1;
        self.waiting.join(number);
        number
    }

    /// Takes a call out. The calls behind it are to be [woken](Self::wake).
    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.remove(number);
    }

    /// Returns whether the call of this number may go. If so, it has left the line. If not, its waker is woken when something
    /// changes for it.
    pub(super) fn ask(&mut self, number: u64, waker: &Waker, now: Instant) -> Next {
        let may = self.standing.may(now);
        let (hold_end, due) = match may {
            CallPermission::Go => (None, now),
            CallPermission::NotBefore(at) => (Some(at), at),
            CallPermission::NotBeforeAnswer(at) => (None, at),
        };
        let (stand, woken) = self.waiting.look(number, (now, due), PACE, waker);
        let again_at = match stand {
            Position::Front if may == CallPermission::Go => {
                self.leave(number);
                return Next::Goes(self.send(now));
            }
            Position::Front => due,
            Position::Behind(acts_by) => acts_by,
        };
        Next::Waits {
            hold_end,
            again_at,
            woken,
        }
    }

    /// Takes the wakers of the calls for which something may have changed.
    pub(super) fn wake(&mut self, now: Instant) -> Woken {
        self.waiting.wake(now, PACE)
    }
}
