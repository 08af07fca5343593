//! Changes of a state without a decision: refunds, resets and settlements.

use std::sync::atomic::Ordering;

use super::{Counted, NoRoom, Own, PageSnapshot, Probe, Table};
use crate::algorithm::{Algorithm, Step};
use crate::clock::{Clock, Micros};
use crate::store::Amendment;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::Page;
use crate::store::memory::seqlock::Lock;
use crate::store::memory::sink::ATTEMPTS;

/// Why a charge after the fact is not made yet.
enum NotCharged {
    NoRoom,
    /// The page of the key is retired, or the state does not fit a word.
    NotHere,
}

impl From<NoRoom> for NotCharged {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// Returns where the charge was made, if the amendment is of one. Since then, the key may have lost its slot, or got one.
fn place_charged(amendment: Amendment) -> Option<Counted> {
    match amendment {
        Amendment::TakeBack(taken) => Some(Counted::of(taken.is_overflow())),
        Amendment::GiveBack(departure) => Some(Counted::of(departure.is_overflow())),
        _ => None,
    }
}

/// Changes a state. Blocks, overrides and settlements are handled elsewhere. Returns `false` if turns of a
/// queue are not the last.
pub(super) fn amend<S: Step>(
    rule: &S,
    state: &mut S::Form,
    now: Micros,
    cost: u32,
    amendment: Amendment,
) -> bool {
    match amendment {
        Amendment::Refund => rule.refund(state, now, cost),
        Amendment::TakeBack(taken) if now < taken.until() => rule.refund(state, now, cost),
        Amendment::GiveBack(departure) => {
            return rule.give_back(state, now, cost, departure.begins());
        }
        Amendment::Reset => *state = S::Form::default(),
        _ => {}
    }
    true
}

/// Changes of a state without a decision.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Changes the state of a key, if it has one, or the shared entry if the key has no slot and there is no
    /// room. Units are taken back where they were charged. Returns `None` if the page is retired, and otherwise
    /// whether it was done: turns of a queue can be given back only if they are the last.
    #[inline(never)]
    pub(in crate::store::memory) fn amend(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        amendment: Amendment,
    ) -> Option<bool> {
        let now = || clock.now().min(self.until);
        let charged = place_charged(amendment);
        let mut counted = charged.unwrap_or(Counted::Own);
        if limit.is_none()
            && counted == Counted::Own
            && let Some((page, mut lock, snapshot, cell)) = self.lock_at_once(probe, |_| now())
        {
            let now = snapshot.latest;
            return Some(self.change(
                (page, &snapshot),
                (&self.rule, cell),
                &mut lock,
                (now, probe.cost),
                amendment,
            ));
        }
        let own = self.own_where((probe, counted), limit, now(), clock);
        let (snapshot, mut lock, slot) = loop {
            let (snapshot, lock) = self.snapshot_and_lock(probe, counted, own)?;
            if let Some(slot) = self.page(&snapshot).find(snapshot.fingerprint(probe)) {
                break (snapshot, lock, slot);
            }
            drop(lock);
            if counted == Counted::Own
                && charged.is_none()
                && !snapshot.is_overridden()
                && !self.has_room(&snapshot, now())
            {
                counted = Counted::Overflow;
            } else {
                return Some(!matches!(amendment, Amendment::GiveBack(_)));
            }
        };
        let page = self.page(&snapshot);
        let now = now();
        if now < snapshot.latest {
            self.step_back(&snapshot, &mut lock, now);
        }
        let rule = self.rule_under(snapshot.limit());
        Some(self.change(
            (page, &snapshot),
            (&rule, &slot.cell),
            &mut lock,
            (now, probe.cost),
            amendment,
        ))
    }

    /// Changes the state of a cell. Its page is locked. Returns whether it was done.
    #[inline]
    fn change(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        (rule, cell): (&R, &C),
        lock: &mut Lock<'_>,
        (now, cost): (Micros, u32),
        amendment: Amendment,
    ) -> bool {
        lock.changes();
        page.set_latest(now);
        let mut seen = cell.see(rule, page.latest());
        let before = rule.size(&seen);
        let is_done = amend(rule, &mut seen, now, cost, amendment);
        self.resize(rule, &mut seen, before);
        cell.keep(rule, seen);
        self.note_evictable(snapshot, now);
        is_done
    }

    /// Locks the page of a key that is in one of its own slots, on a page at rest and under the policy's own
    /// limit, as nearly always. The facts about the page are of this moment, which may be that of its last
    /// charge. Returns `None` in all other cases.
    #[inline]
    fn lock_at_once(
        &self,
        probe: Probe,
        time: impl Fn(Micros) -> Micros,
    ) -> Option<(&Page<C>, Lock<'_>, PageSnapshot, &C)> {
        let (page, index) = self.pages.at(probe.fingerprint);
        let seen = page.seqlock.seen_at_rest()?;
        // If the page was split before this, its key is not found on it.
        let slot = page.find_soon(probe.fingerprint)?;
        let now = time(page.latest());
        if now < page.latest() || now > self.until || self.may_be_overridden(probe.fingerprint, now)
        {
            return None;
        }
        let lock = page.seqlock.lock(seen)?;
        let snapshot = PageSnapshot {
            index,
            seen,
            latest: now,
            counted: Counted::Own,
            own: None,
        };
        Some((page, lock, snapshot, &slot.cell))
    }

    /// Charges a key after the fact, by some units, if it is in one of its own slots. Returns whether it did.
    #[inline]
    pub(in crate::store::memory) fn settle_at_once_by<S: Step>(
        &self,
        rule: &S,
        probe: Probe,
        clock: &dyn Clock,
    ) -> bool
    where
        C: Keeps<S>,
    {
        let Some((page, mut lock, snapshot, cell)) = self.lock_at_once(probe, |_| clock.now())
        else {
            return false;
        };
        let now = snapshot.latest;
        if rule.limit_at(now) == 0 {
            return true;
        }
        lock.changes();
        page.set_latest(now);
        let mut seen = cell.see(rule, now);
        let before = rule.size(&seen);
        rule.settle(&mut seen, now, probe.cost);
        if !C::holds(rule, &seen, now) {
            return false;
        }
        self.resize(rule, &mut seen, before);
        cell.keep(rule, seen);
        true
    }

    /// Gives units back to a key until this moment, if it is in one of its own slots. Returns whether it did.
    #[inline]
    pub(in crate::store::memory) fn take_back_at_once_by<S: Step>(
        &self,
        rule: &S,
        probe: Probe,
        until: Micros,
        clock: &dyn Clock,
    ) -> bool
    where
        C: Keeps<S>,
    {
        let time = |last: Micros| {
            if rule.ends_at_once() {
                last
            } else {
                clock.now()
            }
        };
        let Some((page, mut lock, snapshot, cell)) = self.lock_at_once(probe, time) else {
            return false;
        };
        let now = snapshot.latest;
        if now < until {
            lock.changes();
            page.set_latest(now);
            let mut seen = cell.see(rule, now);
            let before = rule.size(&seen);
            rule.refund(&mut seen, now, probe.cost);
            self.resize(rule, &mut seen, before);
            cell.keep(rule, seen);
            self.note_evictable(&snapshot, now);
        }
        true
    }

    /// Returns the limit of an amendment that is made there. The shared entry is of many keys, and has the override of
    /// none.
    fn own_where(
        &self,
        (probe, counted): (Probe, Counted),
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
    ) -> Option<Own> {
        if counted == Counted::Own {
            return self.own(probe, limit, now, clock);
        }
        limit.copied().map(Own::of_request)
    }

    /// Charges a key after the fact, whether there is room under its limit or not. A key without a slot is
    /// given one as it would be for a charge, unless the charge was made to the shared entry. Returns `None` if the page
    /// of the key is retired, or the state does not fit a word.
    #[inline(never)]
    pub(in crate::store::memory) fn settle(
        &self,
        (probe, mut counted): (Probe, Counted),
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
    ) -> Option<()> {
        let time = || clock.now().min(self.until);
        if probe.cost == 0 {
            return Some(());
        }
        let own = self.own_where((probe, counted), limit, time(), clock);
        let mut attempts = 0;
        loop {
            match self.settle_where(probe, (counted, own), time) {
                Ok(()) => return Some(()),
                Err(NotCharged::NotHere) => return None,
                Err(NotCharged::NoRoom) => {
                    attempts += 1;
                    let (_, snapshot) = self.snapshot(probe, counted, own)?;
                    if attempts > ATTEMPTS || !self.make_room(&snapshot, time()) {
                        counted = Counted::Overflow;
                    }
                }
            }
        }
    }

    #[inline(never)]
    fn settle_where(
        &self,
        probe: Probe,
        (counted, own): (Counted, Option<Own>),
        time: impl Fn() -> Micros,
    ) -> Result<(), NotCharged> {
        let (snapshot, mut lock) = self
            .snapshot_and_lock(probe, counted, own)
            .ok_or(NotCharged::NotHere)?;
        let page = self.page(&snapshot);
        let now = time();
        if now < snapshot.latest {
            self.step_back(&snapshot, &mut lock, now);
        }
        let known = page.find(snapshot.fingerprint(probe));
        let is_new = known.is_none();
        let rule = self.rule_under(snapshot.limit());
        if rule.limit_at(now) == 0 {
            return Ok(());
        }
        let cell = match known {
            Some(slot) => &slot.cell,
            None => self.place((page, &snapshot), probe, &mut lock, now)?,
        };
        lock.changes();
        page.set_latest(now);
        let mut seen = cell.see(&rule, now);
        let before = rule.size(&seen);
        rule.settle(&mut seen, now, probe.cost);
        if !C::holds(&rule, &seen, now) {
            self.note_evictable(&snapshot, now);
            return Err(NotCharged::NotHere);
        }
        if counted == Counted::Overflow {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        self.resize(&*rule, &mut seen, before);
        let is_newcomer = is_new && counted == Counted::Own;
        if is_newcomer {
            self.index_new_key(&*self.slowest(), &seen, snapshot.index, now);
        }
        cell.keep(&rule, seen);
        drop(lock);
        if is_newcomer {
            self.grow(now);
        }
        Ok(())
    }
}
