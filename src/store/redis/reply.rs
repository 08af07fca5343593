//! Reads the replies of the script, and computes outcomes from them.
//!
//! The script returns states, so that a node can compute the outcome of a later moment without a call.

use redis::Value;
use smallvec::SmallVec;

use super::failure::nonsense;
use super::lease::{Grant, Leased, LeasedRequest};
use super::opened::{Charges, OpenedPolicy};
use crate::algorithm::{Algorithm, Replenishment, State};
use crate::clock::Micros;
#[cfg(feature = "calendar")]
use crate::decision::DenialEffect;
use crate::decision::{Outcome, Outcomes};
use crate::error::StoreError;
use crate::store::{Amendment, Charge, Departure, KeyOutlook, Taken};

/// The answer of the script to some charges: the states of their keys, at one moment. The outcomes are
/// computed from it here.
#[derive(Clone, Debug)]
pub(super) struct ScriptReply {
    each: SmallVec<[KeyReply; 4]>,
}

#[derive(Clone, Debug)]
pub(super) struct KeyReply {
    charge: Charge,
    /// The time of the decision, by the clock of the server that has the key.
    at: Micros,
    /// Whether the policy allows it.
    fits: bool,
    /// Whether this refusal has blocked the key.
    is_penalized: bool,
    /// How much longer the key is blocked.
    blocked: Micros,
    /// The override of the key.
    own: Option<Own>,
    /// The units of the key that nodes hold.
    leased: Option<Box<Leased>>,
    /// The units that this node is granted.
    grant: Option<Grant>,
    state: State,
}

const NOT_READ: &str = "the script's answer is not what this version reads";

#[derive(Clone, Copy, Debug)]
struct Own {
    lasts: Micros,
    numbers: [u64; 4],
}

impl KeyReply {
    pub(super) fn denies(&self) -> bool {
        let is_blocked = self.blocked > Micros::ZERO;
        !self.charge.is_shadow && (is_blocked || !(self.fits || self.charge.is_soft))
    }

    pub(super) fn grant(&self) -> Option<Grant> {
        self.grant
    }

    /// Returns whether it fits, and its key is not blocked.
    pub(super) fn passes(&self) -> bool {
        self.fits && self.blocked == Micros::ZERO
    }

    /// Returns when it was decided, by the clock of the server.
    pub(super) fn at(&self) -> Micros {
        self.at
    }

    /// Returns for how long this policy cannot make the request wait for longer than it was told, whatever other
    /// nodes charge meanwhile. `None` means that it was told that no wait helps.
    pub(super) fn outlasts(&self, told: Option<Micros>, counted: &OpenedPolicy) -> Micros {
        let is_asked = self.charge.cost > 0 || self.denies();
        let Some(told) = told.filter(|_| is_asked && !self.charge.is_soft) else {
            return Micros::LONGEST;
        };
        let limits_differ = counted.limits_differ && self.own.is_none();
        let is_settled = counted.is_settled();
        let ends_together = match counted.algorithm.replenishment() {
            Some(Replenishment::Aligned) => true,
            // A window that a refund has emptied begins anew, and later.
            Some(Replenishment::Anchored) => !is_settled,
            // A limit may have a calendar of its own.
            #[cfg(feature = "calendar")]
            Some(Replenishment::Calendar) => !limits_differ,
            _ => false,
        };
        let longest = self.longest_wait(counted).filter(|_| !limits_differ);
        let dominated = longest.map_or(Micros::ZERO, |longest| {
            told.saturating_sub(Micros::new(longest.get() << u8::from(is_settled)))
        });
        let unchanged = if self.blocked > Micros::ZERO {
            self.blocked
        } else if ends_together {
            // No charge moves the end of an open window.
            let end = self.outcome(counted, Micros::ZERO).reset_micros();
            if self.denies() || end <= told {
                end
            } else {
                Micros::ZERO
            }
        } else if !self.denies() || limits_differ || is_settled {
            Micros::ZERO
        } else {
            // While no unit is left and nodes hold none, no request is charged.
            let one = self.outcome_of(1, counted, Micros::ZERO);
            let is_held = self
                .leased
                .as_ref()
                .is_some_and(|leased| leased.units() > 0);
            let none_is_left = one.remaining() == 0 && !is_held;
            let wait = one.retry_micros().filter(|_| none_is_left);
            wait.unwrap_or(Micros::ZERO)
        };
        dominated.max(unchanged)
    }

    /// Returns the longest wait that the server can tell a request of this cost at a later moment, whatever it has granted
    /// to other nodes meanwhile, for this long. Returns `None` if that is not known.
    pub(super) fn longest_wait_of(
        &self,
        cost: u32,
        counted: &OpenedPolicy,
        later: Micros,
        life: Micros,
    ) -> Option<Micros> {
        let told = self.outcome_of(cost, counted, later);
        let until_the_end = match counted.algorithm.replenishment()? {
            Replenishment::Aligned => true,
            Replenishment::Anchored => !counted.is_settled(),
            _ => false,
        };
        if self.blocked > later || until_the_end && !told.is_allowed() {
            return told.retry_micros();
        }
        let limits_differ = counted.limits_differ && self.own.is_none();
        if counted.is_settled() || limits_differ || counted.penalty.is_some() {
            return None;
        }
        let own = self.own_algorithm(counted);
        let asked = LeasedRequest {
            state: self.state.clone(),
            now: self.at.saturating_add(later),
            cost,
            fits: false,
        };
        let none = Leased::default();
        let leased = self.leased.as_deref().unwrap_or(&none);
        leased.longest_wait(own.as_ref().unwrap_or(&counted.algorithm), asked, life)
    }

    /// Returns the algorithm with the limit of the key or of the charge, if that is not the policy's.
    fn own_algorithm(&self, counted: &OpenedPolicy) -> Option<Algorithm> {
        match self.own {
            Some(own) => counted.algorithm.with_numbers(own.numbers),
            None => counted.under(&self.charge),
        }
    }

    /// Returns the longest wait of a request under this policy, unless a penalty can make it longer.
    fn longest_wait(&self, counted: &OpenedPolicy) -> Option<Micros> {
        if counted.penalty.is_some() {
            return None;
        }
        let own = self
            .own
            .and_then(|own| counted.algorithm.with_numbers(own.numbers));
        let algorithm = own.as_ref().unwrap_or(&counted.algorithm);
        algorithm.longest_wait().map(Micros::from)
    }

    /// Returns the state from which later outcomes are computed; `None` for a policy without one, and where nodes hold
    /// units, which they may give back.
    fn outlook(&self, counted: &OpenedPolicy) -> Option<KeyOutlook> {
        if self.leased.is_some() || counted.algorithm.is_held() {
            return None;
        }
        let own = self.own;
        Some(KeyOutlook {
            policy: self.charge.policy,
            algorithm: counted.algorithm,
            own: own.and_then(|own| counted.algorithm.with_numbers(own.numbers)),
            state: self.state.clone(),
            at: self.at,
            blocked: self.blocked,
        })
    }

    /// Returns the outcome at a later moment, if nothing has happened since.
    pub(super) fn outcome(&self, counted: &OpenedPolicy, later: Micros) -> Outcome {
        self.outcome_of(self.charge.cost, counted, later)
    }

    /// Returns the outcome of a request of this cost at a later moment.
    pub(super) fn outcome_of(&self, cost: u32, counted: &OpenedPolicy, later: Micros) -> Outcome {
        let (state, at) = (self.state.clone(), self.at.saturating_add(later));
        let own = self.own_algorithm(counted);
        let algorithm = own.as_ref().unwrap_or(&counted.algorithm);
        // A request that fits now need not fit at a later hour.
        let fits = self.fits && (later == Micros::ZERO || !algorithm.depends_on_a_calendar());
        let mut outcome = match &self.leased {
            None => algorithm.outcome(state, at, cost, fits),
            Some(leased) => {
                let asked = LeasedRequest {
                    state,
                    now: at,
                    cost,
                    fits,
                };
                leased.outcome(algorithm, asked)
            }
        };
        match own {
            Some(own) if self.own.is_some() => outcome = outcome.overridden(own.period()),
            Some(own) => outcome = outcome.within(own.period()),
            None => {}
        }
        match self.blocked.saturating_sub(later) {
            Micros::ZERO => outcome,
            left if self.is_penalized && later == Micros::ZERO => outcome.penalized_for(left),
            left => outcome.blocked_for(left),
        }
    }
}

impl ScriptReply {
    /// The reply to a question about nothing.
    pub(super) fn none() -> Self {
        Self {
            each: SmallVec::new(),
        }
    }

    pub(super) fn read(value: Value, charges: &Charges) -> Result<Self, StoreError> {
        Self::parse(value, charges, false)
    }

    /// Reads the reply of a script that grants units.
    pub(super) fn of_granting(value: Value, charges: &Charges) -> Result<Self, StoreError> {
        Self::parse(value, charges, true)
    }

    fn parse(value: Value, charges: &Charges, grants: bool) -> Result<Self, StoreError> {
        let read = || {
            let Value::BulkString(text) = value else {
                return None;
            };
            let mut parts = str::from_utf8(&text).ok()?.split(';');
            let at = micros_of(parts.next()?)?;
            let mut each = SmallVec::new();
            for &charge in charges {
                let (fits, blocked) = (parts.next()?, micros_of(parts.next()?)?);
                let grant = if grants {
                    let grant = grant_of([parts.next()?, parts.next()?, parts.next()?])?;
                    Some(grant).filter(|grant| grant.lasts > Micros::ZERO)
                } else {
                    None
                };
                let (leased, text) = leased_of(parts.next()?)?;
                let (own, state) = state_of(text)?;
                each.push(KeyReply {
                    charge,
                    at,
                    fits: fits == "1",
                    is_penalized: fits == "2",
                    blocked,
                    own,
                    leased,
                    grant,
                    state,
                });
            }
            parts.next().is_none().then_some(Self { each })
        };
        read().ok_or_else(|| nonsense(NOT_READ))
    }

    /// Reads how many units were taken, and the reply for a charge of that many, or of one if there were
    /// none.
    pub(super) fn of_taking(value: Value, charges: &[Charge]) -> Result<(u32, Self), StoreError> {
        let read = || {
            let Value::BulkString(mut text) = value else {
                return None;
            };
            let end = text.iter().position(|byte| *byte == b';')?;
            let told = text.split_off(end + 1);
            let units: u32 = str::from_utf8(&text[..end]).ok()?.parse().ok()?;
            Some((units, Value::BulkString(told)))
        };
        let (units, told) = read().ok_or_else(|| nonsense(NOT_READ))?;
        let each = charges.iter().map(|charge| Charge {
            cost: charge.cost.min(units.max(1)),
            ..*charge
        });
        Ok((units, Self::read(told, &each.collect())?))
    }

    #[cfg(test)]
    pub(super) fn denied(charges: &[Charge], at: Micros, state: &State) -> Self {
        let told = |charge: &Charge| KeyReply {
            charge: *charge,
            at,
            fits: false,
            is_penalized: false,
            blocked: Micros::ZERO,
            own: None,
            leased: None,
            grant: None,
            state: state.clone(),
        };
        Self {
            each: charges.iter().map(told).collect(),
        }
    }

    pub(super) fn is_allowed(&self) -> bool {
        !self.each.iter().any(KeyReply::denies)
    }

    /// Returns whether the request was charged.
    pub(super) fn charges(&self) -> bool {
        let mut each = self.each.iter();
        self.is_allowed() && each.any(|told| told.passes() && told.charge.cost > 0)
    }

    /// Returns whether it brings units.
    pub(super) fn grants_any(&self) -> bool {
        let mut grants = self.each.iter().filter_map(|told| told.grant);
        grants.any(|grant| grant.units > 0)
    }

    /// Returns the reply for this policy.
    pub(super) fn of(&self, policy: usize) -> Option<&KeyReply> {
        self.each.iter().find(|told| told.charge.policy == policy)
    }

    /// Returns when it was decided, by the clock of the server that is furthest ahead.
    pub(super) fn at(&self) -> Micros {
        let latest = self.each.iter().map(|told| told.at).max();
        latest.unwrap_or(Micros::ZERO)
    }

    /// Returns how much longer the key of each charge is blocked.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (&Charge, Micros)> {
        self.each.iter().map(|told| (&told.charge, told.blocked))
    }

    /// Returns whether the next such request has to ask again: it counts as a refusal too, or a slot may be
    /// free at any moment.
    pub(super) fn is_to_be_asked_again(&self, policies: &[OpenedPolicy]) -> bool {
        self.each.iter().filter(|told| told.denies()).any(|told| {
            let counted = policies.get(told.charge.policy);
            if counted.is_some_and(|counted| counted.algorithm.is_held()) {
                return true;
            }
            let penalty = counted.and_then(|counted| counted.penalty.as_ref());
            let is_blocked = told.blocked > Micros::ZERO;
            penalty.is_some_and(|named| !is_blocked || named.penalty.is_extended())
        })
    }

    /// Returns what was charged, if the request was allowed, each charge with the change that undoes it.
    pub(super) fn undoing(&self, policies: &[OpenedPolicy]) -> SmallVec<[(Charge, Amendment); 4]> {
        let charged = self.each.iter().filter(|told| told.passes());
        let undoing = charged.filter_map(|told| {
            let counted = policies.get(told.charge.policy)?;
            let outcome = told.outcome(counted, Micros::ZERO);
            let amendment = if told.charge.slot.is_some() {
                Amendment::Release
            } else if counted.algorithm.without_hours().shapes() {
                // Another request may have the turn behind this one, and keeps it.
                Amendment::GiveBack(Departure::at(
                    told.at.saturating_add(outcome.delay_micros()),
                ))
            } else {
                let mut outcomes = Outcomes::new(told.at);
                outcomes.push(told.charge.policy, outcome);
                Amendment::TakeBack(Taken::of(&told.charge, &counted.algorithm, &outcomes))
            };
            Some((told.charge, amendment))
        });
        undoing.collect()
    }

    /// Returns how long the denied request with these outcomes cannot pass at least, or `None` if no wait
    /// helps.
    pub(super) fn wait(&self, outcomes: &Outcomes) -> Option<Micros> {
        let denying = self.each.iter().filter(|told| told.denies());
        let mut waits = denying.map(|told| {
            let mut all = outcomes.iter();
            let (_, outcome) = all.find(|(policy, _)| *policy == told.charge.policy)?;
            let wait = outcome.retry_micros();
            match told.own {
                // The limit after the override is not known.
                Some(Own { lasts, .. }) => Some(wait.map_or(lasts, |wait| wait.min(lasts))),
                None => wait,
            }
        });
        waits.try_fold(Micros::ZERO, |longest, wait| Some(longest.max(wait?)))
    }

    /// Adds the reply of another server.
    pub(super) fn add(&mut self, other: Self) {
        self.each.extend(other.each);
    }

    /// Returns the states of the keys, where the server alone decides.
    pub(super) fn outlooks(&self, policies: &[OpenedPolicy]) -> SmallVec<[KeyOutlook; 4]> {
        let outlook = |told: &KeyReply| told.outlook(policies.get(told.charge.policy)?);
        self.each.iter().filter_map(outlook).collect()
    }

    /// Returns the outcomes at the moment of the answer.
    pub(super) fn outcomes(&self, policies: &[OpenedPolicy]) -> Outcomes {
        let mut outcomes = Outcomes::new(self.at());
        for told in &self.each {
            let policy = told.charge.policy;
            if let Some(counted) = policies.get(policy) {
                outcomes.push(policy, told.outcome(counted, Micros::ZERO));
            }
        }
        outcomes.put_in_order();
        #[cfg(feature = "calendar")]
        if (self.each.len() > 1 || self.blocks().any(|(_, left)| left > Micros::ZERO))
            && policies.iter().any(|policy| policy.algorithm.has_hours())
        {
            self.wait_for_all(policies, &mut outcomes);
        }
        outcomes
    }

    #[cfg(feature = "calendar")]
    fn wait_for_all(&self, policies: &[OpenedPolicy], outcomes: &mut Outcomes) {
        let effect = |policy| {
            let told = self.of(policy);
            told.map_or(DenialEffect::Full, |told| told.charge.effect())
        };
        outcomes.set_effects(effect);
        if outcomes.is_allowed() {
            return;
        }
        outcomes.wait_for_all(|wait| {
            let mut later = Outcomes::new(self.at().saturating_add(wait));
            for told in &self.each {
                if let Some(counted) = policies.get(told.charge.policy) {
                    later.push(told.charge.policy, told.outcome(counted, wait));
                }
            }
            later.set_effects(effect);
            later
        });
    }
}

/// Reads how many units are granted, the end of their class, and how long they last.
fn grant_of(words: [&str; 3]) -> Option<Grant> {
    let [units, end, lasts] = words;
    let (units, end, lasts) = (units.parse().ok()?, micros_of(end)?, micros_of(lasts)?);
    Some(Grant { units, end, lasts })
}

/// The last moment that is read. The longest wait ends before it, and no sum of it and some waits overflows.
const LAST_MOMENT: Micros = Micros::new(Micros::LONGEST.get() << 2);

/// Reads a moment or a length, up to [`LAST_MOMENT`].
fn micros_of(word: &str) -> Option<Micros> {
    let micros = word.parse().ok().map(Micros::new);
    micros.filter(|micros| *micros <= LAST_MOMENT)
}

/// Reads the units that nodes hold, if any, and returns the rest of the text.
fn leased_of(text: &str) -> Option<(Option<Box<Leased>>, &str)> {
    match text.strip_prefix('~') {
        None => Some((None, text)),
        Some(marked) => {
            let (leased, text) = marked.split_once('|')?;
            let leased = Leased::read(&words(leased)?)?;
            Some((Some(Box::new(leased)), text))
        }
    }
}

/// Reads the override, if there is one, and the state: words in decimal.
fn state_of(text: &str) -> Option<(Option<Own>, State)> {
    let (own, text) = match text.strip_prefix('=') {
        None => (None, text),
        Some(marked) => {
            let (own, text) = marked.split_once('|')?;
            let own = words(own)?;
            let (&lasts, numbers) = own.split_first()?;
            let own = Own {
                lasts: Micros::new(lasts),
                numbers: numbers.try_into().ok()?,
            };
            (Some(own), text)
        }
    };
    let words = words(text)?;
    let state = if words.iter().all(|word| *word == 0) {
        State::NEW
    } else {
        State::from_words(&words)
    };
    Some((own, state))
}

fn words(text: &str) -> Option<SmallVec<[u64; 16]>> {
    let words = text.split_ascii_whitespace();
    words.map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Algorithm, AnchoredWindow};
    use crate::key::IntoKey;

    fn counted(algorithm: impl Into<Algorithm>) -> OpenedPolicy {
        OpenedPolicy::of(algorithm.into())
    }

    /// Returns the reply of a server that denies a charge of cost 1 by this policy.
    fn denied(policy: usize, at: i64, state: &str) -> ScriptReply {
        let told = format!("{at};0;0;{state}");
        let charges = Charges::from_slice(&[Charge::new(policy, "ann".into_key(), 1)]);
        ScriptReply::read(Value::BulkString(told.into_bytes()), &charges).unwrap()
    }

    /// Once, the sum of such a moment and a window overflowed.
    #[test]
    fn a_moment_that_no_server_can_mean_is_not_read() {
        let charges = Charges::from_slice(&[Charge::new(0, "ann".into_key(), 1)]);
        let read = |told: &str| ScriptReply::read(Value::BulkString(told.into()), &charges);
        let last = LAST_MOMENT.get();
        assert!(read(&format!("{last};1;{last};1 1 0")).is_ok());
        for (at, blocked) in [(last + 1, 0), (u64::MAX, 0), (1, last + 1)] {
            assert!(read(&format!("{at};1;{blocked};1 1 0")).is_err(), "{at}");
        }
    }

    #[test]
    fn units_that_nodes_hold_count_as_used() {
        let policies = [counted(AnchoredWindow::per_minute(10))];
        let holding = |units| {
            let state = format!("~1000000 0 1000 0 0 1000500000 {units}|999000000 4 0");
            denied(0, 1_000_000_000, &state).outcomes(&policies)
        };
        let full = holding(6);
        let (_, outcome) = full.iter().next().unwrap();
        assert_eq!(outcome.remaining(), 0);
        assert_eq!(outcome.retry_after(), Some(Duration::from_secs(59)));
        let free = holding(3);
        let (_, outcome) = free.iter().next().unwrap();
        assert!(outcome.is_allowed());
        assert_eq!(outcome.remaining(), 3);
    }

    #[test]
    fn each_wait_is_told_by_the_clock_of_the_server_that_has_the_state() {
        let policies = [
            counted(AnchoredWindow::per_minute(1)),
            counted(AnchoredWindow::per_minute(1)),
        ];
        let mut together = denied(0, 1_000_000_000, "999000000 1 0");
        together.add(denied(1, 1_030_000_000, "1029000000 1 0"));
        let outcomes = together.outcomes(&policies);
        let waits: Vec<_> = outcomes
            .iter()
            .map(|(_, outcome)| outcome.retry_after())
            .collect();
        assert_eq!(waits, [Some(Duration::from_secs(59)); 2]);
    }
}
