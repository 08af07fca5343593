//! The laws over Redis: a real server, which decides by the time of the test.

use std::cell::{Cell, LazyCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use redis::{Connection, FromRedisValue};
use tokio::runtime::{Builder, Runtime};
#[cfg(feature = "calendar")]
use tower_ratelimit::Decision;
use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Amendment, Backend, Charge, RedisBackend, Reply, Store};
use tower_ratelimit::{
    Algorithm, Limiter, ManualClock, Micros, OnStoreFailure, Policy, RedisStore, StoreError,
};

use crate::case::Case;
use crate::factors::{Scaled, refusals_of};
use crate::laws::Holds;
use crate::subject::Subject;
use crate::support::driver::{Blocking, Driver, Limited, Overriding, Seen, seen};
use crate::support::redis::Server;

thread_local! {
    /// Each test has a thread of its own.
    static SCENE: LazyCell<Scene> = LazyCell::new(Scene::new);
    static KEYS: Cell<u64> = const { Cell::new(0) };
}

struct Scene {
    connection: RefCell<Connection>,
    clock: ManualClock,
    store: RedisStore,
    /// After the store, whose connection it drives.
    runtime: Runtime,
    _server: Server,
}

impl Scene {
    fn new() -> Self {
        let server = Server::start(&[]);
        let clock = ManualClock::new();
        let runtime = Builder::new_current_thread().enable_all().build();
        let store = RedisStore::builder().deadline(Duration::from_secs(20));
        Self {
            connection: RefCell::new(server.connection()),
            store: store.open(server.url()).unwrap().clock(clock.clone()),
            clock,
            runtime: runtime.unwrap(),
            _server: server,
        }
    }
}

/// One key on a server of the test's own.
#[derive(Debug)]
pub(crate) struct Redis {
    policy: Rule,
    limiter: Limiter,
    backend: Rc<RedisBackend>,
    limit: Option<Limit>,
    key: u64,
}

impl Redis {
    fn under(policy: Rule) -> Self {
        let policy = policy.on_store_failure(OnStoreFailure::Refuse);
        let (limiter, backend) = SCENE.with(|scene| {
            let limiter = Limiter::builder().policy(policy.clone());
            let backend = scene.store.open(std::slice::from_ref(&policy));
            (limiter.store(scene.store.clone()).build(), backend)
        });
        KEYS.set(KEYS.get() + 1);
        Self {
            policy,
            limiter: limiter.expect("the policy is good"),
            backend: Rc::new(backend.expect("the policy is good")),
            limit: None,
            key: KEYS.get(),
        }
    }

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter) -> F) -> T
    where
        F: IntoFuture<Output = Result<T, StoreError>>,
    {
        SCENE.with(|scene| {
            scene.clock.set_micros(Micros::new(at));
            let answer = scene.runtime.block_on(ask(&self.limiter).into_future());
            answer.unwrap_or_else(|error| panic!("{error}: {error:?}"))
        })
    }

    /// Returns the same for a request with a limit of its own.
    fn ask_under<T>(
        &self,
        at: u64,
        cost: u32,
        ask: impl FnOnce(&RedisBackend, &[Charge]) -> Reply<Result<T, StoreError>>,
    ) -> Option<T> {
        let charge = Charge::new(0, self.key.into_key(), cost).under(self.limit?);
        Some(SCENE.with(|scene| {
            scene.clock.set_micros(Micros::new(at));
            let reply = ask(&self.backend, &[charge]);
            let answer = scene.runtime.block_on(reply.wait());
            answer.unwrap_or_else(|error| panic!("{error}: {error:?}"))
        }))
    }

    fn name(&self) -> String {
        SCENE.with(|scene| scene.store.store_key(&self.policy, self.key))
    }

    fn command<T: FromRedisValue>(name: &str, arguments: &[&str]) -> T {
        SCENE.with(|scene| {
            let mut command = redis::cmd(name);
            command.arg(arguments);
            let answer = command.query(&mut scene.connection.borrow_mut());
            answer.expect("the command is good")
        })
    }
}

/// A limiter with groups of which one pays, on the same server.
pub(crate) struct ChoosingInRedis {
    limiter: Limiter,
}

impl crate::either_or::Chooser for ChoosingInRedis {
    const PRICE: u32 = 25;

    fn new(builder: LimiterBuilder) -> Self {
        SCENE.with(|scene| {
            // Each case begins with new states.
            let (): () = redis::cmd("FLUSHALL")
                .query(&mut scene.connection.borrow_mut())
                .expect("the command is good");
            let limiter = builder.store(scene.store.clone()).build();
            Self {
                limiter: limiter.expect("the policies are good"),
            }
        })
    }

    fn ask<'a, T, F>(&'a self, at: u64, ask: impl FnOnce(&'a Limiter) -> F) -> T
    where
        F: IntoFuture<Output = Result<T, StoreError>>,
    {
        SCENE.with(|scene| {
            scene.clock.set_micros(Micros::new(at));
            let answer = scene.runtime.block_on(ask(&self.limiter).into_future());
            answer.unwrap_or_else(|error| panic!("{error}: {error:?}"))
        })
    }

    /// A task settles, and it is done when nothing holds the limiter of its own any more, with the closure that tells the plan.
    fn spend(&self, builder: LimiterBuilder, at: u64, estimate: u32, cost: u32) -> Option<String> {
        let held = Arc::new(());
        let is_held = Arc::downgrade(&held);
        let plan_of = move |_: &Key| {
            let _ = &held;
            None::<&str>
        };
        let builder = builder.plans(Plans::new([Plan::new("other")]), plan_of);
        let own = SCENE.with(|scene| builder.store(scene.store.clone()).build());
        let own = Self {
            limiter: own.expect("the policies are good"),
        };
        let reservation = own.ask(at, |it| it.reserve("ann", estimate));
        let payer = reservation.decision().payer("spend").map(str::to_owned);
        reservation.settle(cost);
        drop(own);
        let begun = Instant::now();
        while is_held.upgrade().is_some() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it is not settled"
            );
            thread::yield_now();
        }
        payer
    }
}

/// A key under several policies, on the same server.
#[cfg(feature = "calendar")]
pub(crate) struct SeveralInRedis {
    limiter: Limiter,
    key: u64,
}

#[cfg(feature = "calendar")]
impl SeveralInRedis {
    fn about(key: u64, policies: Vec<Policy>) -> Self {
        let refuse = |policy: Policy| policy.on_store_failure(OnStoreFailure::Refuse);
        let limiter = SCENE.with(|scene| {
            let limiter = Limiter::builder().policies(policies.into_iter().map(refuse));
            limiter.store(scene.store.clone()).build()
        });
        Self {
            limiter: limiter.expect("the policies are good"),
            key,
        }
    }

    fn ask<T>(at: u64, ask: impl IntoFuture<Output = Result<T, StoreError>>) -> T {
        SCENE.with(|scene| {
            scene.clock.set_micros(Micros::new(at));
            let answer = scene.runtime.block_on(ask.into_future());
            answer.unwrap_or_else(|error| panic!("{error}: {error:?}"))
        })
    }
}

#[cfg(feature = "calendar")]
impl crate::hours::Several for SeveralInRedis {
    const PRICE: u32 = 25;

    fn new(policies: Vec<Policy>) -> Self {
        KEYS.set(KEYS.get() + 1);
        Self::about(KEYS.get(), policies)
    }

    fn reopened(&self, policies: Vec<Policy>) -> Self {
        Self::about(self.key, policies)
    }

    fn decide(&self, at: u64, cost: u32) -> Decision {
        Self::ask(at, self.limiter.check(self.key, cost))
    }

    fn peek(&self, at: u64, cost: u32) -> Decision {
        Self::ask(at, self.limiter.peek(self.key, cost))
    }
}

/// The data of a key on a server.
pub(crate) trait StoredData: Driver {
    /// All data byte for byte, except when it expires.
    fn dump(&self) -> Option<Vec<u8>>;

    /// Returns the milliseconds until it expires; -1 for never, and -2 if there is no data.
    fn dies_in(&self) -> i64;
}

impl StoredData for Redis {
    fn dump(&self) -> Option<Vec<u8>> {
        Self::command("DUMP", &[&self.name()])
    }

    fn dies_in(&self) -> i64 {
        Self::command("PTTL", &[&self.name()])
    }
}

impl Driver for Redis {
    const PRICE: u32 = 25;

    /// Cases go on until 2250 at most, and the server's numbers end in 2255.
    fn takes(algorithm: &Algorithm) -> bool {
        let longest = algorithm.longest_wait();
        let policy = Rule::new("0", *algorithm);
        longest.is_none_or(|wait| wait < Duration::from_secs(4 * 365 * 86_400))
            && SCENE.with(|scene| scene.store.open(std::slice::from_ref(&policy)).is_ok())
    }

    fn new(algorithm: Algorithm) -> Self {
        Self::under(Rule::new("0", algorithm))
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(told) = self.ask_under(at, cost, tower_ratelimit::store::Backend::decide) {
            return seen(&told);
        }
        let decision = self.ask(at, |limiter| limiter.check(self.key, cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        if let Some(told) = self.ask_under(at, cost, tower_ratelimit::store::Backend::peek) {
            return seen(&told);
        }
        let decision = self.ask(at, |limiter| limiter.peek(self.key, cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn refund(&mut self, at: u64, units: u32) {
        let refunded = self.ask_under(at, units, |backend, charges| {
            backend.amend(charges, Amendment::Refund)
        });
        if refunded.is_none() {
            self.ask(at, |limiter| limiter.refund(self.key, units));
        }
    }

    fn settle(&mut self, at: u64, units: u32) {
        let settled = self.ask_under(at, units, |backend, charges| {
            backend.amend(charges, Amendment::Settle)
        });
        if settled.is_none() {
            self.ask(at, |limiter| limiter.settle(self.key, units));
        }
    }

    fn reset(&mut self, at: u64) {
        self.ask(at, |limiter| limiter.reset(self.key));
    }

    fn fork(&self) -> Self {
        KEYS.set(KEYS.get() + 1);
        let fork = Self {
            policy: self.policy.clone(),
            limiter: self.limiter.clone(),
            backend: Rc::clone(&self.backend),
            limit: self.limit,
            key: KEYS.get(),
        };
        let (): () = Self::command("COPY", &[&self.name(), &fork.name()]);
        fork
    }
}

impl Limited for Redis {
    fn under(&mut self, _: Algorithm, limit: Limit) {
        self.limit = Some(limit);
    }
}

impl Overriding for Redis {
    fn override_limit(&mut self, at: u64, limit: Algorithm, length: u64) {
        let length = Duration::from_micros(length);
        self.ask(at, |limiter| {
            let overridden = limiter.override_limit("0", self.key, limit, length);
            overridden.expect("it differs in its limit alone")
        });
    }

    fn end_override(&mut self, at: u64) {
        self.ask(at, |limiter| {
            let ended = limiter.end_override("0", self.key);
            ended.expect("there is such a policy")
        });
    }
}

impl Blocking for Redis {
    const FORGETS_WHEN_ASKED: bool = false;

    fn block(&mut self, at: u64, length: u64) {
        let length = Duration::from_micros(length);
        self.ask(at, |limiter| limiter.block(self.key, length));
    }

    fn unblock(&mut self, at: u64) -> bool {
        self.ask(at, |limiter| limiter.unblock(self.key))
    }
}

impl Scaled for Redis {
    const PRICE: u32 = 50;

    fn over(policy: Policy) -> Self {
        Self::under(policy.into())
    }

    fn decide(&self, at: u64, cost: u32) -> Seen {
        let decision = self.ask(at, |limiter| limiter.check(self.key, cost));
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn decide_low(&self, at: u64, cost: u32) -> Seen {
        let key = self.key;
        let decision = self.ask(at, |limiter| {
            let low = limiter.low_priority();
            async move { low.check(key, cost).await }
        });
        Seen::from(decision.binding().expect("one policy was asked").1)
    }

    fn give_back(&self, at: u64, units: u32) {
        self.ask(at, |limiter| limiter.refund(self.key, units));
    }

    fn pardon(&self, at: u64) {
        self.ask(at, |limiter| limiter.unblock(self.key));
    }

    fn refusals(&self, at: u64) -> Option<u32> {
        refusals_of(&self.ask(at, |limiter| limiter.inspect(self.key)))
    }
}

/// Law 6: a denial leaves what the server has byte for byte as it was.
pub(crate) fn law_6_what_a_denial_leaves_is_byte_for_byte_the_same<D: StoredData>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut before = None;
    case.play(&mut D::new(subject.algorithm), |driver, asked, seen| {
        let kept = driver.dump();
        if asked.cost == 0 || !seen.allowed {
            prop_assert_eq!(&kept, &before);
        }
        before = kept;
        Ok(())
    })
}

/// Every stored state expires, and not before it is as good as new.
pub(crate) fn every_state_dies_and_not_too_soon<D: StoredData>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    case.play(&mut D::new(subject.algorithm), |driver, _, seen| {
        let left = driver.dies_in();
        prop_assert!(left != -1, "it never dies");
        prop_assert!(left > 0 || seen.reset_after == 0);
        Ok(())
    })
}
