//! Random scenes, in search of a spend that the plain algorithm would not admit.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use super::faults::{CLOCK, Faults, NETWORK, NONE, SERVER};
use super::random::Random;
use super::report::Report;
use super::scene::{Distance, Scene};
use super::workload::{SHAPES, Shape};
use super::{algorithms, given, per_second};
use crate::lease::Terms;
use tower_ratelimit_core::clock::Micros;

/// The results of a search, for each kind of fault.
#[derive(Debug, Default)]
struct Seen(Vec<Row>);

#[derive(Debug)]
struct Row {
    faults: &'static str,
    scenes: u64,
    happened: u64,
    decisions: u64,
    spends: u64,
    /// Admitted because the server had lost as much, or its clock had stepped.
    forgotten: u64,
}

impl Seen {
    fn add(&mut self, faults: &'static str, report: &Report) {
        let place = self.0.iter().position(|row| row.faults == faults);
        let place = place.unwrap_or_else(|| {
            self.0.push(Row::new(faults));
            self.0.len() - 1
        });
        let row = &mut self.0[place];
        row.scenes += 1;
        row.happened += report.faults;
        row.decisions += report.decisions;
        row.spends += report.spends;
        row.forgotten += report.in_excess;
    }

    fn spends(&self) -> u64 {
        self.0.iter().map(|row| row.spends).sum()
    }
}

impl Row {
    fn new(faults: &'static str) -> Self {
        Self {
            faults,
            scenes: 0,
            happened: 0,
            decisions: 0,
            spends: 0,
            forgotten: 0,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:>8} {:>8} {:>12} {:>12} {:>10} {:>4}",
            "what goes wrong", "scenes", "faults", "decisions", "spends", "forgotten", "over"
        )?;
        for row in &self.0 {
            let Row {
                faults,
                scenes,
                happened,
                decisions,
                spends,
                forgotten,
            } = row;
            // A spend in excess ends the run.
            writeln!(
                f,
                "{faults:<20} {scenes:>8} {happened:>8} {decisions:>12} {spends:>12} {forgotten:>10} {:>4}",
                0
            )?;
        }
        write!(f, "{} spends, none in excess", self.spends())
    }
}

/// The limits in a second. A scene with a large limit takes as long as many others, so only a long search has
/// these.
const LIMITS: [u32; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];

impl Scene {
    /// Returns a random scene under one of these limits.
    fn any(random: &mut Random, limits: &[u32]) -> Self {
        loop {
            let scene = Self::drawn(random, limits);
            if scene.can_be_served() {
                return scene;
            }
        }
    }

    fn drawn(random: &mut Random, limits: &[u32]) -> Self {
        let limit = *random.one_of(limits);
        let algorithm = *random.one_of(&algorithms(limit));
        let shape = *random.one_of(&SHAPES);
        let mut faults: Faults = *random.one_of(&[NONE, NETWORK, NETWORK, SERVER, CLOCK]);
        if shape == Shape::Churn || shape == Shape::Scattered {
            faults = NETWORK;
        }
        Self {
            algorithm,
            shape,
            nodes: *random.one_of(&[2, 5, 20, 100, 1_000]),
            rate: per_second(&algorithm) * *random.one_of(&[0.7, 1.5, 1.5, 5.0]),
            life: Micros::new(*random.one_of(&[20_000, 300_000, 1_000_000, 5_000_000])),
            distance: *random.one_of(&[Distance::Near, Distance::Near, Distance::Far]),
            faults,
            seed: random.next(),
            lasts: 2_000_000,
        }
    }

    /// Returns whether the server can serve the questions. Of so many requests, few may ask by themselves:
    /// all have one key, and wait for units that are on their way.
    #[expect(clippy::cast_precision_loss, reason = "a thousand nodes")]
    fn can_be_served(&self) -> bool {
        let terms = Terms::of(&self.algorithm, self.life);
        let is_leased_for_long = self.shape.has_one_key() && terms.is_some_and(Terms::is_long);
        self.rate <= 50_000.0 || is_leased_for_long && self.rate <= 5_000.0 * self.nodes as f64
    }
}

/// Plays scenes until there are enough.
fn search(seed: u64, limits: &[u32], tally: &mut Seen, is_enough: impl Fn(&Seen) -> bool) {
    let mut random = Random::new(seed);
    let (begun, mut printed) = (Instant::now(), 0);
    while !is_enough(tally) {
        let scene = Scene::any(&mut random, limits);
        tally.add(scene.faults.name, &scene.holds());
        if tally.spends() >= printed + 100_000_000 {
            printed = tally.spends();
            println!("{printed} spends after {:.0?}", begun.elapsed());
        }
    }
}

/// Plays the same scenes in each run, and others. `SIMULATED_SECONDS` sets how long for each, or `SIMULATED_SPENDS` how many spends,
/// and `SIMULATED_SEED` which others.
#[test]
fn no_spend_is_in_excess_of_the_plain_algorithm() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let fresh = now.map_or(0, |now| now.subsec_nanos().into());
    let seed = given("SIMULATED_SEED").unwrap_or(fresh);
    println!("SIMULATED_SEED={seed}");
    let mut tally = Seen::default();
    if let Some(spends) = given::<u64>("SIMULATED_SPENDS") {
        search(27, &LIMITS, &mut tally, |tally| {
            tally.spends() >= spends / 2
        });
        search(seed, &LIMITS, &mut tally, |tally| tally.spends() >= spends);
    } else {
        let length = Duration::from_secs(given("SIMULATED_SECONDS").unwrap_or(2));
        for seed in [27, seed] {
            let begun = Instant::now();
            search(seed, &LIMITS[..4], &mut tally, |_| {
                begun.elapsed() >= length
            });
        }
    }
    println!("{tally}");
    assert!(tally.spends() > 10_000, "{tally}");
}
