//! The charges of a request of which one of several pays.

use smallvec::SmallVec;

use super::charging::{Purpose, Reads, Steps};
use super::{Charges, Limiter};
use crate::policy::{Alternative, Demand, Groups, Mode, NoDemand};
use crate::store::{Backend, Charge};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Returns the names of the groups of policies of which one pays, as
    /// [`first_of`](super::LimiterBuilder::first_of) has declared them.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.policies.names.groups().map(|(name, _)| name)
    }

    /// Returns the charges of a request, as [`charges_for`](Self::charges_for) does. A member of a group that has no key,
    /// does not apply or is not enforced is passed over.
    ///
    /// # Errors
    ///
    /// When a policy that is always charged refuses the request, or when no member of a group has a key for it.
    pub(super) fn charges_either<R: Reads, S: Steps<R::Refusal>>(
        &self,
        groups: &Groups,
        readers: impl IntoIterator<Item = (usize, R)>,
        purpose: Purpose,
        steps: &mut S,
    ) -> Result<Charges, R::Refusal> {
        let mut charges = Charges::new();
        let mut without_key: Vec<(Alternative, R::Refusal)> = Vec::new();
        let mut exempting: SmallVec<[Alternative; 4]> = SmallVec::new();
        let mut keyless: SmallVec<[usize; 4]> = SmallVec::new();
        let mut exempt_with_key: SmallVec<[u8; 4]> = SmallVec::new();
        for (policy, reads) in readers {
            let alternative = groups.of(policy);
            let mode = self.policies.modes.of(policy);
            if mode == Mode::Off {
                steps.charges_nothing(policy, NoDemand::Off);
                continue;
            }
            if mode == Mode::Shadow && alternative.is_some() {
                // It never pays, and nothing else would show what it has decided.
                match self.charge_of(policy, &reads, purpose, steps) {
                    Ok(charge) => {
                        steps.charges(&charge.shadow());
                        steps.passes_over(policy);
                    }
                    Err(why) => steps.charges_nothing(policy, why),
                }
                continue;
            }
            let mut noting = NotingKey {
                steps,
                is_missing: false,
            };
            let written = self.charge_of(policy, &reads, purpose, &mut noting);
            if noting.is_missing {
                keyless.push(policy);
            }
            let why = match written {
                Ok(mut charge) => {
                    if mode == Mode::Shadow {
                        charge = charge.shadow();
                    }
                    charge.alternative = alternative;
                    steps.charges(&charge);
                    charges.push(charge);
                    continue;
                }
                Err(why) => why,
            };
            match (why, alternative) {
                (NoDemand::Refused(refusal), None)
                    if mode == Mode::Enforce && S::END_AT_REFUSAL =>
                {
                    return Err(refusal);
                }
                (NoDemand::Refused(refusal), Some(its)) if S::END_AT_REFUSAL => {
                    without_key.push((its, refusal));
                }
                (why @ (NoDemand::Exempt(_) | NoDemand::Unlimited), Some(its)) => {
                    exempting.push(its);
                    if reads.demand().is_ok_and(|demand| !demand.key.is_missing()) {
                        exempt_with_key.push(its.group);
                    }
                    steps.charges_nothing(policy, why);
                }
                (why, _) => steps.charges_nothing(policy, why),
            }
        }
        let passes_over = &mut |policy| steps.passes_over(policy);
        pass_over_keyless(&mut charges, &keyless, exempt_with_key, passes_over);
        for exempting in &exempting {
            make_optional(&mut charges, *exempting, passes_over);
        }
        let is_left = |without: &(Alternative, R::Refusal)| {
            let group = without.0.group;
            let mut others = charges.iter().filter_map(|charge| charge.alternative);
            let mut exempting = exempting.iter();
            !others.any(|other| other.group == group) && !exempting.any(|it| it.group == group)
        };
        let refused = without_key.into_iter().find(is_left);
        refused.map_or(Ok(charges), |(_, refusal)| Err(refusal))
    }
}

/// Sees whether a request has no key, and is counted together with others that have none.
struct NotingKey<'a, S> {
    steps: &'a mut S,
    is_missing: bool,
}

impl<R, S: Steps<R>> Steps<R> for NotingKey<'_, S> {
    fn counts(&mut self, demand: &Demand, units: u32) {
        self.is_missing = demand.key.is_missing();
        self.steps.counts(demand, units);
    }
}

/// Drops the members that count a request together with others that have no key, where another member has a key.
/// These groups have one that is exempt.
fn pass_over_keyless(
    charges: &mut Charges,
    keyless: &[usize],
    mut groups: SmallVec<[u8; 4]>,
    passes_over: &mut impl FnMut(usize),
) {
    if keyless.is_empty() {
        return;
    }
    let have_key = charges.iter().filter(|it| !keyless.contains(&it.policy));
    groups.extend(have_key.filter_map(|charge| Some(charge.alternative?.group)));
    charges.retain(|charge| {
        let group = charge.alternative.map(|its| its.group);
        let has_another = group.is_some_and(|group| groups.contains(&group));
        let is_left = !has_another || !keyless.contains(&charge.policy);
        if !is_left {
            passes_over(charge.policy);
        }
        is_left
    });
}

/// Lets the request pass when the members before this one have no room. Those after it are never charged.
fn make_optional(
    charges: &mut Charges,
    exempting: Alternative,
    passes_over: &mut impl FnMut(usize),
) {
    let of_group = |charge: &Charge| charge.alternative.filter(|it| it.group == exempting.group);
    charges.retain(|charge| {
        let is_left = of_group(charge).is_none_or(|its| its.rank < exempting.rank);
        if !is_left {
            passes_over(charge.policy);
        }
        is_left
    });
    for charge in charges {
        if let Some(its) = &mut charge.alternative
            && its.group == exempting.group
        {
            its.is_optional = true;
        }
    }
}
