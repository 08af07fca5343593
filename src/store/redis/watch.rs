use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ahash::RandomState;
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::LAYOUT;
use super::breaker::{Breaker, Place};
use super::failure::{failure, is_of_a_key, is_of_some};
use super::line::CONNECTING;
use super::link::{Link, timed_out};
use super::outage::Outages;
use super::slots::{slot_of, tag_in};
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::StoreError;
use crate::key::Key;
use crate::store::Charge;
use crate::store::standby::Standby;

/// Watches whether the server is there, asks it by itself while it is not, and tells those who run the
/// service.
pub(super) struct Watch {
    link: Arc<Link>,
    prefix: Arc<str>,
    outages: Outages,
    breaker: Breaker,
    /// When the server has answered last, more or less, in milliseconds since this was made; 0 if it never has.
    answered: AtomicU64,
    made: Instant,
    /// How many requests were decided without the server since it went away.
    without: AtomicU64,
    times: Mutex<Times>,
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
    "while Redis is away each node admits the whole limit by itself, so that N nodes admit N times as much",
    "say how many nodes there are with `.nodes(n)`, 1 if it is one, or what else is to become of a policy with `.on_store_failure(…)`",
);

impl Watch {
    pub(super) fn new(link: Arc<Link>, prefix: Arc<str>, servers: String) -> Self {
        Self {
            breaker: Breaker::new(link.is_guessed()),
            link,
            prefix,
            outages: Outages::new(servers),
            answered: AtomicU64::new(0),
            made: Instant::now(),
            without: AtomicU64::new(0),
            times: Mutex::default(),
        }
    }

    /// Says once what an outage can let through.
    pub(super) fn say_what_nodes_admit(&self) {
        warn_once_of(&WHOLE_LIMITS, format!("the store {:?}", self.prefix));
    }

    /// These policies are decided on without the store while it is away.
    pub(super) fn concern(&self, standby: &Arc<Standby>) {
        self.outages.concern(Arc::downgrade(standby));
    }

    /// Whether a server is known to be away that one of these needs.
    pub(super) fn is_away(self: &Arc<Self>, charges: &[Charge]) -> bool {
        if !self.breaker.is_any_open() {
            return false;
        }
        let mut is_away = false;
        for charge in charges {
            let Place { part, .. } = self.place(&charge.key);
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

    /// Where the key is, as far as is known.
    fn place(&self, key: &Key) -> Place {
        let slot = if self.link.is_divided() {
            slot_of(key.name().as_str().as_bytes())
        } else {
            0
        };
        let part = self.link.part(slot);
        Place { part, slot }
    }

    /// A call goes to the server of this key.
    pub(super) fn waiting(self: &Arc<Self>, key: &Key) -> Waiting {
        Waiting {
            watch: Arc::clone(self),
            place: self.place(key),
            since: Instant::now(),
            is_over: false,
        }
    }

    fn failed(self: &Arc<Self>, place: Place, error: &StoreError) {
        if self.breaker.failed(place) {
            self.times().went_away = Some(Instant::now());
            self.without.store(0, Ordering::Relaxed);
            self.outages.log_absence(error);
        }
        if self.breaker.is_any_open() {
            self.probe(place.part);
        }
    }

    fn has_answered(&self) {
        let now = self.now();
        // Now and then: a write by every request would be shared by all processors.
        let a_while = u64::try_from(self.link.patience().as_millis() / 8).unwrap_or(u64::MAX);
        let answered = self.answered.load(Ordering::Relaxed);
        if answered == 0 || now.saturating_sub(answered) > a_while {
            self.answered.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Whether it answers somebody, so that whoever gave up may have been impatient. Of a cluster nobody knows, where
    /// another server may have answered.
    fn has_answered_lately(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.now().saturating_sub(answered));
        answered > 0 && since < self.link.patience() && !self.link.is_divided()
    }

    /// In milliseconds since this was made.
    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Tells those who run the service of an error that concerns some requests, and not the server as a whole.
    pub(super) fn tell_of_some(&self, error: &StoreError) {
        if !is_of_some(error) {
            return;
        }
        let mut times = self.times();
        let is_due = times
            .told_of_some
            .is_none_or(|told| told.elapsed() >= SOME_TOLD);
        if is_due {
            times.told_of_some = Some(Instant::now());
            drop(times);
            self.outages.log_some(error);
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
        // To connect, to ask, and as much again as connecting takes, for a machine that is busy.
        let takes = CONNECTING.saturating_mul(2) + self.link.patience();
        self.breaker.next_probe(part, less, takes)
    }

    /// A part that one of these needs, which is away, and whose probes are so late that they may not run at all: its runtime
    /// may be there for single requests alone, which do not wait for anything now. It is told to one request in a while,
    /// which then asks in the place of the task.
    pub(super) fn overdue(&self, charges: &[Charge]) -> Option<u64> {
        let mut parts = charges.iter().map(|charge| self.place(&charge.key).part);
        parts.find(|part| self.breaker.is_overdue(*part))
    }

    /// Asks in the place of the task, for as long as a call may take.
    pub(super) async fn ask_in_passing(&self, part: u64) {
        if Handle::try_current().is_ok() {
            let _ = timeout(self.link.patience(), self.ask(part)).await;
        }
    }

    /// Asks the server of this part whether it is back: the one that has the slot which failed last, which may be
    /// another server by now.
    async fn ask(&self, part: u64) {
        // A new connection takes longer than a call may.
        let connected = timeout(CONNECTING, self.link.connect()).await;
        let (Ok(Ok(())), Some(slot)) = (connected, self.breaker.failed_slot(part)) else {
            return;
        };
        let tag = if self.link.is_divided() {
            tag_in(slot)
        } else {
            String::from("probe")
        };
        let answer = self.link.send(self.question(&tag), self.link.deadline());
        if answer.await.map_err(failure).is_ok() {
            self.has_answered();
            if self.breaker.close(part) {
                self.is_back();
            }
        }
    }

    /// Whether a server takes what a decision needs.
    pub(super) async fn try_out(&self) -> Result<(), StoreError> {
        let answer = self.link.send(self.question("probe"), self.link.deadline());
        answer.await.map(drop).map_err(failure)
    }

    /// What a decision needs: a script that may write.
    fn question(&self, tag: &str) -> Cmd {
        let mut probe = redis::cmd("EVAL");
        probe
            .arg("redis.call('SET', KEYS[1], '', 'PX', 1000) return redis.call('DEL', KEYS[1])")
            .arg(1)
            .arg(format!("{}:{LAYOUT}:{{{tag}}}", self.prefix));
        probe
    }

    fn is_back(&self) {
        let away = self.times().went_away.take().map(|since| since.elapsed());
        let decided = self.without.load(Ordering::Relaxed);
        self.outages.log_return(away.unwrap_or_default(), decided);
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call whose answer is not there yet. Whoever drops it after a while has found the server too slow, as the
/// deadline would have, unless it answers others: a client may give up as often as it likes.
pub(super) struct Waiting {
    watch: Arc<Watch>,
    place: Place,
    since: Instant,
    is_over: bool,
}

impl Waiting {
    /// It is over, and this was told to each request in it. All of them together are one call, which has failed
    /// if the server could not decide on one of them.
    pub(super) fn end<'a>(mut self, answers: impl IntoIterator<Item = &'a RedisResult<Value>>) {
        self.is_over = true;
        let errors = answers
            .into_iter()
            .filter_map(|answer| answer.as_ref().err());
        let mut errors = errors.map(|error| failure(error.clone()));
        if let Some(error) = errors.find(|error| !is_of_a_key(error)) {
            self.watch.failed(self.place, &error);
        } else {
            self.watch.has_answered();
            self.watch.breaker.succeeded(self.place.part);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let a_while = self.watch.link.patience() / 4;
        let is_late = !self.is_over && self.since.elapsed() >= a_while;
        if is_late && !self.watch.has_answered_lately() {
            self.watch.failed(self.place, &failure(timed_out()));
        }
    }
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
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn a_task_that_ends_leaves_the_next_alone() {
        let server = "redis://127.0.0.1:6379/".into_connection_info().unwrap();
        let link = Arc::new(Link::to_server(server, CONNECTING));
        let watch = Arc::new(Watch::new(link, "a".into(), String::new()));
        let place = Place { part: 0, slot: 0 };
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
