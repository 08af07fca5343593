//! Reads the replies of the script, and computes outcomes from them.
//!
//! The script returns states, so that a node can compute the outcome of a later moment without a call.

mod key;
mod reading;

use smallvec::SmallVec;

use super::lease::{Grant, Leased};
use super::opened::OpenedPolicy;
use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::__internal::DenialEffect;
use tower_ratelimit_core::__internal::KeyOutlook;
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::store::{Amendment, Charge, Departure, Taken};

/// The answer of the script to some charges: the states of their keys, at one moment. The outcomes are
/// computed from it here.
#[derive(Clone, Debug)]
pub(super) struct ScriptReply {
    each: SmallVec<[KeyReply; 4]>,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a letter of the reply"
)]
pub(super) struct KeyReply {
    charge: Charge,
    /// The time of the decision, by the clock of the server that has the key.
    at: Micros,
    /// Whether the policy allows it.
    fits: bool,
    /// Whether another charge is made in its place.
    is_passed: bool,
    /// Whether this refusal has blocked the key.
    is_penalized: bool,
    /// Whether the key was blocked before, so that nothing of its part of a limit is told.
    was_blocked: bool,
    /// How much longer the key is blocked.
    blocked: Micros,
    /// The override of the key.
    own: Option<Own>,
    /// What the request may take, if others have a part of the limit.
    allotment: Option<Box<Allotment>>,
    /// The units of the key that nodes hold.
    leased: Option<Box<Leased>>,
    /// The units that this node is granted.
    grant: Option<Grant>,
    state: State,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    lasts: Micros,
    numbers: [u64; 4],
}

impl ScriptReply {
    /// The reply to a question about nothing.
    pub(super) fn none() -> Self {
        Self {
            each: SmallVec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn denied(charges: &[Charge], at: Micros, state: &State) -> Self {
        let reply = |charge: &Charge| KeyReply {
            charge: *charge,
            at,
            fits: false,
            is_passed: false,
            is_penalized: false,
            was_blocked: false,
            blocked: Micros::ZERO,
            own: None,
            allotment: None,
            leased: None,
            grant: None,
            state: state.clone(),
        };
        Self {
            each: charges.iter().map(reply).collect(),
        }
    }

    pub(super) fn is_allowed(&self) -> bool {
        !self.each.iter().any(KeyReply::denies)
    }

    /// Returns whether the request was charged.
    pub(super) fn charges(&self) -> bool {
        let mut each = self.each.iter();
        self.is_allowed() && each.any(|reply| reply.passes() && reply.charge.cost > 0)
    }

    /// Returns whether it brings units.
    pub(super) fn grants_any(&self) -> bool {
        let mut grants = self.each.iter().filter_map(|reply| reply.grant);
        grants.any(|grant| grant.units > 0)
    }

    /// Returns the reply for this policy.
    pub(super) fn of(&self, policy: usize) -> Option<&KeyReply> {
        self.each.iter().find(|reply| reply.charge.policy == policy)
    }

    /// Returns when it was decided, by the clock of the server that is furthest ahead.
    pub(super) fn at(&self) -> Micros {
        let latest = self.each.iter().map(|reply| reply.at).max();
        latest.unwrap_or(Micros::ZERO)
    }

    /// Returns how much longer the key of each charge is blocked.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (&Charge, Micros)> {
        self.each.iter().map(|reply| (&reply.charge, reply.blocked))
    }

    /// Returns whether the next such request has to ask again: it counts as a refusal too, or a slot may be
    /// free at any moment.
    pub(super) fn is_to_be_asked_again(&self, policies: &[OpenedPolicy]) -> bool {
        self.each
            .iter()
            .filter(|reply| reply.denies())
            .any(|reply| {
                let counted = policies.get(reply.charge.policy);
                if counted
                    .is_some_and(|counted| matches!(counted.algorithm, Algorithm::Concurrency(_)))
                {
                    return true;
                }
                let penalty = counted.and_then(|counted| counted.penalty.as_ref());
                let is_blocked = reply.blocked > Micros::ZERO;
                penalty.is_some_and(|named| {
                    let [.., is_extended] = named.penalty.numbers();
                    !is_blocked || is_extended > 0
                })
            })
    }

    /// Returns what was charged, if the request was allowed, each charge with the change that undoes it.
    pub(super) fn undoing(&self, policies: &[OpenedPolicy]) -> SmallVec<[(Charge, Amendment); 4]> {
        let charged = self.each.iter().filter(|reply| reply.passes());
        let undoing = charged.filter_map(|reply| {
            let counted = policies.get(reply.charge.policy)?;
            let outcome = reply.outcome(counted, Micros::ZERO);
            let amendment = if reply.charge.slot.is_some() {
                Amendment::Release
            } else if let Algorithm::LeakyQueue(_) = counted.algorithm.without_hours() {
                // Another request may have the turn behind this one, and keeps it.
                Amendment::GiveBack(Departure::at(
                    reply.at.saturating_add(outcome.delay().into()),
                ))
            } else {
                let mut outcomes = Outcomes::new(reply.at);
                outcomes.push(reply.charge.policy, outcome);
                Amendment::TakeBack(Taken::of(&reply.charge, &counted.algorithm, &outcomes))
            };
            Some((reply.charge, amendment))
        });
        undoing.collect()
    }

    /// Returns how long the denied request with these outcomes cannot pass at least, or `None` if no wait
    /// helps.
    pub(super) fn wait(&self, outcomes: &Outcomes) -> Option<Micros> {
        let denying = self.each.iter().filter(|reply| reply.denies());
        let mut waits = denying.map(|reply| {
            let mut all = outcomes.iter();
            let (_, outcome) = all.find(|(policy, _)| *policy == reply.charge.policy)?;
            let wait = outcome.retry_micros();
            match reply.own {
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
        let outlook = |reply: &KeyReply| reply.outlook(policies.get(reply.charge.policy)?);
        self.each.iter().filter_map(outlook).collect()
    }

    /// Returns the outcomes at the moment of the answer.
    pub(super) fn outcomes(&self, policies: &[OpenedPolicy]) -> Outcomes {
        let mut outcomes = Outcomes::new(self.at());
        for reply in self.each.iter().filter(|reply| !reply.is_passed) {
            let policy = reply.charge.policy;
            if let Some(counted) = policies.get(policy) {
                outcomes.push(policy, reply.told(counted, self.is_allowed()));
            }
        }
        outcomes.put_in_order();
        if self.each.iter().any(KeyReply::is_one_of_several) {
            let charges = self.each.iter().map(|reply| reply.charge);
            let charges: SmallVec<[Charge; 4]> = charges.collect();
            Charge::keep_one_of_each(&charges, &mut outcomes);
        }
        // A request that is over a soft limit goes on, and holds the slots of its other policies.
        if self.each.iter().any(|reply| reply.charge.is_soft) {
            outcomes.set_effects(|policy| self.effect(policy));
        }
        if (self.each.len() > 1 || self.blocks().any(|(_, left)| left > Micros::ZERO))
            && policies
                .iter()
                .any(|policy| matches!(policy.algorithm, Algorithm::ByHours(_)))
        {
            self.wait_for_all(policies, &mut outcomes);
        }
        outcomes
    }

    fn wait_for_all(&self, policies: &[OpenedPolicy], outcomes: &mut Outcomes) {
        if outcomes.is_allowed() {
            return;
        }
        outcomes.wait_for_all(|wait| {
            let mut later = Outcomes::new(self.at().saturating_add(wait));
            for reply in &self.each {
                if let Some(counted) = policies.get(reply.charge.policy) {
                    later.push(reply.charge.policy, reply.outcome(counted, wait));
                }
            }
            later.set_effects(|policy| self.effect(policy));
            later
        });
    }

    /// Returns what a denial of this policy does to the request.
    fn effect(&self, policy: usize) -> DenialEffect {
        let reply = self.of(policy);
        reply.map_or(DenialEffect::Full, |reply| reply.charge.effect())
    }
}

/// Returns whether an outcome has a number that changes with the calendar or the hour.
pub(super) fn depends_on_a_calendar(algorithm: &Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::CalendarWindow(_) | Algorithm::ByHours(_)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::Value;

    use super::*;
    use crate::opened::Charges;
    use tower_ratelimit_core::algorithm::AnchoredWindow;
    use tower_ratelimit_core::key::IntoKey;

    fn counted(algorithm: impl Into<Algorithm>) -> OpenedPolicy {
        OpenedPolicy::of(algorithm.into())
    }

    /// Returns the reply of a server that denies a charge of cost 1 by this policy.
    fn denied(policy: usize, at: i64, state: &str) -> ScriptReply {
        let reply = format!("{at};0;0;{state}");
        let charges = Charges::from_slice(&[Charge::new(policy, "ann".into_key(), 1)]);
        ScriptReply::read(Value::BulkString(reply.into_bytes()), &charges).unwrap()
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
