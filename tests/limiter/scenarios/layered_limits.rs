//! Every source of limits works for requests of any service.

use std::convert::Infallible;
#[cfg(feature = "calendar")]
use std::time::Duration;

use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::plan::KeyLimits;
use tower_ratelimit::service::Refused;
use tower_ratelimit::{
    Decision, FixedWindow, LimitLayer, Limiter, ManualClock, MemoryStore, Micros, Policy,
};

use crate::support::driver::now;

/// A request is the name of its client, and the answer is the decision that refuses it.
struct Service {
    layer: LimitLayer<&'static str, Option<Decision>, Infallible>,
    clock: ManualClock,
}

impl Service {
    fn behind(policy: Policy) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        let limiter = Limiter::builder().policy(policy).store(store).build();
        let refuse = |refused: Refused| Ok(refused.decision().cloned());
        let layer = LimitLayer::new(limiter.unwrap(), |client: &&'static str| *client, refuse);
        Self { layer, clock }
    }

    fn ask(&self, client: &'static str) -> Option<Decision> {
        let inner = service_fn(async |_| Ok(None));
        now(self.layer.layer(inner).oneshot(client)).unwrap()
    }

    /// Returns how many requests pass, and the decision about the next one.
    fn use_up(&self, client: &'static str) -> (usize, Decision) {
        let passed = (0..100).map_while(|_| self.ask(client).is_none().then_some(()));
        let passed = passed.count();
        (passed, self.ask(client).expect("nothing is left"))
    }

    #[cfg_attr(
        not(feature = "calendar"),
        expect(dead_code, reason = "without calendars no clock is moved")
    )]
    fn set(&self, seconds: u64) {
        self.clock.set_micros(Micros::new(seconds * 1_000_000));
    }
}

#[test]
fn a_service_has_limits_by_closure_and_by_key() {
    let minute = FixedWindow::per_minute;
    let table = KeyLimits::new()
        .key("partner-ann", minute(3))
        .prefix("partner-", minute(2));
    let policy = Policy::new("minute", minute(5))
        .key_limits(table)
        .limit_by(move |key| key.starts_with("trial-").then(|| minute(1)));
    let service = Service::behind(policy);
    for (client, limit, rule) in [
        ("trial-ann", 1, "closure"),
        ("partner-ann", 3, r#"key "partner-ann""#),
        ("partner-bob", 2, r#"prefix "partner-""#),
        ("ann", 5, "policy"),
    ] {
        let (passed, refused) = service.use_up(client);
        assert_eq!(
            (passed, refused.rule().unwrap().to_string()),
            (limit, rule.to_owned())
        );
    }
}

/// Noon in São Paulo, on a day of 23 hours.
#[cfg(feature = "calendar")]
#[test]
fn a_service_has_days_of_a_calendar() {
    let zone = tower_ratelimit::calendar::Zone::named("America/Sao_Paulo").unwrap();
    let day = FixedWindow::per_calendar_day(3).zone(zone);
    let service = Service::behind(Policy::new("day", day));
    service.set(1_445_176_800);
    let (passed, refused) = service.use_up("ann");
    let half_a_day = Duration::from_secs(43_200);
    assert_eq!((passed, refused.retry_after()), (3, Some(half_a_day)));
    service.set(1_445_176_800 + 43_199);
    assert!(service.ask("ann").is_some());
    service.set(1_445_176_800 + 43_200);
    assert!(service.ask("ann").is_none());
}

/// A minute before the night, in which there are twice as many.
#[cfg(feature = "calendar")]
#[test]
fn a_service_that_is_refused_before_a_switch_waits_as_it_is_told_and_passes() {
    let hours = tower_ratelimit::Hours::in_zone("UTC").unwrap();
    let hours = hours.at("22:00-06:00", FixedWindow::per_day(6)).unwrap();
    let policy = Policy::new("day", FixedWindow::per_day(3));
    let service = Service::behind(policy.hours(&hours).unwrap());
    let before = 1_767_304_740;
    service.set(before);
    let (passed, refused) = service.use_up("ann");
    let minute = Duration::from_secs(60);
    assert_eq!((passed, refused.retry_after()), (3, Some(minute)));
    let (_, interval) = refused.hours().next().unwrap();
    assert_eq!(interval.interval(), None);
    service.set(before + 60);
    let (passed, refused) = service.use_up("ann");
    assert_eq!(passed, 3);
    let (_, interval) = refused.hours().next().unwrap();
    assert_eq!(interval.interval(), Some("22:00-06:00"));
}
