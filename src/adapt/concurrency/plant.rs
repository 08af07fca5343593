//! A service behind the limit, in virtual time: a queue of the kind M/G/c.
//!
//! Requests arrive at random (Poisson), take a slot or are refused, wait for one of several servers, first come first
//! served, and take a time from a log-normal distribution. A client waits for a second. Seeded, so that a run repeats.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulation counts microseconds in numbers of both kinds"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::learning::Bounds;
use super::partitions::Partitions;
use super::shared::{Ended, Shared};

/// What happens in a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Requests that arrive.
    pub(super) demand: f64,
    /// How many times as long as usual the service takes.
    pub(super) slowness: f64,
    /// The share of requests that fail after a microsecond.
    pub(super) failing: f64,
    /// Whether these failures tell of an overload.
    pub(super) tells_overload: bool,
    /// Whether a request is answered after a microsecond.
    pub(super) is_lucky: bool,
    /// The share of requests that are critical, and have a partition.
    pub(super) critical: f64,
}

impl Weather {
    pub(super) fn demand(demand: f64) -> Self {
        Self {
            demand,
            slowness: 1.0,
            failing: 0.0,
            tells_overload: false,
            is_lucky: false,
            critical: 0.0,
        }
    }
}

/// What a second has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Second {
    /// The limit at its end.
    pub(super) limit: u32,
    /// Requests that were answered in time.
    pub(super) good: u32,
    pub(super) refused: u32,
    /// Those of them that were critical.
    pub(super) critical_good: u32,
    pub(super) critical_refused: u32,
}

/// Microseconds that a request takes on average.
const SERVICE: f64 = 50_000.0;

/// After which a client has given up.
const DEADLINE: u64 = 1_000_000;

/// What so many servers can do in a second.
pub(super) fn capacity(servers: u32) -> f64 {
    f64::from(servers) * 1e6 / SERVICE
}

/// When a request leaves, when it came, in which epoch, what it has to tell, and its partition.
type Leaving = (u64, u64, u32, Tells, Option<usize>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tells {
    Answer,
    Overload,
    Nothing,
}

pub(super) struct Plant {
    pub(super) shared: Shared,
    random: Random,
    /// When each server is free, in microseconds.
    free: BinaryHeap<Reverse<u64>>,
    leaving: BinaryHeap<Reverse<Leaving>>,
    now: u64,
    next_arrival: f64,
    good: u32,
    critical_good: u32,
    critical_refused: u32,
}

/// The place of the partition of critical requests.
const CRITICAL: usize = 0;

impl Plant {
    pub(super) fn new(seed: u64, servers: u32, bounds: Bounds) -> Self {
        let shared = Shared::new(
            bounds,
            Partitions::new(vec![("critical".into(), 80)]),
            Vec::new(),
        );
        Self {
            shared,
            random: Random(seed),
            free: (0..servers).map(|_| Reverse(0)).collect(),
            leaving: BinaryHeap::new(),
            now: 0,
            next_arrival: 0.0,
            good: 0,
            critical_good: 0,
            critical_refused: 0,
        }
    }

    pub(super) fn second(&mut self, weather: Weather) -> Second {
        let ends = self.now + 1_000_000;
        let (good, refused) = (self.good, self.shared.refused());
        let critical = (self.critical_good, self.critical_refused);
        let mut is_lucky = weather.is_lucky;
        self.next_arrival = self.next_arrival.max(self.now as f64);
        loop {
            // Without demand, the next one never comes.
            let gap = self.random.exponential() * 1e6 / weather.demand;
            let arrival = self.next_arrival + gap;
            if arrival >= ends as f64 {
                break;
            }
            self.next_arrival = arrival;
            self.leave_until(arrival as u64);
            self.arrive(arrival as u64, weather, &mut is_lucky);
        }
        self.next_arrival = ends as f64;
        self.leave_until(ends);
        self.now = ends;
        Second {
            limit: self.shared.limit(),
            good: self.good - good,
            refused: (self.shared.refused() - refused) as u32,
            critical_good: self.critical_good - critical.0,
            critical_refused: self.critical_refused - critical.1,
        }
    }

    fn arrive(&mut self, at: u64, weather: Weather, is_lucky: &mut bool) {
        let is_critical = weather.critical > 0.0 && self.random.uniform() < weather.critical;
        let partition = is_critical.then_some(CRITICAL);
        if !self.shared.enter(partition) {
            self.critical_refused += u32::from(is_critical);
            return;
        }
        let epoch = self.shared.epoch();
        let mut leave = |at_last, tells| {
            self.leaving
                .push(Reverse((at_last, at, epoch, tells, partition)));
        };
        if std::mem::take(is_lucky) {
            return leave(at + 1, Tells::Answer);
        }
        if self.random.uniform() < weather.failing {
            let tells = if weather.tells_overload {
                Tells::Overload
            } else {
                Tells::Nothing
            };
            return leave(at + 1, tells);
        }
        let Some(Reverse(free)) = self.free.pop() else {
            return;
        };
        let begins = free.max(at);
        if begins - at > DEADLINE {
            // Its client is gone before its turn.
            self.free.push(Reverse(free));
            return leave(at + DEADLINE, Tells::Nothing);
        }
        let ends = begins + (self.random.log_normal() * SERVICE * weather.slowness) as u64;
        self.free.push(Reverse(ends));
        leave(ends, Tells::Answer);
    }

    fn leave_until(&mut self, now: u64) {
        while let Some(Reverse(leaving)) = self.leaving.peek().copied() {
            let (ended, began, epoch, tells, partition) = leaving;
            if ended > now {
                break;
            }
            self.leaving.pop();
            let took = ended - began;
            let ended = Duration::from_micros(ended);
            match tells {
                Tells::Answer => {
                    let is_good = u32::from(took < DEADLINE);
                    self.good += is_good;
                    self.critical_good += is_good * u32::from(partition.is_some());
                    let took = Duration::from_micros(took);
                    self.shared.note(Ended::Answered(took), epoch, ended);
                }
                Tells::Overload => self.shared.note(Ended::Overloaded, epoch, ended),
                Tells::Nothing => {}
            }
            self.shared.leave(partition);
        }
    }
}

/// A limit in front of a service, for as many seconds as there is weather.
pub(super) fn run(
    seed: u64,
    servers: u32,
    bounds: Bounds,
    weather: impl IntoIterator<Item = Weather>,
) -> Vec<Second> {
    let mut plant = Plant::new(seed, servers, bounds);
    weather.into_iter().map(|it| plant.second(it)).collect()
}

/// Requests answered in time in each second, on average.
pub(super) fn goodput(seconds: &[Second]) -> f64 {
    let good: u32 = seconds.iter().map(|second| second.good).sum();
    f64::from(good) / seconds.len() as f64
}

/// The goodput of the best of all limits that never change.
pub(super) fn best_static(seed: u64, servers: u32, weather: Weather) -> f64 {
    let limits = (1..=12).map(|quarters| servers * quarters / 4 + 1);
    let goodputs = limits.map(|limit| {
        let bounds = Bounds {
            start: limit,
            least: limit,
            most: limit,
            healthy: None,
        };
        goodput(&run(seed, servers, bounds, vec![weather; 40])[10..])
    });
    goodputs.fold(0.0, f64::max)
}

/// A generator of random numbers by Steele, Lea and Flood (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0, and below 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// With a mean of 1, and a deviation of half of that in the logarithm.
    fn log_normal(&mut self) -> f64 {
        const DEVIATION: f64 = 0.5;
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
        (DEVIATION * normal - DEVIATION * DEVIATION / 2.0).exp()
    }
}
