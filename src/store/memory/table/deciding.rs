use std::hint::spin_loop;

use super::{Ask, Counted, Known, NoRoom, PageSnapshot, Table, Undecided, moved_back};
use crate::algorithm::{Algorithm, Step};
use crate::clock::{Clock, Micros};
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::{ATTEMPTS, OutcomeSink};
use crate::store::memory::page::Page;
use crate::store::memory::prepared::{Place, Under};
use crate::store::memory::seqlock::Lock;

/// Decisions about one policy alone.
impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Decides about a key that stands where it is looked for first, as nearly all do, unless another thread
    /// is there at the same time.
    #[inline]
    pub(in crate::store::memory) fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.decide_at_once_by(&self.rule, ask, now, told)
    }

    /// The same under the limit of a request.
    #[inline]
    pub(in crate::store::memory) fn decide_at_once_under(
        &self,
        limit: Under<'_>,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        let mut made = None;
        let rule = self.rule_of(limit, &mut made)?;
        self.decide_at_once_by(rule, ask, now, told)
    }

    /// The rule under the limit of a request, which is `made` unless it is prepared.
    #[inline]
    pub(super) fn rule_of<'a>(
        &'a self,
        limit: Under<'_>,
        made: &'a mut Option<S>,
    ) -> Option<&'a S> {
        match limit {
            Under::Prepared(Place::OWN) => Some(&self.rule),
            Under::Prepared(place) => self.prepared.get(place).map(|(_, rule)| rule),
            Under::Limit(limit) => Some(made.insert(self.make_rule(limit))),
        }
    }

    #[inline(never)]
    fn make_rule(&self, limit: &Algorithm) -> S {
        self.meet(limit);
        C::under(&self.rule, limit)
    }

    /// Prepares the rule of a limit that requests bring.
    pub(in crate::store::memory) fn prepare(&self, limit: &Algorithm) -> Option<Place> {
        if !C::VARIES {
            return None;
        }
        // Before any request finds it prepared.
        self.meet(limit);
        let make = || (*limit, C::under(&self.rule, limit));
        self.prepared.place_of(|(known, _)| known == limit, make)
    }

    #[expect(
        clippy::inline_always,
        reason = "without a limit of the request, nothing is left of it"
    )]
    #[inline(always)]
    fn decide_at_once_by(
        &self,
        rule: &S,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        let (page, index) = self.pages.at(ask.fingerprint);
        let seen = page.seqlock.seen_at_rest()?;
        // If the page was split before this, its key is not found on it.
        let slot = page.find_soon(ask.fingerprint)?;
        if now < page.latest() || self.may_be_overridden(ask.fingerprint, now) {
            return None;
        }
        let snapshot = PageSnapshot {
            index,
            seen,
            // What was owed then and what is left of it now decide alike, and this takes less.
            latest: now,
            counted: Counted::Apart,
            own: None,
        };
        let known = (rule, &slot.cell);
        let decided = self.decide_known((page, &snapshot), known, ask, now, told);
        decided.ok()
    }

    /// Looks a key up as [`decide_at_once`](Self::decide_at_once) does, and asks whether it may be charged.
    #[inline]
    pub(super) fn look_up_by(&self, rule: &S, ask: Ask, now: Micros) -> Option<Known<'_>> {
        let (page, index) = self.pages.at(ask.fingerprint);
        let seen = page.seqlock.seen_at_rest()?;
        let slot = page.find_soon(ask.fingerprint)?;
        if ask.cost == 0 || now < page.latest() || now > self.until {
            return None;
        }
        if self.may_be_overridden(ask.fingerprint, now) {
            return None;
        }
        let kept = slot.cell.see(rule, now);
        if !page.seqlock.still_is(seen) {
            return None;
        }
        let is_allowed = rule.allows(&kept, now, ask.cost);
        Some(Known {
            seqlock: &page.seqlock,
            seen,
            index,
            is_allowed,
            is_wide: false,
        })
    }

    /// Charges a key that was looked up. Its page is locked.
    #[inline]
    pub(super) fn charge_known_by(
        &self,
        rule: &S,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        let page = self.pages.page(known.index);
        let Some(slot) = page.find_soon(ask.fingerprint) else {
            return;
        };
        let snapshot = PageSnapshot {
            index: known.index,
            seen: known.seen,
            latest: now,
            counted: Counted::Apart,
            own: None,
        };
        let seen = slot.cell.see(rule, now);
        self.charge(
            (page, &snapshot),
            (rule, &slot.cell, seen),
            ask,
            lock,
            now,
            told,
        );
    }

    /// Decides about any key, however often that is to be begun anew; `None` if its page is retired.
    #[inline(never)]
    pub(in crate::store::memory) fn decide_in_the_end(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        mut now: Micros,
        mut told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        let mut counted = Counted::Apart;
        let mut attempts = 0;
        loop {
            let (page, mut snapshot) = self.snapshot(ask, counted, None)?;
            if now < snapshot.latest {
                // Another thread charged after the clock was read, or the clock has stepped back.
                now = clock.now().min(self.until);
            }
            // After the look at the page: when an override changes, the page does too.
            snapshot.own = self.own(ask, limit, now, clock);
            let its = told.as_deref_mut();
            let decided = if now < snapshot.latest && ask.cost > 0 {
                self.step_back_now(page, &snapshot, now)
            } else {
                let rule = self.rule_under(snapshot.own);
                match page.find(snapshot.fingerprint(ask)) {
                    Some(slot) => {
                        self.decide_known((page, &snapshot), (&rule, &slot.cell), ask, now, its)
                    }
                    None => self.decide_new((page, &snapshot), &rule, ask, now, its),
                }
            };
            match decided {
                Ok(allowed) => return Some(allowed),
                Err(Undecided::Changed) => spin_loop(),
                Err(Undecided::NoRoom) => {
                    attempts += 1;
                    if attempts > ATTEMPTS || !self.make_room(&snapshot, now) {
                        counted = Counted::Overflow;
                    }
                }
                Err(Undecided::Crowded) => counted = Counted::Overflow,
            }
        }
    }

    /// Decides about a key that has a place.
    #[expect(
        clippy::inline_always,
        reason = "a caller who knows that time went on needs half of it"
    )]
    #[inline(always)]
    fn decide_known(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        (rule, cell): (&S, &C),
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Undecided> {
        let seen = cell.see(rule, snapshot.latest);
        // Before anything is made of it: what was read in the middle of a change makes no sense.
        if !page.seqlock.still_is(snapshot.seen) {
            return Err(Undecided::Changed);
        }
        let moved = moved_back(rule, &seen, snapshot, now);
        let kept = moved.as_ref().unwrap_or(&seen);
        let allowed = rule.allows(kept, now, ask.cost);
        if !allowed || ask.cost == 0 {
            Self::tell((rule, kept), ask, now, allowed, snapshot, told);
            return Ok(allowed);
        }
        let Some(mut lock) = page.seqlock.lock(snapshot.seen) else {
            return Err(Undecided::Changed);
        };
        self.charge(
            (page, snapshot),
            (rule, cell, seen),
            ask,
            &mut lock,
            now,
            told,
        );
        Ok(true)
    }

    /// Decides about a key that has no place.
    #[inline(never)]
    fn decide_new(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        rule: &S,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Undecided> {
        if !page.seqlock.still_is(snapshot.seen) {
            return Err(Undecided::Changed);
        }
        let may_lack_room = snapshot.counted == Counted::Apart && !snapshot.is_overridden();
        if may_lack_room && self.is_crowded(now, snapshot.index) {
            return Err(Undecided::Crowded);
        }
        let kept = S::Kept::default();
        let allowed = rule.allows(&kept, now, ask.cost);
        if !allowed || ask.cost == 0 {
            if may_lack_room && !self.has_room(snapshot, now) {
                return Err(Undecided::Crowded);
            }
            Self::tell((rule, &kept), ask, now, allowed, snapshot, told);
            return Ok(allowed);
        }
        let Some(mut lock) = page.seqlock.lock(snapshot.seen) else {
            return Err(Undecided::Changed);
        };
        let cell = match self.place((page, snapshot), ask, &mut lock, now) {
            Ok(cell) => cell,
            Err(NoRoom) => return Err(Undecided::NoRoom),
        };
        self.charge_new((page, snapshot), cell, ask, &mut lock, now, told);
        drop(lock);
        self.grow(now);
        Ok(true)
    }

    /// Moves what a page keeps back to now, if nothing has changed since the snapshot; the decision
    /// is then to be made anew.
    #[inline(never)]
    fn step_back_now(
        &self,
        page: &Page<C>,
        snapshot: &PageSnapshot,
        now: Micros,
    ) -> Result<bool, Undecided> {
        if let Some(mut lock) = page.seqlock.lock(snapshot.seen) {
            self.step_back(page, snapshot, &mut lock, now);
        }
        Err(Undecided::Changed)
    }
}
