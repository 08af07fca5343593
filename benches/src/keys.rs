//! Addresses, and the order in which they come.

use std::net::{IpAddr, Ipv4Addr};

/// The first of the addresses: 10.0.0.0.
const FIRST: u32 = 0x0a00_0000;

/// Returns the address of IPv4 of each number.
pub fn address(n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(FIRST.wrapping_add(n)))
}

/// Random addresses of a range, the same for each walk with the same seed.
#[derive(Clone, Debug)]
pub struct Walk {
    first: u32,
    keys: u32,
    state: u64,
}

impl Walk {
    /// Creates a walk over the first addresses.
    pub fn over(keys: u32, seed: u64) -> Self {
        Self::from(0, keys, seed)
    }

    /// Creates a walk over addresses from this one on.
    pub fn from(first: u32, keys: u32, seed: u64) -> Self {
        Self {
            first,
            keys,
            state: seed,
        }
    }

    /// Returns every address of the range once, in order, to make a limiter know them.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> + use<> {
        (self.first..self.first + self.keys).map(address)
    }

    /// Returns the place of the next address among all of them.
    ///
    /// The computation takes a nanosecond or so and reads no memory, since it is measured with the decision:
    /// Knuth's multiplier, and the upper half of the state as a fraction.
    pub fn next_place(&mut self) -> u32 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.state >> 32) * u64::from(self.keys)) >> 32) as u32
    }

    /// Returns the next address.
    pub fn next_address(&mut self) -> IpAddr {
        address(self.first + self.next_place())
    }
}
