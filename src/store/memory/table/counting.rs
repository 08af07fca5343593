use super::{Ask, Changed, Counted, Known, NoRoom, Override, PageSnapshot, Settled, Table};
use crate::algorithm::{Algorithm, State, Step};
use crate::clock::{Clock, Micros};
use crate::store::Amendment;
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::{Counter, Fill, OutcomeSink, Tier};
use crate::store::memory::prepared::{Place, Under};
use crate::store::memory::seqlock::Lock;
use crate::store::memory::timed::Full;

/// A table that is never retired.
impl<S: Step, C: Keeps<S>> Counter for Table<S, C> {
    fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.decide_at_once(ask, now.min(self.until), told)
    }

    fn decide_at_once_under(
        &self,
        limit: Under<'_>,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.decide_at_once_under(limit, ask, now.min(self.until), told)
    }

    fn decide_in_the_end(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let decided = self.decide_in_the_end(ask, limit, clock, now.min(self.until), told);
        decided.unwrap_or(false)
    }

    fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>> {
        self.look_up_by(&self.rule, ask, now)
    }

    fn look_up_under(&self, limit: Under<'_>, ask: Ask, now: Micros) -> Option<Known<'_>> {
        let mut made = None;
        self.look_up_by(self.rule_of(limit, &mut made)?, ask, now)
    }

    fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        self.charge_known_by(&self.rule, known, ask, lock, now, told);
    }

    fn charge_known_under(
        &self,
        limit: Under<'_>,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        let mut made = None;
        if let Some(rule) = self.rule_of(limit, &mut made) {
            self.charge_known_by(rule, known, ask, lock, now, told);
        }
    }

    fn prepare(&self, limit: &Algorithm) -> Option<Place> {
        self.prepare(limit)
    }

    fn until(&self) -> Micros {
        self.until
    }

    fn tier(&self) -> &dyn Tier {
        self
    }

    fn snapshot(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot) {
        let snapshot = self.look_at(ask, limit, counted, clock);
        (self, snapshot.unwrap_or_default())
    }

    fn snapshot_and_lock(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot, Lock<'_>) {
        loop {
            if let Some((snapshot, lock)) = self.lock_and_look_at(ask, limit, counted, clock) {
                return (self, snapshot, lock);
            }
        }
    }

    fn amend(&self, ask: Ask, limit: Option<&Algorithm>, clock: &dyn Clock, amendment: Amendment) {
        let _ = self.amend(ask, limit, clock, amendment);
    }

    fn settle(&self, ask: Ask, limit: Option<&Algorithm>, clock: &dyn Clock) {
        let settled = self.settle(ask, limit, clock);
        debug_assert_eq!(settled, Settled::Done);
    }

    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        self.override_limit(fingerprint, limit, length, clock)
    }

    fn end_override(&self, fingerprint: u64, clock: &dyn Clock) {
        self.end_override(fingerprint, clock);
    }

    fn each_override(&self, now: Micros) -> Vec<(u64, Override)> {
        self.each_override(now)
    }

    fn fill(&self) -> Fill {
        self.fill()
    }

    fn each_key(&self, now: Micros, tell: &mut dyn FnMut(u64, State)) {
        self.each_key(now, tell);
    }

    fn restore(&self, keys: Vec<(u64, State)>, now: Micros) -> (usize, usize) {
        self.restore(keys, now)
    }
}

impl<S: Step, C: Keeps<S>> Tier for Table<S, C> {
    fn allows(&self, snapshot: &PageSnapshot, ask: Ask, now: Micros) -> Result<bool, Changed> {
        self.look(snapshot, ask, now, |rule, kept| {
            rule.allows(kept, now, ask.cost)
        })
    }

    fn tell(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        allowed: bool,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.tell_or_foretell(snapshot, (ask, now), Some(allowed), told)
    }

    fn foretell(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.tell_or_foretell(snapshot, (ask, now), None, told)
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
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        let page = self.page(snapshot);
        let Some(slot) = page.find(snapshot.fingerprint(ask)) else {
            return;
        };
        let cell = &slot.cell;
        if is_new {
            self.charge_new((page, snapshot), cell, ask, lock, now, told);
        } else {
            let rule = self.rule_under(snapshot.own);
            let seen = cell.see(&rule, snapshot.latest);
            self.charge((page, snapshot), (&rule, cell, seen), ask, lock, now, told);
        }
    }

    fn may_go(&self, snapshot: &PageSnapshot, now: Micros) {
        self.may_go(snapshot, now);
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

impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Looks at a key's page, and at the limit that holds for the key; `None` if the page is retired.
    pub(in crate::store::memory) fn look_at(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> Option<PageSnapshot> {
        let (_, mut snapshot) = self.snapshot(ask, counted, None)?;
        snapshot.own = self.own(ask, limit, self.time(clock), clock);
        Some(snapshot)
    }

    /// The same of a page that is locked first.
    pub(in crate::store::memory) fn lock_and_look_at(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> Option<(PageSnapshot, Lock<'_>)> {
        let (mut snapshot, lock) = self.snapshot_and_lock(ask, counted, None)?;
        snapshot.own = self.own(ask, limit, self.time(clock), clock);
        Some((snapshot, lock))
    }

    /// The time, if any override has to be compared with it.
    fn time(&self, clock: &dyn Clock) -> Micros {
        if self.overrides.are_any() {
            return clock.now().min(self.until);
        }
        Micros::ZERO
    }

    /// Tells of a request that is `allowed` or not and not charged, or else as if it was charged.
    #[inline(never)]
    fn tell_or_foretell(
        &self,
        snapshot: &PageSnapshot,
        (ask, now): (Ask, Micros),
        allowed: Option<bool>,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        self.look(snapshot, ask, now, |rule, kept| {
            if let Some(allowed) = allowed {
                Self::tell((rule, kept), ask, now, allowed, snapshot, Some(told));
            } else {
                let mut kept = kept.clone();
                rule.charge(&mut kept, now, ask.cost);
                Self::tell((rule, &kept), ask, now, true, snapshot, Some(told));
            }
        })
    }
}
