use tower_ratelimit_core::__internal::Replenishment;
use tower_ratelimit_core::algorithm::Algorithm;
use tower_ratelimit_core::clock::Micros;

/// How long leases of a policy last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The longest life of a leased unit.
    pub(crate) life: Micros,
    /// The time for whose demand a node asks.
    pub(crate) covers: Micros,
    /// Whether a limit that is used up has room again a moment later.
    pub(crate) drains: bool,
}

/// How long a node leaves a key alone whose limit is used up, so that units accumulate at the server.
const PACE: Micros = Micros::new(5_000);

const LONG: Micros = Micros::new(50_000);

const LONGEST_COVERED: Micros = Micros::new(100_000);

impl Terms {
    /// Returns the terms for this algorithm, or `None` if its units cannot be leased.
    ///
    /// A queue gives turns in an order. A calendar's windows end by the clock of each node.
    pub(crate) fn of(algorithm: &Algorithm, life: Micros) -> Option<Self> {
        let (_, frame, slots) = algorithm.frame();
        let (bin, drains) = match algorithm.replenishment()? {
            _ if matches!(algorithm, Algorithm::LeakyQueue(_)) => return None,
            Replenishment::Aligned | Replenishment::Anchored => (algorithm.period()?, false),
            Replenishment::Slots => (algorithm.period()? / slots.unwrap_or(1).max(1), false),
            Replenishment::Interval => (frame?, false),
            Replenishment::Steady | Replenishment::Sliding | Replenishment::Log => {
                (algorithm.period()?, true)
            }
            _ => return None,
        };
        // Units that are leased for a tenth of a window last a tenth of it.
        let covers = life.min(Micros::from(bin)).get() / 10;
        Some(Self {
            life,
            covers: Micros::new(covers.max(1)).min(LONGEST_COVERED),
            drains,
        })
    }

    /// Returns the time between the ends of classes. A class ends with the epoch after the one in which its
    /// units are granted, so a unit lives for one to two epochs.
    pub(crate) fn epoch(self) -> u64 {
        (self.life.get() / 2).max(1)
    }

    /// Returns how many times its share of the room a node is granted, as a fraction.
    ///
    /// Where a limit is used up for good, a grant must not be the last of it. Where it drains, nodes come for their shares
    /// one after the other: what has drained since each of them came last would always lie idle.
    pub(crate) fn shares(self) -> (u64, u64) {
        match self {
            _ if self.drains => (2, 1),
            _ if self.is_long() => (1, 8),
            _ => (1, 3),
        }
    }

    /// Returns for how long before the end of a window, a slot or an interval grants shrink: then a node gets as much less
    /// than it asks for as the time is shorter. In a window that drains, units that come back are soon spent elsewhere.
    pub(crate) fn tapers(self) -> u64 {
        let times = if self.drains { 1 } else { 4 };
        times * self.covers.get().max(1)
    }

    /// Returns how many of these units a node is granted at most that last for this time.
    pub(crate) fn until_the_end(self, units: u64, lasts: u64) -> u64 {
        match self.tapers() {
            tapers if lasts < tapers => times(units, lasts, tapers),
            _ => units,
        }
    }

    /// Returns what the script gets of them.
    pub(crate) fn numbers(self) -> [u64; 5] {
        let (shares, of) = self.shares();
        [self.epoch(), self.covers.get(), shares, of, self.tapers()]
    }

    /// Returns whether units last so long that requests may wait for them, and that a node may keep them in a
    /// pause. In a short slot, units that a request waits for or a node keeps end unspent.
    pub(crate) fn is_long(self) -> bool {
        self.covers >= LONG
    }

    /// Returns how long a node does not ask after a denial: around five milliseconds, different for each
    /// moment, so that nodes do not ask in step.
    pub(crate) fn pace(self, now: Micros) -> Micros {
        let mixed = now.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let quarter = PACE.get() / 4;
        let pace = PACE.get() - quarter + mixed % (2 * quarter);
        Micros::new(pace.min(self.covers.get()))
    }

    /// Returns after how long without requests a node gives its units back: after the time for which it asks.
    /// If there are too few units for all, a node to which `requests` come in that time misses some of them
    /// first.
    pub(crate) fn idle(self, requests: Option<u32>) -> Micros {
        let longest = self.covers.max(PACE);
        let Some(requests) = requests else {
            return longest;
        };
        let gaps = 16 * self.covers.get() / u64::from(requests.max(1));
        Micros::new(gaps.max(PACE.get())).min(longest)
    }
}

/// Returns `a * b / divisor`, rounded down.
pub(super) fn times(a: u64, b: u64, divisor: u64) -> u64 {
    let quotient = u128::from(a) * u128::from(b) / u128::from(divisor);
    u64::try_from(quotient).unwrap_or(u64::MAX)
}
