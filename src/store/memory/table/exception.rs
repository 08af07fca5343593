use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::amending::amend;
use super::{Ask, Changed, Glance};
use crate::algorithm::{Algorithm, Fixed, State, Step, WithRule, read};
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::Amendment;
use crate::store::memory::version::Version;

/// A key that stands beside the pages: its limit is another than the table's, or its state is more
/// than a cell holds. It is guarded by its version, like a page.
#[derive(Debug, Default)]
pub(in crate::store::memory) struct Exception {
    pub(in crate::store::memory) version: Version,
    latest: AtomicU64,
    held: Mutex<Held>,
}

/// What is kept of one key.
#[derive(Debug, Default)]
pub(in crate::store::memory) struct Held {
    /// 0 of a place that is nobody's.
    pub(in crate::store::memory) fingerprint: u64,
    pub(in crate::store::memory) state: State,
    pub(in crate::store::memory) limit: Option<Override>,
}

/// The limit of one key, in place of its policy's, from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::memory) struct Override {
    pub(in crate::store::memory) algorithm: Algorithm,
    pub(in crate::store::memory) from: Micros,
    pub(in crate::store::memory) until: Micros,
}

impl Override {
    /// As long as this, beginning no later than now.
    pub(super) fn moved_back(self, now: Micros) -> Self {
        let from = self.from.min(now);
        let length = self.until.saturating_sub(self.from);
        Self {
            from,
            until: from.saturating_add(length),
            ..self
        }
    }
}

impl Exception {
    /// The time of the latest change.
    pub(in crate::store::memory) fn latest(&self) -> Micros {
        Micros::new(self.latest.load(Ordering::Relaxed))
    }

    pub(in crate::store::memory) fn set_latest(&self, latest: Micros) {
        self.latest.store(latest.get(), Ordering::Relaxed);
    }

    pub(in crate::store::memory) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store::memory) fn is_of(&self, fingerprint: u64) -> bool {
        self.held().fingerprint == fingerprint
    }

    /// Reads something of this key, if nothing has changed since the glance.
    #[inline(never)]
    pub(in crate::store::memory) fn look<A: Act>(
        &self,
        base: &dyn Base,
        glance: &Glance,
        (ask, now): (Ask, Micros),
        act: A,
    ) -> Result<A::Result, Changed> {
        let mut held = self.held();
        if held.fingerprint != ask.fingerprint || !self.version.still_is(glance.seen()) {
            return Err(Changed);
        }
        Ok(held.act(base, now, act))
    }

    /// What is told of it, if nothing has changed since the glance.
    #[inline(never)]
    pub(in crate::store::memory) fn told(
        &self,
        base: &dyn Base,
        glance: &Glance,
        (ask, now): (Ask, Micros),
        act: impl Act<Result = Outcome>,
    ) -> Result<Outcome, Changed> {
        let mut held = self.held();
        if held.fingerprint != ask.fingerprint || !self.version.still_is(glance.seen()) {
            return Err(Changed);
        }
        Ok(held.told(base, now, act))
    }

    /// Charges it. It is locked.
    #[inline(never)]
    pub(in crate::store::memory) fn charge(
        &self,
        base: &dyn Base,
        cost: u32,
        now: Micros,
    ) -> Outcome {
        self.set_latest(now);
        self.held().told(base, now, Charge(cost))
    }

    /// Moves what is kept back to now. It is locked.
    #[inline(never)]
    pub(in crate::store::memory) fn step_back(&self, base: &dyn Base, now: Micros) {
        let mut held = self.held();
        held.limit = held.limit.map(|limit| limit.moved_back(now));
        held.act(base, now, StepBack);
        self.set_latest(now);
    }
}

impl Held {
    /// The limit at this moment, if it is not that of the policy.
    fn limit_at(&self, now: Micros) -> Option<Override> {
        self.limit.filter(|limit| now < limit.until)
    }

    /// The limit at this moment, if it is not that of the policy, and the state.
    pub(in crate::store::memory) fn as_of(&self, now: Micros) -> (Option<Override>, State) {
        (self.limit_at(now), self.state.clone())
    }

    /// Does something under the limit of this moment.
    pub(in crate::store::memory) fn act<A: Act>(
        &mut self,
        base: &dyn Base,
        now: Micros,
        act: A,
    ) -> A::Result {
        let (limit, state) = self.as_of(now);
        let (result, state) = match limit {
            Some(limit) => limit.algorithm.with_rule(Acting { state, now, act }),
            None => act.under(base, state, now),
        };
        if A::CHANGES {
            (self.limit, self.state) = (limit, state);
        }
        result
    }

    /// What is told by an act, which says so if the limit is not the policy's.
    pub(in crate::store::memory) fn told(
        &mut self,
        base: &dyn Base,
        now: Micros,
        act: impl Act<Result = Outcome>,
    ) -> Outcome {
        let limit = self.limit_at(now);
        let outcome = self.act(base, now, act);
        match limit {
            Some(limit) => outcome.overridden(limit.algorithm.period()),
            None => outcome,
        }
    }
}

/// Something to be done with what is kept of a key.
pub(in crate::store::memory) trait Act {
    type Result;

    const CHANGES: bool = true;

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> Self::Result;

    /// The same under a rule of any type.
    fn under(self, base: &dyn Base, state: State, now: Micros) -> (Self::Result, State);
}

/// A rule of any type. Keys beside the pages are few: what is done with them is compiled once for each rule, and
/// not for each table and each act.
pub(in crate::store::memory) trait Base {
    fn allows(&self, act: Allows, state: State, now: Micros) -> (bool, State);

    fn tell(&self, act: Telling, state: State, now: Micros) -> (Outcome, State);

    fn change(&self, act: Change, state: State, now: Micros) -> ((), State);

    /// How far from new it is.
    fn distance(&self, state: State, now: Micros) -> u64;
}

/// An act that tells something.
pub(in crate::store::memory) enum Telling {
    Tell(Tell),
    Foretell(Foretell),
    Charge(Charge),
}

/// An act that tells nothing.
pub(in crate::store::memory) enum Change {
    StepBack(StepBack),
    Amend(Amend),
    Settle(Settle),
}

impl<S: Step> Base for S {
    #[inline(never)]
    fn allows(&self, act: Allows, state: State, now: Micros) -> (bool, State) {
        with(self, state, now, act)
    }

    #[inline(never)]
    fn tell(&self, act: Telling, state: State, now: Micros) -> (Outcome, State) {
        with(self, state, now, act)
    }

    #[inline(never)]
    fn change(&self, act: Change, state: State, now: Micros) -> ((), State) {
        with(self, state, now, act)
    }

    fn distance(&self, state: State, now: Micros) -> u64 {
        with(self, state, now, Distance).0
    }
}

/// Acts on a state under a rule that tells all of it.
fn with<S: Step, D: Does>(rule: &S, state: State, now: Micros, does: D) -> (D::Result, State) {
    match rule.with_whole(With { state, now, does }) {
        Ok(done) => done,
        Err(with) => with.under(rule),
    }
}

/// What is done with what any rule keeps.
trait Does {
    type Result;

    fn on<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> Self::Result;
}

impl Does for Allows {
    type Result = bool;

    fn on<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> bool {
        self.act(rule, kept, now)
    }
}

impl Does for Telling {
    type Result = Outcome;

    fn on<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> Outcome {
        match self {
            Self::Tell(act) => act.act(rule, kept, now),
            Self::Foretell(act) => act.act(rule, kept, now),
            Self::Charge(act) => act.act(rule, kept, now),
        }
    }
}

impl Does for Change {
    type Result = ();

    fn on<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) {
        match self {
            Self::StepBack(act) => act.act(rule, kept, now),
            Self::Amend(act) => act.act(rule, kept, now),
            Self::Settle(act) => act.act(rule, kept, now),
        }
    }
}

struct Distance;

impl Does for Distance {
    type Result = u64;

    fn on<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> u64 {
        rule.distance(kept, now)
    }
}

struct With<D> {
    state: State,
    now: Micros,
    does: D,
}

impl<D: Does> With<D> {
    fn under<S: Step>(self, rule: &S) -> (D::Result, State) {
        let mut kept = read(rule, self.state, self.now);
        let result = self.does.on(rule, &mut kept, self.now);
        (result, rule.write(kept))
    }
}

impl<D: Does> WithRule for With<D> {
    type Result = (D::Result, State);

    fn fixed(self, rule: impl Fixed) -> Self::Result {
        self.under(&rule)
    }

    fn long(self, rule: impl Step<Kept = State>) -> Self::Result {
        self.under(&rule)
    }
}

struct Acting<A> {
    state: State,
    now: Micros,
    act: A,
}

impl<A: Act> WithRule for Acting<A> {
    type Result = (A::Result, State);

    fn fixed(self, rule: impl Fixed) -> Self::Result {
        self.act.under(&rule, self.state, self.now)
    }

    fn long(self, rule: impl Step<Kept = State>) -> Self::Result {
        self.act.under(&rule, self.state, self.now)
    }
}

/// What a clock that has stepped back begins with.
pub(in crate::store::memory) struct StepBack;

impl Act for StepBack {
    type Result = ();

    /// What was read is moved back already.
    fn act<S: Step>(self, _: &S, _: &mut S::Kept, _: Micros) {}

    fn under(self, base: &dyn Base, state: State, now: Micros) -> ((), State) {
        base.change(Change::StepBack(self), state, now)
    }
}

/// Whether a request of this cost is allowed.
pub(in crate::store::memory) struct Allows(pub(in crate::store::memory) u32);

impl Act for Allows {
    type Result = bool;

    const CHANGES: bool = false;

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> bool {
        rule.allows(kept, now, self.0)
    }

    fn under(self, base: &dyn Base, state: State, now: Micros) -> (bool, State) {
        base.allows(self, state, now)
    }
}

/// What a request of this cost is told that is not charged.
pub(in crate::store::memory) struct Tell {
    pub(in crate::store::memory) cost: u32,
    pub(in crate::store::memory) allowed: bool,
}

impl Act for Tell {
    type Result = Outcome;

    const CHANGES: bool = false;

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> Outcome {
        rule.outcome(kept, now, self.cost, self.allowed)
    }

    fn under(self, base: &dyn Base, state: State, now: Micros) -> (Outcome, State) {
        base.tell(Telling::Tell(self), state, now)
    }
}

/// What a request of this cost would be told if it was charged.
pub(in crate::store::memory) struct Foretell(pub(in crate::store::memory) u32);

impl Act for Foretell {
    type Result = Outcome;

    const CHANGES: bool = false;

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> Outcome {
        Charge(self.0).act(rule, kept, now)
    }

    fn under(self, base: &dyn Base, state: State, now: Micros) -> (Outcome, State) {
        base.tell(Telling::Foretell(self), state, now)
    }
}

/// Charges a request that is allowed.
pub(in crate::store::memory) struct Charge(pub(in crate::store::memory) u32);

impl Act for Charge {
    type Result = Outcome;

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) -> Outcome {
        rule.charge(kept, now, self.0);
        rule.outcome(kept, now, self.0, true)
    }

    fn under(self, base: &dyn Base, state: State, now: Micros) -> (Outcome, State) {
        base.tell(Telling::Charge(self), state, now)
    }
}

/// An amendment of this cost.
pub(in crate::store::memory) struct Amend(
    pub(in crate::store::memory) u32,
    pub(in crate::store::memory) Amendment,
);

impl Act for Amend {
    type Result = ();

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) {
        amend(rule, kept, now, self.0, self.1);
    }

    fn under(self, base: &dyn Base, state: State, now: Micros) -> ((), State) {
        base.change(Change::Amend(self), state, now)
    }
}

/// Charges so much after the fact.
pub(in crate::store::memory) struct Settle(pub(in crate::store::memory) u32);

impl Act for Settle {
    type Result = ();

    fn act<S: Step>(self, rule: &S, kept: &mut S::Kept, now: Micros) {
        if rule.limit() > 0 {
            rule.settle(kept, now, self.0);
        }
    }

    fn under(self, base: &dyn Base, state: State, now: Micros) -> ((), State) {
        base.change(Change::Settle(self), state, now)
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{FixedWindow, SlidingWindow};
    use crate::clock::{Clock, ManualClock};
    use crate::store::memory::cell::Word;
    use crate::store::memory::counter::{Counter, Told, decide};
    use crate::store::memory::table::Table;

    fn ask(cost: u32) -> Ask {
        Ask {
            fingerprint: 7,
            cost,
        }
    }

    fn allows<S: Step>(table: &Table<S, Word>, clock: &ManualClock, cost: u32) -> bool
    where
        Word: crate::store::memory::cell::Keeps<S>,
    {
        let told: Option<&mut Told<'_>> = None;
        decide(table, ask(cost), clock.now(), clock, told)
    }

    fn stands_beside<S: Step>(table: &Table<S, Word>) -> bool
    where
        Word: crate::store::memory::cell::Keeps<S>,
    {
        table.exceptions.find(7).is_some()
    }

    #[test]
    fn one_takes_what_the_documentation_of_the_store_counts_with() {
        assert!(size_of::<Exception>() <= 160, "{}", size_of::<Exception>());
    }

    #[test]
    fn a_count_that_fits_no_word_stands_beside_the_pages_until_it_counts_no_more() {
        let clock = ManualClock::new();
        let table = Table::<_, Word>::new(SlidingWindow::per_minute(5), Micros::LONGEST, 100);
        assert!(allows(&table, &clock, 1));
        Counter::settle(&table, ask(10), &clock);
        assert!(!stands_beside(&table));
        Counter::settle(&table, ask(10), &clock);
        assert!(stands_beside(&table));
        clock.advance(Duration::from_secs(60));
        assert!(!allows(&table, &clock, 1));
        assert!(stands_beside(&table));
        clock.advance(Duration::from_secs(60));
        assert!(allows(&table, &clock, 1));
        assert!(!stands_beside(&table));
        assert!(!table.exceptions.are_any());
        assert_eq!(table.fill().keys, 1);
    }

    #[test]
    fn a_key_goes_back_to_its_page_when_its_own_limit_has_ended() {
        let clock = ManualClock::new();
        let table = Table::<_, Word>::new(FixedWindow::per_day(5), Micros::LONGEST, 100);
        assert!(allows(&table, &clock, 4));
        assert_eq!(table.fill().keys, 1);
        let minute = Micros::from_secs(60);
        let own = Some((FixedWindow::per_day(9).into(), minute));
        Counter::override_limit(&table, 7, own, &clock).unwrap();
        assert_eq!(table.fill().keys, 0);
        assert!(allows(&table, &clock, 4));
        clock.advance(Duration::from_secs(60));
        assert!(!allows(&table, &clock, 1));
        assert!(!stands_beside(&table));
        assert_eq!(table.fill().keys, 1);
        Counter::amend(&table, ask(4), &clock, Amendment::Refund);
        assert!(allows(&table, &clock, 1));
        assert!(!allows(&table, &clock, 1));
    }
}
