//! A state expires when it is as good as new, by the server's clock, and never later.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Amendment, Backend, Charge, Departure, Store};
use tower_ratelimit::{Limiter, ManualClock, Micros, Policy, RedisStore, TokenBucket};

use crate::scene::{MINUTE, ask, daily, every, keys, limiter, store, until};
use crate::support::redis::Server;

/// One key under one policy, by the server's time.
struct Scene<'a> {
    server: &'a Server,
    name: String,
    limiter: Limiter,
    /// The state's key in Redis.
    key: String,
    /// The last operation happened after this moment.
    looked: Cell<u128>,
}

impl<'a> Scene<'a> {
    fn new(server: &'a Server, store: &RedisStore, policy: Policy) -> Self {
        Self {
            server,
            name: format!("{}: {}", policy.name(), policy.algorithm()),
            key: store.store_key(&policy, "ann"),
            limiter: limiter(store, [policy]),
            looked: Cell::new(now()),
        }
    }

    /// In milliseconds, as Redis tells it.
    fn ttl(&self) -> i64 {
        ask(self.server, &["PTTL", &self.key])
    }

    /// In milliseconds since 1970, by the server's clock. Redis 6.2 has no command for it.
    fn dies_at(&self) -> i64 {
        let script = "local now = redis.call('TIME') \
                      local left = redis.call('PTTL', KEYS[1]) \
                      return now[1] * 1000 + math.floor(now[2] / 1000) + left";
        ask(self.server, &["EVAL", script, "1", &self.key])
    }

    /// Asserts that the key expires in the millisecond in which it is as good as new, or in the next one.
    async fn dies_when_new(&self, after: &str) {
        let told = self.limiter.peek("ann", 0).await.unwrap();
        let (_, outcome) = told.binding().unwrap();
        let new_at = micros(told.at().unwrap()) + outcome.reset_after().as_micros();
        let before = now();
        let ttl = self.ttl();
        let after_all = now();
        let about = format!("{}, after {after}: {ttl} ms, {outcome:?}", self.name);
        assert_ne!(ttl, -1, "{about}: it never dies");
        // Redis counts milliseconds from the one that has begun.
        let left = u128::try_from(ttl).unwrap_or(0);
        assert!(
            after_all / 1000 + left >= new_at / 1000,
            "{about}: too soon"
        );
        // Its clock may have advanced during the call.
        let took = (before - self.looked.replace(after_all)).div_ceil(1000);
        if left > 0 {
            assert!(
                before / 1000 + left <= new_at.div_ceil(1000) + took,
                "{about}: too late"
            );
        }
    }

    async fn denied(&self) {
        let mut told = self.limiter.check("ann", 1).await.unwrap();
        while told.is_allowed() {
            told = self.limiter.check("ann", 1).await.unwrap();
        }
    }
}

fn now() -> u128 {
    micros(SystemTime::now())
}

fn micros(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// Also odd limits, whose parts are no whole milliseconds.
fn all() -> impl Iterator<Item = Policy> {
    let periods = [1_000, 7_010, 250_000, 61_000_010].map(Duration::from_micros);
    periods.into_iter().flat_map(|period| every(5, period))
}

#[tokio::test]
async fn every_verb_leaves_a_ttl_that_ends_with_the_state() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in all() {
        let scene = Scene::new(&server, &store, policy);
        let limiter = &scene.limiter;
        let _ = limiter.check("ann", 1).await.unwrap();
        scene.dies_when_new("a charge").await;
        let _ = limiter.check("ann", 2).await.unwrap();
        scene.dies_when_new("another one").await;
        let _ = limiter.check("ann", 100).await.unwrap();
        scene.dies_when_new("a denial").await;
        limiter.refund("ann", 1).await.unwrap();
        scene.dies_when_new("a refund").await;
        limiter.settle("ann", 7).await.unwrap();
        scene.dies_when_new("a settlement").await;
        limiter
            .block("ann", Duration::from_millis(33))
            .await
            .unwrap();
        scene.dies_when_new("a block").await;
        limiter.block("ann", MINUTE * 2).await.unwrap();
        scene.dies_when_new("a longer block").await;
        limiter.settle("ann", 1).await.unwrap();
        scene
            .dies_when_new("a settlement of one who is blocked")
            .await;
        limiter.unblock("ann").await.unwrap();
        scene.dies_when_new("the block's end").await;
        limiter.refund("ann", 100).await.unwrap();
        scene.dies_when_new("a refund of all").await;
        limiter.refund("ann", 1).await.unwrap();
        assert_eq!(scene.ttl(), -2, "{}", scene.name);
        limiter.settle("ann", 3).await.unwrap();
        limiter.reset("ann").await.unwrap();
        assert_eq!(scene.ttl(), -2, "{}", scene.name);
    }
    assert!(keys(&server).is_empty());
}

/// A settlement of a request takes another path than the verb, and leaves a time to live that can stay. After one at more
/// it cannot.
#[tokio::test]
async fn a_request_that_cost_more_leaves_a_ttl_that_ends_with_the_state() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(100, MINUTE * 60 * 24 * 366) {
        let scene = Scene::new(&server, &store, policy);
        let reserved = scene.limiter.reserve("ann", 20).await.unwrap();
        reserved.settle(30);
        let used = async || {
            let told = scene.limiter.peek("ann", 0).await.unwrap();
            told.binding().unwrap().1.used()
        };
        while used().await == 20 {
            tokio::task::yield_now().await;
        }
        scene.dies_when_new("a settlement at more").await;
    }
}

/// The `PERSIST` of an operator, or a version that forgot the expiry.
#[tokio::test]
async fn a_state_that_never_dies_is_repaired_by_an_admission_and_by_a_denial() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(5, MINUTE) {
        let scene = Scene::new(&server, &store, policy);
        let persist = || {
            let done: u64 = ask(&server, &["PERSIST", &scene.key]);
            assert_eq!((done, scene.ttl()), (1, -1), "{}", scene.name);
        };
        let _ = scene.limiter.check("ann", 1).await.unwrap();
        persist();
        let _ = scene.limiter.check("ann", 1).await.unwrap();
        scene.dies_when_new("an admission that repairs").await;
        scene.denied().await;
        persist();
        assert!(!scene.limiter.check("ann", 5).await.unwrap().is_allowed());
        scene.dies_when_new("a denial that repairs").await;
        scene.limiter.block("ann", MINUTE * 3).await.unwrap();
        persist();
        assert!(!scene.limiter.check("ann", 1).await.unwrap().is_allowed());
        scene.dies_when_new("a denial of one who is blocked").await;
    }
}

#[tokio::test]
async fn neither_a_peek_nor_a_denial_changes_when_a_state_dies() {
    let server = Server::start(&[]);
    let store = store(&server);
    // No window of a year ends meanwhile.
    for policy in every(5, MINUTE * 60 * 24 * 366) {
        let scene = Scene::new(&server, &store, policy);
        scene.denied().await;
        let before = scene.dies_at();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            assert!(!scene.limiter.check("ann", 5).await.unwrap().is_allowed());
            let _ = scene.limiter.peek("ann", 1).await.unwrap();
            let _ = scene.limiter.check("ann", 0).await.unwrap();
        }
        // The two times of a moment may be a millisecond apart.
        let later = scene.dies_at().abs_diff(before);
        assert!(later <= 1, "{later} ms: {}", scene.name);
    }
}

#[tokio::test]
async fn a_request_that_changes_nothing_leaves_no_key() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), every(5, MINUTE).into_iter().take(9));
    assert!(limiter.check("ann", 0).await.unwrap().is_allowed());
    assert!(limiter.peek("ann", 1).await.unwrap().is_allowed());
    assert!(!limiter.check("ann", 6).await.unwrap().is_allowed());
    limiter.refund("ann", 1).await.unwrap();
    limiter.settle("ann", 0).await.unwrap();
    limiter.unblock("ann").await.unwrap();
    limiter.reset("ann").await.unwrap();
    limiter.block("ann", Duration::ZERO).await.unwrap();
    assert!(keys(&server).is_empty(), "{:?}", keys(&server));
    limiter.block("ann", MINUTE).await.unwrap();
    assert_eq!(keys(&server).len(), 9);
    limiter.unblock("ann").await.unwrap();
    assert!(keys(&server).is_empty(), "{:?}", keys(&server));
}

/// What has drained under the limit of the policy still counts under a slower one of a request: it was deleted.
#[tokio::test]
async fn a_verb_that_changes_nothing_forgets_nothing() {
    let (server, clock) = (Server::start(&[]), ManualClock::new());
    let start = Micros::new(1_704_067_200_000_000);
    clock.set_micros(start);
    let store = store(&server).clock(clock.clone());
    let policy = Policy::new("bucket", TokenBucket::per_second(8));
    let backend = store.open(&[policy.into()]).unwrap();
    let charge = Charge::new(0, "ann".into_key(), 1);
    let slow = charge.under(Limit::new(1, 1));
    for nothing in [
        Amendment::EndOverride,
        Amendment::Unblock,
        Amendment::Block(Micros::ZERO),
        Amendment::GiveBack(Departure::at(start)),
    ] {
        let allowed = backend.decide(&[slow]).wait().await.unwrap();
        assert!(allowed.is_allowed());
        clock.advance(Duration::from_millis(200));
        let amended = backend.amend(&[charge], nothing).wait().await;
        amended.unwrap();
        let denied = backend.decide(&[slow]).wait().await.unwrap();
        assert!(!denied.is_allowed(), "{nothing:?}");
        clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn what_is_wholly_given_back_leaves_no_key() {
    let (server, clock) = (Server::start(&[]), ManualClock::new());
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    // So no key dies by the server's clock.
    let store = store(&server).clock(clock);
    for policy in every(5, MINUTE) {
        let name = policy.name().to_owned();
        let limiter = limiter(&store, [policy]);
        assert!(limiter.check("ann", 2).await.unwrap().is_allowed());
        assert_eq!(keys(&server).len(), 1, "{name}");
        limiter.refund("ann", 2).await.unwrap();
        assert!(keys(&server).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn when_all_have_gone_nothing_is_left() {
    let server = Server::start(&[]);
    let short = limiter(&store(&server), every(5, Duration::from_millis(20)));
    for key in 0..50_u32 {
        let _ = short.check(key, 1).await.unwrap();
        short.settle(key, 3).await.unwrap();
    }
    until("an empty server", || ask::<u64>(&server, &["DBSIZE"]) == 0).await;
}

/// A state that lasts for a day cannot be observed to expire here.
#[tokio::test]
async fn a_state_that_lasts_has_the_ttl_of_its_reset() {
    let server = Server::start(&[]);
    let store = store(&server);
    let scene = Scene::new(&server, &store, daily("a", 5));
    let _ = scene.limiter.check("ann", 1).await.unwrap();
    scene.dies_when_new("a charge").await;
    assert!(scene.ttl() > 86_000_000);
}

/// Law 11: the wait under a lower limit stays true, though the state would have expired sooner under the limit
/// before.
#[tokio::test]
async fn under_a_lower_limit_a_state_lives_longer_from_the_first_denial_on() {
    const DAY: i64 = 86_400_000;
    let server = Server::start(&[]);
    let store = store(&server);
    let buckets = |limit| {
        let continuous = TokenBucket::per_day(limit);
        [continuous, continuous.by_interval()].map(|bucket| Policy::new("a", bucket))
    };
    for (many, few) in buckets(1_000).into_iter().zip(buckets(10)) {
        let key = store.store_key(&many, "ann");
        let ttl = || ask::<i64>(&server, &["PTTL", &key]);
        let state = || ask::<String>(&server, &["GET", &key]);
        let before = limiter(&store, [many.clone()]);
        assert!(before.check("ann", 1_000).await.unwrap().is_allowed());
        assert!((DAY - 10_000..=DAY).contains(&ttl()), "{}", ttl());
        let kept = state();
        // 990 at 1,000 a day, or in a refill, and ten at ten a day.
        let after = limiter(&store, [few.clone()]);
        let denied = after.check("ann", 1).await.unwrap();
        let reset = denied.binding().unwrap().1.reset_after().as_millis();
        let reset = i64::try_from(reset).unwrap();
        assert!(reset > DAY + DAY / 2, "{reset}");
        assert!((reset - 10_000..=reset + 1).contains(&ttl()), "{}", ttl());
        assert_eq!(state(), kept);
        // Each verb does that, and so does a request with a limit of its own.
        server.ask(&["PEXPIRE", &key, "1000000"]);
        assert_eq!(after.acquire_up_to("ann", 1).await.unwrap().0, 0);
        assert!((reset - 10_000..=reset + 1).contains(&ttl()), "{}", ttl());
        server.ask(&["PEXPIRE", &key, "1000000"]);
        let backend = store.open(&[many.into()]).unwrap();
        let charge = Charge::new(0, "ann".into_key(), 1).under(Limit::new(10, 10));
        let denied = backend.decide(&[charge]).wait().await.unwrap();
        assert!(!denied.is_allowed());
        assert!((reset - 10_000..=reset + 1).contains(&ttl()), "{}", ttl());
        assert_eq!(state(), kept);
    }
}
