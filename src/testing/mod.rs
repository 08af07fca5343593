//! Whether a store of your own is right.
//!
//! [`Conformance`] asks a store what it asks the stores of this crate, and compares every answer with
//! the algorithms' own steps over a plain map. A test of a place that keeps [items](Items):
//!
//! ```
//! # use std::collections::HashMap;
//! # use std::sync::{Arc, Mutex};
//! # use std::time::{Duration, Instant};
//! use tower_ratelimit::testing::Conformance;
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
//! The laws, one after another:
//!
//! 1. Every algorithm decides as its step does, at either end of its numbers.
//! 2. All policies of a request are charged, or none; a soft one is left out where it does not fit.
//! 3. A key is refunded, settled, reset, blocked and unblocked as it was asked for, under the policies
//!    that were named and no others, and a peek changes nothing.
//! 4. A key goes by a limit of its own for as long as it was given that, and what was used stays used.
//! 5. Different keys have states of their own, whatever clients put into them.
//! 6. Whoever opens the store for a policy shares its state.
//! 7. Of many requests at once, in tasks and in threads, exactly as many are allowed as the limit is.
//! 8. Nothing is forgotten before it is as good as new.
//!
//! Of items, besides:
//!
//! 9. An item that has changed since it was read is read anew. Another request is let in between the
//!    reading and the writing of one.
//! 10. An item is forgotten once it has expired, within ten seconds.
//!
//! The questions are the same in each run, but for the keys, so that a place need not be empty. They
//! take some seconds, most of which are waited. A runtime of tokio has to be there, with time enabled; that of
//! several threads sees the most.

mod broken;
mod crowd;
mod items;
mod laws;
mod random;
mod reference;
mod scene;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use self::broken::Broken;

use self::scene::Scene;
use crate::algorithm::{Algorithm, AnchoredWindow};
use crate::clock::ManualClock;
use crate::key::{IntoKey, Key};
use crate::store::{Items, SharedStore, Store};

/// Asks a store whether it keeps the laws; see the [module](self).
///
/// # Defaults
///
/// - clock: the store has a time of its own. Then no question waits for a quota of a day to be there
///   again, and what comes after such a wait is not seen; nor is what depends on the moment at which a
///   verb was done, such as a settlement under a bucket, since no answer tells that. With a [clock](Self::clock) it is.
#[must_use = "nothing is asked until it is run"]
pub struct Conformance<S> {
    stage: Stage<S>,
    items: Option<Arc<dyn Items>>,
}

/// Where the laws are played.
struct Stage<S> {
    store: S,
    clock: Option<ManualClock>,
    /// A number that no other run has had.
    run: u32,
    /// So many keys have been used.
    keys: AtomicU32,
}

impl<S: Store> Conformance<S> {
    /// Asks this store.
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

    /// The store reads this clock, which is moved on while it is asked.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.stage.clock = Some(clock);
        self
    }

    /// Asks.
    ///
    /// # Errors
    ///
    /// The first law that is broken.
    pub async fn run(self) -> Result<(), Broken> {
        let Self { stage, items } = self;
        laws::decides(&stage).await?;
        laws::all_or_nothing(&stage).await?;
        laws::verbs(&stage).await?;
        laws::limits_of_their_own(&stage).await?;
        laws::keys_are_apart(&stage).await?;
        laws::nodes_agree(&stage).await?;
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
    /// Asks the store that is made of these items, and the items themselves.
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
    ) -> Result<Scene<S::Ledger>, Broken> {
        let seed = self.keys.load(Ordering::Relaxed);
        Scene::open(law, &self.store, self.clock.as_ref(), seed, algorithms)
    }

    /// Keys that nobody has used.
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

    /// Waits, and moves the clock as much as that has taken.
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
