//! The charge of a request under a policy with a factor, and its outcome in units.
//!
//! The store counts such a policy in parts: a thousandth of the cost of a unit at the highest factor. A
//! request passes if the whole limit has room for it at that price, and is then charged the price of the
//! factor in force. So whether it passes does not depend on the factor, and no wait becomes false when the
//! factor changes.
//!
//! For the store, that is a charge of the price, under a limit that is raised by the difference of the
//! prices: there is room for the price under that limit exactly if there is room for the least price under
//! the limit itself.

use crate::algorithm::{Algorithm, Limit};
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes, Units, WindowSecs};
use crate::factor::{Class, Factor, FactorCell};
use crate::policy::Policy;
use crate::store::Charge;

/// The prices of all policies, by index; `None` if no policy has a factor.
pub(super) struct Prices(Option<Box<[Option<Price>]>>);

struct Price {
    cell: FactorCell,
    /// The declared algorithm, in units.
    whole: Algorithm,
    /// The algorithm in parts, as the store has it.
    parts: Algorithm,
    /// The limit in parts, for a request without a limit of its own.
    limit: Limit,
}

/// The parts of a unit at the least price.
const UNIT: u64 = 1_000;

impl Prices {
    pub(super) fn of(policies: &[Policy]) -> Self {
        let price = |policy: &Policy| {
            let (cell, whole) = policy.parts()?;
            let parts = *policy.algorithm();
            Some(Price {
                cell: cell.clone(),
                whole: *whole,
                limit: parts.limits()?,
                parts,
            })
        };
        let prices: Box<[_]> = policies.iter().map(price).collect();
        let are_any = prices.iter().any(Option::is_some);
        Self(are_any.then_some(prices))
    }

    /// Returns whether any policy has a factor.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the factor of a policy whose limit cannot grow. Whether its limit is reached matters to
    /// refusals alone.
    #[inline]
    pub(super) fn ungrowing(&self, policy: usize) -> Option<&FactorCell> {
        let cell = &self.of_policy(policy)?.cell;
        (cell.most() == Factor::ONE).then_some(cell)
    }

    /// Returns the cost of these units while all of the limit is in force, if it cannot grow.
    #[inline]
    pub(super) fn whole_cost(cell: &FactorCell, units: u32) -> Option<u32> {
        let is_whole = cell.get() == Factor::ONE;
        is_whole.then(|| u64::from(units) * UNIT)?.try_into().ok()
    }

    #[inline]
    fn of_policy(&self, policy: usize) -> Option<&Price> {
        self.0.as_ref()?.get(policy)?.as_ref()
    }

    /// Returns whether this policy has a factor.
    pub(super) fn has(&self, policy: usize) -> bool {
        self.of_policy(policy).is_some()
    }

    /// Returns the algorithm of a policy with a factor, in units.
    pub(super) fn whole(&self, policy: usize) -> Option<Algorithm> {
        Some(self.of_policy(policy)?.whole)
    }

    /// Converts the cost of a charge from units to the present price for a request of this class.
    #[inline]
    pub(super) fn price(&self, charge: &mut Charge, class: Class) {
        if let Some(price) = self.of_policy(charge.policy) {
            price.charge(charge, price.cell.of(class));
        }
    }

    /// Converts the cost to the least price that it can have had.
    pub(super) fn price_at_least(&self, charge: &mut Charge) {
        if let Some(price) = self.of_policy(charge.policy) {
            price.charge(charge, price.cell.most());
        }
    }

    /// Returns the units of a charge that was priced.
    #[inline]
    pub(super) fn units(&self, charge: &Charge) -> u32 {
        if self.0.is_none() {
            return charge.cost;
        }
        let price = self.of_policy(charge.policy);
        price.map_or(charge.cost, |price| price.units_of(charge))
    }

    /// Returns the cost of a charge if its request had cost this many units.
    pub(super) fn settled(&self, charge: &Charge, units: u32) -> u32 {
        match self.of_policy(charge.policy) {
            None => units,
            Some(price) => price.settled(charge, units),
        }
    }

    /// Takes the room away that the price of a charge has added.
    pub(super) fn take_room_away(&self, charge: &mut Charge) {
        if charge.beyond > 0
            && let Some(price) = self.of_policy(charge.policy)
        {
            charge.limit = Some(price.limit_of(charge));
            charge.beyond = 0;
        }
    }

    /// Returns the limit of a charge in units.
    pub(super) fn limit_in_units(&self, charge: &Charge) -> Option<Limit> {
        let limit = charge.limit?;
        match self.of_policy(charge.policy) {
            None => Some(limit),
            Some(price) => Some(price.in_units(price.limit_of(charge))),
        }
    }

    /// Converts a limit from parts to units. The limit of a policy without a factor is in units already.
    pub(super) fn in_units(&self, policy: usize, limit: Limit) -> Limit {
        let price = self.of_policy(policy);
        price.map_or(limit, |price| price.in_units(limit))
    }

    /// Converts outcomes from parts to units.
    #[inline]
    pub(super) fn convert_to_units(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        if self.0.is_some() {
            self.convert_each(charges, outcomes);
        }
    }

    fn convert_each(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        outcomes.change_each(|policy, outcome| {
            let charge = charges.iter().find(|charge| charge.policy == policy);
            if let (Some(price), Some(charge)) = (self.of_policy(policy), charge) {
                *outcome = price.outcome_in_units(charge, outcome);
            }
        });
    }
}

impl Price {
    /// Returns the cost of these units under this factor, rounded up. The product fits: a factor is at most a
    /// million.
    fn parts(&self, units: u32, factor: Factor) -> u64 {
        let most = u64::from(self.cell.most().get());
        (u64::from(units) * UNIT * most).div_ceil(factor.get().into())
    }

    /// Returns the limit of a charge in parts, without the room for its price.
    fn limit_of(&self, charge: &Charge) -> Limit {
        match charge.limit {
            None => self.limit,
            Some(limit) if charge.beyond == 0 => limit,
            Some(limit) => {
                let without = self.parts.leaving(limit, charge.beyond);
                without.unwrap_or(self.limit)
            }
        }
    }

    fn in_units(&self, limit: Limit) -> Limit {
        let most = self.cell.most().get();
        limit.with(limit.quota() / most, limit.size() / most)
    }

    fn charge(&self, charge: &mut Charge, factor: Factor) {
        charge.factor = factor;
        let units = charge.cost;
        let least = u64::from(units) * UNIT;
        let Ok(cost) = u32::try_from(least) else {
            // The cost exceeds any limit.
            charge.cost = u32::MAX;
            return;
        };
        charge.cost = cost;
        let limit = charge.limit.unwrap_or(self.limit);
        if factor < self.cell.most() && (1..=limit.size()).contains(&cost) {
            let more = self.parts(units, factor) - least;
            let more = u32::try_from(more).unwrap_or(u32::MAX).min(limit.size());
            charge.cost = cost.saturating_add(more);
            charge.limit = self.parts.beyond(limit, more);
            charge.beyond = more;
        }
    }

    /// Returns the cost of a charge before it was priced. The price was rounded up by less than a unit.
    fn units_of(&self, charge: &Charge) -> u32 {
        let most = UNIT * u64::from(self.cell.most().get());
        let units = u64::from(charge.cost) * u64::from(charge.factor.get()) / most;
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Returns the cost of a request that takes this many units, as it was [charged](Self::charge), and above
    /// the limit as well.
    fn settled(&self, charge: &Charge, units: u32) -> u32 {
        let least = u64::from(units) * UNIT;
        let parts = self.parts(units, charge.factor);
        let more = parts.saturating_sub(least);
        let most = self.limit_of(charge).size();
        let cost = least.saturating_add(more.min(most.into()));
        u32::try_from(cost).unwrap_or(u32::MAX)
    }

    fn outcome_in_units(&self, charge: &Charge, outcome: &Outcome) -> Outcome {
        let (factor, beyond) = (charge.factor, charge.beyond);
        let of_request = self.limit_of(charge);
        // Without the store, a node may have a share of the limit.
        let whole = outcome.limit().saturating_sub(beyond);
        let free = outcome.remaining().saturating_sub(beyond);
        let unit = self.parts(1, factor);
        let remaining = units(free, unit);
        if remaining == 0 {
            self.cell.note_reached();
        }
        let effective_window = match outcome.effective_micros() {
            Some(blocked) if outcome.is_blocked() => blocked,
            Some(window) if remaining > 0 => self
                .time_of(
                    u64::from(remaining).saturating_mul(unit),
                    (of_request, whole),
                )
                .unwrap_or(window),
            Some(_) => outcome.retry_micros().unwrap_or_else(|| {
                let missing = (UNIT + u64::from(beyond)).saturating_sub(outcome.remaining().into());
                // A window or a log does not say when it has room for the next unit; at its reset it has.
                self.time_of(missing, (of_request, whole))
                    .unwrap_or(outcome.reset_micros())
            }),
            None => Micros::ZERO,
        };
        let limit = units(whole, unit);
        // A plan or a table has set the limit of the request.
        let (is_given, window) = match charge.window {
            Some(window) => (true, Some(window)),
            None => (
                of_request != self.limit,
                self.whole.period().map(WindowSecs::of),
            ),
        };
        outcome.in_units(&Units {
            limit,
            remaining,
            effective_window,
            is_scaled: is_given || self.whole.limit() != Some(limit),
            window,
            is_reduced: factor < Factor::ONE,
        })
    }

    /// Returns the time in which a bucket with this limit, of which a node has a share of this size, drains
    /// by this many parts, rounded up; `None` for a window.
    fn time_of(&self, parts: u64, (limit, share): (Limit, u32)) -> Option<Micros> {
        let (_, period) = self.parts.rate()?;
        // This is the usual case, for which a division of 64 bits is enough.
        if limit.size() == share && limit.quota() > 0 {
            let drained = parts.checked_mul(Micros::from(period).get());
            if let Some(drained) = drained {
                return Some(Micros::wait(drained.div_ceil(limit.quota().into()).into()));
            }
        }
        // The rate has the same share as the size.
        let parts = u128::from(parts) * u128::from(limit.size());
        let rate = u128::from(limit.quota()) * u128::from(share);
        let micros = parts.checked_mul(Micros::from(period).get().into())?;
        Some(Micros::wait(
            micros
                .checked_add(rate)?
                .checked_sub(1)?
                .checked_div(rate)?,
        ))
    }
}

/// Returns how many units at this price fit into `free` parts.
fn units(free: u32, price: u64) -> u32 {
    match u64::from(free).checked_sub(UNIT) {
        None => 0,
        Some(rest) => u32::try_from(rest / price + 1).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::TokenBucket;
    use crate::key::Key;

    const SECOND: u64 = 1_000_000;

    fn price() -> Price {
        let cell = FactorCell::new();
        let policy = Policy::new("calls", TokenBucket::per_second(10)).factor(&cell);
        let policy = policy.into_stored().expect("a bucket has parts");
        let Prices(prices) = Prices::of(&[policy]);
        let price = prices.and_then(|prices| prices.into_iter().next().flatten());
        price.expect("the policy has a factor")
    }

    #[test]
    fn the_limit_of_a_charge_is_that_without_the_room_for_its_price() {
        let price = price();
        let own = price.parts.under(Limit::new(4_000, 4_000)).unwrap();
        for limit in [None, own.limits()] {
            for factor in [1_000, 500] {
                let mut charge = Charge::new(0, Key::GLOBAL, 1);
                charge.limit = limit;
                price.charge(&mut charge, Factor::thousandths(factor));
                assert_eq!(charge.beyond > 0, factor < 1_000);
                let expected = limit.unwrap_or(price.limit);
                assert_eq!(price.limit_of(&charge), expected, "{factor}");
            }
        }
    }

    #[test]
    fn a_limit_is_told_in_units() {
        let price = price();
        let limit = price.in_units(price.limit);
        assert_eq!((limit.quota(), limit.size()), (10, 10));
    }

    #[test]
    fn a_share_of_a_bucket_drains_at_its_share_of_the_rate() {
        let price = price();
        let whole = price.limit.size();
        for (share, expected) in [(whole, SECOND / 10), (whole / 2, SECOND / 5)] {
            let one = price.time_of(UNIT, (price.limit, share));
            assert_eq!(one, Some(Micros::new(expected)), "{share} of {whole}");
        }
    }
}
