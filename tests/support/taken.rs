//! What is given back of a request, and what is charged to it after the fact, in any store.

use std::time::Duration;

use tower_ratelimit::key::IntoKey;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Amendment, Backend, Charge, Taken};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, ManualClock, Micros, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};

/// 2024-01-01, when a second begins.
pub(crate) const START: Micros = Micros::new(1_704_067_200_000_000);

fn windows() -> [Algorithm; 5] {
    [
        FixedWindow::per_second(5).into(),
        AnchoredWindow::per_second(5).into(),
        SlidingLog::per_second(5).into(),
        SlidingWindow::per_second(5).into(),
        SlidingSlots::per_second(5).into(),
    ]
}

/// Returns a request took two of five, and its window ended before they could be given back. So two were given back of
/// what others had taken in the next window, and seven passed in it.
pub(crate) async fn nothing_is_given_back_of_a_window_that_has_ended<L: Backend>(
    clock: &ManualClock,
    open: impl Fn(&[Rule]) -> L,
) {
    for algorithm in windows() {
        clock.set_micros(START);
        let backend = open(&[Rule::new(algorithm.name(), algorithm)]);
        let charge = |cost| Charge::new(0, "ann".into_key(), cost);
        let take = async |cost| {
            let charge = charge(cost);
            let outcomes = backend.decide(&[charge]).wait().await.unwrap();
            assert!(outcomes.is_allowed(), "{algorithm}");
            Taken::of(&charge, &algorithm, &outcomes)
        };
        let amend = async |amendment| {
            let reply = backend.amend(&[charge(2)], amendment);
            reply.wait().await.unwrap();
        };
        let take_back = async |taken| amend(Amendment::TakeBack(taken)).await;
        let used = async || {
            let outcomes = backend.peek(&[charge(0)]).wait().await.unwrap();
            outcomes.iter().next().unwrap().1.used()
        };
        let taken = take(2).await;
        clock.advance(Duration::from_millis(99));
        take_back(taken).await;
        assert_eq!(used().await, 0, "{algorithm}");

        let taken = take(2).await;
        clock.advance(Duration::from_secs(1));
        take(3).await;
        let before = used().await;
        take_back(taken).await;
        assert_eq!(used().await, before, "{algorithm}");

        // To the microsecond: the next request is of the next window, slot or half.
        for (early, given_back) in [(1, 2), (0, 0)] {
            amend(Amendment::Reset).await;
            clock.set_micros(START);
            let taken = take(2).await;
            clock.set_micros(Micros::new(taken.until().get() - early));
            take(2).await;
            let before = used().await;
            take_back(taken).await;
            assert_eq!(used().await, before - given_back, "{algorithm}, {early}");
        }
    }
}

/// Returns a program that adds up wrongly settles more than any limit, again and again. Nothing overflows, and a client that waits
/// as it is told passes.
pub(crate) async fn whatever_a_request_cost_the_wait_that_is_told_is_true<L: Backend>(
    clock: &ManualClock,
    open: impl Fn(&[Rule]) -> L,
) {
    let buckets: [Algorithm; 4] = [
        Gcra::per_second(5).into(),
        TokenBucket::per_second(5).into(),
        TokenBucket::per_second(5).by_interval().into(),
        LeakyBucket::per_second(5).into(),
    ];
    for algorithm in windows().into_iter().chain(buckets) {
        clock.set_micros(START);
        let backend = open(&[Rule::new(algorithm.name(), algorithm)]);
        let charge = |cost| Charge::new(0, "ann".into_key(), cost);
        let decide = async || backend.decide(&[charge(1)]).wait().await.unwrap();
        let charged = decide().await;
        let taken = Taken::of(&charge(1), &algorithm, &charged);
        for _ in 0..3 {
            let settled = backend.amend(&[charge(u32::MAX)], Amendment::Add(taken));
            settled.wait().await.unwrap();
        }
        let denied = decide().await;
        assert!(!denied.is_allowed(), "{algorithm}");
        let wait = denied.iter().next().unwrap().1.retry_after().unwrap();
        assert!(
            wait <= 2 * algorithm.longest_wait().unwrap(),
            "{algorithm}: {wait:?}"
        );
        clock.advance(wait.saturating_sub(Duration::from_micros(1)));
        assert!(!decide().await.is_allowed(), "{algorithm}");
        clock.advance(Duration::from_micros(1));
        assert!(decide().await.is_allowed(), "{algorithm}: {wait:?}");
    }
}
