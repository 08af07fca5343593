//! The tenants among whom the limit of a shared key is divided: one record of the item of that key.
//!
//! Its words are those of [`Shares::words`], in which the name of a tenant is the tag of its key's name. It ends when nothing would change if
//! all tenants were forgotten. Words of another layout would have another tag.

use super::item::Item;
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::fair::{Ending, Scale, Share, Shares};
use crate::store::{Amendment, TenantShare};

/// The most tenants of a shared key that are told apart: each request writes all of them.
pub(super) const MOST: usize = 64;

/// How the limit of a policy is divided, and the tenant that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    /// The tag of the record.
    pub(super) tag: u64,
    pub(super) scale: Scale,
    /// The name of the tenant, and its weight.
    pub(super) tenant: (u64, u32),
}

/// The tenants of a shared key, of which one has asked.
pub(super) struct Tenants {
    division: Division,
    shares: Shares,
    /// The place of the tenant; `None` if it has only looked.
    place: Option<usize>,
    share: Share,
}

impl Division {
    /// Returns whether the record is one that a store of this version writes.
    pub(super) fn is_legible(&self, item: &Item) -> bool {
        Shares::read(item.words(self.tag)).is_some()
    }

    /// Asks for the tenant, which is active from now on, or only looks.
    pub(super) fn ask(&self, item: &Item, now: Micros, only_looks: bool) -> Tenants {
        let mut shares = self.shares(item);
        let (place, share) = if only_looks {
            (None, shares.look(self.tenant.0, now, &self.scale))
        } else {
            let (place, share) = shares.ask(self.tenant, now, &self.scale);
            (Some(place), share)
        };
        Tenants {
            division: *self,
            shares,
            place,
            share,
        }
    }

    /// Returns the part of the tenant beside those that are active.
    pub(super) fn share(&self, item: &Item, now: Micros) -> TenantShare {
        let (tenant, weight) = self.tenant;
        let shares = self.shares(item);
        TenantShare::beside_each(weight, shares.active_beside(tenant, now, &self.scale))
    }

    /// Follows an amendment of the state of the shared key by these units.
    pub(super) fn amend(&self, item: &mut Item, units: (u32, Micros), amendment: Amendment) {
        let mut shares = self.shares(item);
        shares.amend(self.tenant, units, amendment, &self.scale);
        self.keep(item, &shares);
    }

    fn shares(&self, item: &Item) -> Shares {
        Shares::read(item.words(self.tag)).unwrap_or_default()
    }

    fn keep(&self, item: &mut Item, shares: &Shares) {
        let words = shares.words();
        if words != item.words(self.tag) {
            item.put(self.tag, &words, shares.lapse_at(&self.scale));
        }
    }
}

impl Tenants {
    /// Returns the units that have to be left, so that a request of this cost passes.
    pub(super) fn needs(&self, cost: u32) -> u32 {
        self.share.needs(cost)
    }

    /// Returns how many units the request may take, if so many are left.
    pub(super) fn of(&self, left: u32) -> u32 {
        self.share.of(left, 0)
    }

    /// Returns whether they give a turn to a refused request of this cost: it is not larger than the limit.
    pub(super) fn give_turns(&self, cost: u32) -> bool {
        !self.share.is_below(cost)
    }

    /// Writes into an outcome what is left for the tenant, and how long it waits. `taken` is what this request has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, asked: (u32, u32)) {
        self.share.tell(outcome, asked);
    }

    /// Follows the end of the request, and writes the record.
    pub(super) fn keep(&mut self, item: &mut Item, ending: Ending, cost: u32) {
        let ending = match ending {
            Ending::Refused(_) if !self.give_turns(cost) => Ending::Elsewhere,
            ending => ending,
        };
        if let Some(place) = self.place {
            let scale = &self.division.scale;
            let asked = (place, &mut self.share);
            self.shares.conclude(asked, ending, cost, scale);
            self.division.keep(item, &self.shares);
        }
    }
}
