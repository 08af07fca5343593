//! How many connections there are at once, of one client and of all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places for the connections of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    most: usize,
    most_of_a_client: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    clients: HashMap<IpAddr, OfClient>,
    refused: u64,
    refused_of_clients: u64,
    /// Whether the log has a line about the bound of all. It gets another after half of the places have been free.
    is_told: bool,
}

#[derive(Debug, Default)]
struct OfClient {
    connections: usize,
    /// Whether the log has a line about this client. It gets another after the client has had no connection.
    is_told: bool,
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// None of a proxy.
    client: Option<IpAddr>,
    places: Places,
}

impl Places {
    /// There are this many connections at most, and so many of each client address.
    pub(crate) fn new(most: usize, most_of_a_client: usize) -> Self {
        Self {
            most,
            most_of_a_client,
            taken: Arc::default(),
        }
    }

    /// Returns a place for a connection of this peer, or nothing when there are too many. A proxy has the connections of many
    /// clients.
    pub(crate) fn take(&self, peer: IpAddr, is_proxy: bool) -> Option<Place> {
        let client = (!is_proxy).then(|| client(peer));
        let taken = &mut *self.lock();
        if taken.connections >= self.most {
            taken.refused += 1;
            if !taken.is_told {
                taken.is_told = true;
                tracing::warn!(
                    "{} connections are open, and no more are accepted: raise --connections, or lower --idle-timeout",
                    self.most
                );
            }
            return None;
        }
        if let Some(client) = client {
            let of_client = taken.clients.entry(client).or_default();
            if of_client.connections >= self.most_of_a_client {
                taken.refused_of_clients += 1;
                if !of_client.is_told {
                    of_client.is_told = true;
                    tracing::warn!(
                        "{peer} has {} connections, and gets no more: if it is a proxy, name it in `proxies`, otherwise raise \
                         --client-connections",
                        self.most_of_a_client
                    );
                }
                return None;
            }
            of_client.connections += 1;
        }
        taken.connections += 1;
        let places = self.clone();
        Some(Place { client, places })
    }

    /// Returns how many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.lock().connections
    }

    /// Returns how many connections had no place: since their client had too many, and since all had.
    pub(crate) fn refused(&self) -> (u64, u64) {
        let taken = self.lock();
        (taken.refused_of_clients, taken.refused)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = &mut *self.places.lock();
        taken.connections -= 1;
        taken.is_told &= taken.connections > self.places.most / 2;
        let Some(client) = self.client else {
            return;
        };
        if let Some(of_client) = taken.clients.get_mut(&client) {
            of_client.connections -= 1;
            if of_client.connections == 0 {
                taken.clients.remove(&client);
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
            let places = Places::new(9, 2);
            let take = |peer: &str| places.take(peer.parse().unwrap(), false);
            let first = take(mine).unwrap();
            let second = take(mine_too).unwrap();
            assert!(take(mine).is_none() && take(mine_too).is_none(), "{mine}");
            assert_eq!((places.open(), places.refused()), (2, (2, 0)));
            assert!(take(other).is_some(), "{other}");
            drop(second);
            drop((take(mine).unwrap(), first));
            assert!(places.lock().clients.is_empty(), "{mine}");
            assert_eq!(places.open(), 0);
        }
    }

    #[test]
    fn all_together_have_a_bound_and_a_proxy_has_no_other() {
        let places = Places::new(3, 1);
        let proxy = "192.0.2.1".parse().unwrap();
        let mut open: Vec<_> = (0..3).filter_map(|_| places.take(proxy, true)).collect();
        assert_eq!(open.len(), 3);
        let client = "192.0.2.2".parse().unwrap();
        assert!(places.take(client, false).is_none());
        assert!(places.take(proxy, true).is_none());
        assert_eq!(places.refused(), (0, 2));
        open.pop();
        let place = places.take(client, false).unwrap();
        assert!(places.take(proxy, true).is_none());
        drop(place);
        assert!(places.take(proxy, true).is_some());
    }
}
