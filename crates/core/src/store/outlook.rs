//! What a store keeps of the keys of a request, from which its later outcomes are computed.

use std::mem;

use smallvec::SmallVec;

use crate::algorithm::{Algorithm, Limit, State};
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};

/// The answer to a [peek](super::Backend::peek) with the state of each key, as
/// [`Backend::outlook`](super::Backend::outlook) returns it.
///
/// A layer computes from it how long a request waits behind others.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Outlook {
    pub outcomes: Outcomes,
    pub keys: SmallVec<[KeyOutlook; 4]>,
}

/// The state of one key under one policy, and the moment as of which it is known.
#[derive(Clone, Debug)]
pub struct KeyOutlook {
    /// The index of the policy.
    pub policy: usize,
    /// The algorithm of the policy.
    pub algorithm: Algorithm,
    /// The algorithm under the override of the key, if it has one.
    pub own: Option<Algorithm>,
    /// The state of the key.
    pub state: State,
    /// When that was known.
    pub at: Micros,
    /// How much longer the key is blocked.
    pub blocked: Micros,
}

/// Without the states.
impl From<Outcomes> for Outlook {
    fn from(outcomes: Outcomes) -> Self {
        Self {
            outcomes,
            keys: SmallVec::new(),
        }
    }
}

impl Outlook {
    /// Adds a state for this policy, if the store has told none: one that no real state is behind in any wait. All that
    /// is used counts as if it had been charged just now. `cost` is the cost of the request.
    pub(crate) fn complete(&mut self, policy: usize, algorithm: Algorithm, cost: u32) {
        let mut outcomes = self.outcomes.iter();
        if self.keys.iter().all(|key| key.policy != policy)
            && !algorithm.limits_concurrency()
            && let Some((_, outcome)) = outcomes.find(|(of, _)| *of == policy)
        {
            let key = KeyOutlook::of(policy, algorithm, (outcome, cost), self.outcomes.at());
            self.keys.push(key);
        }
    }
}

impl KeyOutlook {
    fn of(
        policy: usize,
        algorithm: Algorithm,
        (outcome, cost): (&Outcome, u32),
        at: Micros,
    ) -> Self {
        let own = algorithm
            .limits()
            .filter(|_| outcome.is_overridden())
            .and_then(|whole| {
                algorithm
                    .without_hours()
                    .under(whole.resized(outcome.limit()))
            });
        // The outcome of an allowed request includes its charge.
        let charged = if outcome.is_allowed() { cost } else { 0 };
        let used = outcome.used().saturating_sub(charged);
        let is_blocked = outcome.is_blocked();
        let blocked = outcome.retry_micros().filter(|_| is_blocked);
        Self {
            policy,
            algorithm,
            own,
            state: algorithm.settle(State::NEW, at, if is_blocked { 0 } else { used }),
            at,
            blocked: blocked.unwrap_or(Micros::ZERO),
        }
    }

    /// Returns the algorithm for a request with this limit.
    fn under(&self, limit: Option<Limit>) -> Algorithm {
        let own = self.own.or_else(|| self.algorithm.under(limit?));
        own.unwrap_or(self.algorithm)
    }

    /// Returns how much longer a request waits, after a time in which nothing else was charged; no time if it passes.
    /// Returns `None` if it never passes.
    pub(crate) fn wait(
        &mut self,
        cost: u32,
        limit: Option<Limit>,
        after: Micros,
    ) -> Option<Micros> {
        let now = self.at.saturating_add(after);
        let blocked = self.blocked.saturating_sub(after);
        let wait;
        (wait, self.state) = self
            .under(limit)
            .wait(mem::take(&mut self.state), now, cost);
        Some(wait?.max(blocked))
    }

    /// Charges a request after a time.
    pub(crate) fn charge(&mut self, cost: u32, limit: Option<Limit>, after: Micros) {
        let now = self.at.saturating_add(after);
        let state = mem::take(&mut self.state);
        (_, self.state) = self.under(limit).step(state, now, cost);
    }
}
