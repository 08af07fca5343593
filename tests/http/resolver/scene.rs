//! A source of plans under the control of a test.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;
use tower_ratelimit::decision::{Resolution, Unresolved};
use tower_ratelimit::plan::{Plan, Plans, Resolved, Resolver, ResolverBuilder};
use tower_ratelimit::{Decision, FixedWindow, Limiter, LocalLimiter, Policy};

pub(crate) const MILLIS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The time for which a plan is surely fresh, whatever the random tenth.
pub(crate) const SURELY_FRESH: Duration = Duration::from_secs(53);
pub(crate) const SURELY_STALE: Duration = Duration::from_secs(67);

/// The result of a lookup.
#[derive(Clone)]
pub(crate) enum LookupScript {
    Answer(Resolved),
    Fail,
    Panic,
}

#[derive(Clone, Default)]
pub(crate) struct ScriptedSource(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    acts: HashMap<String, LookupScript>,
    delay: Duration,
    gate: Option<Arc<Semaphore>>,
    begun: Vec<String>,
    in_flight: usize,
    most_in_flight: usize,
}

impl ScriptedSource {
    /// Creates a source without keys, whose lookups find nothing.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn set(&self, key: &str, plan: &'static str) {
        self.acts(key, LookupScript::Answer(Resolved::plan(plan)));
    }

    pub(crate) fn acts(&self, key: &str, act: LookupScript) {
        self.0.lock().unwrap().acts.insert(key.to_owned(), act);
    }

    /// Makes each lookup take this long.
    pub(crate) fn delay(&self, delay: Duration) {
        self.0.lock().unwrap().delay = delay;
    }

    /// Holds lookups that begin from now on until the semaphore gets permits.
    pub(crate) fn hold(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.0.lock().unwrap().gate = Some(Arc::clone(&gate));
        gate
    }

    pub(crate) fn hold_no_longer(&self) {
        if let Some(gate) = self.0.lock().unwrap().gate.take() {
            gate.add_permits(1_000_000);
        }
    }

    /// Returns the number of lookups of a key that have begun.
    pub(crate) fn begun(&self, key: &str) -> usize {
        let inside = self.0.lock().unwrap();
        inside.begun.iter().filter(|begun| *begun == key).count()
    }

    pub(crate) fn all_begun(&self) -> usize {
        self.0.lock().unwrap().begun.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.0.lock().unwrap().in_flight
    }

    pub(crate) fn most_in_flight(&self) -> usize {
        self.0.lock().unwrap().most_in_flight
    }

    pub(crate) fn resolver(&self) -> Resolver<String> {
        self.builder().build().unwrap()
    }

    pub(crate) fn builder(&self) -> ResolverBuilder<String> {
        let source = self.clone();
        Resolver::builder(move |key: String| source.clone().look_up(key))
    }

    async fn look_up(self, key: String) -> io::Result<Resolved> {
        let flight = InFlight::begin(&self, &key);
        let (delay, gate) = {
            let inside = self.0.lock().unwrap();
            (inside.delay, inside.gate.clone())
        };
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let act = self.0.lock().unwrap().acts.get(&key).cloned();
        drop(flight);
        match act {
            None => Ok(Resolved::NotFound),
            Some(LookupScript::Answer(resolved)) => Ok(resolved),
            Some(LookupScript::Fail) => Err(io::Error::other("the database is away")),
            Some(LookupScript::Panic) => panic!("a lookup that a test lets panic"),
        }
    }
}

struct InFlight(ScriptedSource);

impl InFlight {
    fn begin(source: &ScriptedSource, key: &str) -> Self {
        let mut inside = source.0.lock().unwrap();
        inside.begun.push(key.to_owned());
        inside.in_flight += 1;
        inside.most_in_flight = inside.most_in_flight.max(inside.in_flight);
        Self(source.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().in_flight -= 1;
    }
}

pub(crate) fn plans() -> Plans {
    let plan = |name: &str, limit| Plan::new(name).limit("minute", FixedWindow::per_minute(limit));
    Plans::new([plan("free", 10), plan("pro", 100), plan("ent", 1_000)])
}

pub(crate) fn limiter(resolver: &Resolver<String>) -> LocalLimiter {
    Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)))
        .plans_by_name(plans())
        .resolver(resolver.clone(), tower_ratelimit::key::Key::to_text)
        .build_local()
        .unwrap()
}

/// Returns the rule that decided, and how it was found: `plan pro, fresh`.
pub(crate) fn told(decision: &Decision) -> String {
    let resolution = decision.resolution().map(|it| it.to_string());
    let rule = decision.rule().unwrap();
    format!("{rule}, {}", resolution.unwrap_or_default())
}

/// What a request of this key gets.
pub(crate) async fn ask(limiter: &LocalLimiter, key: &str) -> String {
    told(&limiter.check(key, 0).await.unwrap())
}

pub(crate) async fn resolution(limiter: &LocalLimiter, key: &str) -> Resolution {
    let decision = limiter.check(key, 0).await.unwrap();
    decision.resolution().unwrap()
}

/// Lets all tasks go on that can.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) const BUSY: Resolution = Resolution::Default(Unresolved::Busy);
pub(crate) const NOT_FOUND: Resolution = Resolution::Default(Unresolved::NotFound);
