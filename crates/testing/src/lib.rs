//! Tests for a store of your own.
//!
//! [`Conformance`] makes the same requests to a store as to the stores of this crate, and compares every
//! answer with the steps of the algorithms over a plain map. A test of a place that keeps [items](Items):
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! # use std::collections::HashMap;
//! # use std::sync::{Arc, Mutex};
//! # use std::time::{Duration, Instant};
//! use tower_ratelimit_testing::Conformance;
//! # use tower_ratelimit::StoreError;
//! # use tower_ratelimit::clock::{Clock, SystemClock};
//! # use tower_ratelimit::store::{Change, Changed, Items, Reply};
//! #
//! # #[derive(Clone, Debug, Default)]
//! # struct Map(Arc<Mutex<HashMap<String, (Instant, Vec<u8>)>>>);
//! #
//! # impl Items for Map {
//! #     fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
//! #         let mut map = self.0.lock().unwrap();
//! #         map.retain(|_, (until, _)| *until > Instant::now());
//! #         let found = change.names().iter().map(|name| Some(&map.get(name)?.1));
//! #         let found: Vec<_> = found.collect();
//! #         let changed = change.apply(SystemClock::new().now(), &found);
//! #         for write in changed.writes() {
//! #             let name = change.names()[write.item()].clone();
//! #             map.insert(name, (Instant::now() + write.ttl(), write.value().to_owned()));
//! #         }
//! #         Reply::Now(Ok(changed))
//! #     }
//! # }
//!
//! # #[tokio::main]
//! # async fn main() {
//! // #[tokio::test(flavor = "multi_thread")]
//! // async fn the_map_conforms() {
//! Conformance::of_items(Map::default()).run().await.unwrap();
//! // }
//! # }
//! ```
//!
//! The laws, in the order in which they are tested:
//!
//! 1. Every algorithm decides as its step does, at either end of its numbers.
//! 2. All policies of a request are charged, or none. A soft policy whose limit is exceeded is not charged.
//! 3. `acquire_up_to` takes as many units as there are. A key is refunded, settled, reset, blocked and unblocked
//!    as requested, under the named policies and no others, and a peek changes nothing.
//! 4. A key has an override for as long as was asked for, and what was used stays used.
//! 5. Different keys have different states, whatever clients put into the keys.
//! 6. All nodes that open the store for a policy share its state.
//! 7. Of several policies of which one pays, the first that has room is charged, and the others are left alone. A store that does not
//!    [choose](Store::chooses_payers) is not asked.
//! 8. A limit that is divided is that of all its tenants, and what belongs to one of them stays for it. This is for stores that
//!    [divide limits](Store::divides_limits).
//! 9. What a key is guaranteed of a limit above is kept while the key asks, and lent when it does not. This is for stores that
//!    [keep guarantees](Store::keeps_guarantees).
//! 10. Of many requests at once, in tasks and in threads, exactly as many are allowed as the limit says.
//! 11. No state is forgotten before it is as good as new.
//!
//! And for items:
//!
//! 12. An item that has changed since it was read is read again. For this, another request comes between the
//!     read and the write of the first.
//! 13. An item is forgotten within ten seconds after it has expired.
//!
//! The requests are the same in each run, with other keys, so the place need not be empty. They take some
//! seconds, most of them waits. They need a tokio runtime with time enabled; a runtime with several threads
//! tests the most.

mod broken;
mod crowd;
mod fair;
mod guaranteed;
mod items;
mod laws;
mod payers;
mod random;
mod reference;
mod scene;
#[cfg(feature = "servers")]
pub mod servers;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use self::broken::Broken;

use self::scene::Scene;
use tower_ratelimit_core::algorithm::{Algorithm, AnchoredWindow};
use tower_ratelimit_core::clock::ManualClock;
use tower_ratelimit_core::key::{IntoKey, Key};
use tower_ratelimit_core::store::{Items, SharedStore, Store};

/// Tests whether a store obeys the laws; see the [module](self).
///
/// # Defaults
///
/// - clock: the store has its own time. Then no test waits until a quota of a day is available again, and no
///   test depends on the exact moment of a change (such as a settlement under a bucket), which no answer
///   tells. A [clock](Self::clock) adds both.
#[must_use = "`run` starts the tests"]
pub struct Conformance<S> {
    stage: Stage<S>,
    items: Option<Arc<dyn Items>>,
}

/// The store under test, and the state that the tests share.
struct Stage<S> {
    store: S,
    clock: Option<ManualClock>,
    /// A random number that sets the keys of this run apart.
    run: u32,
    /// The number of keys used so far.
    keys: AtomicU32,
}

impl<S: Store> Conformance<S> {
    /// Tests this store.
    pub fn of(store: S) -> Self {
        Self {
            stage: Stage {
                store,
                clock: None,
                run: getrandom::u32().unwrap_or_default(),
                keys: AtomicU32::new(0),
            },
            items: None,
        }
    }

    /// Sets the clock that the store reads, which the tests advance.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.stage.clock = Some(clock);
        self
    }

    /// Runs the tests.
    ///
    /// # Errors
    ///
    /// The first law that the store breaks.
    pub async fn run(self) -> Result<(), Broken> {
        let Self { stage, items } = self;
        laws::decides(&stage).await?;
        laws::all_or_nothing(&stage).await?;
        laws::verbs(&stage).await?;
        laws::limits_of_their_own(&stage).await?;
        laws::keys_are_apart(&stage).await?;
        laws::nodes_agree(&stage).await?;
        payers::one_pays(&stage).await?;
        fair::are_kept(&stage).await?;
        guaranteed::are_kept(&stage).await?;
        if let Some(items) = &items {
            items::nothing_is_lost(&stage, items).await?;
        }
        crowd::exactly_the_limit(&stage).await?;
        laws::nothing_is_forgotten_early(&stage).await?;
        if let Some(items) = &items {
            items::the_expired_is_forgotten(&stage, items).await?;
        }
        Ok(())
    }
}

impl Conformance<SharedStore<Arc<dyn Items>>> {
    /// Tests the store made of these items, and the items themselves.
    pub fn of_items(items: impl Items) -> Self {
        let items: Arc<dyn Items> = Arc::new(items);
        Self {
            items: Some(Arc::clone(&items)),
            ..Self::of(SharedStore::new(items))
        }
    }
}

impl<S: Store> Stage<S> {
    fn scene(
        &self,
        law: &'static str,
        algorithms: &[Algorithm],
    ) -> Result<Scene<S::Backend>, Broken> {
        let seed = self.keys.load(Ordering::Relaxed);
        Scene::open(law, &self.store, self.clock.as_ref(), seed, algorithms)
    }

    /// Keys that no test has used.
    fn keys(&self, law: &str, count: u32) -> Vec<Key> {
        let first = self.keys.fetch_add(count, Ordering::Relaxed);
        let named = (first..first + count).map(|number| format!("{law}-{number}-{:08x}", self.run));
        named.map(IntoKey::into_key).collect()
    }

    async fn counts_several_keys(&self) -> Result<bool, Broken> {
        let policies = [AnchoredWindow::per_day(1).into(); 2];
        let mut scene = self.scene(laws::ALL_OR_NOTHING, &policies)?;
        match self.keys("several", 2)[..] {
            [first, second] => Ok(scene.counts_several_keys([first, second]).await),
            _ => Ok(false),
        }
    }

    /// Waits, and advances the clock by the time that the wait has taken.
    async fn real_time_passes(&self, length: Duration) {
        let began = Instant::now();
        tokio::time::sleep(length).await;
        if let Some(clock) = &self.clock {
            clock.advance(began.elapsed());
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Conformance<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("store", &self.stage.store)
            .field("items", &self.items)
            .finish_non_exhaustive()
    }
}
