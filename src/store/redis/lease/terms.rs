use crate::clock::Micros;

/// How long leases last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The longest life of a leased unit.
    pub(super) life: Micros,
    /// The time for whose demand a node asks.
    pub(super) covers: Micros,
}

/// How long a node leaves a key alone whose limit is used up, so that units gather at the server.
const PACE: Micros = Micros::new(5_000);

const LONGEST_COVERED: Micros = Micros::new(100_000);

impl Terms {
    pub(super) fn up_to(life: Micros) -> Self {
        let covers = Micros::new(life.get() / 10).min(LONGEST_COVERED);
        Self { life, covers }
    }

    /// How far apart the ends of classes are. A class ends with the epoch after that in which its units are granted, so
    /// that a unit lives for one to two epochs.
    pub(super) fn epoch(self) -> u64 {
        (self.life.get() / 2).max(1)
    }

    /// How long a node does not ask after a denial: around five milliseconds, for each node and moment another time, so
    /// that nodes do not ask in step.
    pub(super) fn pace(self, now: Micros) -> Micros {
        let mixed = now.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let quarter = PACE.get() / 4;
        let pace = PACE.get() - quarter + mixed % (2 * quarter);
        Micros::new(pace.min(self.covers.get()))
    }
}
