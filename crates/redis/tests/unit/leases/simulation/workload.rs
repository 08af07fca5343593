//! The requests of a run: the key, the cost and the time of each.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::random::Random;

/// The workloads of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One key at all nodes.
    Global,
    /// One hundred keys at all nodes.
    Tenants,
    /// Ten thousand keys by Zipf 1.1, each at one to three nodes.
    Affine,
    /// A hundred thousand keys by Zipf 1.0, at all nodes.
    Scattered,
    /// One key; each node asks in 50 of 500 ms.
    Bursts,
    /// One key; nodes by Zipf 1.0, and every second another node is the hottest.
    Wandering,
    /// One key; a tenth of the nodes is replaced each second.
    Churn,
    /// One key; the demand rises from half of the mean to nearly twice of it, and falls.
    Sawtooth,
    /// One key, costs from 1 to 50.
    Costs,
    /// Keys with two requests each, to make leases and leave them.
    Attack,
}

pub(super) const SHAPES: [Shape; 10] = [
    Shape::Global,
    Shape::Tenants,
    Shape::Affine,
    Shape::Scattered,
    Shape::Bursts,
    Shape::Wandering,
    Shape::Churn,
    Shape::Sawtooth,
    Shape::Costs,
    Shape::Attack,
];

impl Shape {
    /// Returns whether all requests have the same key.
    pub(super) fn has_one_key(self) -> bool {
        !matches!(
            self,
            Self::Tenants | Self::Affine | Self::Scattered | Self::Attack
        )
    }
}

pub(super) struct Workload {
    shape: Shape,
    nodes: usize,
    /// Requests a microsecond, of all nodes.
    rate: f64,
    /// The sum of the weights up to each key or node.
    zipf: Cow<'static, [f64]>,
    drawn: u64,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) node: usize,
    pub(super) key: u64,
    pub(super) cost: u32,
}

const BURST: u64 = 50_000;
const BURST_EVERY: u64 = 500_000;
const SECOND: u64 = 1_000_000;

impl Workload {
    pub(super) fn new(shape: Shape, nodes: usize, per_second: f64) -> Self {
        static AFFINE: LazyLock<Vec<f64>> = LazyLock::new(|| zipf(10_000, 1.1));
        static SCATTERED: LazyLock<Vec<f64>> = LazyLock::new(|| zipf(100_000, 1.0));
        let zipf = match shape {
            Shape::Affine => Cow::Borrowed(AFFINE.as_slice()),
            Shape::Scattered => Cow::Borrowed(SCATTERED.as_slice()),
            Shape::Wandering => Cow::Owned(zipf(nodes, 1.0)),
            _ => Cow::default(),
        };
        Self {
            shape,
            nodes,
            rate: match shape {
                Shape::Costs => per_second / 25.5e6,
                _ => per_second / 1e6,
            },
            zipf,
            drawn: 0,
        }
    }

    /// Returns the number of arrival processes: one for each node, or one for all.
    pub(super) fn streams(&self) -> usize {
        match self.shape {
            Shape::Affine | Shape::Scattered | Shape::Attack => 1,
            _ => self.nodes,
        }
    }

    /// Returns the rate of a stream, and until when it holds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "small numbers"
    )]
    fn rate_at(&self, stream: usize, now: u64) -> (f64, u64) {
        let each = self.rate / self.streams() as f64;
        match self.shape {
            Shape::Bursts => {
                let phase = stream as u64 * BURST_EVERY / self.nodes as u64;
                let into = (now + phase) % BURST_EVERY;
                if into < BURST {
                    let times = (BURST_EVERY / BURST) as f64;
                    (each * times, now + BURST - into)
                } else {
                    (0.0, now + BURST_EVERY - into)
                }
            }
            Shape::Wandering => {
                let place = ((stream as u64 + now / SECOND) % self.nodes as u64) as usize;
                let before = place.checked_sub(1).map_or(0.0, |before| self.zipf[before]);
                let share = self.zipf[place] - before;
                (self.rate * share, (now / SECOND + 1) * SECOND)
            }
            Shape::Sawtooth => {
                let step = now / BURST;
                let into = (step % 40) as f64 / 40.0;
                (each * (0.5 + 1.4 * into), (step + 1) * BURST)
            }
            _ => (each, u64::MAX),
        }
    }

    /// Returns when the next request of a stream comes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time in microseconds"
    )]
    pub(super) fn next(&self, stream: usize, now: u64, random: &mut Random) -> u64 {
        let mut now = now;
        loop {
            let (rate, until) = self.rate_at(stream, now);
            if rate > 0.0 {
                let next = now + random.gap(rate) as u64;
                if next < until {
                    return next;
                }
            }
            now = until;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    pub(super) fn request(&mut self, stream: usize, random: &mut Random) -> Request {
        let one = |cost| Request {
            node: stream,
            key: 0,
            cost,
        };
        match self.shape {
            Shape::Tenants => Request {
                key: random.below(100),
                ..one(1)
            },
            Shape::Affine => {
                let key = self.draw(random);
                let which = random.below(1 + key % 3);
                Request {
                    node: Random::new(key * 3 + which).place(self.nodes),
                    key,
                    cost: 1,
                }
            }
            Shape::Scattered => Request {
                node: random.place(self.nodes),
                key: self.draw(random),
                cost: 1,
            },
            Shape::Attack => {
                self.drawn += 1;
                let key = self.drawn / 2;
                Request {
                    node: Random::new(key).place(self.nodes),
                    key,
                    cost: 1,
                }
            }
            Shape::Costs => one(1 + random.below(50) as u32),
            _ => one(1),
        }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let part = random.part();
        self.zipf.partition_point(|sum| *sum <= part) as u64
    }

    pub(super) fn replaces_nodes(&self) -> bool {
        self.shape == Shape::Churn
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn zipf(number: usize, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=number).map(|rank| (rank as f64).powf(-exponent));
    let mut sums: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    for up_to in &mut sums {
        *up_to /= sum;
    }
    if let Some(last) = sums.last_mut() {
        *last = 1.0;
    }
    sums
}
