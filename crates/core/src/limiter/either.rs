//! The members of groups of which one pays, while the charges of a request are made.

use smallvec::SmallVec;

use super::{Charges, Limiter};
use crate::policy::{Alternative, Groups, NoDemand};
use crate::store::{Backend, Charge};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Returns the names of the groups of policies of which one pays, as
    /// [`first_of`](super::LimiterBuilder::first_of) has declared them.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.policies.names.groups().map(|(name, _)| name)
    }
}

/// What a request asks of the members of groups. A member that has no key, does not apply or is not enforced is passed over.
pub(super) struct Members<'a, R> {
    groups: &'a Groups,
    without_key: Vec<(Alternative, R)>,
    exempting: SmallVec<[Alternative; 4]>,
    /// The policies that count the request together with others that have no key.
    keyless: SmallVec<[usize; 4]>,
    /// The groups that have an exempt member for which the request has a key.
    exempt_with_key: SmallVec<[u8; 4]>,
}

impl<'a, R> Members<'a, R> {
    pub(super) fn of(groups: &'a Groups) -> Self {
        Self {
            groups,
            without_key: Vec::new(),
            exempting: SmallVec::new(),
            keyless: SmallVec::new(),
            exempt_with_key: SmallVec::new(),
        }
    }

    /// Returns the place of a policy in its group, if it is a member of one.
    pub(super) fn place(&self, policy: usize) -> Option<Alternative> {
        self.groups.of(policy)
    }

    /// Takes the charge of a policy, which may be that of a member, for a request that has a key for it or not.
    pub(super) fn charged(&mut self, charge: &mut Charge, has_key: bool) {
        charge.alternative = self.place(charge.policy);
        if !has_key {
            self.keyless.push(charge.policy);
        }
    }

    /// Takes a refusal of a request for which a member has no key.
    pub(super) fn refused(&mut self, its: Alternative, refusal: R) {
        self.without_key.push((its, refusal));
    }

    /// Takes the reason why a member charges nothing.
    pub(super) fn charged_nothing(&mut self, its: Alternative, why: &NoDemand<R>, has_key: bool) {
        if let NoDemand::Exempt(_) | NoDemand::Unlimited = why {
            self.exempting.push(its);
            if has_key {
                self.exempt_with_key.push(its.group);
            }
        }
    }

    /// Leaves the charges among which a store is to choose.
    ///
    /// # Errors
    ///
    /// When no member of a group has a key for the request.
    pub(super) fn choose(
        self,
        charges: &mut Charges,
        passes_over: &mut impl FnMut(usize),
    ) -> Result<(), R> {
        pass_over_keyless(charges, &self.keyless, self.exempt_with_key, passes_over);
        for exempting in &self.exempting {
            make_optional(charges, *exempting, passes_over);
        }
        let is_left = |without: &(Alternative, R)| {
            let group = without.0.group;
            let mut others = charges.iter().filter_map(|charge| charge.alternative);
            let mut exempting = self.exempting.iter();
            !others.any(|other| other.group == group) && !exempting.any(|it| it.group == group)
        };
        let refused = self.without_key.into_iter().find(is_left);
        refused.map_or(Ok(()), |(_, refusal)| Err(refusal))
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
