use super::page_snapshot::{Ask, Changed, Counted, Known, NoRoom, PageSnapshot};
use super::prepared::{RuleSlot, Under};
use super::seqlock::Lock;
use super::timed::{Full, Span};
use crate::algorithm::{Algorithm, State};
use crate::clock::{Clock, Micros};
use crate::decision::{Outcome, Outcomes};
pub(super) use crate::store::{Amendment, Wanted};

/// The state of all keys under one policy, however it is kept.
///
/// This is the fast path, about keys on a page at rest. `limit` is the limit of a request, if it is not that of the counter.
pub(super) trait Counter: Send + Sync + 'static {
    /// Decides on a request without a limit of its own that concerns no other policy, and tells of it if that is
    /// wanted; `None` if there is more to it than usual. `now` is what the clock has just told.
    fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool>;

    /// Decides on such a request about a key that is new. If it is not, or there is more to it than usual, returns where
    /// the key is counted, as far as that is known.
    fn decide_new_at_once(
        &self,
        _ask: Ask,
        _now: Micros,
        _told: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted> {
        Err(Counted::Apart)
    }

    /// Decides on a request as [`decide_at_once`](Self::decide_at_once) does, under a limit that the request brings.
    fn decide_at_once_under(
        &self,
        limit: Under<'_>,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool>;

    /// Looks a key up that stands where it is looked for first, at rest, and asks whether it may be charged; `None`
    /// if there is more to it than usual.
    fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>>;

    /// Looks a key up as [`look_up`](Self::look_up) does, under a limit that the request brings.
    fn look_up_under(&self, limit: Under<'_>, ask: Ask, now: Micros) -> Option<Known<'_>>;

    /// Charges a key that was looked up. Its page is locked.
    fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    );

    /// Charges a key that was looked up under a limit that the request brings.
    fn charge_known_under(
        &self,
        limit: Under<'_>,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    );

    /// Charges a known key after the fact, under the limit of the counter. Returns whether it did; if not, there is more to
    /// it than usual.
    fn settle_at_once(&self, _ask: Ask, _clock: &dyn Clock) -> bool {
        false
    }

    /// Prepares a limit that requests bring; `None` if there is no room for it, or nothing to prepare yet.
    fn prepare(&self, limit: &Algorithm) -> Option<RuleSlot>;

    /// The general path.
    fn general(&self) -> &dyn General;
}

/// The general path of a counter: what the fast path leaves. It is compiled once for all counters
/// whose states fit one word.
pub(super) trait General: Send + Sync + 'static {
    /// Decides on any request that concerns no other policy. `asked` says where its key is
    /// counted, as far as that is known.
    fn decide_in_the_end(
        &self,
        asked: (Ask, Counted),
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> bool;

    /// The last moment that the table can hold; later ones are taken for it.
    fn until(&self) -> Micros;

    /// The table in which keys are looked at first.
    fn tier(&self) -> &dyn Tier;

    /// Looks at a key's page. What is read of it afterwards holds as of this moment.
    fn snapshot(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot);

    /// Locks a key's page first, however long that takes, and looks at it.
    fn snapshot_and_lock(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot, Lock<'_>);

    /// Changes what is kept of a key, if anything is.
    fn amend(&self, ask: Ask, limit: Option<&Algorithm>, clock: &dyn Clock, amendment: Amendment);

    /// Charges a key after the fact, whether there is room under its limit or not.
    fn settle(&self, ask: Ask, limit: Option<&Algorithm>, clock: &dyn Clock);

    /// Gives a key an override from now on, for so long.
    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full>;

    /// Ends the override of a key, if it has one.
    fn end_override(&self, fingerprint: u64, clock: &dyn Clock);

    /// The overrides that have not ended.
    fn each_override(&self, now: Micros) -> Vec<(u64, Span<Algorithm>)>;

    /// How full it is.
    fn fill(&self) -> Fill;

    /// Tells each key that is not as good as new, by its fingerprint, and its state.
    fn each_key(&self, now: Micros, tell: &mut dyn FnMut(u64, State));

    /// Puts keys into a table that has none, as far as there is room. Tells how many there are then,
    /// and for how many there was none.
    fn restore(&self, keys: Vec<(u64, State)>, now: Micros) -> (usize, usize);
}

/// The table in which a key was looked at.
pub(super) trait Tier: Send + Sync {
    /// Whether the key may be charged.
    fn allows(&self, snapshot: &PageSnapshot, ask: Ask, now: Micros) -> Result<bool, Changed>;

    /// Tells of a request that is not charged.
    fn tell(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        allowed: bool,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed>;

    /// Tells of a request as if it was charged.
    fn foretell(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed>;

    /// Locks the page, if nothing has changed since the snapshot.
    fn lock(&self, snapshot: &PageSnapshot) -> Result<Lock<'_>, Changed>;

    /// Moves what the page keeps back to now.
    fn step_back(&self, snapshot: &PageSnapshot, lock: &mut Lock<'_>, now: Micros);

    /// Makes sure that there is a place for the key, and tells whether it was made just now.
    fn place(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom>;

    /// Charges a key that has a place.
    fn charge(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        is_new: bool,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    );

    /// Notes that a newcomer that has a place is not charged, and may go.
    fn may_go(&self, snapshot: &PageSnapshot, now: Micros);

    /// Whether the key has no place, and the table none that is free.
    fn lacks_room(&self, snapshot: &PageSnapshot, ask: Ask) -> bool;

    /// Whether a newcomer finds a place, or one can be made for it. No page may be locked.
    fn has_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool;

    /// Makes room for a newcomer, if any key can go. No page may be locked.
    fn make_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool;

    /// Lets the table grow, if it has to. No page may be locked.
    fn grow(&self, now: Micros);
}

/// Decides on a request that concerns no other policy, as a ledger does.
#[cfg(all(test, not(tower_ratelimit_loom)))]
pub(super) fn decide(
    counter: &dyn Counter,
    ask: Ask,
    now: Micros,
    clock: &dyn Clock,
    mut told: Option<&mut OutcomeSink<'_>>,
) -> bool {
    if let Some(allowed) = counter.decide_at_once(ask, now, told.as_deref_mut()) {
        return allowed;
    }
    let decided = counter.decide_new_at_once(ask, now, told.as_deref_mut());
    decided.unwrap_or_else(|counted| {
        let general = counter.general();
        general.decide_in_the_end((ask, counted), None, now, clock, told)
    })
}

/// Where a policy's outcome is put, if it is wanted: in its place, since it is large to move.
#[derive(Debug)]
pub(super) struct OutcomeSink<'a> {
    pub(super) wanted: Wanted,
    pub(super) policy: usize,
    pub(super) outcomes: &'a mut Outcomes,
}

impl OutcomeSink<'_> {
    pub(super) fn put_down(&mut self, outcome: Outcome, now: Micros) {
        self.outcomes.decided_at(now);
        self.outcomes.push(self.policy, outcome);
    }
}

/// How full a table is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) keys: usize,
    pub(super) bound: usize,
    pub(super) bytes: usize,
    pub(super) evicted: u64,
    pub(super) overflowed: u64,
}

impl Fill {
    /// Adds the numbers of a table that shares the bound.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            evicted: self.evicted + other.evicted,
            overflowed: self.overflowed + other.overflowed,
            ..self
        }
    }
}

/// How often room is made for a newcomer, which others may take before it does.
pub(super) const ATTEMPTS: usize = 4;
