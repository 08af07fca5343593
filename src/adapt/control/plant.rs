//! A service to be controlled, in virtual time: requests arrive at random, wait for one of several servers, and are given
//! up if they wait for too long.
//!
//! It is a queue of the kind M/G/c: Poisson arrivals, service times from a log-normal distribution, first come first
//! served. Seeded, so that a run repeats.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulation counts microseconds in numbers of both kinds"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Controller;
use crate::adapt::{Load, Loads};
use crate::factor::Factor;

/// What happens from one second to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Requests a second that arrive.
    pub(super) demand: f64,
    /// How many times as long as usual the service takes.
    pub(super) slowness: f64,
    /// The share of requests that fail at once, after a microsecond.
    pub(super) failing: f64,
    /// Whether the controller is asked.
    pub(super) ticks: bool,
}

impl Weather {
    pub(super) fn demand(demand: f64) -> Self {
        Self {
            demand,
            slowness: 1.0,
            failing: 0.0,
            ticks: true,
        }
    }
}

/// One second of a run.
#[derive(Clone, Debug)]
pub(super) struct Second {
    pub(super) factor: Factor,
    pub(super) cause: Option<String>,
    /// Requests that were answered in time.
    pub(super) good: u32,
}

pub(super) struct Plant {
    random: Random,
    /// When each server is free, in microseconds.
    free: BinaryHeap<Reverse<u64>>,
    /// Requests that arrive in a second under the whole limit.
    base: f64,
    credit: f64,
    now: u64,
    next_arrival: f64,
    /// Times of answers, and of how long they took: those still to come.
    answers: BinaryHeap<Reverse<(u64, u64)>>,
    busy: f64,
    loads: Loads,
}

pub(super) const SERVERS: u32 = 8;

/// Microseconds that a request takes on average.
const SERVICE: f64 = 50_000.0;

/// After which a client has given up.
const DEADLINE: u64 = 1_000_000;

/// What all servers can do in a second.
pub(super) const CAPACITY: f64 = SERVERS as f64 * 1e6 / SERVICE;

const LATENCY_TARGET: u64 = 200_000;

impl Plant {
    pub(super) fn new(seed: u64, base: f64) -> Self {
        Self {
            random: Random(seed),
            free: (0..SERVERS).map(|_| Reverse(0)).collect(),
            base,
            credit: base,
            now: 0,
            next_arrival: 0.0,
            answers: BinaryHeap::new(),
            busy: 0.0,
            loads: Loads::new(),
        }
    }

    /// Runs for a second under this factor. Returns how many were answered in time.
    pub(super) fn second(&mut self, factor: Factor, weather: Weather) -> u32 {
        let (from, to) = (self.now, self.now + 1_000_000);
        self.next_arrival = self.next_arrival.max(from as f64);
        let factor = f64::from(factor.get()) / 1e3;
        let mut is_wanted = false;
        loop {
            // Without demand, the next is never.
            let gap = self.random.exponential() * 1e6 / weather.demand;
            let arrival = self.next_arrival + gap;
            if arrival >= to as f64 {
                break;
            }
            self.next_arrival = arrival;
            self.credit = (self.credit + gap / 1e6 * self.base).min(self.base);
            if self.credit < 1.0 {
                is_wanted = true;
                continue;
            }
            // The share of the limit is kept by what a request is charged.
            self.credit -= 1.0 / factor;
            self.arrive(arrival as u64, weather);
        }
        self.next_arrival = to as f64;
        self.now = to;
        self.read(weather, is_wanted)
    }

    fn arrive(&mut self, at: u64, weather: Weather) {
        if self.random.uniform() < weather.failing {
            return;
        }
        let Some(Reverse(free)) = self.free.pop() else {
            return;
        };
        let begins = free.max(at);
        let service = self.random.log_normal() * SERVICE * weather.slowness;
        if begins - at > DEADLINE {
            // Its client is gone.
            self.free.push(Reverse(free));
            self.answers.push(Reverse((at + DEADLINE, DEADLINE)));
            return;
        }
        let ends = begins + service as u64;
        self.busy += service;
        self.free.push(Reverse(ends));
        self.answers.push(Reverse((ends, ends - at)));
    }

    fn read(&mut self, weather: Weather, is_wanted: bool) -> u32 {
        let (mut took, mut good) = (Vec::new(), 0);
        while let Some(Reverse((ended, time))) = self.answers.peek().copied() {
            if ended > self.now {
                break;
            }
            self.answers.pop();
            took.push(time);
            good += u32::from(time < DEADLINE && weather.demand > 0.0);
        }
        took.sort_unstable();
        let enough = took.len() >= 10;
        let percentile = took.get(took.len() * 9 / 10).copied();
        let latency = percentile
            .filter(|_| enough)
            .and_then(|time| Load::of(time, LATENCY_TARGET));
        let busy = self
            .free
            .iter()
            .filter(|Reverse(free)| *free > self.now)
            .count();
        self.loads = Loads::new()
            .with("latency", latency)
            .with("cpu", Load::of(busy as u64, SERVERS.into()))
            .with("in flight", Load::of(self.answers.len() as u64, 64))
            .wanted(is_wanted);
        good
    }

    pub(super) fn loads(&self) -> &Loads {
        &self.loads
    }
}

/// A controller in front of a service, for as many seconds as there is weather.
pub(super) fn run(
    controller: &mut dyn Controller,
    seed: u64,
    base: f64,
    weather: impl IntoIterator<Item = Weather>,
) -> Vec<Second> {
    let mut plant = Plant::new(seed, base);
    let mut factor = Factor::ONE;
    let mut cause = None;
    let mut seconds = Vec::new();
    for (second, weather) in weather.into_iter().enumerate() {
        let good = plant.second(factor, weather);
        if weather.ticks {
            let target = controller.step(Duration::from_secs(second as u64), plant.loads());
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

/// Requests answered in time in each second, on average.
pub(super) fn goodput(seconds: &[Second]) -> f64 {
    let good: u32 = seconds.iter().map(|second| second.good).sum();
    f64::from(good) / seconds.len() as f64
}

/// The goodput of the best of all factors that never change.
pub(super) fn best_static(seed: u64, base: f64, weather: Weather) -> f64 {
    struct Static(Factor);

    impl Controller for Static {
        fn step(&mut self, _: Duration, _: &Loads) -> super::Target {
            super::Target::of(self.0)
        }
    }

    let factors = (5..=50).map(|fiftieths| Factor::thousandths(fiftieths * 20));
    let goodputs = factors.map(|factor| {
        let seconds = run(&mut Static(factor), seed, base, vec![weather; 90]);
        goodput(&seconds[30..])
    });
    goodputs.fold(0.0, f64::max)
}

/// A generator of random numbers by Steele, Lea and Flood (`SplitMix64`).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0, and below 1.
    pub(super) fn uniform(&mut self) -> f64 {
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
