//! A tenant, and its words.

use crate::clock::Micros;
use crate::store::fair::times::fraction;

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: u64,
    pub(super) weight: u32,
    pub(super) standing: Standing,
    pub(super) tag: f64,
    /// Its claim is counted in `growing` from this virtual time on.
    pub(super) since: f64,
    /// Its part of `still`.
    pub(super) still: f64,
    /// When it has last asked.
    pub(super) seen: Micros,
    /// Whether a request was refused for lack of room since the last one that passed.
    pub(super) waits: bool,
    /// The units of its turn, if it has one, and when it has it.
    pub(super) turn: u32,
    pub(super) turn_at: Micros,
    /// Whether the turn was given for more than a quarter of the limit, as it was then.
    pub(super) is_large: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Accruing,
    Sated,
    /// It has not asked for long.
    Lapsed,
}

/// How many words a tenant is.
pub(super) const WORDS: usize = 7;

impl Tenant {
    pub(super) fn read(
        [name, traits, turn_at, seen, tag, since, still]: [u64; WORDS],
    ) -> Option<Self> {
        let [weight, standing, waits @ 0..=1, is_large @ 0..=1, turn @ ..] = traits.to_be_bytes()
        else {
            return None;
        };
        let turn = u32::from_be_bytes(turn);
        // Where there is no turn, none is large.
        (turn > 0 || is_large == 0).then_some(())?;
        Some(Self {
            name,
            weight: (weight > 0).then_some(weight.into())?,
            standing: match standing {
                0 => Standing::Lapsed,
                1 => Standing::Accruing,
                2 => Standing::Sated,
                _ => return None,
            },
            tag: fraction(tag)?,
            since: fraction(since)?,
            still: fraction(still)?,
            seen: Micros::new(seen),
            waits: waits != 0,
            turn,
            turn_at: Micros::new(turn_at),
            is_large: is_large != 0,
        })
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let standing = match self.standing {
            Standing::Lapsed => 0,
            Standing::Accruing => 1,
            Standing::Sated => 2,
        };
        let weight = u8::try_from(self.weight).unwrap_or(u8::MAX);
        let [a, b, c, d] = self.turn.to_be_bytes();
        let (waits, is_large) = (self.waits.into(), self.is_large.into());
        let traits = [weight, standing, waits, is_large, a, b, c, d];
        [
            self.name,
            u64::from_be_bytes(traits),
            self.turn_at.get(),
            self.seen.get(),
            self.tag.to_bits(),
            self.since.to_bits(),
            self.still.to_bits(),
        ]
    }

    /// Returns how far the tenant is ahead of its share, in virtual time.
    pub(super) fn debt(&self, virtual_time: f64) -> f64 {
        (self.tag - virtual_time).max(0.0)
    }

    /// Returns the time in which the limit grants what the tenant may take; negative if it has a debt.
    pub(super) fn claim(&self, virtual_time: f64) -> f64 {
        (virtual_time - self.tag) * f64::from(self.weight)
    }

    /// Returns its part of `growing`.
    pub(super) fn part(&self, virtual_time: f64) -> f64 {
        if self.standing != Standing::Accruing {
            return 0.0;
        }
        (virtual_time - self.since) * f64::from(self.weight)
    }
}
