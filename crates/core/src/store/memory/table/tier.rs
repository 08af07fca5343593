//! What a decision of several steps asks the table of a key: see `driver.rs`.

use super::{Changed, NoRoom, PageSnapshot, Probe, Table};
use crate::algorithm::State;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::seqlock::Lock;
use crate::store::memory::sink::OutcomeSink;

impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Returns whether the key may be charged.
    pub(in crate::store::memory) fn allows(
        &self,
        snapshot: &PageSnapshot,
        probe: Probe,
        now: Micros,
    ) -> Result<bool, Changed> {
        self.look(snapshot, probe, now, |rule, state| {
            rule.allows(state, now, probe.cost)
        })
    }

    /// Returns the state of the key, as of now.
    pub(in crate::store::memory) fn state(
        &self,
        snapshot: &PageSnapshot,
        probe: Probe,
        now: Micros,
    ) -> Result<State, Changed> {
        self.look(snapshot, probe, now, |rule, state| {
            rule.write(state.clone())
        })
    }

    /// Locks the page, if it has not changed since the snapshot.
    pub(in crate::store::memory) fn lock(
        &self,
        snapshot: &PageSnapshot,
    ) -> Result<Lock<'_>, Changed> {
        let seqlock = &self.page(snapshot).seqlock;
        seqlock.lock(snapshot.seen).ok_or(Changed)
    }

    /// Makes sure that the key has a slot. Returns whether it is new.
    pub(in crate::store::memory) fn place_key(
        &self,
        snapshot: &PageSnapshot,
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom> {
        let page = self.page(snapshot);
        if page.find(snapshot.fingerprint(probe)).is_some() {
            return Ok(false);
        }
        self.place((page, snapshot), probe, lock, now)?;
        Ok(true)
    }

    /// Charges a key that has a slot.
    pub(in crate::store::memory) fn charge_placed(
        &self,
        snapshot: &PageSnapshot,
        (probe, is_new): (Probe, bool),
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        let page = self.page(snapshot);
        let Some(slot) = page.find(snapshot.fingerprint(probe)) else {
            return;
        };
        let (cell, rule) = (&slot.cell, self.rule_under(snapshot.limit()));
        if is_new {
            let rules = (&*rule, &*self.slowest());
            let place = (page, snapshot, cell);
            self.charge_new(rules, place, probe, lock, now, sink);
        } else {
            let seen = cell.see(&rule, snapshot.latest);
            self.charge(
                (page, snapshot),
                (&*rule, cell, seen),
                probe,
                lock,
                now,
                sink,
            );
        }
    }

    /// Writes the outcome of a request that is not charged and is `allowed` or not, or that it would have if it was
    /// charged.
    #[inline(never)]
    pub(in crate::store::memory) fn write_uncharged(
        &self,
        snapshot: &PageSnapshot,
        (probe, now): (Probe, Micros),
        allowed: Option<bool>,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.look(snapshot, probe, now, |rule, state| {
            if let Some(allowed) = allowed {
                Self::write_outcome((rule, state), probe, now, allowed, snapshot, Some(sink));
            } else {
                let mut state = state.clone();
                rule.charge(&mut state, now, probe.cost);
                Self::write_outcome((rule, &state), probe, now, true, snapshot, Some(sink));
            }
        })
    }
}
