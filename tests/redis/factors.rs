//! Each node has its own factor: it changes the charges of the node, and nothing in Redis.

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::{AnchoredWindow, ManualClock, Micros, Policy};

use crate::scene::{limiter, store};
use crate::support::redis::Server;

#[tokio::test]
async fn nodes_that_share_a_limit_each_charge_by_their_own_factor() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    let node = |factor: &FactorCell| {
        let policy = Policy::new("api", AnchoredWindow::per_day(100)).factor(factor);
        limiter(&store(&server).clock(clock.clone()), [policy])
    };
    let (whole, half) = (FactorCell::new(), FactorCell::new());
    half.set(Factor::thousandths(500), "cpu 80 %");
    let (calm, busy) = (node(&whole), node(&half));
    for _ in 0..10 {
        assert!(calm.check("ann", 1).await.unwrap().is_allowed());
        assert!(busy.check("ann", 1).await.unwrap().is_allowed());
    }
    // Ten units, and ten at twice their price.
    let left = |decision: tower_ratelimit::Decision| decision.binding().unwrap().1.remaining();
    assert_eq!(left(calm.peek("ann", 0).await.unwrap()), 70);
    assert_eq!(left(busy.peek("ann", 0).await.unwrap()), 35);
    // A node whose load has fallen reads the same state as before.
    half.set(Factor::ONE, "");
    assert_eq!(left(busy.peek("ann", 0).await.unwrap()), 70);
}
