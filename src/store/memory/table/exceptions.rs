use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::exception::{Allows, Amend, Base, Charge, Exception, Override, Settle, Tell};
use super::{Ask, Counted, Glance, Table};
use crate::algorithm::{Algorithm, State, Step, read};
use crate::clock::{Clock, Micros};
use crate::store::Amendment;
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::Told;
use crate::store::memory::seed::RESERVED;
use crate::store::memory::version::Lock;

/// The keys under one policy that stand beside its pages. They are found by those who look for them on
/// their page in vain, so that nobody else takes note of them.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    count: AtomicUsize,
    index: RwLock<Index>,
    /// They stay where they are, since who has found one looks at it later. What was needed once is
    /// kept.
    places: OnceLock<Box<[Places]>>,
}

/// So many places together.
type Places = OnceLock<Box<[Exception]>>;

#[derive(Debug, Default)]
struct Index {
    by_fingerprint: BTreeMap<u64, Seat>,
    /// How many of them have a limit of their own, or had one that has ended.
    overridden: usize,
    /// Places that were somebody's.
    free: Vec<usize>,
    used: usize,
    /// Which is looked at next, whether it can go.
    next: u64,
}

/// Where a key stands, and why.
#[derive(Clone, Copy, Debug)]
struct Seat {
    place: usize,
    reason: Reason,
}

/// Why a key stands beside the pages. Each reason has a bound of its own, so that settled requests cannot take
/// the room of limits that an operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It has a limit of its own.
    Override,
    /// More was settled than a cell holds.
    Settled,
}

/// How many keys under one policy can stand beside its pages for each reason.
pub(in crate::store) const MOST: usize = 10_000;

const PLACES: usize = 2 * MOST;

const TOGETHER: usize = 100;

/// How many are looked at for each that comes, whether they can go back to their pages.
const AT_ONCE: usize = 4;

/// There are as many as there can be.
#[derive(Debug)]
pub(in crate::store) struct Full;

impl Exceptions {
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Where this key stands, if it is one of them.
    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<usize> {
        if !self.are_any() {
            return None;
        }
        self.look_up(fingerprint)
    }

    #[cold]
    fn look_up(&self, fingerprint: u64) -> Option<usize> {
        Some(self.read().by_fingerprint.get(&fingerprint)?.place)
    }

    pub(super) fn at(&self, place: usize) -> &Exception {
        let places = self.places.get_or_init(|| {
            let none = (0..PLACES / TOGETHER).map(|_| Places::new());
            none.collect()
        });
        let some = || (0..TOGETHER).map(|_| Exception::default()).collect();
        &places[place / TOGETHER].get_or_init(some)[place % TOGETHER]
    }

    /// A place for this key, which is locked, and whether it is new.
    fn claim(
        &self,
        fingerprint: u64,
        reason: Reason,
    ) -> Result<(&Exception, Lock<'_>, bool), Full> {
        loop {
            let mut index = self.write();
            if let Some(seat) = index.by_fingerprint.get(&fingerprint).copied() {
                if reason == Reason::Override && !index.reseat(fingerprint, reason) {
                    return Err(Full);
                }
                drop(index);
                let exception = self.at(seat.place);
                let (lock, _) = exception.version.wait_and_lock();
                if exception.is_of(fingerprint) {
                    return Ok((exception, lock, false));
                }
                continue;
            }
            if index.count_of(reason) == MOST {
                return Err(Full);
            }
            let place = index.free.pop().unwrap_or_else(|| {
                index.used += 1;
                index.used - 1
            });
            let exception = self.at(place);
            // Whoever has it yet finds out that it is nobody's.
            let (mut lock, _) = exception.version.wait_and_lock();
            lock.changes();
            exception.held().fingerprint = fingerprint;
            index
                .by_fingerprint
                .insert(fingerprint, Seat { place, reason });
            index.overridden += usize::from(reason == Reason::Override);
            self.count
                .store(index.by_fingerprint.len(), Ordering::Relaxed);
            return Ok((exception, lock, true));
        }
    }

    /// Lets the place of a key be nobody's. It is locked.
    fn release(&self, exception: &Exception, lock: &mut Lock<'_>) {
        lock.changes();
        let gone = std::mem::take(&mut *exception.held()).fingerprint;
        let mut index = self.write();
        if let Some(seat) = index.by_fingerprint.remove(&gone) {
            index.overridden -= usize::from(seat.reason == Reason::Override);
            index.free.push(seat.place);
        }
        self.count
            .store(index.by_fingerprint.len(), Ordering::Relaxed);
    }

    /// Whether a key that has no limit of its own any more can stay for what it has settled.
    fn stays_settled(&self, fingerprint: u64) -> bool {
        let seat = self.read().by_fingerprint.get(&fingerprint).copied();
        let is_settled = seat.is_some_and(|seat| seat.reason == Reason::Settled);
        is_settled || self.write().reseat(fingerprint, Reason::Settled)
    }

    /// Some keys, others each time, until all have had their turn.
    fn next(&self, most: usize) -> Vec<u64> {
        let mut index = self.write();
        let after = index.by_fingerprint.range(index.next..);
        let next: Vec<u64> = after.map(|(key, _)| *key).take(most).collect();
        index.next = match next.last() {
            Some(last) if next.len() == most => last.saturating_add(1),
            _ => 0,
        };
        next
    }

    /// Tells each key, but for those whose limit has ended and that are as good as new.
    fn each(
        &self,
        base: &dyn Base,
        now: Micros,
        tell: &mut dyn FnMut(u64, Option<Override>, State),
    ) {
        let keys: Vec<(u64, usize)> = {
            let index = self.read();
            let keys = index.by_fingerprint.iter();
            keys.map(|(key, seat)| (*key, seat.place)).collect()
        };
        for (fingerprint, place) in keys {
            let exception = self.at(place);
            let (_lock, _) = exception.version.wait_and_lock();
            let held = exception.held();
            if held.fingerprint == fingerprint {
                let (limit, state) = held.as_of(now);
                if limit.is_some() || base.distance(state.clone(), now) > 0 {
                    tell(fingerprint, limit, state);
                }
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn count_of(&self, reason: Reason) -> usize {
        match reason {
            Reason::Override => self.overridden,
            Reason::Settled => self.by_fingerprint.len() - self.overridden,
        }
    }

    /// Lets a key stand there for this reason, if no more do than can.
    fn reseat(&mut self, fingerprint: u64, reason: Reason) -> bool {
        let count = self.count_of(reason);
        let Some(seat) = self.by_fingerprint.get_mut(&fingerprint) else {
            return false;
        };
        if seat.reason == reason {
            return true;
        }
        if count == MOST {
            return false;
        }
        seat.reason = reason;
        match reason {
            Reason::Override => self.overridden += 1,
            Reason::Settled => self.overridden -= 1,
        }
        true
    }
}

/// What is asked about keys that stand beside the pages.
impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Decides about a key if it is one of these.
    #[cold]
    pub(super) fn decide_beside(
        &self,
        ask: Ask,
        clock: &dyn Clock,
        mut now: Micros,
        told: Option<&mut Told<'_>>,
    ) -> Option<bool> {
        let exception = self.exceptions.at(self.exceptions.find(ask.fingerprint)?);
        let (mut lock, _) = exception.version.wait_and_lock();
        if now < exception.latest() {
            now = clock.now().min(self.until);
        }
        if now < exception.latest() && ask.cost > 0 {
            lock.changes();
            exception.step_back(&self.rule, now);
        }
        let mut held = exception.held();
        if held.fingerprint != ask.fingerprint {
            return None;
        }
        let allowed = held.act(&self.rule, now, Allows(ask.cost));
        let outcome = if allowed && ask.cost > 0 {
            lock.changes();
            exception.set_latest(now);
            held.told(&self.rule, now, Charge(ask.cost))
        } else {
            let cost = ask.cost;
            held.told(&self.rule, now, Tell { cost, allowed })
        };
        drop((held, lock));
        if let Some(told) = told
            && told.wanted.includes(allowed)
        {
            told.put_down(outcome, now);
        }
        self.readmit(ask.fingerprint, now);
        Some(allowed)
    }

    /// Looks at a key if it is one of these.
    #[inline]
    pub(in crate::store::memory) fn glance_beside(&self, ask: Ask) -> Option<Glance> {
        let place = self.exceptions.find(ask.fingerprint)?;
        let exception = self.exceptions.at(place);
        let seen = exception.version.seen();
        Some(Glance {
            index: place,
            seen,
            latest: exception.latest(),
            counted: Counted::Beside,
        })
    }

    /// The same, and locks it.
    pub(in crate::store::memory) fn glance_beside_and_lock(
        &self,
        ask: Ask,
    ) -> Option<(Glance, Lock<'_>)> {
        let place = self.exceptions.find(ask.fingerprint)?;
        let exception = self.exceptions.at(place);
        let (lock, seen) = exception.version.wait_and_lock();
        let glance = Glance {
            index: place,
            seen,
            latest: exception.latest(),
            counted: Counted::Beside,
        };
        exception.is_of(ask.fingerprint).then_some((glance, lock))
    }

    /// The key that was looked at, if it is one of these.
    pub(in crate::store::memory) fn beside(&self, glance: &Glance) -> Option<&Exception> {
        (glance.counted == Counted::Beside).then(|| self.exceptions.at(glance.index))
    }

    /// Changes what is kept of a key, if it is one of these.
    #[inline(never)]
    pub(super) fn amend_beside(
        &self,
        ask: Ask,
        time: impl Fn() -> Micros,
        amendment: Amendment,
    ) -> bool {
        let fingerprint = ask.fingerprint;
        let Some(place) = self.exceptions.find(fingerprint) else {
            return false;
        };
        let exception = self.exceptions.at(place);
        let (mut lock, _) = exception.version.wait_and_lock();
        if !exception.is_of(fingerprint) {
            return false;
        }
        let now = self.begin(exception, &mut lock, time());
        exception
            .held()
            .act(&self.rule, now, Amend(ask.cost, amendment));
        drop(lock);
        self.readmit(fingerprint, now);
        true
    }

    /// Charges a key after the fact, and gives it a place beside the pages first if it has none.
    #[inline(never)]
    pub(super) fn settle_beside(&self, ask: Ask, time: impl Fn() -> Micros) -> Result<(), Full> {
        self.make_way(AT_ONCE, time());
        let settle = |exception: &Exception, now| {
            exception.held().act(&self.rule, now, Settle(ask.cost));
        };
        self.except(ask.fingerprint, Reason::Settled, time, settle)
    }

    /// Lets a key have a limit of its own.
    pub(in crate::store::memory) fn override_limit(
        &self,
        fingerprint: u64,
        algorithm: Algorithm,
        length: Micros,
        time: impl Fn() -> Micros,
    ) -> Result<(), Full> {
        let change = |exception: &Exception, now: Micros| {
            let until = now.saturating_add(length.min(Micros::LONGEST));
            let limit = Override {
                algorithm,
                from: now,
                until,
            };
            let mut held = exception.held();
            held.act(&self.rule, now, Amend(0, Amendment::Refund));
            held.limit = Some(limit);
        };
        for most in [AT_ONCE, PLACES] {
            self.make_way(most, time());
            if let Ok(()) = self.except(fingerprint, Reason::Override, &time, change) {
                return Ok(());
            }
        }
        Err(Full)
    }

    /// Lets the limit of a key be that of the policy again.
    pub(in crate::store::memory) fn end_override(
        &self,
        fingerprint: u64,
        time: impl Fn() -> Micros,
    ) {
        if self.exceptions.find(fingerprint).is_none() {
            return;
        }
        let now = time();
        let change = |exception: &Exception, now: Micros| {
            let mut held = exception.held();
            held.act(&self.rule, now, Amend(0, Amendment::Refund));
            held.limit = None;
        };
        // The key stands there already, for its own reason.
        if self
            .except(fingerprint, Reason::Settled, time, change)
            .is_ok()
        {
            self.readmit(fingerprint, now);
        }
    }

    /// Tells each key that stands beside the pages, but for those whose limit has ended and that are as good
    /// as new.
    pub(in crate::store::memory) fn each_exception(
        &self,
        now: Micros,
        tell: &mut dyn FnMut(u64, Option<Override>, State),
    ) {
        self.exceptions.each(&self.rule, now, tell);
    }

    /// Puts a key back that had a limit of its own before a restart.
    pub(in crate::store::memory) fn restore_override(
        &self,
        fingerprint: u64,
        limit: Override,
        state: State,
        now: Micros,
    ) {
        let until = limit.until.min(limit.from.saturating_add(Micros::LONGEST));
        let restore = |exception: &Exception, now: Micros| {
            let mut held = exception.held();
            held.state = state;
            held.limit = Some(Override { until, ..limit }.moved_back(now));
        };
        // As many were told as there can be.
        let _ = self.except(fingerprint, Reason::Override, || now, restore);
        self.readmit(fingerprint, now);
    }

    /// Changes a key beside the pages, where it is put first if it stands on one.
    fn except(
        &self,
        fingerprint: u64,
        reason: Reason,
        time: impl Fn() -> Micros,
        change: impl FnOnce(&Exception, Micros),
    ) -> Result<(), Full> {
        let (exception, _lock, now) = self.put_beside(fingerprint, reason, &time)?;
        change(exception, now);
        Ok(())
    }

    /// Apart from what is changed, so that it is compiled once for each table.
    #[inline(never)]
    fn put_beside(
        &self,
        fingerprint: u64,
        reason: Reason,
        time: &dyn Fn() -> Micros,
    ) -> Result<(&Exception, Lock<'_>, Micros), Full> {
        let (exception, mut lock, is_new) = self.exceptions.claim(fingerprint, reason)?;
        if is_new {
            // From here on, whoever looks for it on its page finds it here, once it is unlocked.
            let (state, latest) = self.take_out(fingerprint, time);
            exception.held().state = state;
            exception.set_latest(latest);
        }
        let now = self.begin(exception, &mut lock, time());
        Ok((exception, lock, now))
    }

    /// Takes a key from its page.
    fn take_out(&self, fingerprint: u64, time: impl Fn() -> Micros) -> (State, Micros) {
        let ask = Ask {
            fingerprint,
            cost: 0,
        };
        let (glance, mut lock) = self.glance_and_lock(ask, Counted::Apart);
        let page = self.page(&glance);
        // Those who have looked for it before must do so again, also in vain.
        lock.changes();
        let found = page.keys().find(|place| place.fingerprint() == fingerprint);
        let Some(place) = found else {
            drop(lock);
            return self.state_without_a_place(&glance, time());
        };
        let latest = page.latest();
        let kept = place.slot().cell.see(&self.rule, latest).clone();
        self.forget(place);
        (self.rule.write(kept), latest)
    }

    /// The state of a key that has no place: what newcomers share, if there is no room for it.
    fn state_without_a_place(&self, glance: &Glance, now: Micros) -> (State, Micros) {
        if self.has_room(glance, now) {
            return (State::NEW, now);
        }
        match self.copy(RESERVED, Counted::Together) {
            Some((kept, latest)) => (self.rule.write(kept), latest),
            None => (State::NEW, now),
        }
    }

    /// What every change begins with. The key is locked.
    fn begin(&self, exception: &Exception, lock: &mut Lock<'_>, now: Micros) -> Micros {
        lock.changes();
        if now < exception.latest() {
            exception.step_back(&self.rule, now);
        }
        exception.set_latest(now);
        now
    }

    /// Puts a key back on its page if it has the limit of the policy and fits a cell, or forgets it
    /// if it is as good as new. What does not fit is forgiven if no more can stand here for that.
    #[inline(never)]
    fn readmit(&self, fingerprint: u64, now: Micros) {
        let Some(place) = self.exceptions.find(fingerprint) else {
            return;
        };
        let exception = self.exceptions.at(place);
        let (mut lock, _) = exception.version.wait_and_lock();
        let held = exception.held();
        let ends = held.limit.map_or(Micros::ZERO, |limit| limit.until);
        let latest = exception.latest().max(ends);
        if held.fingerprint != fingerprint || now < latest || self.until < now {
            return;
        }
        let (_, state) = held.as_of(now);
        drop(held);
        let base: &dyn Base = &self.rule;
        let is_new = base.distance(state.clone(), now) == 0;
        let fits = C::fits(&self.rule, &state, now);
        let mut kept = read(&self.rule, state, now);
        if !is_new && !fits {
            if self.exceptions.stays_settled(fingerprint) {
                return;
            }
            C::fit(&self.rule, &mut kept);
        }
        if is_new || self.revive(fingerprint, kept, now, latest).is_ok() {
            self.exceptions.release(exception, &mut lock);
        }
    }

    /// Lets some keys go that can.
    #[inline(never)]
    fn make_way(&self, most: usize, now: Micros) {
        if self.exceptions.are_any() {
            for fingerprint in self.exceptions.next(most) {
                self.readmit(fingerprint, now);
            }
        }
    }
}
