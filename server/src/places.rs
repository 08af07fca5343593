//! How many connections one client address has at once.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of each client address.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    most: usize,
    taken: Arc<Mutex<HashMap<IpAddr, Taken>>>,
}

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    /// Whether the log has a line about this client. It gets another after the client has had no connection.
    is_told: bool,
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    client: IpAddr,
    places: Places,
}

impl Places {
    /// Each client address has this many connections at most.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Arc::default(),
        }
    }

    /// Returns a place for a connection of this peer, or nothing when the client has too many.
    pub(crate) fn take(&self, peer: IpAddr) -> Option<Place> {
        let client = client(peer);
        let mut all = self.lock();
        let taken = all.entry(client).or_default();
        if taken.connections < self.most {
            taken.connections += 1;
            let places = self.clone();
            return Some(Place { client, places });
        }
        if !taken.is_told {
            taken.is_told = true;
            tracing::warn!(
                "{peer} has {} connections, and gets no more: if it is a proxy, name it in `proxies`, otherwise raise \
                 --client-connections",
                self.most
            );
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.places.lock();
        if let Some(taken) = all.get_mut(&self.client) {
            taken.connections -= 1;
            if taken.connections == 0 {
                all.remove(&self.client);
            }
        }
    }
}

/// Returns the client of an address. One client has a whole network `/64` of IPv6.
fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_takes_no_places_of_another_and_gets_its_own_back() {
        for (mine, mine_too, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1"),
        ] {
            let places = Places::new(2);
            let take = |peer: &str| places.take(peer.parse().unwrap());
            let first = take(mine).unwrap();
            let second = take(mine_too).unwrap();
            assert!(take(mine).is_none() && take(mine_too).is_none(), "{mine}");
            assert!(take(other).is_some(), "{other}");
            drop(second);
            drop((take(mine).unwrap(), first));
            assert!(places.lock().is_empty(), "{mine}");
        }
    }
}
