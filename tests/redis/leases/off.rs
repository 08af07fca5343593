//! Without leased policies, leases cost nothing: the store sends the same calls as without them.

use tower_ratelimit::{Policy, RedisStore};

use super::{DAY, leasing};
use crate::scene::{daily, limiter, patient};
use crate::stand_in::{ScriptedReply, StandIn};

/// Returns the commands of three requests under this policy, and of all other operations on a key.
async fn heard(policy: Policy, open: impl Fn(&str) -> RedisStore) -> Vec<Vec<String>> {
    let server = StandIn::start(|_| ScriptedReply::Allow);
    let store = open(&server.url());
    let node = limiter(&store, [policy]);
    for _ in 0..3 {
        assert!(node.check("ann", 1).await.unwrap().is_allowed());
    }
    assert!(node.peek("ann", 1).await.unwrap().is_allowed());
    // What the server says to these is no answer.
    let _ = node.refund("ann", 1).await;
    let _ = node.settle("ann", 1).await;
    let _ = node.acquire_up_to("ann", 5).await;
    let _ = node.reset("ann").await;
    let _ = node.block("ann", DAY).await;
    let _ = node.inspect("ann").await;
    store.give_leases_back().await;
    drop(node);
    server.scripts()
}

#[tokio::test]
async fn without_leases_a_request_sends_its_charge_and_nothing_else() {
    let policy = || daily("a", 1_000);
    let plain = heard(policy(), |url| patient().open(url).unwrap()).await;
    let unleased = heard(policy().without_lease(), |url| leasing().open(url).unwrap()).await;
    assert_eq!(plain, unleased);
    assert!(plain.len() >= 9, "{plain:?}");
    for call in plain.into_iter().take(3) {
        let [verb, _script, keys, key, words @ ..] = call.as_slice() else {
            panic!("{call:?}");
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!((verb.as_str(), keys.as_str()), ("EVALSHA", "1"));
        assert!(key.ends_with(":a:anchored-window/day"), "{key}");
        // The server's clock; one rule and its numbers; one request of one charge: its rule, its cost, and not soft.
        let expected = [
            "",
            "charge",
            "1",
            "anchored_window",
            "1000",
            "86400000000",
            "0",
            "1000",
            "1",
            "1",
            "1",
            "1",
            "0",
        ];
        assert_eq!(words, expected);
    }
}
