//! Which of the tenants whose requests wait in a line goes on next: deficit round robin.
//!
//! M. Shreedhar and G. Varghese, *Efficient fair queueing using deficit round robin*, 1995. The tenants are visited in turn, and each visit
//! gives a tenant a quantum of units. Its requests go on as long as they cost no more than it has, and what is left of the quantum stays for
//! its next visit. A tenant without requests leaves the round, with nothing left.
//!
//! The quantum is the largest cost in the line, multiplied by the weight of the tenant. So each visit lets a request go on, and the
//! next one is found without a look at all tenants.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ahash::RandomState;

use crate::key::Key;

/// The tenant of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: Key,
    pub(crate) weight: u8,
}

/// The requests of a line by their tenants.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Round {
    tenants: HashMap<Key, Waiting, RandomState>,
    /// The tenants in the order of their visits. The first one is visited.
    visits: VecDeque<Key>,
    /// The tenant of each request, by its number, and the name under which it takes turns.
    requests: HashMap<u64, (Tenant, Key), RandomState>,
    /// How many requests have each cost.
    costs: BTreeMap<u32, usize>,
    /// How many tenants are told apart.
    most: usize,
}

/// A tenant with requests that wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Waiting {
    weight: u64,
    /// The units that it may use in this visit, or that are left of the last one.
    units: u64,
    is_visited: bool,
    /// What its requests cost, by their numbers, and together.
    costs: BTreeMap<u64, u32>,
    sum: u64,
}

/// The name of all tenants together that are not told apart.
const OTHERS: Key = Key::MISSING;

impl Round {
    /// Tells this many tenants apart.
    pub(super) fn of(most: usize) -> Self {
        Self {
            tenants: HashMap::default(),
            visits: VecDeque::new(),
            requests: HashMap::default(),
            costs: BTreeMap::new(),
            most,
        }
    }

    /// Adds a request behind those of its tenant.
    pub(super) fn join(&mut self, tenant: Tenant, number: u64, cost: u32) {
        let (name, weight) = self.told_apart(tenant);
        let its = self.tenants.entry(name).or_insert_with(|| {
            self.visits.push_back(name);
            Waiting {
                weight,
                units: 0,
                is_visited: false,
                costs: BTreeMap::new(),
                sum: 0,
            }
        });
        its.weight = weight;
        its.sum += u64::from(cost);
        its.costs.insert(number, cost);
        self.requests.insert(number, (tenant, name));
        *self.costs.entry(cost).or_default() += 1;
    }

    /// Returns the name under which a tenant takes turns, and its weight.
    fn told_apart(&self, tenant: Tenant) -> (Key, u64) {
        if self.tenants.contains_key(&tenant.name) || self.tenants.len() < self.most {
            (tenant.name, tenant.weight.max(1).into())
        } else {
            (OTHERS, 1)
        }
    }

    /// Returns the largest cost in the line.
    fn largest(&self) -> u32 {
        self.costs.last_key_value().map_or(0, |(cost, _)| *cost)
    }

    /// Returns the number of the request that goes on next.
    pub(super) fn next(&mut self) -> Option<u64> {
        let largest = self.largest();
        loop {
            let tenant = self.tenants.get_mut(self.visits.front()?)?;
            let (&number, &cost) = tenant.costs.first_key_value()?;
            if !tenant.is_visited {
                tenant.is_visited = true;
                tenant.units += u64::from(largest) * tenant.weight;
            }
            if u64::from(cost) <= tenant.units {
                return Some(number);
            }
            tenant.is_visited = false;
            self.visits.rotate_left(1);
        }
    }

    /// Removes a request that goes on, or that has gone away and uses nothing. Returns its tenant.
    pub(super) fn leave(&mut self, number: u64, goes_on: bool) -> Option<Tenant> {
        let (own, name) = self.requests.remove(&number)?;
        let tenant = self.tenants.get_mut(&name)?;
        let cost = tenant.costs.remove(&number).unwrap_or_default();
        tenant.sum -= u64::from(cost);
        if goes_on {
            tenant.units = tenant.units.saturating_sub(cost.into());
        }
        if tenant.costs.is_empty() {
            self.tenants.remove(&name);
            if self.visits.front() == Some(&name) {
                self.visits.pop_front();
            } else {
                self.visits.retain(|it| *it != name);
            }
        }
        if let Some(count) = self.costs.get_mut(&cost) {
            *count -= 1;
            if *count == 0 {
                self.costs.remove(&cost);
            }
        }
        Some(own)
    }

    /// Returns how many units go on before a request that joins now, if no other one does.
    ///
    /// This takes as many steps as there are tenants, however many requests wait. Where requests differ in their costs, it is a bound: the
    /// request goes on no later, and sooner by less than a visit and a request of each other tenant.
    pub(super) fn units_before(&self, tenant: Tenant, cost: u32) -> u64 {
        let (name, weight) = self.told_apart(tenant);
        let own = self.tenants.get(&name);
        let (before, units) = own.map_or((0, 0), |own| (own.sum, own.units));
        let missing = (before + u64::from(cost)).saturating_sub(units);
        let is_visited = |name: &Key| self.tenants.get(name).is_some_and(|it| it.is_visited);
        let begun = usize::from(self.visits.front().is_some_and(is_visited));
        let position = self.visits.iter().position(|it| *it == name);
        let place = position.unwrap_or(self.visits.len());
        if missing == 0 && place < begun {
            return before;
        }
        // The quantum falls while requests go on, to no less than the cost of this one. No visit gives a tenant a larger quantum than
        // an earlier visit gave another one. So the visits to its own tenant but the last bound what is given to the others meanwhile.
        let quantum = u64::from(self.largest().max(cost));
        let given = missing.saturating_sub(1) / weight;
        let given = given.min(given / u64::from(cost.max(1)) * quantum);
        let once_more = if place < begun {
            begun..self.visits.len()
        } else {
            begun..place
        };
        let others = self
            .visits
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != place);
        let of_others = others.filter_map(|(at, name)| {
            let other = self.tenants.get(name)?;
            let last = if once_more.contains(&at) { quantum } else { 0 };
            Some(other.sum.min(other.units + other.weight * (given + last)))
        });
        before + of_others.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::IntoKey;

    fn tenant(name: u64, weight: u8) -> Tenant {
        Tenant {
            name: name.into_key(),
            weight,
        }
    }

    /// Returns what [`Round::units_before`] bounds, by playing all that goes on before.
    fn played_before(round: &Round, tenant: Tenant, cost: u32) -> u64 {
        const OWN: u64 = u64::MAX;
        let mut later = round.clone();
        later.join(tenant, OWN, cost);
        let mut units = 0;
        while let Some(next) = later.next().filter(|next| *next != OWN) {
            units += u64::from(cost_of(&later, next));
            later.leave(next, true);
        }
        units
    }

    fn cost_of(round: &Round, number: u64) -> u32 {
        let (_, name) = round.requests[&number];
        round.tenants[&name].costs[&number]
    }

    /// Lets requests go on, and returns their numbers.
    fn go_on(round: &mut Round, count: usize) -> Vec<u64> {
        let next = |_| {
            let next = round.next()?;
            round.leave(next, true);
            Some(next)
        };
        (0..count).map_while(next).collect()
    }

    #[test]
    fn a_hog_waits_behind_itself() {
        let mut round = Round::of(1_024);
        (0..100).for_each(|number| round.join(tenant(0, 1), number, 1));
        assert_eq!(go_on(&mut round, 3), [0, 1, 2]);
        // The next one of the hog is known, and goes first.
        round.next();
        round.join(tenant(1, 1), 100, 1);
        round.join(tenant(2, 1), 101, 1);
        round.join(tenant(2, 1), 102, 1);
        assert_eq!(round.units_before(tenant(1, 1), 1), 4);
        assert_eq!(round.units_before(tenant(3, 1), 1), 3);
        assert_eq!(go_on(&mut round, 7), [3, 100, 101, 4, 102, 5, 6]);
        round.join(tenant(1, 1), 103, 1);
        // What has gone away is not waited for.
        round.leave(7, false);
        assert_eq!(go_on(&mut round, 3), [103, 8, 9]);
    }

    #[test]
    fn a_tenant_whose_requests_go_away_before_its_visit_is_passed_over() {
        let mut round = Round::of(1_024);
        (0..3).for_each(|number| round.join(tenant(number, 1), number, 1));
        round.leave(1, false);
        assert_eq!(go_on(&mut round, 3), [0, 2]);
    }

    #[test]
    fn weights_are_requests_in_a_row() {
        let mut round = Round::of(1_024);
        for number in 0..20 {
            round.join(
                tenant(number % 2, if number % 2 == 0 { 1 } else { 3 }),
                number,
                1,
            );
        }
        assert_eq!(go_on(&mut round, 9), [0, 1, 3, 5, 2, 7, 9, 11, 4]);
    }

    #[test]
    fn tenants_that_are_not_told_apart_share_the_place_of_one() {
        let mut round = Round::of(2);
        for number in 0..8 {
            round.join(tenant(number % 4, 1), number, 1);
        }
        assert_eq!(round.tenants.len(), 3);
        round.join(tenant(7, 1), 8, 1);
        let gone = round.leave(8, false);
        assert_eq!(gone.map(|it| it.name), Some(7_u64.into_key()));
        assert_eq!(go_on(&mut round, 9), [0, 1, 2, 4, 5, 3, 6, 7]);
        assert!(round.tenants.is_empty() && round.visits.is_empty());
        assert!(round.requests.is_empty() && round.costs.is_empty());
    }

    proptest! {
        /// What tenants use that always have requests is apart by no more than a visit of one and a request of each: the bound of the
        /// paper. The requests of each go on in their order.
        #[test]
        fn tenants_that_always_ask_have_their_shares(
            askers in prop::collection::vec((1_u8..5, prop::collection::vec(1_u32..20, 1..6)), 2..6),
            gone in prop::collection::vec(any::<u8>(), 300),
        ) {
            let mut round = Round::of(1_024);
            let mut number = 0;
            let mut join = |round: &mut Round, place: usize, sent: usize| {
                let (weight, costs) = &askers[place];
                round.join(tenant(place as u64, *weight), number, costs[sent % costs.len()]);
                number += 1;
                number - 1
            };
            let mut sent = vec![0; askers.len()];
            let mut of = HashMap::new();
            for (place, sent) in sent.iter_mut().enumerate() {
                // So many wait that none is ever without a request.
                for _ in 0..3 {
                    of.insert(join(&mut round, place, *sent), place);
                    *sent += 1;
                }
            }
            let mut used = vec![0.0; askers.len()];
            let mut last = vec![None; askers.len()];
            for gone in gone {
                let next = round.next().unwrap();
                let (place, cost) = (of[&next], cost_of(&round, next));
                prop_assert!(last[place] < Some(next));
                let is_gone = gone < 25;
                round.leave(next, !is_gone);
                if !is_gone {
                    last[place] = Some(next);
                    used[place] += f64::from(cost) / f64::from(askers[place].0);
                }
                of.insert(join(&mut round, place, sent[place]), place);
                sent[place] += 1;
                let (least, most) = used.iter().fold((f64::MAX, 0.0_f64), |(least, most), one| {
                    (least.min(*one), most.max(*one))
                });
                let largest = askers.iter().flat_map(|(_, costs)| costs).max().unwrap();
                prop_assert!(most - least <= 3.0 * f64::from(*largest), "{:?}", used);
            }
        }

        /// Whatever has joined, gone on or gone away before, the bound is no less than what is played, and more by less than a visit and
        /// a request of each other tenant. Where all requests cost the same, both are equal.
        #[test]
        fn what_goes_on_before_a_request_is_known_without_playing_it(
            past in prop::collection::vec((0_u64..6, 1_u8..5, 1_u32..20, 0_u8..8), 1..120),
            (is_uniform, most) in (any::<bool>(), prop_oneof![Just(3_usize), Just(1_024)]),
            (name, weight, cost) in (0_u64..7, 1_u8..5, 1_u32..20),
        ) {
            let mut round = Round::of(most);
            let uniform = |cost| if is_uniform { 3 } else { cost };
            for (number, (name, weight, cost, what)) in (0_u64..).zip(past) {
                match what {
                    0 => drop(go_on(&mut round, 1)),
                    1 => drop(round.leave(number / 2, false)),
                    // A visit begins.
                    2 => drop(round.next()),
                    _ => round.join(tenant(name, weight), number, uniform(cost)),
                }
            }
            let cost = uniform(cost);
            let (bound, played) = (
                round.units_before(tenant(name, weight), cost),
                played_before(&round, tenant(name, weight), cost),
            );
            prop_assert!(bound >= played, "{bound} {played}");
            let largest = u64::from(round.largest().max(cost));
            let (own, _) = round.told_apart(tenant(name, weight));
            let others = round.tenants.iter().filter(|(name, _)| **name != own);
            let late: u64 = others.map(|(_, it)| (it.weight + 1) * largest).sum();
            prop_assert!(bound - played <= late, "{bound} {played} {late}");
            prop_assert!(bound == played || !is_uniform, "{bound} {played}");
        }
    }
}
