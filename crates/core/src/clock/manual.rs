//! A clock that tests move, and the requests that wait for it.
//!
//! It wakes waiting requests itself, so that tests of queues need no real time and no paused runtime.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use super::{Clock, Micros, Sleep};

/// A clock for tests, which stands still until it is moved.
///
/// Clones are the same clock. It starts on 2024-01-01 at midnight, UTC, where every window of a
/// second, a minute, an hour or a day begins.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder()
///     .policy(Policy::new("hourly", FixedWindow::per_hour(1)))
///     .store(MemoryStore::new().clock(clock.clone()))
///     .build_local()?;
///
/// assert!(limiter.check("ann", 1).now().is_allowed());
/// assert!(!limiter.check("ann", 1).now().is_allowed());
/// clock.advance(Duration::from_secs(3600));
/// assert!(limiter.check("ann", 1).now().is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// # Requests that wait
///
/// A request that waits for its turn waits by the clock of its store: in a
/// [`LeakyQueue`](crate::LeakyQueue), under `Policy::wait_up_to`, and in a service of any kind. It goes on
/// when the clock is moved to its turn, in real time at once. Tokio's paused time is not needed. An
/// outgoing client waits by the clock that its `ClientThrottleLayer` is given.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
/// use tower_ratelimit::{LeakyQueue, LimitLayer, Limiter, ManualClock, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder()
///     .policy(Policy::new("calls", LeakyQueue::per_minute(1).places(10)))
///     .store(MemoryStore::new().clock(clock.clone()))
///     .build()?;
/// let limit = LimitLayer::new(limiter, |_: &u32| "all", |refused| Err(refused.into()));
/// let service = limit.layer(service_fn(async |number: u32| Ok::<_, BoxError>(number)));
///
/// assert_eq!(service.clone().oneshot(1).await?, 1);
/// let second = tokio::spawn(service.clone().oneshot(2));
/// tokio::task::yield_now().await;
/// assert!(!second.is_finished());
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(second.await??, 2);
/// # Ok(())
/// # }
/// ```
///
/// A step may pass over several turns. All requests whose turn it passes over then go on, in their order, as
/// far as the policies admit them at the moment that the clock shows.
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<Time>,
}

#[derive(Debug)]
struct Time {
    now: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

/// The sleepers of the clock, in the order of their moments.
#[derive(Debug, Default)]
struct Sleepers {
    wakers: BTreeMap<Due, Waker>,
    numbered: u64,
}

/// A moment, and a number that distinguishes sleepers of one moment.
type Due = (Micros, u64);

const START: Micros = Micros::from_secs(1_704_067_200);

impl ManualClock {
    /// Makes a clock that shows 2024-01-01, midnight, UTC.
    pub fn new() -> Self {
        Self::at(START)
    }

    /// Makes a clock that shows this moment.
    pub fn at(now: Micros) -> Self {
        let shared = Time {
            now: AtomicU64::new(now.get()),
            sleepers: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Moves the clock forward, and wakes the sleepers whose moments it passes; less than a microsecond moves
    /// nothing.
    pub fn advance(&self, by: Duration) {
        let by = Micros::from(by).get();
        let step = |now: u64| Some(now.saturating_add(by));
        // The closure never declines, so there is nothing to do with the result.
        let now = &self.shared.now;
        let _ = now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        self.shared.wake();
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now: SystemTime) {
        self.set_micros(Micros::from_system_time(now));
    }

    /// Sets the clock to a moment in microseconds since the Unix epoch, forward or back.
    pub fn set_micros(&self, now: Micros) {
        self.shared.now.store(now.get(), Ordering::SeqCst);
        self.shared.wake();
    }
}

impl Time {
    fn now(&self) -> Micros {
        Micros::new(self.now.load(Ordering::SeqCst))
    }

    /// Wakes the sleepers whose moments have come, the first moment first.
    fn wake(&self) {
        let mut sleepers = self.sleepers();
        let now = self.now();
        let due = |place: &Due| place.0 <= now;
        let mut woken = Vec::new();
        while let Some(first) = sleepers.wakers.first_entry().filter(|it| due(it.key())) {
            woken.push(first.remove());
        }
        // Outside the lock: a waker may poll at once.
        drop(sleepers);
        woken.into_iter().for_each(Waker::wake);
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the clock shows a moment.
struct Sleeper {
    shared: Arc<Time>,
    moment: Micros,
    place: Option<Due>,
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut sleepers = this.shared.sleepers();
        // Read under the lock: a step that is made after this finds the waker.
        if this.shared.now() >= this.moment {
            return Poll::Ready(());
        }
        let place = *this.place.get_or_insert_with(|| {
            sleepers.numbered += 1;
            (this.moment, sleepers.numbered)
        });
        sleepers.wakers.insert(place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.shared.sleepers().wakers.remove(place);
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.shared.now()
    }

    fn sleep_until(&self, moment: Micros) -> Option<Sleep> {
        Some(Box::pin(Sleeper {
            shared: Arc::clone(&self.shared),
            moment,
            place: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_sleeper_that_was_woken_or_dropped() {
        let clock = ManualClock::new();
        let after = |seconds| START.saturating_add(Micros::from_secs(seconds));
        let mut sleepers: Vec<_> = (1..=4)
            .filter_map(|seconds| clock.sleep_until(after(seconds)))
            .collect();
        let waiting = || clock.shared.sleepers().wakers.len();
        let mut context = Context::from_waker(Waker::noop());
        for sleeper in &mut sleepers {
            assert!(sleeper.as_mut().poll(&mut context).is_pending());
            assert!(sleeper.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(waiting(), 4);
        clock.advance(Duration::from_secs(2));
        assert_eq!(waiting(), 2);
        assert!(sleepers[1].as_mut().poll(&mut context).is_ready());
        sleepers.pop();
        assert_eq!(waiting(), 1);
        drop(sleepers);
        assert_eq!(waiting(), 0);
    }
}
