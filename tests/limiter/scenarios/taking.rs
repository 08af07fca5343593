//! Taking as much as there is.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use tower_ratelimit::clock::{Clock, Micros};
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::{
    FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy, TokenBucket,
};

fn limiter(policies: [Policy; 2]) -> LocalLimiter {
    Limiter::builder()
        .policies(policies)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build_local()
        .unwrap()
}

fn of_1000_and_900() -> LocalLimiter {
    limiter([
        Policy::new("day", FixedWindow::per_day(1_000)),
        Policy::new("burst", TokenBucket::per_second(1).burst(900)),
    ])
}

/// Returns the output of a future over a store in this process, which has nothing to wait for.
fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

#[test]
fn threads_that_take_what_there_is_take_exactly_the_limit() {
    let limiter = of_1000_and_900();
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        for most in 1..=8 {
            let (limiter, taken) = (&limiter, &taken);
            scope.spawn(move || {
                loop {
                    let (units, decision) = limiter.acquire_up_to("ann", most).now();
                    taken.fetch_add(units, Ordering::Relaxed);
                    if units == 0 {
                        assert!(!decision.is_allowed());
                        break;
                    }
                    assert!(decision.is_allowed() && units <= most);
                }
            });
        }
    });
    assert_eq!(taken.into_inner(), 900);
}

/// A clock by which each question comes 70 ms after the one before it.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Micros {
        Micros::new(self.0.fetch_add(70_000, Ordering::Relaxed))
    }
}

/// Under a factor it takes several steps, between which a bucket drains.
#[test]
fn under_a_factor_the_number_taken_and_the_verdict_agree() {
    let half = FactorCell::new();
    half.set(Factor::thousandths(500), "a test");
    let limiter = Limiter::builder()
        .policy(Policy::new("bucket", TokenBucket::per_second(2)).factor(&half))
        .store(MemoryStore::new().clock(Ticking::default()))
        .build_local()
        .unwrap();
    let mut taken = 0;
    for _ in 0..100 {
        let (units, decision) = limiter.acquire_up_to("ann", 3).now();
        assert_eq!(decision.is_allowed(), units > 0);
        taken += units;
        let (units, decision) = now(limiter.acquire_up_to("ann", 3)).unwrap();
        assert_eq!(decision.is_allowed(), units > 0);
        taken += units;
    }
    assert!((20..200).contains(&taken), "{taken}");
}

#[test]
fn the_same_is_taken_from_any_store() {
    let limiter = of_1000_and_900().erased();
    for (most, expected) in [(0, 0), (500, 500), (500, 400), (500, 0), (u32::MAX, 0)] {
        let (units, decision) = now(limiter.acquire_up_to("ann", most)).unwrap();
        assert_eq!(units, expected, "of {most}");
        assert_eq!(decision.is_allowed(), units > 0 || most == 0);
    }
    let (units, _) = now(limiter.acquire_up_to("bob", u32::MAX)).unwrap();
    assert_eq!(units, 900);
}

#[test]
fn a_limit_of_zero_gives_no_units() {
    let limiter = limiter([
        Policy::new("none", FixedWindow::per_day(0)),
        Policy::new("some", FixedWindow::per_day(9)),
    ]);
    let (units, decision) = limiter.acquire_up_to("ann", 5).now();
    assert_eq!((units, decision.retry_after()), (0, None));
    assert_eq!(
        limiter
            .peek("ann", 0)
            .now()
            .policies()
            .nth(1)
            .unwrap()
            .1
            .remaining(),
        9
    );
}
