//! Limiters and layers of other crates, configured like ours.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use governor::clock::{MonotonicClock, QuantaClock};
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::state::keyed::DashMapStateStore;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The limiter of governor for many keys.
pub type Governor<C> = governor::RateLimiter<
    IpAddr,
    DashMapStateStore<IpAddr>,
    C,
    NoOpMiddleware<<C as governor::clock::Clock>::Instant>,
>;

/// Returns a quota of this many an hour, and as many at once.
pub fn an_hour(limit: u32) -> governor::Quota {
    governor::Quota::per_hour(not_zero(limit))
}

/// Returns a quota of this many a day, and as many at once.
pub fn a_day(limit: u32) -> governor::Quota {
    governor::Quota::with_period(DAY / limit)
        .expect("more than nothing")
        .allow_burst(not_zero(limit))
}

/// Returns governor under its default clock.
pub fn governor_by_quanta(quota: governor::Quota) -> Governor<QuantaClock> {
    Governor::new(quota, DashMapStateStore::default(), QuantaClock::default())
}

/// Returns governor under std's clock.
pub fn governor_by_std(quota: governor::Quota) -> Governor<MonotonicClock> {
    Governor::new(quota, DashMapStateStore::default(), MonotonicClock)
}

/// Returns the bucket of ratelimit, which knows no keys; it starts full.
pub fn ratelimit(per_hour: u32) -> ratelimit::Ratelimiter {
    ratelimit::Ratelimiter::builder(u64::from(per_hour))
        .period(HOUR)
        .max_tokens(u64::from(per_hour))
        .initial_available(u64::from(per_hour))
        .build()
        .expect("the bucket holds what it starts with")
}

/// The limiter of throttlecrab, for one thread and for keys that are text.
pub struct Throttlecrab {
    limiter: throttlecrab::RateLimiter<throttlecrab::PeriodicStore>,
    burst: i64,
    per_hour: i64,
}

impl Throttlecrab {
    pub fn new(per_hour: u32) -> Self {
        Self {
            limiter: throttlecrab::RateLimiter::new(throttlecrab::PeriodicStore::new()),
            // A burst of one is never refused: its state expires at once.
            burst: i64::from(per_hour).max(2),
            per_hour: i64::from(per_hour),
        }
    }

    pub fn admits(&mut self, key: &str) -> bool {
        let now = SystemTime::now();
        let answer = self
            .limiter
            .rate_limit(key, self.burst, self.per_hour, 3_600, 1, now);
        answer.is_ok_and(|(allowed, _)| allowed)
    }
}

/// Returns tower_governor's layer by peer address, without headers.
pub fn tower_governor_silent(
    per_hour: u32,
) -> GovernorLayer<
    PeerIpKeyExtractor,
    NoOpMiddleware<governor::clock::QuantaInstant>,
    axum::body::Body,
> {
    let config = GovernorConfigBuilder::default()
        .period(HOUR / per_hour)
        .burst_size(per_hour)
        .finish();
    GovernorLayer::new(config.expect("neither number is zero"))
}

/// Returns tower_governor's layer by peer address, with its headers.
pub fn tower_governor(
    per_hour: u32,
) -> GovernorLayer<PeerIpKeyExtractor, StateInformationMiddleware, axum::body::Body> {
    let config = GovernorConfigBuilder::default()
        .period(HOUR / per_hour)
        .burst_size(per_hour)
        .use_headers()
        .finish();
    GovernorLayer::new(config.expect("neither number is zero"))
}

/// Returns axum-governor's layer by peer address; it always writes its headers.
pub fn axum_governor(per_hour: u32) -> axum_governor::GovernorLayer<IpAddr> {
    let quota = axum_governor::Quota::requests_per_hour(not_zero(per_hour));
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(axum_governor::PeerIp::default())
        .expect_connect_info()
        .quota_default(quota)
        .finish();
    axum_governor::GovernorLayer::new(config.expect("an extractor and a quota"))
}

fn not_zero(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not zero")
}
