//! A policy whose states fit a word under its own limit, and are kept in three words once a request meets another.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cell::{Word, Words};
use super::counter::{Amendment, Counter, Fill, OutcomeSink, Tier};
use super::page_snapshot::{Ask, Counted, Known, PageSnapshot};
use super::prepared::{Place, Under};
use super::seqlock::Lock;
use super::table::{Override, Settled, Table};
use super::timed::Full;
use crate::algorithm::{Algorithm, AnyRule, Pack, State};
use crate::clock::{Clock, Micros};

type Wide = Table<AnyRule, Words>;

/// A packed table, and the wide table to which its pages move.
///
/// The wide table begins when the first request meets another limit than that of the policy. The page of that
/// request moves at once. The others follow: each request that cannot be decided at once moves some. A key is in one
/// of the two tables, and both share one bound.
pub(super) struct Tiers<S> {
    packed: Table<S, Word>,
    algorithm: Algorithm,
    wide: OnceLock<Box<Wide>>,
    /// The page that moves next.
    next: AtomicUsize,
}

/// How many pages one request moves, beside its own.
const AT_ONCE: usize = 2;

/// How many when the tables are full: a newcomer then needs a place that a key leaves in the wide table.
const AT_ONCE_IF_FULL: usize = 256;

impl<S: Pack> Tiers<S> {
    pub(super) fn new(rule: S, until: Micros, bound: usize, algorithm: Algorithm) -> Self {
        Self {
            packed: Table::new(rule, until, bound),
            algorithm,
            wide: OnceLock::new(),
            next: AtomicUsize::new(0),
        }
    }

    /// The wide table, to which the page of this key has moved.
    #[cold]
    fn wide(&self, fingerprint: u64) -> &Wide {
        let wide = self.wide.get_or_init(|| {
            let rule = AnyRule::new(self.algorithm);
            let end = Micros::new(u64::MAX);
            let wide = Box::new(Table::sharing(rule, end, self.packed.budget()));
            wide.meet(&self.algorithm);
            // The entry that newcomers share is one at any time.
            self.packed.retire_overflow(&mut adopt_into(&wide));
            wide
        });
        self.packed.retire(fingerprint, &mut adopt_into(wide));
        self.move_some(wide);
        wide
    }

    fn move_some(&self, wide: &Wide) {
        let most = if self.packed.is_full() {
            AT_ONCE_IF_FULL
        } else {
            AT_ONCE
        };
        for _ in 0..most {
            let pages = self.packed.pages();
            let next = |next: usize| (next < pages).then_some(next + 1);
            let turn = self
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            let Ok(index) = turn else { break };
            self.packed.retire_page(index, &mut adopt_into(wide));
        }
    }

    #[inline]
    fn is_own(&self, limit: Under<'_>) -> bool {
        match limit {
            Under::Prepared(place) => place == Place::OWN,
            Under::Limit(limit) => *limit == self.algorithm,
        }
    }

    /// The limit of a request, if it is not that of the policy.
    fn other<'a>(&self, limit: Option<&'a Algorithm>) -> Option<&'a Algorithm> {
        limit.filter(|limit| **limit != self.algorithm)
    }
}

fn adopt_into(wide: &Wide) -> impl FnMut(u64, State, Micros) {
    |fingerprint, state, latest| wide.adopt(fingerprint, state, latest)
}

impl<S: Pack> Counter for Tiers<S> {
    fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.packed
            .decide_at_once(ask, now.min(self.packed.until()), told)
    }

    fn decide_at_once_under(
        &self,
        limit: Under<'_>,
        ask: Ask,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        if self.is_own(limit) {
            return Counter::decide_at_once(self, ask, now, told);
        }
        Counter::decide_at_once_under(&**self.wide.get()?, limit, ask, now, told)
    }

    fn decide_in_the_end(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        mut told: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let limit = self.other(limit);
        if limit.is_none() {
            // A key that is found here has moved here.
            if let Some(wide) = self.wide.get()
                && let Some(allowed) = wide.decide_at_once(ask, now, told.as_deref_mut())
            {
                return allowed;
            }
            let (its, now) = (told.as_deref_mut(), now.min(self.packed.until()));
            let decided = self.packed.decide_in_the_end(ask, None, clock, now, its);
            if let Some(allowed) = decided {
                return allowed;
            }
        }
        let wide = self.wide(ask.fingerprint);
        Counter::decide_in_the_end(wide, ask, limit, now, clock, told)
    }

    fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>> {
        if let Some(known) = Counter::look_up(&self.packed, ask, now) {
            return Some(known);
        }
        let known = Counter::look_up(&**self.wide.get()?, ask, now)?;
        Some(known.widely())
    }

    fn look_up_under(&self, limit: Under<'_>, ask: Ask, now: Micros) -> Option<Known<'_>> {
        if self.is_own(limit) {
            return self.look_up(ask, now);
        }
        let known = Counter::look_up_under(&**self.wide.get()?, limit, ask, now)?;
        Some(known.widely())
    }

    fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        match self.wide.get().filter(|_| known.is_wide) {
            Some(wide) => Counter::charge_known(&**wide, known, ask, lock, now, told),
            None => Counter::charge_known(&self.packed, known, ask, lock, now, told),
        }
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
        match self.wide.get().filter(|_| !self.is_own(limit)) {
            Some(wide) => wide.charge_known_under(limit, known, ask, lock, now, told),
            None => self.charge_known(known, ask, lock, now, told),
        }
    }

    fn prepare(&self, limit: &Algorithm) -> Option<Place> {
        if *limit == self.algorithm {
            return Some(Place::OWN);
        }
        self.wide.get()?.prepare(limit)
    }

    fn until(&self) -> Micros {
        self.packed.until()
    }

    fn tier(&self) -> &dyn Tier {
        &self.packed
    }

    fn snapshot(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot) {
        let limit = self.other(limit);
        if limit.is_none()
            && let Some(snapshot) = self.packed.look_at(ask, None, counted, clock)
        {
            return (&self.packed, snapshot);
        }
        Counter::snapshot(self.wide(ask.fingerprint), ask, limit, counted, clock)
    }

    fn snapshot_and_lock(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot, Lock<'_>) {
        let limit = self.other(limit);
        if limit.is_none()
            && let Some((snapshot, lock)) = self.packed.lock_and_look_at(ask, None, counted, clock)
        {
            return (&self.packed, snapshot, lock);
        }
        Counter::snapshot_and_lock(self.wide(ask.fingerprint), ask, limit, counted, clock)
    }

    fn amend(&self, ask: Ask, limit: Option<&Algorithm>, clock: &dyn Clock, amendment: Amendment) {
        let limit = self.other(limit);
        if limit.is_none() && self.packed.amend(ask, None, clock, amendment).is_some() {
            return;
        }
        Counter::amend(self.wide(ask.fingerprint), ask, limit, clock, amendment);
    }

    fn settle(&self, ask: Ask, limit: Option<&Algorithm>, clock: &dyn Clock) {
        let limit = self.other(limit);
        if limit.is_none() && self.packed.settle(ask, None, clock) == Settled::Done {
            return;
        }
        Counter::settle(self.wide(ask.fingerprint), ask, limit, clock);
    }

    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        let wide = self.wide(fingerprint);
        Counter::override_limit(wide, fingerprint, limit, length, clock)
    }

    fn end_override(&self, fingerprint: u64, clock: &dyn Clock) {
        if let Some(wide) = self.wide.get() {
            Counter::end_override(&**wide, fingerprint, clock);
        }
    }

    fn each_override(&self, now: Micros) -> Vec<(u64, Override)> {
        let wide = self.wide.get();
        wide.map_or_else(Vec::new, |wide| wide.each_override(now))
    }

    fn fill(&self) -> Fill {
        let packed = self.packed.fill();
        self.wide
            .get()
            .map_or(packed, |wide| packed.with(wide.fill()))
    }

    fn each_key(&self, now: Micros, tell: &mut dyn FnMut(u64, State)) {
        self.packed.each_key(now, tell);
        // What has moved meanwhile is found here.
        if let Some(wide) = self.wide.get() {
            wide.each_key(now, tell);
        }
    }

    fn restore(&self, keys: Vec<(u64, State)>, now: Micros) -> (usize, usize) {
        self.packed.restore(keys, now)
    }
}
