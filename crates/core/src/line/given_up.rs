//! Whose turns a line gives back to the store, if tenants share its key.
//!
//! Requests move up into the turns of those that have gone away, so the turns that are left over were charged to others than the tenants
//! that gave up as many.

use super::round::Tenant;

/// How many turns each tenant was charged for requests that have gone away. The line has as many that no request takes.
///
/// The tenant whose request was the last to go away stands last. Its turns go back first, and those of the first pass unused first.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Vec<(Tenant, u64)>);

impl GivenUp {
    /// Adds turns of a tenant, if tenants share the key.
    pub(super) fn add(&mut self, tenant: Option<Tenant>, turns: u32) {
        let Some(tenant) = tenant.filter(|_| turns > 0) else {
            return;
        };
        let known = self.0.iter().position(|(it, _)| it.name == tenant.name);
        let before = known.map_or(0, |place| self.0.remove(place).1);
        self.0.push((tenant, before + u64::from(turns)));
    }

    /// Returns the last tenant, and how many turns it has given up.
    pub(super) fn last(&self) -> Option<(Tenant, u32)> {
        let (tenant, turns) = self.0.last()?;
        Some((*tenant, u32::try_from(*turns).unwrap_or(u32::MAX)))
    }

    /// Takes turns away from those of the last tenant.
    pub(super) fn take(&mut self, turns: u32) {
        if let Some((_, last)) = self.0.last_mut() {
            *last = last.saturating_sub(turns.into());
            self.0.pop_if(|(_, turns)| *turns == 0);
        }
    }

    /// Keeps this many turns. The others have passed unused.
    pub(super) fn keep(&mut self, turns: u64) {
        let all: u64 = self.0.iter().map(|(_, turns)| turns).sum();
        let mut passed = all.saturating_sub(turns);
        self.0.retain_mut(|(_, turns)| {
            let of_it = passed.min(*turns);
            passed -= of_it;
            *turns -= of_it;
            *turns > 0
        });
    }
}
