//! A controller whose factor holds a limit in front of a service, in virtual time.

#![expect(
    clippy::cast_precision_loss,
    reason = "a simulation counts in numbers of both kinds"
)]

use std::sync::LazyLock;
use std::time::Duration;

use super::{Controller, Target};
use crate::plant::{
    Conditions, DEADLINE, Distribution, End, EndKind, Gate, Random, Service, capacity,
};
use crate::{Load, Loads};
use tower_ratelimit::factor::Factor;

pub(super) const SERVERS: u32 = 8;

/// The capacity of all servers in a second.
pub(super) const CAPACITY: f64 = SERVERS as f64 * 20.0;

/// The limit is two and a half times the capacity of the service, and the demand is three times the capacity.
pub(super) const BASE: f64 = 2.5 * CAPACITY;

pub(super) const OVERLOAD: f64 = 3.0 * CAPACITY;

/// In microseconds.
const LATENCY_TARGET: u64 = 200_000;

/// One second of a run.
#[derive(Clone, Debug)]
pub(super) struct Second {
    pub(super) factor: Factor,
    pub(super) cause: Option<String>,
    /// The number of requests that were answered in time.
    pub(super) good: u32,
}

/// A bucket before the service, which charges requests more under a lower factor.
struct Limit {
    /// The requests a second under the whole limit.
    base: f64,
    factor: f64,
    credit: f64,
    at: f64,
    is_wanted: bool,
    good: u32,
    took: Vec<u64>,
}

impl Gate for Limit {
    type Pass = ();

    fn enter(&mut self, at: f64, _: Conditions, _: &mut Random) -> Option<()> {
        let earned = (at - self.at) / 1e6 * self.base;
        self.credit = (self.credit + earned).min(self.base);
        self.at = at;
        if self.credit < 1.0 {
            self.is_wanted = true;
            return None;
        }
        self.credit -= 1.0 / self.factor;
        Some(())
    }

    fn leave(&mut self, end: End, (): ()) {
        self.good += u32::from(end.is_good());
        match end.how {
            EndKind::Served | EndKind::GivenUp => self.took.push(end.took()),
            EndKind::Failed | EndKind::Overloaded => {}
        }
    }
}

/// The limit, the service, and its signals.
pub(super) struct Driven {
    service: Service<()>,
    limit: Limit,
    loads: Loads,
}

impl Driven {
    pub(super) fn new(seed: u64, base: f64, law: Distribution) -> Self {
        Self {
            service: Service::new(seed, SERVERS, law),
            limit: Limit {
                base,
                factor: 1.0,
                credit: base,
                at: 0.0,
                is_wanted: false,
                good: 0,
                took: Vec::new(),
            },
            loads: Loads::new(),
        }
    }

    /// Runs for a second under this factor. Returns how many requests were answered in time.
    pub(super) fn second(&mut self, factor: Factor, conditions: Conditions) -> u32 {
        self.limit.factor = f64::from(factor.get()) / 1e3;
        self.service.second(&mut self.limit, conditions);
        self.loads = self.read(conditions);
        std::mem::take(&mut self.limit.good)
    }

    fn read(&mut self, conditions: Conditions) -> Loads {
        let mut took = std::mem::take(&mut self.limit.took);
        took.sort_unstable();
        let is_wanted = std::mem::take(&mut self.limit.is_wanted);
        let percentile = took.get(took.len() * 9 / 10).copied();
        let latency = percentile
            .filter(|_| took.len() >= 10)
            .and_then(|time| Load::of(time, LATENCY_TARGET));
        let busy = Load::of(self.service.busy() as u64, SERVERS.into());
        let in_flight = Load::of(self.service.under_way() as u64, 64);
        let signal = |load: Option<Load>| load.filter(|_| conditions.tells);
        Loads::new()
            .with("latency", signal(latency))
            .with("cpu", signal(busy))
            .with("in flight", signal(in_flight))
            .wanted(is_wanted)
    }

    pub(super) fn loads(&self) -> &Loads {
        &self.loads
    }
}

/// Runs a controller in front of a service, for as many seconds as there is weather.
pub(super) fn run(
    controller: &mut dyn Controller,
    (seed, law): (u64, Distribution),
    base: f64,
    conditions: impl IntoIterator<Item = Conditions>,
) -> Vec<Second> {
    let mut driven = Driven::new(seed, base, law);
    let (mut factor, mut cause) = (Factor::ONE, None);
    let mut seconds = Vec::new();
    for (second, conditions) in (0_u64..).zip(conditions) {
        let good = driven.second(factor, conditions);
        if conditions.ticks {
            let target = controller.step(Duration::from_secs(second), driven.loads());
            factor = target.factor();
            cause = target.cause().map(str::to_owned);
        }
        let cause = cause.clone();
        seconds.push(Second {
            factor,
            cause,
            good,
        });
    }
    seconds
}

/// Returns how many requests were answered in time in each second, on average.
pub(super) fn goodput(seconds: &[Second]) -> f64 {
    let good: u32 = seconds.iter().map(|second| second.good).sum();
    f64::from(good) / seconds.len() as f64
}

/// A constant factor.
pub(super) struct Fixed(pub(super) Factor);

impl Controller for Fixed {
    fn step(&mut self, _: Duration, _: &Loads) -> Target {
        Target::of(self.0)
    }
}

/// Several seeds, because one run may be lucky. The last are of an M/M/c queue.
pub(super) fn seeds() -> impl Iterator<Item = (u64, Distribution)> {
    let log_normal = (0..8).map(|seed| (seed, Distribution::LogNormal));
    log_normal.chain((0..4).map(|seed| (seed, Distribution::Exponential)))
}

/// Returns the goodput of the best of all constant factors under a steady overload. It takes ten times as long to find as a
/// test of the controllers takes, so it is found once for all tests.
pub(super) fn best_static(seed: (u64, Distribution)) -> f64 {
    static BESTS: LazyLock<Vec<((u64, Distribution), f64)>> = LazyLock::new(|| {
        let overload = vec![Conditions::demand(OVERLOAD); 90];
        let factors = || (5..=50).map(|fiftieths| Factor::thousandths(fiftieths * 20));
        seeds()
            .map(|seed| {
                let served =
                    |factor| goodput(&run(&mut Fixed(factor), seed, BASE, overload.clone())[30..]);
                (seed, factors().map(served).fold(0.0, f64::max))
            })
            .collect()
    });
    let found = BESTS.iter().find(|(other, _)| *other == seed);
    found.expect("one of the seeds").1
}

#[test]
fn the_capacity_is_that_of_the_service() {
    assert!((CAPACITY - capacity(SERVERS)).abs() < 1e-9);
    const { assert!(LATENCY_TARGET < DEADLINE) };
}
