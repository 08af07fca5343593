//! The policy of leasing in virtual time: thousands of nodes, one server, a network, and faults. It runs the code that is
//! shipped; the rule of the server stands here for its twin in Lua, which is the same by law 9.
//!
//! Each spend is compared with the plain algorithm, which is told of what was really spent. A spend that the plain algorithm
//! would not admit ends the run. Then the run is repeated, shorter and with fewer nodes as long as the fault stays, and the
//! messages about the key are printed.

mod check;
mod faults;
mod random;
mod report;
mod server;
mod workload;
mod world;

use std::time::{Instant, SystemTime};

use self::faults::{CLOCK, Faults, NETWORK, NONE, SERVER};
use self::report::Report;
use self::workload::{SHAPES, Shape};
use self::world::{Scene, World};
use crate::algorithm::{Algorithm, Fixed, State, Step, WithRule};
use crate::clock::Micros;

/// Plays a scene under the rule of its algorithm.
struct Play(Scene, bool);

impl WithRule for Play {
    type Result = Report;

    fn fixed(self, rule: impl Fixed) -> Report {
        World::new(rule, self.0, self.1).play()
    }

    fn long(self, rule: impl Step<Kept = State>) -> Report {
        World::new(rule, self.0, self.1).play()
    }
}

impl Scene {
    fn play(self, traces: bool) -> Report {
        self.algorithm.with_rule(Play(self, traces))
    }

    /// The smallest scene found in which the same goes wrong, and its trace.
    fn shrunk(self) -> String {
        let mut least = self;
        let mut report = least.play(true);
        for nodes in [1, 2, 3, 5, 8, 13, 21, 34] {
            let smaller = Scene {
                nodes,
                ..self
            };
            if nodes < self.nodes && smaller.play(false).is_wrong() {
                least = smaller;
                report = least.play(true);
                break;
            }
        }
        for rate in [100.0, 300.0, 1e3, 3e3, 1e4, 3e4] {
            let smaller = Scene { rate, ..least };
            if rate < least.rate && smaller.play(false).is_wrong() {
                least = smaller;
                report = least.play(true);
                break;
            }
        }
        let last = report.trace.len().saturating_sub(60);
        format!(
            "{self:?}\nshrunk to {least:?}\nthe last of {} lines:\n{}",
            report.trace.len(),
            report.trace[last..].join("\n")
        )
    }

    fn holds(self) -> Report {
        let report = self.play(false);
        assert!(!report.is_wrong(), "{}", self.shrunk());
        report
    }
}

/// Each algorithm, with so much a second.
fn algorithms(per_second: u32) -> Vec<Algorithm> {
    [
        format!("fixed-window {per_second}/second"),
        format!("anchored-window {per_second}/second"),
        format!("sliding-window {per_second}/second"),
        format!("sliding-slots {per_second}/second"),
        format!("sliding-log {}/second", per_second.min(65_536)),
        format!("gcra {per_second}/second burst {}", per_second.div_ceil(10).max(8)),
        format!(
            "token-bucket-interval {}/100ms burst {per_second}",
            per_second / 10
        ),
    ]
    .iter()
    .map(|text| text.parse().expect("it is one"))
    .collect()
}

/// Scenes of all kinds, until the time is over. Returns how many units were spent.
fn search(seed: u64, limit: std::time::Duration) -> u64 {
    let begun = Instant::now();
    let mut random = random::Random::new(seed);
    let mut spends = 0;
    while begun.elapsed() < limit {
        let per_second = [10, 100, 1_000, 10_000][random.below(4) as usize];
        let algorithms = algorithms(per_second);
        let algorithm = algorithms[random.below(algorithms.len() as u64) as usize];
        let shape = SHAPES[random.below(SHAPES.len() as u64) as usize];
        let mut faults: Faults = [NONE, NETWORK, NETWORK, SERVER, CLOCK][random.below(5) as usize];
        if shape == Shape::Churn || shape == Shape::Scattered {
            faults = NETWORK;
        }
        let scene = Scene {
            algorithm,
            shape,
            nodes: [2, 5, 20, 100, 1_000][random.below(5) as usize],
            rate: f64::from(per_second) * [0.7, 1.5, 10.0][random.below(3) as usize],
            life: Micros::new([20_000, 300_000, 1_000_000, 5_000_000][random.below(4) as usize]),
            faults,
            seed: random.next(),
            lasts: 3_000_000,
        };
        spends += scene.holds().spends;
    }
    spends
}

#[test]
fn no_spend_is_in_excess_of_the_plain_algorithm() {
    let length = std::time::Duration::from_secs(10);
    let fixed = search(27, length);
    let fresh = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let fresh = fresh.expect("it is later").subsec_nanos();
    println!("seed {fresh}");
    let spends = fixed + search(fresh.into(), length);
    println!("{spends} spends");
    assert!(spends > 100_000);
}

/// `make simulate`.
#[test]
fn the_table_of_the_simulation() {
    let Ok(seconds) = std::env::var("SIMULATED_SECONDS") else {
        return;
    };
    let seconds: u64 = seconds.parse().expect("a number");
    let (mut spends, mut decisions) = (0, 0);
    println!(
        "{:<11} {:<34} {:>10} {:>9} {:>8} {:>7} {:>8} {:>7} {:>8} {:>7} {:>7}",
        "workload", "algorithm", "decisions", "spends", "local", "calls", "busy", "util", "false", "Jain", "p99.9"
    );
    let only = std::env::var("SIMULATED_SHAPE").unwrap_or_default();
    for shape in SHAPES {
        if !format!("{shape:?}").contains(&only) {
            continue;
        }
        for algorithm in algorithms(60_000) {
            let scene = Scene {
                algorithm,
                shape,
                nodes: 100,
                rate: 90_000.0,
                life: Micros::new(1_000_000),
                faults: NONE,
                seed: 27,
                lasts: seconds * 1_000_000,
            };
            let report = scene.holds();
            println!("{:<11} {:<34} {report}", format!("{shape:?}"), algorithm.to_string());
            spends += report.spends;
            decisions += report.decisions;
        }
    }
    println!("{decisions} decisions, {spends} spends, none in excess");
}
