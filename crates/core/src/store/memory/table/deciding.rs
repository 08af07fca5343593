use std::hint::spin_loop;

use super::{Counted, PageSnapshot, Probe, Table, Undecided};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, Micros};
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::Page;
use crate::store::memory::sink::{ATTEMPTS, OutcomeSink};

/// Decisions on any key under one policy alone.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Decides any key, with as many attempts as that takes. Returns `None` if its page is retired.
    #[inline(never)]
    pub(in crate::store::memory) fn decide_in_the_end(
        &self,
        (probe, mut counted): (Probe, Counted),
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        mut now: Micros,
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        let mut attempts = 0;
        loop {
            let (page, mut snapshot) = self.snapshot(probe, counted, None)?;
            if now < snapshot.latest {
                // Another thread charged after the clock was read, or the clock has stepped back.
                now = clock.now().min(self.until);
            }
            // Read after the page: when an override changes, the page does too.
            snapshot.own = self.own(probe, limit, now, clock);
            let its = sink.as_deref_mut();
            let decided = if now < snapshot.latest && probe.cost > 0 {
                self.step_back_now(page, &snapshot, now)
            } else {
                let rule = self.rule_under(snapshot.limit());
                let page = (page, &snapshot);
                if let Some(slot) = page.0.find(snapshot.fingerprint(probe)) {
                    self.decide_known(page, (&*rule, &slot.cell), probe, now, its)
                } else {
                    self.decide_new((&*rule, || self.slowest()), page, probe, now, its)
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

    /// Moves the states of a page back to now, if nothing has changed since the snapshot. The decision then
    /// starts anew.
    #[inline(never)]
    fn step_back_now(
        &self,
        page: &Page<C>,
        snapshot: &PageSnapshot,
        now: Micros,
    ) -> Result<bool, Undecided> {
        if let Some(mut lock) = page.seqlock.lock(snapshot.seen) {
            self.step_back(snapshot, &mut lock, now);
        }
        Err(Undecided::Changed)
    }
}
