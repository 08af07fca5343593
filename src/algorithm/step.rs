use super::State;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of one algorithm, as pure functions on integers.
///
/// Asking and telling are apart, because most questions need no more than [`admit`](Self::admit).
/// All but [`moved_back`](Self::moved_back) expect a state that it has returned.
pub(super) trait Step {
    /// The most that can be admitted at one instant.
    fn limit(&self) -> u32;

    /// How long a key that has used up its limit waits for the whole of it, at most.
    fn longest_wait(&self) -> Option<Micros>;

    /// The state, or if no request at or before `now` could have left it, the nearest one that
    /// could: its counts and its debt are kept, its times become `now`.
    fn moved_back(&self, state: State, now: Micros) -> State;

    /// The state after this request, or `None` if it is denied. A cost of 0 changes nothing.
    fn admit(&self, state: State, now: Micros, cost: u32) -> Option<State>;

    /// How many further requests of cost 1 would be allowed at this instant.
    fn remaining(&self, state: State, now: Micros) -> u32;

    /// How long until the key is as good as new.
    fn reset_after(&self, state: State, now: Micros) -> Micros;

    /// How long a request of this cost, which is denied now, has to wait.
    fn retry_after(&self, state: State, now: Micros, cost: u32) -> Option<Micros>;

    /// How long what remains has to last for a client that wants no refusal.
    fn effective_window(&self, state: State, now: Micros) -> Option<Micros>;

    fn allowed(&self, state: State, now: Micros) -> Outcome {
        Outcome {
            allowed: true,
            limit: self.limit(),
            remaining: self.remaining(state, now),
            reset_after: self.reset_after(state, now),
            effective_window: self.effective_window(state, now),
            retry_after: None,
        }
    }

    fn denied(&self, state: State, now: Micros, cost: u32) -> Outcome {
        Outcome {
            allowed: false,
            retry_after: self.retry_after(state, now, cost),
            ..self.allowed(state, now)
        }
    }
}
