//! The reference with which answers are compared.
//!
//! It is slow and obvious: states in a map, one step of an algorithm for each charge. No answer shows the
//! moment of a change, so blocks keep the two moments between which they began.

use std::collections::HashMap;

use tower_ratelimit_core::__internal::DenialEffect;
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcome;
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::store::Charge;

/// The right answers: the steps of the algorithms over a plain map.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    algorithms: Vec<Algorithm>,
    states: HashMap<(usize, Key), State>,
    blocks: HashMap<(usize, Key), Block>,
    owns: HashMap<(usize, Key), Own>,
}

/// A block that began between two moments.
#[derive(Clone, Copy, Debug)]
struct Block {
    from: (Micros, Micros),
    length: Micros,
}

/// The override of a key.
#[derive(Clone, Copy, Debug)]
struct Own {
    limit: Algorithm,
    until: Micros,
}

/// The right answer about one charge.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    outcome: Outcome,
    effect: DenialEffect,
    /// The shortest and the longest time that the block may still last, if the key is blocked.
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
            owns: HashMap::new(),
        }
    }

    /// Decides, and charges if all allow it.
    pub(super) fn charge(&mut self, charges: &[Charge], at: Micros) -> Vec<Expected> {
        self.goes_on_to(at);
        let (expected, states) = self.decide(charges, at);
        self.states.extend(states);
        expected
    }

    /// Charges as many units as every hard charge grants. Returns how many, and the outcomes of that many, or
    /// of one if there are none.
    pub(super) fn acquire_up_to(&mut self, charges: &[Charge], at: Micros) -> (u32, Vec<Expected>) {
        let at_most = |units: u32| -> Vec<Charge> {
            let less = charges.iter().map(|charge| Charge {
                cost: charge.cost.min(units),
                ..*charge
            });
            less.collect()
        };
        let stands = self.peek(&at_most(0), at);
        let most = charges.iter().map(Charge::cost).max().unwrap_or(0);
        let granted = charges
            .iter()
            .zip(stands)
            .map(|(charge, stands)| match stands.blocked {
                Some(_) if charge.is_shadow => most,
                Some(_) => 0,
                None if charge.is_soft || charge.cost == 0 => most,
                None => stands.outcome.remaining(),
            });
        let units = granted.min().unwrap_or(most).min(most);
        (units, self.charge(&at_most(units.max(1)), at))
    }

    /// Returns the answer that a charge would get.
    pub(super) fn peek(&self, charges: &[Charge], at: Micros) -> Vec<Expected> {
        self.clone().charge(charges, at)
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
        let steps = charges
            .iter()
            .map(|charge| self.limit(charge).step(self.state(charge), at, charge.cost));
        let steps: Vec<_> = steps.collect();
        let goes_on = charges.iter().zip(&steps).all(|(charge, (outcome, _))| {
            let is_blocked = blocked(charge).is_some();
            charge.is_shadow || (outcome.is_allowed() || charge.is_soft) && !is_blocked
        });
        let mut states = Vec::new();
        let mut expected = Vec::new();
        for (charge, (mut outcome, state)) in charges.iter().zip(steps) {
            let is_left_out = blocked(charge).is_some() || charge.cost == 0;
            if outcome.is_allowed() && goes_on && !is_left_out {
                states.push(((charge.policy, charge.key), state));
            } else if outcome.is_allowed() {
                outcome = self.limit(charge).step(self.state(charge), at, 0).0;
            }
            if let Some(own) = self.owns.get(&(charge.policy, charge.key)) {
                outcome = outcome.overridden(own.limit.period());
            }
            expected.push(Expected {
                outcome,
                effect: charge.effect(),
                blocked: blocked(charge),
                goes_on,
            });
        }
        (expected, states)
    }

    pub(super) fn refund(&mut self, charges: &[Charge], at: Micros) {
        self.goes_on_to(at);
        for charge in charges {
            let state = self
                .limit(charge)
                .refund(self.state(charge), at, charge.cost);
            self.states.insert((charge.policy, charge.key), state);
        }
    }

    pub(super) fn settle(&mut self, charges: &[Charge], at: Micros) {
        self.goes_on_to(at);
        for charge in charges {
            let state = self
                .limit(charge)
                .settle(self.state(charge), at, charge.cost);
            self.states.insert((charge.policy, charge.key), state);
        }
    }

    /// Gives a key this limit for this time, or the limit of its policy.
    pub(super) fn change_limit(
        &mut self,
        charge: &Charge,
        own: Option<(Algorithm, Micros)>,
        at: Micros,
    ) {
        self.goes_on_to(at);
        let place = (charge.policy, charge.key);
        // Until this moment a debt drains under the previous limit.
        let state = self.limit(charge).refund(self.state(charge), at, 0);
        self.states.insert(place, state);
        match own {
            Some((limit, length)) => {
                let until = at.saturating_add(length);
                self.owns.insert(place, Own { limit, until });
            }
            None => drop(self.owns.remove(&place)),
        }
    }

    /// Ends the overrides that end by this moment.
    fn goes_on_to(&mut self, at: Micros) {
        self.owns.retain(|_, own| own.until > at);
    }

    pub(super) fn reset(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.states.remove(&(charge.policy, charge.key));
        }
    }

    /// Blocks keys, from a moment between these two.
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

    /// Returns whether any of these keys is certainly blocked at this moment.
    pub(super) fn are_blocked(&self, charges: &[Charge], at: Micros) -> bool {
        charges.iter().any(|charge| {
            let block = self.blocks.get(&(charge.policy, charge.key));
            block.is_some_and(|block| block.from.0.saturating_add(block.length) > at)
        })
    }

    pub(super) fn unblock(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.blocks.remove(&(charge.policy, charge.key));
        }
    }

    /// Returns how long until the next of these ends: the charges of a key under a policy, a block, an override.
    pub(super) fn soonest_end(&mut self, charges: &[Charge], at: Micros) -> Option<Micros> {
        self.goes_on_to(at);
        let ends = charges.iter().flat_map(|charge| {
            let (outcome, _) = self.limit(charge).step(self.state(charge), at, 0);
            let own = self.owns.get(&(charge.policy, charge.key));
            let own = own.map_or(Micros::ZERO, |own| own.until.saturating_sub(at));
            let block = self.blocks.get(&(charge.policy, charge.key));
            let block = block.map(|block| block.from.1.saturating_add(block.length));
            let block = block.map_or(Micros::ZERO, |until| until.saturating_sub(at));
            [Micros::from(outcome.reset_after()), block, own]
        });
        ends.filter(|end| *end > Micros::ZERO).min()
    }

    pub(super) fn algorithm(&self, policy: usize) -> &Algorithm {
        &self.algorithms[policy]
    }

    /// Returns the limit of the key, as of the latest [`goes_on_to`](Self::goes_on_to).
    fn limit(&self, charge: &Charge) -> &Algorithm {
        let own = self.owns.get(&(charge.policy, charge.key));
        own.map_or(&self.algorithms[charge.policy], |own| &own.limit)
    }

    fn state(&self, charge: &Charge) -> State {
        let state = self.states.get(&(charge.policy, charge.key));
        state.cloned().unwrap_or_default()
    }
}

impl Expected {
    /// Returns the first number that differs, if any does.
    pub(super) fn differs_from(&self, outcome: &Outcome) -> Option<String> {
        let expected = &self.outcome;
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
        let between = |time: Micros, (least, most): (Micros, Micros)| least <= time && time <= most;
        let retry_is_right = match (outcome.retry_micros(), retries) {
            (Some(retry), (Some(least), Some(most))) => between(retry, (least, most)),
            (retry, (least, _)) => retry == least,
        };
        let effective_is_right =
            self.blocked.is_some() || outcome.effective_window() == expected.effective_window();
        let delay_is_right = !self.goes_on || outcome.delay() == expected.delay();
        let differences = [
            (
                "is_allowed",
                outcome.is_allowed() == allowed,
                allowed.to_string(),
            ),
            (
                "is_blocked",
                outcome.is_blocked() == self.blocked.is_some(),
                self.blocked.is_some().to_string(),
            ),
            (
                "is_soft, is_shadow",
                (outcome.is_soft(), outcome.is_shadow())
                    == (
                        self.effect == DenialEffect::Soft,
                        self.effect == DenialEffect::Shadow,
                    ),
                format!("{:?}", self.effect),
            ),
            (
                "is_overridden",
                outcome.is_overridden() == expected.is_overridden(),
                expected.is_overridden().to_string(),
            ),
            (
                "limit",
                outcome.limit() == expected.limit(),
                expected.limit().to_string(),
            ),
            (
                "remaining",
                outcome.remaining() == remaining,
                remaining.to_string(),
            ),
            (
                "reset_after",
                between(outcome.reset_after().into(), resets),
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
        Some(format!("`{field}` should be {right}, of {outcome:?}"))
    }
}
