use std::sync::Arc;

use super::any_rule::AnyRule;
use super::cell::{Keeps, Long, Word, Words};
use super::table::{
    Allows, Ask, Changed, Counted, Foretell, Full, Glance, NoRoom, Override, Table, Tell,
};
use super::version::Lock;
use crate::algorithm::{Algorithm, Fixed, Pack, State, Step, WithRule};
use crate::clock::{Clock, Micros};
use crate::decision::{Outcome, Outcomes};
pub(super) use crate::store::{Amendment, Wanted};

/// One policy's table, whatever its rule and however that is kept.
pub(super) trait Counter: Send + Sync + 'static {
    /// Decides on a request that concerns no other policy, and tells of it if that is wanted; `None` if
    /// there is more to it than usual. `now` is what the clock has just told.
    fn decide_at_once(&self, ask: Ask, now: Micros, told: Option<&mut Told<'_>>) -> Option<bool>;

    /// Decides on such a request, whatever there is to it.
    fn decide_in_the_end(
        &self,
        ask: Ask,
        now: Micros,
        clock: &dyn Clock,
        told: Option<&mut Told<'_>>,
    ) -> bool;

    /// The last moment that the table can hold; later ones are taken for it.
    fn until(&self) -> Micros;

    /// Looks at a key's page. What is read of it afterwards holds as of this moment.
    fn glance(&self, ask: Ask, counted: Counted) -> Glance;

    /// The same of a page that is locked first, however long that takes.
    fn glance_and_lock(&self, ask: Ask, counted: Counted) -> (Glance, Lock<'_>);

    /// Whether the key may be charged.
    fn allows(&self, glance: &Glance, ask: Ask, now: Micros) -> Result<bool, Changed>;

    /// Tells of a request that is not charged.
    fn tell(
        &self,
        glance: &Glance,
        ask: Ask,
        now: Micros,
        allowed: bool,
        told: &mut Told<'_>,
    ) -> Result<(), Changed>;

    /// Tells of a request as if it was charged.
    fn foretell(
        &self,
        glance: &Glance,
        ask: Ask,
        now: Micros,
        told: &mut Told<'_>,
    ) -> Result<(), Changed>;

    /// Locks the page, if nothing has changed since the glance.
    fn lock(&self, glance: &Glance) -> Result<Lock<'_>, Changed>;

    /// Moves what the page keeps back to now.
    fn step_back(&self, glance: &Glance, lock: &mut Lock<'_>, now: Micros);

    /// Makes sure that there is a place for the key, and tells whether it was made just now.
    fn place(
        &self,
        glance: &Glance,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom>;

    /// Charges a key that has a place.
    fn charge(
        &self,
        glance: &Glance,
        ask: Ask,
        is_new: bool,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut Told<'_>>,
    );

    /// Notes that a newcomer that has a place is not charged, and may go.
    fn may_go(&self, glance: &Glance, now: Micros);

    /// Whether the key has no place, and the table none that is free.
    fn lacks_room(&self, glance: &Glance, ask: Ask) -> bool;

    /// Whether a newcomer finds a place, or one can be made for it. No page may be locked.
    fn has_room(&self, glance: &Glance, now: Micros) -> bool;

    /// Makes room for a newcomer, if any key can go. No page may be locked.
    fn make_room(&self, glance: &Glance, now: Micros) -> bool;

    /// Lets the table grow, if it has to. No page may be locked.
    fn grow(&self, now: Micros);

    /// Changes what is kept of a key, if anything is.
    fn amend(&self, ask: Ask, clock: &dyn Clock, amendment: Amendment);

    /// Charges a key after the fact, whether there is room under its limit or not.
    fn settle(&self, ask: Ask, clock: &dyn Clock);

    /// Lets a key have a limit of its own from now on, for so long; `None` ends that.
    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Option<(Algorithm, Micros)>,
        clock: &dyn Clock,
    ) -> Result<(), Full>;

    /// Tells each key that stands beside the pages, with the limit that it has of its own.
    fn each_exception(&self, now: Micros, tell: &mut dyn FnMut(u64, Option<Override>, State));

    /// Lets a key have the limit of its own that it had before a restart.
    fn restore_override(&self, fingerprint: u64, limit: Override, state: State, now: Micros);

    /// How full it is.
    fn fill(&self) -> Fill;

    /// Tells each key that is not as good as new, by its fingerprint, and its state.
    fn each_key(&self, now: Micros, tell: &mut dyn FnMut(u64, State));

    /// Puts keys into a table that has none, as far as there is room. Tells how many there are then,
    /// and for how many there was none.
    fn restore(&self, keys: Vec<(u64, State)>, now: Micros) -> (usize, usize);
}

/// Decides on a request that concerns no other policy. In two calls, since the first, which hardly ever needs
/// the second, takes fewer instructions the less it is given.
#[inline]
pub(super) fn decide(
    counter: &dyn Counter,
    ask: Ask,
    now: Micros,
    clock: &dyn Clock,
    mut told: Option<&mut Told<'_>>,
) -> bool {
    match counter.decide_at_once(ask, now, told.as_deref_mut()) {
        Some(allowed) => allowed,
        None => counter.decide_in_the_end(ask, now, clock, told),
    }
}

/// Where a policy's outcome is put, if it is wanted: in its place, since it is large to move.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) wanted: Wanted,
    pub(super) policy: usize,
    pub(super) outcomes: &'a mut Outcomes,
}

impl Told<'_> {
    pub(super) fn put_down(&mut self, outcome: Outcome, now: Micros) {
        self.outcomes.decided_at(now);
        self.outcomes.push(self.policy, outcome);
    }
}

/// How full a table is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) keys: usize,
    pub(super) bound: usize,
    pub(super) bytes: usize,
    pub(super) evicted: u64,
    pub(super) overflowed: u64,
}

/// How often room is made for a newcomer, which others may take before it does.
pub(super) const ATTEMPTS: usize = 4;

/// States are packed if that is exact for all times up to this one at least, in the year 2540: up to
/// the end of the longest wait that can be told before the year 2255.
const PACKED_UNTIL: Micros = Micros::new(2 * Micros::LONGEST.get());

const END_OF_TIME: Micros = Micros::new(u64::MAX);

/// A table for this algorithm, with room for so many keys.
pub(super) fn counter(algorithm: &Algorithm, bound: usize) -> Arc<dyn Counter> {
    counter_for(algorithm, bound, &[], Micros::ZERO)
}

/// A table that can hold these states, which are as of now, and which another limit may have left.
pub(super) fn counter_for(
    algorithm: &Algorithm,
    bound: usize,
    states: &[(u64, State)],
    now: Micros,
) -> Arc<dyn Counter> {
    struct Make<'a> {
        bound: usize,
        states: &'a [(u64, State)],
        now: Micros,
    }

    impl Make<'_> {
        /// Limits whose states do not pack are rare: one table, compiled once, is there for the rules of all.
        fn in_words(self, rule: impl Fixed) -> Arc<dyn Counter> {
            let rule = AnyRule::new(rule);
            Arc::new(Table::<_, Words>::new(rule, END_OF_TIME, self.bound))
        }

        /// A table of one word for each key, if that is exact for all times and all that is known of keys.
        fn in_one_word(&self, rule: impl Pack) -> Option<Arc<dyn Counter>> {
            let late = rule.packs_until();
            let mut states = self.states.iter();
            let packs = late >= PACKED_UNTIL
                && self.now <= late
                && states.all(|(_, state)| rule.fits(state, self.now));
            packs.then(|| -> Arc<dyn Counter> {
                Arc::new(Table::<_, Word>::new(rule, late, self.bound))
            })
        }
    }

    impl WithRule for Make<'_> {
        type Result = Arc<dyn Counter>;

        fn fixed(self, rule: impl Fixed) -> Arc<dyn Counter> {
            self.in_words(rule)
        }

        fn packed(self, rule: impl Fixed + Pack) -> Arc<dyn Counter> {
            self.in_two_forms(rule, || Some(rule))
        }

        fn in_two_forms<P: Pack>(
            self,
            rule: impl Fixed,
            packed: impl FnOnce() -> Option<P>,
        ) -> Arc<dyn Counter> {
            let packed = packed().and_then(|packed| self.in_one_word(packed));
            packed.unwrap_or_else(|| self.in_words(rule))
        }

        fn stateless(self, rule: impl Step<Kept = State>) -> Arc<dyn Counter> {
            let rule = AnyRule::stateless(rule);
            Arc::new(Table::<_, Words>::new(rule, END_OF_TIME, self.bound))
        }

        fn long(self, rule: impl Step<Kept = State>) -> Arc<dyn Counter> {
            Arc::new(Table::<_, Long>::new(rule, END_OF_TIME, self.bound))
        }
    }

    algorithm.with_rule(Make { bound, states, now })
}

impl<S: Step, C: Keeps<S>> Counter for Table<S, C> {
    fn decide_at_once(&self, ask: Ask, now: Micros, told: Option<&mut Told<'_>>) -> Option<bool> {
        self.decide_at_once(ask, now.min(self.until()), told)
    }

    fn decide_in_the_end(
        &self,
        ask: Ask,
        now: Micros,
        clock: &dyn Clock,
        told: Option<&mut Told<'_>>,
    ) -> bool {
        self.decide_in_the_end(ask, clock, now.min(self.until()), told)
    }

    fn until(&self) -> Micros {
        self.until()
    }

    fn glance(&self, ask: Ask, counted: Counted) -> Glance {
        let beside = self.glance_beside(ask);
        beside.unwrap_or_else(|| self.glance(ask, counted).1)
    }

    fn glance_and_lock(&self, ask: Ask, counted: Counted) -> (Glance, Lock<'_>) {
        let beside = self.glance_beside_and_lock(ask);
        beside.unwrap_or_else(|| self.glance_and_lock(ask, counted))
    }

    fn allows(&self, glance: &Glance, ask: Ask, now: Micros) -> Result<bool, Changed> {
        if let Some(key) = self.beside(glance) {
            return key.look(self.rule(), glance, (ask, now), Allows(ask.cost));
        }
        self.look(glance, ask, now, |kept| {
            self.rule().allows(kept, now, ask.cost)
        })
    }

    fn tell(
        &self,
        glance: &Glance,
        ask: Ask,
        now: Micros,
        allowed: bool,
        told: &mut Told<'_>,
    ) -> Result<(), Changed> {
        self.tell_or_foretell(glance, (ask, now), Some(allowed), told)
    }

    fn foretell(
        &self,
        glance: &Glance,
        ask: Ask,
        now: Micros,
        told: &mut Told<'_>,
    ) -> Result<(), Changed> {
        self.tell_or_foretell(glance, (ask, now), None, told)
    }

    fn lock(&self, glance: &Glance) -> Result<Lock<'_>, Changed> {
        let version = match self.beside(glance) {
            Some(key) => &key.version,
            None => &self.page(glance).version,
        };
        version.lock(glance.seen()).ok_or(Changed)
    }

    fn step_back(&self, glance: &Glance, lock: &mut Lock<'_>, now: Micros) {
        if let Some(key) = self.beside(glance) {
            lock.changes();
            key.step_back(self.rule(), now);
            return;
        }
        self.step_back(self.page(glance), glance, lock, now);
    }

    fn place(
        &self,
        glance: &Glance,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom> {
        let page = self.page(glance);
        if self.beside(glance).is_some() || page.find(glance.fingerprint(ask)).is_some() {
            return Ok(false);
        }
        self.place((page, glance), ask, lock, now)?;
        Ok(true)
    }

    fn charge(
        &self,
        glance: &Glance,
        ask: Ask,
        is_new: bool,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut Told<'_>>,
    ) {
        if let Some(key) = self.beside(glance) {
            lock.changes();
            let outcome = key.charge(self.rule(), ask.cost, now);
            if let Some(told) = told
                && told.wanted.includes(true)
            {
                told.put_down(outcome, now);
            }
            return;
        }
        let page = self.page(glance);
        let Some(slot) = page.find(glance.fingerprint(ask)) else {
            return;
        };
        let cell = &slot.cell;
        if is_new {
            self.charge_new((page, glance), cell, ask, lock, now, told);
        } else {
            let seen = cell.see(self.rule(), glance.latest);
            self.charge((page, glance), (cell, seen), ask, lock, now, told);
        }
    }

    fn may_go(&self, glance: &Glance, now: Micros) {
        self.may_go(glance, now);
    }

    fn lacks_room(&self, glance: &Glance, ask: Ask) -> bool {
        self.lacks_room(glance, ask)
    }

    fn has_room(&self, glance: &Glance, now: Micros) -> bool {
        self.has_room(glance, now)
    }

    fn make_room(&self, glance: &Glance, now: Micros) -> bool {
        self.make_room(glance, now)
    }

    fn grow(&self, now: Micros) {
        self.grow(now);
    }

    fn amend(&self, ask: Ask, clock: &dyn Clock, amendment: Amendment) {
        self.amend(ask, || clock.now().min(self.until()), amendment);
    }

    fn settle(&self, ask: Ask, clock: &dyn Clock) {
        self.settle(ask, || clock.now().min(self.until()));
    }

    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Option<(Algorithm, Micros)>,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        let time = || clock.now().min(self.until());
        if let Some((algorithm, length)) = limit {
            return self.override_limit(fingerprint, algorithm, length, time);
        }
        self.end_override(fingerprint, time);
        Ok(())
    }

    fn each_exception(&self, now: Micros, tell: &mut dyn FnMut(u64, Option<Override>, State)) {
        self.each_exception(now, tell);
    }

    fn restore_override(&self, fingerprint: u64, limit: Override, state: State, now: Micros) {
        self.restore_override(fingerprint, limit, state, now);
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

impl<S: Step, C: Keeps<S>> Table<S, C> {
    /// Tells of a request that is `allowed` or not and not charged, or else as if it was charged.
    #[inline(never)]
    fn tell_or_foretell(
        &self,
        glance: &Glance,
        (ask, now): (Ask, Micros),
        allowed: Option<bool>,
        told: &mut Told<'_>,
    ) -> Result<(), Changed> {
        let cost = ask.cost;
        if let Some(key) = self.beside(glance) {
            let outcome = match allowed {
                Some(allowed) => key.told(self.rule(), glance, (ask, now), Tell { cost, allowed }),
                None => key.told(self.rule(), glance, (ask, now), Foretell(cost)),
            };
            told.put_down(outcome?, now);
            return Ok(());
        }
        self.look(glance, ask, now, |kept| {
            if let Some(allowed) = allowed {
                self.tell(kept, ask, now, allowed, glance.counted, Some(told));
            } else {
                let mut kept = kept.clone();
                self.rule().charge(&mut kept, now, cost);
                self.tell(&kept, ask, now, true, glance.counted, Some(told));
            }
        })
    }
}
