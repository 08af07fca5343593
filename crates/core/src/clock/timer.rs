//! The timers by which requests wait: tokio's, or those of a clock that is moved by hand.

use std::fmt;
use std::future::poll_fn;
use std::panic;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;
use std::time::Instant as StdInstant;
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::time::{self, Instant, sleep_until};

use super::{Clock, Micros, Sleep};

/// Replaces a time that the platform cannot hold.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns the time to requests that wait, and wakes them.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// `None` for tokio's timers.
    stepped: Option<Arc<Stepped>>,
}

/// A clock that makes requests wait until it shows their moment.
struct Stepped {
    clock: Arc<dyn Clock>,
    /// A reading of the clock, and the moment that stands for it.
    shown: Micros,
    at: Instant,
}

impl Timers {
    /// Returns the timers of this clock, if it [has any](Clock::sleep_until), and otherwise tokio's.
    pub fn of(clock: Option<Arc<dyn Clock>>) -> Self {
        let shows = |clock: Arc<dyn Clock>| {
            let shown = clock.now();
            drop(clock.sleep_until(shown)?);
            Some(Arc::new(Stepped {
                clock,
                shown,
                at: Instant::now(),
            }))
        };
        Self {
            stepped: clock.and_then(shows),
        }
    }

    /// Returns a timer that fires after this time, or `None` if it would be tokio's, and there is no runtime
    /// or one without timers.
    pub fn after(&self, time: Duration) -> Option<Timer> {
        if let Some(stepped) = &self.stepped {
            let deadline = stepped.now() + time.min(FOR_EVER);
            return Some(Timer::Stepped(Box::new(SteppedTimer {
                stepped: Arc::clone(stepped),
                deadline,
                sleep: None,
                has_fired: false,
            })));
        }
        Handle::try_current().ok()?;
        let due = Instant::now() + time.min(FOR_EVER);
        // A runtime does not say whether its timers are enabled: it panics if they are not.
        let sleep = panic::catch_unwind(|| Box::pin(sleep_until(due))).ok()?;
        Some(Timer::Tokio(sleep))
    }
}

impl Timers {
    /// Waits for this future, but no longer than this; without timers, for as long as it takes.
    pub async fn wait<T>(&self, patience: Duration, future: impl Future<Output = T>) -> Option<T> {
        let until = self.now() + patience.min(FOR_EVER);
        let (mut timer, mut set_in) = (None, None);
        let mut future = pin!(future);
        poll_fn(|cx| {
            // What it begins is under way before the timer is set.
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // In another thread it may be in another runtime. That of the timer may have ended, and then a poll would panic.
            let here = thread::current().id();
            if set_in.replace(here) != Some(here) {
                timer = self.after(until.saturating_duration_since(self.now()));
            }
            match &mut timer {
                Some(timer) => timer.poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the time of the timers.
    pub fn now(&self) -> Instant {
        match &self.stepped {
            None => Instant::now(),
            Some(stepped) => stepped.now(),
        }
    }

    /// Returns a moment as far from [`now`](Self::now) as `real` is from the real now.
    pub fn moment(&self, real: StdInstant) -> Instant {
        let real = Instant::from_std(real);
        match &self.stepped {
            None => real,
            Some(stepped) => {
                let left = real.saturating_duration_since(Instant::now());
                stepped.now() + left.min(FOR_EVER)
            }
        }
    }

    /// Returns whether time passes in steps, each of which may pass several awaited moments.
    pub(crate) fn are_stepped(&self) -> bool {
        self.stepped.is_some()
    }

    /// Returns how long to wait for a request that is due and does nothing. With a clock that is moved by
    /// hand, that time is unknown.
    pub(crate) fn patience(&self, patience: Duration) -> Duration {
        if self.are_stepped() {
            FOR_EVER
        } else {
            patience
        }
    }
}

impl Timers {
    /// Returns the time on the wall.
    pub fn wall(&self) -> SystemTime {
        let stepped = self.stepped.as_ref();
        let shown = stepped.and_then(|stepped| stepped.clock.now().to_system_time());
        shown.unwrap_or_else(SystemTime::now)
    }
}

impl Stepped {
    fn now(&self) -> Instant {
        let now = self.clock.now();
        let ahead = now.saturating_sub(self.shown).to_duration();
        let behind = self.shown.saturating_sub(now).to_duration();
        let at = self.at.checked_sub(behind).unwrap_or(self.at);
        at + ahead.min(FOR_EVER)
    }

    /// Returns what the clock shows at this moment, or the next microsecond.
    fn shows_at(&self, moment: Instant) -> Micros {
        let micros = |time: Duration| Micros::wait(time.as_nanos().div_ceil(1_000));
        let ahead = micros(moment.saturating_duration_since(self.at));
        let behind = self.at.saturating_duration_since(moment).into();
        self.shown.saturating_add(ahead).saturating_sub(behind)
    }
}

/// A timer that fires at a moment, and stays fired until it is reset.
pub enum Timer {
    /// A timer of the runtime.
    Tokio(Pin<Box<time::Sleep>>),
    /// A timer of a clock that is set by hand.
    Stepped(Box<SteppedTimer>),
}

/// A timer of a clock that is set by hand.
pub struct SteppedTimer {
    stepped: Arc<Stepped>,
    deadline: Instant,
    sleep: Option<Sleep>,
    has_fired: bool,
}

impl Timer {
    /// Is ready once the deadline has come.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match self {
            Self::Tokio(sleep) => return sleep.as_mut().poll(cx),
            Self::Stepped(timer) => &mut **timer,
        };
        if !timer.has_fired {
            let moment = timer.stepped.shows_at(timer.deadline);
            if timer.sleep.is_none() {
                timer.sleep = timer.stepped.clock.sleep_until(moment);
            }
            if let Some(sleep) = &mut timer.sleep {
                ready!(sleep.as_mut().poll(cx));
            }
            timer.sleep = None;
            timer.has_fired = true;
        }
        Poll::Ready(())
    }
}

impl Timer {
    /// Returns when it fires.
    pub fn deadline(&self) -> Instant {
        match self {
            Self::Tokio(sleep) => sleep.deadline(),
            Self::Stepped(timer) => timer.deadline,
        }
    }

    /// Lets it fire at another time.
    pub fn reset(&mut self, deadline: Instant) {
        match self {
            Self::Tokio(sleep) => sleep.as_mut().reset(deadline),
            Self::Stepped(timer) => {
                timer.deadline = deadline;
                timer.sleep = None;
                timer.has_fired = false;
            }
        }
    }
}

impl fmt::Debug for Stepped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped")
            .field("now", &self.clock.now())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

impl fmt::Debug for SteppedTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteppedTimer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::runtime::Builder;

    use super::*;
    use crate::clock::{ManualClock, SystemClock};

    #[test]
    fn tokio_has_none_without_a_runtime_or_without_its_timers() {
        let timers = Timers::of(Some(Arc::new(SystemClock::new())));
        assert!(timers.after(Duration::ZERO).is_none());
        let without = Builder::new_current_thread().build().unwrap();
        assert!(
            without
                .block_on(async { timers.after(Duration::ZERO) })
                .is_none()
        );
        let with = Builder::new_current_thread().enable_time().build().unwrap();
        assert!(
            with.block_on(async { timers.after(Duration::MAX) })
                .is_some()
        );
    }

    #[test]
    fn a_timer_of_a_clock_that_is_moved_fires_when_it_shows_the_moment_and_needs_no_runtime() {
        let clock = ManualClock::new();
        let timers = Timers::of(Some(Arc::new(clock.clone())));
        let mut context = Context::from_waker(Waker::noop());
        let start = timers.now();
        let mut timer = timers.after(Duration::from_secs(1)).unwrap();
        assert!(timer.poll(&mut context).is_pending());
        clock.advance(Duration::from_micros(999_999));
        assert!(timer.poll(&mut context).is_pending());
        clock.advance(Duration::from_micros(1));
        assert!(timer.poll(&mut context).is_ready());
        assert_eq!(timers.now() - start, Duration::from_secs(1));
        // The timer has fired, whatever the clock shows now.
        clock.set_micros(Micros::ZERO);
        assert!(timer.poll(&mut context).is_ready());
        timer.reset(start);
        assert!(timer.poll(&mut context).is_pending());
        clock.set_micros(Micros::new(u64::MAX));
        assert!(timer.poll(&mut context).is_ready());
        assert!(timers.now() > timer.deadline());
    }
}
