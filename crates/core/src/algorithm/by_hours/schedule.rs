//! The limits in the intervals of a timetable, as one value that is copied.
//!
//! A policy is copied often, and the limits of its intervals never change, so they live as long as the
//! program.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;

use crate::algorithm::{Algorithm, Limit};
use crate::calendar::{Interned, There, Timetable};
use crate::decision::WindowSecs;
use crate::factor::Factor;

/// The limit in an interval, as numbers of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    Limit(Limit),
    Share(Factor),
}

/// The algorithms in the intervals of a timetable. It is copied as a reference.
#[derive(Clone, Copy)]
pub(super) struct Schedule(&'static Hours, There);

struct Hours {
    timetable: Timetable,
    limit: Limit,
    changes: Box<[Change]>,
    /// Outside all intervals, and in each.
    algorithms: Box<[Algorithm]>,
    /// Whether these differ from the policy's own, and the times to which they apply.
    windows: Box<[(bool, Option<WindowSecs>)]>,
    drains: bool,
    /// The index with the most units, and the one with the least that is not 0.
    most: u8,
    least: u8,
}

static SCHEDULES: Interned<Hours> = Interned::new();

impl Schedule {
    /// Returns `None` if the algorithm has no limit, or cannot have one of the limits.
    pub(super) fn new(
        timetable: Timetable,
        algorithm: Algorithm,
        changes: &[Change],
    ) -> Option<Self> {
        let limit = algorithm.limits()?;
        let hourly = changes.iter().map(|change| change.of(limit, limit));
        let limits = std::iter::once(Some(limit)).chain(hourly);
        let algorithms: Option<Box<[_]>> = limits.map(|limit| algorithm.under(limit?)).collect();
        let algorithms = algorithms?;
        let is_it = |known: &Hours| {
            known.timetable == timetable
                && known.algorithms == algorithms
                && *known.changes == *changes
        };
        let there = There::of(timetable);
        let hours = SCHEDULES.get(is_it, || {
            let size = |place: &u8| {
                algorithms
                    .get(usize::from(*place))
                    .and_then(Algorithm::limit)
            };
            let places = || 0..=u8::try_from(changes.len()).unwrap_or(u8::MAX);
            let open = places().filter(|place| size(place) > Some(0));
            Hours {
                most: places().max_by_key(size).unwrap_or(0),
                least: open.min_by_key(size).unwrap_or(0),
                timetable,
                limit,
                changes: changes.into(),
                algorithms: algorithms.clone(),
                windows: algorithms
                    .iter()
                    .map(|its| (*its != algorithm, its.period().map(WindowSecs::of)))
                    .collect(),
                drains: algorithm.drains(),
            }
        });
        Some(Self(hours, there))
    }

    /// Returns whether the limit of an interval differs from the policy's own, and the time to which it
    /// applies.
    #[inline]
    pub(super) fn window(self, place: u8) -> (bool, Option<WindowSecs>) {
        let window = self.0.windows.get(usize::from(place));
        window.copied().unwrap_or_default()
    }

    /// Returns whether a state is a debt, which drains at the rate of a limit.
    #[inline]
    pub(super) fn drains(self) -> bool {
        self.0.drains
    }

    /// Returns the index with the most units at one instant.
    pub(super) fn most(self) -> u8 {
        self.0.most
    }

    /// Returns the index with the least that is not 0.
    pub(super) fn least(self) -> u8 {
        self.0.least
    }

    #[inline]
    pub(super) fn timetable(self) -> Timetable {
        self.0.timetable
    }

    /// Returns the limit outside all intervals.
    #[inline]
    pub(super) fn limit(self) -> Limit {
        self.0.limit
    }

    /// Returns the number of intervals.
    pub(super) fn intervals(self) -> u8 {
        u8::try_from(self.0.changes.len()).unwrap_or(u8::MAX)
    }

    /// Returns the algorithm in the interval with this index, counted from 1; 0 for none.
    #[inline]
    pub(super) fn algorithm(self, place: u8) -> Algorithm {
        let its = self.at(place).or(self.0.algorithms.first());
        its.copied().unwrap_or(Algorithm::Unlimited)
    }

    /// Returns a reference to that algorithm, or `None` if there is no such interval.
    #[inline]
    pub(super) fn at(self, place: u8) -> Option<&'static Algorithm> {
        self.0.algorithms.get(usize::from(place))
    }

    /// Returns whether the interval with this index has a limit of its own, rather than a share of another.
    pub(super) fn gives_limit(self, place: u8) -> bool {
        let place = usize::from(place).checked_sub(1);
        let change = place.and_then(|place| self.0.changes.get(place));
        matches!(change, Some(Change::Limit(_)))
    }

    /// Returns the algorithm in that interval for a request with this limit.
    pub(super) fn algorithm_under(self, limit: Limit, place: u8) -> Algorithm {
        let own = self.algorithm(0);
        let place = usize::from(place).checked_sub(1);
        let change = place.and_then(|place| self.0.changes.get(place));
        let changed = change.and_then(|change| change.of(self.0.limit, limit));
        let under = |limit| own.under(limit);
        changed
            .and_then(under)
            .or_else(|| under(limit))
            .unwrap_or(own)
    }

    /// Returns the same intervals with each limit changed, such as that of one node.
    pub(super) fn with_each_limit(self, change: &dyn Fn(Limit) -> Limit) -> Self {
        let with = |its: &Change| match its {
            Change::Limit(limit) => Change::Limit(change(*limit)),
            Change::Share(share) => Change::Share(*share),
        };
        let changes: Vec<_> = self.0.changes.iter().map(with).collect();
        let own = self.algorithm(0).with_each_limit(change);
        Self::new(self.0.timetable, own, &changes).unwrap_or(self)
    }
}

impl Change {
    /// Returns the limit in an interval, where the policy's own limit is `own` and that of the request
    /// `chosen`, or `None` if it is too large.
    fn of(&self, own: Limit, chosen: Limit) -> Option<Limit> {
        match self {
            Self::Limit(limit) if chosen == own => Some(*limit),
            Self::Limit(_) => Some(chosen),
            Self::Share(share) => chosen.share(*share),
        }
    }
}

impl Limit {
    /// Returns this share of each number, rounded up.
    fn share(self, share: Factor) -> Option<Self> {
        let of = |number: u32| {
            let product = u64::from(number) * u64::from(share.get());
            u32::try_from(product.div_ceil(Factor::ONE.get().into())).ok()
        };
        let (quota, size) = (of(self.quota())?, of(self.size())?);
        Some(self.with(quota, size))
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Schedule {}

impl Hash for Schedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("timetable", &self.0.timetable)
            .field("algorithms", &self.0.algorithms)
            .finish_non_exhaustive()
    }
}
