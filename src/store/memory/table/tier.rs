use super::{Ask, Changed, NoRoom, PageSnapshot, Table};
use crate::algorithm::{State, Step};
use crate::clock::Micros;
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::{OutcomeSink, Tier};
use crate::store::memory::seqlock::Lock;

impl<R: Step, C: Keeps<R>> Tier for Table<R, C> {
    fn until(&self) -> Micros {
        self.until
    }

    fn allows(&self, snapshot: &PageSnapshot, ask: Ask, now: Micros) -> Result<bool, Changed> {
        self.look(snapshot, ask, now, |rule, kept| {
            rule.allows(kept, now, ask.cost)
        })
    }

    fn write_outcome(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        allowed: bool,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.write_or_preview(snapshot, (ask, now), Some(allowed), sink)
    }

    fn preview(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.write_or_preview(snapshot, (ask, now), None, sink)
    }

    fn state(&self, snapshot: &PageSnapshot, ask: Ask, now: Micros) -> Result<State, Changed> {
        self.look(snapshot, ask, now, |rule, kept| rule.write(kept.clone()))
    }

    fn lock(&self, snapshot: &PageSnapshot) -> Result<Lock<'_>, Changed> {
        let seqlock = &self.page(snapshot).seqlock;
        seqlock.lock(snapshot.seen).ok_or(Changed)
    }

    fn step_back(&self, snapshot: &PageSnapshot, lock: &mut Lock<'_>, now: Micros) {
        self.step_back(self.page(snapshot), snapshot, lock, now);
    }

    fn place(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom> {
        let page = self.page(snapshot);
        if page.find(snapshot.fingerprint(ask)).is_some() {
            return Ok(false);
        }
        self.place((page, snapshot), ask, lock, now)?;
        Ok(true)
    }

    fn charge(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        is_new: bool,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        let page = self.page(snapshot);
        let Some(slot) = page.find(snapshot.fingerprint(ask)) else {
            return;
        };
        let (cell, rule) = (&slot.cell, self.rule_under(snapshot.own));
        if is_new {
            let rules = (&*rule, &*self.slowest());
            let place = (page, snapshot, cell);
            self.charge_new(rules, place, ask, lock, now, sink);
        } else {
            let seen = cell.see(&rule, snapshot.latest);
            self.charge((page, snapshot), (&*rule, cell, seen), ask, lock, now, sink);
        }
    }

    fn note_evictable(&self, snapshot: &PageSnapshot, now: Micros) {
        self.note_evictable(snapshot, now);
    }

    fn lacks_room(&self, snapshot: &PageSnapshot, ask: Ask) -> bool {
        self.lacks_room(snapshot, ask)
    }

    fn has_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool {
        self.has_room(snapshot, now)
    }

    fn make_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool {
        self.make_room(snapshot, now)
    }

    fn grow(&self, now: Micros) {
        self.grow(now);
    }
}

impl<R: Step, C: Keeps<R>> Table<R, C> {
    /// Writes the outcome of a request that is `allowed` or not: as it stands, or as if it was charged.
    #[inline(never)]
    fn write_or_preview(
        &self,
        snapshot: &PageSnapshot,
        (ask, now): (Ask, Micros),
        allowed: Option<bool>,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.look(snapshot, ask, now, |rule, kept| {
            if let Some(allowed) = allowed {
                Self::write_outcome((rule, kept), ask, now, allowed, snapshot, Some(sink));
            } else {
                let mut kept = kept.clone();
                rule.charge(&mut kept, now, ask.cost);
                Self::write_outcome((rule, &kept), ask, now, true, snapshot, Some(sink));
            }
        })
    }
}
