//! Overrides of a table: keys with a limit of their own for a time.
//!
//! A debt is written as of now when a limit begins or ends, so that it drains at the rate that held.

use super::{Counted, Own, PageSnapshot, Probe, Table};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, Micros};
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::seed::RESERVED;
use crate::store::memory::seqlock::Lock;
use crate::store::memory::timed::{Full, Override, Span};

/// The number of keys of one policy that can have an override.
pub(in crate::store) const MOST: usize = 10_000;

/// Overrides: limits of single keys. An override changes no state; the requests of its key meet another limit.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Returns whether this key may have an override. It is `true` for a few keys that have none.
    #[inline]
    pub(super) fn may_be_overridden(&self, fingerprint: u64, now: Micros) -> bool {
        R::VARIES && self.overrides.are_any() && self.overrides.may_hold(fingerprint, now)
    }

    /// Returns how long the override of this key keeps it from being evicted, or `None` if it has none.
    pub(super) fn stays_overridden(&self, fingerprint: u64, now: Micros) -> Option<Micros> {
        if !self.may_be_overridden(fingerprint, now) {
            return None;
        }
        let left = self.overrides.get(fingerprint)?.until.saturating_sub(now);
        (left > Micros::ZERO).then_some(left)
    }

    /// Gives a key an override, and a slot even if the table is full. Units that the key has used together
    /// with others stay used.
    pub(in crate::store::memory) fn override_limit(
        &self,
        fingerprint: u64,
        algorithm: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        self.note_limit(&algorithm);
        let probe = Probe {
            fingerprint,
            cost: 0,
        };
        let shared = self.shared_state(probe, clock);
        let own = Own {
            algorithm,
            is_overridden: true,
        };
        let seen = self.snapshot_and_lock(probe, Counted::Own, Some(own));
        let Some((snapshot, mut lock)) = seen else {
            return Ok(());
        };
        let now = self.now(clock);
        self.drain((probe, &snapshot), &mut lock, now, clock);
        let span = Span::new(algorithm, now, length);
        self.overrides.put(fingerprint, span, MOST, |_| false)?;
        let page = self.page(&snapshot);
        if let Some((state, latest)) = shared
            && page.find(fingerprint).is_none()
            && let Ok(cell) = self.place((page, &snapshot), probe, &mut lock, now)
        {
            self.budget.exceed(self.rule.size(&state) - 1);
            page.set_latest(latest.max(snapshot.latest));
            cell.put(&self.rule, state);
            self.note_evictable(&snapshot, now);
        }
        Ok(())
    }

    /// Writes the debt of a key as of now, under the limit that held until now. The page is locked, so that a
    /// decision that has read it reads again, and finds the limit that holds from now on.
    fn drain(
        &self,
        (probe, snapshot): (Probe, &PageSnapshot),
        lock: &mut Lock<'_>,
        now: Micros,
        clock: &dyn Clock,
    ) {
        lock.changes();
        let page = self.page(snapshot);
        if now < snapshot.latest {
            self.step_back(snapshot, lock, now);
        }
        if let Some(slot) = page.find(probe.fingerprint) {
            let own = self.own(probe, None, now, clock);
            let rule = self.rule_under(own.as_ref().map(|own| &own.algorithm));
            let mut seen = slot.cell.see(&rule, page.latest());
            let before = rule.size(&seen);
            rule.refund(&mut seen, now, 0);
            self.resize(&*rule, &mut seen, before);
            slot.cell.keep(&rule, seen);
            page.set_latest(now);
        }
    }

    /// Returns the state that a key without a slot shares with others, if there is no room for it.
    fn shared_state(&self, probe: Probe, clock: &dyn Clock) -> Option<(R::Form, Micros)> {
        let (page, snapshot) = self.snapshot(probe, Counted::Own, None)?;
        let is_overridden = self.overrides.get(probe.fingerprint).is_some();
        if is_overridden
            || page.find(probe.fingerprint).is_some()
            || self.has_room(&snapshot, self.now(clock))
        {
            return None;
        }
        self.copy(RESERVED, Counted::Overflow)
    }

    /// Ends the override of a key.
    pub(in crate::store::memory) fn end_override(&self, fingerprint: u64, clock: &dyn Clock) {
        if self.overrides.get(fingerprint).is_none() {
            return;
        }
        let probe = Probe {
            fingerprint,
            cost: 0,
        };
        if let Some((snapshot, mut lock)) = self.snapshot_and_lock(probe, Counted::Own, None) {
            let now = self.now(clock);
            self.drain((probe, &snapshot), &mut lock, now, clock);
            self.overrides.end(fingerprint);
            self.note_evictable(&snapshot, now);
        }
    }

    fn now(&self, clock: &dyn Clock) -> Micros {
        clock.now().min(self.until)
    }

    /// Returns the overrides that have not ended.
    pub(in crate::store::memory) fn each_override(&self, now: Micros) -> Vec<(u64, Override)> {
        let mut each = self.overrides.each();
        each.retain(|(_, span)| span.until > now);
        each
    }

    /// Returns the end of the last override.
    pub(in crate::store::memory) fn last_override_end(&self) -> Option<Micros> {
        self.overrides.last_end()
    }

    /// Restores the overrides that keys had before a restart.
    pub(in crate::store::memory) fn restore_overrides(
        &self,
        overrides: Vec<(u64, Override)>,
        now: Micros,
    ) {
        for (_, span) in &overrides {
            self.note_limit(&span.what);
        }
        let own = overrides.into_iter().take(MOST);
        self.overrides.restore(own, now);
    }
}
