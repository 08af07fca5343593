//! Groups of charges of which one is made: which one it is, and what is answered about them.

use smallvec::SmallVec;

use super::Charge;
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};
use crate::policy::Alternative;

/// The policies between which a store chooses the one that pays: see [`Store::chooses_payers`](super::Store::chooses_payers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payers {
    /// It does not choose. The text says what to do, as the remedy of an error.
    None(&'static str),
    /// Policies of any keys.
    OfAnyKeys,
    /// Policies whose keys have one root in each request: the same key, or keys of levels of one tree. That goes for the policies
    /// that are always charged, too.
    OfOneRoot,
    /// Policies that have the same key in each request. That goes for the policies that are always charged, too.
    OfOneKey,
}

/// What becomes of one of several charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Pays,
    /// Another one pays, or none has to.
    IsPassedOver,
    /// None has room.
    Denies,
}

impl Alternative {
    /// Returns the number of its group. Groups count from 0.
    pub fn group(self) -> u8 {
        self.group
    }

    /// Returns its place in the group. The first that has room is charged.
    pub fn rank(self) -> u8 {
        self.rank
    }

    /// Returns whether the request passes without a charge if no member of the group has room.
    pub fn is_optional(self) -> bool {
        self.is_optional
    }

    /// Chooses among these members of groups, each with whether it has room.
    pub(super) fn choice(self, members: impl Iterator<Item = (Self, bool)>) -> Choice {
        let with_room = members.filter(|(its, has_room)| its.group == self.group && *has_room);
        match with_room.map(|(its, _)| its.rank).min() {
            Some(rank) if rank == self.rank => Choice::Pays,
            None if !self.is_optional => Choice::Denies,
            _ => Choice::IsPassedOver,
        }
    }
}

impl Charge {
    /// Returns the place of the charge among those of which one is made; `None` if it is always made.
    pub fn alternative(&self) -> Option<Alternative> {
        self.alternative
    }

    /// Keeps one of the outcomes of each group of which one charge is made: that of the first charge that has room. If none has
    /// room, that of the shortest wait stays, or none if none has to be made.
    pub fn keep_one_of_each(charges: &[Self], outcomes: &mut Outcomes) {
        let places = charges.iter();
        let places =
            places.filter_map(|charge| Some((charge.policy, charge.alternative?, charge.cost)));
        keep_one_of_each(&places.collect::<Places>(), outcomes);
    }
}

/// The policies that are members of groups, and what the request costs under each.
pub(super) type Places = SmallVec<[(usize, Alternative, u32); 8]>;

/// Returns how long a request that is denied by this outcome waits, for a comparison. A limit below its cost never admits it, though the key
/// may be blocked for some time.
pub(super) fn wait_by(outcome: &Outcome, cost: u32) -> Micros {
    let wait = outcome.retry_micros().filter(|_| cost <= outcome.limit());
    wait.unwrap_or(Micros::new(u64::MAX))
}

pub(super) fn keep_one_of_each(places: &[(usize, Alternative, u32)], outcomes: &mut Outcomes) {
    let told = |policy| {
        let mut each = outcomes.iter();
        let (_, outcome) = each.find(|(of, _)| *of == policy)?;
        Some(*outcome)
    };
    let members = places.iter();
    let members =
        members.filter_map(|&(policy, its, cost)| Some((policy, its, (told(policy)?, cost))));
    let members: SmallVec<[_; 8]> = members.collect();
    let is_kept = |policy, mine: Alternative| {
        let room = members.iter();
        match mine.choice(room.map(|(_, its, (outcome, _))| (*its, outcome.is_allowed()))) {
            Choice::Pays => true,
            Choice::IsPassedOver => false,
            Choice::Denies => {
                let of_group = members.iter().filter(|(_, its, _)| its.group == mine.group);
                let soonest = of_group
                    .min_by_key(|(_, its, (outcome, cost))| (wait_by(outcome, *cost), its.rank));
                soonest.is_some_and(|(of, ..)| *of == policy)
            }
        }
    };
    let dropped = members.iter().filter(|(of, its, _)| !is_kept(*of, *its));
    let dropped: SmallVec<[usize; 8]> = dropped.map(|(policy, ..)| *policy).collect();
    outcomes.retain(|policy, _| !dropped.contains(&policy));
}

/// Returns whether these are outcomes of these charges, of which some are one of several: one of each group, and one of each charge that
/// is always made.
#[cold]
pub(super) fn are_answered_by_some(charges: &[Charge], outcomes: &Outcomes) -> bool {
    if charges.iter().all(|charge| charge.alternative.is_none()) {
        return false;
    }
    let is_asked = |policy| charges.iter().any(|charge| charge.policy == policy);
    let is_answered = |charge: &&Charge| outcomes.iter().any(|(it, _)| it == charge.policy);
    let is_told = |charge: &Charge| {
        let Some(mine) = charge.alternative else {
            return is_answered(&charge);
        };
        let is_of_group = |other: &&Charge| {
            let group = other.alternative.map(|it| it.group);
            group == Some(mine.group)
        };
        let group = charges.iter().filter(is_of_group);
        let told = group.filter(is_answered).count();
        told == 1 || told == 0 && mine.is_optional
    };
    outcomes.iter().all(|(policy, _)| is_asked(policy)) && charges.iter().all(is_told)
}
