//! Shares of a limit that are reserved for kinds of requests, and lent while they are idle.

use std::sync::atomic::{AtomicU32, Ordering};

/// The partitions of a limit, in the order in which they were declared. The last one is the rest.
pub(super) struct Partitions(Box<[Partition]>);

struct Partition {
    name: Box<str>,
    percent: u32,
    in_flight: AtomicU32,
}

impl Partitions {
    /// Creates partitions with these names and shares. The rest has what they leave.
    pub(super) fn new(shares: Vec<(Box<str>, u32)>) -> Self {
        if shares.is_empty() {
            return Self(Box::default());
        }
        let left = shares.iter().map(|(_, percent)| percent).sum::<u32>();
        let rest = ("".into(), 100_u32.saturating_sub(left));
        let all = shares.into_iter().chain([rest]);
        let all = all.map(|(name, percent)| Partition {
            name,
            percent,
            in_flight: AtomicU32::new(0),
        });
        Self(all.collect())
    }

    /// Returns the index of the partition with this name, or of the rest, or `None` if there are no
    /// partitions.
    pub(super) fn find(&self, name: Option<&str>) -> Option<usize> {
        let rest = self.0.len().checked_sub(1)?;
        let Some(name) = name else {
            return Some(rest);
        };
        let named = self.0.iter().take(rest);
        let mut places = named.enumerate();
        let found = places.find(|(_, partition)| *partition.name == *name);
        Some(found.map_or(rest, |(place, _)| place))
    }

    /// Counts a request in. Returns whether it is within the share of its partition, under this limit.
    ///
    /// A request that is then refused was beyond the share, so the moment in which it counted causes no other
    /// refusal.
    pub(super) fn enter(&self, partition: Option<usize>, limit: u32) -> bool {
        let Some(partition) = self.get(partition) else {
            return false;
        };
        partition.in_flight.fetch_add(1, Ordering::Relaxed) < partition.share(limit)
    }

    pub(super) fn leave(&self, partition: Option<usize>) {
        if let Some(partition) = self.get(partition) {
            partition.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the name of each partition, with its requests in flight.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.0.iter();
        all.map(|it| (&*it.name, it.in_flight.load(Ordering::Relaxed)))
    }

    fn get(&self, partition: Option<usize>) -> Option<&Partition> {
        self.0.get(partition?)
    }
}

impl Partition {
    /// Returns the share of the limit, at least one slot.
    fn share(&self, limit: u32) -> u32 {
        let share = (u64::from(limit) * u64::from(self.percent)).div_ceil(100);
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }
}
