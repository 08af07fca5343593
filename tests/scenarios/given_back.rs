use tower_ratelimit::store::Store;
use tower_ratelimit::{ManualClock, MemoryStore};

use crate::support::taken::{START, nothing_is_given_back_of_a_window_that_has_ended};

#[tokio::test]
async fn what_a_request_took_is_given_back_until_its_window_ends() {
    let clock = ManualClock::at(START);
    let store = || MemoryStore::new().clock(clock.clone());
    nothing_is_given_back_of_a_window_that_has_ended(&clock, |policies| {
        store().open(policies).unwrap()
    })
    .await;
}
