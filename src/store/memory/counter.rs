//! The traits between a ledger and the tables of its policies.
//!
//! The fast path is compiled for each rule and called once per decision. The general path is compiled once,
//! and may make many calls.

use super::page_snapshot::{Ask, Changed, Counted, Known, NoRoom, PageSnapshot};
use super::prepared::{LimitSource, RuleSlot};
use super::seqlock::Lock;
use super::timed::{Full, Override};
use crate::algorithm::{Algorithm, State};
use crate::clock::{Clock, Micros};
use crate::decision::{Outcome, Outcomes};
pub(super) use crate::store::{Amendment, Wanted};

/// The states of all keys under one policy, however they are kept.
///
/// This is the fast path, for keys on a page at rest. `limit` is the limit of a request, if it differs from
/// that of the counter.
pub(super) trait Counter: Send + Sync + 'static {
    /// Decides a request that has the limit of the counter and concerns no other policy, and writes its
    /// outcome if that is wanted. Returns `None` in all but the common case. `now` is what the clock has just
    /// shown.
    fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool>;

    /// Decides such a request for a key that is new. If the key is known, or the case is not the common one,
    /// returns where the key is counted, as far as that is known.
    fn decide_new_at_once(
        &self,
        _ask: Ask,
        _now: Micros,
        _told: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted> {
        Err(Counted::Apart)
    }

    /// Decides as [`decide_at_once`](Self::decide_at_once) does, under a limit that the request brings.
    fn decide_at_once_under(
        &self,
        limit: LimitSource<'_>,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool>;

    /// Finds a key in one of its first slots, on a page at rest, and checks whether it may be charged.
    /// Returns `None` in all but the common case.
    fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>>;

    /// Finds a key as [`look_up`](Self::look_up) does, under a limit that the request brings.
    fn look_up_under(&self, limit: LimitSource<'_>, ask: Ask, now: Micros) -> Option<Known<'_>>;

    /// Charges a key that was found. Its page is locked.
    fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    );

    /// Charges a key that was found under a limit that the request brings.
    fn charge_known_under(
        &self,
        limit: LimitSource<'_>,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    );

    /// Charges a known key after the fact, under the limit of the counter. Returns `false` in all but the
    /// common case.
    fn settle_at_once(&self, _ask: Ask, _clock: &dyn Clock) -> bool {
        false
    }

    /// Gives back to a known key what a request has taken, until this moment, under the limit of the counter. Returns
    /// `false` in all but the common case.
    fn take_back_at_once(&self, _ask: Ask, _until: Micros, _clock: &dyn Clock) -> bool {
        false
    }

    /// Prepares a limit that requests bring. Returns `None` if there is no room for it, or nothing to prepare
    /// yet.
    fn prepare(&self, limit: &Algorithm) -> Option<RuleSlot>;

    /// Returns the general path.
    fn general(&self) -> &dyn General;
}

/// The general path of a counter, for every case that the fast path leaves. It is compiled once for all
/// counters whose states fit one word.
pub(super) trait General: Send + Sync + 'static {
    /// Decides any request that concerns no other policy. `asked` says where its key is counted, as far as
    /// that is known.
    fn decide_in_the_end(
        &self,
        asked: (Ask, Counted),
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool;

    /// Returns the table in which a key is looked up first.
    fn tier(&self) -> &dyn Tier;

    /// Reads the page of a key. Everything that is read of the page afterwards holds as of this moment. The request is
    /// decided `now` or later, up to the end of the table that is returned.
    fn snapshot(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        now: Micros,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot);

    /// Locks the page of a key, however long that takes, and then reads it.
    fn snapshot_and_lock(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        now: Micros,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot, Lock<'_>);

    /// Changes the state of a key, if it has one. Returns `false` if turns of a queue are not the last.
    fn amend(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        amendment: Amendment,
    ) -> bool;

    /// Charges a key after the fact, whether there is room under its limit or not.
    fn settle(&self, asked: (Ask, Counted), limit: Option<&Algorithm>, clock: &dyn Clock);

    /// Gives a key an override, from now on and for this long.
    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full>;

    /// Ends the override of a key, if it has one.
    fn end_override(&self, fingerprint: u64, clock: &dyn Clock);

    /// Returns the overrides that have not ended.
    fn each_override(&self, now: Micros) -> Vec<(u64, Override)>;

    /// Returns the end of the last override.
    fn last_override_end(&self) -> Option<Micros>;

    /// Returns how full the table is.
    fn fill(&self) -> Fill;

    /// Calls `write_outcome` with the fingerprint and the state of each key that is not as good as new.
    fn each_key(&self, now: Micros, visit: &mut dyn FnMut(u64, State));

    /// Returns after how long each key is as good as new, under any of the limits that the table has met.
    fn longest_reset(&self, now: Micros) -> Micros;
}

/// The table in which a key was looked up.
pub(super) trait Tier: Send + Sync {
    /// Returns the last moment that the table can hold.
    fn until(&self) -> Micros;

    /// Returns whether the key may be charged.
    fn allows(&self, snapshot: &PageSnapshot, ask: Ask, now: Micros) -> Result<bool, Changed>;

    /// Writes the outcome of a request that is not charged.
    fn write_outcome(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        allowed: bool,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed>;

    /// Writes the outcome that the request would have if it was charged.
    fn preview(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed>;

    /// Returns the state of the key, as of now.
    fn state(&self, snapshot: &PageSnapshot, ask: Ask, now: Micros) -> Result<State, Changed>;

    /// Locks the page, if it has not changed since the snapshot.
    fn lock(&self, snapshot: &PageSnapshot) -> Result<Lock<'_>, Changed>;

    /// Moves the states of the page back to `now`, after the clock has stepped back.
    fn step_back(&self, snapshot: &PageSnapshot, lock: &mut Lock<'_>, now: Micros);

    /// Makes sure that the key has a slot. Returns whether it is new.
    fn place(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom>;

    /// Charges a key that has a slot.
    fn charge(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        is_new: bool,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    );

    /// Notes that a newcomer with a slot is not charged, so that its slot can be reused.
    fn note_evictable(&self, snapshot: &PageSnapshot, now: Micros);

    /// Returns whether the key has no slot and the table has none to spare.
    fn lacks_room(&self, snapshot: &PageSnapshot, ask: Ask) -> bool;

    /// Returns whether a newcomer finds a slot, or could be given one. No page may be locked.
    fn has_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool;

    /// Makes room for a newcomer, if any key can be evicted. No page may be locked.
    fn make_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool;

    /// Lets the table grow, if it is time. No page may be locked.
    fn grow(&self, now: Micros);
}

/// Decides a request that concerns no other policy.
#[cfg(all(test, not(tower_ratelimit_loom)))]
pub(super) fn decide(
    counter: &dyn Counter,
    ask: Ask,
    now: Micros,
    clock: &dyn Clock,
    mut sink: Option<&mut OutcomeSink<'_>>,
) -> bool {
    if let Some(allowed) = counter.decide_at_once(ask, now, sink.as_deref_mut()) {
        return allowed;
    }
    let decided = counter.decide_new_at_once(ask, now, sink.as_deref_mut());
    decided.unwrap_or_else(|counted| {
        let general = counter.general();
        general.decide_in_the_end((ask, counted), None, now, clock, sink)
    })
}

/// Where to write the outcome of a policy, if it is wanted. An outcome is large, so it is written in place.
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

/// How often room is made for a newcomer, since another thread may take the room first.
pub(super) const ATTEMPTS: usize = 4;
