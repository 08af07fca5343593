use std::sync::atomic::Ordering;

use super::{Ask, Counted, NoRoom, Table};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::{ATTEMPTS, Amendment};

/// What changes a state without deciding about anything.
impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Changes what is kept of a key, if anything is.
    #[inline(never)]
    pub(in crate::store::memory) fn amend(
        &self,
        ask: Ask,
        time: impl Fn() -> Micros,
        amendment: Amendment,
    ) {
        let (glance, mut lock) = self.glance_and_lock(ask, Counted::Apart);
        let page = self.page(&glance);
        let Some(slot) = page.find(ask.fingerprint) else {
            return;
        };
        let now = time();
        if now < glance.latest {
            self.step_back(page, &glance, &mut lock, now);
        }
        lock.changes();
        page.set_latest(now);
        let mut seen = slot.cell.see(&self.rule, page.latest());
        let before = self.rule.size(&seen);
        match amendment {
            Amendment::Refund(units) => self.rule.refund(&mut seen, now, units),
            Amendment::GiveBack(cost, departure) => {
                self.rule.give_back(&mut seen, now, cost, departure);
            }
            Amendment::Reset => *seen = S::Kept::default(),
        }
        self.resize(&mut seen, before);
        slot.cell.keep(&self.rule, seen);
        // Its page has something to forget earlier than was thought.
        self.idle.may_be(glance.index, now);
        self.going.may_be(glance.index, now);
    }

    /// Charges a key after the fact, whether there is room under its limit or not. One that has no
    /// place is given one as it would be for a charge.
    #[inline(never)]
    pub(in crate::store::memory) fn settle(&self, ask: Ask, time: impl Fn() -> Micros) {
        if ask.cost == 0 || self.rule.limit() == 0 {
            return;
        }
        let mut counted = Counted::Apart;
        let mut attempts = 0;
        while let Err(NoRoom) = self.settle_where(ask, counted, &time) {
            attempts += 1;
            let (_, glance) = self.glance(ask, counted);
            if attempts > ATTEMPTS || !self.make_room(&glance, time()) {
                counted = Counted::Together;
            }
        }
    }

    fn settle_where(
        &self,
        ask: Ask,
        counted: Counted,
        time: impl Fn() -> Micros,
    ) -> Result<(), NoRoom> {
        let (glance, mut lock) = self.glance_and_lock(ask, counted);
        let page = self.page(&glance);
        let now = time();
        if now < glance.latest {
            self.step_back(page, &glance, &mut lock, now);
        }
        let known = page.find(glance.fingerprint(ask));
        let is_new = known.is_none();
        let cell = match known {
            Some(slot) => &slot.cell,
            None => self.place((page, &glance), ask, &mut lock, now)?,
        };
        lock.changes();
        page.set_latest(now);
        if counted == Counted::Together {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        let mut seen = cell.see(&self.rule, now);
        let before = self.rule.size(&seen);
        self.rule.settle(&mut seen, now, ask.cost);
        C::fit(&self.rule, &mut seen);
        self.resize(&mut seen, before);
        let is_newcomer = is_new && counted == Counted::Apart;
        if is_newcomer {
            self.welcome(&seen, glance.index, now);
        }
        cell.keep(&self.rule, seen);
        drop(lock);
        if is_newcomer {
            self.grow(now);
        }
        Ok(())
    }
}
