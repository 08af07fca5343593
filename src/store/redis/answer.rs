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
    /// The numbers of the limit that the key has of its own.
    own: Option<[u64; 4]>,
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
                let (fits, blocked) = (parts.next()? == "1", parts.next()?.parse().ok()?);
                let (own, state) = state_of(parts.next()?)?;
                each.push(Told {
                    charge,
                    fits,
                    blocked: Micros::new(blocked),
                    own,
                    state,
                });
            }
            parts.next().is_none().then_some(Self { at, each })
        };
        read().ok_or_else(|| nonsense("the script's answer is not what this version reads"))
    }

    #[cfg(test)]
    pub(super) fn denied(charges: &[Charge], at: Micros, state: State) -> Self {
        let told = |charge: &Charge| Told {
            charge: *charge,
            fits: false,
            blocked: Micros::ZERO,
            own: None,
            state: state.clone(),
        };
        Self {
            at,
            each: charges.iter().map(told).collect(),
        }
    }

    pub(super) fn is_allowed(&self) -> bool {
        !self.each.iter().any(Told::denies)
    }

    /// Whether this policy is one of those that deny.
    pub(super) fn is_denied_by(&self, policy: usize) -> bool {
        let mut told = self.each.iter().filter(|told| told.charge.policy == policy);
        told.any(Told::denies)
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
            let own = told
                .own
                .and_then(|numbers| counted.algorithm.with_numbers(numbers));
            let outcome = match own {
                None => counted.algorithm.outcome(state, at, cost, told.fits),
                Some(own) => {
                    let outcome = own.outcome(state, at, cost, told.fits);
                    outcome.overridden(own.period())
                }
            };
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

/// The numbers of a limit of its own, if there are any, and the state: words in decimal.
fn state_of(text: &str) -> Option<(Option<[u64; 4]>, State)> {
    let (own, text) = match text.strip_prefix('=') {
        None => (None, text),
        Some(marked) => {
            let (own, text) = marked.split_once('|')?;
            (Some(<[u64; 4]>::try_from(&*words(own)?).ok()?), text)
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
