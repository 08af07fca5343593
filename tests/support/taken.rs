//! What is given back of a request that is refused after all, in any store.

use std::time::Duration;

use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Amendment, Charge, Ledger, Taken};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, ManualClock, Micros, Policy, SlidingLog, SlidingSlots,
    SlidingWindow,
};

/// 2024-01-01, when a second begins.
pub(crate) const START: Micros = Micros::new(1_704_067_200_000_000);

/// A request took two of five, and its window ended before they could be given back. So two were given back of
/// what others had taken in the next window, and seven passed in it.
pub(crate) async fn nothing_is_given_back_of_a_window_that_has_ended<L: Ledger>(
    clock: &ManualClock,
    open: impl Fn(&[Policy]) -> L,
) {
    let algorithms: [Algorithm; 5] = [
        FixedWindow::per_second(5).into(),
        AnchoredWindow::per_second(5).into(),
        SlidingLog::per_second(5).into(),
        SlidingWindow::per_second(5).into(),
        SlidingSlots::per_second(5).into(),
    ];
    for algorithm in algorithms {
        clock.set_micros(START);
        let ledger = open(&[Policy::new(algorithm.name(), algorithm)]);
        let charge = |cost| Charge::new(0, "ann".into_key(), cost);
        let take = async |cost| {
            let charge = charge(cost);
            let outcomes = ledger.decide(&[charge]).wait().await.unwrap();
            assert!(outcomes.is_allowed(), "{algorithm}");
            Amendment::TakeBack(Taken::of(&charge, &algorithm, &outcomes))
        };
        let take_back = async |taken| {
            let reply = ledger.amend(&[charge(2)], taken);
            reply.wait().await.unwrap();
        };
        let used = async || {
            let outcomes = ledger.peek(&[charge(0)]).wait().await.unwrap();
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
    }
}
