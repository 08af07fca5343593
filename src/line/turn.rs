use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::lines::Lines;
use super::order::{Free, Next};
use crate::clock::Timer;
use crate::key::Key;

/// A request's turn: ready when it may go on. To keep the order, drop it after the request has gone on.
pub(crate) struct Turn {
    lines: Arc<Lines>,
    key: Key,
    number: u64,
    timer: Timer,
    /// `None` once the turn has come: it is used then, even if the request goes away before it has gone on.
    give_back: Option<GiveBack>,
}

/// What becomes of turns that no request takes.
pub(crate) type GiveBack = Box<dyn Fn(Free) + Send + Sync>;

/// There is nothing that would wake a request when it is due.
pub(crate) struct NoTimer;

impl Turn {
    pub(super) fn new(
        lines: Arc<Lines>,
        (key, number): (Key, u64),
        timer: Timer,
        give_back: GiveBack,
    ) -> Self {
        Self {
            lines,
            key,
            number,
            timer,
            give_back: Some(give_back),
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut has_fired = false;
        loop {
            let now = self.lines.now();
            let own = (&self.key, self.number);
            match self.lines.look(own, now, cx.waker()) {
                Next::GoesOn => {
                    self.give_back = None;
                    return Poll::Ready(());
                }
                Next::LooksAgain(at) if at != self.timer.deadline() => {
                    self.timer.reset(at);
                }
                Next::LooksAgain(_) => {}
            }
            if mem::replace(&mut has_fired, true) {
                // The timer fired before the moment, as it can if a test moves the clock back: do not spin.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.timer.poll(cx));
        }
    }
}

/// Its request has gone on, or has gone away.
impl Drop for Turn {
    fn drop(&mut self) {
        let give_back = self.give_back.take();
        let own = (&self.key, self.number);
        if let Some(free) = self.lines.leave(own, give_back.is_none())
            && let Some(give_back) = give_back
        {
            give_back(free);
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
