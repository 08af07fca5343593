//! A store of your own, from one atomic read-modify-write.

mod change;
mod item;
mod ledger;
mod own;
mod part;
mod rule;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "testing")]
pub(crate) use self::change::Meanwhile;
pub use self::change::{Change, Changed, Write};
pub use self::ledger::SharedLedger;

use super::{Availability, Reply, Store};
use crate::error::{ConfigError, StoreError};
use crate::policy::{Policy, check_names};

/// A place that several processes can reach, and that keeps items: a value under a name, until it
/// expires. [`SharedStore`] makes a store of it.
///
/// All that is known of one key is one item, whatever the policies, so that a place that can change but
/// one item at a time decides all or nothing. Where the policies of one request count different keys,
/// such as the address and the user, several items are changed together.
///
/// # Implementing it
///
/// [`update`](Self::update) is the one method there has to be. It reads the items, lets the change say
/// what to write, and writes that if none of the items has changed since; else it begins anew:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use tower_ratelimit::clock::{Clock, SystemClock};
/// use tower_ratelimit::store::{Change, Changed, Items, Reply, SharedStore};
/// use tower_ratelimit::{FixedWindow, Limiter, Policy, StoreError};
///
/// /// Grows for ever: what has expired is not forgotten.
/// #[derive(Debug, Default)]
/// struct Map(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl Items for Map {
///     fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
///         // No other thread can change an item while this is locked.
///         let mut map = self.0.lock().unwrap();
///         let found: Vec<_> = change.names().iter().map(|name| map.get(name)).collect();
///         let changed = change.apply(SystemClock::new().now(), &found);
///         for write in changed.writes() {
///             map.insert(change.names()[write.item()].clone(), write.value().to_owned());
///         }
///         Reply::Now(Ok(changed))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("hourly", FixedWindow::per_hour(2)))
///     .store(SharedStore::new(Map::default()))
///     .build()?;
/// assert!(limiter.check("ann", 2).await?.is_allowed());
/// assert!(!limiter.check("ann", 1).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// The example `custom_store` does so over memcached, whose `gets` and `cas` are what is needed here. A
/// database would read and write in one serializable transaction, or `SELECT … FOR UPDATE` in the order of
/// the names. With feature `testing`, `testing::Conformance` tells whether it is right.
///
/// - **Names** are compared byte by byte: `t:Ann` is not `t:ann`. In a database, give their column a
///   binary collation.
/// - **A value** has 9 bytes, and 20 and up to 32 more for each policy of the key; a sliding log has 16 more
///   for each moment that it remembers, and sliding slots 8 for each slot. A block takes 36 more, and a limit of
///   the key's own 52, for as long as it lasts. Of one that is too long for the
///   place, writing fails; cut short, it is damaged.
/// - **Expiry** saves room and decides nothing: an item that has outlived its time to live is read as the
///   new one that it is. One that is forgotten before counts as new, and lets more through. The conformance
///   suite asks for it all the same, within ten seconds: a place that forgets nothing fills up.
/// - **Damage**: bytes that no store of this version writes are a
///   [`Misconfigured`](crate::error::StoreErrorKind::Misconfigured) error for this key, which ends when it
///   is [reset](crate::Limiter::reset). Nothing is written over them before.
/// - **Time** is best told by the place itself. If each process reads its own clock, they have to agree
///   within a second: so far a clock that is behind the last write is taken to stand still, and what it is
///   behind is what told waits may be too short. One that is further behind lets through up to
///   one limit more whenever it comes after another.
pub trait Items: fmt::Debug + Send + Sync + 'static {
    /// Changes the items of these [names](Change::names) in one step: reads them, all at one moment;
    /// [applies](Change::apply) the change; and makes all of its [writes](Changed::writes), unless one of
    /// the items has changed since it was read. Then nothing is written, and it begins anew. What the
    /// last application returned is the answer.
    ///
    /// Without writes there is nothing more to do: the answer is right if all items were read at one
    /// moment.
    ///
    /// # Errors
    ///
    /// When the items cannot be read or written. If it is not known whether they were written, do not
    /// begin anew: the request may have been charged.
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>>;

    /// How many items one update can change; as many as there are, unless it says otherwise.
    ///
    /// If it is 1, requests whose policies count different keys cannot be decided, since they could not
    /// be charged all or nothing: the answer is an
    /// [`Unsupported`](crate::error::StoreErrorKind::Unsupported) error.
    fn at_once(&self) -> usize {
        usize::MAX
    }
}

impl<I: Items + ?Sized> Items for Arc<I> {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        (**self).update(change)
    }

    fn at_once(&self) -> usize {
        (**self).at_once()
    }
}

/// Keeps state in a place that several processes share, every algorithm in any place that implements
/// [`Items`].
///
/// A state belongs to the policy's name, its algorithm and its period; of a policy with another limit it
/// is the same. So does a limit of the key's own. What is blocked is so by the policy's name alone. Whichever limiter, layer or process
/// has a policy of that name shares it: give those that count apart names of their own.
///
/// # Secrets
///
/// Names show keys, as [`KeyName`](crate::key::KeyName) says. Bearer tokens, cookies and what else is
/// [hashed](crate::key::Secret) show a hash, which is the same in all processes if they were given one
/// secret. Without one, each process takes a secret of its own and counts apart:
///
/// ```
/// # #[cfg(feature = "http")] {
/// use tower_ratelimit::key::{self, Secret};
///
/// # let configured = "b2f0e6f2c6a44f6db4f3a1f9d7c0a5e8";
/// let key = key::bearer_token().hashed(&Secret::new(configured)?);
/// # }
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
/// # While it is away
///
/// Each policy then does what its [`on_store_failure`](crate::Policy::on_store_failure) says, and the log
/// tells when the place goes away and when it is back. [`nodes`](Self::nodes), [`deadline`](Self::deadline) and
/// [`named`](Self::named) are the options of that; see
/// [`Store::availability`](crate::store::Store::availability).
pub struct SharedStore<I> {
    items: Arc<I>,
    availability: Availability,
}

impl<I: Items> SharedStore<I> {
    /// A store that keeps its state there. Clones share it.
    pub fn new(items: I) -> Self {
        Self {
            items: Arc::new(items),
            availability: Availability::new(),
        }
    }

    /// Sets how many nodes share the store: see [`Availability::nodes`].
    pub fn nodes(self, nodes: u32) -> Self {
        let availability = self.availability.nodes(nodes);
        Self {
            availability,
            ..self
        }
    }

    /// Sets how long a call may take, one second by default: see [`Availability::deadline`].
    pub fn deadline(self, deadline: Duration) -> Self {
        let availability = self.availability.deadline(deadline);
        Self {
            availability,
            ..self
        }
    }

    /// Sets for how long denials are remembered, not at all by default: see [`Availability::remember_denials_for`].
    pub fn remember_denials_for(self, longest: Duration) -> Self {
        let availability = self.availability.remember_denials_for(longest);
        Self {
            availability,
            ..self
        }
    }

    /// Sets what the log calls the store: see [`Availability::named`].
    pub fn named(self, name: impl Into<String>) -> Self {
        let availability = self.availability.named(name);
        Self {
            availability,
            ..self
        }
    }
}

impl<I: Items> Store for SharedStore<I> {
    type Ledger = SharedLedger<I>;

    fn is_shared(&self) -> bool {
        true
    }

    fn counts_refusals(&self) -> bool {
        true
    }

    fn availability(&self) -> Option<Availability> {
        Some(self.availability.clone())
    }

    fn open(&self, policies: &[Policy]) -> Result<SharedLedger<I>, ConfigError> {
        check_names(&policies.iter().map(Policy::name))?;
        Ok(SharedLedger::new(Arc::clone(&self.items), policies))
    }
}

impl<I> Clone for SharedStore<I> {
    fn clone(&self) -> Self {
        Self {
            items: Arc::clone(&self.items),
            availability: self.availability.clone(),
        }
    }
}

impl<I: fmt::Debug> fmt::Debug for SharedStore<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedStore").field(&self.items).finish()
    }
}
