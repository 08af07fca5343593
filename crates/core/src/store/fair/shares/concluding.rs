//! How a request of a tenant ends: it has passed, or it was refused and has a turn.

use super::{Scale, Share, Shares, Tenant};
use crate::clock::Micros;
use crate::store::fair::ending::Ending;
use crate::store::fair::times::in_micros;
use crate::store::fair::turns::Need;

impl Shares {
    /// Follows the end of a request of the tenant at this place, which had this share. The share tells its turn from then on.
    pub(in crate::store) fn conclude(
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

    /// Charges a request that has passed, of the tenant at this place.
    pub(super) fn charge(&mut self, place: usize, cost: u32, scale: &Scale) {
        let tenant = &mut self.tenants[place];
        let had_turn = tenant.turn > 0 && tenant.turn_at <= self.at;
        if had_turn && cost < tenant.turn {
            // The rest is for other requests of the tenant.
            let (part, turn) = (scale.time_of(cost), scale.time_of(tenant.turn));
            tenant.turn -= cost;
            self.turns.take(part, turn, scale.fill());
        } else {
            self.end_turn(place, scale);
        }
        self.stop_waiting(place);
        let (time, most) = (scale.time_of(cost), self.most(place, scale));
        let is_below_share = cost <= self.portion(self.tenants[place].weight.into(), scale);
        self.change(place, |tenant, virtual_time| {
            // What nobody claims is not held against the tenant that takes it.
            if had_turn || tenant.debt(virtual_time) == 0.0 {
                let weight = f64::from(tenant.weight);
                // A claim that has grown while a request waited was for that request. What is left is the rest of the share of the burst; after a
                // request that is as large, a whole one.
                let rest = if is_below_share { most - time } else { most };
                let least = virtual_time - rest / weight;
                tenant.tag = (tenant.tag + time / weight).max(least);
            }
        });
    }

    /// Notes that a request of the tenant at this place was not for this limit to decide, so that the tenant does not wait for room.
    pub(super) fn pass_by(&mut self, place: usize) {
        self.stop_waiting(place);
    }

    /// Notes that the limit, which is whole again after this time, had no room for a request of the tenant at this place, and gives it a
    /// turn. The tenant is active until then, if it asks for less than its share of the burst.
    pub(super) fn refuse(
        &mut self,
        (place, share): (usize, &mut Share),
        (cost, whole_after): (u32, Micros),
        scale: &Scale,
    ) {
        let tenant = &mut self.tenants[place];
        if !share.has_debt {
            self.waiting += usize::from(!tenant.waits);
            tenant.waits = true;
        }
        // Who is alone has no turn: nobody else could take the room.
        let is_alone = share.pace == 0.0 && self.turns.are_none();
        let has_turn = cost <= tenant.turn && self.at < tenant.turn_at;
        if !is_alone && !has_turn {
            self.end_turn(place, scale);
            let there = scale.fill() - in_micros(whole_after);
            self.give_turn((place, share), (cost, there), scale);
        }
        share.turn_to(self.turn(place));
        let tenant = &mut self.tenants[place];
        if cost <= share.portion {
            let told = self.at.saturating_add(share.own_wait(cost));
            tenant.seen = tenant.seen.max(told);
        }
    }

    fn give_turn(
        &mut self,
        (place, share): (usize, &Share),
        (cost, there): (u32, f64),
        scale: &Scale,
    ) {
        let (unit, accrues) = (scale.time_of(1), share.pace * f64::from(cost));
        let balance = in_micros(share.balance);
        let (wait, claimed) = if cost <= share.portion {
            let claims = !share.has_debt && share.pace > 0.0;
            let claimed = if claims {
                balance / share.pace * unit
            } else {
                0.0
            };
            (in_micros(share.claims_after(cost)), claimed)
        } else {
            // What the burst cannot hold is granted in advance, as far as the limit has room.
            let free = ((there - self.turns.kept()) / scale.fill()).clamp(0.0, 1.0);
            let balance = if share.has_debt { balance } else { -balance };
            (((1.0 - free) * accrues + balance).max(1.0), 0.0)
        };
        // A debt that is larger than requests are may not make the row of turns as long.
        if wait > 10.0 * accrues && !self.turns.reach(wait) {
            return;
        }
        let tenant = &mut self.tenants[place];
        tenant.turn = cost;
        tenant.is_large = 4 * u64::from(cost) > u64::from(scale.limit);
        self.large += usize::from(tenant.is_large);
        let after = self.turns.give(Need {
            cost: scale.time_of(cost),
            due: wait,
            there,
            claimed,
            fill: scale.fill(),
        });
        tenant.turn_at = self.at.saturating_add(after);
    }

    /// Returns the units of the turn of a tenant, and the time until then.
    pub(super) fn turn(&self, place: usize) -> (u32, Micros) {
        let tenant = &self.tenants[place];
        (tenant.turn, tenant.turn_at.saturating_sub(self.at))
    }

    /// Returns whether a tenant has not taken its turn in time.
    pub(super) fn is_too_late(&self, tenant: &Tenant, now: Micros, scale: &Scale) -> bool {
        if tenant.turn == 0 || now <= tenant.turn_at {
            return false;
        }
        let late = in_micros(now.saturating_sub(tenant.turn_at));
        let is_small = tenant.turn <= self.portion(tenant.weight.into(), scale);
        // The burst holds what is below the shares for as long as tenants count.
        let lasts = if is_small {
            f64::MAX
        } else {
            scale.fill() / 4.0
        };
        late > lasts.min(in_micros(scale.active_for))
    }

    /// Ends the turn of a tenant, if it has one.
    pub(super) fn end_turn(&mut self, place: usize, scale: &Scale) {
        let tenant = &mut self.tenants[place];
        if tenant.turn > 0 {
            let after = tenant.turn_at.saturating_sub(self.at);
            let cost = scale.time_of(tenant.turn);
            self.turns.end(cost, after, scale.fill());
            (tenant.turn, tenant.turn_at) = (0, Micros::ZERO);
            self.large -= usize::from(std::mem::take(&mut tenant.is_large));
        }
    }
}
