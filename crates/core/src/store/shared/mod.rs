//! A store of your own, made from one atomic read-modify-write.

mod backend;
pub(crate) mod change;
mod guarantee;
mod item;
mod others;
mod own;
mod part;
mod renewal;
mod rule;
mod slots;
mod tenants;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::backend::SharedBackend;
pub use self::change::{Change, Changed, Write};

use super::{Availability, NodeCount, Payers, Reply, Store};
use crate::algorithm::Algorithm;
use crate::error::{ConfigError, StoreError};
use crate::policy::{Fair, Policy, check_names};
use crate::store::sealed::Sealed;

/// A remote place that several processes share and that keeps items: a value under a name, until it expires.
/// [`SharedStore`] makes a store of it.
///
/// All state of one key is one item, whatever the policies, so a place that can change only one item at a
/// time decides all or nothing. Where the policies of one request have different keys, such as the address
/// and the user, several items are changed together.
///
/// # Implementing it
///
/// [`update`](Self::update) is the one required method. It reads the items, applies the change, and writes
/// the result if none of the items has changed since; otherwise it starts again:
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
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
/// The example `custom_store` does this with memcached, by `gets` and `cas`. A database would read and write
/// in one serializable transaction, or with `SELECT … FOR UPDATE` in the order of the names. [`Conformance`][tower_ratelimit_testing] of
/// `tower-ratelimit-testing` checks an implementation.
///
/// - **Names** are compared byte by byte: `t:Ann` is not `t:ann`. In a database, give their column a
///   binary collation.
/// - **A value** has 9 bytes, and 20 and up to 32 more for each policy of the key; a sliding log has 16 more
///   for each moment that it remembers, and sliding slots 8 for each slot. A [`Concurrency`](crate::Concurrency) has 32 more for each
///   request in flight: at most 1,024, and those whose slots were lost and taken again. A block takes 36 more, and an
///   override 52, for as long as it lasts. A policy that [guarantees](crate::Policy::guaranteed) a part of its
///   limit to the keys below takes 28 more, and 48 for each of those that has asked within the last period, of
///   which at most 256 are told apart. A policy whose limit is [divided](crate::Policy::fair) takes 68 more, and 48
///   for each tenant, of which at most 64 are told apart; the tenants of slots take 92, and 72 for each. Writing a value that is too long for the place has to fail; a
///   value that is cut short is damaged.
/// - **Expiry** saves room and decides nothing: an item that outlives its time to live is read as new. An
///   item that is forgotten before its time counts as new, and lets more through. The conformance suite asks
///   for expiry within ten seconds all the same, because a place that forgets nothing fills up.
/// - **Damage**: bytes that no store of this version writes are a
///   [`Misconfigured`](crate::error::StoreErrorKind::Misconfigured) error for this key, until it is
///   [reset](crate::Limiter::reset). Nothing overwrites them before.
/// - **Time** is best told by the place itself. If each process reads its own clock, the clocks have to agree
///   within a second: a clock that is behind the last write by up to a second is taken to stand still, and
///   waits may be too short by that much. A clock that is further behind lets through up to one limit more
///   whenever it comes after another.
///
/// [tower_ratelimit_testing]: https://docs.rs/tower-ratelimit-testing/latest/tower_ratelimit_testing/
pub trait Items: fmt::Debug + Send + Sync + 'static {
    /// Changes the items of these [names](Change::names) in one step: reads them, all at one moment;
    /// [applies](Change::apply) the change; and makes all of its [writes](Changed::writes), unless one of the
    /// items has changed since it was read. Then nothing is written, and it starts again. Returns the result
    /// of the last application.
    ///
    /// Without writes there is nothing more to do: the answer is right if all items were read at one moment.
    ///
    /// # Errors
    ///
    /// When the items cannot be read or written. If it is unknown whether they were written, do not start
    /// again: the request may have been charged.
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>>;

    /// Returns how many items one update can change. By default there is no limit.
    ///
    /// If it is 1, requests whose policies have different keys cannot be decided, since they could not be
    /// charged all or nothing: the answer is an [`Unsupported`](crate::error::StoreErrorKind::Unsupported)
    /// error. Then building a limiter or a layer with a policy that is [guaranteed](crate::Policy::guaranteed)
    /// a part of another one, or whose limit is [divided](crate::Policy::fair), fails.
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

/// Keeps state in a place that several processes share: any algorithm, in any place that implements
/// [`Items`].
///
/// A state is identified by the policy's name, its algorithm and its period, and does not depend on the
/// limit. An override is identified in the same way, and a block by the policy's name alone. All limiters,
/// layers and processes that have a policy of that name share it: give policies that count apart names of
/// their own.
///
/// # Secrets
///
/// Names show keys, as [`KeyName`](crate::key::KeyName) says. Bearer tokens, cookies and other values that
/// are [hashed](crate::key::Secret) show a hash, which is the same in all processes with the same secret.
/// Without a secret, each process generates its own and counts apart: `key::bearer_token().hashed(&secret)`.
///
/// # Runtimes
///
/// A future of [`update`](Items::update) is polled in the runtime of its request, since it may need that runtime. What has to
/// go on after the request, such as a settlement, goes on there too: let requests come from runtimes that run until the
/// process ends. The slots of requests are renewed there as well.
///
/// # Slots
///
/// A slot of a [`Concurrency`](crate::Concurrency) lasts for 15 seconds, unless [`slot_ttl`](Self::slot_ttl) sets another time, and its
/// node renews it as long as the request lasts. A key has up to 1,024 slots. See
/// [concurrency](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/concurrency/index.html#over-a-store-of-your-own).
///
/// # While it is away
///
/// While the place is away, each policy does what its [`on_store_failure`](crate::Policy::on_store_failure)
/// says, and the log reports when the place goes away and when it is back. The options are
/// [`nodes`](Self::nodes), [`deadline`](Self::deadline) and [`named`](Self::named); see
/// [`Store::availability`](crate::store::Store::availability).
pub struct SharedStore<I> {
    items: Arc<I>,
    availability: Availability,
    slot_ttl: Duration,
}

/// How long a slot lasts, unless it is set.
const SLOT_LIFE: Duration = Duration::from_secs(15);

impl<I: Items> SharedStore<I> {
    /// Creates a store that keeps its state in `items`. Clones share it.
    pub fn new(items: I) -> Self {
        Self {
            items: Arc::new(items),
            availability: Availability::new(),
            slot_ttl: SLOT_LIFE,
        }
    }

    /// Sets how many nodes share the store: see [`Availability::nodes`].
    pub fn nodes(self, nodes: impl Into<NodeCount>) -> Self {
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

    /// Sets how long a slot of a [`Concurrency`](crate::Concurrency) lasts without a renewal, from a second to an hour, and 15 seconds by
    /// default.
    ///
    /// A node renews the slots of its requests at a third of this time, one change for each item. The slots of a node that dies are free
    /// after it. When the place is away for longer, slots end while their requests go on: they are taken again when it is back, even above
    /// the limit, and the log says so ([`TRL027`](crate::diagnostics)). All nodes have to set the same time.
    pub fn slot_ttl(self, life: Duration) -> Self {
        Self {
            slot_ttl: life,
            ..self
        }
    }

    /// Sets the name of the store in the log: see [`Availability::named`].
    pub fn named(self, name: impl Into<String>) -> Self {
        let availability = self.availability.named(name);
        Self {
            availability,
            ..self
        }
    }
}

impl<I: Items> Sealed for SharedStore<I> {}

impl<I: Items> Store for SharedStore<I> {
    type Backend = SharedBackend<I>;

    fn is_shared(&self) -> bool {
        true
    }

    fn counts_refusals(&self) -> bool {
        true
    }

    fn chooses_payers(&self) -> Payers {
        if self.items.at_once() > 1 {
            Payers::OfAnyKeys
        } else {
            Payers::OfOneKey
        }
    }

    /// A shared key and a tenant of it are two items.
    fn divides_limits(&self) -> bool {
        self.items.at_once() > 1
    }

    /// The keys of a level and of the one above are two items.
    fn keeps_guarantees(&self) -> bool {
        self.items.at_once() > 1
    }

    fn availability(&self) -> Option<Availability> {
        Some(self.availability.clone())
    }

    fn open(&self, policies: &[Policy]) -> Result<SharedBackend<I>, ConfigError> {
        check_names(policies.iter().map(Policy::name))?;
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&self.slot_ttl) {
            let given = format_args!("{:?}", self.slot_ttl);
            let remedy = "give a length from a second to an hour";
            return Err(ConfigError::new("slot_ttl", given, remedy));
        }
        let of_slots = policies.iter().map(Policy::algorithm);
        let of_slots = of_slots.filter(|algorithm| algorithm.limits_concurrency());
        of_slots
            .filter_map(Algorithm::limit)
            .try_for_each(check_slots)?;
        for fair in policies.iter().filter_map(Policy::fairness) {
            check_tenants(fair)?;
        }
        let items = Arc::clone(&self.items);
        Ok(SharedBackend::new(items, policies, self.slot_ttl.into()))
    }
}

/// Rejects more slots than an item has room for.
fn check_slots(slots: u32) -> Result<(), ConfigError> {
    if slots > slots::MOST {
        let remedy = format!(
            "give at most {}, or keep the state in this process or in Redis: an item has all slots of a key, and is written whole with each \
             request",
            slots::MOST
        );
        return Err(ConfigError::new("concurrency", slots, remedy));
    }
    Ok(())
}

/// Rejects more tenants than an item has room for.
fn check_tenants(fair: &Fair) -> Result<(), ConfigError> {
    match fair.given_tenants() {
        Some(given) if given as usize > tenants::MOST => {
            let remedy = format!(
                "give at most {}, or keep the state in this process or in Redis: an item has all tenants of a shared key, and is written \
                 whole with each request",
                tenants::MOST
            );
            Err(ConfigError::new("most_tenants", given, remedy))
        }
        _ => Ok(()),
    }
}

impl<I> Clone for SharedStore<I> {
    fn clone(&self) -> Self {
        Self {
            items: Arc::clone(&self.items),
            availability: self.availability.clone(),
            slot_ttl: self.slot_ttl,
        }
    }
}

impl<I: fmt::Debug> fmt::Debug for SharedStore<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedStore").field(&self.items).finish()
    }
}
