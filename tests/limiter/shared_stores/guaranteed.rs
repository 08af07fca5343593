//! What keys are guaranteed of a limit above, over items: `tests/redis/guaranteed.rs` compares its decisions with those in memory.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::store::{Change, Changed, Items, Reply, SharedStore};
use tower_ratelimit::{
    Decision, FixedWindow, Limiter, ManualClock, OnStoreFailure, Policy, Quota, StoreError,
};

use super::map;
use crate::support::driver::now;
use crate::support::items::Map;

const DAY: Duration = Duration::from_secs(86_400);

fn team(name: &str) -> Key {
    Key::branch("acme", &[name.into_key()])
}

fn over<I: Items>(store: SharedStore<I>, limit: u32, guaranteed: u32) -> Limiter {
    let level = |name| {
        let level = Policy::new(name, FixedWindow::per_day(limit));
        level.on_store_failure(OnStoreFailure::Refuse)
    };
    let low = level("team").below("org");
    let low = low.guaranteed(Quota::per_day(guaranteed));
    let builder = Limiter::builder().policies([level("org"), low]);
    builder.store(store).build().unwrap()
}

fn check(limiter: &Limiter, key: Key) -> Result<Decision, StoreError> {
    let request = limiter.named([("org", key.root(), 1), ("team", key, 1)]);
    now(request.unwrap().check())
}

fn take(limiter: &Limiter, key: Key) -> u32 {
    let mut taken = 0;
    while check(limiter, key).unwrap().is_allowed() {
        taken += 1;
    }
    taken
}

#[test]
fn all_nodes_keep_what_a_key_is_guaranteed() {
    let map = map();
    let nodes = [(); 2].map(|()| over(SharedStore::new(map.clone()), 20, 8));
    assert!(check(&nodes[0], team("blue")).unwrap().is_allowed());
    assert_eq!(take(&nodes[1], team("red")), 12, "7 are kept");
    assert_eq!(take(&nodes[0], team("blue")), 7);
    map.clock.advance(DAY);
    assert_eq!(take(&nodes[1], team("red")), 20, "no other team has asked");
    now(nodes[0].reset("acme")).unwrap();
    assert_eq!(take(&nodes[0], team("green")), 20, "nobody is active");
}

/// Of many keys few are told apart, and what they leave is gone when it makes no difference any more.
#[test]
fn an_item_is_bounded_and_lasts_for_a_period() {
    let map = map();
    let limiter = over(SharedStore::new(map.clone()), 300, 1);
    let size = |map: &Map| map.items()["trl1:t:acme"].len();
    assert!(check(&limiter, team("blue")).unwrap().is_allowed());
    let of_one = size(&map);
    assert!(check(&limiter, team("red")).unwrap().is_allowed());
    assert_eq!(size(&map), of_one + 48);
    for number in 0..400 {
        let _ = check(&limiter, team(&number.to_string())).unwrap();
    }
    assert_eq!(size(&map), of_one + 255 * 48);
    map.clock.advance(DAY);
    assert!(check(&limiter, team("blue")).unwrap().is_allowed());
    assert_eq!(size(&map), of_one);
}

/// Returns an item whose only record has these words, under the tag of the children of `org`.
fn item(words: &[u64]) -> Vec<u8> {
    let text = "children fixed-window 86400000000 0 org";
    let tag: [u8; 32] = Sha256::digest(text).into();
    let until = u64::MAX.to_be_bytes();
    let count = u32::try_from(words.len()).unwrap().to_be_bytes();
    let words = words.iter().flat_map(|word| word.to_be_bytes());
    let head = [&[1][..], &[0; 8], &tag[..8], &until, &count].concat();
    head.into_iter().chain(words).collect()
}

#[test]
fn words_that_no_rule_writes_are_an_error_until_the_key_is_reset() {
    let map = map();
    let limiter = over(SharedStore::new(map.clone()), 10, 4);
    let name = "trl1:t:acme";
    for words in [
        &[1][..],
        &[1, 2, 3],
        &[0, 7, 0, 0, 0, 0, 0, 8],
        &[0, 7, 0, 0, 0, u64::MAX, u64::MAX],
    ] {
        map.items().insert(name.to_owned(), item(words));
        let before = map.items().clone();
        let peeked = limiter.named([("org", "acme".into_key(), 1)]);
        for failed in [
            check(&limiter, team("blue")).unwrap_err(),
            now(peeked.unwrap().peek()).unwrap_err(),
            now(limiter.refund("acme", 1)).unwrap_err(),
        ] {
            assert_eq!(failed.kind(), StoreErrorKind::Misconfigured, "{words:?}");
        }
        assert_eq!(*map.items(), before, "{words:?}");
        now(limiter.reset("acme")).unwrap();
        assert!(check(&limiter, team("blue")).unwrap().is_allowed());
    }
    let others = &[0, 7, 0, u64::MAX, u64::MAX, 0, 0];
    map.items().insert(name.to_owned(), item(others));
    assert!(check(&limiter, team("blue")).unwrap().is_allowed());
}

/// A key that is refused has to be heard of: it is active, and room is kept for it.
#[test]
fn no_refusal_of_a_key_is_remembered() {
    let map = map();
    let store = SharedStore::new(map.clone()).remember_denials_for(Duration::from_secs(60));
    let limiter = over(store, 5, 2);
    assert_eq!(take(&limiter, team("red")), 5);
    for _ in 0..3 {
        let before = map.items().clone();
        map.clock.advance(Duration::from_secs(1));
        assert!(!check(&limiter, team("red")).unwrap().is_allowed());
        assert_ne!(*map.items(), before);
    }
    assert_eq!(limiter.snapshot().store.remembered_denials, 0);
}

/// Items that compare and swap: they are read and written under a lock, but not changed under it.
#[derive(Clone, Debug)]
struct Swapping {
    clock: ManualClock,
    items: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    lost: Arc<Mutex<u32>>,
}

impl Items for Swapping {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let read = || -> Vec<_> {
            let items = self.items.lock().unwrap();
            let names = change.names().iter();
            names.map(|name| items.get(name).cloned()).collect()
        };
        loop {
            let found = read();
            let changed = change.apply(self.clock.now(), &found);
            thread::yield_now();
            let mut items = self.items.lock().unwrap();
            let mut both = change.names().iter().zip(&found);
            if both.all(|(name, found)| items.get(name) == found.as_ref()) {
                for write in changed.writes() {
                    let name = change.names()[write.item()].clone();
                    items.insert(name, write.value().to_owned());
                }
                return Reply::Now(Ok(changed));
            }
            *self.lost.lock().unwrap() += 1;
        }
    }
}

#[test]
fn of_many_requests_at_once_none_takes_what_is_guaranteed_to_others() {
    let items = Swapping {
        clock: ManualClock::new(),
        items: Arc::default(),
        lost: Arc::default(),
    };
    let nodes = [(); 4].map(|()| over(SharedStore::new(items.clone()), 400, 150));
    assert!(check(&nodes[0], team("blue")).unwrap().is_allowed());
    let barrier = Barrier::new(4);
    let taken = thread::scope(|scope| {
        let (barrier, nodes) = (&barrier, &nodes);
        let threads = nodes.each_ref().map(|node| {
            scope.spawn(move || {
                barrier.wait();
                take(node, team("red"))
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(taken.iter().sum::<u32>(), 400 - 150, "{taken:?}");
    assert!(*items.lost.lock().unwrap() > 0, "no change was contested");
    assert_eq!(take(&nodes[1], team("blue")), 149);
}
