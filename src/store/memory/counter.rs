use std::hint::spin_loop;
use std::sync::Arc;

use super::cell::{Keeps, Long, Word, Words};
use super::table::{Ask, Counted, Glance, NoRoom, Table};
use super::version::Lock;
use crate::algorithm::{Algorithm, Fixed, State, Step, WithRule};
use crate::clock::{Clock, Micros};
use crate::decision::Outcome;

/// One policy's table, whatever its rule and however that is kept.
pub(super) trait Counter: Send + Sync + 'static {
    /// Decides on a request that concerns no other policy.
    fn decide(&self, ask: Ask, clock: &dyn Clock, wanted: Wanted) -> Decided;

    /// The last moment that the table can hold; later ones are taken for it.
    fn until(&self) -> Micros;

    /// Looks at a key's page. What is read of it afterwards holds as of this moment.
    fn glance(&self, ask: Ask, counted: Counted) -> Glance;

    /// Whether the key may be charged, if nothing has changed since the glance.
    fn allows(&self, glance: &Glance, ask: Ask, now: Micros) -> Option<bool>;

    /// What is told of the request, if nothing has changed since the glance.
    fn tell(&self, glance: &Glance, ask: Ask, now: Micros, allowed: bool) -> Option<Outcome>;

    /// The same, of a page that is locked.
    fn tell_locked(&self, glance: &Glance, ask: Ask, now: Micros, allowed: bool)
    -> Option<Outcome>;

    /// Locks the page, if nothing has changed since the glance.
    fn lock(&self, glance: &Glance) -> Option<Lock<'_>>;

    /// Moves what the page keeps back to now.
    fn step_back(&self, glance: &Glance, lock: &mut Lock<'_>, now: Micros);

    /// Makes sure that there is a place for the key, and tells whether it is a newcomer's.
    fn place(
        &self,
        glance: &Glance,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom>;

    /// Charges a key that has a place.
    fn charge(&self, glance: &Glance, ask: Ask, is_new: bool, lock: &mut Lock<'_>, now: Micros);

    /// A newcomer that has a place is not charged after all.
    fn abandon(&self, glance: &Glance, now: Micros);

    /// Makes room for a newcomer, if any key can go. No page may be locked.
    fn make_room(&self, glance: &Glance, now: Micros) -> bool;

    /// Lets the table grow, if it has to. No page may be locked.
    fn grow(&self, now: Micros);

    /// How full it is.
    fn fill(&self) -> Fill;
}

/// Which requests are to be told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Verdict,
    Refusals,
    Everything,
}

impl Wanted {
    pub(super) fn includes(self, allowed: bool) -> bool {
        match self {
            Self::Verdict => false,
            Self::Refusals => !allowed,
            Self::Everything => true,
        }
    }
}

/// What became of a request.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) at: Micros,
    pub(super) allowed: bool,
    pub(super) outcome: Option<Outcome>,
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

/// States are packed if that is exact for all times up to this one at least, in the year 2255.
const PACKED_UNTIL: Micros = Micros::LONGEST;

const END_OF_TIME: Micros = Micros::new(u64::MAX);

/// A table for this algorithm, with room for so many keys.
pub(super) fn counter(algorithm: &Algorithm, bound: usize) -> Arc<dyn Counter> {
    struct Make(usize);

    impl WithRule for Make {
        type Result = Arc<dyn Counter>;

        fn fixed(self, rule: impl Fixed) -> Arc<dyn Counter> {
            match rule.packs_until() {
                late if late >= PACKED_UNTIL => Arc::new(Table::<_, Word>::new(rule, late, self.0)),
                _ => Arc::new(Table::<_, Words>::new(rule, END_OF_TIME, self.0)),
            }
        }

        fn long(self, rule: impl Step<Kept = State>) -> Arc<dyn Counter> {
            Arc::new(Table::<_, Long>::new(rule, END_OF_TIME, self.0))
        }
    }

    algorithm.with_rule(Make(bound))
}

impl<S: Step, C: Keeps<S>> Counter for Table<S, C> {
    fn decide(&self, ask: Ask, clock: &dyn Clock, wanted: Wanted) -> Decided {
        let mut now = clock.now().min(self.until());
        let mut counted = Counted::Apart;
        let mut attempts = 0;
        loop {
            let (page, glance) = self.glance(ask, counted);
            if now < glance.latest {
                // Somebody else was here after the clock was read, or it has stepped back.
                now = clock.now().min(self.until());
            }
            let steps_back = now < glance.latest && ask.cost > 0;
            let read = self.read((page, &glance), ask, now, |kept| {
                let allowed = self.rule().allows(kept, now, ask.cost);
                let is_final = !steps_back && (!allowed || ask.cost == 0);
                let told = is_final && wanted.includes(allowed);
                let outcome = told.then(|| self.outcome(kept, ask, now, allowed, counted));
                (allowed, is_final, outcome)
            });
            let Some((allowed, is_final, outcome)) = read else {
                continue;
            };
            let at = now;
            if is_final {
                return Decided {
                    at,
                    allowed,
                    outcome,
                };
            }
            let Some(mut lock) = page.version.lock(glance.seen()) else {
                spin_loop();
                continue;
            };
            if steps_back {
                self.step_back(&glance, &mut lock, now);
                continue;
            }
            let Ok(is_new) = self.place((page, &glance), ask, &mut lock, now) else {
                drop(lock);
                attempts += 1;
                if attempts > ATTEMPTS || !self.make_room(&glance, now) {
                    counted = Counted::Together;
                }
                continue;
            };
            self.charge((page, &glance), ask, is_new, &mut lock, now);
            let outcome = if wanted.includes(true) {
                self.read_locked((page, &glance), ask, now, |kept| {
                    self.outcome(kept, ask, now, true, counted)
                })
            } else {
                None
            };
            drop(lock);
            if is_new {
                self.grow(now);
            }
            return Decided {
                at,
                allowed,
                outcome,
            };
        }
    }

    fn until(&self) -> Micros {
        self.until()
    }

    fn glance(&self, ask: Ask, counted: Counted) -> Glance {
        self.glance(ask, counted).1
    }

    fn allows(&self, glance: &Glance, ask: Ask, now: Micros) -> Option<bool> {
        self.read((self.page(glance), glance), ask, now, |kept| {
            self.rule().allows(kept, now, ask.cost)
        })
    }

    fn tell(&self, glance: &Glance, ask: Ask, now: Micros, allowed: bool) -> Option<Outcome> {
        self.read((self.page(glance), glance), ask, now, |kept| {
            self.outcome(kept, ask, now, allowed, glance.counted)
        })
    }

    fn tell_locked(
        &self,
        glance: &Glance,
        ask: Ask,
        now: Micros,
        allowed: bool,
    ) -> Option<Outcome> {
        self.read_locked((self.page(glance), glance), ask, now, |kept| {
            self.outcome(kept, ask, now, allowed, glance.counted)
        })
    }

    fn lock(&self, glance: &Glance) -> Option<Lock<'_>> {
        self.page(glance).version.lock(glance.seen())
    }

    fn step_back(&self, glance: &Glance, lock: &mut Lock<'_>, now: Micros) {
        self.step_back(glance, lock, now);
    }

    fn place(
        &self,
        glance: &Glance,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<bool, NoRoom> {
        self.place((self.page(glance), glance), ask, lock, now)
    }

    fn charge(&self, glance: &Glance, ask: Ask, is_new: bool, lock: &mut Lock<'_>, now: Micros) {
        self.charge((self.page(glance), glance), ask, is_new, lock, now);
    }

    fn abandon(&self, glance: &Glance, now: Micros) {
        self.abandon(glance, now);
    }

    fn make_room(&self, glance: &Glance, now: Micros) -> bool {
        self.make_room(glance, now)
    }

    fn grow(&self, now: Micros) {
        self.grow(now);
    }

    fn fill(&self) -> Fill {
        self.fill()
    }
}
