use tower_ratelimit::store::Store;
use tower_ratelimit::{ManualClock, MemoryStore};

use crate::support::taken::{START, nothing_is_given_back_of_a_window_that_has_ended};

#[tokio::test]
async fn a_refund_counts_until_the_window_of_the_charge_ends() {
    let clock = ManualClock::at(START);
    let store = || MemoryStore::new().clock(clock.clone());
    nothing_is_given_back_of_a_window_that_has_ended(&clock, |policies| {
        store().open(policies).unwrap()
    })
    .await;
}
