//! Where state lives.
//!
//! A [`Store`] is opened once for a list of policies. It returns a [`Ledger`], which is asked once
//! per request and answers now or later. So the store in this process never allocates or yields for
//! an answer, and the trait stays object-safe.
//!
//! [`MemoryStore`] keeps state in this process and always answers at once. [`SharedStore`] keeps it
//! in any place that several processes share and that implements [`Items`]: one atomic
//! read-modify-write.

mod memory;
#[cfg(feature = "redis")]
mod redis;
mod reply;
mod shared;
#[cfg(feature = "redis")]
mod standby;
mod verdict;

use std::fmt;
use std::sync::Arc;

pub use self::memory::{Fate, MemoryLedger, MemoryStore, Restored, Usage};
#[cfg(feature = "redis")]
pub use self::redis::{RedisLedger, RedisStore, RedisStoreBuilder};
pub use self::reply::Reply;
#[cfg(feature = "testing")]
pub(crate) use self::shared::Meanwhile;
pub use self::shared::{Change, Changed, Items, SharedLedger, SharedStore, Write};
pub use self::verdict::Verdict;
pub(crate) use self::verdict::{answered, look_through};

use crate::algorithm::{Algorithm, Limit};
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::key::Key;
use crate::policy::Policy;

/// A place where state lives.
pub trait Store {
    /// The ledger that the store opens for a list of policies.
    type Ledger: Ledger;

    /// Opens a ledger for these policies. A [`Charge`] refers to a policy by its index in this
    /// list.
    ///
    /// # Errors
    ///
    /// When the store cannot hold a policy exactly.
    fn open(&self, policies: &[Policy]) -> Result<Self::Ledger, ConfigError>;

    /// Returns whether several nodes share the state of this store. The default is `false`: the
    /// state belongs to this process.
    fn is_shared(&self) -> bool {
        false
    }
}

/// The state of all keys under one list of policies.
pub trait Ledger: fmt::Debug + Send + Sync + 'static {
    /// Decides on one request, in one step at one moment.
    ///
    /// - If every policy allows the request, each is charged. If one denies it, none is.
    /// - A [soft](Charge::is_soft) charge that does not fit is left out, and denies nothing.
    /// - The answer has an outcome for every charge, made by
    ///   [`Algorithm::step`](crate::Algorithm::step).
    /// - A cost of 0 is answered and never written.
    /// - If a charge has a [limit](Charge::limit), that limit decides in place of the policy's, unless the key
    ///   has an [override](Self::override_limit). If it is another than the policy's, the outcome has
    ///   [`Outcome::overridden`](crate::Outcome::overridden). The state of a key is the same under all limits.
    ///
    /// A store that answers later may begin only when its reply is first polled.
    ///
    /// # Errors
    ///
    /// When the store cannot decide.
    fn charge(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>>;

    /// Decides as [`charge`](Self::charge) does, without the numbers of an allowed request.
    ///
    /// Implement it if the store saves work without them.
    ///
    /// # Errors
    ///
    /// When the store cannot decide.
    fn admit(&self, charges: &[Charge]) -> Reply<Result<Verdict, StoreError>> {
        match self.charge(charges) {
            Reply::Now(answer) => Reply::Now(Verdict::of(charges, answer)),
            Reply::Later(answer) => {
                let charges = charges.to_vec();
                Reply::later(async move { Verdict::of(&charges, answer.await) })
            }
        }
    }

    /// Takes as much as there is, in one step at one moment: the largest number of units, up to the largest
    /// cost, that every policy grants. Each policy is charged that number, or the cost of its own charge if
    /// that is less; a [soft](Charge::is_soft) charge limits nothing, and is left out where it does not fit.
    ///
    /// Returns the number of units, and the outcomes of a [`charge`](Self::charge) of that many. Where
    /// nothing is to be had, that is 0, and the outcomes are those of one unit, which is denied.
    ///
    /// # Errors
    ///
    /// When the store cannot decide. Unless a store says otherwise, it does not know how to.
    fn take_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Tells what [`charge`](Self::charge) would tell of these charges, and changes nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot tell. By default it is not supported.
    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Gives back these units to each key under its policy, the latest first, and at most the units
    /// in use: see [`Algorithm::refund`](crate::Algorithm::refund).
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether they were given back. By default it is not supported.
    fn refund(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Gives back what a request has [taken](Taken) that is refused after all, unless the store's clock
    /// has reached the end of it: what counts then was charged by others.
    ///
    /// Unless a store says otherwise, it is [refunded](Self::refund) at any time.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it was given back.
    fn take_back(&self, taken: &Taken) -> Reply<Result<(), StoreError>> {
        self.refund(&[taken.charge])
    }

    /// Charges each key this much under its policy, whether there is room for it or not: see
    /// [`Algorithm::settle`](crate::Algorithm::settle). It denies nothing, and a soft charge is made
    /// like any other.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether they were charged. By default it is not supported.
    fn settle(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Makes each key as good as new under its policy, whatever the cost.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether the keys were reset. By default it is not supported.
    fn reset(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Blocks each key under its policy for this long from now on, whatever the cost.
    ///
    /// Until then every charge of the key is denied, a soft charge and a charge of cost 0 too, and
    /// its outcome has [`Outcome::blocked_for`](crate::Outcome::blocked_for). A key that is blocked
    /// for longer stays blocked for longer.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether the keys are blocked. By default it is not supported.
    fn block(&self, charges: &[Charge], length: Micros) -> Reply<Result<(), StoreError>> {
        let _ = (charges, length);
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Ends the block of each key under its policy, if there is one.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether the blocks have ended. By default it is not supported.
    fn unblock(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Gives the key of this charge another limit for a time, in place of any override that it has.
    ///
    /// The limit has the kind and the period of the policy. What was used stays used: the state does
    /// not change, but for the debt of a bucket, which drains under the limit before until this moment.
    /// Meanwhile the outcomes of the key have [`Outcome::overridden`](crate::Outcome::overridden).
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether the key has the override, and when it has no room for it.
    /// By default it is not supported.
    fn override_limit(
        &self,
        charge: &Charge,
        limit: &Algorithm,
        length: Micros,
    ) -> Reply<Result<(), StoreError>> {
        let _ = (charge, limit, length);
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Ends the override of each key under its policy, if there is one. The debt of a bucket drains under
    /// the override until this moment.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether the overrides have ended. By default it is not supported.
    fn end_override(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Gives turns of a [`LeakyQueue`](crate::LeakyQueue) back: as many as the charge costs, of which the first
    /// begins at `departure`, rounded up to a microsecond or to the next. Requests have gone away, and those
    /// behind them have moved up, so that nothing takes these turns.
    ///
    /// Only the last turns can be given back. The answer is `false` if a request of another process has come
    /// behind them: then they are kept, and the next request of this process takes them. Unless a store says
    /// otherwise, it takes nothing back.
    ///
    /// # Errors
    ///
    /// When the store cannot tell; then they pass unused.
    fn give_back(&self, charge: &Charge, departure: Micros) -> Reply<Result<bool, StoreError>> {
        let _ = (charge, departure);
        Reply::Now(Ok(false))
    }

    /// The clock by which requests wait for their turn, if a test moves it: see
    /// [`Clock::sleep_until`]. By default, they wait by tokio's timers.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }
}

/// What one policy has charged one request, and until when that can be given back.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    charge: Charge,
    until: Micros,
    is_degraded: bool,
}

impl Taken {
    /// This charge, which was made under this algorithm and answered with these outcomes.
    pub fn of(charge: &Charge, algorithm: &Algorithm, outcomes: &Outcomes) -> Self {
        let outcome = outcomes.iter().find(|(policy, _)| *policy == charge.policy);
        let reset = outcome.map_or(Micros::ZERO, |(_, outcome)| outcome.reset_micros());
        Self {
            charge: *charge,
            until: algorithm.refundable_until(outcomes.at(), reset),
            is_degraded: outcomes.is_degraded(),
        }
    }

    /// What was charged.
    pub fn charge(&self) -> &Charge {
        &self.charge
    }

    /// The end of the window in which it was charged, or the moment at which a bucket has drained, by the
    /// clock of the store that has charged it.
    pub fn until(&self) -> Micros {
        self.until
    }

    /// Whether it was charged in this process, because the store was away.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }
}

/// One policy, key and cost of a request.
///
/// A list of charges has each policy at most once.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub(crate) policy: usize,
    pub(crate) key: Key,
    pub(crate) cost: u32,
    pub(crate) is_soft: bool,
    pub(crate) limit: Option<Limit>,
}

impl Charge {
    /// Makes a charge of these units to this key, under the policy at this index.
    pub fn new(policy: usize, key: Key, cost: u32) -> Self {
        Self {
            policy,
            key,
            cost,
            is_soft: false,
            limit: None,
        }
    }

    /// Returns the same charge under this limit, in place of the limit of the policy.
    pub fn under(self, limit: Limit) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// Returns the same charge, made soft: if it does not fit, it is left out, and the other
    /// charges are made without it.
    pub fn soft(self) -> Self {
        Self {
            is_soft: true,
            ..self
        }
    }

    /// Returns the index of the policy in the list that the ledger was opened with.
    pub fn policy(&self) -> usize {
        self.policy
    }

    /// Returns the key.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the cost in units.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Returns the limit that holds for it; `None` if it is the limit of the policy.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Returns whether it is [soft](Self::soft).
    pub fn is_soft(&self) -> bool {
        self.is_soft
    }
}
