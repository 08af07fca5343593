//! The two tables of a policy whose states fit a word under its own limit, and take three words once a
//! request brings another limit, or the moments are too late for a word.
//!
//! This is the general path of such a policy, whatever its rule. `one_word.rs` has the fast path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cell::{Word, Words};
use super::counter::{Amendment, Counter, Fill, General, OutcomeSink, Tier};
use super::page_snapshot::{Ask, Counted, PageSnapshot};
use super::seqlock::Lock;
use super::table::{Settled, Table};
use super::timed::{Full, Override};
use crate::algorithm::{Algorithm, AnyPacked, AnyRule, Pack, State};
use crate::clock::{Clock, Micros};

type Packed = Table<AnyPacked, Word>;
type Wide = Table<AnyRule, Words>;

/// A packed table, and the wide table to which its pages move.
///
/// The wide table begins when a request first brings another limit than that of the policy, or comes later than a word
/// can hold: in the year 2540 for some policies, in 3058 for a calendar. The page of that request moves at once. The others
/// follow: each request that cannot be decided at once moves some. A key is in one of the two tables, and both share one
/// bound.
pub(super) struct Tiers {
    packed: Packed,
    algorithm: Algorithm,
    wide: OnceLock<Box<Wide>>,
    /// The page that moves next.
    next: AtomicUsize,
}

/// The number of pages that one request moves, beside its own.
const AT_ONCE: usize = 2;

/// The same when the tables are full: a newcomer then needs a slot that a key leaves in the wide table.
const AT_ONCE_IF_FULL: usize = 256;

impl Tiers {
    pub(super) fn new(rule: &impl Pack, bound: usize, algorithm: Algorithm) -> Self {
        let packed = Table::new(AnyPacked::new(rule), rule.packs_until(), bound);
        Self {
            packed: packed.tidied_by(rule),
            algorithm,
            wide: OnceLock::new(),
            next: AtomicUsize::new(0),
        }
    }

    /// Returns the wide table, to which the page of this key has moved.
    #[cold]
    fn wide_for(&self, fingerprint: u64) -> &Wide {
        let wide = self.wide.get_or_init(|| {
            let rule = AnyRule::new(self.algorithm);
            let end = Micros::new(u64::MAX);
            let wide = Box::new(Table::sharing(rule, end, self.packed.budget()));
            wide.note_limit(&self.algorithm);
            // There is only one entry that newcomers share at any time.
            self.packed.retire_overflow(&mut adopt_into(&wide));
            wide
        });
        self.packed.retire(fingerprint, &mut adopt_into(wide));
        self.move_some(wide);
        wide
    }

    fn move_some(&self, wide: &Wide) {
        let most = if self.packed.is_full() {
            AT_ONCE_IF_FULL
        } else {
            AT_ONCE
        };
        for _ in 0..most {
            let pages = self.packed.pages();
            let next = |next: usize| (next < pages).then_some(next + 1);
            let turn = self
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            let Ok(index) = turn else { break };
            self.packed.retire_page(index, &mut adopt_into(wide));
        }
    }

    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    #[inline]
    pub(super) fn packed(&self) -> &Packed {
        &self.packed
    }

    /// Returns the wide table, if any request has brought another limit.
    #[inline]
    pub(super) fn wide(&self) -> Option<&Wide> {
        self.wide.get().map(Box::as_ref)
    }

    /// Returns the limit of a request, if it differs from that of the policy.
    fn other<'a>(&self, limit: Option<&'a Algorithm>) -> Option<&'a Algorithm> {
        limit.filter(|limit| **limit != self.algorithm)
    }

    /// Returns whether the packed table serves a request with this limit at this moment, if the page of its key has not
    /// moved.
    fn is_for_packed(&self, limit: Option<&Algorithm>, now: Micros) -> bool {
        limit.is_none() && now <= self.packed.until()
    }
}

fn adopt_into(wide: &Wide) -> impl FnMut(u64, State, Micros) {
    |fingerprint, state, latest| wide.adopt(fingerprint, state, latest)
}

impl General for Tiers {
    fn decide_in_the_end(
        &self,
        (ask, counted): (Ask, Counted),
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let limit = self.other(limit);
        if limit.is_none() {
            // A key that is found here has moved here.
            if let Some(wide) = self.wide()
                && let Some(allowed) = wide.decide_at_once(ask, now, sink.as_deref_mut())
            {
                return allowed;
            }
        }
        if self.is_for_packed(limit, now) {
            let (asked, its) = ((ask, counted), sink.as_deref_mut());
            let decided = self.packed.decide_in_the_end(asked, None, clock, now, its);
            if let Some(allowed) = decided {
                return allowed;
            }
        }
        let wide = self.wide_for(ask.fingerprint);
        let asked = (ask, Counted::Apart);
        General::decide_in_the_end(wide, asked, limit, now, clock, sink)
    }

    fn tier(&self) -> &dyn Tier {
        &self.packed
    }

    fn snapshot(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        now: Micros,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot) {
        let limit = self.other(limit);
        if self.is_for_packed(limit, now)
            && let Some(snapshot) = self.packed.look_at(ask, None, counted, clock)
        {
            return (&self.packed, snapshot);
        }
        let wide = self.wide_for(ask.fingerprint);
        General::snapshot(wide, ask, limit, counted, now, clock)
    }

    fn snapshot_and_lock(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        now: Micros,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot, Lock<'_>) {
        let limit = self.other(limit);
        if self.is_for_packed(limit, now)
            && let Some((snapshot, lock)) = self.packed.lock_and_look_at(ask, None, counted, clock)
        {
            return (&self.packed, snapshot, lock);
        }
        let wide = self.wide_for(ask.fingerprint);
        General::snapshot_and_lock(wide, ask, limit, counted, now, clock)
    }

    fn amend(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        amendment: Amendment,
    ) -> bool {
        let limit = self.other(limit);
        if self.is_for_packed(limit, clock.now())
            && let Some(is_done) = self.packed.amend(ask, None, clock, amendment)
        {
            return is_done;
        }
        General::amend(self.wide_for(ask.fingerprint), ask, limit, clock, amendment)
    }

    fn settle(&self, asked: (Ask, Counted), limit: Option<&Algorithm>, clock: &dyn Clock) {
        let limit = self.other(limit);
        if self.is_for_packed(limit, clock.now())
            && self.packed.settle(asked, None, clock) == Settled::Done
        {
            return;
        }
        General::settle(self.wide_for(asked.0.fingerprint), asked, limit, clock);
    }

    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        let wide = self.wide_for(fingerprint);
        General::override_limit(wide, fingerprint, limit, length, clock)
    }

    fn end_override(&self, fingerprint: u64, clock: &dyn Clock) {
        if let Some(wide) = self.wide() {
            General::end_override(wide, fingerprint, clock);
        }
    }

    fn each_override(&self, now: Micros) -> Vec<(u64, Override)> {
        let wide = self.wide();
        wide.map_or_else(Vec::new, |wide| wide.each_override(now))
    }

    fn last_override_end(&self) -> Option<Micros> {
        self.wide()?.last_override_end()
    }

    fn fill(&self) -> Fill {
        let packed = self.packed.fill();
        let wide = self.wide();
        wide.map_or(packed, |wide| packed.with(wide.fill()))
    }

    fn each_key(&self, now: Micros, visit: &mut dyn FnMut(u64, State)) {
        self.packed.each_key(now, visit);
        // Pages that have moved meanwhile are found here.
        if let Some(wide) = self.wide() {
            wide.each_key(now, visit);
        }
    }

    fn longest_reset(&self, now: Micros) -> Micros {
        let packed = self.packed.longest_reset(now);
        let wide = self.wide();
        wide.map_or(packed, |wide| packed.max(wide.longest_reset(now)))
    }
}
