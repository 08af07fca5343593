//! The charges of a request: the limit of each policy, the demands on the request, and its price.

use smallvec::SmallVec;

use super::{Charges, Limiter, require_plan};
use crate::algorithm::Algorithm;
#[cfg(feature = "http")]
use crate::algorithm::Limit;
#[cfg(all(feature = "http", feature = "calendar"))]
use crate::clock::Micros;
use crate::error::{ConfigError, StoreError};
use crate::factor::Class;
use crate::key::{IntoKey, Key};
use crate::plan::{Finding, LimitContext};
use crate::store::{Charge, Ledger, Slot};

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns the charge of the only policy, for a request with this finding of a resolver. Returns `None`
    /// if the policy does not count the request. A list of charges has room for several, all of which would
    /// be moved.
    #[inline]
    pub(super) fn charge_of_one(
        &self,
        policy: usize,
        key: Key,
        cost: u32,
        finding: Option<&Finding>,
    ) -> Option<Charge> {
        self.policies.mistakes.note_asked_alike();
        let asker = self.with_plan_of(self.asker(), &key, finding);
        let mut charge = self.limited(Charge::new(policy, key, cost), asker, finding)?;
        self.demand(&mut charge, asker.is_low_priority);
        Some(charge)
    }

    /// Returns the charges of all policies for one key at one cost, as for a request.
    pub(crate) fn alike(&self, key: Key, cost: u32) -> Charges {
        let finding = self.found_now(&key);
        self.alike_for(self.asker(), key, cost, finding.as_ref())
    }

    /// Returns the charges of all policies for one key at one cost, for a request of this plan and operation,
    /// with the finding of a resolver.
    pub(crate) fn alike_for(
        &self,
        asker: LimitContext,
        key: Key,
        cost: u32,
        finding: Option<&Finding>,
    ) -> Charges {
        self.policies.mistakes.note_asked_alike();
        let mut charges = self.charges_for(asker, key, cost, finding);
        self.policies.apply_modes(&mut charges);
        charges
    }

    /// Returns charges of some policies, each for a key and at a cost of its own.
    pub(super) fn asked_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.note_asked_apart();
        self.charges_by_name(asked)
    }

    /// Returns charges of some policies, each for a key and at a cost of its own, with the policies' demands
    /// on a request.
    pub(super) fn asked_now_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.note_asked_apart();
        let mut charges = self.unpriced_by_name(asked)?;
        self.demand_of_all(&mut charges);
        self.price_all(&mut charges);
        Ok(charges)
    }

    /// Returns the charges of these keys under the named policies, at the least price, which is what is given
    /// back.
    pub(super) fn asked_by_name_at_least<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        self.policies.mistakes.note_asked_apart();
        let mut charges = self.unpriced_by_name(asked)?;
        for charge in &mut charges {
            self.policies.prices.price_at_least(charge);
        }
        Ok(charges)
    }

    /// Returns a charge for each limited policy, at the present price.
    pub(crate) fn charges(&self, key: Key, cost: u32) -> Charges {
        let finding = self.found_now(&key);
        self.charges_found(key, cost, finding.as_ref())
    }

    /// Returns a charge for each limited policy, with the finding of a resolver.
    pub(super) fn charges_found(&self, key: Key, cost: u32, finding: Option<&Finding>) -> Charges {
        self.charges_for(self.asker(), key, cost, finding)
    }

    pub(super) fn charges_for(
        &self,
        asker: LimitContext,
        key: Key,
        cost: u32,
        finding: Option<&Finding>,
    ) -> Charges {
        let mut charges = self.unpriced(asker, key, cost, finding);
        if self.policies.demands.are_any() {
            for charge in &mut charges {
                self.demand(charge, asker.is_low_priority);
            }
        }
        self.price_all(&mut charges);
        charges
    }

    /// Returns a charge for each limited policy, at the present price and without demands, to change a state.
    pub(super) fn charges_to_amend(&self, key: Key, units: u32) -> Charges {
        let finding = self.found_now(&key);
        let mut charges = self.unpriced(self.asker(), key, units, finding.as_ref());
        self.price_all(&mut charges);
        charges
    }

    /// Converts a charge to the question for the store, for a request of this priority.
    #[inline]
    pub(crate) fn demand(&self, charge: &mut Charge, is_low: bool) {
        self.policies.demands.apply(charge, is_low);
    }

    /// Returns how many units, up to `most`, a request can take at once.
    pub(super) fn most_at_once(&self, key: Key, most: u32) -> u32 {
        if !self.policies.demands.are_any() {
            return most;
        }
        self.policies.demands.most_of(&self.charges(key, 0), most)
    }

    /// Returns whether requests hold slots under a policy.
    pub(crate) fn has_slots(&self) -> bool {
        self.policies.has_slots
    }

    /// Lets a request take slots under this policy, if it is on concurrency, and hold them to its end.
    #[inline]
    pub(crate) fn hold(&self, charge: &mut Charge) {
        if self.policies.has_slots {
            let algorithm = self.policies.algorithms.get(charge.policy);
            let is_held = algorithm.is_some_and(Algorithm::is_held);
            charge.slot = is_held.then(Slot::unique);
        }
    }

    /// Lets a request take the slots of all its charges, and hold them to its end.
    pub(crate) fn hold_all(&self, charges: &mut [Charge]) {
        for charge in charges {
            self.hold(charge);
        }
    }

    pub(super) fn demand_of_all(&self, charges: &mut [Charge]) {
        if self.policies.demands.are_any() {
            let is_low = self.asker().is_low_priority;
            for charge in charges {
                self.demand(charge, is_low);
            }
        }
    }

    /// Returns the charges of this key under all policies, at the least price, which is what is given back.
    pub(super) fn charges_at_least(&self, key: Key, units: u32) -> Charges {
        let finding = self.found_now(&key);
        let mut charges = self.unpriced(self.asker(), key, units, finding.as_ref());
        for charge in &mut charges {
            self.policies.prices.price_at_least(charge);
        }
        charges
    }

    /// Reduces the cost of a charge that is not priced yet to what can pass.
    #[cfg(feature = "http")]
    pub(crate) fn cut(&self, charge: &mut Charge) {
        let own = self.policies.prices.limit_in_units(charge);
        let own = own.map(Limit::most);
        let whole = || self.policies.prices.whole(charge.policy)?.limit();
        let policys = || self.policies.algorithms.get(charge.policy)?.limit();
        #[cfg(feature = "calendar")]
        let own = self.limit_of_the_hour(charge).or(own);
        let limit = own.or_else(whole).or_else(policys).unwrap_or(u32::MAX);
        let hard = Charge {
            is_soft: false,
            ..*charge
        };
        let most = self.policies.demands.most_of(&[hard], limit);
        charge.cost = charge.cost.min(most);
    }

    /// Returns the limit of a charge that is in force at present, in units, if that depends on the hour. By the
    /// clock of a server, another hour may have begun.
    #[cfg(all(feature = "http", feature = "calendar"))]
    fn limit_of_the_hour(&self, charge: &Charge) -> Option<u32> {
        let own = self.policies.algorithms.get(charge.policy)?;
        if !own.has_hours() {
            return None;
        }
        let clock = self.ledger.clock();
        let now = clock.map_or_else(Micros::by_this_node, |clock| clock.now());
        self.limit_told(charge, *own)?.limit_at(now)
    }

    /// Returns the limit of a charge in units, for a policy with this algorithm, or `None` if it cannot have
    /// that limit.
    #[cfg(any(feature = "config", all(feature = "http", feature = "calendar")))]
    pub(crate) fn limit_told(&self, charge: &Charge, own: Algorithm) -> Option<Algorithm> {
        let prices = &self.policies.prices;
        let own = prices.whole(charge.policy).unwrap_or(own);
        match prices.limit_in_units(charge) {
            None => Some(own),
            Some(limit) => own.under(limit),
        }
    }

    /// Converts the cost of a charge from units to the price in the store.
    #[inline]
    pub(crate) fn price(&self, charge: &mut Charge, class: impl FnOnce() -> Class) {
        if self.policies.prices.are_any() {
            self.policies.prices.price(charge, class());
        }
    }

    pub(super) fn price_all(&self, charges: &mut [Charge]) {
        if self.policies.prices.are_any() {
            for charge in charges {
                self.price(charge, Class::default);
            }
        }
    }

    pub(super) fn unpriced(
        &self,
        asker: LimitContext,
        key: Key,
        cost: u32,
        finding: Option<&Finding>,
    ) -> Charges {
        let asker = self.with_plan_of(asker, &key, finding);
        let mut charges = Charges::new();
        for &(policy, is_soft) in &self.policies.limited {
            let charge = Charge {
                is_soft,
                ..Charge::new(policy, key, cost)
            };
            charges.extend(self.limited(charge, asker, finding));
        }
        charges
    }

    /// Returns a charge for each of these policies, by name, with a key of its own, at the present price.
    pub(super) fn charges_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        let mut charges = self.unpriced_by_name(asked)?;
        self.price_all(&mut charges);
        Ok(charges)
    }

    /// Returns charges of the named policies, without a price.
    pub(super) fn unpriced_by_name<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        let charges = self.named(asked)?;
        let found = |charge: &Charge| self.found_now(&charge.key);
        let findings: Vec<_> = charges.iter().map(found).collect();
        Ok(self.limited_each(&charges, &findings))
    }

    /// Returns these charges under the limits of their requests.
    pub(super) fn limited_each(&self, charges: &[Charge], findings: &[Option<Finding>]) -> Charges {
        let each = charges.iter().zip(findings);
        let limited = |(charge, finding): (&Charge, &Option<Finding>)| {
            let finding = finding.as_ref();
            let asker = self.with_plan_of(self.asker(), &charge.key, finding);
            self.limited(*charge, asker, finding)
        };
        each.filter_map(limited).collect()
    }

    /// Returns the charges of a request by these policies, with the findings of a resolver for their keys.
    ///
    /// # Errors
    ///
    /// When the resolver has failed, and is configured to fail such requests.
    pub(super) fn charges_of_found(
        &self,
        charges: &[Charge],
        findings: &[Option<Finding>],
    ) -> Result<Charges, StoreError> {
        findings.iter().flatten().try_for_each(require_plan)?;
        let mut charges = self.limited_each(charges, findings);
        self.demand_of_all(&mut charges);
        self.price_all(&mut charges);
        self.policies.apply_modes(&mut charges);
        Ok(charges)
    }

    /// Returns the charges of these keys under the named policies, by the limits of the policies alone.
    pub(super) fn named<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Charges, ConfigError> {
        let limited = &self.policies.limited;
        let mut charges = Charges::new();
        let mut named: SmallVec<[usize; 8]> = SmallVec::new();
        for (name, key, cost) in asked {
            let policy = self.policies.place_of(name)?;
            if named.contains(&policy) {
                let remedy = "ask each policy about one key, at the cost of all of it";
                return Err(ConfigError::quoting("policy", name, remedy));
            }
            named.push(policy);
            if let Some(&(_, is_soft)) = limited.iter().find(|(limited, _)| *limited == policy) {
                let charge = Charge {
                    is_soft,
                    ..Charge::new(policy, key.into_key(), cost)
                };
                let place = charges.partition_point(|before: &Charge| before.policy < policy);
                charges.insert(place, charge);
            }
        }
        Ok(charges)
    }
}
