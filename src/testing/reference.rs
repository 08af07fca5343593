use std::collections::HashMap;

use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::key::Key;
use crate::store::Charge;

/// What a store has to tell: the algorithms' steps over a plain map.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    algorithms: Vec<Algorithm>,
    states: HashMap<(usize, Key), State>,
    blocks: HashMap<(usize, Key), Block>,
}

/// A block that began at one of these moments.
#[derive(Clone, Copy, Debug)]
struct Block {
    from: (Micros, Micros),
    length: Micros,
}

/// What has to be told of one charge.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    told: Outcome,
    is_soft: bool,
    /// The least and the most that is left of the block, if the key is blocked.
    blocked: Option<(Micros, Micros)>,
    /// Whether the request goes on, and has a turn to wait for.
    goes_on: bool,
}

impl Reference {
    pub(super) fn new(algorithms: Vec<Algorithm>) -> Self {
        Self {
            algorithms,
            states: HashMap::new(),
            blocks: HashMap::new(),
        }
    }

    /// Decides, and charges if all allow it.
    pub(super) fn charge(&mut self, charges: &[Charge], at: Micros) -> Vec<Expected> {
        let (expected, states) = self.decide(charges, at);
        self.states.extend(states);
        expected
    }

    /// What a charge would tell.
    pub(super) fn peek(&self, charges: &[Charge], at: Micros) -> Vec<Expected> {
        self.decide(charges, at).0
    }

    #[expect(clippy::type_complexity, reason = "it is taken apart where it is made")]
    fn decide(
        &self,
        charges: &[Charge],
        at: Micros,
    ) -> (Vec<Expected>, Vec<((usize, Key), State)>) {
        let blocked = |charge: &Charge| {
            let block = self.blocks.get(&(charge.policy, charge.key))?;
            let left = |from: Micros| from.saturating_add(block.length).saturating_sub(at);
            let (least, most) = (left(block.from.0), left(block.from.1));
            (most > Micros::ZERO).then_some((least, most))
        };
        let steps = charges.iter().map(|charge| {
            let state = self.state(charge);
            self.algorithms[charge.policy].step(state, at, charge.cost)
        });
        let steps: Vec<_> = steps.collect();
        let goes_on = charges.iter().zip(&steps).all(|(charge, (told, _))| {
            (told.is_allowed() || charge.is_soft) && blocked(charge).is_none()
        });
        let mut states = Vec::new();
        let mut expected = Vec::new();
        for (charge, (mut told, state)) in charges.iter().zip(steps) {
            if told.is_allowed() && goes_on && charge.cost > 0 {
                states.push(((charge.policy, charge.key), state));
            } else if told.is_allowed() {
                let uncharged = self.state(charge);
                told = self.algorithms[charge.policy].step(uncharged, at, 0).0;
            }
            expected.push(Expected {
                told,
                is_soft: charge.is_soft,
                blocked: blocked(charge),
                goes_on,
            });
        }
        (expected, states)
    }

    pub(super) fn refund(&mut self, charges: &[Charge], at: Micros) {
        for charge in charges {
            let state = self.state(charge);
            let state = self.algorithms[charge.policy].refund(state, at, charge.cost);
            self.states.insert((charge.policy, charge.key), state);
        }
    }

    pub(super) fn reset(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.states.remove(&(charge.policy, charge.key));
        }
    }

    /// Blocks keys from a moment between these two on.
    pub(super) fn block(&mut self, charges: &[Charge], from: (Micros, Micros), length: Micros) {
        for charge in charges {
            let block = self.blocks.entry((charge.policy, charge.key));
            let block = block.or_insert(Block { from, length });
            let ends = |block: &Block| block.from.1.saturating_add(block.length);
            let new = Block { from, length };
            if ends(&new) > ends(block) {
                *block = new;
            }
        }
    }

    pub(super) fn unblock(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.blocks.remove(&(charge.policy, charge.key));
        }
    }

    /// How long until nothing is left of what any of these keys was charged, under the policy where
    /// that is soonest; blocks too.
    pub(super) fn soonest_end(&self, charges: &[Charge], at: Micros) -> Option<Micros> {
        let ends = charges.iter().flat_map(|charge| {
            let (told, _) = self.algorithms[charge.policy].step(self.state(charge), at, 0);
            let block = self.blocks.get(&(charge.policy, charge.key));
            let block = block.map(|block| block.from.1.saturating_add(block.length));
            let block = block.map_or(Micros::ZERO, |until| until.saturating_sub(at));
            [Micros::from(told.reset_after()), block]
        });
        ends.filter(|end| *end > Micros::ZERO).min()
    }

    pub(super) fn algorithm(&self, policy: usize) -> &Algorithm {
        &self.algorithms[policy]
    }

    fn state(&self, charge: &Charge) -> State {
        let state = self.states.get(&(charge.policy, charge.key));
        state.cloned().unwrap_or_default()
    }
}

impl Expected {
    /// What is told otherwise, if anything is.
    pub(super) fn differs_from(&self, told: &Outcome) -> Option<String> {
        let expected = &self.told;
        let allowed = expected.is_allowed() && self.blocked.is_none();
        let remaining = match self.blocked {
            Some(_) => 0,
            None => expected.remaining(),
        };
        let retry = expected.retry_micros();
        let reset = Micros::from(expected.reset_after());
        let (retries, resets) = match self.blocked {
            None => ((retry, retry), (reset, reset)),
            Some((least, most)) => {
                let wait = |left: Micros| Some(retry.unwrap_or(left).max(left));
                (
                    (wait(least), wait(most)),
                    (reset.max(least), reset.max(most)),
                )
            }
        };
        let between = |told: Micros, (least, most): (Micros, Micros)| least <= told && told <= most;
        let retry_is_right = match (told.retry_micros(), retries) {
            (Some(told), (Some(least), Some(most))) => between(told, (least, most)),
            (told, (least, _)) => told == least,
        };
        let effective_is_right =
            self.blocked.is_some() || told.effective_window() == expected.effective_window();
        let delay_is_right = !self.goes_on || told.delay() == expected.delay();
        let differences = [
            (
                "is_allowed",
                told.is_allowed() == allowed,
                allowed.to_string(),
            ),
            (
                "is_blocked",
                told.is_blocked() == self.blocked.is_some(),
                self.blocked.is_some().to_string(),
            ),
            (
                "is_soft",
                told.is_soft() == self.is_soft,
                self.is_soft.to_string(),
            ),
            (
                "limit",
                told.limit() == expected.limit(),
                expected.limit().to_string(),
            ),
            (
                "remaining",
                told.remaining() == remaining,
                remaining.to_string(),
            ),
            (
                "reset_after",
                between(told.reset_after().into(), resets),
                format!("{resets:?}"),
            ),
            ("retry_after", retry_is_right, format!("{retries:?}")),
            (
                "effective_window",
                effective_is_right,
                format!("{:?}", expected.effective_window()),
            ),
            ("delay", delay_is_right, format!("{:?}", expected.delay())),
        ];
        let (field, _, right) = differences.into_iter().find(|(_, is_right, _)| !is_right)?;
        Some(format!("`{field}` should be {right}, of {told:?}"))
    }
}
