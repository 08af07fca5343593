//! A simulated service in virtual time, for tests of what limits it.
//!
//! It is an M/G/c queue: requests arrive at random (Poisson), pass a [`Gate`], wait for one of several
//! servers, first come first served, and take a time from a distribution. A client gives up after a second.
//! Seeded, so that a run repeats.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulation counts microseconds in numbers of both kinds"
)]

mod random;
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(super) use self::random::{Distribution, Random};

/// The conditions during one second.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a disturbance of its own"
)]
pub(super) struct Conditions {
    /// The requests a second that arrive.
    pub(super) demand: f64,
    /// How many times as long as usual the service takes.
    pub(super) slowness: f64,
    /// The share of requests that fail after a microsecond.
    pub(super) failing: f64,
    /// Whether these failures are signs of an overload.
    pub(super) tells_overload: bool,
    /// Whether the first request that is admitted is answered after a microsecond.
    pub(super) is_lucky: bool,
    /// The share of requests that are critical.
    pub(super) critical: f64,
    /// Whether the controller runs at the end of the second.
    pub(super) ticks: bool,
    /// Whether its signals can be read.
    pub(super) tells: bool,
}

impl Conditions {
    pub(super) fn demand(demand: f64) -> Self {
        Self {
            demand,
            slowness: 1.0,
            failing: 0.0,
            tells_overload: false,
            is_lucky: false,
            critical: 0.0,
            ticks: true,
            tells: true,
        }
    }
}

/// A limit in front of the service.
pub(super) trait Gate {
    /// The pass that a request holds while it is in flight.
    type Pass: Copy + Ord;

    /// Admits or refuses a request that arrives now, in microseconds.
    fn enter(&mut self, at: f64, conditions: Conditions, random: &mut Random)
    -> Option<Self::Pass>;

    /// Handles the end of a request.
    fn leave(&mut self, end: End, pass: Self::Pass);
}

/// The end of a request, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) ended: u64,
    pub(super) began: u64,
    pub(super) how: EndKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EndKind {
    Served,
    /// Its client has given up before it was served.
    GivenUp,
    Failed,
    Overloaded,
}

impl End {
    pub(super) fn took(&self) -> u64 {
        self.ended - self.began
    }

    /// Returns whether a client gets an answer for which it still waits.
    pub(super) fn is_good(&self) -> bool {
        self.how == EndKind::Served && self.took() < DEADLINE
    }
}

/// The average time of a request, in microseconds.
const SERVICE: f64 = 50_000.0;

/// The time after which a client gives up, in microseconds.
pub(super) const DEADLINE: u64 = 1_000_000;

/// Returns the capacity of this many servers in a second.
pub(super) fn capacity(servers: u32) -> f64 {
    f64::from(servers) * 1e6 / SERVICE
}

/// The servers, and the requests in flight.
pub(super) struct Service<P> {
    random: Random,
    distribution: Distribution,
    /// When each server is free.
    free: BinaryHeap<Reverse<u64>>,
    leaving: BinaryHeap<Reverse<(End, P)>>,
    now: u64,
    next_arrival: f64,
}

impl<P: Copy + Ord> Service<P> {
    pub(super) fn new(seed: u64, servers: u32, distribution: Distribution) -> Self {
        Self {
            random: Random::new(seed),
            distribution,
            free: (0..servers).map(|_| Reverse(0)).collect(),
            leaving: BinaryHeap::new(),
            now: 0,
            next_arrival: 0.0,
        }
    }

    /// Runs for a second behind this gate.
    pub(super) fn second(&mut self, gate: &mut impl Gate<Pass = P>, conditions: Conditions) {
        let ends = self.now + 1_000_000;
        let mut is_lucky = conditions.is_lucky;
        self.next_arrival = self.next_arrival.max(self.now as f64);
        loop {
            // Without demand, the next request never comes.
            let gap = self.random.exponential() * 1e6 / conditions.demand;
            let arrival = self.next_arrival + gap;
            if arrival >= ends as f64 {
                break;
            }
            self.next_arrival = arrival;
            self.leave_until(arrival as u64, gate);
            if let Some(pass) = gate.enter(arrival, conditions, &mut self.random) {
                let end = self.serve(arrival as u64, conditions, std::mem::take(&mut is_lucky));
                self.leaving.push(Reverse((end, pass)));
            }
        }
        self.next_arrival = ends as f64;
        self.leave_until(ends, gate);
        self.now = ends;
    }

    /// Returns how many servers are busy.
    pub(super) fn busy(&self) -> usize {
        let free = self.free.iter();
        free.filter(|Reverse(free)| *free > self.now).count()
    }

    pub(super) fn under_way(&self) -> usize {
        self.leaving.len()
    }

    fn serve(&mut self, began: u64, conditions: Conditions, is_lucky: bool) -> End {
        let end = |ended, how| End { ended, began, how };
        if is_lucky {
            return end(began + 1, EndKind::Served);
        }
        if self.random.uniform() < conditions.failing {
            let how = if conditions.tells_overload {
                EndKind::Overloaded
            } else {
                EndKind::Failed
            };
            return end(began + 1, how);
        }
        let Some(Reverse(free)) = self.free.pop() else {
            return end(began, EndKind::Failed);
        };
        let turn = free.max(began);
        if turn - began > DEADLINE {
            self.free.push(Reverse(free));
            return end(began + DEADLINE, EndKind::GivenUp);
        }
        let time = self.random.time(self.distribution) * SERVICE * conditions.slowness;
        let ended = turn + time as u64;
        self.free.push(Reverse(ended));
        end(ended, EndKind::Served)
    }

    fn leave_until(&mut self, now: u64, gate: &mut impl Gate<Pass = P>) {
        while let Some(Reverse((end, pass))) = self.leaving.peek().copied() {
            if end.ended > now {
                break;
            }
            self.leaving.pop();
            gate.leave(end, pass);
        }
    }
}
