//! Nodes that share limits, under load while their store fails.

use std::mem::take;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower_ratelimit::store::RedisStoreBuilder;
use tower_ratelimit::{AnchoredWindow, Decision, Limiter, OnStoreFailure, Policy, RedisStore};

use crate::run::{CallRecord, Run, Said, are_well};

/// The number of nodes, each with a store of its own.
pub(crate) const NODES: u32 = 3;
/// The number of tasks that send requests on each node.
const TASKS: usize = 2;

/// The limit of each key, until long after the test.
pub(crate) const LIMIT: u32 = 120;
/// The requests that a node lets pass while it is alone.
pub(crate) const SHARE: u32 = LIMIT.div_ceil(NODES);

/// The deadline of a call, unless a test sets its own.
const DEADLINE: Duration = Duration::from_millis(100);
/// The delay of an answer after its deadline that a busy machine may cause.
pub(crate) const SCHEDULING: Duration = Duration::from_secs(1);
/// The time within which service has to be full again.
pub(crate) const BACK: Duration = Duration::from_secs(10);
/// The pause between two requests of a task.
const PACE: Duration = Duration::from_millis(4);
/// The requests of a task at which a test has failed.
const MOST: usize = 20_000;
/// The time after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The least number of answers of each task for each key: before the fault, during it, and afterwards.
const BEFORE: usize = 30;
const DURING: usize = 75;
const AFTER: usize = 74;

/// The number of panics of threads under test.
static PANICS: AtomicUsize = AtomicUsize::new(0);
const THREADS: &str = "faults";

/// The phase of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Before,
    During,
    After,
}

/// A key of the scene, and the phase in which it is first used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: u64,
    pub(crate) since: Phase,
}

/// A key in use when the fault comes, one first used during the fault, and one first used afterwards.
const KEYS: [Key; 3] = [
    Key {
        name: 0,
        since: Phase::Before,
    },
    Key {
        name: 1,
        since: Phase::During,
    },
    Key {
        name: 2,
        since: Phase::After,
    },
];

/// The state that the sending threads share.
struct Stage {
    keys: Vec<Key>,
    phase: Mutex<Phase>,
    is_over: AtomicBool,
}

impl Stage {
    fn known(&self, phase: Phase) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.since <= phase)
    }
}

/// A task that sends requests.
struct Asker {
    node: u32,
    answers: Arc<Mutex<Vec<CallRecord>>>,
    task: JoinHandle<()>,
}

/// The setting of a scene, before it starts.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    keys: Vec<Key>,
    deadline: Duration,
}

impl Setting {
    pub(crate) fn new() -> Self {
        Self {
            keys: KEYS.to_vec(),
            deadline: DEADLINE,
        }
    }

    /// Sets a long deadline, for faults that degrade nothing: a late answer on a busy machine is no fault.
    pub(crate) fn patient() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            ..Self::new()
        }
    }

    /// Sets the keys of the scene.
    pub(crate) fn about(self, keys: Vec<Key>) -> Self {
        Self { keys, ..self }
    }

    /// Starts to send requests, through stores that `open` opens.
    pub(crate) fn start(self, open: impl Fn(RedisStoreBuilder) -> RedisStore) -> Scene {
        count_panics();
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(2).thread_name(THREADS).enable_all();
        let runtime = runtime.build().unwrap();
        let open = || {
            let builder = RedisStore::builder().deadline(self.deadline).nodes(NODES);
            // A remembered denial says nothing about the server.
            open(builder.remember_denials_for(Duration::ZERO))
        };
        let stage = Arc::new(Stage {
            keys: self.keys,
            phase: Mutex::new(Phase::Before),
            is_over: AtomicBool::new(false),
        });
        let mut askers = Vec::new();
        for node in 0..NODES {
            let limiter = Limiter::builder().policy(policy()).store(open());
            let limiter = limiter.build().unwrap();
            for _ in 0..TASKS {
                let answers = Arc::default();
                let asks = ask(limiter.clone(), Arc::clone(&stage), Arc::clone(&answers));
                let task = runtime.spawn(asks);
                askers.push(Asker {
                    node,
                    answers,
                    task,
                });
            }
        }
        Scene {
            runtime,
            stage,
            askers,
            deadline: self.deadline,
            struck: None,
            panics: PANICS.load(Ordering::SeqCst),
        }
    }
}

fn policy() -> Policy {
    Policy::new("faults", AnchoredWindow::per_day(LIMIT)).on_store_failure(OnStoreFailure::Local)
}

/// Returns the key in Redis of the state of a key.
pub(crate) fn store_key(key: u64) -> String {
    let anywhere = RedisStore::new("redis://127.0.0.1:1/").unwrap();
    anywhere.store_key(&policy(), key)
}

async fn ask(limiter: Limiter, stage: Arc<Stage>, answers: Arc<Mutex<Vec<CallRecord>>>) {
    for number in 0..MOST {
        if stage.is_over.load(Ordering::SeqCst) {
            return;
        }
        let phase = *lock(&stage.phase);
        let known = stage.known(phase).count();
        let key = stage.known(phase).nth(number % known);
        let key = key.expect("there is one for each phase").name;
        let began = Instant::now();
        let told = limiter.check(key, 1).await;
        let took = began.elapsed();
        let answer = CallRecord {
            key,
            phase,
            began,
            took,
            said: match &told {
                Ok(decision) if decision.is_allowed() => Said::Allowed,
                Ok(_) => Said::Denied,
                Err(_) => Said::Failed,
            },
            is_degraded: told.as_ref().map_or(true, Decision::is_degraded),
        };
        lock(&answers).push(answer);
        sleep(PACE).await;
    }
}

/// A load on the nodes of a [`Setting`].
pub(crate) struct Scene {
    runtime: Runtime,
    stage: Arc<Stage>,
    askers: Vec<Asker>,
    deadline: Duration,
    struck: Option<Instant>,
    panics: usize,
}

impl Scene {
    /// Waits until service is full before the fault.
    pub(crate) fn warm(self) -> Self {
        self.wait("all is well at first", |answers| {
            answers.len() >= self.times(BEFORE, Phase::Before) && are_well(answers, Phase::Before)
        });
        self
    }

    /// Returns the number of answers of a task for all keys that are in use in this phase.
    fn times(&self, each: usize, phase: Phase) -> usize {
        each * self.stage.known(phase).count()
    }

    /// Marks the begin of the fault.
    pub(crate) fn strike(&mut self) {
        self.struck = Some(Instant::now());
        *lock(&self.stage.phase) = Phase::During;
    }

    /// Waits until each task has had some answers during the fault.
    pub(crate) fn lasts(&self) {
        self.strikes_again(|| true);
    }

    /// Waits for this time.
    pub(crate) fn lasts_for(&self, length: Duration) {
        let struck = self.struck.expect("there is a fault");
        self.wait("the time is over", |_| struck.elapsed() >= length);
    }

    /// Repeats `again` during the fault, and longer until it returns true.
    ///
    /// How often it runs in a given time depends on the machine, so no test may count on that.
    pub(crate) fn strikes_again(&self, mut again: impl FnMut() -> bool) {
        let (mut before, mut is_enough) = (0, false);
        self.wait("answers while it lasts", |answers| {
            let since = answers.iter().rev();
            let since = since.take_while(|answer| answer.phase == Phase::During);
            let count = since.count();
            if count > before {
                before = count;
                is_enough = again();
            }
            is_enough && count >= self.times(DURING, Phase::During)
        });
    }

    /// Marks the end of the fault, waits until service is full again, and ends the scene.
    pub(crate) fn recovers(self) -> Run {
        let mended = Instant::now();
        *lock(&self.stage.phase) = Phase::After;
        self.wait_for(BACK + SCHEDULING, "all is well again", |answers| {
            are_well(answers, Phase::After)
        });
        self.wait("answers when it is over", |answers| {
            let after = answers.iter().rev();
            let after = after.take_while(|answer| answer.phase == Phase::After);
            after.count() >= self.times(AFTER, Phase::After)
        });
        self.stage.is_over.store(true, Ordering::SeqCst);
        let longest = self.deadline + SCHEDULING;
        let mut answers = Vec::new();
        for asker in self.askers {
            let ended = async { timeout(longest + SCHEDULING, asker.task).await };
            let ended = self.runtime.block_on(ended);
            ended.expect("every request is answered").expect("no panic");
            answers.push((asker.node, take(&mut *lock(&asker.answers))));
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), self.panics, "no panic");
        let all = answers.iter().flat_map(|(_, answers)| answers);
        let slowest = all.map(|answer| answer.took).max().unwrap_or_default();
        assert!(slowest <= longest, "one has waited for {slowest:?}");
        let run = Run {
            answers,
            struck: self.struck.expect("there was a fault"),
            mended,
            over: None,
        };
        let back = run.time_to_recover();
        assert!(back <= BACK, "full service took {back:?} to come back");
        run
    }

    fn wait(&self, what: &str, is_so: impl FnMut(&[CallRecord]) -> bool) {
        self.wait_for(PATIENCE, what, is_so);
    }

    /// Waits until the answers of each task satisfy `is_so`.
    fn wait_for(
        &self,
        longest: Duration,
        what: &str,
        mut is_so: impl FnMut(&[CallRecord]) -> bool,
    ) {
        let started = Instant::now();
        let mut waiting: Vec<&Asker> = self.askers.iter().collect();
        while !waiting.is_empty() {
            waiting.retain(|asker| {
                assert!(!asker.task.is_finished(), "one who asks has ended");
                let answers = lock(&asker.answers).clone();
                !is_so(&answers)
            });
            assert!(
                started.elapsed() < longest,
                "not in time: {what}; of each the last one: {:#?}",
                waiting
                    .iter()
                    .map(|asker| lock(&asker.answers).last().cloned())
                    .collect::<Vec<_>>()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Counts the panics of a scene's threads, wherever they end: no request waits for the store's own tasks.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if thread::current().name() == Some(THREADS) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
