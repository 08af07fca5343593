use redis::Value;
use smallvec::SmallVec;

use super::failure::nonsense;
use super::ledger::{Charges, Counted};
use crate::algorithm::State;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::store::Charge;

/// What the script tells of some charges: how their keys stand, at one moment. The numbers are made of it
/// here.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    at: Micros,
    each: SmallVec<[Told; 4]>,
}

#[derive(Clone, Debug)]
struct Told {
    charge: Charge,
    /// Whether the policy allows it.
    fits: bool,
    /// How long the key is blocked yet.
    blocked: Micros,
    state: State,
}

impl Told {
    fn denies(&self) -> bool {
        self.blocked > Micros::ZERO || !(self.fits || self.charge.is_soft)
    }
}

impl Answer {
    /// To a question about nothing.
    pub(super) fn none() -> Self {
        Self {
            at: Micros::ZERO,
            each: SmallVec::new(),
        }
    }

    pub(super) fn read(value: Value, charges: &Charges) -> Result<Self, StoreError> {
        let read = || {
            let Value::BulkString(text) = value else {
                return None;
            };
            let mut parts = str::from_utf8(&text).ok()?.split(';');
            let at = Micros::new(parts.next()?.parse().ok()?);
            let mut each = SmallVec::new();
            for &charge in charges {
                each.push(Told {
                    charge,
                    fits: parts.next()? == "1",
                    blocked: Micros::new(parts.next()?.parse().ok()?),
                    state: words(parts.next()?)?,
                });
            }
            parts.next().is_none().then_some(Self { at, each })
        };
        read().ok_or_else(|| nonsense("the script's answer is not what this version reads"))
    }

    pub(super) fn is_allowed(&self) -> bool {
        !self.each.iter().any(Told::denies)
    }

    /// The charges that were made, if the request was allowed.
    pub(super) fn charged(&self) -> Charges {
        let fitting = self.each.iter().filter(|told| told.fits);
        fitting.map(|told| told.charge).collect()
    }

    /// How long until the request could pass, which has these outcomes and was denied; `None` if no wait
    /// helps.
    pub(super) fn wait(&self, outcomes: &Outcomes) -> Option<Micros> {
        let denying = self.each.iter().filter(|told| told.denies());
        let mut waits = denying.map(|told| {
            let mut all = outcomes.iter();
            let (_, outcome) = all.find(|(policy, _)| *policy == told.charge.policy)?;
            outcome.retry_micros()
        });
        waits.try_fold(Micros::ZERO, |longest, wait| Some(longest.max(wait?)))
    }

    /// Adds what another server told.
    pub(super) fn add(&mut self, other: Self) {
        self.at = self.at.max(other.at);
        self.each.extend(other.each);
    }

    /// The numbers so much later, if nothing has happened since.
    pub(super) fn outcomes(&self, policies: &[Counted], later: Micros) -> Outcomes {
        let at = self.at.saturating_add(later);
        let mut outcomes = Outcomes::new(at);
        for told in &self.each {
            let Charge { policy, cost, .. } = told.charge;
            let Some(counted) = policies.get(policy) else {
                continue;
            };
            let state = told.state.clone();
            let outcome = counted.algorithm.outcome(state, at, cost, told.fits);
            let blocked = told.blocked.saturating_sub(later);
            outcomes.push(
                policy,
                match blocked {
                    Micros::ZERO => outcome,
                    left => outcome.blocked_for(left),
                },
            );
        }
        outcomes.put_in_order();
        outcomes
    }
}

/// Words in decimal, with spaces between them.
fn words(text: &str) -> Option<State> {
    let mut words: SmallVec<[u64; 16]> = SmallVec::new();
    for word in text.split_ascii_whitespace() {
        words.push(word.parse().ok()?);
    }
    if words.iter().all(|word| *word == 0) {
        return Some(State::NEW);
    }
    Some(State::from_words(&words))
}
