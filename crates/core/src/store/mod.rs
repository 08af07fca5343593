//! Where state lives.
//!
//! A [`Store`] is opened once for a list of policies. It returns a [`Backend`], which decides each request,
//! now or later. So the store in this process never allocates or yields for an answer, and the trait stays
//! object-safe.
//!
//! [`MemoryStore`] keeps state in this process and always answers at once. [`SharedStore`] keeps it
//! in any place that several processes share and that implements [`Items`]: one atomic
//! read-modify-write.

pub(crate) mod allotment;
mod alternatives;
mod amendment;
pub(crate) mod charged;
pub(crate) mod denials;
mod fair;
mod guarantee;
pub(crate) mod hashed;
pub(crate) mod in_use;
pub(crate) mod memory;
pub(crate) mod outage;
pub(crate) mod outlook;
pub(crate) mod renewal;
mod reply;
pub(crate) mod sealed;
pub(crate) mod shared;
mod slot;
mod tenant_share;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;

pub use self::alternatives::Payers;
pub use self::amendment::{Amendment, Departure, Taken};
pub use self::charged::{Charged, Wanted};
pub(crate) use self::charged::{answered, check};
pub use self::memory::{MemoryBackend, MemoryStore, RestoreStatus, Restored, Usage};
pub(crate) use self::outage::Guarded;
pub use self::outage::{Availability, NodeCount};
pub(crate) use self::outlook::KeyOutlook;
pub use self::outlook::Outlook;
pub use self::reply::Reply;
use self::sealed::Sealed;
pub use self::shared::{Change, Changed, Items, SharedBackend, SharedStore, Write};
pub use self::slot::Slot;
pub use self::tenant_share::TenantShare;

use crate::algorithm::Limit;
use crate::clock::{Clock, Micros};
use crate::decision::{DenialEffect, Outcomes, WindowSecs};
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::factor::Factor;
use crate::key::Key;
use crate::observe::{KeyStats, StoreStats};
use crate::policy::{Alternative, Policy};

/// A place where state lives.
///
/// It is sealed: a store of your own implements [`Items`].
pub trait Store: Sealed {
    /// The backend that the store opens for a list of policies.
    type Backend: Backend;

    /// Opens a backend for these policies. A [`Charge`] refers to a policy by its index in this
    /// list.
    ///
    /// # Errors
    ///
    /// When the store cannot hold a policy exactly.
    fn open(&self, policies: &[Policy]) -> Result<Self::Backend, ConfigError>;

    /// Returns whether several nodes share the state of this store. The default is `false`: the
    /// state belongs to this process.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns whether its backends count refusals for the [penalties](crate::Policy::penalty) of policies,
    /// and block keys. The default is `false`: then building a limiter or a layer with a penalty is an error.
    fn counts_refusals(&self) -> bool {
        false
    }

    /// Returns whether its backends support the slots of a [`Concurrency`](crate::Concurrency): a charge takes
    /// them by its [slot](Charge::holding), and [`Amendment::Release`] gives them back. All do.
    fn holds_slots(&self) -> bool {
        true
    }

    /// Returns between which policies its backends choose the one that pays:
    /// [`first_of`](crate::limiter::LimiterBuilder::first_of). By default they do not choose: then building a limiter or a layer
    /// with such a group is an error.
    fn chooses_payers(&self) -> Payers {
        Payers::None(
            "keep the state in this process, by a `MemoryStore`: this store does not choose who pays",
        )
    }

    /// Returns whether its backends divide limits among tenants, rates, places of queues and the slots that they hold: [`Policy::fair`](crate::Policy::fair).
    /// The default is `false`: then building a limiter or a layer with such a policy is an error.
    fn divides_limits(&self) -> bool {
        false
    }

    /// Returns whether its backends keep what a level of a tree is guaranteed: [`Policy::guaranteed`](crate::Policy::guaranteed). The
    /// default is `false`: then building a limiter or a layer with such a policy is an error.
    fn keeps_guarantees(&self) -> bool {
        false
    }

    /// Returns what a node needs to go on while this store is away, or `None` if the store is never away or
    /// handles that by itself.
    ///
    /// A limiter or a layer over the store then obeys
    /// [`Policy::on_store_failure`](crate::Policy::on_store_failure). A call has failed when it ends with an
    /// error, except for [`Unsupported`](StoreErrorKind::Unsupported) and [`Full`](StoreErrorKind::Full), or
    /// when it takes longer than its [deadline](Availability::deadline). The request is then decided without
    /// the store. After five failures in a row the store gets no requests until it answers a probe, which
    /// blocks a key of its own for a second, or charges it one unit if the store cannot block.
    ///
    /// By default, a store that is [shared](Self::is_shared) has the [defaults of
    /// `Availability`](Availability#defaults), for each limiter by itself, and any other store has none.
    fn availability(&self) -> Option<Availability> {
        self.is_shared().then(Availability::new)
    }
}

/// The reason of an error that concerns one key, rather than the store.
// For `tower-ratelimit-redis`.
#[doc(hidden)]
pub const DAMAGED: &str = "damaged state";

/// The state of all keys under one list of policies.
///
/// It is sealed, as [`Store`] is.
pub trait Backend: Sealed + fmt::Debug + Send + Sync + 'static {
    /// Decides one request, in one step at one moment.
    ///
    /// - If every policy allows the request, each is charged. If one denies it, none is charged.
    /// - A [soft](Charge::is_soft) charge that does not fit is left out, and denies nothing. A charge in
    ///   [shadow](Charge::is_shadow) is left out as well if its key is blocked.
    /// - There is an outcome for every charge, made by [`Algorithm::step`](crate::Algorithm::step). A store
    ///   that answers now [pushes](Outcomes::push) them to `outcomes`, which are empty, and may leave out
    ///   outcomes that are not wanted.
    /// - Of the charges of a group, of which one is to be made, the first is charged that has room, and the others have
    ///   no outcome. If none has room, the request is denied, and the outcome is that of the shortest wait.
    /// - A cost of 0 is answered and never written.
    /// - If a charge has a [limit](Charge::limit), that limit decides in place of the policy's, unless the key
    ///   has an [override](Amendment::Override). The state of a key is the same under all limits.
    ///
    /// A store that answers later may begin only when its reply is first polled.
    ///
    /// # Errors
    ///
    /// When the store cannot decide.
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged;

    /// Decides as [`charge`](Self::charge) does, and returns all outcomes by value.
    ///
    /// # Errors
    ///
    /// When the store cannot decide.
    fn decide(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let charged = self.charge(charges, Wanted::Everything, &mut outcomes);
        charged.with(outcomes)
    }

    /// Takes as many units as there are, in one step at one moment: the largest number, up to the largest
    /// cost, that every policy grants. Each policy is charged that number, or the cost of its own charge if
    /// that is less. A [soft](Charge::is_soft) charge limits nothing, and is left out where it does not fit.
    ///
    /// Returns the number of units, and the outcomes of a [`charge`](Self::charge) of that many. If there are
    /// none, the number is 0, and the outcomes are those of one unit, which is denied.
    ///
    /// # Errors
    ///
    /// When the store cannot decide. By default it is not supported.
    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Returns the outcomes that [`charge`](Self::charge) would have for these charges, and changes nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot answer. By default it is not supported.
    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let _ = charges;
        Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported)))
    }

    /// Returns the outcomes of a [`peek`](Self::peek), with the states from which a layer computes how long a request
    /// [waits](crate::Policy::wait_up_to) behind others, and changes nothing.
    ///
    /// By default there are no states. A layer then computes as if all that a key has used had been charged just now,
    /// so waits behind others may be told longer than they are.
    ///
    /// # Errors
    ///
    /// When the store cannot answer.
    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        self.peek(charges).map(|peeked| peeked.map(Outlook::from))
    }

    /// Returns how many refusals of the key count now towards the [penalty](crate::Policy::penalty) of the
    /// policy, and changes nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot answer. The default is 0.
    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let _ = charge;
        Reply::Now(Ok(0))
    }

    /// Returns how many units of the key nodes have leased under the policy, without the units that the store
    /// knows to be spent or given back. It changes nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot answer. The default is 0.
    fn leased(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let _ = charge;
        Reply::Now(Ok(0))
    }

    /// Returns the part that the tenant of the key has now of a limit that is [divided](crate::Policy::fair), and makes nobody
    /// active. `None` if the limit is not divided, or if the store does not tell.
    ///
    /// # Errors
    ///
    /// When the store cannot answer. The default is `None`.
    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        let _ = charge;
        Reply::Now(Ok(None))
    }

    /// Changes the state of each key under its policy, without a decision.
    ///
    /// Returns whether a key was blocked that is [not blocked](Amendment::Unblock) any more, or whether turns of
    /// a queue could be [given back](Amendment::GiveBack), and `true` for any other amendment.
    ///
    /// # Errors
    ///
    /// When it is unknown whether all of it was done, and when the store has no room for another override. By
    /// default no amendment is supported, and no turn is given back.
    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        let _ = charges;
        Reply::Now(match amendment {
            Amendment::GiveBack(_) => Ok(false),
            _ => Err(StoreError::new(StoreErrorKind::Unsupported)),
        })
    }

    /// Forgets the slots that these charges hold in the store, without a word to it, and returns the charges that have held any. There
    /// the slots end by themselves, unless they are [released](Amendment::Release). By default any of the charges may hold some.
    fn forget(&self, charges: &[Charge]) -> Vec<Charge> {
        charges.to_vec()
    }

    /// Returns the counts of the store, for a [snapshot](crate::Limiter::snapshot). By default they say only
    /// that the store is up.
    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    /// Returns how many keys the store keeps for a policy, by its index. The default is `None`. It must not
    /// take longer when the store keeps more keys.
    fn keys(&self, policy: usize) -> Option<KeyStats> {
        let _ = policy;
        None
    }

    /// Returns for how long, at most, what the backend alone has of a policy still counts, by the policy's index: what a key
    /// has used, under whatever limit, a block, an [override](Amendment::Override). The default is 0: then nothing is lost
    /// with the backend. It may look at all keys.
    fn holds_for(&self, policy: usize) -> Duration {
        let _ = policy;
        Duration::ZERO
    }

    /// Returns the clock by which requests wait for their turn, if a test moves it: see
    /// [`Clock::sleep_until`]. By default, they wait by tokio's timers.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// Returns the runtime in which the store's answers go on after their request, such as that to a settlement. It should
    /// be one that never stops. By default, they go on in a runtime of the request.
    fn runtime(&self) -> Option<Handle> {
        None
    }
}

/// One policy, key and cost of a request.
///
/// A list of charges has each policy at most once.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub policy: usize,
    pub key: Key,
    pub cost: u32,
    pub is_soft: bool,
    /// If set, `is_soft` is set too.
    pub is_shadow: bool,
    pub limit: Option<Limit>,
    /// The rule that gave the limit, by its index among those of the limiter.
    pub rule: u32,
    /// The period of the limit, if it is not that of the policy and not 0, in seconds rounded up.
    pub window: Option<WindowSecs>,
    /// The factor by which the cost was priced.
    pub factor: Factor,
    /// How many units of the limit's size are room for the price.
    pub beyond: u32,
    /// How much lower the limit is than that of other requests, because the request is of low priority.
    pub leaves: u32,
    /// The slot by which the request holds slots, under a policy on concurrency.
    pub slot: Option<Slot>,
    /// Whether the request holds the charge to its end, and settles it.
    pub is_reserved: bool,
    /// The weight of the tenant, under a limit that is divided; 0 stands for 1.
    pub weight: u8,
    /// The place among charges of which one is made; `None` if the charge is always made.
    pub alternative: Option<Alternative>,
}

// A larger one would be copied by a call, once for each step that passes it on.
const _: () = assert!(size_of::<Charge>() <= 128);

/// The charges of a request, up to eight without an allocation.
pub type Charges = SmallVec<[Charge; 8]>;

impl Charge {
    /// Makes a charge of these units to this key, under the policy at this index.
    pub fn new(policy: usize, key: Key, cost: u32) -> Self {
        Self {
            policy,
            key,
            cost,
            is_soft: false,
            is_shadow: false,
            limit: None,
            rule: 0,
            window: None,
            factor: Factor::ONE,
            beyond: 0,
            leaves: 0,
            slot: None,
            is_reserved: false,
            weight: 0,
            alternative: None,
        }
    }

    /// Returns the same charge of no units, which only a block denies.
    #[must_use]
    pub fn at_no_cost(self) -> Self {
        Self { cost: 0, ..self }
    }

    /// Returns the same charge under this limit, in place of the limit of the policy.
    pub fn under(self, limit: Limit) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// Returns the same charge, made soft: if it does not fit, it is left out, and the other charges are
    /// made.
    pub fn soft(self) -> Self {
        Self {
            is_soft: true,
            ..self
        }
    }

    /// Returns the same charge, which takes slots of a [`Concurrency`](crate::Concurrency) if the request is
    /// allowed, and holds them under this identity until they are [released](Amendment::Release).
    pub fn holding(self, slot: Slot) -> Self {
        Self {
            slot: Some(slot),
            ..self
        }
    }

    /// Returns the identity under which the request holds slots.
    pub fn slot(&self) -> Option<Slot> {
        self.slot
    }

    /// Returns the same charge, made [soft](Self::soft), which a block of the key does not deny either. It is
    /// then left out, and the other charges are made.
    pub fn shadow(self) -> Self {
        Self {
            is_shadow: true,
            ..self.soft()
        }
    }

    /// Returns the index of the policy in the list that the backend was opened with.
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

    /// Returns whether a rule has set the limit.
    #[inline]
    pub(crate) fn is_ruled(&self) -> bool {
        self.rule > 0 || self.limit.is_some()
    }

    /// Returns whether its outcome says more than the store knows.
    #[inline]
    pub(crate) fn marks_its_outcome(&self) -> bool {
        self.is_soft || self.rule > 0 || self.limit.is_some()
    }

    /// Returns the limit of the charge, or `None` if it has that of the policy.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Returns whether the charge is [soft](Self::soft).
    pub fn is_soft(&self) -> bool {
        self.is_soft
    }

    /// Returns whether the charge takes units of a rate, and no slots that are held.
    pub(crate) fn is_of_rate(&self) -> bool {
        self.slot.is_none()
    }

    /// Returns whether the charge is in [shadow](Self::shadow).
    pub fn is_shadow(&self) -> bool {
        self.is_shadow
    }

    /// Returns whether responses may leave the charge out: it is in [shadow](Self::shadow), or another policy may pay in place of its own.
    pub fn may_be_untold(&self) -> bool {
        self.is_shadow || self.alternative.is_some()
    }

    /// Returns how soft the charge is, as the scripts encode it.
    pub fn softness(&self) -> u8 {
        match self.alternative {
            None => u8::from(self.is_soft) + u8::from(self.is_shadow),
            Some(its) if !its.is_optional() => 3,
            Some(_) => 4,
        }
    }

    /// Returns what a denial of the charge does to the request.
    pub fn effect(&self) -> DenialEffect {
        match (self.is_shadow, self.is_soft) {
            (true, _) => DenialEffect::Shadow,
            (false, true) => DenialEffect::Soft,
            (false, false) => DenialEffect::Full,
        }
    }
}
