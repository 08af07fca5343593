//! Lookups: one in flight for each key, in a task of its own, and at most a number of them in all.
//!
//! The lock of the flights orders a lookup that lands and an invalidation of its key. No lock is held while a
//! task is spawned or a future of the user is polled or dropped.
//!
//! A lookup runs in the runtime of the request that began it, since the user's future may need that one. If the runtime is not
//! run any more, the lookup's own timer is not either: then the next request gives the lookup up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use ahash::RandomState;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::health::Health;
use super::known::{Cache, Found, Known, LookupResult, Until, after};
use super::lock::lock;
use super::look::{Finding, PendingLookup, PlanLookup};
use super::options::{Options, Purpose};
use super::resolved::Resolved;
use crate::clock::Timers;
use crate::decision::Unresolved;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;
pub(super) type Lookup<K> =
    dyn Fn(K) -> Pin<Box<dyn Future<Output = Result<Resolved, BoxError>> + Send>> + Send + Sync;

/// The state that all clones of a resolver share.
pub(super) struct Lookups<K> {
    pub(super) lookup: Arc<Lookup<K>>,
    pub(super) options: Options,
    /// Keys for which a lookup has found a plan.
    pub(super) found: Cache<K>,
    /// All other keys, kept apart so that invented keys evict no known one.
    pub(super) absent: Cache<K>,
    flights: Mutex<Flights<K>>,
    /// Each refresh in flight has a clone.
    refreshes: Arc<()>,
    /// How often everything was invalidated.
    epoch: AtomicU64,
    health: Health,
    random: RandomState,
    drawn: AtomicU64,
    /// How many lookups have begun.
    begun: AtomicU64,
    /// Resolvers whose answers are invalidated together with its own.
    followers: Mutex<Vec<Weak<Self>>>,
}

type Flights<K> = HashMap<K, Flight, RandomState>;

/// A lookup in flight.
struct Flight {
    landed: watch::Sender<Option<Finding>>,
    /// Whether its key was invalidated after it began.
    is_outdated: bool,
    /// Counts it, if it is a refresh.
    _refresh: Option<Arc<()>>,
    /// Tells it from a later lookup of its key.
    number: u64,
    /// When its task has to have ended it.
    ends: Instant,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Lookups<K> {
    pub(super) fn new(lookup: Arc<Lookup<K>>, options: Options) -> Self {
        Self {
            lookup,
            found: Cache::new(options.capacity),
            absent: Cache::new(options.not_found_capacity),
            options,
            flights: Mutex::default(),
            refreshes: Arc::default(),
            epoch: AtomicU64::new(0),
            health: Health::default(),
            random: RandomState::new(),
            drawn: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            followers: Mutex::default(),
        }
    }

    /// Invalidates the answers of `follower` together with its own from now on.
    pub(super) fn invalidates(&self, follower: &Arc<Self>) {
        let mut followers = lock(&self.followers);
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(Arc::downgrade(follower));
    }

    fn followers(&self) -> Vec<Arc<Self>> {
        let followers = lock(&self.followers);
        followers.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.flights).len()
    }

    /// Returns what is known of a key without a fresh plan, and starts the lookup that it needs.
    #[inline(never)]
    pub(super) fn look_further(self: &Arc<Self>, key: &K, now: Instant) -> PlanLookup {
        let epoch = self.epoch();
        if let Some(absent) = self.absent.get(key)
            && let Some(LookupResult::NotFound) = absent.answer()
            && absent.is_fresh(now, epoch)
        {
            return PlanLookup::Known(Finding::not_found());
        }
        let mut flights = lock(&self.flights);
        let known = self.known(key);
        let (known, epoch) = (known.as_deref(), self.epoch());
        if let Some(finding) = known.and_then(|known| known.fresh(now, epoch)) {
            // A lookup has landed meanwhile.
            return PlanLookup::Known(finding);
        }
        let given_up = self.give_up(&mut flights, now);
        let begun = self.join_or_begin(&mut flights, key, known, now);
        let served = known.filter(|known| known.is_served(now, epoch));
        let joined = begun.as_ref().map(Begun::landing).map_err(|why| *why);
        // Released first: a runtime that has ended drops the task at once, and with it the lookup.
        drop(flights);
        // Tells the requests that wait for them.
        drop(given_up);
        if let Ok(Begun::Now(_, runtime, number)) = begun {
            runtime.spawn(LookupTask::new(Arc::clone(self), key.clone(), number).look_up());
        }
        match (served, joined) {
            (Some(known), joined) => {
                let why = joined.err().unwrap_or(Unresolved::Pending);
                PlanLookup::Known(self.without_answer(Some(known), why))
            }
            (None, Err(why)) => PlanLookup::Known(self.without_answer(known, why)),
            (None, Ok(landed)) => {
                let (shared, key) = (Arc::clone(self), key.clone());
                let otherwise =
                    move |why| shared.without_answer(shared.known(&key).as_deref(), why);
                let timer = Timers::default().after(self.options.timeout);
                PendingLookup::look(landed, timer, Box::new(otherwise))
            }
        }
    }

    fn known(&self, key: &K) -> Option<Arc<Known>> {
        self.found.get(key).or_else(|| self.absent.get(key))
    }

    /// Takes out the lookups that have not ended in time: their runtimes may not be run any more.
    fn give_up(&self, flights: &mut Flights<K>, now: Instant) -> Vec<Flight> {
        let late = flights.extract_if(|_, flight| now > flight.ends);
        let late: Vec<Flight> = late.map(|(_, flight)| flight).collect();
        for _ in &late {
            self.health.failed(&NoAnswer::TooLate);
        }
        late
    }

    /// Returns when a lookup of now has to have ended: its task gives it up sooner, if it runs.
    fn ends(&self, now: Instant) -> Instant {
        let timeout = self.options.lookup_timeout;
        after(now, timeout.saturating_add(timeout / 4))
    }

    fn join_or_begin(
        &self,
        flights: &mut Flights<K>,
        key: &K,
        known: Option<&Known>,
        now: Instant,
    ) -> Result<Begun, Unresolved> {
        if let Some(flight) = flights.get(key) {
            return Ok(Begun::Before(flight.landed.subscribe()));
        }
        if known.is_some_and(|known| known.has_just_failed(now, self.epoch())) {
            return Err(Unresolved::Failed);
        }
        let purpose = match known.filter(|known| known.found().is_some()) {
            Some(known) if known.is_served(now, self.epoch()) => Purpose::Refresh,
            Some(_) => Purpose::Again,
            None => Purpose::First,
        };
        let refreshes = Arc::strong_count(&self.refreshes) - 1;
        let in_flight = flights.len();
        if !self.options.has_place(purpose, in_flight, refreshes) {
            return Err(Unresolved::Busy);
        }
        let runtime = Handle::try_current().map_err(|_| Unresolved::NoRuntime)?;
        let (landed, landing) = watch::channel(None);
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let flight = Flight {
            landed,
            is_outdated: false,
            _refresh: (purpose == Purpose::Refresh).then(|| Arc::clone(&self.refreshes)),
            number,
            ends: self.ends(now),
        };
        flights.insert(key.clone(), flight);
        Ok(Begun::Now(landing, runtime, number))
    }

    /// Returns the finding for a request without a fresh answer.
    fn without_answer(&self, known: Option<&Known>, why: Unresolved) -> Finding {
        match known.and_then(Known::answer) {
            Some(LookupResult::Found(found)) => Finding::stale(Arc::clone(found), why),
            Some(LookupResult::NotFound) if why == Unresolved::Pending => Finding::not_found(),
            Some(LookupResult::NotFound) => Finding::default_plan(why, false),
            None => Finding::default_plan(why, self.options.refuses),
        }
    }

    pub(super) fn invalidate(&self, key: &K) {
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get_mut(key) {
            flight.is_outdated = true;
        }
        self.found.change(key, Known::outdated);
        self.absent.change(key, Known::outdated);
        drop(flights);
        for follower in self.followers() {
            follower.invalidate(key);
        }
    }

    pub(super) fn invalidate_all(&self) {
        let flights = lock(&self.flights);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        drop(flights);
        for follower in self.followers() {
            follower.invalidate_all();
        }
    }

    /// Returns until when an answer of now is fresh and used: the time, and up to a tenth more or less.
    fn until(&self, answer: &LookupResult) -> Until {
        let fresh_for = match answer {
            LookupResult::Found(_) => self.options.fresh_for,
            LookupResult::NotFound => self.options.not_found_for,
        };
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        let thousandths = 900 + self.random.hash_one(number) % 201;
        let thousandths = u32::try_from(thousandths).unwrap_or(1_000);
        let now = Instant::now();
        let fresh = after(now, (fresh_for / 1_000).saturating_mul(thousandths));
        Until {
            fresh,
            stale: after(fresh, self.options.stale_for),
        }
    }
}

impl Known {
    pub(super) fn found(&self) -> Option<&Arc<Found>> {
        self.answer()?.found()
    }

    /// Returns the finding, if it is fresh.
    pub(super) fn fresh(&self, now: Instant, epoch: u64) -> Option<Finding> {
        let answer = self.answer().filter(|_| self.is_fresh(now, epoch))?;
        Some(Finding::of(answer))
    }
}

/// A lookup that a request has begun or joined.
enum Begun {
    Before(watch::Receiver<Option<Finding>>),
    Now(watch::Receiver<Option<Finding>>, Handle, u64),
}

impl Begun {
    fn landing(&self) -> watch::Receiver<Option<Finding>> {
        match self {
            Self::Before(landing) | Self::Now(landing, ..) => landing.clone(),
        }
    }
}

/// A lookup in its task. If the task ends before its lookup, because the lookup panics or the runtime ends,
/// the lookup has failed.
struct LookupTask<K: Clone + Eq + Hash + Send + Sync + 'static> {
    shared: Arc<Lookups<K>>,
    key: K,
    /// The number of its flight.
    number: u64,
    epoch: u64,
    has_landed: bool,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> LookupTask<K> {
    fn new(shared: Arc<Lookups<K>>, key: K, number: u64) -> Self {
        Self {
            number,
            epoch: 0,
            shared,
            key,
            has_landed: false,
        }
    }

    /// Looks the key up, and again if it was invalidated meanwhile and a request waits.
    async fn look_up(mut self) {
        while !self.has_landed {
            self.begin();
            let answer = self.answer().await;
            self.complete(answer.map(LookupResult::of));
        }
    }

    fn begin(&mut self) {
        let mut flights = lock(&self.shared.flights);
        if let Some(flight) = flights.get_mut(&self.key)
            && flight.number == self.number
        {
            flight.is_outdated = false;
            flight.ends = self.shared.ends(Instant::now());
        }
        self.epoch = self.shared.epoch();
    }

    async fn answer(&self) -> Result<Resolved, BoxError> {
        let mut lookup = (self.shared.lookup)(self.key.clone());
        let mut timer = Timers::default().after(self.shared.options.lookup_timeout);
        poll_fn(|cx| {
            if let Poll::Ready(answer) = lookup.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            match &mut timer {
                Some(timer) => timer.poll(cx).map(|()| Err(NoAnswer::TooLate.into())),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn complete(&mut self, answer: Result<LookupResult, BoxError>) {
        let shared = Arc::clone(&self.shared);
        match &answer {
            Ok(_) => shared.health.answered(),
            Err(error) => shared.health.failed(&**error),
        }
        let mut flights = lock(&shared.flights);
        let Entry::Occupied(flight) = flights.entry(self.key.clone()) else {
            self.has_landed = true;
            return;
        };
        // It was given up, and another has its place.
        if flight.get().number != self.number {
            self.has_landed = true;
            return;
        }
        let is_outdated = flight.get().is_outdated || self.epoch != shared.epoch();
        let finding = if let Ok(answer) = answer {
            let finding = Finding::of(&answer);
            let known = Known::new(answer.clone(), self.epoch, shared.until(&answer));
            let known = if is_outdated { known.outdated() } else { known };
            let (into, from) = match answer {
                LookupResult::Found(_) => (&shared.found, &shared.absent),
                LookupResult::NotFound => (&shared.absent, &shared.found),
            };
            into.insert(self.key.clone(), known);
            from.remove(&self.key);
            finding
        } else {
            if !is_outdated {
                self.note_failure();
            }
            let known = shared.known(&self.key);
            shared.without_answer(known.as_deref(), Unresolved::Failed)
        };
        // A waiting request asks again.
        if is_outdated && flight.get().landed.receiver_count() > 0 {
            return;
        }
        self.has_landed = true;
        let flight = flight.remove();
        drop(flights);
        flight.landed.send_replace(Some(finding));
    }

    /// Lets no other lookup of the key begin for a while.
    fn note_failure(&self) {
        let shared = &*self.shared;
        let now = Instant::now();
        let until = after(now, shared.options.retry_after);
        let failed = |known: &Known| known.failed(until, self.epoch);
        if !shared.found.change(&self.key, failed) && !shared.absent.change(&self.key, failed) {
            let known = failed(&Known::nothing(now));
            shared.absent.insert(self.key.clone(), known);
        }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Drop for LookupTask<K> {
    fn drop(&mut self) {
        if self.has_landed {
            return;
        }
        let has_panicked = std::thread::panicking();
        if has_panicked {
            self.shared.health.failed(&NoAnswer::Panicked);
        }
        let mut flights = lock(&self.shared.flights);
        // Dropping the sender wakes the waiting requests.
        let is_own = flights
            .get(&self.key)
            .is_some_and(|flight| flight.number == self.number);
        let flight = if is_own {
            flights.remove(&self.key)
        } else {
            None
        };
        if flight.as_ref().is_some_and(|flight| !flight.is_outdated) && has_panicked {
            self.note_failure();
        }
        drop(flights);
        drop(flight);
    }
}

/// Why a lookup ended without an answer or an error of its own.
#[derive(Debug)]
enum NoAnswer {
    TooLate,
    Panicked,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLate => "the lookup did not answer within its `lookup_timeout`",
            Self::Panicked => "the lookup panicked",
        })
    }
}

impl Error for NoAnswer {}
