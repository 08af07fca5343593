//! What a level guarantees to the keys below it: [`children`] has the rule, which all stores keep.

pub(super) mod children;

use self::children::{CLAIM, Children, Claim, Scale};
use super::Amendment;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule in Lua, for stores that run it where the state is.
pub(super) const LUA: &str = include_str!("children.lua");

/// What a request may take, if so many units are left of the level above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    claim: Claim,
    scale: Scale,
    left: u32,
}

/// What an amendment of the state of a key changes in one of its children.
pub(super) enum Following {
    UseUp,
    GiveBack,
    Forget,
}

impl Allowance {
    /// Asks for a child, which is active from now on, if so many units are left, and so many children can be kept. Also returns its
    /// place among them. A request without a child may only borrow.
    pub(super) fn ask(
        children: &mut Children,
        child: Option<u64>,
        (left, now): (u32, Micros),
        (scale, room): (Scale, usize),
    ) -> (Option<usize>, Self) {
        let (child, claim) = children.ask(child, (now, left), (&scale, room));
        (child, Self { claim, scale, left })
    }

    /// That of a request for which no children can be kept: nothing but the limit decides.
    pub(super) fn whole(scale: Scale, left: u32) -> Self {
        Self {
            claim: Claim::default(),
            scale,
            left,
        }
    }

    /// Reads what the rule in Lua has told.
    pub(super) fn read(words: &[u64]) -> Option<Self> {
        let (&left, words) = words.split_first()?;
        let (claim, scale) = words.split_at_checked(CLAIM)?;
        Some(Self {
            claim: Claim::read(claim.try_into().ok()?)?,
            scale: Scale::read(scale.try_into().ok()?)?,
            left: left.try_into().ok()?,
        })
    }

    /// Returns the units that the level above needs to have beside those of a request of this cost.
    pub(super) fn beside(&self, cost: u32) -> u32 {
        self.claim.beside(cost)
    }

    /// Returns how many units the request may take.
    pub(super) fn granted(&self) -> u32 {
        self.claim.of(self.left, 0)
    }

    /// Charges the child at this place, which has asked.
    pub(super) fn charge(&self, children: &mut Children, child: usize, cost: u32) {
        children.charge(child, cost, &self.scale);
    }

    /// Returns when no child is active any more, if the last one has asked by now.
    pub(super) fn lapses_at(&self, now: Micros) -> Micros {
        self.scale.lapses_at(now)
    }

    /// Returns how long the window lasts; `None` in a bucket.
    pub(super) fn until_end(&self, now: Micros) -> Option<Micros> {
        let is_window = self.scale.is_window;
        is_window.then(|| self.scale.until_end(now))
    }

    /// Writes into an outcome what is left for the child, and how long it waits. `taken` is what this request has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, (cost, taken): (u32, u32), now: Micros) {
        let Self { claim, scale, left } = self;
        if claim.is_plain() {
            return;
        }
        let remaining = claim.of(outcome.remaining(), taken);
        if outcome.is_allowed() {
            *outcome = outcome.with_remaining(remaining);
        } else if !outcome.is_blocked() && cost <= scale.size {
            let wait = claim.wait(cost, *left, now, scale);
            let wait = wait.max(outcome.retry_micros().unwrap_or_default());
            let wait = wait.max(Micros::new(1));
            *outcome = outcome.with_remaining(remaining).denied(Some(wait));
        }
    }
}

impl Following {
    /// Returns what this amendment changes at this moment, if it changes anything.
    pub(super) fn of(amendment: Amendment, now: Micros) -> Option<Self> {
        match amendment {
            Amendment::Settle | Amendment::Add(_) => Some(Self::UseUp),
            // What was taken in a window that has ended is not counted any more.
            Amendment::TakeBack(taken) if now >= taken.until() => None,
            Amendment::Refund | Amendment::TakeBack(_) => Some(Self::GiveBack),
            Amendment::Reset => Some(Self::Forget),
            Amendment::Release
            | Amendment::GiveBack(_)
            | Amendment::Block(_)
            | Amendment::Unblock
            | Amendment::Override(..)
            | Amendment::EndOverride => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server has told may be anything: numbers that no rule writes are refused before they are multiplied.
    #[test]
    fn numbers_that_no_rule_writes_are_not_read() {
        let read = |at: usize, number: u64| {
            let mut words = [1, 0, 1, 0, 0, 1, 0, 1, 5, 5, 1_000_000, 2, 0];
            words[at] = number;
            Allowance::read(&words).is_some()
        };
        let (others, quota, period) = (5, 8, 10);
        assert!(
            read(others, 256) && read(quota, u32::MAX.into()) && read(period, 366 * 86_400_000_000)
        );
        for (at, number) in [
            (others, 257),
            (quota, 0),
            (period, 0),
            (period, 366 * 86_400_000_001),
        ] {
            assert!(!read(at, number), "{number} at {at}");
        }
    }
}
