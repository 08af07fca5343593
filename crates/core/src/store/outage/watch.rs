//! Watches a store: counts its failures, probes it while it is away, and reports both.
//!
//! One watch serves all limiters over a store, so that an outage is found and logged once.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use ahash::RandomState;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::breaker::{Breaker, KeyPart};
use super::node_count::NodeCount;
use super::report::Report;
use super::standby::{Instead, Standby};
use crate::clock::Timers;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::observe::{Calls, StoreStats};
use crate::store::{Charge, Charges, Reply};

/// A remote store that can be away, as a whole or in parts.
pub trait Remote: Send + Sync + 'static {
    /// Returns the part that has this key, as far as is known. By default there is one part.
    fn place(&self, key: &Key) -> KeyPart {
        let _ = key;
        KeyPart::default()
    }

    /// Returns whether keys may be in several parts.
    fn is_divided(&self) -> bool {
        false
    }

    /// Returns whether parts are guessed, so that several of them are likely to be one server.
    fn are_parts_guessed(&self) -> bool {
        false
    }

    /// Returns how long a call may take.
    fn deadline(&self) -> Duration;

    /// Checks whether the part that has this slot can write again, which every decision needs.
    fn probe(&self, slot: u16) -> Probe;

    /// Returns the runtime in which the task lives that probes: by default that of the request that starts it.
    fn runtime(&self) -> Option<Handle> {
        Handle::try_current().ok()
    }

    /// Returns how long a probe takes at most on a busy machine.
    fn longest_probe(&self) -> Duration;
}

/// Whether a store is back.
pub type Probe = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Watches whether a store is there, probes it while it is away, and reports to operators.
pub struct Watch {
    remote: Arc<dyn Remote>,
    nodes: Option<NodeCount>,
    report: Report,
    breaker: Breaker,
    /// When the server last answered, within some milliseconds, in milliseconds since the watch was created;
    /// 0 if never.
    answered: AtomicU64,
    made: Instant,
    /// The number of requests that were decided without the server since it went away.
    without: AtomicU64,
    times: Mutex<Times>,
    calls: Calls,
}

#[derive(Default)]
struct Times {
    went_away: Option<Instant>,
    some_logged: Option<Instant>,
    failed: Option<Instant>,
}

/// How often an error that concerns some requests is logged at most.
const SOME_EVERY: Duration = Duration::from_secs(60);

/// A failure is logged by itself if there was none for this long before it.
const QUIET: Duration = Duration::from_secs(3_600);

/// The reasons of a store that answers, and refuses writes.
const REFUSES_WRITES: [&str; 4] = [
    "read only",
    "no replicas",
    "cannot persist",
    "out of memory",
];

const WHOLE_LIMITS: Diagnostic = Diagnostic::new(
    "TRL012",
    "",
    "while the store is away each node admits the whole limit by itself, so that N nodes admit N times as much",
    "set the number of nodes with `.nodes(n)`, 1 for a single node, or choose what a policy does with `.on_store_failure(…)`; \
     in a file of limits: `nodes = 3` under `[store]`, or `on_store_failure = \"refuse\"` of the policy",
);

impl Watch {
    /// Watches this store under this name in the log.
    pub fn new(remote: Arc<dyn Remote>, store: String, nodes: Option<NodeCount>) -> Self {
        Self {
            nodes,
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

    /// Returns the counts of calls to the store.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the counts of the store, for a store of this kind.
    pub fn stats(&self, kind: &'static str) -> StoreStats {
        let mut stats = StoreStats::new(kind);
        self.report.store().clone_into(&mut stats.name);
        stats.nodes = self.nodes.as_ref().map(NodeCount::get);
        stats.failing_parts = self.breaker.open() as u64;
        stats.is_up = stats.failing_parts == 0;
        let away = self.times().went_away.map(|since| since.elapsed());
        stats.away_since = away.and_then(|away| SystemTime::now().checked_sub(away));
        self.calls.add_to(&mut stats);
        stats
    }

    /// Notes that these policies are decided without the store while it is away. If nothing tells how many nodes there are,
    /// warns once of what an outage can let through, of each `store`, such as `the store "ratelimit"`.
    pub fn stands_in(&self, standby: &Arc<Standby>, store: &str) {
        self.report.add(Arc::downgrade(standby));
        if self.nodes.is_none() && standby.keeps_any() {
            warn_once_of(&WHOLE_LIMITS, store.to_owned());
        }
    }

    /// Returns whether a server that one of these charges needs is known to be away.
    pub fn is_away(self: &Arc<Self>, charges: &[Charge]) -> bool {
        if !self.breaker.is_any_open() {
            return false;
        }
        let mut is_away = false;
        for charge in charges {
            let KeyPart { part, .. } = self.remote.place(&charge.key);
            if self.breaker.is_open(part) {
                // The previous task may have ended with its runtime.
                self.probe(part);
                is_away = true;
            }
        }
        if is_away {
            self.without.fetch_add(1, Ordering::Relaxed);
        }
        is_away
    }

    /// Returns the number of the part that has this key.
    pub fn part(&self, key: &Key) -> u64 {
        self.remote.place(key).part
    }

    /// Begins a call to the server of this key.
    pub fn waiting(self: &Arc<Self>, key: &Key) -> Waiting {
        Waiting {
            watch: Arc::clone(self),
            place: self.remote.place(key),
            since: Instant::now(),
            is_over: false,
        }
    }

    fn failed(self: &Arc<Self>, place: KeyPart, error: &StoreError) {
        let is_named = |reason| REFUSES_WRITES.contains(&reason);
        let refuses_writes = error.is_of_a_write() || error.reason().is_some_and(is_named);
        let goes_away = self.breaker.failed(place, refuses_writes);
        let now = Instant::now();
        let mut times = self.times();
        let before = times.failed.replace(now);
        if goes_away {
            times.went_away = Some(now);
        }
        drop(times);
        if goes_away {
            self.without.store(0, Ordering::Relaxed);
            self.report.report_away(error);
        } else if before.is_none_or(|before| now - before >= QUIET) {
            self.report.report_first_failure(error);
        }
        if self.breaker.is_any_open() {
            self.probe(place.part);
        }
    }

    /// Records that the server of this key has written what a call needed.
    pub fn has_written(&self, key: &Key) {
        if self.breaker.is_any_failing() {
            self.breaker.succeeded(self.remote.place(key).part, true);
        }
    }

    fn note_answer(&self) {
        let now = self.now();
        // Only now and then: a write by every request would be shared by all processors.
        let a_while = u64::try_from(self.remote.deadline().as_millis() / 8).unwrap_or(u64::MAX);
        let answered = self.answered.load(Ordering::Relaxed);
        if answered == 0 || now.saturating_sub(answered) > a_while {
            self.answered.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Returns whether the server answers other calls, so that a caller that gave up may have been impatient.
    /// For a cluster this is unknown, since another server may have answered.
    fn has_answered_lately(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.now().saturating_sub(answered));
        answered > 0 && since < self.remote.deadline() && !self.remote.is_divided()
    }

    /// Returns the milliseconds since the watch was created.
    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Logs an error that concerns some requests, and not the server as a whole.
    pub fn log_partial(&self, error: &StoreError) {
        let mut times = self.times();
        let is_due = times
            .some_logged
            .is_none_or(|logged| logged.elapsed() >= SOME_EVERY);
        if is_due {
            times.some_logged = Some(Instant::now());
            drop(times);
            self.report.cannot_decide_on_some(error);
        }
    }

    /// Starts a task that probes the server of this part, if the part is away and has no such task.
    fn probe(self: &Arc<Self>, part: u64) {
        let Some(runtime) = self.remote.runtime() else {
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

    /// Returns how long to wait before the next probe of this part, or `None` if it needs none.
    fn pause(&self, part: u64) -> Option<Duration> {
        let random = RandomState::new().hash_one(0);
        #[expect(clippy::cast_possible_truncation, reason = "a part of 1,024")]
        let less = f64::from(random as u32 % 1_024) / 1_024.0;
        let takes = self.remote.longest_probe();
        self.breaker.next_probe(part, less, takes)
    }

    /// Returns a part that is away, is needed by one of these charges, and whose probes are so late that they
    /// may not run at all: the runtime may exist for single requests only, and these wait for nothing now. It
    /// is returned to one request in a while, which then probes in place of the task.
    fn overdue(&self, charges: &[Charge]) -> Option<u64> {
        let mut parts = charges
            .iter()
            .map(|charge| self.remote.place(&charge.key).part);
        parts.find(|part| self.breaker.is_overdue(*part))
    }

    /// Decides a request here while a server that it needs is known to be away. If the probes are overdue, the request probes
    /// first.
    pub fn decide_without<T: Send + 'static>(
        self: &Arc<Self>,
        standby: &Arc<Standby>,
        charges: &[Charge],
        decide: Instead<T>,
    ) -> Reply<Result<T, StoreError>> {
        let Some(part) = self.overdue(charges) else {
            return Reply::Now(decide(standby, charges, None));
        };
        let (watch, standby) = (Arc::clone(self), Arc::clone(standby));
        let charges = Charges::from_slice(charges);
        Reply::later(async move {
            watch.ask_in_passing(part).await;
            decide(&standby, &charges, None)
        })
    }

    /// Probes a part in place of the task, for as long as a call may take.
    async fn ask_in_passing(&self, part: u64) {
        // Without a timer, it takes as long as it takes.
        let deadline = self.remote.deadline();
        let _ = Timers::default().wait(deadline, self.ask(part)).await;
    }

    /// Probes this part by the slot that failed last, which another server may have by now.
    async fn ask(&self, part: u64) {
        let Some(slot) = self.breaker.failed_slot(part) else {
            return;
        };
        if self.remote.probe(slot).await.is_ok() {
            self.note_answer();
            if self.breaker.close(part) {
                self.mark_back();
            }
        }
    }

    fn mark_back(&self) {
        let away = self.times().went_away.take().map(|since| since.elapsed());
        let decided = self.without.load(Ordering::Relaxed);
        self.report.report_back(away.unwrap_or_default(), decided);
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call without an answer yet. Dropping it after a while counts as a failure of the server, as a missed
/// deadline does, unless the server answers other calls: a client may give up as often as it likes.
pub struct Waiting {
    watch: Arc<Watch>,
    place: KeyPart,
    since: Instant,
    is_over: bool,
}

impl Waiting {
    /// Ends the call, with the store's error if there is one. An error that concerns one key alone is not a
    /// failure. Whether the store has [written](Watch::has_written) is told by itself.
    pub fn end(self, failure: Option<&StoreError>) {
        self.end_with(failure, false);
    }

    /// As [`end`](Self::end), of a call that tells whether the store has written.
    pub(in crate::store) fn end_with(mut self, failure: Option<&StoreError>, has_written: bool) {
        self.is_over = true;
        self.watch.calls.ended(self.since, failure.is_some());
        if let Some(error) = failure {
            self.watch.failed(self.place, error);
        } else {
            self.watch.note_answer();
            self.watch.breaker.succeeded(self.place.part, has_written);
        }
    }
}

impl Waiting {
    /// Ends the call without an answer of the store, good or bad.
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

/// Returns the error of a call that has missed its deadline.
pub fn late() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable)
        .because("timed out")
        .caused_by("it did not answer in time")
}

/// The task that probes a part, for as long as the store exists and the part is away.
struct Probing {
    watch: Weak<Watch>,
    part: u64,
}

impl Probing {
    /// Returns how long to wait before the next probe, or `None` if there is none.
    fn pause(&mut self) -> Option<Duration> {
        let pause = self.watch.upgrade()?.pause(self.part);
        if pause.is_none() {
            // If there is a task now, it is another one.
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

/// The task may have ended with its runtime; the next request then starts another.
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

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
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
            Box::pin(async { Err(Standby::away()) })
        }

        fn longest_probe(&self) -> Duration {
            Duration::from_secs(1)
        }
    }

    #[test]
    fn a_task_that_ends_leaves_the_next_alone() {
        let watch = Arc::new(Watch::new(Arc::new(Nowhere), String::new(), None));
        let place = KeyPart { part: 0, slot: 0 };
        let goes_away = || {
            while !watch.breaker.is_open(0) {
                watch.breaker.failed(place, false);
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
