use tower_ratelimit::store::Store;
use tower_ratelimit::{ManualClock, MemoryStore};

use crate::support::taken::{
    START, nothing_is_given_back_of_a_window_that_has_ended,
    whatever_a_request_cost_the_wait_that_is_told_is_true,
};

#[tokio::test]
async fn a_refund_counts_until_the_window_of_the_charge_ends() {
    let clock = ManualClock::at(START);
    let store = || MemoryStore::new().clock(clock.clone());
    nothing_is_given_back_of_a_window_that_has_ended(&clock, |policies| {
        store().open(policies).unwrap()
    })
    .await;
}

#[tokio::test]
async fn whatever_a_request_cost_a_client_that_waits_as_it_is_told_passes() {
    let clock = ManualClock::at(START);
    let store = || MemoryStore::new().clock(clock.clone());
    whatever_a_request_cost_the_wait_that_is_told_is_true(&clock, |policies| {
        store().open(policies).unwrap()
    })
    .await;
}
