//! Where state lives.
//!
//! A [`Store`] is opened once for a list of policies. What it returns, a [`Ledger`], is then
//! asked once per request and answers now or later.
//!
//! [`MemoryStore`] keeps state in this process and always answers at once. [`SharedStore`] keeps it in
//! any place that several processes share and that implements [`Items`]: one atomic
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

pub use self::memory::{Fate, MemoryLedger, MemoryStore, Restored, Usage};
#[cfg(feature = "redis")]
pub use self::redis::{RedisLedger, RedisStore, RedisStoreBuilder};
pub use self::reply::Reply;
#[cfg(feature = "testing")]
pub(crate) use self::shared::Meanwhile;
pub use self::shared::{Change, Changed, Items, SharedLedger, SharedStore, Write};
pub use self::verdict::Verdict;
pub(crate) use self::verdict::{answered, look_through};

use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::key::Key;
use crate::policy::Policy;

/// A place where state lives.
pub trait Store {
    /// What the store opens for a list of policies.
    type Ledger: Ledger;

    /// Makes room for these policies. A [`Charge`] names them by their place in this list.
    ///
    /// # Errors
    ///
    /// When the store cannot hold a policy exactly.
    fn open(&self, policies: &[Policy]) -> Result<Self::Ledger, ConfigError>;

    /// Whether several nodes see the same state in it. Unless a store says otherwise, it is this
    /// process's own.
    fn is_shared(&self) -> bool {
        false
    }
}

/// The state of all keys under one list of policies.
pub trait Ledger: fmt::Debug + Send + Sync + 'static {
    /// Decides on one request, in one step at one moment: if every policy allows it, each is
    /// charged; if one denies, none is. A [soft](Charge::is_soft) charge that does not fit is left
    /// out, and denies nothing. The answer holds an outcome for every charge, made by
    /// [`Algorithm::step`](crate::Algorithm::step). A cost of 0 is answered and never written.
    ///
    /// # Errors
    ///
    /// When the store cannot decide.
    fn charge(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>>;

    /// Decides as [`charge`](Self::charge) does, for those who want no numbers of a request that
    /// is allowed. A store that saves something by not counting them out says so here.
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

    /// Tells what [`charge`](Self::charge) would tell of these charges, and changes nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot tell. Unless a store says otherwise, it does not know how to.
    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Gives back so much of what each key was charged last under its policy, and at most what is
    /// used of it: see [`Algorithm::refund`](crate::Algorithm::refund).
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it was given back. Unless a store says otherwise, it does
    /// not know how to.
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
    /// When the store cannot tell whether it was charged. Unless a store says otherwise, it does not
    /// know how to.
    fn settle(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Makes each key as good as new under its policy, whatever the cost.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it is. Unless a store says otherwise, it does not know how
    /// to.
    fn reset(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Blocks each key under its policy for this long from now on, whatever the cost. Until then each
    /// charge of it is denied and told as [`Outcome::blocked_for`](crate::Outcome::blocked_for), a
    /// soft one and one of cost 0 too. A key that is blocked for longer stays so.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it is blocked. Unless a store says otherwise, it does not
    /// know how to.
    fn block(&self, charges: &[Charge], length: Micros) -> Reply<Result<(), StoreError>> {
        let _ = (charges, length);
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Ends the block of each key under its policy, if there is one.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it has ended. Unless a store says otherwise, it does not
    /// know how to.
    fn unblock(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Lets the key of this charge have another limit than its policy for so long from now on, in
    /// place of any that it has: one of the policy's kind and period. What was used stays used, now
    /// and when it ends. Meanwhile each charge of the key is told as
    /// [`Outcome::overridden`](crate::Outcome::overridden).
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it has, and when it has no room for it. Unless a store says
    /// otherwise, it does not know how to.
    fn override_limit(
        &self,
        charge: &Charge,
        limit: &Algorithm,
        length: Micros,
    ) -> Reply<Result<(), StoreError>> {
        let _ = (charge, limit, length);
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Lets the limit of each key be that of its policy again.
    ///
    /// # Errors
    ///
    /// When the store cannot tell whether it is. Unless a store says otherwise, it does not know how
    /// to.
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

    /// Whether it was charged [without the store](crate::Decision::is_degraded), which was away.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }
}

/// What one policy is asked about one request.
///
/// A list of charges names each policy at most once.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub(crate) policy: usize,
    pub(crate) key: Key,
    pub(crate) cost: u32,
    pub(crate) is_soft: bool,
}

impl Charge {
    /// Asks the policy at this place of the list whether this key may be charged this much.
    pub fn new(policy: usize, key: Key, cost: u32) -> Self {
        Self {
            policy,
            key,
            cost,
            is_soft: false,
        }
    }

    /// The same, of a policy that denies nothing: if the charge does not fit, it is left out, and
    /// the others are made as if it had not been there.
    pub fn soft(self) -> Self {
        Self {
            is_soft: true,
            ..self
        }
    }

    /// The policy, by its place in the list that the ledger was opened with.
    pub fn policy(&self) -> usize {
        self.policy
    }

    /// Who is charged.
    pub fn key(&self) -> Key {
        self.key
    }

    /// How much.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Whether it is [soft](Self::soft).
    pub fn is_soft(&self) -> bool {
        self.is_soft
    }
}
