use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::lines::{LineOf, Lines, NoTimer};
use super::order::{Free, Next};
use super::round::Tenant;
use super::stretch::Place;
use crate::clock::Timer;
use crate::observe::Wait;

/// A future that is ready when a request may go on. To keep the order, drop it after the request has gone on.
pub struct Turn {
    lines: Arc<Lines>,
    line: LineOf,
    number: u64,
    timer: Timer,
    /// Counts the request as waiting.
    wait: Option<Wait>,
    /// `None` once the turn has come: it is used then, even if the request goes away before it has gone on.
    give_back: Option<GiveBack>,
}

/// Called with turns to give back to the store, which then have to be [answered](Lines::answered) for.
pub(crate) type GiveBack = Box<dyn Fn(Free) + Send + Sync>;

impl Turn {
    /// Lets a request of this tenant wait in this place of a line, for `delay` or for the requests before it. Returns `None`
    /// if it can go on at once. Turns that no request takes go to `give_back`, now or when this request leaves.
    pub(crate) fn join(
        lines: &Arc<Lines>,
        line: LineOf,
        (place, tenant, delay): (Place, Option<Tenant>, Duration),
        give_back: GiveBack,
    ) -> Result<Option<Self>, NoTimer> {
        let Some(entered) = lines.enter(line, (place, tenant), delay)? else {
            return Ok(None);
        };
        if let Some(free) = entered.free {
            give_back(free);
        }
        Ok(Some(Self {
            lines: Arc::clone(lines),
            line,
            number: entered.number,
            timer: entered.timer,
            wait: None,
            give_back: Some(give_back),
        }))
    }

    /// Counts the request as waiting until its turn has come.
    pub(crate) fn counted_by(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut has_fired = false;
        loop {
            let now = self.lines.now();
            let own = (self.line, self.number);
            match self.lines.look(own, now, cx.waker()) {
                Next::GoesOn => {
                    self.give_back = None;
                    self.wait = None;
                    return Poll::Ready(());
                }
                Next::LooksAgain(at) if at != self.timer.deadline() => {
                    self.timer.reset(at);
                }
                Next::LooksAgain(_) => {}
            }
            if mem::replace(&mut has_fired, true) {
                // The timer fired early, which happens when a test moves the clock back: do not spin.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.timer.poll(cx));
        }
    }
}

/// The request has gone on, or has gone away.
impl Drop for Turn {
    fn drop(&mut self) {
        let give_back = self.give_back.take();
        let own = (self.line, self.number);
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::time::Instant;

    use super::*;
    use crate::clock::{Micros, Timers};
    use crate::key::IntoKey;

    const TURN: Duration = Duration::from_millis(100);

    fn join(lines: &Arc<Lines>, number: u64) -> Turn {
        let delay = TURN * u32::try_from(number).unwrap();
        let moments = [0, number, number + 1].map(|turn| Micros::new(100_000 * turn));
        let place = Place::new(1, moments, Instant::now() + delay);
        let line = LineOf::Key("ann".into_key());
        let turn = Turn::join(lines, line, (place, None, delay), Box::new(|_| {}));
        turn.unwrap_or_else(|_| panic!("no timer")).unwrap()
    }

    fn is_ready(turn: &mut Turn) -> bool {
        turn.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// A request that was not polled was passed by the last of its line, and had the number of the first in
    /// the next line. When it was dropped, that one went on at once.
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
