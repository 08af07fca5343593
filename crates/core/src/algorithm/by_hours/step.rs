//! The rule of an algorithm whose limit depends on the hour.
//!
//! Each function calls the rule of the limit in force. Two cases need more:
//!
//! - A debt drains at the rate in force at each moment. A debt from before the last switch is computed as of
//!   each switch in turn first. Windows, logs and slots keep counts, which are the same under all limits.
//! - A wait may end after the next switch, when the limit is another. [`Timed::first`] finds the first moment
//!   at which the limit in force then admits the request.

use std::marker::PhantomData;

use smallvec::SmallVec;

use super::ByHours;
use crate::algorithm::calendar_window::{CalendarWindow, Packed as PackedCalendar};
use crate::algorithm::step::{Fixed, Pack, Step};
use crate::algorithm::{Algorithm, AnchoredWindow, AnyLong, AnyRule, FixedWindow, State};
use crate::calendar::Stretch;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of algorithms of one form of states.
pub(crate) trait OfAlgorithm: Step {
    /// Returns the rule of an algorithm of these hours.
    fn of(hours: ByHours, algorithm: Algorithm) -> Self;

    /// Returns the moment as of which a debt is stated, or `None` if there is no debt, or nothing drains.
    fn owes_since(state: &Self::Form) -> Option<Micros>;
}

impl OfAlgorithm for AnyRule {
    #[inline]
    fn of(_: ByHours, algorithm: Algorithm) -> Self {
        Self::new(algorithm)
    }

    fn owes_since(&[since, owed @ ..]: &[u64; 3]) -> Option<Micros> {
        (owed != [0; 2]).then_some(Micros::new(since))
    }
}

impl OfAlgorithm for AnyLong {
    fn of(_: ByHours, algorithm: Algorithm) -> Self {
        Self::new(algorithm)
    }

    fn owes_since(_: &State) -> Option<Micros> {
        None
    }
}

/// Implements the rule of one kind of windows, whose states are the same under all limits. No schedule mixes
/// kinds: for any other algorithm there is a rule that denies.
macro_rules! of_windows {
    ($kind:ident) => {
        impl OfAlgorithm for $kind {
            #[inline]
            fn of(_: ByHours, algorithm: Algorithm) -> Self {
                match algorithm {
                    Algorithm::$kind(window) => window,
                    _ => Self::per_day(0),
                }
            }

            #[inline]
            fn owes_since(_: &Self::Form) -> Option<Micros> {
                None
            }
        }
    };
}

of_windows!(FixedWindow);
of_windows!(AnchoredWindow);

impl OfAlgorithm for PackedCalendar {
    #[inline]
    fn of(hours: ByHours, algorithm: Algorithm) -> Self {
        Self::within_a_word(match algorithm {
            Algorithm::CalendarWindow(window) => window,
            _ => CalendarWindow::per_day_in(hours.timetable().zone(), 0),
        })
    }

    #[inline]
    fn owes_since(_: &Self::Form) -> Option<Micros> {
        None
    }
}

/// The rule under the limits of a timetable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed<R> {
    hours: ByHours,
    /// The index of the limit that holds at all hours, in a rule that judges a key under that limit.
    always: Option<u8>,
    rule: PhantomData<R>,
}

/// The number of steps of a walk through the timetable for which a debt drains exactly: three years and more,
/// if the limit changes twice a day. The rest then drains at the least rate of all hours, so that no told
/// wait is too short.
///
/// A denied request walks as far as its debt lasts, and without a bound a client could make slow requests.
const MOST_STEPS: usize = 4_096;

/// A state as of the present stretch, and the number of steps that are left of the walk.
struct CaughtUp<K> {
    state: K,
    steps: usize,
}

impl<R: OfAlgorithm> Timed<R> {
    #[inline]
    pub(crate) fn new(hours: ByHours) -> Self {
        Self {
            hours,
            always: None,
            rule: PhantomData,
        }
    }

    #[inline]
    fn under(&self, algorithm: Algorithm) -> R {
        R::of(self.hours, algorithm)
    }

    /// Returns the rule under the limit that holds outside all intervals.
    fn plain(&self) -> R {
        self.under(self.hours.plain())
    }

    /// Returns whether a state is a debt.
    #[inline]
    fn drains(&self) -> bool {
        self.hours.drains()
    }

    #[inline]
    fn rule(&self, stretch: Stretch) -> R {
        self.under(self.hours.in_force(self.always.unwrap_or(stretch.place)))
    }

    /// Returns the rule with the least rate and the largest size of all intervals.
    fn slowest(&self) -> R {
        self.under(self.hours.slowest())
    }

    /// Calls the rule in force with the state, which is stated as of now if the limit has changed since.
    #[inline]
    fn ask<T>(&self, state: &R::Form, now: Micros, ask: impl FnOnce(&R, &R::Form) -> T) -> T {
        let present = self.hours.timetable().at(now);
        let rule = self.rule(present);
        match self.caught_up(state, present) {
            Some(caught_up) => ask(&rule, &caught_up.state),
            None => ask(&rule, state),
        }
    }

    #[inline]
    fn change(&self, state: &mut R::Form, now: Micros, change: impl FnOnce(&R, &mut R::Form)) {
        let present = self.hours.timetable().at(now);
        if let Some(caught_up) = self.caught_up(state, present) {
            *state = caught_up.state;
        }
        change(&self.rule(present), state);
    }

    /// Returns a debt from before this stretch, as of its beginning.
    #[inline]
    fn caught_up(&self, state: &R::Form, present: Stretch) -> Option<CaughtUp<R::Form>> {
        let since = R::owes_since(state).filter(|_| self.drains())?;
        (since < present.span.from).then(|| self.drained_until(state, since, present.span.from))
    }

    #[cold]
    fn drained_until(&self, state: &R::Form, since: Micros, now: Micros) -> CaughtUp<R::Form> {
        let mut state = state.clone();
        let mut walk = self.hours.timetable().walk(since, MOST_STEPS);
        while let Some(stretch) = walk.next() {
            if stretch.span.until > now || R::owes_since(&state).is_none() {
                let steps = walk.steps();
                return CaughtUp { state, steps };
            }
            self.rule(stretch).refund(&mut state, stretch.span.until, 0);
        }
        self.slowest().refund(&mut state, now, 0);
        CaughtUp { state, steps: 0 }
    }

    /// Returns the time until the first moment at which the limit in force then admits something, if nothing
    /// is charged meanwhile. `wait` returns that time under one limit, from any moment on, or `None` if it
    /// never does. A limit that admits it once admits it at any later time.
    fn first(
        &self,
        state: &R::Form,
        now: Micros,
        wait: impl Fn(&R, &R::Form, Micros) -> Option<Micros>,
    ) -> Option<Micros> {
        let present = self.hours.timetable().at(now);
        let caught_up = self.caught_up(state, present);
        let caught_up = caught_up.unwrap_or_else(|| CaughtUp {
            state: state.clone(),
            steps: MOST_STEPS,
        });
        self.first_of(caught_up, now, wait)
    }

    /// Returns that moment for a state that is caught up.
    fn first_of(
        &self,
        CaughtUp { mut state, steps }: CaughtUp<R::Form>,
        now: Micros,
        wait: impl Fn(&R, &R::Form, Micros) -> Option<Micros>,
    ) -> Option<Micros> {
        let mut at = now;
        if self.drains() {
            for stretch in self.hours.timetable().walk(now, steps) {
                let rule = self.rule(stretch);
                let until = stretch.span.until;
                if let Some(wait) = wait(&rule, &state, at)
                    && at.saturating_add(wait) < until
                {
                    return Some(at.saturating_add(wait).saturating_sub(now));
                }
                if R::owes_since(&state).is_none() {
                    break;
                }
                rule.refund(&mut state, until, 0);
                at = until;
            }
            if R::owes_since(&state).is_some() {
                let slowest = self.slowest();
                at = at.saturating_add(slowest.reset_after(&state, at));
                state = R::Form::default();
            }
        }
        let found = self.first_of_what_stays(&state, at, wait)?;
        Some(found.saturating_sub(now))
    }

    /// Returns that moment for a state that all limits read alike.
    #[cold]
    fn first_of_what_stays(
        &self,
        state: &R::Form,
        at: Micros,
        wait: impl Fn(&R, &R::Form, Micros) -> Option<Micros>,
    ) -> Option<Micros> {
        let timetable = self.hours.timetable();
        let moment = |place| {
            if !timetable.recurs_from(place, at) {
                return None;
            }
            let wait = wait(&self.under(self.hours.in_force(place)), state, at)?;
            Some(at.saturating_add(wait))
        };
        let moments: SmallVec<[Option<Micros>; 8]> = self.hours.places().map(moment).collect();
        // From here on a limit admits it as soon as it is in force.
        let mut walk = timetable.walk(*moments.iter().flatten().min()?, MOST_STEPS);
        walk.find_map(|Stretch { span, place }| {
            let moment = (*moments.get(usize::from(place))?)?;
            (moment < span.until).then(|| span.from.max(moment).max(at))
        })
    }

    /// Returns the outcome of the limit in force, corrected where a part of it lies beyond the next switch.
    /// It uses the state from before it was caught up, so that it walks no further than the next request.
    #[cold]
    fn corrected_beyond(
        &self,
        outcome: Outcome,
        state: &R::Form,
        now: Micros,
        cost: u32,
    ) -> Outcome {
        let admitted = |cost| self.first(state, now, admitted_at(cost));
        // An outcome with a limit of 0 has no reset.
        let mut outcome = if self.drains() || outcome.limit() == 0 {
            outcome.resetting(self.reset_after(state, now))
        } else {
            outcome
        };
        let mut next = None;
        if outcome.remaining() == 0 {
            next = Some(admitted(1));
            if let Some(Some(next)) = next {
                outcome = outcome.lasting(next);
            }
        }
        if !outcome.is_allowed() {
            let again = next.filter(|_| cost == 1);
            return outcome.denied(again.unwrap_or_else(|| admitted(cost)));
        }
        match outcome.delay_micros() {
            Micros::ZERO => outcome,
            _ => outcome.delayed(self.delay(state, now, cost)),
        }
    }
}

/// Returns the time under one limit until a request of this cost is allowed, or `None` if it never is.
fn admitted_at<R: Step>(cost: u32) -> impl Fn(&R, &R::Form, Micros) -> Option<Micros> {
    move |rule, state, at| {
        if rule.allows(state, at, cost) {
            return Some(Micros::ZERO);
        }
        let can_pass = (1..=rule.limit()).contains(&cost);
        can_pass.then(|| rule.retry_after(state, at, cost))
    }
}

impl<R: OfAlgorithm> Step for Timed<R> {
    type Form = R::Form;

    fn read(&self, state: State) -> R::Form {
        self.plain().read(state)
    }

    fn write(&self, state: R::Form) -> State {
        self.plain().write(state)
    }

    fn limit(&self) -> u32 {
        self.plain().limit()
    }

    fn limit_at(&self, now: Micros) -> u32 {
        self.rule(self.hours.timetable().at(now)).limit()
    }

    fn window(&self) -> Micros {
        self.plain().window()
    }

    fn longest_wait(&self) -> Micros {
        self.slowest().longest_wait()
    }

    fn moved_back(&self, state: &R::Form, now: Micros) -> Option<R::Form> {
        self.rule(self.hours.timetable().at(now))
            .moved_back(state, now)
    }

    #[inline]
    fn admits(&self, state: &R::Form, now: Micros, cost: u32) -> bool {
        self.ask(state, now, |rule, state| rule.admits(state, now, cost))
    }

    #[inline]
    fn allows(&self, state: &R::Form, now: Micros, cost: u32) -> bool {
        self.ask(state, now, |rule, state| rule.allows(state, now, cost))
    }

    #[inline]
    fn charge(&self, state: &mut R::Form, now: Micros, cost: u32) {
        self.change(state, now, |rule, state| rule.charge(state, now, cost));
    }

    fn settle(&self, state: &mut R::Form, now: Micros, units: u32) {
        self.change(state, now, |rule, state| {
            if rule.limit() > 0 {
                rule.settle(state, now, units);
            }
        });
    }

    fn refund(&self, state: &mut R::Form, now: Micros, units: u32) {
        self.change(state, now, |rule, state| rule.refund(state, now, units));
    }

    /// Turns that begin after the next switch are the last if the debt before them drains through the
    /// switches by then.
    fn are_last(&self, state: &R::Form, now: Micros, turns: u32, begins: Micros) -> bool {
        if begins < self.hours.timetable().at(now).span.until {
            let of_rule = |rule: &R, state: &R::Form| rule.are_last(state, now, turns, begins);
            return self.ask(state, now, of_rule);
        }
        let last = now.saturating_add(self.delay(state, now, turns));
        last == begins || last.saturating_add(Micros::new(1)) == begins
    }

    fn remaining(&self, state: &R::Form, now: Micros) -> u32 {
        self.ask(state, now, |rule, state| rule.remaining(state, now))
    }

    fn distance(&self, state: &R::Form, now: Micros) -> u64 {
        self.ask(state, now, |rule, state| rule.distance(state, now))
    }

    fn reset_after(&self, state: &R::Form, now: Micros) -> Micros {
        if !self.drains() {
            return self.ask(state, now, |rule, state| rule.reset_after(state, now));
        }
        let reset = self.first(state, now, |rule, state, at| {
            Some(rule.reset_after(state, at))
        });
        reset.unwrap_or(Micros::LONGEST)
    }

    fn strictest(&self) -> Self {
        Self {
            always: Some(self.hours.least()),
            ..*self
        }
    }

    fn retry_after(&self, state: &R::Form, now: Micros, cost: u32) -> Micros {
        if self.always.is_some() {
            return self.ask(state, now, |rule, state| rule.retry_after(state, now, cost));
        }
        self.first(state, now, admitted_at(cost))
            .unwrap_or(Micros::LONGEST)
    }

    fn effective_window(&self, state: &R::Form, now: Micros) -> Micros {
        self.ask(state, now, |rule, state| rule.effective_window(state, now))
    }

    fn delay(&self, state: &R::Form, now: Micros, cost: u32) -> Micros {
        let delay = self.first(state, now, |rule, state, at| {
            Some(rule.delay(state, at, cost))
        });
        delay.unwrap_or(Micros::ZERO)
    }

    fn size(&self, state: &R::Form) -> usize {
        self.plain().size(state)
    }

    fn compact_state(&self, state: &mut R::Form) {
        self.plain().compact_state(state);
    }

    #[inline]
    fn outcome(&self, state: &R::Form, now: Micros, cost: u32, allowed: bool) -> Outcome {
        let present = self.hours.timetable().at(now);
        let rule = self.rule(present);
        let mut outcome = match self.caught_up(state, present) {
            Some(caught_up) => rule.outcome(&caught_up.state, now, cost, allowed),
            None => rule.outcome(state, now, cost, allowed),
        };
        if let (true, window) = self.hours.window_of(present.place) {
            outcome.put_within(window);
        }
        if self.is_within_stretch(&outcome, present.span.until.saturating_sub(now)) {
            return outcome;
        }
        self.corrected_beyond(outcome, state, now, cost)
    }
}

impl<R: OfAlgorithm> Timed<R> {
    /// Returns whether no part of this outcome lies beyond the next switch, which is this far away.
    #[inline]
    fn is_within_stretch(&self, outcome: &Outcome, left: Micros) -> bool {
        if outcome.is_allowed() && !self.drains() && outcome.remaining() > 0 && outcome.limit() > 0
        {
            // Counts reset at the same moment under all limits.
            return true;
        }
        let is_seen =
            outcome.is_allowed() || outcome.retry_micros().is_some_and(|wait| wait < left);
        let ends_before = outcome.reset_micros() < left
            && outcome.delay_micros() < left
            && outcome
                .effective_micros()
                .is_none_or(|window| window < left);
        is_seen && ends_before && outcome.limit() > 0
    }
}

impl Fixed for Timed<AnyRule> {
    fn words(&self, state: [u64; 3]) -> [u64; 3] {
        state
    }

    fn of_words(&self, words: [u64; 3]) -> [u64; 3] {
        words
    }
}

/// Only windows fit one word: their counts are the same under all limits.
impl<R: OfAlgorithm + Pack> Timed<R> {
    /// Returns the rule with the most units, whose words hold those of all.
    #[inline]
    fn widest(&self) -> R {
        self.under(self.hours.widest())
    }
}

impl<R: OfAlgorithm + Pack> Pack for Timed<R> {
    fn packs_until(&self) -> Micros {
        self.widest().packs_until()
    }

    #[inline]
    fn pack(&self, state: R::Form) -> u64 {
        self.widest().pack(state)
    }

    #[inline]
    fn unpack(&self, word: u64, latest: Micros) -> R::Form {
        self.widest().unpack(word, latest)
    }

    fn packs(&self, state: R::Form, now: Micros) -> bool {
        self.widest().packs(state, now)
    }

    fn fits(&self, state: &State, now: Micros) -> bool {
        self.widest().fits(state, now)
    }
}
