//! The operations of an algorithm that a store needs besides decisions.

use crate::algorithm::{Algorithm, Fixed, State, Step, WithRule, read};
use crate::clock::Micros;
use crate::decision::Outcome;

/// Returns the outcome of a request without a charge, which passes if it `needs` no more units than are left. A state that no request by `now` can have left is moved
/// back, and returned as it is then.
pub(super) fn look(
    algorithm: &Algorithm,
    state: State,
    now: Micros,
    (cost, needs): (u32, u32),
) -> (Outcome, Option<State>) {
    struct Look(State, Micros, (u32, u32));

    impl Look {
        fn under<S: Step>(self, rule: &S) -> (Outcome, Option<State>) {
            let Self(state, now, (cost, needs)) = self;
            let mut state = rule.read(state);
            let moved = rule.moved_back(&state, now);
            let is_moved = moved.is_some();
            if let Some(moved) = moved {
                state = moved;
            }
            let allowed = rule.allows(&state, now, needs);
            let outcome = rule.outcome(&state, now, cost, allowed);
            (outcome, is_moved.then(|| rule.write(state)))
        }
    }

    impl WithRule for Look {
        type Result = (Outcome, Option<State>);

        fn fixed(self, rule: impl Fixed) -> Self::Result {
            self.under(&rule)
        }

        fn long(self, rule: impl Step<Form = State>) -> Self::Result {
            self.under(&rule)
        }
    }

    algorithm.with_rule(Look(state, now, (cost, needs)))
}

/// Returns how long the state says anything. Under a limit of 0 too, where no outcome has that time: another
/// limit may follow.
pub(super) fn lasts(algorithm: &Algorithm, state: State, now: Micros) -> Micros {
    struct Lasts(State, Micros);

    impl Lasts {
        fn under<S: Step>(self, rule: &S) -> Micros {
            let Self(state, now) = self;
            rule.reset_after(&read(rule, state, now), now)
        }
    }

    impl WithRule for Lasts {
        type Result = Micros;

        fn fixed(self, rule: impl Fixed) -> Micros {
            self.under(&rule)
        }

        fn long(self, rule: impl Step<Form = State>) -> Micros {
            self.under(&rule)
        }
    }

    algorithm.with_rule(Lasts(state, now))
}

/// Returns the state without the turns of a request of this cost that was to leave at `departure`, if these
/// are the last, and whether they are.
pub(super) fn give_back(
    algorithm: &Algorithm,
    state: State,
    now: Micros,
    cost: u32,
    departure: Micros,
) -> (State, bool) {
    struct GiveBack(State, Micros, u32, Micros);

    impl GiveBack {
        fn under<S: Step>(self, rule: &S) -> (State, bool) {
            let Self(state, now, cost, departure) = self;
            let mut state = rule.read(state);
            if let Some(moved) = rule.moved_back(&state, now) {
                state = moved;
            }
            let are_last = rule.give_back(&mut state, now, cost, departure);
            (rule.write(state), are_last)
        }
    }

    impl WithRule for GiveBack {
        type Result = (State, bool);

        fn fixed(self, rule: impl Fixed) -> Self::Result {
            self.under(&rule)
        }

        fn long(self, rule: impl Step<Form = State>) -> Self::Result {
            self.under(&rule)
        }
    }

    algorithm.with_rule(GiveBack(state, now, cost, departure))
}
