use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ahash::RandomState;
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::LAYOUT;
use super::breaker::Breaker;
use super::failure::{failure, is_of_a_key, is_of_some};
use super::line::CONNECTING;
use super::link::{Link, timed_out};
use super::outage::Outages;
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
    /// Whether a task asks the server whether it is back.
    is_probed: AtomicBool,
    /// When the next probe is over at the latest, in milliseconds since this was made.
    due: AtomicU64,
    /// When the server has answered last, more or less, in milliseconds since this was made; 0 if it never has.
    answered: AtomicU64,
    made: Instant,
    /// How many requests were decided without the server since it went away.
    without: AtomicU64,
    times: Mutex<Times>,
}

struct Times {
    went_away: Option<Instant>,
    came_back: Option<Instant>,
    /// How many probes there were since the server last stayed for a while.
    probes: u32,
    told_of_some: Option<Instant>,
}

/// The first probe comes after this time, and each of the next after twice as long as the one before.
const FIRST_PROBE: Duration = Duration::from_millis(250);

/// And at last after this time.
const LAST_PROBE: Duration = Duration::from_millis(LAST_PROBE_MILLIS);
const LAST_PROBE_MILLIS: u64 = 5_000;

/// A server that goes away again before this time is asked as seldom as it was before.
const STAYS: Duration = Duration::from_secs(10);

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
            breaker: Breaker::new(link.is_divided()),
            link,
            prefix,
            outages: Outages::new(servers),
            is_probed: AtomicBool::new(false),
            due: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            made: Instant::now(),
            without: AtomicU64::new(0),
            times: Mutex::new(Times {
                went_away: None,
                came_back: None,
                probes: 0,
                told_of_some: None,
            }),
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
        // The task before may have ended with its runtime.
        self.probe();
        let is_away = charges
            .iter()
            .any(|charge| self.breaker.is_open(&charge.key));
        if is_away {
            self.without.fetch_add(1, Ordering::Relaxed);
        }
        is_away
    }

    /// A call goes to the server of this key.
    pub(super) fn waiting(self: &Arc<Self>, key: &Key) -> Waiting {
        Waiting {
            watch: Arc::clone(self),
            key: *key,
            since: Instant::now(),
            is_over: false,
        }
    }

    fn failed(self: &Arc<Self>, key: &Key, error: &StoreError) {
        if self.breaker.failed(key) {
            let mut times = self.times();
            times.went_away = Some(Instant::now());
            let has_stayed = times.came_back.is_none_or(|back| back.elapsed() >= STAYS);
            if has_stayed {
                times.probes = 0;
            }
            drop(times);
            self.expect_probe_after(FIRST_PROBE);
            self.without.store(0, Ordering::Relaxed);
            self.outages.log_absence(error);
        }
        if self.breaker.is_any_open() {
            self.probe();
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

    /// Begins to ask the server whether it is back, unless that is being done.
    fn probe(self: &Arc<Self>) {
        // Read first: a write by every request would be shared by all processors.
        if self.is_probed.load(Ordering::SeqCst) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.is_probed.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut probing = Probing(Arc::downgrade(self));
        runtime.spawn(async move {
            let mut tags = HashMap::new();
            while let Some(pause) = probing.pause() {
                sleep(pause).await;
                probing.ask(&mut tags).await;
            }
        });
    }

    /// How long to wait before the next probe.
    fn pause(&self) -> Duration {
        let mut times = self.times();
        let doubled = FIRST_PROBE.saturating_mul(1 << times.probes.min(8));
        times.probes = times.probes.saturating_add(1);
        drop(times);
        // Up to a quarter less at random, so that nodes that lost the server together do not all ask at once.
        let random = RandomState::new().hash_one(0);
        let quarter = doubled.min(LAST_PROBE) / 4;
        #[expect(clippy::cast_possible_truncation, reason = "a part of 1,024")]
        let less = quarter * (random as u32 % 1_024) / 1_024;
        let pause = doubled.min(LAST_PROBE).saturating_sub(less);
        self.expect_probe_after(pause);
        pause
    }

    fn expect_probe_after(&self, pause: Duration) {
        // To connect, to ask, and as much again as connecting takes, for a machine that is busy.
        let takes = CONNECTING.saturating_mul(2) + self.link.patience();
        let due = (self.made.elapsed() + pause + takes).as_millis();
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        self.due.store(due, Ordering::Relaxed);
    }

    /// Whether the task that asks is so late that nobody may run it: its runtime may be there for single requests
    /// alone, which do not wait for anything now. Says so to one request in a while, which then asks in its place.
    pub(super) fn is_overdue(&self) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let now = self.now();
        if now <= due {
            return false;
        }
        let next = now.saturating_add(LAST_PROBE_MILLIS);
        let claimed = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Asks in the place of the task, for as long as a call may take.
    pub(super) async fn ask_in_passing(self: &Arc<Self>) {
        if Handle::try_current().is_ok() {
            let _ = timeout(self.link.patience(), self.ask(&mut HashMap::new())).await;
        }
    }

    /// Asks for every part of the server that is away.
    async fn ask(self: &Arc<Self>, tags: &mut HashMap<u16, String>) {
        // A new connection takes longer than a call may.
        let connected = timeout(CONNECTING, self.link.connect()).await;
        if !matches!(connected, Ok(Ok(()))) {
            return;
        }
        let mut asked = JoinSet::new();
        for (group, slot) in self.breaker.open() {
            if !tags.contains_key(&slot) {
                // The search is work of half a millisecond.
                tokio::task::yield_now().await;
            }
            let tag = tags.entry(slot);
            let tag = tag.or_insert_with(|| self.breaker.tag_in(slot));
            let (watch, probe) = (Arc::clone(self), self.question(tag));
            asked.spawn(async move {
                let answer = watch.link.send(probe, watch.link.deadline()).await;
                if answer.map_err(failure).is_ok() {
                    watch.has_answered();
                    if watch.breaker.close(group) {
                        watch.is_back();
                    }
                }
            });
        }
        while asked.join_next().await.is_some() {}
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
        let mut times = self.times();
        times.came_back = Some(Instant::now());
        let away = times.went_away.take().map(|since| since.elapsed());
        drop(times);
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
    key: Key,
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
            self.watch.failed(&self.key, &error);
        } else {
            self.watch.has_answered();
            self.watch.breaker.succeeded(&self.key);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let a_while = self.watch.link.patience() / 4;
        let is_late = !self.is_over && self.since.elapsed() >= a_while;
        if is_late && !self.watch.has_answered_lately() {
            self.watch.failed(&self.key, &failure(timed_out()));
        }
    }
}

/// The task that asks, for as long as somebody has the store and a part of it is away.
struct Probing(Weak<Watch>);

impl Probing {
    /// How long to wait before the next probe, if there is to be one.
    fn pause(&mut self) -> Option<Duration> {
        let watch = self.0.upgrade()?;
        if !watch.breaker.is_any_open() {
            watch.is_probed.store(false, Ordering::SeqCst);
            // Who lost the server just before that has found that it is being asked.
            let is_needed = watch.breaker.is_any_open();
            if !is_needed || watch.is_probed.swap(true, Ordering::SeqCst) {
                // If there is a task now it is another.
                self.0 = Weak::new();
                return None;
            }
        }
        Some(watch.pause())
    }

    async fn ask(&self, tags: &mut HashMap<u16, String>) {
        if let Some(watch) = self.0.upgrade() {
            watch.ask(tags).await;
        }
    }
}

/// With its runtime, perhaps; the next request then begins anew.
impl Drop for Probing {
    fn drop(&mut self) {
        if let Some(watch) = self.0.upgrade() {
            watch.is_probed.store(false, Ordering::SeqCst);
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
    use redis::Client;

    use super::*;

    #[test]
    fn a_task_that_ends_leaves_the_next_alone() {
        let client = Client::open("redis://127.0.0.1:6379/").unwrap();
        let link = Arc::new(Link::to_server(client, CONNECTING));
        let watch = Arc::new(Watch::new(link, "a".into(), String::new()));
        watch.is_probed.store(true, Ordering::SeqCst);
        let mut probing = Probing(Arc::downgrade(&watch));
        assert_eq!(probing.pause(), None);
        assert!(!watch.is_probed.swap(true, Ordering::SeqCst));
        drop(probing);
        assert!(watch.is_probed.load(Ordering::SeqCst));
    }
}
