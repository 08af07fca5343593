//! Others that have a part of a limit: the keys below, to which it is guaranteed, the tenants of a shared key, or the requests that hold
//! its slots.

use super::guarantee::{Family, Guarantee};
use super::item::Item;
use super::slots::{self, Holding};
use super::tenants::{Division, Tenants};
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::fair::Ending;
use crate::store::{Amendment, TenantShare};

/// How a limit is parted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Others {
    Children(Guarantee),
    Tenants(Division),
    Holders(Holding),
}

/// The others as a request finds them.
pub(super) enum Asked {
    Children(Family),
    Tenants(Tenants),
    Holders(slots::Asked),
}

impl Others {
    /// Returns whether a store of this version can have written what the item has of them.
    pub(super) fn are_legible(&self, item: &Item) -> bool {
        match self {
            Self::Children(guarantee) => guarantee.is_legible(item),
            Self::Tenants(division) => division.is_legible(item),
            Self::Holders(holding) => holding.are_legible(item),
        }
    }

    /// Asks what the request may take of this limit, of which so many units are left. Returns `None` if others have no part of it.
    pub(super) fn ask(
        &self,
        item: &Item,
        limit: &Algorithm,
        (left, now): (u32, Micros),
        only_looks: bool,
    ) -> Option<Asked> {
        match self {
            Self::Children(guarantee) => {
                let family = guarantee.ask(item, limit, (left, now));
                family.map(Asked::Children)
            }
            Self::Tenants(division) => {
                let tenants = division.ask(item, now, only_looks);
                Some(Asked::Tenants(tenants))
            }
            Self::Holders(holding) => {
                let asked = holding.ask(item, now, left, only_looks);
                Some(Asked::Holders(asked))
            }
        }
    }

    /// Returns the part of the tenant that asks beside those that are active, if the limit is divided.
    pub(super) fn share(&self, item: &Item, now: Micros) -> Option<TenantShare> {
        match self {
            Self::Children(_) => None,
            Self::Tenants(division) => Some(division.share(item, now)),
            Self::Holders(holding) => holding.share(item, now),
        }
    }

    /// Follows an amendment of the state of the key by these units, under this limit.
    pub(super) fn amend(
        &self,
        item: &mut Item,
        units: (u32, Micros),
        (limit, amendment): (&Algorithm, Amendment),
    ) {
        match self {
            Self::Children(guarantee) => guarantee.amend(item, units, (limit, amendment)),
            Self::Tenants(division) => division.amend(item, units, amendment),
            Self::Holders(holding) => holding.amend(item, units.1, amendment),
        }
    }
}

impl Asked {
    /// Returns the units that have to be left, so that a request of this cost passes.
    pub(super) fn needs(&self, cost: u32) -> u32 {
        match self {
            Self::Children(family) => cost.saturating_add(family.beside(cost)),
            Self::Tenants(tenants) => tenants.needs(cost),
            Self::Holders(asked) => asked.needs(cost),
        }
    }

    /// Returns how many units the request may take, if so many are left.
    pub(super) fn of(&self, left: u32) -> u32 {
        match self {
            Self::Children(family) => left.min(family.granted()),
            Self::Tenants(tenants) => tenants.of(left),
            Self::Holders(asked) => asked.of(left),
        }
    }

    /// Writes into an outcome what is left for the request, and how long it waits. `taken` is what it has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, asked: (u32, u32)) {
        match self {
            Self::Children(family) => family.tell(outcome, asked),
            Self::Tenants(tenants) => tenants.tell(outcome, asked),
            Self::Holders(slots) => slots.tell(outcome, asked.1),
        }
    }

    /// Returns whether they give a turn to a refused request of this cost.
    pub(super) fn give_turns(&self, cost: u32) -> bool {
        matches!(self, Self::Tenants(tenants) if tenants.give_turns(cost))
    }

    /// Follows the end of the request, and writes it into the item: who has asked is active, whether it has passed or not.
    pub(super) fn keep(&mut self, item: &mut Item, ending: Ending, cost: u32) {
        match self {
            Self::Children(family) => {
                let taken = if ending == Ending::Passed { cost } else { 0 };
                family.keep(item, taken);
            }
            Self::Tenants(tenants) => tenants.keep(item, ending, cost),
            Self::Holders(asked) => asked.keep(item, ending, cost),
        }
    }
}
