#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Micros;

/// For each page a time before which nothing is to be had there, so that a search among all
/// pages looks at a few words for thousands of keys.
///
/// A page's time is changed under that page's lock. Pages are in groups with a time of their own, the
/// earliest of the group or one before it.
#[derive(Debug)]
pub(super) struct Soonest {
    pages: Box<[AtomicU64]>,
    groups: Box<[AtomicU64]>,
}

const GROUP: usize = 64;

/// Of a page in which there is nothing.
const NEVER: u64 = u64::MAX;

impl Soonest {
    pub(super) fn new(pages: usize) -> Self {
        let never = |_| AtomicU64::new(NEVER);
        Self {
            pages: (0..pages).map(never).collect(),
            groups: (0..pages.div_ceil(GROUP)).map(never).collect(),
        }
    }

    /// Something is to be had from this page at this time, if not before.
    pub(super) fn may_be(&self, page: usize, at: Micros) {
        lower(&self.pages[page], at.get());
        lower(&self.groups[page / GROUP], at.get());
    }

    /// Nothing is to be had from this page before this time, or ever.
    pub(super) fn is_not_before(&self, page: usize, at: Option<Micros>) {
        self.pages[page].store(at.map_or(NEVER, Micros::get), Ordering::SeqCst);
        let group = page / GROUP;
        let known = self.groups[group].load(Ordering::SeqCst);
        let earliest = self.earliest_of(group);
        if earliest <= known {
            return;
        }
        let raised = self.groups[group].compare_exchange(
            known,
            earliest,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if raised.is_ok() {
            // Another page may have become earlier since its time was read, while its group's was
            // early enough to be left alone.
            lower(&self.groups[group], self.earliest_of(group));
        }
    }

    /// A page from which something may be had now, the first from this one on.
    pub(super) fn due(&self, now: Micros, from: usize) -> Option<usize> {
        let is_due = |time: &AtomicU64| time.load(Ordering::Relaxed) <= now.get();
        let groups = self.groups.len();
        let first = (from / GROUP) % groups.max(1);
        (first..groups)
            .chain(0..first)
            .filter(|group| is_due(&self.groups[*group]))
            .find_map(|group| {
                let place = self.members(group).iter().position(is_due)?;
                Some(group * GROUP + place)
            })
    }

    /// Whether something may be had from this page now.
    pub(super) fn is_due(&self, page: usize, now: Micros) -> bool {
        self.of(page) <= now
    }

    /// The time before which nothing is to be had from this page.
    pub(super) fn of(&self, page: usize) -> Micros {
        Micros::new(self.pages[page].load(Ordering::SeqCst))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<AtomicU64>() * (self.pages.len() + self.groups.len())
    }

    fn members(&self, group: usize) -> &[AtomicU64] {
        let end = self.pages.len().min((group + 1) * GROUP);
        &self.pages[group * GROUP..end]
    }

    fn earliest_of(&self, group: usize) -> u64 {
        let times = self.members(group).iter();
        times
            .map(|time| time.load(Ordering::SeqCst))
            .min()
            .unwrap_or(NEVER)
    }
}

fn lower(time: &AtomicU64, to: u64) {
    if time.load(Ordering::SeqCst) > to {
        time.fetch_min(to, Ordering::SeqCst);
    }
}
