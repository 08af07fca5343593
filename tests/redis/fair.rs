//! Fair shares in Redis and in items: one call divides a limit among tenants, as a store in memory does.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::clock::Clock as _;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Fair, Penalty};
use tower_ratelimit::store::{Amendment, Backend, Charge, Departure, SharedStore, Store, Taken};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, Gcra, LeakyBucket, LeakyQueue, Limiter, LocalLimiter,
    ManualClock, MemoryStore, Micros, Policy, RedisStore, StoreError, TokenBucket,
};

use crate::scene::{ask, calls, cluster_store, daily, patient, store, without_a_standby};
use crate::support::items::Contested;
use crate::support::redis::{Cluster, Server};
use crate::without::lose;

#[test]
fn a_server_divides_as_memory_does() {
    let server = Server::start(&[]);
    let counts = compare(&over_redis(&store(&server)), 300, false);
    println!("fair shares, on a server: {counts:?}");
}

#[test]
fn a_cluster_divides_as_memory_does() {
    let cluster = Cluster::start();
    let counts = compare(&over_redis(&cluster_store(&cluster)), 150, false);
    println!("fair shares, on a cluster of three primaries: {counts:?}");
}

/// Each change of the items loses once, and is applied again. An item forgets tenants of which none is active with the next write. Then virtual
/// time counts from another moment, which is rounded otherwise: so one of them asks first.
#[test]
fn items_divide_as_memory_does() {
    let over =
        |case: &Case, clock: &ManualClock| case.over(SharedStore::new(Contested::new(clock)));
    let counts = compare(&over, 500, true);
    println!("fair shares, in items: {counts:?}");
}

/// A limiter of a case over a store, and the store opened for the policy that is divided.
type Opened = (Limiter, Box<dyn Backend>);

/// Opens a store with this clock.
type Over<'a> = &'a dyn Fn(&Case, &ManualClock) -> Opened;

fn over_redis(store: &RedisStore) -> impl Fn(&Case, &ManualClock) -> Opened {
    move |case, clock| case.over(store.clone().clock(clock.clone()))
}

/// Some policies, of which the first one is divided, and what is asked of them.
#[derive(Clone, Debug)]
struct Case {
    divided: Divided,
    beside: Option<Beside>,
    start: u64,
    steps: Vec<(u64, Verb)>,
}

#[derive(Clone, Debug)]
struct Divided {
    algorithm: Algorithm,
    most_tenants: Option<u32>,
    active_for: Duration,
    is_soft: bool,
    penalty: Option<Extended>,
}

/// Whether refusals extend the blocks of a penalty.
type Extended = bool;

#[derive(Clone, Copy, Debug)]
enum Beside {
    Divided,
    Window(u32),
}

#[derive(Clone, Debug)]
enum Verb {
    Check(Asker, u32),
    /// A request goes away before its turn in a queue, and another one may be behind it.
    Leave(Asker, u32, Option<Asker>),
    /// A request of which what it has taken may be taken back later.
    Take(Asker, u32),
    /// One of those is not served, behind which so many have come. All that it has used may have been granted anew by then.
    TakeBack(usize),
    Peek(Asker, u32),
    TakeUpTo(Asker, u32),
    /// Concurrent requests, which share calls and are decided in this order.
    Together(Vec<(Asker, u32)>),
    Refund(Asker, u32),
    Settle(Asker, u32),
    Reset(Asker),
    Block(Asker, u64),
    Unblock(Asker),
}

/// A tenant of the shared key of the case, and its plan. There is one shared key: a store in memory may forget another one sooner, and
/// then counts virtual time from another moment, which is rounded otherwise.
#[derive(Clone, Copy, Debug)]
struct Asker {
    tenant: u8,
    plan: &'static str,
}

fn cases() -> impl Strategy<Value = Case> {
    let start = 1_704_067_200_000_000..7_258_118_400_000_000_u64;
    let beside = proptest::option::of(prop_oneof![
        Just(Beside::Divided),
        (1..200_u32).prop_map(Beside::Window),
    ]);
    let gap = prop_oneof![
        3 => Just(0),
        6 => 0..30_000_u64,
        3 => 0..400_000_u64,
        1 => 0..5_000_000_u64,
        // Virtual time is counted anew.
        1 => 0..3_000_000_000_u64,
    ];
    let steps = vec((gap, verb()), 20..=120);
    (divided(), beside, start, steps).prop_map(|(divided, beside, start, steps)| Case {
        divided,
        beside,
        start,
        steps,
    })
}

fn divided() -> impl Strategy<Value = Divided> {
    let algorithm = prop_oneof![
        (1..=200_u32, 5..=60_u32)
            .prop_map(|(a, burst)| TokenBucket::per_second(a).burst(burst).into()),
        (1..=60_u32, 5..=60_u32).prop_map(|(a, burst)| Gcra::per_minute(a).burst(burst).into()),
        (1..=99_u32, 5..=60_u32)
            .prop_map(|(a, most)| LeakyBucket::per_second(a).capacity(most).into()),
        (5..=60_u32).prop_map(|a| TokenBucket::per_second(a).by_interval().into()),
        (1..=200_u32, 4..=59_u32)
            .prop_map(|(a, places)| LeakyQueue::per_second(a).places(places).into()),
    ];
    let rarely = || prop_oneof![5 => Just(false), 1 => Just(true)];
    (
        algorithm,
        select(vec![Some(2), Some(3), Some(5), None]),
        select(vec![1, 100, 1_000, 60_000]),
        (rarely(), rarely(), any::<bool>()),
    )
        .prop_map(
            |(algorithm, most_tenants, active, (is_soft, has_penalty, is_extended))| Divided {
                algorithm,
                most_tenants,
                active_for: Duration::from_millis(active),
                // A soft queue is refused when built.
                is_soft: is_soft && !matches!(algorithm, Algorithm::LeakyQueue(_)),
                penalty: (has_penalty && !is_soft).then_some(is_extended),
            },
        )
}

fn verb() -> impl Strategy<Value = Verb> {
    let asker = || {
        let tenant = prop_oneof![3 => Just(0_u8), 3 => 0..4_u8, 1 => 0..12_u8];
        let plan = select(vec!["free", "free", "pro"]);
        (tenant, plan).prop_map(|(tenant, plan)| Asker { tenant, plan })
    };
    let cost = || prop_oneof![1 => Just(0_u32), 12 => Just(1), 4 => 1..=8_u32, 1 => 1..=70_u32];
    prop_oneof![
        30 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Check(asker, cost)),
        6 => (asker(), cost(), proptest::option::of(asker()))
            .prop_map(|(asker, cost, behind)| Verb::Leave(asker, cost, behind)),
        4 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Take(asker, cost)),
        6 => (0..4_usize).prop_map(Verb::TakeBack),
        4 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Peek(asker, cost)),
        4 => (asker(), cost()).prop_map(|(asker, cost)| Verb::TakeUpTo(asker, cost)),
        3 => vec((asker(), cost()), 2..40).prop_map(Verb::Together),
        2 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Refund(asker, cost)),
        2 => (asker(), 0..6_u32).prop_map(|(asker, cost)| Verb::Settle(asker, cost)),
        1 => asker().prop_map(Verb::Reset),
        1 => (asker(), 1..3_000_000_u64).prop_map(|(asker, time)| Verb::Block(asker, time)),
        1 => asker().prop_map(Verb::Unblock),
    ]
}

impl Case {
    fn over<S: Store + Clone>(&self, store: S) -> Opened {
        let backend = store.clone().open(&[self.policy().into()]).unwrap();
        let limiter = self.builder().store(store).build().unwrap();
        (limiter, Box::new(backend))
    }

    fn policy(&self) -> Policy {
        let Divided {
            algorithm,
            most_tenants,
            active_for,
            is_soft,
            penalty,
        } = self.divided;
        let mut fair = Fair::new().active_for(active_for).weight("pro", 4);
        if let Some(most) = most_tenants {
            fair = fair.most_tenants(most);
        }
        let mut policy = Policy::new("first", algorithm).fair(fair);
        if is_soft {
            policy = policy.soft();
        }
        if let Some(is_extended) = penalty {
            let penalty = Penalty::after(12, Duration::from_millis(20));
            let penalty = penalty.block(Duration::from_millis(700));
            policy = policy.penalty(if is_extended {
                penalty.extended_by_refusals()
            } else {
                penalty
            });
        }
        policy
    }

    fn builder(&self) -> LimiterBuilder {
        let beside = self.beside.map(|beside| match beside {
            Beside::Divided => Policy::new("second", TokenBucket::per_second(20))
                .fair(Fair::new().weight("pro", 3)),
            Beside::Window(limit) => Policy::new("second", AnchoredWindow::per_minute(limit)),
        });
        Limiter::builder()
            .policy(self.policy())
            .policies(beside)
            .plans_by_name(Plans::new([Plan::new("free"), Plan::new("pro")]))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    decisions: u64,
    denied: u64,
    /// How many requests have left a queue, and how many of their turns were given back.
    left: u64,
    given_back: u64,
    /// How many charges were taken back in time, and too late.
    taken_back: u64,
    late: u64,
}

fn compare(over: Over<'_>, cases: u32, asks_first: bool) -> Counts {
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (counts, number) = (Cell::new(Counts::default()), Cell::new(0));
    let played = TestRunner::new_with_rng(config, random).run(&self::cases(), |case| {
        number.set(number.get() + 1);
        let mut pair = Pair::new(over, &runtime, &case, number.get());
        pair.counts = counts.get();
        for (gap, verb) in &case.steps {
            pair.clock.advance(Duration::from_micros(*gap));
            if asks_first {
                let asker = Asker {
                    tenant: 0,
                    plan: "free",
                };
                pair.play(&Verb::Check(asker, 0))?;
            }
            pair.play(verb)?;
        }
        counts.set(pair.counts);
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let counts = counts.get();
    assert!(
        counts.denied > 1_000 && 3 * counts.denied < 2 * counts.decisions,
        "{counts:?}"
    );
    assert!(
        counts.given_back > 50 && counts.left > counts.given_back + 20,
        "{counts:?}"
    );
    assert!(counts.taken_back > 20 && counts.late > 50, "{counts:?}");
    counts
}

/// The same policies in both stores, with one clock.
struct Pair<'a> {
    store: Limiter,
    memory: LocalLimiter,
    backends: [Box<dyn Backend>; 2],
    algorithm: Algorithm,
    taken: Vec<(Charge, Taken)>,
    clock: ManualClock,
    runtime: &'a Runtime,
    case: u64,
    counts: Counts,
}

impl<'a> Pair<'a> {
    fn new(over: Over<'_>, runtime: &'a Runtime, case: &Case, number: u64) -> Self {
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(case.start));
        let memory = MemoryStore::new().clock(clock.clone());
        let (store, backend) = over(case, &clock);
        let (_, of_memory) = case.over(memory.clone());
        // The server learns the script, so that simultaneous calls are decided in their order.
        let peeked = store.peek(Key::branch(number, &[]), 0);
        drop(runtime.block_on(peeked.into_future()).unwrap());
        Self {
            store,
            memory: case.builder().store(memory).build_local().unwrap(),
            backends: [backend, of_memory],
            algorithm: case.divided.algorithm,
            taken: Vec::new(),
            clock,
            runtime,
            case: number,
            counts: Counts::default(),
        }
    }

    fn key(&self, asker: Asker) -> Key {
        match asker.tenant {
            // It has no tenant, which is one as well.
            11 => self.case.into_key(),
            tenant => Key::branch(self.case, &[u64::from(tenant).into_key()]),
        }
    }

    fn play(&mut self, verb: &Verb) -> Result<(), TestCaseError> {
        match *verb {
            Verb::Check(asker, cost) => self.check(asker, cost).map(drop),
            Verb::Leave(asker, cost, behind) => {
                let decision = self.check(asker, cost)?;
                if let Some(behind) = behind {
                    let _ = self.check(behind, 1)?;
                }
                let (_, outcome) = decision.policies().next().unwrap();
                let is_a_queue = matches!(self.algorithm, Algorithm::LeakyQueue(_));
                if !is_a_queue || cost == 0 || !decision.is_allowed() {
                    return Ok(());
                }
                let begins = self.clock.now().saturating_add(outcome.delay().into());
                let charge = Charge::new(0, self.key(asker), cost);
                let [told, expected] = self.backends.each_ref().map(|backend| {
                    let amendment = Amendment::GiveBack(Departure::at(begins));
                    self.wait_for(backend.amend(&[charge], amendment).wait())
                });
                prop_assert_eq!(told, expected);
                self.counts.left += 1;
                self.counts.given_back += u64::from(expected);
                Ok(())
            }
            Verb::Take(asker, cost) => self.take(asker, cost),
            Verb::TakeBack(later) => {
                self.take_back(later);
                Ok(())
            }
            Verb::Peek(asker, cost) => {
                let key = self.key(asker);
                let told = self.wait_for(self.store.plan(asker.plan).peek(key, cost));
                let expected = self.memory.plan(asker.plan).peek(key, cost).now();
                self.same(&told, &expected)
            }
            Verb::TakeUpTo(asker, most) => {
                let key = self.key(asker);
                let store = self.store.plan(asker.plan);
                let (taken, told) = self.wait_for(store.acquire_up_to(key, most));
                let memory = self.memory.plan(asker.plan);
                let (expected, in_memory) = memory.acquire_up_to(key, most).now();
                prop_assert_eq!(taken, expected);
                self.same(&told, &in_memory)
            }
            Verb::Together(ref asked) => {
                let told: Vec<Decision> = self.runtime.block_on(async {
                    let checks = asked.iter().map(|&(asker, cost)| {
                        let limiter = self.store.plan(asker.plan);
                        tokio::spawn(limiter.check(self.key(asker), cost).into_future())
                    });
                    let checks: Vec<_> = checks.collect();
                    let mut told = Vec::new();
                    for check in checks {
                        told.push(check.await.unwrap().unwrap());
                    }
                    told
                });
                for (&(asker, cost), told) in asked.iter().zip(told) {
                    let memory = self.memory.plan(asker.plan);
                    let expected = memory.check(self.key(asker), cost).now();
                    self.same(&told, &expected)?;
                }
                Ok(())
            }
            Verb::Refund(asker, units) => {
                self.wait_for(self.store.refund(self.key(asker), units));
                self.memory.refund(self.key(asker), units).now();
                Ok(())
            }
            Verb::Settle(asker, units) => {
                self.wait_for(self.store.settle(self.key(asker), units));
                self.memory.settle(self.key(asker), units).now();
                Ok(())
            }
            Verb::Reset(asker) => {
                self.wait_for(self.store.reset(self.key(asker)));
                self.memory.reset(self.key(asker)).now();
                Ok(())
            }
            Verb::Block(asker, time) => {
                let time = Duration::from_micros(time);
                self.wait_for(self.store.block(self.key(asker), time));
                self.memory.block(self.key(asker), time).now();
                Ok(())
            }
            Verb::Unblock(asker) => {
                let told = self.wait_for(self.store.unblock(self.key(asker)));
                let expected = self.memory.unblock(self.key(asker)).now();
                prop_assert_eq!(told, expected);
                Ok(())
            }
        }
    }

    fn take(&mut self, asker: Asker, cost: u32) -> Result<(), TestCaseError> {
        let charge = Charge::new(0, self.key(asker), cost);
        let [told, expected] = self
            .backends
            .each_ref()
            .map(|backend| self.wait_for(backend.decide(&[charge]).wait()));
        prop_assert_eq!(format!("{told:?}"), format!("{expected:?}"));
        if expected.is_allowed() {
            let taken = Taken::of(&charge, &self.algorithm, &expected);
            self.taken.push((charge, taken));
        }
        Ok(())
    }

    fn take_back(&mut self, later: usize) {
        if later < self.taken.len() {
            let (charge, taken) = self.taken.remove(self.taken.len() - 1 - later);
            for backend in &self.backends {
                let amendment = Amendment::TakeBack(taken);
                self.wait_for(backend.amend(&[charge], amendment).wait());
            }
            let is_late = self.clock.now() >= taken.until();
            self.counts.taken_back += u64::from(!is_late);
            self.counts.late += u64::from(is_late);
        }
    }

    fn check(&mut self, asker: Asker, cost: u32) -> Result<Decision, TestCaseError> {
        let key = self.key(asker);
        let told = self.wait_for(self.store.plan(asker.plan).check(key, cost));
        let expected = self.memory.plan(asker.plan).check(key, cost).now();
        self.same(&told, &expected)?;
        Ok(expected)
    }

    fn wait_for<T: Debug>(&self, answer: impl IntoFuture<Output = Result<T, StoreError>>) -> T {
        let answer = self.runtime.block_on(answer.into_future());
        answer.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Compares two decisions by their debug forms, which show every number and the time.
    fn same(&mut self, told: &Decision, in_memory: &Decision) -> Result<(), TestCaseError> {
        prop_assert_eq!(format!("{told:?}"), format!("{in_memory:?}"));
        self.counts.decisions += 1;
        self.counts.denied += u64::from(!in_memory.is_allowed());
        Ok(())
    }
}

fn tenant(name: &str) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

fn upstream(fair: Fair) -> Policy {
    let policy = Policy::new("upstream", TokenBucket::per_second(100).burst(10)).fair(fair);
    without_a_standby(policy)
}

#[tokio::test]
async fn one_call_divides_and_charges_all_policies() {
    let server = Server::start(&[]);
    let limiter = Limiter::builder()
        .policy(upstream(Fair::new()))
        .policy(daily("all", 8))
        .store(store(&server))
        .build()
        .unwrap();
    for left in (0..8).rev() {
        let before = calls(&server, "evalsha");
        let decision = limiter.check(tenant("ann"), 1).await.unwrap();
        assert!(decision.is_allowed(), "{decision:?}");
        assert_eq!(calls(&server, "evalsha"), before + 1);
        let (_, all) = decision.policies().nth(1).unwrap();
        assert_eq!(all.remaining(), left);
    }
    assert!(!limiter.check(tenant("ann"), 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn every_shared_key_has_tenants_of_its_own() {
    let cluster = Cluster::start();
    let limiter = Limiter::builder()
        .policy(without_a_standby(
            Policy::new("upstream", TokenBucket::per_hour(6)).fair(Fair::new()),
        ))
        .store(cluster_store(&cluster))
        .build()
        .unwrap();
    for shared in ["a", "b", "c", "d", "e"] {
        let mut passed = 0;
        for name in ["ann", "ben", "ann", "ben", "ann", "ben", "ann"] {
            let key = Key::branch(shared, &[name.into_key()]);
            passed += u32::from(limiter.check(key, 1).await.unwrap().is_allowed());
        }
        assert_eq!(passed, 6, "{shared}");
    }
    let of_a = Key::branch("a", &["ann".into_key()]);
    limiter.block(of_a, Duration::from_secs(60)).await.unwrap();
    limiter.reset(of_a).await.unwrap();
    assert!(!limiter.check(of_a, 1).await.unwrap().is_allowed());
    let beside = Key::branch("a", &["ben".into_key()]);
    assert!(
        limiter.check(beside, 1).await.unwrap().is_allowed(),
        "the block is of one tenant"
    );
    assert!(limiter.unblock(of_a).await.unwrap());
    assert!(limiter.check(of_a, 1).await.unwrap().is_allowed());
}

/// The state of a divided limit stays at the server, under a new name and in the tenants that it had.
#[tokio::test]
async fn a_limit_under_a_new_name_keeps_what_its_tenants_have_used() {
    let (server, clock) = (Server::start(&[]), ManualClock::new());
    let store = store(&server).clock(clock.clone());
    let bucket = TokenBucket::per_second(10);
    let open = |policy: Policy| {
        let policy = without_a_standby(policy.fair(Fair::new()));
        let builder = Limiter::builder().policy(policy);
        builder.store(store.clone()).build().unwrap()
    };
    let take_all = async |limiter: &Limiter, name| {
        let mut passed = 0;
        while limiter.check(tenant(name), 1).await.unwrap().is_allowed() {
            passed += 1;
        }
        passed
    };
    let before = open(Policy::new("upstream", bucket));
    assert_eq!(take_all(&before, "hog").await, 10);
    assert_eq!(take_all(&before, "ann").await, 0);
    let after = open(Policy::new("model", bucket).renamed_from("upstream"));
    assert_eq!(take_all(&after, "hog").await, 0);
    clock.advance(Duration::from_millis(500));
    // A half of what came back meanwhile belongs to Ann, who has not asked since.
    assert_eq!(take_all(&after, "hog").await, 2);
    assert_eq!(take_all(&after, "ann").await, 3);
}

/// A shared key may have an override from before its limit was divided.
#[tokio::test]
async fn an_override_of_a_shared_key_ends() {
    let server = Server::start(&[]);
    let bucket = |burst| TokenBucket::per_second(100).burst(burst);
    let open = |policy| {
        let builder = Limiter::builder().policy(without_a_standby(policy));
        builder.store(store(&server)).build().unwrap()
    };
    let whole = open(Policy::new("upstream", bucket(10)));
    let hour = Duration::from_secs(3_600);
    let overriding = whole.override_limit("upstream", Key::GLOBAL, bucket(5), hour);
    overriding.unwrap().await.unwrap();

    let divided = open(Policy::new("upstream", bucket(10)).fair(Fair::new()));
    let limit = async || {
        let decision = divided.peek(tenant("ann"), 1).await.unwrap();
        let (_, outcome) = decision.policies().next().unwrap();
        outcome.limit()
    };
    assert_eq!(limit().await, 5);
    let ended = divided.end_override("upstream", Key::GLOBAL).unwrap();
    ended.await.unwrap();
    assert_eq!(limit().await, 10);
}

/// What a thousand tenants leave at a server is gone when it makes no difference any more.
#[tokio::test]
async fn tenants_are_bounded_and_expire() {
    let server = Server::start(&[]);
    let fair = Fair::new()
        .most_tenants(4)
        .active_for(Duration::from_millis(50));
    let policy = upstream(fair);
    let store = store(&server);
    let limiter = Limiter::builder()
        .policy(policy.clone())
        .store(store.clone());
    let limiter = limiter.build().unwrap();
    for number in 0..40 {
        let key = tenant(&format!("t{number}"));
        let _ = limiter.check(key, 1).await.unwrap();
    }
    let tenants = format!("{}:tenants", store.store_key(&policy, Key::GLOBAL));
    let fields: u32 = ask(&server, &["HLEN", &tenants]);
    // Of each tenant its name and its numbers, those of all others together, those of the limit, and the turns.
    assert!((1..=12).contains(&fields), "{fields}");
    let left: i64 = ask(&server, &["PTTL", &tenants]);
    assert!((1..5_000).contains(&left), "{left}");
}

/// A tenant that is refused has to be heard of, so that room is kept for it.
#[tokio::test]
async fn no_refusal_of_a_tenant_is_remembered() {
    let server = Server::start(&[]);
    let remembering = patient().remember_denials_for(Duration::from_secs(1));
    let policy = Policy::new("upstream", TokenBucket::per_hour(5)).fair(Fair::new());
    let limiter = Limiter::builder()
        .policy(without_a_standby(policy))
        .store(remembering.open(server.url()).unwrap())
        .build()
        .unwrap();
    while limiter.check(tenant("hog"), 1).await.unwrap().is_allowed() {}
    let before = calls(&server, "evalsha");
    for _ in 0..3 {
        assert!(!limiter.check(tenant("hog"), 1).await.unwrap().is_allowed());
    }
    assert_eq!(calls(&server, "evalsha"), before + 3);
}

#[tokio::test]
async fn data_that_no_rule_can_read_are_told_and_reset() {
    let server = Server::start(&[]);
    let queue = Policy::new("queue", LeakyQueue::per_second(100).places(9)).fair(Fair::new());
    for policy in [upstream(Fair::new()), without_a_standby(queue)] {
        data_that_no_rule_can_read_of(&server, policy).await;
    }
}

async fn data_that_no_rule_can_read_of(server: &Server, policy: Policy) {
    let store = store(server);
    let limiter = Limiter::builder()
        .policy(policy.clone())
        .store(store.clone());
    let limiter = limiter.build().unwrap();
    let tenants = format!("{}:tenants", store.store_key(&policy, Key::GLOBAL));
    for damage in [
        &["SET", tenants.as_str(), "1 2 3"][..],
        &["HSET", &tenants, ".", "1 2 3"],
        &["HSET", &tenants, "=5:ann", "1"],
    ] {
        server.ask(&["DEL", &tenants]);
        server.ask(damage);
        let failed = limiter.check(tenant("ann"), 1).await;
        if damage[2] != "=5:ann" {
            assert!(failed.is_err(), "{damage:?}: {failed:?}");
        }
        limiter.reset(tenant("ann")).await.unwrap();
        let decision = limiter.check(tenant("ann"), 1).await.unwrap();
        assert!(decision.is_allowed(), "{damage:?}");
    }
}

/// In an outage, a node divides its part of the limit by itself.
#[tokio::test]
async fn without_the_server_a_node_divides_its_part() {
    for algorithm in [
        Algorithm::from(TokenBucket::per_hour(40).burst(20)),
        LeakyQueue::per_hour(40).places(19).into(),
    ] {
        an_outage_is_divided_under(algorithm).await;
    }
}

async fn an_outage_is_divided_under(algorithm: Algorithm) {
    let server = Server::start(&[]);
    let store = patient().nodes(2).open(server.url()).unwrap();
    let fair = Fair::new().active_for(Duration::from_secs(60));
    let limiter = Limiter::builder()
        .policy(Policy::new("upstream", algorithm).fair(fair))
        .store(store.clone())
        .build()
        .unwrap();
    assert!(limiter.check(tenant("ann"), 1).await.unwrap().is_allowed());
    lose(&server, &store).await;
    let mut passed = [0; 2];
    for _ in 0..20 {
        for (name, passed) in ["hog", "ann"].into_iter().zip(&mut passed) {
            let decision = limiter.check(tenant(name), 1).await.unwrap();
            assert!(decision.is_degraded());
            *passed += u32::from(decision.is_allowed());
        }
    }
    assert_eq!(passed, [5, 5], "{algorithm:?}");
}
