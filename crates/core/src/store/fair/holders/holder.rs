//! A tenant that holds slots or asks for them, and its words.

use super::scale::SlotScale;
use crate::clock::Micros;
use crate::store::fair::times::fraction;

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) name: u64,
    pub(super) weight: u32,
    pub(super) standing: Standing,
    pub(super) held: u32,
    /// The slots that it wants, as they were when it was counted.
    pub(super) wants: u32,
    /// When it has used its share of the time for which slots are held, in virtual time.
    pub(super) tag: f64,
    /// The time for which slots are held is counted in the tag up to this moment.
    pub(super) settled: Micros,
    /// When it has last asked, and when it was last refused.
    pub(super) seen: Micros,
    pub(super) refused: Micros,
    /// Whether it was refused lately.
    pub(super) waits: bool,
    /// Until when it claims no slots.
    pub(super) rests: Micros,
    /// The most slots that it has held in this span, which began then, and in the one before.
    pub(super) most: [u32; 2],
    pub(super) span: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It wants more than the level gives it, and does not hold more.
    Hungry,
    /// It holds more.
    Full,
    Sated,
    /// It has not asked for long.
    Away,
}

/// A difference of slots, or of microseconds, that is due to rounding.
pub(super) const ROUNDED: f64 = 1e-6;

/// How many words a tenant is.
pub(super) const WORDS: usize = 9;

impl Holder {
    pub(super) fn read(words: [u64; WORDS]) -> Option<Self> {
        let [name, traits, slots, tag, moments @ ..] = words;
        let [weight, standing, waits @ 0..=1, 0, before @ ..] = traits.to_be_bytes() else {
            return None;
        };
        let [settled, seen, refused, rests, span] = moments.map(Micros::new);
        let most = [low(slots), u32::from_be_bytes(before)];
        Some(Self {
            name,
            weight: (weight > 0).then_some(weight.into())?,
            standing: match standing {
                0 => Standing::Away,
                1 => Standing::Hungry,
                2 => Standing::Full,
                3 => Standing::Sated,
                _ => return None,
            },
            held: low(slots >> 32),
            wants: most[0].max(most[1]),
            tag: fraction(tag)?,
            settled,
            seen,
            refused,
            waits: waits != 0,
            rests,
            most,
            span,
        })
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let standing = match self.standing {
            Standing::Away => 0,
            Standing::Hungry => 1,
            Standing::Full => 2,
            Standing::Sated => 3,
        };
        let weight = u8::try_from(self.weight).unwrap_or(u8::MAX);
        let [most, before] = self.most;
        let [a, b, c, d] = before.to_be_bytes();
        let traits = [weight, standing, self.waits.into(), 0, a, b, c, d];
        [
            self.name,
            u64::from_be_bytes(traits),
            u64::from(self.held) << 32 | u64::from(most),
            self.tag.to_bits(),
            self.settled.get(),
            self.seen.get(),
            self.refused.get(),
            self.rests.get(),
            self.span.get(),
        ]
    }

    /// Finds out how many slots it wants, and whether it was refused lately.
    pub(super) fn look_back(&mut self, now: Micros, scale: &SlotScale) {
        let span = now.saturating_sub(self.span);
        if span > scale.active_for {
            let is_next = span.saturating_sub(scale.active_for) <= scale.active_for;
            self.most = [self.held, if is_next { self.most[0] } else { 0 }];
            self.span = now;
        }
        self.most[0] = self.most[0].max(self.held);
        self.wants = self.most[0].max(self.most[1]);
        self.waits &= now.saturating_sub(self.refused) <= scale.active_for;
    }

    /// Finds out where it stands if the level gives it so many slots.
    pub(super) fn stand(&mut self, share: f64, now: Micros, scale: &SlotScale) {
        self.standing = if now.saturating_sub(self.seen) > scale.active_for {
            Standing::Away
        } else if !(self.waits && self.rests <= now) && f64::from(self.wants) <= share + ROUNDED {
            Standing::Sated
        } else if f64::from(self.held) > share + ROUNDED {
            Standing::Full
        } else {
            Standing::Hungry
        };
    }
}

/// Returns the lower half of a word.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
