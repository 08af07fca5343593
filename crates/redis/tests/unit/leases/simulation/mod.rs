//! Leases in virtual time: thousands of nodes, one server, a network, and faults. It runs the code of the
//! crate; the rule of the server in Rust stands for its twin in Lua, which is the same by law 9.
//!
//! Each spend is compared with the plain algorithm, which sees what was really spent. A spend that the plain
//! algorithm would not admit ends the run. The run is then repeated, shorter and with fewer nodes as long as
//! the failure remains, and the messages about the key are printed.

mod check;
mod faults;
mod pairs;
mod queue;
mod random;
mod report;
mod scene;
mod search;
mod server;
mod table;
mod workload;
mod world;

use std::str::FromStr;

use self::faults::{CLOCK, Fault, Faults};
use self::report::Report;
use self::scene::{Distance, Scene};
use self::workload::Shape;
use self::world::World;
use tower_ratelimit_core::__internal::{Fixed, Step, WithRule};
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;

/// Plays a scene under the rule of its algorithm.
struct Play(Scene, bool);

impl WithRule for Play {
    type Result = Report;

    fn fixed(self, rule: impl Fixed) -> Report {
        World::new(rule, self.0, self.1).play()
    }

    fn long(self, rule: impl Step<Form = State>) -> Report {
        World::new(rule, self.0, self.1).play()
    }
}

impl Scene {
    fn play(self, traces: bool) -> Report {
        self.algorithm.with_rule(Play(self, traces))
    }

    /// Returns the smallest scene found in which the same fails, and its trace.
    fn shrunk(self) -> String {
        let mut least = self;
        let mut report = least.play(true);
        for nodes in [1, 2, 3, 5, 8, 13, 21, 34] {
            let smaller = Scene { nodes, ..self };
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
        let end = report.trace.len().saturating_sub(40);
        format!(
            "{self:?}\nshrunk to {least:?}\nthe last of {} lines:\n{}",
            report.trace.len(),
            report.trace[end..].join("\n")
        )
    }

    fn holds(self) -> Report {
        let report = self.play(false);
        assert!(!report.is_wrong(), "{}", self.shrunk());
        report
    }
}

/// Returns each algorithm, at this rate.
fn algorithms(per_second: u32) -> Vec<Algorithm> {
    [
        format!("fixed-window {per_second}/second"),
        format!("anchored-window {per_second}/second"),
        format!("sliding-window {per_second}/second"),
        format!("sliding-slots {per_second}/second"),
        format!("sliding-log {}/second", per_second.min(65_536)),
        format!(
            "gcra {per_second}/second burst {}",
            per_second.div_ceil(10).max(8)
        ),
        format!(
            "token-bucket-interval {}/100ms burst {per_second}",
            per_second / 10
        ),
    ]
    .iter()
    .map(|text| text.parse().expect("it is one"))
    .collect()
}

/// Returns how much this algorithm admits in a second.
fn per_second(algorithm: &Algorithm) -> f64 {
    let limit = algorithm.limit().map_or(0.0, f64::from);
    let period = algorithm.period().map_or(1.0, |it| it.as_secs_f64());
    limit / period
}

/// Reads a number from the environment.
fn given<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// A node is idle and reports what it has spent, and then the server's clock steps back. The server knows of
/// more time in which the bucket has drained than the spends alone show.
#[test]
fn a_bucket_whose_clock_steps_back_has_drained_until_then() {
    let scene = Scene {
        algorithm: "gcra 10000/second burst 1000".parse().expect("it is one"),
        shape: Shape::Bursts,
        nodes: 2,
        rate: 15_000.0,
        life: Micros::new(300_000),
        distance: Distance::Near,
        faults: CLOCK,
        seed: 7,
        lasts: 2_000_000,
    };
    let report = scene.holds();
    assert!(report.faults > 0 && report.spends > 1_000, "{report}");
}

/// The server is not asked between the step and the next refill, which it then makes all the same.
#[test]
fn a_bucket_by_interval_is_refilled_between_a_step_back_and_the_next_request() {
    let scene = Scene {
        algorithm: "token-bucket-interval 10/100ms burst 100"
            .parse()
            .expect("it is one"),
        shape: Shape::Bursts,
        nodes: 2,
        rate: 150.0,
        life: Micros::new(300_000),
        distance: Distance::Near,
        faults: CLOCK,
        seed: 3_838_415_272_394_275_662,
        lasts: 2_000_000,
    };
    let report = scene.holds();
    assert!(report.faults > 0 && report.spends > 100, "{report}");
}

/// Faults that only leases have: each by itself, and how much it may cost.
#[test]
fn each_fault_admits_no_more_than_it_does_without_leases() {
    const KINDS: [(&str, &[Fault], f64); 10] = [
        ("messages are lost or late", &[], 0.8),
        ("nodes are killed", &[Fault::Crash], 0.8),
        ("nodes are suspended", &[Fault::Suspension(800_000)], 0.3),
        (
            "half of the nodes is cut off",
            &[Fault::Partition(300_000)],
            0.5,
        ),
        ("the server is away", &[Fault::Away(200_000)], 0.5),
        ("a failover forgets", &[Fault::Failover(500_000)], 0.9),
        ("the server is empty", &[Fault::Empty], 0.9),
        ("its clock steps back", &[Fault::Back(3_600_000_000)], 0.0),
        ("by less than a life", &[Fault::Back(900_000)], 0.0),
        ("its clock steps forward", &[Fault::Forward(2_000_000)], 0.5),
    ];
    for (name, kinds, utilisation) in KINDS {
        for algorithm in algorithms(1_000) {
            let is_of_messages = kinds.is_empty();
            let faults = Faults {
                name,
                lost: if is_of_messages { 0.05 } else { 0.0 },
                late: if is_of_messages { 0.05 } else { 0.0 },
                every: if is_of_messages { 0 } else { 300_000 },
                kinds,
            };
            let scene = Scene {
                algorithm,
                shape: Shape::Global,
                nodes: 10,
                rate: 1_500.0,
                life: Micros::new(1_000_000),
                distance: Distance::Near,
                faults,
                seed: 27,
                lasts: 5_000_000,
            };
            let report = scene.holds();
            println!(
                "{name:<28} {:<36} {:>3} faults {:>5} failed {:>6.4} of plain {:>5} in excess",
                algorithm.to_string(),
                report.faults,
                report.failed,
                report.utilisation(),
                report.in_excess
            );
            let has_happened = if is_of_messages {
                report.failed
            } else {
                report.faults
            };
            assert!(has_happened > 3, "{name} {algorithm}");
            assert!(
                report.utilisation() >= utilisation,
                "{name} {algorithm}: {report}"
            );
            let forgets = matches!(
                kinds,
                [Fault::Failover(_) | Fault::Empty | Fault::Forward(_)]
            ) || matches!(
                (algorithm, kinds),
                (Algorithm::SlidingWindow(_), [Fault::Back(_)])
            );
            assert!(forgets || report.in_excess == 0, "{name} {algorithm}");
        }
    }
}
