//! The renewal of slots in items: one change for each item.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Items;
use super::backend::{Changes, tenant, update};
use super::change::{Change, Verb};
use crate::clock::Micros;
use crate::store::in_use::SlotsInUse;
use crate::store::outage::remote_backend::in_time;
use crate::store::renewal::{Renews, not_renewed, renew_each};
use crate::store::{Amendment, Charge, Charges};

/// The number of items that are renewed at once.
const MOST_AT_ONCE: usize = 64;

impl<I: Items> Renews for Changes<I> {
    fn in_use(&self) -> &SlotsInUse {
        &self.in_use
    }

    fn life(&self) -> Micros {
        self.slot_life
    }

    /// In the runtime of the request, which the items may need.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(task);
        }
    }

    async fn renew(self: &Arc<Self>, charges: &[Charge]) -> u64 {
        let mut of_items: HashMap<String, Vec<Charge>> = HashMap::new();
        for charge in charges {
            if let Some(policy) = self.policies.get(charge.policy) {
                let (item, _) = policy.items(&charge.key, Verb::Renew);
                of_items.entry(item).or_default().push(*charge);
            }
        }
        let patience = self.patience(of_items.len());
        let renewals = of_items.into_values().map(|charges| {
            let of = Arc::clone(self);
            async move { of.renew_item(&charges, patience).await }
        });
        renew_each(renewals, MOST_AT_ONCE).await
    }

    async fn release(self: &Arc<Self>, charges: &[Charge]) {
        let patience = self.patience(charges.len());
        let releases = charges.iter().map(|charge| {
            let (of, charge) = (Arc::clone(self), *charge);
            async move {
                if let Ok(release) = of.change(&[charge], Verb::Amend(Amendment::Release)) {
                    // What is not given back ends by itself.
                    let _ = in_time(patience, update(&*of.items, release).wait()).await;
                }
                0
            }
        });
        let releases: Vec<_> = releases.collect();
        renew_each(releases.into_iter(), MOST_AT_ONCE).await;
    }
}

impl<I: Items> Changes<I> {
    /// Returns how long to wait for each of so many items, so that all are over before the next renewal.
    fn patience(&self, items: usize) -> Duration {
        let rounds = items.div_ceil(MOST_AT_ONCE).max(1);
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        self.slot_life.to_duration() / 8 / rounds
    }

    /// Renews the slots of an item that these charges hold.
    async fn renew_item(&self, charges: &[Charge], patience: Duration) -> u64 {
        let Some(change) = self.renewal(charges) else {
            return 0;
        };
        let renewed = in_time(patience, update(&*self.items, change).wait()).await;
        match renewed.and_then(|changed| changed.answer.map(|_| changed.units)) {
            Ok(lost) => lost.into(),
            Err(error) => {
                self.failed_renewals.fetch_add(1, Ordering::Relaxed);
                not_renewed(&error);
                0
            }
        }
    }

    /// Returns the change that renews these slots of one item.
    fn renewal(&self, charges: &[Charge]) -> Option<Change> {
        let mut of_policies = Charges::new();
        for charge in charges {
            if of_policies
                .iter()
                .all(|first| first.policy != charge.policy)
            {
                of_policies.push(*charge);
            }
        }
        let mut change = self.change(&of_policies, Verb::Renew).ok()?;
        let renewed = charges.iter().filter_map(|charge| {
            let place = of_policies
                .iter()
                .position(|first| first.policy == charge.policy)?;
            let (tenant, _) = tenant(charge);
            Some((place, (charge.slot?.number(), charge.cost, tenant)))
        });
        change.renewed = renewed.collect();
        Some(change)
    }
}
