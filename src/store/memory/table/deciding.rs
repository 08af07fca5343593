use std::hint::spin_loop;

use super::{Ask, Counted, Glance, Known, NoRoom, Table, Undecided, moved_back};
use crate::algorithm::{Algorithm, Step};
use crate::clock::{Clock, Micros};
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::{ATTEMPTS, Told};
use crate::store::memory::page::Page;
use crate::store::memory::version::Lock;

/// Decisions about one policy alone.
impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Decides about a key that stands where it is looked for first, as nearly all do, unless another thread
    /// is there at the same time.
    #[inline]
    pub(in crate::store::memory) fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        told: Option<&mut Told<'_>>,
    ) -> Option<bool> {
        let (page, index) = self.pages.at(ask.fingerprint);
        let seen = page.version.seen_at_rest()?;
        // If the page was split before this, its key is not found on it.
        let slot = page.find_soon(ask.fingerprint)?;
        if now < page.latest() || self.may_be_overridden(ask.fingerprint, now) {
            return None;
        }
        let glance = Glance {
            index,
            seen,
            // What was owed then and what is left of it now decide alike, and this takes less.
            latest: now,
            counted: Counted::Apart,
            own: None,
        };
        let known = (&self.rule, &slot.cell);
        let decided = self.decide_known((page, &glance), known, ask, now, told);
        decided.ok()
    }

    /// Looks a key up as [`decide_at_once`](Self::decide_at_once) does, and asks whether it may be charged.
    #[inline]
    pub(in crate::store::memory) fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>> {
        let (page, index) = self.pages.at(ask.fingerprint);
        let seen = page.version.seen_at_rest()?;
        let slot = page.find_soon(ask.fingerprint)?;
        if ask.cost == 0 || now < page.latest() || now > self.until {
            return None;
        }
        if self.may_be_overridden(ask.fingerprint, now) {
            return None;
        }
        let kept = slot.cell.see(&self.rule, now);
        if !page.version.still_is(seen) {
            return None;
        }
        let is_allowed = self.rule.allows(&kept, now, ask.cost);
        Some(Known {
            version: &page.version,
            seen,
            index,
            is_allowed,
            is_wide: false,
        })
    }

    /// Charges a key that was looked up. Its page is locked.
    #[inline]
    pub(in crate::store::memory) fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut Told<'_>>,
    ) {
        let page = self.pages.page(known.index);
        let Some(slot) = page.find_soon(ask.fingerprint) else {
            return;
        };
        let glance = Glance {
            index: known.index,
            seen: known.seen,
            latest: now,
            counted: Counted::Apart,
            own: None,
        };
        let rule = &self.rule;
        let seen = slot.cell.see(rule, now);
        self.charge(
            (page, &glance),
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
        mut told: Option<&mut Told<'_>>,
    ) -> Option<bool> {
        let mut counted = Counted::Apart;
        let mut attempts = 0;
        loop {
            let (page, mut glance) = self.glance(ask, counted, None)?;
            if now < glance.latest {
                // Another thread charged after the clock was read, or the clock has stepped back.
                now = clock.now().min(self.until);
            }
            // After the look at the page: when an override changes, the page does too.
            glance.own = self.own(ask, limit, now, clock);
            let its = told.as_deref_mut();
            let decided = if now < glance.latest && ask.cost > 0 {
                self.step_back_now(page, &glance, now)
            } else {
                let rule = self.rule_under(glance.own);
                match page.find(glance.fingerprint(ask)) {
                    Some(slot) => {
                        self.decide_known((page, &glance), (&rule, &slot.cell), ask, now, its)
                    }
                    None => self.decide_new((page, &glance), &rule, ask, now, its),
                }
            };
            match decided {
                Ok(allowed) => return Some(allowed),
                Err(Undecided::Changed) => spin_loop(),
                Err(Undecided::NoRoom) => {
                    attempts += 1;
                    if attempts > ATTEMPTS || !self.make_room(&glance, now) {
                        counted = Counted::Together;
                    }
                }
                Err(Undecided::Crowded) => counted = Counted::Together,
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
        (page, glance): (&Page<C>, &Glance),
        (rule, cell): (&S, &C),
        ask: Ask,
        now: Micros,
        told: Option<&mut Told<'_>>,
    ) -> Result<bool, Undecided> {
        let seen = cell.see(rule, glance.latest);
        // Before anything is made of it: what was read in the middle of a change makes no sense.
        if !page.version.still_is(glance.seen) {
            return Err(Undecided::Changed);
        }
        let moved = moved_back(rule, &seen, glance, now);
        let kept = moved.as_ref().unwrap_or(&seen);
        let allowed = rule.allows(kept, now, ask.cost);
        if !allowed || ask.cost == 0 {
            Self::tell((rule, kept), ask, now, allowed, glance, told);
            return Ok(allowed);
        }
        let Some(mut lock) = page.version.lock(glance.seen) else {
            return Err(Undecided::Changed);
        };
        self.charge(
            (page, glance),
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
        (page, glance): (&Page<C>, &Glance),
        rule: &S,
        ask: Ask,
        now: Micros,
        told: Option<&mut Told<'_>>,
    ) -> Result<bool, Undecided> {
        if !page.version.still_is(glance.seen) {
            return Err(Undecided::Changed);
        }
        let may_lack_room = glance.counted == Counted::Apart && !glance.is_overridden();
        if may_lack_room && self.is_crowded(now, glance.index) {
            return Err(Undecided::Crowded);
        }
        let kept = S::Kept::default();
        let allowed = rule.allows(&kept, now, ask.cost);
        if !allowed || ask.cost == 0 {
            if may_lack_room && !self.has_room(glance, now) {
                return Err(Undecided::Crowded);
            }
            Self::tell((rule, &kept), ask, now, allowed, glance, told);
            return Ok(allowed);
        }
        let Some(mut lock) = page.version.lock(glance.seen) else {
            return Err(Undecided::Changed);
        };
        let cell = match self.place((page, glance), ask, &mut lock, now) {
            Ok(cell) => cell,
            Err(NoRoom) => return Err(Undecided::NoRoom),
        };
        self.charge_new((page, glance), cell, ask, &mut lock, now, told);
        drop(lock);
        self.grow(now);
        Ok(true)
    }

    /// Moves what a page keeps back to now, if nothing has changed since the glance; the decision
    /// is then to be made anew.
    #[inline(never)]
    fn step_back_now(
        &self,
        page: &Page<C>,
        glance: &Glance,
        now: Micros,
    ) -> Result<bool, Undecided> {
        if let Some(mut lock) = page.version.lock(glance.seen) {
            self.step_back(page, glance, &mut lock, now);
        }
        Err(Undecided::Changed)
    }
}
