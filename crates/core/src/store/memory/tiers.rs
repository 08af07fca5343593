//! The tables of a policy, each for one form of states, and the trait by which a backend asks them.
//!
//! The fast path is compiled for each rule and called once per decision: `one_word.rs` has that of states of one word,
//! `in_words.rs` that of three, and this file that of the others. The general path is for every case that the fast path
//! leaves. It is compiled once for each form of states, and may make many calls.

use std::iter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cell::{self, Word, Words};
use super::page_snapshot::{Counted, Known, PageSnapshot, Probe};
use super::seqlock::Lock;
use super::sink::{Fill, OutcomeSink};
use super::table::Table;
use super::timed::{Full, Override};
use crate::algorithm::{Algorithm, AnyLong, AnyPacked, AnyRule, Pack, State};
use crate::clock::{Clock, Micros};
use crate::store::Amendment;

/// The states of all keys under one policy, however they are kept.
///
/// This is the fast path, for keys on a page at rest. Where a counter knows nothing better than its tables do, they answer.
/// `limit` is the limit of a request, if it differs from that of the counter.
pub(super) trait Counter: Send + Sync + 'static {
    /// Decides a request that concerns no other policy, and writes its outcome if that is wanted. Returns
    /// `None` in all but the common case. `now` is what the clock has just shown.
    fn decide_at_once(
        &self,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool>;

    /// Decides such a request for a key that is new, under the limit of the counter. If the key is known, or the case is
    /// not the common one, returns where the key is counted, as far as that is known.
    fn decide_new_at_once(
        &self,
        _ask: Probe,
        _now: Micros,
        _sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted> {
        Err(Counted::Own)
    }

    /// Finds a key in one of its first slots, on a page at rest, and checks whether it may be charged.
    /// Returns `None` in all but the common case.
    fn look_up(&self, limit: Option<&Algorithm>, probe: Probe, now: Micros) -> Option<Known<'_>> {
        self.general().look_up(limit, probe, now)
    }

    /// Charges a key that was found. Its page is locked.
    fn charge_known(
        &self,
        limit: Option<&Algorithm>,
        known: &Known<'_>,
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        self.general()
            .charge_known(limit, known, probe, lock, now, sink);
    }

    /// Charges a known key after the fact, under the limit of the counter. Returns `false` in all but the
    /// common case.
    fn settle_at_once(&self, probe: Probe, clock: &dyn Clock) -> bool {
        self.general().settle_at_once(probe, clock)
    }

    /// Gives back to a known key what a request has taken, until this moment, under the limit of the counter. Returns
    /// `false` in all but the common case.
    fn take_back_at_once(&self, probe: Probe, until: Micros, clock: &dyn Clock) -> bool {
        self.general().take_back_at_once(probe, until, clock)
    }

    /// Returns the general path.
    fn general(&self) -> &Tiers;
}

type Packed = Table<AnyPacked, Word>;
type Wide = Table<AnyRule, Words>;
type Long = Table<AnyLong, cell::Long>;

/// The tables of a policy: a packed table and the wide table to which its pages move, or one of them, or one for states of
/// any length.
///
/// A packed table holds the states of one limit, up to a moment: the year 2540 for some policies, 3058 for a calendar. The
/// wide table begins when a request first brings another limit, or comes later than that. The page of that request moves
/// at once. The others follow: each request that cannot be decided at once moves some. A key is in one of the two tables,
/// and both share one bound. So the width need not be known when the policy is opened: a reload, another limiter or an
/// operator may give a key another limit at any time.
pub(super) struct Tiers {
    packed: Option<Packed>,
    last: Last,
    bound: usize,
    algorithm: Algorithm,
    /// The page that moves next.
    next: AtomicUsize,
}

/// The table for states under any limit, of any moment.
enum Last {
    /// Empty until the first page moves there.
    Wide(OnceLock<Box<Wide>>),
    Long(Box<Long>),
}

/// The table in which a key is looked up.
#[derive(Clone, Copy)]
pub(super) enum Tier<'a> {
    Packed(&'a Packed),
    Wide(&'a Wide),
    Long(&'a Long),
}

/// Asks a table, whatever its states.
macro_rules! ask_tier {
    ($tier:expr, $table:ident => $answer:expr) => {
        match $tier {
            Tier::Packed($table) => $answer,
            Tier::Wide($table) => $answer,
            Tier::Long($table) => $answer,
        }
    };
}
pub(super) use ask_tier;

/// Asks the last table for an answer, if there is one.
macro_rules! ask_last {
    ($tiers:expr, $table:ident => $answer:expr) => {
        match &$tiers.last {
            Last::Wide(wide) => wide.get().map(|$table| $answer),
            Last::Long($table) => Some($answer),
        }
    };
}

/// The number of pages that one request moves, beside its own.
const AT_ONCE: usize = 2;

/// The same when the tables are full: a newcomer then needs a slot that a key leaves in the wide table.
const AT_ONCE_IF_FULL: usize = 256;

const END_OF_TIME: Micros = Micros::new(u64::MAX);

impl Tiers {
    /// Creates a packed table.
    pub(super) fn packed(rule: &impl Pack, bound: usize, algorithm: Algorithm) -> Self {
        let packed = Table::new(AnyPacked::new(rule), rule.packs_until(), bound);
        let packed = Some(packed.tidied_by(rule));
        Self::of(packed, Last::Wide(OnceLock::new()), bound, algorithm)
    }

    /// Creates a table of three words for each key.
    pub(super) fn wide(bound: usize, algorithm: Algorithm) -> Self {
        let tiers = Self::of(None, Last::Wide(OnceLock::new()), bound, algorithm);
        tiers.last();
        tiers
    }

    /// Creates a table of states of any length. It is one for all such rules: a reload may give the policy hours.
    pub(super) fn long(bound: usize, algorithm: Algorithm) -> Self {
        let long = Table::new(AnyLong::new(algorithm), END_OF_TIME, bound);
        long.note_limit(&algorithm);
        Self::of(None, Last::Long(Box::new(long)), bound, algorithm)
    }

    fn of(packed: Option<Packed>, last: Last, bound: usize, algorithm: Algorithm) -> Self {
        Self {
            packed,
            last,
            bound,
            algorithm,
            next: AtomicUsize::new(0),
        }
    }

    /// Puts keys and overrides into tables that have none, as far as there is room. Returns how many keys there are then,
    /// and for how many there was no room.
    pub(super) fn restore(
        &self,
        keys: Vec<(u64, State)>,
        overrides: Vec<(u64, Override)>,
        now: Micros,
    ) -> (usize, usize) {
        ask_tier!(self.first(), table => {
            table.restore_overrides(overrides, now);
            table.restore(keys, now)
        })
    }

    /// Returns the packed table, for the fast path of its rule.
    #[inline]
    pub(super) fn packed_table(&self) -> Option<&Packed> {
        self.packed.as_ref()
    }

    /// Returns the wide table, for the fast path of its rule.
    #[inline]
    pub(super) fn wide_table(&self) -> Option<&Wide> {
        match &self.last {
            Last::Wide(wide) => wide.get().map(Box::as_ref),
            Last::Long(_) => None,
        }
    }

    /// Returns the table in which a key is looked up first.
    pub(super) fn first(&self) -> Tier<'_> {
        match &self.packed {
            Some(packed) => Tier::Packed(packed),
            None => self.last(),
        }
    }

    /// Returns the last table.
    fn last(&self) -> Tier<'_> {
        match &self.last {
            Last::Wide(wide) => Tier::Wide(wide.get_or_init(|| self.begin_wide())),
            Last::Long(long) => Tier::Long(long),
        }
    }

    /// Returns the last table, to which the page of this key has moved.
    fn last_for(&self, fingerprint: u64) -> Tier<'_> {
        let last = self.last();
        if let (Some(packed), Tier::Wide(wide)) = (&self.packed, last) {
            packed.retire(fingerprint, &mut adopt_into(wide));
            self.move_some(packed, wide);
        }
        last
    }

    /// Records a limit that requests are about to bring. Each request may then bring it any number of times.
    pub(super) fn note_limit(&self, limit: &Algorithm) {
        ask_tier!(self.last(), table => table.note_limit(limit));
    }

    #[cold]
    fn begin_wide(&self) -> Box<Wide> {
        let rule = AnyRule::new(self.algorithm);
        let wide = match &self.packed {
            Some(packed) => Table::sharing(rule, END_OF_TIME, packed.budget()),
            None => Table::new(rule, END_OF_TIME, self.bound),
        };
        wide.note_limit(&self.algorithm);
        if let Some(packed) = &self.packed {
            // There is only one entry that newcomers share at any time.
            packed.retire_overflow(&mut adopt_into(&wide));
        }
        Box::new(wide)
    }

    fn move_some(&self, packed: &Packed, wide: &Wide) {
        let most = if packed.is_full() {
            AT_ONCE_IF_FULL
        } else {
            AT_ONCE
        };
        for _ in 0..most {
            let pages = packed.pages();
            let next = |next: usize| (next < pages).then_some(next + 1);
            let turn = self
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            let Ok(index) = turn else { break };
            packed.retire_page(index, &mut adopt_into(wide));
        }
    }

    /// Asks the table of a key. A packed table is asked if it serves a request with this limit at this moment; it has no
    /// answer if the page of the key has moved, or the state does not fit.
    fn ask<'a, T>(
        &'a self,
        fingerprint: u64,
        limit: Option<&Algorithm>,
        now: Micros,
        mut ask: impl FnMut(Tier<'a>) -> Option<T>,
    ) -> T {
        if let Some(packed) = &self.packed
            && limit.is_none()
            && now <= packed.until()
            && let Some(answer) = ask(Tier::Packed(packed))
        {
            return answer;
        }
        loop {
            if let Some(answer) = ask(self.last_for(fingerprint)) {
                return answer;
            }
        }
    }

    /// Returns the tables that there are. Pages that move while the first is read are found in the second.
    fn each(&self) -> impl Iterator<Item = Tier<'_>> {
        let packed = self.packed.iter().map(Tier::Packed);
        let last = || match &self.last {
            Last::Wide(wide) => wide.get().map(|wide| Tier::Wide(wide)),
            Last::Long(long) => Some(Tier::Long(long)),
        };
        packed.chain(iter::once_with(last).flatten())
    }
}

fn adopt_into(wide: &Wide) -> impl FnMut(u64, State, Micros) {
    |fingerprint, state, latest| wide.adopt(fingerprint, state, latest)
}

/// The general path. `limit` is the limit of a request, if it differs from that of the policy.
impl Tiers {
    /// Decides any request that concerns no other policy. `counted` says where its key is counted, as far as that is known.
    pub(super) fn decide_in_the_end(
        &self,
        (probe, counted): (Probe, Counted),
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        // A key of a packed table that is found here has moved here.
        if self.packed.is_some()
            && limit.is_none()
            && let Some(allowed) = self.decide_at_once(None, probe, now, sink.as_deref_mut())
        {
            return allowed;
        }
        self.ask(probe.fingerprint, limit, now, |tier| {
            let counted = match tier {
                Tier::Packed(_) => counted,
                Tier::Wide(_) | Tier::Long(_) => Counted::Own,
            };
            let (asked, sink) = ((probe, counted), sink.as_deref_mut());
            ask_tier!(tier, table => table.decide_in_the_end(asked, limit, clock, now, sink))
        })
    }

    /// Reads the page of a key. Everything that is read of the page afterwards holds as of this moment. The request is
    /// decided `now` or later, up to the end of the table that is returned.
    pub(super) fn snapshot(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        counted: Counted,
        now: Micros,
        clock: &dyn Clock,
    ) -> (Tier<'_>, PageSnapshot) {
        self.ask(probe.fingerprint, limit, now, |tier| {
            let seen = ask_tier!(tier, table => table.look_at(probe, limit, counted, clock));
            Some((tier, seen?))
        })
    }

    /// Locks the page of a key, however long that takes, and then reads it.
    pub(super) fn snapshot_and_lock(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        counted: Counted,
        now: Micros,
        clock: &dyn Clock,
    ) -> (Tier<'_>, PageSnapshot, Lock<'_>) {
        self.ask(probe.fingerprint, limit, now, |tier| {
            let seen =
                ask_tier!(tier, table => table.lock_and_look_at(probe, limit, counted, clock));
            let (snapshot, lock) = seen?;
            Some((tier, snapshot, lock))
        })
    }

    /// Changes the state of a key, if it has one. Returns `false` if turns of a queue are not the last.
    pub(super) fn amend(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        amendment: Amendment,
    ) -> bool {
        self.ask(
            probe.fingerprint,
            limit,
            clock.now(),
            |tier| ask_tier!(tier, table => table.amend(probe, limit, clock, amendment)),
        )
    }

    /// Charges a key after the fact, whether there is room under its limit or not.
    pub(super) fn settle(
        &self,
        asked: (Probe, Counted),
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
    ) {
        self.ask(
            asked.0.fingerprint,
            limit,
            clock.now(),
            |tier| ask_tier!(tier, table => table.settle(asked, limit, clock)),
        );
    }

    /// Gives a key an override, from now on and for this long.
    pub(super) fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        let last = self.last_for(fingerprint);
        ask_tier!(last, table => table.override_limit(fingerprint, limit, length, clock))
    }

    /// Ends the override of a key, if it has one.
    pub(super) fn end_override(&self, fingerprint: u64, clock: &dyn Clock) {
        ask_last!(self, table => table.end_override(fingerprint, clock));
    }

    /// Returns the overrides that have not ended.
    pub(super) fn each_override(&self, now: Micros) -> Vec<(u64, Override)> {
        ask_last!(self, table => table.each_override(now)).unwrap_or_default()
    }

    /// Returns the end of the last override.
    pub(super) fn last_override_end(&self) -> Option<Micros> {
        ask_last!(self, table => table.last_override_end())?
    }

    /// Returns how full the tables are.
    pub(super) fn fill(&self) -> Fill {
        let fills = self
            .each()
            .map(|tier| ask_tier!(tier, table => table.fill()));
        fills.reduce(Fill::with).unwrap_or_default()
    }

    /// Calls `visit` with the fingerprint and the state of each key that is not as good as new.
    pub(super) fn each_key(&self, now: Micros, visit: &mut dyn FnMut(u64, State)) {
        for tier in self.each() {
            ask_tier!(tier, table => table.each_key(now, visit));
        }
    }

    /// Returns after how long each key is as good as new, under any of the limits that the tables have met.
    pub(super) fn longest_reset(&self, now: Micros) -> Micros {
        let resets = self
            .each()
            .map(|tier| ask_tier!(tier, table => table.longest_reset(now)));
        resets.fold(Micros::ZERO, Micros::max)
    }
}

/// The fast path of states that take more than one word.
impl Tiers {
    pub(super) fn decide_at_once(
        &self,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        ask_last!(self, table => table.decide_at_once(limit, probe, now, sink))?
    }

    pub(super) fn look_up(
        &self,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
    ) -> Option<Known<'_>> {
        let known = ask_last!(self, table => table.look_up(limit, probe, now))??;
        Some(known.widely())
    }

    pub(super) fn charge_known(
        &self,
        limit: Option<&Algorithm>,
        known: &Known<'_>,
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        ask_last!(self, table => table.charge_known(limit, known, probe, lock, now, sink));
    }

    fn settle_at_once(&self, probe: Probe, clock: &dyn Clock) -> bool {
        ask_last!(self, table => table.settle_at_once(probe, clock)).unwrap_or(false)
    }

    fn take_back_at_once(&self, probe: Probe, until: Micros, clock: &dyn Clock) -> bool {
        ask_last!(self, table => table.take_back_at_once(probe, until, clock)).unwrap_or(false)
    }
}

impl Counter for Tiers {
    fn decide_at_once(
        &self,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.decide_at_once(limit, probe, now, sink)
    }

    fn general(&self) -> &Tiers {
        self
    }
}

/// Decides a request that concerns no other policy.
#[cfg(all(test, not(tower_ratelimit_loom)))]
pub(super) fn decide(
    counter: &dyn Counter,
    probe: Probe,
    now: Micros,
    clock: &dyn Clock,
    mut sink: Option<&mut OutcomeSink<'_>>,
) -> bool {
    if let Some(allowed) = counter.decide_at_once(None, probe, now, sink.as_deref_mut()) {
        return allowed;
    }
    let decided = counter.decide_new_at_once(probe, now, sink.as_deref_mut());
    decided.unwrap_or_else(|counted| {
        let general = counter.general();
        general.decide_in_the_end((probe, counted), None, now, clock, sink)
    })
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::clock::ManualClock;

    #[test]
    fn requests_of_one_key_under_another_limit_move_all_pages() {
        let (rule, other) = (FixedWindow::per_minute(5), FixedWindow::per_minute(9));
        let tiers = Tiers::packed(&rule, 10_000, rule.into());
        let clock = ManualClock::new();
        let now = clock.now();
        for number in 1..=5_000_u64 {
            let fingerprint = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let probe = Probe {
                fingerprint,
                cost: 1,
            };
            assert!(decide(&tiers, probe, now, &clock, None));
        }
        let packed = tiers.packed_table().unwrap();
        let unmoved = || {
            let mut unmoved = 0;
            packed.each_key(now, &mut |_, _| unmoved += 1);
            unmoved
        };
        assert_eq!(unmoved(), 5_000);
        tiers.note_limit(&other.into());
        let probe = Probe {
            fingerprint: 2,
            cost: 1,
        };
        for _ in 0..packed.pages().div_ceil(AT_ONCE) {
            let asked = (probe, Counted::Own);
            tiers.decide_in_the_end(asked, Some(&other.into()), now, &clock, None);
        }
        assert_eq!(unmoved(), 0);
    }
}
