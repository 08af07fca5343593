use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use ahash::RandomState;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::breaker::{Breaker, KeyPart};
use super::report::Report;
use super::standby::Standby;
use crate::clock::Timers;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::observe::{Calls, StoreStats};
use crate::store::Charge;

/// A place where state lives that can be away, as a whole or in parts.
pub(in crate::store) trait Remote: Send + Sync + 'static {
    /// Where this key is, as far as is known. By default there is one part.
    fn place(&self, key: &Key) -> KeyPart {
        let _ = key;
        KeyPart::default()
    }

    /// Whether keys may be in several parts.
    fn is_divided(&self) -> bool {
        false
    }

    /// Whether parts are guessed, so that several of them are likely to be one server.
    fn are_parts_guessed(&self) -> bool {
        false
    }

    /// How long a call may take.
    fn deadline(&self) -> Duration;

    /// Asks the part that has this slot whether it does again what a decision needs: to write.
    fn probe(&self, slot: u16) -> Probe;

    /// How long a probe takes at most, on a machine that is busy.
    fn longest_probe(&self) -> Duration;
}

pub(in crate::store) type Probe = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Watches whether a store is there, asks it by itself while it is not, and tells operators.
pub(in crate::store) struct Watch {
    remote: Arc<dyn Remote>,
    report: Report,
    breaker: Breaker,
    /// When the server has answered last, more or less, in milliseconds since this was made; 0 if it never has.
    answered: AtomicU64,
    made: Instant,
    /// How many requests were decided without the server since it went away.
    without: AtomicU64,
    times: Mutex<Times>,
    calls: Calls,
}

#[derive(Default)]
struct Times {
    went_away: Option<Instant>,
    told_of_some: Option<Instant>,
}

/// What concerns some requests is told so often at most.
const SOME_TOLD: Duration = Duration::from_secs(60);

const WHOLE_LIMITS: Diagnostic = Diagnostic::new(
    "TRL012",
    "",
    "while the store is away each node admits the whole limit by itself, so that N nodes admit N times as much",
    "say how many nodes there are with `.nodes(n)`, 1 if it is one, or what else is to become of a policy with `.on_store_failure(…)`",
);

impl Watch {
    /// Watches this place, which the log calls `store`.
    pub(in crate::store) fn new(remote: Arc<dyn Remote>, store: String) -> Self {
        Self {
            breaker: Breaker::new(remote.are_parts_guessed()),
            remote,
            report: Report::new(store),
            answered: AtomicU64::new(0),
            made: Instant::now(),
            without: AtomicU64::new(0),
            times: Mutex::default(),
            calls: Calls::new(),
        }
    }

    /// Counts the calls to the store.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// What is counted of a store of this kind.
    pub(in crate::store) fn stats(&self, kind: &'static str) -> StoreStats {
        let mut stats = StoreStats::new(kind);
        self.report.store().clone_into(&mut stats.name);
        stats.failing_parts = self.breaker.open() as u64;
        stats.is_up = stats.failing_parts == 0;
        let away = self.times().went_away.map(|since| since.elapsed());
        stats.away_since = away.and_then(|away| SystemTime::now().checked_sub(away));
        self.calls.tell(&mut stats);
        stats
    }

    /// Notes that these policies are decided on without the store while it is away. If `nodes` was not said,
    /// warns once of what an outage can let through; `store` is what the warning calls the store.
    pub(in crate::store) fn stands_in(
        &self,
        standby: &Arc<Standby>,
        nodes: Option<NonZeroU32>,
        store: &str,
    ) {
        self.report.add(Arc::downgrade(standby));
        if nodes.is_none() && standby.keeps_any() {
            let subject = match store {
                "" => "a shared store".to_owned(),
                name => format!("the store {name:?}"),
            };
            warn_once_of(&WHOLE_LIMITS, subject);
        }
    }

    /// Whether a server is known to be away that one of these needs.
    pub(in crate::store) fn is_away(self: &Arc<Self>, charges: &[Charge]) -> bool {
        if !self.breaker.is_any_open() {
            return false;
        }
        let mut is_away = false;
        for charge in charges {
            let KeyPart { part, .. } = self.remote.place(&charge.key);
            if self.breaker.is_open(part) {
                // The task before may have ended with its runtime.
                self.probe(part);
                is_away = true;
            }
        }
        if is_away {
            self.without.fetch_add(1, Ordering::Relaxed);
        }
        is_away
    }

    /// A call goes to the server of this key.
    pub(in crate::store) fn waiting(self: &Arc<Self>, key: &Key) -> Waiting {
        Waiting {
            watch: Arc::clone(self),
            place: self.remote.place(key),
            since: Instant::now(),
            is_over: false,
        }
    }

    fn failed(self: &Arc<Self>, place: KeyPart, error: &StoreError) {
        if self.breaker.failed(place) {
            self.times().went_away = Some(Instant::now());
            self.without.store(0, Ordering::Relaxed);
            self.report.is_away(error);
        }
        if self.breaker.is_any_open() {
            self.probe(place.part);
        }
    }

    fn has_answered(&self) {
        let now = self.now();
        // Now and then: a write by every request would be shared by all processors.
        let a_while = u64::try_from(self.remote.deadline().as_millis() / 8).unwrap_or(u64::MAX);
        let answered = self.answered.load(Ordering::Relaxed);
        if answered == 0 || now.saturating_sub(answered) > a_while {
            self.answered.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Whether it answers other calls, so that a caller that gave up may have been impatient. For a cluster this is
    /// unknown, since another server may have answered.
    fn has_answered_lately(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.now().saturating_sub(answered));
        answered > 0 && since < self.remote.deadline() && !self.remote.is_divided()
    }

    /// In milliseconds since this was made.
    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Logs an error that concerns some requests, and not the server as a whole.
    pub(in crate::store) fn tell_of_some(&self, error: &StoreError) {
        let mut times = self.times();
        let is_due = times
            .told_of_some
            .is_none_or(|told| told.elapsed() >= SOME_TOLD);
        if is_due {
            times.told_of_some = Some(Instant::now());
            drop(times);
            self.report.cannot_decide_on_some(error);
        }
    }

    /// Begins to ask the server of this part whether it is back, if it is away and that is not being done.
    fn probe(self: &Arc<Self>, part: u64) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.breaker.begin_to_probe(part) {
            return;
        }
        let mut probing = Probing {
            watch: Arc::downgrade(self),
            part,
        };
        runtime.spawn(async move {
            while let Some(pause) = probing.pause() {
                sleep(pause).await;
                probing.ask().await;
            }
        });
    }

    /// How long to wait before the next probe of this part, if there is to be one.
    fn pause(&self, part: u64) -> Option<Duration> {
        let random = RandomState::new().hash_one(0);
        #[expect(clippy::cast_possible_truncation, reason = "a part of 1,024")]
        let less = f64::from(random as u32 % 1_024) / 1_024.0;
        let takes = self.remote.longest_probe();
        self.breaker.next_probe(part, less, takes)
    }

    /// A part that one of these needs, which is away, and whose probes are so late that they may not run at all: its runtime
    /// may be there for single requests alone, which do not wait for anything now. It is told to one request in a while,
    /// which then asks in the place of the task.
    pub(in crate::store) fn overdue(&self, charges: &[Charge]) -> Option<u64> {
        let mut parts = charges
            .iter()
            .map(|charge| self.remote.place(&charge.key).part);
        parts.find(|part| self.breaker.is_overdue(*part))
    }

    /// Asks in the place of the task, for as long as a call may take.
    pub(in crate::store) async fn ask_in_passing(&self, part: u64) {
        let Some(mut timer) = Timers::default().after(self.remote.deadline()) else {
            // Nothing would wake it in time, so it takes as long as it takes.
            return self.ask(part).await;
        };
        let mut asked = pin!(self.ask(part));
        poll_fn(|cx| match asked.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => timer.poll(cx),
        })
        .await;
    }

    /// Asks this part whether it is back: by the slot that failed last, which another server may have by now.
    async fn ask(&self, part: u64) {
        let Some(slot) = self.breaker.failed_slot(part) else {
            return;
        };
        if self.remote.probe(slot).await.is_ok() {
            self.has_answered();
            if self.breaker.close(part) {
                self.is_back();
            }
        }
    }

    fn is_back(&self) {
        let away = self.times().went_away.take().map(|since| since.elapsed());
        let decided = self.without.load(Ordering::Relaxed);
        self.report.is_back(away.unwrap_or_default(), decided);
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call whose answer is not there yet. Dropping it after a while counts as a failure of the server, as the deadline
/// does, unless the server answers other calls: a client may give up as often as it likes.
pub(in crate::store) struct Waiting {
    watch: Arc<Watch>,
    place: KeyPart,
    since: Instant,
    is_over: bool,
}

impl Waiting {
    /// Ends it, with the error that the store has failed with, if it has. An error that says something of one
    /// key alone is none.
    pub(in crate::store) fn end(mut self, failure: Option<&StoreError>) {
        self.is_over = true;
        self.watch.calls.ended(self.since, failure.is_some());
        if let Some(error) = failure {
            self.watch.failed(self.place, error);
        } else {
            self.watch.has_answered();
            self.watch.breaker.succeeded(self.place.part);
        }
    }
}

impl Waiting {
    /// Ends it without an answer of the store, good or bad.
    pub(in crate::store) fn cancel(mut self) {
        self.is_over = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let a_while = self.watch.remote.deadline() / 4;
        let is_late = !self.is_over && self.since.elapsed() >= a_while;
        if is_late && !self.watch.has_answered_lately() {
            self.watch.calls.ended(self.since, true);
            self.watch.failed(self.place, &late());
        }
    }
}

/// A call has taken longer than it may.
pub(in crate::store) fn late() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable)
        .because("timed out")
        .caused_by("it did not answer in time")
}

/// The store is known to be away, and was not asked.
pub(in crate::store) fn away() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable)
        .because("away")
        .caused_by("it has failed several times in a row, and is asked again as soon as it answers a probe")
}

/// The task that probes a part, for as long as the store is there and the part is away.
struct Probing {
    watch: Weak<Watch>,
    part: u64,
}

impl Probing {
    /// How long to wait before the next probe, if there is to be one.
    fn pause(&mut self) -> Option<Duration> {
        let pause = self.watch.upgrade()?.pause(self.part);
        if pause.is_none() {
            // If there is a task now it is another.
            self.watch = Weak::new();
        }
        pause
    }

    async fn ask(&self) {
        if let Some(watch) = self.watch.upgrade() {
            watch.ask(self.part).await;
        }
    }
}

/// With its runtime, perhaps; the next request then begins anew.
impl Drop for Probing {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.upgrade() {
            watch.breaker.end_to_probe(self.part);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Remote for Nowhere {
        fn deadline(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn probe(&self, _: u16) -> Probe {
            Box::pin(async { Err(away()) })
        }

        fn longest_probe(&self) -> Duration {
            Duration::from_secs(1)
        }
    }

    #[test]
    fn a_task_that_ends_leaves_the_next_alone() {
        let watch = Arc::new(Watch::new(Arc::new(Nowhere), String::new()));
        let place = KeyPart { part: 0, slot: 0 };
        let goes_away = || {
            while !watch.breaker.is_open(0) {
                watch.breaker.failed(place);
            }
        };
        goes_away();
        assert!(watch.breaker.begin_to_probe(0));
        let mut probing = Probing {
            watch: Arc::downgrade(&watch),
            part: 0,
        };
        assert!(probing.pause().is_some());
        watch.breaker.close(0);
        assert_eq!(probing.pause(), None);
        goes_away();
        assert!(watch.breaker.begin_to_probe(0));
        drop(probing);
        assert!(!watch.breaker.begin_to_probe(0));
    }
}
