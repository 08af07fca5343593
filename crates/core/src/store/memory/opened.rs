//! A policy as a backend has opened it: its table, and what stands beside that.

use std::sync::Arc;

use super::blocks::Blocks;
use super::fair::{Division, SlotDivision};
use super::guarantee::Guarantee;
use super::page_snapshot::{Counted, Probe};
use super::prepared::Prepared;
use super::slots::Slots;
use super::tiers::{Counter, Tiers};
use super::timed::Full;
use crate::algorithm::{Algorithm, Limit};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::policy::NamedPenalty;
use crate::store::charged::cannot_have;
use crate::store::{Amendment, Charge, Taken};

/// The table of a policy, with its number among all tables of the store, and the blocked keys.
pub(super) struct Opened {
    pub(super) number: usize,
    /// The algorithm of the policy, under the limit with which this backend was opened.
    pub(super) algorithm: Algorithm,
    /// The same, if its limit differs from that of the counter.
    pub(super) limit: Option<Algorithm>,
    /// The algorithm for which the counter was made.
    pub(super) first: Algorithm,
    pub(super) counter: Arc<dyn Counter>,
    /// The algorithms of limits that requests bring.
    pub(super) prepared: Prepared,
    pub(super) blocks: Arc<Blocks>,
    pub(super) penalty: Option<NamedPenalty>,
    /// How the limit is divided among tenants, if it is.
    pub(super) division: Option<Division>,
    /// What the policy guarantees to the keys of the one below, if it guarantees anything.
    pub(super) guarantee: Option<Guarantee>,
    /// The slots that requests hold under a policy on concurrency.
    pub(super) slots: Option<Arc<Slots>>,
    /// How they are divided among tenants, if they are.
    pub(super) slot_division: Option<SlotDivision>,
}

impl Opened {
    pub(super) fn general(&self) -> &Tiers {
        self.counter.general()
    }

    /// Returns the key that is counted: of a limit that is divided, that which all tenants share.
    pub(super) fn counted(&self, key: &Key) -> Key {
        if self.division.is_some() || self.slot_division.is_some() {
            key.root()
        } else {
            *key
        }
    }

    /// Returns whether requests hold slots of this policy.
    pub(super) fn takes_slots(&self) -> bool {
        self.slots.is_some()
    }

    /// Returns the limit of a charge, if it differs from that of the counter.
    pub(super) fn limit_of(&self, charge: &Charge) -> Option<Algorithm> {
        self.limit_under(charge.limit, &mut None).copied()
    }

    /// Returns the limit of a request that brings this one, if it differs from that of the counter. `made` has room for
    /// it.
    #[inline]
    pub(super) fn limit_under<'a>(
        &'a self,
        limit: Option<Limit>,
        made: &'a mut Option<Algorithm>,
    ) -> Option<&'a Algorithm> {
        let Some(limit) = limit else {
            return self.limit.as_ref();
        };
        if let Some(prepared) = self.prepared.find(limit) {
            return prepared.as_ref();
        }
        *made = self.make(limit);
        made.as_ref()
    }

    #[inline(never)]
    fn make(&self, limit: Limit) -> Option<Algorithm> {
        let made = self.algorithm.under(limit).unwrap_or(self.algorithm);
        let made = (made != self.first).then_some(made);
        if let Some(made) = &made {
            self.general().note_limit(made);
        }
        self.prepared.keep(limit, made);
        made
    }

    /// Releases the slots of a request, or settles its charge under the policy's own limit. Returns `false` in all but the
    /// common case.
    #[inline]
    pub(super) fn amend_at_once(
        &self,
        charge: &Charge,
        probe: Probe,
        amendment: Amendment,
        clock: &dyn Clock,
    ) -> bool {
        let is_common =
            |taken: Taken| charge.limit.is_none() && self.limit.is_none() && !taken.is_overflow();
        match amendment {
            Amendment::Release => {
                if let Some(slots) = &self.slots {
                    slots.lock_key(probe.fingerprint).give_back(probe.cost);
                }
                true
            }
            Amendment::TakeBack(taken) if is_common(taken) => {
                self.counter.take_back_at_once(probe, taken.until(), clock)
            }
            Amendment::Add(taken) if is_common(taken) && probe.cost > 0 => {
                self.counter.settle_at_once(probe, clock)
            }
            _ => false,
        }
    }

    /// Changes the state of a key; see [`Backend::amend`](crate::store::Backend::amend).
    pub(super) fn amend(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        amendment: Amendment,
        clock: &dyn Clock,
    ) -> Result<bool, StoreError> {
        let (key, counter) = (probe.fingerprint, self.general());
        match amendment {
            // At once.
            Amendment::Release => {}
            Amendment::Settle => {
                let may_be_known = limit.is_none() && probe.cost > 0;
                if !(may_be_known && self.counter.settle_at_once(probe, clock)) {
                    counter.settle((probe, Counted::Own), limit, clock);
                }
            }
            Amendment::Add(taken) => {
                counter.settle((probe, Counted::of(taken.is_overflow())), limit, clock);
            }
            Amendment::Block(length) => self.blocks.block(key, length, clock.now()),
            Amendment::Unblock => return Ok(self.blocks.unblock(key, clock.now())),
            Amendment::Override(limit, length) => {
                let policy = self.algorithm.without_hours();
                let limit = policy.under(limit).ok_or_else(cannot_have)?;
                let full = |Full| StoreError::new(StoreErrorKind::Full);
                let given = counter.override_limit(key, limit, length, clock);
                given.map_err(full)?;
            }
            Amendment::EndOverride => counter.end_override(key, clock),
            Amendment::Refund
            | Amendment::TakeBack(_)
            | Amendment::GiveBack(_)
            | Amendment::Reset => return Ok(counter.amend(probe, limit, clock, amendment)),
        }
        Ok(true)
    }
}
