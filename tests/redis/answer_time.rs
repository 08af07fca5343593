//! The answer time of Redis as a signal of the load.

use std::time::Duration;

use tower_ratelimit::factor::Factor;
use tower_ratelimit::{AnchoredWindow, Limiter, Policy, RedisStore};
use tower_ratelimit_adapt::{Adapt, Aimd, AnswerTime, Load, Signal};

use crate::support::proxy::Proxy;
use crate::support::redis::Server;

const TARGET: Duration = Duration::from_millis(50);

#[tokio::test]
async fn limits_fall_while_redis_answers_late() {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let deadline = Duration::from_secs(5);
    let store = RedisStore::builder().deadline(deadline);
    let store = store.open(proxy.url()).unwrap();
    let mut signal = AnswerTime::of(&store, TARGET);
    let adapt = Adapt::builder(Aimd::on("store", Load::FULL))
        .signal(AnswerTime::of(&store, TARGET))
        .build()
        .unwrap();
    let policy = Policy::new("api", AnchoredWindow::per_day(1_000)).factor(adapt.factor());
    let limiter = Limiter::builder().policy(policy).store(store);
    let limiter = limiter.build().unwrap();

    // No call has ended.
    assert_eq!(signal.read(Duration::ZERO), None);
    adapt.sample();
    assert_eq!(adapt.factor().get(), Factor::ONE);

    proxy.delay(2 * TARGET);
    for number in 0..20_u32 {
        assert!(limiter.check(number, 1).await.unwrap().is_allowed());
    }
    let load = signal.read(Duration::ZERO).unwrap();
    assert!(load >= Load::percent(200), "{load}");
    // A reading is returned once.
    assert_eq!(signal.read(Duration::ZERO), None);
    adapt.sample();
    assert!(adapt.factor().get() < Factor::ONE);
    assert!(adapt.explain().cause().unwrap().starts_with("store "));
}
