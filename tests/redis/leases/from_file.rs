//! Leases that a file of limits turns on.

use tower_ratelimit_config::Config;

use crate::support::redis::Server;

/// Returns how many calls a hundred requests have saved under the policy and the store of a file.
async fn saved(policy: &str, store: &str) -> Option<u64> {
    let server = Server::start(&[]);
    let text = format!(
        "[policies.a]\nkey = \"global\"\nquota = \"100000/day\"\n{policy}\n[store]\nredis = \"{}\"\n{store}",
        server.url()
    );
    let config: Config = text.parse().unwrap();
    let limiter = config.limiter().unwrap();
    for _ in 0..100 {
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    let snapshot = limiter.snapshot();
    Some(snapshot.store.leases?.calls_saved)
}

#[tokio::test]
async fn a_file_says_for_how_long_units_are_leased_and_of_which_policies_they_are_not() {
    assert_eq!(saved("", "").await, None);
    let leased = saved("", "lease = \"1s\"").await;
    assert!(leased > Some(50), "{leased:?}");
    assert_eq!(saved("lease = false", "lease = \"1s\"").await, Some(0));
}
