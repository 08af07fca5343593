//! Two servers that could explain the answers: one follows the policy, and one also charges refusals.
//!
//! They only choose the name of a finding, and prove nothing.

use std::time::Duration;

use tower_ratelimit_core::algorithm::State;
use tower_ratelimit_core::{Algorithm, Micros};

use crate::exchange::{Exchange, Verdict};

/// The number of answers that each server would have decided otherwise.
#[derive(Debug)]
pub(super) struct Hypotheses {
    algorithm: Algorithm,
    honest: Server,
    charging: Server,
    decided: u64,
}

#[derive(Debug, Default)]
struct Server {
    state: State,
    wrong: u64,
}

impl Hypotheses {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            honest: Server::default(),
            charging: Server::default(),
            decided: 0,
        }
    }

    pub(super) fn answered(&mut self, answer: &Exchange) {
        // A moment at which no window of a run is cut short.
        const BEGIN: Duration = Duration::from_secs(1_000_000_000);
        let allowed = match answer.verdict {
            Verdict::Allowed => true,
            Verdict::Limited => false,
            Verdict::Failed(_) => return,
        };
        let now = Micros::from(BEGIN + answer.sent);
        self.decided += 1;
        self.honest.decide(&self.algorithm, now, allowed);
        if !self.charging.decide(&self.algorithm, now, allowed) {
            let state = std::mem::take(&mut self.charging.state);
            self.charging.state = self.algorithm.settle(state, now, 1);
        }
    }

    /// Returns whether a server that charges refusals explains nearly all answers, and an honest one does not.
    pub(super) fn refusals_charge(&self) -> bool {
        let explains = self.charging.wrong <= 1 + self.decided / 50;
        explains && 2 * self.charging.wrong < self.honest.wrong
    }
}

impl Server {
    fn decide(&mut self, algorithm: &Algorithm, now: Micros, allowed: bool) -> bool {
        let (outcome, state) = algorithm.step(std::mem::take(&mut self.state), now, 1);
        self.state = state;
        self.wrong += u64::from(outcome.is_allowed() != allowed);
        outcome.is_allowed()
    }
}
