//! What a tenant has of a limit that is divided: [`shares`] has the rule for buckets, and [`holders`] that for slots, which all stores
//! keep.

mod hand;
mod holders;
mod shares;
mod times;
mod turns;

use super::Amendment;
use crate::clock::Micros;

pub(super) use self::holders::{Holders, SlotScale, SlotShare};
pub(super) use self::shares::{Scale, Share, Shares};

/// How a request ends under a limit that is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Passed,
    /// The limit has refused it, which is whole again after this time, and nothing else but other divided limits.
    Refused(Micros),
    /// It takes nothing of the limit, whatever room that has.
    Elsewhere,
}

impl Shares {
    /// Follows the end of a request of the tenant at this place, which had this share. The share tells its turn from then on.
    pub(super) fn conclude(
        &mut self,
        asked: (usize, &mut Share),
        ending: Ending,
        cost: u32,
        scale: &Scale,
    ) {
        let (place, share) = asked;
        match ending {
            Ending::Passed => {
                self.charge(place, cost, scale);
                share.turn_to(self.turn(place));
            }
            Ending::Refused(whole_after) => {
                self.refuse((place, share), (cost, whole_after), scale);
            }
            Ending::Elsewhere => self.pass_by(place),
        }
    }

    /// Follows an amendment of the state of the shared key by so many units.
    pub(super) fn amend(
        &mut self,
        tenant: (u64, u32),
        (units, now): (u32, Micros),
        amendment: Amendment,
        scale: &Scale,
    ) {
        match amendment {
            Amendment::Settle | Amendment::Add(_) => self.use_up(tenant, units, now, scale),
            // What the limit no longer takes back is used up.
            Amendment::TakeBack(taken) if now >= taken.until() => {}
            Amendment::Refund | Amendment::TakeBack(_) | Amendment::GiveBack(_) => {
                self.give_back(tenant.0, units, now, scale);
            }
            Amendment::Reset => self.forgive(tenant.0, now, scale),
            Amendment::Release
            | Amendment::Block(_)
            | Amendment::Unblock
            | Amendment::Override(..)
            | Amendment::EndOverride => {}
        }
    }
}
