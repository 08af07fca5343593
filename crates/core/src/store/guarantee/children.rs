//! What the children of a key have left of their guarantees.
//!
//! A child is active while it has asked within the last period. An active child has a *rest*, what it has not used of its guarantee, and a
//! part of the rest is *backed*: so much of the level above is kept for this child alone. All backed parts together are never more
//! than the level above has. A child that comes back finds its rest backed as far as nothing else is: the remainder is backed before
//! anything is lent again, in the order in which the children have come.
//!
//! - What is backed passes if the level above has the cost.
//! - The rest passes if the level above has the cost beside what is backed for the siblings.
//! - More than the rest is borrowed: it passes if the level above has the cost beside the rests of the siblings.
//!
//! What a child has borrowed of a bucket is not held against it: the debt is forgotten. Units that are given back repay first what was
//! forgotten, so that a request never gives its guarantee more than it has taken of it.
//!
//! `children.lua` is the same rule for Redis: what changes here has to change there. Items and snapshots have the children as
//! [words](Children::words), which stay the same from version to version.
//!
//! Amounts are whole parts of a unit, such that a rate in units a period is a whole number of parts a microsecond. A decision looks at
//! each active child, so their number is bounded.

use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::quota::LONGEST;

/// The most children of a key that are told apart.
pub(in crate::store) const MOST: usize = 256;

/// The name of all children together that are not told apart.
const OTHERS: u64 = 0;

/// The parts that come back in a microsecond at a rate of one unit a period. Many, since a rate is divided by the number of children.
const FINE: u128 = 1 << 16;

/// How many words a child is.
const WORDS: usize = 6;

/// The most parts that a limit can have.
const MOST_PARTS: u128 = u32::MAX as u128 * LONGEST.get() as u128 * FINE;

/// What the rule has to know of the level above, and of the guarantee.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Scale {
    /// The units that the level above grants in a period, and at once.
    pub(in crate::store) quota: u32,
    pub(in crate::store) size: u32,
    pub(in crate::store) period: Micros,
    /// The units of a period that each child has.
    pub(in crate::store) guaranteed: u32,
    /// Whether units come back at the ends of windows, and not steadily.
    pub(in crate::store) is_window: bool,
}

/// How many numbers a claim is in Lua.
pub(in crate::store) const CLAIM: usize = 7;

impl Scale {
    /// Reads it as the rule in Lua tells it.
    pub(in crate::store) fn read(
        [quota, size, period, guaranteed, is_window]: [u64; 5],
    ) -> Option<Self> {
        let scale = Self {
            quota: quota.try_into().ok()?,
            size: size.try_into().ok()?,
            period: Micros::new(period),
            guaranteed: guaranteed.try_into().ok()?,
            is_window: is_window != 0,
        };
        // Within the bounds of a quota no product of these overflows.
        let is_possible = scale.whole() > 0 && (1..=LONGEST.get()).contains(&period);
        is_possible.then_some(scale)
    }

    /// Returns the scale of a guarantee under this limit of the level above, or `None` if that grants nothing.
    pub(in crate::store) fn of(above: &Algorithm, guaranteed: u32) -> Option<Self> {
        let limits = above.limits()?;
        let (_, period, _) = above.frame();
        let is_limited = limits.quota() > 0 && limits.size() > 0;
        is_limited.then_some(Self {
            quota: limits.quota(),
            size: limits.size(),
            period: period?.into(),
            guaranteed,
            is_window: matches!(above, Algorithm::FixedWindow(_)),
        })
    }

    fn parts(&self, units: u32) -> u128 {
        u128::from(units) * u128::from(self.period.get()) * FINE
    }

    /// Returns the whole units of these parts.
    fn units(&self, parts: u128) -> u32 {
        u32::try_from(parts / self.parts(1)).unwrap_or(u32::MAX)
    }

    fn units_above(&self, parts: u128) -> u32 {
        u32::try_from(parts.div_ceil(self.parts(1))).unwrap_or(u32::MAX)
    }

    /// Returns the parts that the level above grants in a microsecond.
    fn rate(&self) -> u128 {
        u128::from(self.quota) * FINE
    }

    /// Returns the parts of the guarantee of each of so many children that come back in a microsecond.
    fn rate_of_each(&self, active: usize) -> u128 {
        (u128::from(self.guaranteed) * FINE).min(self.rate() / active.max(1) as u128)
    }

    /// Returns the units that come back within a period and fit in at once.
    fn whole(&self) -> u32 {
        self.quota.min(self.size)
    }

    /// Returns the guarantee of each of so many children: what it has if it has used nothing. Together they fit into the level above.
    fn most(&self, active: usize) -> u128 {
        let own = self.parts(self.guaranteed) * u128::from(self.whole()) / u128::from(self.quota);
        let most = own.min(self.parts(self.whole()) / active.max(1) as u128);
        // What is less than a unit, nobody could take.
        most - most % self.parts(1)
    }

    /// Returns how many children can have a unit each, at most.
    fn told_apart(&self) -> usize {
        MOST.min(self.whole() as usize)
    }

    /// Returns when no child is active any more, if the last one has asked by now.
    pub(in crate::store) fn lapses_at(&self, now: Micros) -> Micros {
        now.saturating_add(self.period)
    }

    /// Returns how long the window lasts.
    pub(in crate::store) fn until_end(&self, now: Micros) -> Micros {
        Micros::new(self.period.get() - now.get() % self.period.get())
    }

    fn window(&self, now: Micros) -> u64 {
        now.get() / self.period.get()
    }
}

/// The active children of a key, in the order in which they have come.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Children {
    /// The latest moment that was seen.
    at: Micros,
    each: Vec<Child>,
}

#[derive(Clone, Debug)]
struct Child {
    name: u64,
    /// When it has last asked.
    seen: Micros,
    /// What it has used of its guarantee: in a window all that it has used.
    used: u128,
    backed: u128,
    /// What it has used of a bucket beyond its guarantee, in this period and in the one before.
    forgotten: [u128; 2],
}

impl Child {
    fn read(words: [u64; WORDS]) -> Option<Self> {
        let [name, seen, used_high, used_low, backed_high, backed_low] = words;
        let amount = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let backed = amount(backed_high, backed_low);
        // What is more would overflow when it grows.
        (backed <= MOST_PARTS).then(|| Self {
            name,
            seen: Micros::new(seen),
            used: amount(used_high, used_low),
            backed,
            forgotten: [0, 0],
        })
    }

    /// Returns its words, and a second time its name with what was forgotten, if anything was.
    fn words(&self) -> impl Iterator<Item = u64> {
        let own = self.words_of([self.used, self.backed]);
        let is_any = self.forgotten != [0, 0];
        let forgotten = is_any.then(|| self.words_of(self.forgotten));
        own.into_iter().chain(forgotten.into_iter().flatten())
    }

    /// An amount is two words, of which the first is the higher one.
    fn words_of(&self, amounts: [u128; 2]) -> [u64; WORDS] {
        let halves = |amount: u128| {
            let bytes = amount.to_be_bytes();
            let (halves, _) = bytes.as_chunks();
            [halves[0], halves[1]].map(u64::from_be_bytes)
        };
        let [[high, low], [second_high, second_low]] = amounts.map(halves);
        let seen = self.seen.get();
        [self.name, seen, high, low, second_high, second_low]
    }

    fn rest(&self, most: u128) -> u128 {
        most.saturating_sub(self.used)
    }

    /// What it has borrowed of a bucket is not held against it.
    fn forget_debt(&mut self, most: u128, scale: &Scale) {
        if !scale.is_window && self.used > most {
            let forgotten = self.forgotten[0].saturating_add(self.used - most);
            self.forgotten[0] = forgotten.min(scale.parts(u32::MAX));
            self.used = most;
        }
    }

    /// Takes what is given back off what was forgotten, the older part first, and returns what is left of it.
    fn repay(&mut self, parts: u128) -> u128 {
        self.forgotten.iter_mut().rev().fold(parts, |left, debt| {
            let repaid = left.min(*debt);
            *debt -= repaid;
            left - repaid
        })
    }
}

/// What a request of a child may take, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Claim {
    backed: u32,
    rest: u32,
    /// What is backed for the siblings, and what they have left of their guarantees.
    backed_of_others: u32,
    rests_of_others: u32,
    /// How many siblings are active, and how long until the last one lapses.
    others: u32,
    lapse: Micros,
    /// Whether the request is of a child.
    is_of_child: bool,
}

impl Claim {
    /// Reads it as the rule in Lua tells it.
    pub(in crate::store) fn read(words: [u64; CLAIM]) -> Option<Self> {
        let [
            backed,
            rest,
            backed_of_others,
            rests_of_others,
            others,
            lapse,
            is_of_child,
        ] = words;
        Some(Self {
            backed: backed.try_into().ok()?,
            rest: rest.try_into().ok()?,
            backed_of_others: backed_of_others.try_into().ok()?,
            rests_of_others: rests_of_others.try_into().ok()?,
            others: others.try_into().ok().filter(|it| *it as usize <= MOST)?,
            lapse: Micros::new(lapse),
            is_of_child: is_of_child != 0,
        })
    }

    /// Returns whether nothing but the limit of the level above decides.
    pub(in crate::store) fn is_plain(&self) -> bool {
        self.others == 0
    }

    /// Returns the units that the level above needs to have beside those of a request of this cost.
    pub(in crate::store) fn beside(&self, cost: u32) -> u32 {
        if cost <= self.backed {
            0
        } else if cost <= self.rest {
            self.backed_of_others
        } else {
            self.rests_of_others
        }
    }

    /// Returns how many units the child may take, after it has taken some, if so many are left of the level above.
    pub(in crate::store) fn of(&self, left: u32, taken: u32) -> u32 {
        let backed = self.backed.saturating_sub(taken).min(left);
        let rest = self.rest.saturating_sub(taken);
        let rest = rest.min(left.saturating_sub(self.backed_of_others));
        let borrowed = left.saturating_sub(self.rests_of_others);
        backed.max(rest).max(borrowed)
    }

    /// Returns how long a request waits, at most, that was refused while so many units were left of the level above: until its guarantee
    /// is back, until enough is there beside what the siblings may claim, or until they have lapsed.
    pub(in crate::store) fn wait(
        &self,
        cost: u32,
        left: u32,
        now: Micros,
        scale: &Scale,
    ) -> Micros {
        let active = self.others as usize + usize::from(self.is_of_child);
        let most = scale.most(active);
        let most_of_others = scale.units_above(most * u128::from(self.others));
        let is_guaranteed = self.is_of_child && scale.parts(cost) <= most;
        let fits_beside = |others: u32| cost.saturating_add(others) <= scale.size;
        if scale.is_window {
            let end = scale.until_end(now);
            return if is_guaranteed || fits_beside(most_of_others) {
                end
            } else {
                end.max(self.lapse)
            };
        }
        let (rate, rate_of_each) = (scale.rate(), scale.rate_of_each(active));
        let until = |lacking: u128, rate: u128| match rate {
            0 => Micros::new(u64::MAX),
            rate => Micros::wait(lacking.div_ceil(rate)),
        };
        let lacks = |units: u32| scale.parts(units.saturating_sub(left));
        let has_cost = until(lacks(cost), rate);
        let mut wait = has_cost.max(self.lapse);
        if fits_beside(most_of_others) {
            wait = wait.min(until(lacks(cost.saturating_add(most_of_others)), rate));
        }
        if is_guaranteed {
            let lacking = scale.parts(cost).saturating_sub(scale.parts(self.backed));
            wait = wait.min(until(lacking, rate_of_each).max(has_cost));
        }
        // While it waits, the rests of the siblings grow, and what is there is backed for those that have come before.
        let others = self.rests_of_others;
        let growth = rate_of_each * u128::from(self.others);
        let needed = cost.saturating_add(others);
        // Both sides are rounded to whole units.
        let catches_up = until(lacks(needed.saturating_add(2)), rate.saturating_sub(growth));
        let grown = u128::from(catches_up.get()).saturating_mul(growth);
        let then = others.saturating_add(scale.units_above(grown));
        if fits_beside(then.min(most_of_others.max(others))) {
            wait = wait.min(catches_up);
        }
        wait
    }
}

impl Children {
    /// Reads what was [written](Self::words). Numbers that no rule writes are not read.
    pub(in crate::store) fn read(words: &[u64]) -> Option<Self> {
        let Some((&at, words)) = words.split_first() else {
            return Some(Self::default());
        };
        let (records, rest) = words.as_chunks();
        let mut each: Vec<Child> = Vec::new();
        for words in records {
            let child = Child::read(*words)?;
            match each.last_mut() {
                Some(last) if last.name == child.name => {
                    last.forgotten = [child.used, child.backed];
                }
                _ => each.push(child),
            }
        }
        let is_possible = rest.is_empty() && (1..=MOST).contains(&each.len());
        is_possible.then_some(Self {
            at: Micros::new(at),
            each,
        })
    }

    /// Returns them as words: the latest moment, and for each child its name, when it has last asked, what it has used of its
    /// guarantee, and what is backed. If a part of its debt was forgotten, that follows under the same name. No children are no words.
    pub(in crate::store) fn words(&self) -> Vec<u64> {
        let at = (!self.each.is_empty()).then_some(self.at.get());
        let each = self.each.iter().flat_map(Child::words);
        at.into_iter().chain(each).collect()
    }

    pub(in crate::store) fn len(&self) -> usize {
        self.each.len()
    }

    /// Returns whether no child is active, so that nothing would change if all were forgotten.
    pub(in crate::store) fn are_idle(&self, now: Micros, period: Micros) -> bool {
        self.each.iter().all(|child| is_idle(child, now, period))
    }

    /// Returns what a request of this child may take, which is active from now on, if so many units are left of the level above, and
    /// so many children can be kept. A request without a child may only borrow.
    pub(in crate::store) fn ask(
        &mut self,
        name: Option<u64>,
        (now, left): (Micros, u32),
        (scale, room): (&Scale, usize),
    ) -> (Option<usize>, Claim) {
        self.advance(now, scale);
        let place = name.map(|name| self.find(name, (scale, room)));
        let most = scale.most(self.each.len());
        let mut free = scale.parts(left);
        for child in &mut self.each {
            // With one more, each has less.
            child.forget_debt(most, scale);
            child.backed = child.backed.min(child.rest(most));
            free = free.saturating_sub(child.backed);
        }
        for child in &mut self.each {
            let more = free.min(child.rest(most) - child.backed);
            child.backed += more;
            free -= more;
        }
        (place, self.claim(place, now, scale))
    }

    fn claim(&self, place: Option<usize>, now: Micros, scale: &Scale) -> Claim {
        let most = scale.most(self.each.len());
        let mut claim = Claim {
            is_of_child: place.is_some(),
            ..Claim::default()
        };
        let (mut backed, mut rests) = (0, 0);
        for (at, child) in self.each.iter().enumerate() {
            if Some(at) == place {
                claim.backed = scale.units(child.backed);
                claim.rest = scale.units(child.rest(most));
                continue;
            }
            claim.others += 1;
            backed += child.backed;
            rests += child.rest(most);
            let idle_at = child.seen.saturating_add(scale.period);
            claim.lapse = claim.lapse.max(idle_at.saturating_sub(now));
        }
        claim.backed_of_others = scale.units_above(backed);
        claim.rests_of_others = scale.units_above(rests);
        claim
    }

    /// Charges a request that has passed, of the child at this place.
    pub(in crate::store) fn charge(&mut self, place: usize, cost: u32, scale: &Scale) {
        let most = scale.most(self.each.len());
        let child = &mut self.each[place];
        let parts = scale.parts(cost);
        child.backed = child.backed.saturating_sub(parts);
        child.used = child.used.saturating_add(parts);
        child.forget_debt(most, scale);
    }

    /// Adds units to what a child has used, after the fact.
    pub(in crate::store) fn use_up(
        &mut self,
        name: u64,
        units: u32,
        now: Micros,
        scaled: (&Scale, usize),
    ) {
        self.advance(now, scaled.0);
        let place = self.find(name, scaled);
        self.charge(place, units, scaled.0);
    }

    /// Gives units back to a child. Those of its guarantee are there again, so they are backed; what it had borrowed is nobody's.
    pub(in crate::store) fn give_back(
        &mut self,
        name: u64,
        units: u32,
        now: Micros,
        scale: &Scale,
    ) {
        self.advance(now, scale);
        let most = scale.most(self.each.len());
        if let Some(place) = self.place_of(name) {
            let child = &mut self.each[place];
            let parts = child.repay(scale.parts(units));
            child.used = child.used.saturating_sub(parts);
            child.backed = (child.backed + parts).min(child.rest(most));
        }
    }

    fn place_of(&self, name: u64) -> Option<usize> {
        let place = |name| self.each.iter().position(|child| child.name == name);
        place(name).or_else(|| place(OTHERS))
    }

    /// Returns the place of a child that asks. One more than can be told apart shares the place of all others.
    fn find(&mut self, name: u64, (scale, room): (&Scale, usize)) -> usize {
        let known = self.each.iter().position(|child| child.name == name);
        let place = known.unwrap_or_else(|| {
            let is_told_apart = self.each.len() + 1 < scale.told_apart().min(room);
            let name = if is_told_apart { name } else { OTHERS };
            let known = self.each.iter().position(|child| child.name == name);
            known.unwrap_or_else(|| {
                self.each.push(Child {
                    name,
                    seen: self.at,
                    used: 0,
                    backed: 0,
                    forgotten: [0, 0],
                });
                self.each.len() - 1
            })
        });
        self.each[place].seen = self.at;
        place
    }

    /// Brings all children to this moment, and forgets those that are idle.
    fn advance(&mut self, now: Micros, scale: &Scale) {
        let before = std::mem::replace(&mut self.at, now);
        if now < before {
            // The clock has stepped back.
            for child in &mut self.each {
                child.seen = child.seen.min(now);
            }
        }
        let passed = u128::from(now.saturating_sub(before).get());
        let grown = scale.rate_of_each(self.each.len()) * passed;
        self.each.retain(|child| !is_idle(child, now, scale.period));
        let most = scale.most(self.each.len());
        let periods = scale.window(now).saturating_sub(scale.window(before));
        for child in &mut self.each {
            child.forgotten = match (periods, child.forgotten) {
                (0, both) => both,
                (1, [latest, _]) => [0, latest],
                _ => [0, 0],
            };
            if scale.is_window && periods > 0 {
                (child.used, child.backed) = (0, most);
            } else if !scale.is_window {
                child.used = child.used.saturating_sub(grown);
                child.backed = (child.backed + grown).min(child.rest(most));
            }
        }
    }
}

fn is_idle(child: &Child, now: Micros, period: Micros) -> bool {
    now.saturating_sub(child.seen) >= period
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, TokenBucket};
    use crate::quota::Quota;

    fn children() -> (Children, Scale) {
        let scale = Scale::of(&FixedWindow::per_second(10).into(), 3).unwrap();
        let mut children = Children::default();
        for (name, at) in [(7, 1), (8, 2)] {
            let (place, _) = children.ask(Some(name), (Micros::new(at), 10), (&scale, MOST));
            children.charge(place.unwrap(), 1, &scale);
        }
        (children, scale)
    }

    /// Nodes of different versions share items, and a snapshot outlives a release.
    #[test]
    fn the_words_stay_the_same_from_version_to_version() {
        let (children, _) = children();
        let unit = 1_000_000 * 65_536;
        let words = [
            &[2][..],
            &[7, 1, 0, unit, 0, 2 * unit],
            &[8, 2, 0, unit, 0, 2 * unit],
        ];
        assert_eq!(children.words(), words.concat());
        let read = Children::read(&children.words()).unwrap();
        assert_eq!(read.words(), children.words());
        assert!(Children::default().words().is_empty());
        assert!(Children::read(&[]).unwrap().each.is_empty());
    }

    #[test]
    fn what_was_forgotten_follows_under_the_same_name_for_two_periods() {
        let scale = Scale::of(&TokenBucket::per_second(10).into(), 3).unwrap();
        let unit = 1_000_000 * 65_536;
        let mut children = Children::default();
        for (name, cost) in [(7, 5), (8, 3), (9, 4)] {
            let (place, _) = children.ask(Some(name), (Micros::new(1), 10), (&scale, MOST));
            children.charge(place.unwrap(), cost, &scale);
        }
        let words = [
            &[1][..],
            &[7, 1, 0, 3 * unit, 0, 0],
            &[7, 1, 0, 2 * unit, 0, 0],
            &[8, 1, 0, 3 * unit, 0, 0],
            &[9, 1, 0, 3 * unit, 0, 0],
            &[9, 1, 0, unit, 0, 0],
        ];
        assert_eq!(children.words(), words.concat());
        let mut children = Children::read(&words.concat()).unwrap();
        assert_eq!(children.words(), words.concat());
        let mut forgotten = |units, at| {
            children.use_up(7, 1, Micros::new(at), (&scale, MOST));
            children.give_back(7, units, Micros::new(at), &scale);
            children.each[0]
                .forgotten
                .map(|parts| parts / u128::from(unit))
        };
        assert_eq!(forgotten(0, 2), [2, 0], "all but a part of the last unit");
        assert_eq!(forgotten(0, 1_000_000), [0, 2]);
        assert_eq!(forgotten(1, 1_000_000), [0, 1]);
        assert_eq!(forgotten(0, 1_999_999), [0, 1]);
        assert_eq!(forgotten(0, 2_000_000), [0, 0]);
    }

    /// What an item holds may be anything.
    #[test]
    fn words_that_no_rule_writes_are_not_read() {
        let (children, _) = children();
        let words = children.words();
        for len in 1..words.len() {
            assert_eq!(Children::read(&words[..len]).is_some(), len == 7, "{len}");
        }
        let many = |count| {
            let each = (0..count as u64).flat_map(|name| [name, 0, 0, 0, 0, 0]);
            [1].into_iter().chain(each).collect::<Vec<_>>()
        };
        assert!(Children::read(&many(MOST)).is_some());
        assert!(Children::read(&many(MOST + 1)).is_none());
        let mut backed = words.clone();
        backed[5] = 1 << 30;
        assert!(Children::read(&backed).is_none());
    }

    #[test]
    fn the_largest_numbers_that_are_read_overflow_nothing() {
        let largest = Child {
            name: 7,
            seen: Micros::new(u64::MAX),
            used: u128::MAX,
            backed: MOST_PARTS,
            forgotten: [u128::MAX, MOST_PARTS],
        };
        let mut all = vec![u64::MAX];
        for name in 0..MOST as u64 {
            all.extend(
                Child {
                    name,
                    ..largest.clone()
                }
                .words(),
            );
        }
        let widest = Quota::of_micros(u32::MAX, LONGEST);
        for limit in [
            Algorithm::from(FixedWindow::of(widest)),
            TokenBucket::of(widest).into(),
        ] {
            let scale = Scale::of(&limit, u32::MAX).unwrap();
            for now in [0, 1 << 53, u64::MAX].map(Micros::new) {
                let mut children = Children::read(&all).unwrap();
                children.use_up(7, u32::MAX, now, (&scale, MOST));
                children.give_back(8, u32::MAX, now, &scale);
                let (place, claim) = children.ask(Some(9), (now, u32::MAX), (&scale, MOST));
                let _ = claim.wait(u32::MAX, 0, now, &scale);
                children.charge(place.unwrap(), u32::MAX, &scale);
            }
        }
    }
}
