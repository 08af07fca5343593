//! Addresses, and the order in which they come.

use std::net::{IpAddr, Ipv4Addr};

/// The first of the addresses: 10.0.0.0.
const FIRST: u32 = 0x0a00_0000;

/// One address of IPv4 for each number.
pub fn address(n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(FIRST.wrapping_add(n)))
}

/// Addresses at random out of a range of them; the same for each walk with the same
/// seed.
#[derive(Clone, Debug)]
pub struct Walk {
    first: u32,
    keys: u32,
    state: u64,
}

impl Walk {
    /// A walk over the first so many addresses.
    pub fn over(keys: u32, seed: u64) -> Self {
        Self::from(0, keys, seed)
    }

    /// A walk over so many addresses from this one on.
    pub fn from(first: u32, keys: u32, seed: u64) -> Self {
        Self {
            first,
            keys,
            state: seed,
        }
    }

    /// Every address of the range once, in order: to make a limiter know them.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> + use<> {
        (self.first..self.first + self.keys).map(address)
    }

    /// Where the next address stands among all of them.
    ///
    /// Costs a nanosecond or so and reads no memory, since what it takes is counted with the
    /// decision: Knuth's multiplier, and the upper half of the state as a fraction.
    pub fn next_place(&mut self) -> u32 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.state >> 32) * u64::from(self.keys)) >> 32) as u32
    }

    /// The next address.
    pub fn next_address(&mut self) -> IpAddr {
        address(self.first + self.next_place())
    }
}
