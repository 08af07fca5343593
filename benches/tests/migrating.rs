//! The limits of `tower_governor`, `axum-governor` and `actix-governor` beside ours, as the pages on migrating translate them: in
//! virtual time, both decide alike about each of the same requests.
//!
//! All three crates decide by `governor`. The quotas of the first two come out of their own builders; the third has the same
//! builder for another framework, so its rows are quotas of `governor`.

use std::num::NonZeroU32;
use std::time::Duration;

use axum_governor::nz;
use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::{Quota, RateLimiter};
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::{GlobalKeyExtractor, KeyExtractor};
use tower_ratelimit::{Limiter, ManualClock, MemoryStore, Policy, TokenBucket};

/// Numbers that look random, the same in each run.
struct Drawn(u64);

impl Drawn {
    /// Returns a number below `bound`, by xorshift.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    /// Returns a time between two requests: mostly none, sometimes exactly that of a token, seldom one in which a whole bucket fills.
    fn wait(&mut self, quota: Quota) -> Duration {
        let token = u64::try_from(quota.replenish_interval().as_micros()).unwrap();
        let burst = u64::from(quota.burst_size().get());
        if self.below(64 * burst) == 0 {
            return Duration::from_micros(self.below(2 * token * burst));
        }
        let micros = match self.below(64) {
            0 => token,
            1 => token - 1,
            2 => self.below(3 * token),
            3..8 => self.below(token),
            _ => 0,
        };
        Duration::from_micros(micros)
    }
}

/// Sends the same requests of three clients to both.
#[track_caller]
fn assert_alike(theirs: Quota, ours: TokenBucket) {
    let (mut allowed, mut refused) = (0, 0);
    for seed in 1..=20 {
        let mut drawn = Drawn(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let (their_clock, our_clock) = (FakeRelativeClock::default(), ManualClock::new());
        let peer = RateLimiter::dashmap_with_clock(theirs, their_clock.clone());
        let limiter = Limiter::builder()
            .policy(Policy::new("address", ours))
            .store(MemoryStore::new().clock(our_clock.clone()))
            .build_local()
            .unwrap();
        // Enough for each client to use up its bucket several times.
        for request in 0..100 + 12 * theirs.burst_size().get() {
            let wait = drawn.wait(theirs);
            their_clock.advance(wait);
            our_clock.advance(wait);
            let client = drawn.below(3);
            let is_allowed = limiter.admit(client, 1).now();
            assert_eq!(
                is_allowed,
                peer.check_key(&client).is_ok(),
                "request {request} of seed {seed}: {theirs:?}, {ours:?}"
            );
            *(if is_allowed {
                &mut allowed
            } else {
                &mut refused
            }) += 1;
        }
    }
    assert!(allowed > 100 && refused > 100, "{allowed}, {refused}");
}

/// Returns the quota of a configuration of `tower_governor`, which a refusal tells.
fn quota_of<K: KeyExtractor>(config: &GovernorConfig<K, NoOpMiddleware>, key: &K::Key) -> Quota {
    std::iter::repeat_with(|| config.limiter().check_key(key))
        .find_map(Result::err)
        .unwrap()
        .quota()
}

#[test]
fn limits_of_tower_governor_decide_alike() {
    let address = std::net::IpAddr::from([192, 0, 2, 1]);
    let default = quota_of(&GovernorConfig::default(), &address);
    assert_alike(default, TokenBucket::per_second(2).burst(8));
    let secure = quota_of(&GovernorConfig::secure(), &address);
    assert_alike(secure, TokenBucket::per_minute(15).burst(2));

    let mut builder = GovernorConfigBuilder::default().key_extractor(GlobalKeyExtractor);
    let slow = builder.per_second(60).burst_size(10).finish().unwrap();
    assert_alike(quota_of(&slow, &()), TokenBucket::per_minute(1).burst(10));
    let faster = builder.per_millisecond(250).burst_size(8).finish().unwrap();
    assert_alike(quota_of(&faster, &()), TokenBucket::per_second(4).burst(8));
    let fast = builder.per_nanosecond(50_000).burst_size(100).finish();
    assert_alike(
        quota_of(&fast.unwrap(), &()),
        TokenBucket::per_second(20_000).burst(100),
    );
    let time = Duration::from_millis(1_500);
    let odd = builder.period(time).burst_size(3).finish().unwrap();
    assert_alike(
        quota_of(&odd, &()),
        TokenBucket::new(1, time).unwrap().burst(3),
    );
}

#[test]
fn limits_of_axum_governor_decide_alike() {
    type Theirs = axum_governor::Quota;
    for (theirs, ours) in [
        (
            Theirs::requests_per_second(nz!(50u32)),
            TokenBucket::per_second(50),
        ),
        (
            Theirs::requests_per_minute(nz!(30u32)),
            TokenBucket::per_minute(30),
        ),
        (
            Theirs::requests_per_hour(nz!(720u32)),
            TokenBucket::per_hour(720),
        ),
        (
            Theirs::seconds_per_request(nz!(10u32)),
            TokenBucket::new(1, Duration::from_secs(10)).unwrap(),
        ),
        (
            Theirs::requests_per_second(nz!(5u32)).burst(nz!(10u32)),
            TokenBucket::per_second(5).burst(10),
        ),
    ] {
        assert_alike(theirs.into(), ours);
    }
}

#[test]
fn limits_of_actix_governor_decide_alike() {
    let builder = |period, burst| {
        let quota = Quota::with_period(period).unwrap();
        quota.allow_burst(NonZeroU32::new(burst).unwrap())
    };
    for (theirs, ours) in [
        // .requests_per_second(2).burst_size(5)
        (
            builder(Duration::from_millis(500), 5),
            TokenBucket::per_second(2).burst(5),
        ),
        // .seconds_per_request(4).burst_size(2), which is GovernorConfig::secure()
        (
            builder(Duration::from_secs(4), 2),
            TokenBucket::per_minute(15).burst(2),
        ),
        // .milliseconds_per_request(600).burst_size(100)
        (
            builder(Duration::from_millis(600), 100),
            TokenBucket::per_minute(100),
        ),
    ] {
        assert_alike(theirs, ours);
    }
}

/// As the page says: there, the number is the time between two tokens.
#[test]
#[should_panic(expected = "request")]
fn a_number_that_is_copied_changes_the_limit() {
    let mut builder = GovernorConfigBuilder::default().key_extractor(GlobalKeyExtractor);
    let theirs = builder.per_second(5).burst_size(5).finish().unwrap();
    assert_alike(quota_of(&theirs, &()), TokenBucket::per_second(5));
}
