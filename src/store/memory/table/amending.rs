use std::sync::atomic::Ordering;

use super::{Ask, Counted, NoRoom, Table};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::Amendment;
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::ATTEMPTS;

/// Why nothing is charged after the fact yet.
enum Unsettled {
    NoRoom,
    /// The key stands beside the pages, or has to.
    Beside,
}

impl From<NoRoom> for Unsettled {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// How much of it a cell has to hold.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    All,
    WhatFits,
}

/// Whether it names one charge, and so changes only the entry that holds it.
fn is_of_one_charge(amendment: Amendment) -> bool {
    matches!(amendment, Amendment::GiveBack(_))
}

/// Changes what a rule keeps. Blocks, overrides and settlements are kept elsewhere.
pub(super) fn amend<S: Step>(
    rule: &S,
    kept: &mut S::Kept,
    now: Micros,
    cost: u32,
    amendment: Amendment,
) {
    match amendment {
        Amendment::Refund => rule.refund(kept, now, cost),
        Amendment::TakeBack(taken) if now < taken.until() => rule.refund(kept, now, cost),
        Amendment::GiveBack(departure) => rule.give_back(kept, now, cost, departure),
        Amendment::Reset => *kept = S::Kept::default(),
        _ => {}
    }
}

/// What changes a state without deciding about anything.
impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Changes what is kept of a key, if anything is: of one that has no place, and for which there is no
    /// room, what the shared entry keeps.
    #[inline(never)]
    pub(in crate::store::memory) fn amend(
        &self,
        ask: Ask,
        time: impl Fn() -> Micros,
        amendment: Amendment,
    ) {
        let mut counted = Counted::Apart;
        let (glance, mut lock, slot) = loop {
            let (glance, lock) = self.glance_and_lock(ask, counted);
            if let Some(slot) = self.page(&glance).find(glance.fingerprint(ask)) {
                break (glance, lock, slot);
            }
            // As long as the page is locked, it does not come back to it.
            let is_beside = self.exceptions.find(ask.fingerprint).is_some();
            drop(lock);
            if is_beside {
                if self.amend_beside(ask, &time, amendment) {
                    return;
                }
            } else if counted == Counted::Apart
                && (is_of_one_charge(amendment) || !self.has_room(&glance, time()))
            {
                counted = Counted::Together;
            } else {
                return;
            }
        };
        let page = self.page(&glance);
        let now = time();
        if now < glance.latest {
            self.step_back(page, &glance, &mut lock, now);
        }
        lock.changes();
        page.set_latest(now);
        let mut seen = slot.cell.see(&self.rule, page.latest());
        let before = self.rule.size(&seen);
        amend(&self.rule, &mut seen, now, ask.cost, amendment);
        self.resize(&mut seen, before);
        slot.cell.keep(&self.rule, seen);
        self.may_go(&glance, now);
    }

    /// Charges a key after the fact, whether there is room under its limit or not. One that has no
    /// place is given one as it would be for a charge.
    #[inline(never)]
    pub(in crate::store::memory) fn settle(&self, ask: Ask, time: impl Fn() -> Micros) {
        if ask.cost == 0 {
            return;
        }
        let mut counted = Counted::Apart;
        let mut attempts = 0;
        let mut holds = Holds::All;
        loop {
            match self.settle_where((ask, counted), &time, holds) {
                Ok(()) => return,
                Err(Unsettled::NoRoom) => {
                    attempts += 1;
                    let (_, glance) = self.glance(ask, counted);
                    if attempts > ATTEMPTS || !self.make_room(&glance, time()) {
                        counted = Counted::Together;
                    }
                }
                Err(Unsettled::Beside) => {
                    if self.settle_beside(ask, &time).is_ok() {
                        return;
                    }
                    holds = Holds::WhatFits;
                }
            }
        }
    }

    #[inline(never)]
    fn settle_where(
        &self,
        (ask, counted): (Ask, Counted),
        time: impl Fn() -> Micros,
        holds: Holds,
    ) -> Result<(), Unsettled> {
        let (glance, mut lock) = self.glance_and_lock(ask, counted);
        let page = self.page(&glance);
        let now = time();
        if now < glance.latest {
            self.step_back(page, &glance, &mut lock, now);
        }
        let known = page.find(glance.fingerprint(ask));
        let is_new = known.is_none();
        let is_apart = known.is_some() && counted == Counted::Apart;
        if !is_apart && self.exceptions.find(ask.fingerprint).is_some() {
            return Err(Unsettled::Beside);
        }
        if self.rule.limit() == 0 {
            return Ok(());
        }
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
        if !C::holds(&self.rule, &seen, now) {
            if counted == Counted::Apart && holds == Holds::All {
                self.may_go(&glance, now);
                return Err(Unsettled::Beside);
            }
            C::fit(&self.rule, &mut seen);
        }
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
