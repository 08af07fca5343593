use super::State;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of one algorithm, as pure functions on integers.
///
/// Asking, charging and telling are apart: a refusal only reads, and of several policies none
/// is charged before all have been asked. A room sees costs from 1 to its limit only, and only
/// states that [`moved_back`](Self::moved_back) has nothing to say about.
pub(super) trait Step {
    /// The most that can be admitted at one instant; 0 if nothing ever can.
    fn limit(&self) -> u32;

    /// The time for which the limit is meant: a window's period; the time in which an empty
    /// bucket fills.
    fn window(&self) -> Micros;

    /// How long a key that has used up its limit waits for the whole of it, at most.
    fn longest_wait(&self) -> Micros;

    /// If no request at or before `now` could have left this state, the nearest one that could:
    /// times are no later than `now`, and a debt is no more than the capacity.
    fn moved_back(&self, state: &State, now: Micros) -> Option<State>;

    /// Whether a request of this cost is allowed.
    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool;

    /// Charges a request that is allowed.
    fn charge(&self, state: &mut State, now: Micros, cost: u32);

    /// How many further requests of cost 1 would be allowed at this instant.
    fn remaining(&self, state: &State, now: Micros) -> u32;

    /// How long until the key is as good as new.
    fn reset_after(&self, state: &State, now: Micros) -> Micros;

    /// How long a request of this cost, which is denied now, has to wait.
    fn retry_after(&self, state: &State, now: Micros, cost: u32) -> Micros;

    /// How long what remains has to last for a client that wants no refusal.
    fn effective_window(&self, state: &State, now: Micros) -> Micros;

    /// How long until one more unit remains than now; the window, if the limit is whole.
    fn next_unit(&self, state: &State, now: Micros) -> Micros {
        match self.remaining(state, now) {
            remaining if remaining < self.limit() => self.retry_after(state, now, remaining + 1),
            _ => self.window(),
        }
    }

    /// Whether a request of any cost is allowed. One of cost 0 only asks.
    fn allows(&self, state: &State, now: Micros, cost: u32) -> bool {
        match cost {
            0 => self.limit() > 0,
            cost => cost <= self.limit() && self.admits(state, now, cost),
        }
    }

    /// What is told of a request that is allowed, after its charge.
    fn allowed(&self, state: &State, now: Micros) -> Outcome {
        let limit = self.limit();
        if limit == 0 {
            return Outcome::allowed(0, 0, Micros::ZERO);
        }
        let remaining = self.remaining(state, now);
        Outcome::allowed(limit, remaining, self.reset_after(state, now))
            .lasting(self.effective_window(state, now))
    }

    /// What is told of a request that is denied.
    fn denied(&self, state: &State, now: Micros, cost: u32) -> Outcome {
        let can_pass = (1..=self.limit()).contains(&cost);
        let retry_after = can_pass.then(|| self.retry_after(state, now, cost));
        self.allowed(state, now).denied(retry_after)
    }
}
