//! What a tenant has used, amended after the request.

use super::{Scale, Shares, Standing};
use crate::clock::Micros;
use crate::store::Amendment;

impl Shares {
    /// Follows an amendment of the state of the shared key by so many units.
    pub(in crate::store) fn amend(
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

    /// Adds units to what a tenant has used, which may have lapsed meanwhile.
    pub(super) fn use_up(
        &mut self,
        (name, weight): (u64, u32),
        units: u32,
        now: Micros,
        scale: &Scale,
    ) {
        self.advance(now, scale);
        let place = self.find(name, weight, scale);
        self.visit_known(place, scale);
        let (time, claim) = (scale.time_of(units), self.longest_claim(place, scale));
        self.change(place, |tenant, virtual_time| {
            let time = time / f64::from(tenant.weight);
            tenant.tag = tenant.tag.max(virtual_time - claim) + time;
            if tenant.standing == Standing::Sated {
                (tenant.standing, tenant.still) = (Standing::Accruing, 0.0);
            }
        });
    }

    /// Takes units off what a tenant has used. They are its claim again, up to its share of the burst.
    pub(super) fn give_back(&mut self, name: u64, units: u32, now: Micros, scale: &Scale) {
        self.advance(now, scale);
        if let Some(place) = self.place_of(name) {
            self.visit_known(place, scale);
            let (time, claim) = (scale.time_of(units), self.longest_claim(place, scale));
            self.change(place, |tenant, virtual_time| {
                let least = tenant.tag.min(virtual_time - claim);
                tenant.tag = (tenant.tag - time / f64::from(tenant.weight)).max(least);
            });
        }
    }

    /// Forgets the debt of a tenant.
    pub(super) fn forgive(&mut self, name: u64, now: Micros, scale: &Scale) {
        self.advance(now, scale);
        if let Some(place) = self.place_of(name) {
            self.change(place, |tenant, virtual_time| {
                tenant.tag = tenant.tag.min(virtual_time);
            });
        }
    }
}
