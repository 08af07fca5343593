//! A limit on requests in flight in front of a service, in virtual time.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a simulation counts in numbers of both kinds"
)]

use std::time::Duration;

use super::learning::Bounds;
use super::partitions::Partitions;
use super::shared::{Ended, SharedCounts};
use crate::plant::{Conditions, Distribution, End, EndKind, Gate, Random, Service};

/// The results of a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Second {
    /// The limit at its end.
    pub(super) limit: u32,
    /// The number of requests that were answered in time.
    pub(super) good: u32,
    pub(super) refused: u32,
    /// The number of critical requests among them.
    pub(super) critical_good: u32,
    pub(super) critical_refused: u32,
}

/// The slots, and the results of requests.
pub(super) struct Slots {
    pub(super) shared: SharedCounts,
    good: u32,
    critical_good: u32,
    critical_refused: u32,
}

/// A slot: its epoch, and its partition.
type Slot = (u32, Option<usize>);

/// The index of the partition of critical requests.
const CRITICAL: usize = 0;

impl Gate for Slots {
    type Pass = Slot;

    fn enter(&mut self, _: f64, conditions: Conditions, random: &mut Random) -> Option<Slot> {
        let is_critical = conditions.critical > 0.0 && random.uniform() < conditions.critical;
        let partition = is_critical.then_some(CRITICAL);
        if !self.shared.enter(partition) {
            self.critical_refused += u32::from(is_critical);
            return None;
        }
        Some((self.shared.epoch(), partition))
    }

    fn leave(&mut self, end: End, (epoch, partition): Slot) {
        self.good += u32::from(end.is_good());
        self.critical_good += u32::from(end.is_good() && partition.is_some());
        let ended = Duration::from_micros(end.ended);
        match end.how {
            EndKind::Served => {
                let took = Duration::from_micros(end.took());
                self.shared.note(Ended::Answered(took), epoch, ended);
            }
            EndKind::Overloaded => self.shared.note(Ended::Overloaded, epoch, ended),
            EndKind::GivenUp | EndKind::Failed => {}
        }
        self.shared.leave(partition);
    }
}

/// The slots and the service.
pub(super) struct Bounded {
    pub(super) slots: Slots,
    service: Service<Slot>,
}

impl Bounded {
    pub(super) fn new((seed, law): (u64, Distribution), servers: u32, bounds: Bounds) -> Self {
        let partitions = Partitions::new(vec![("critical".into(), 80)]);
        Self {
            slots: Slots {
                shared: SharedCounts::new(bounds, partitions, Vec::new()),
                good: 0,
                critical_good: 0,
                critical_refused: 0,
            },
            service: Service::new(seed, servers, law),
        }
    }

    pub(super) fn second(&mut self, conditions: Conditions) -> Second {
        let slots = &mut self.slots;
        let refused = slots.shared.refused();
        self.service.second(slots, conditions);
        Second {
            limit: slots.shared.limit(),
            good: std::mem::take(&mut slots.good),
            refused: (slots.shared.refused() - refused) as u32,
            critical_good: std::mem::take(&mut slots.critical_good),
            critical_refused: std::mem::take(&mut slots.critical_refused),
        }
    }
}

/// Runs a limit in front of a service, for as many seconds as there is weather.
pub(super) fn run(
    seed: (u64, Distribution),
    servers: u32,
    bounds: Bounds,
    conditions: impl IntoIterator<Item = Conditions>,
) -> Vec<Second> {
    let mut bounded = Bounded::new(seed, servers, bounds);
    conditions
        .into_iter()
        .map(|it| bounded.second(it))
        .collect()
}

/// Returns how many requests were answered in time in each second, on average.
pub(super) fn goodput(seconds: &[Second]) -> f64 {
    let good: u32 = seconds.iter().map(|second| second.good).sum();
    f64::from(good) / seconds.len() as f64
}

/// Returns the bounds of a constant limit.
pub(super) fn fixed(limit: u32) -> Bounds {
    Bounds {
        start: limit,
        least: limit,
        most: limit,
        healthy: None,
    }
}

/// Returns the goodput of the best of all constant limits.
pub(super) fn best_static(seed: (u64, Distribution), servers: u32, conditions: Conditions) -> f64 {
    let limits = (1..=12).map(|quarters| servers * quarters / 4 + 1);
    let goodputs =
        limits.map(|limit| goodput(&run(seed, servers, fixed(limit), vec![conditions; 40])[10..]));
    goodputs.fold(0.0, f64::max)
}
