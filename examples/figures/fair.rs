//! One limit and many tenants, drawn by `cargo run --example fair`: shared, divided by hand, and divided fairly.
//!
//! It writes `docs/fair.svg`, or the file in the argument, and prints the tables of `docs/fair.md`. Time is a manual clock, and who asks
//! when is drawn from a seed, so both are always the same.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times and counts are small"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use plotters::prelude::*;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::{
    Algorithm, Concurrency, ConfigError, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
    TokenBucket,
};

/// The limit of all tenants, in requests a second, and its burst.
const LIMIT: u32 = 100;

/// The slots of all tenants, and for how many seconds a request holds one on average: as many requests pass in a second.
const SLOTS: u32 = 10;
const HELD_FOR: f64 = 0.1;

const COLORS: [RGBColor; 4] = [
    RGBColor(0xd6, 0x45, 0x45),
    RGBColor(0x1f, 0x7a, 0x4d),
    RGBColor(0x2d, 0x6c, 0xb5),
    RGBColor(0xb8, 0x86, 0x1b),
];
const INK: RGBColor = RGBColor(0x2b, 0x30, 0x38);

const END: f64 = 20.0;

/// What is limited.
#[derive(Clone, Copy)]
enum Limit {
    Rate,
    Slots,
}

/// How a limit is shared.
#[derive(Clone, Copy)]
enum Way {
    Shared,
    ByHand,
    Fair,
}

/// A tenant that asks so often in a second, in each of these intervals of seconds.
#[derive(Clone)]
struct Tenant {
    per_second: f64,
    is_pro: bool,
    asks_in: Vec<(f64, f64)>,
}

fn asking(per_second: f64) -> Tenant {
    Tenant {
        per_second,
        is_pro: false,
        asks_in: vec![(0.0, END)],
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .map_or_else(default_path, PathBuf::from);
    let tenants = [
        ("hog: 1,000 a second", asking(1_000.0)),
        ("steady: 30 a second", asking(30.0)),
        (
            "bursty: 40 at once, each 4 s",
            Tenant {
                asks_in: (0..5)
                    .map(|n| f64::from(n) * 4.0 + 2.0)
                    .map(|at| (at, at + 0.2))
                    .collect(),
                ..asking(200.0)
            },
        ),
        (
            "late: 80 a second, from 7 s to 14 s",
            Tenant {
                asks_in: vec![(7.0, 14.0)],
                ..asking(80.0)
            },
        ),
    ];
    let panels = [
        (
            "one limit of 100 a second for all",
            Limit::Rate,
            Way::Shared,
        ),
        ("25 a second for each", Limit::Rate, Way::ByHand),
        ("100 a second, divided fairly", Limit::Rate, Way::Fair),
        (
            "10 slots for all, each held for 0.1 s on average",
            Limit::Slots,
            Way::Shared,
        ),
        ("2 slots for each", Limit::Slots, Way::ByHand),
        ("10 slots, divided fairly", Limit::Slots, Way::Fair),
    ];
    let area = SVGBackend::new(&path, (1_070, 1_480)).into_drawing_area();
    area.fill(&WHITE)?;
    let (top, rows) = area.split_vertically(36);
    for (place, (name, _)) in tenants.iter().enumerate() {
        let x = 60 + 255 * i32::try_from(place)?;
        let mark = [(x, 13), (x + 16, 25)];
        top.draw(&Rectangle::new(mark, COLORS[place].filled()))?;
        let text = ("sans-serif", 14).into_font().color(&INK);
        top.draw(&Text::new(*name, (x + 22, 12), text))?;
    }
    let rows = rows.split_evenly((panels.len(), 1));
    for ((title, limit, way), panel) in panels.into_iter().zip(rows) {
        let tenants: Vec<_> = tenants.iter().map(|(_, tenant)| tenant.clone()).collect();
        let had = had(limit, way, &tenants)?;
        let (unit, most) = match limit {
            Limit::Rate => ("admitted a second", 160.0),
            Limit::Slots => ("slots held", 12.0),
        };
        let mut chart = ChartBuilder::on(&panel)
            .caption(title, ("sans-serif", 15).into_font().color(&INK))
            .margin_right(20)
            .x_label_area_size(24)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..END, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_label_formatter(&|at| format!("{at:.0} s"))
            .y_desc(unit)
            .y_labels(5)
            .draw()?;
        for (of_tenant, color) in had.iter().zip(COLORS) {
            let points = of_tenant.iter().enumerate();
            let points = points.map(|(half, had)| (half as f64 / 2.0 + 0.25, *had));
            chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
        }
    }
    area.present()?;
    println!("wrote {}", path.display());
    println!("\nRequests a second:");
    table(Limit::Rate)?;
    println!("\nSlots held:");
    table(Limit::Slots)
}

/// Prints what tenants get under a limit that is divided fairly, in seconds 5 to 20.
fn table(limit: Limit) -> Result<(), Box<dyn Error>> {
    let pro = |tenant: Tenant| Tenant {
        is_pro: true,
        ..tenant
    };
    let hog_and = |count: usize, per_second: f64| {
        let mut tenants = vec![asking(per_second); count];
        tenants.insert(0, asking(2_000.0));
        tenants
    };
    let gone = Tenant {
        asks_in: vec![(0.0, 3.0)],
        ..asking(200.0)
    };
    let bursty = Tenant {
        asks_in: (0..20).map(f64::from).map(|at| (at, at + 0.02)).collect(),
        ..asking(1_000.0)
    };
    let late = Tenant {
        asks_in: vec![(10.0, END)],
        ..asking(100.0)
    };
    let rows = [
        ("one alone, which asks for 200", vec![asking(200.0)]),
        (
            "two, one of which asks 20 times as often",
            hog_and(1, 100.0),
        ),
        (
            "ten, one of which asks 100 times as often",
            hog_and(9, 20.0),
        ),
        (
            "1,000, one of which asks 1,000 times as often",
            hog_and(999, 2.0),
        ),
        ("a hog, one that asks for 40, one that asks for 5", {
            vec![asking(2_000.0), asking(40.0), asking(5.0)]
        }),
        ("a hog, and one of weight 4 that asks for 200", {
            vec![asking(2_000.0), pro(asking(200.0))]
        }),
        (
            "a hog, one that asks for 20 at once each second, and from second 10 on one that asks for 100",
            vec![asking(2_000.0), bursty, late],
        ),
        ("a hog, and nine that have gone", {
            let mut tenants = vec![gone; 9];
            tenants.insert(0, asking(2_000.0));
            tenants
        }),
    ];
    println!("\n| tenants | all | the first | each of the others |\n| --- | --- | --- | --- |");
    for (name, tenants) in rows {
        let had = had(limit, Way::Fair, &tenants)?;
        let rates = had.iter().map(|halves| halves[10..].iter().sum::<f64>());
        let rates: Vec<f64> = rates.map(|halves| halves / 30.0).collect();
        let all: f64 = rates.iter().sum();
        let others = rates.get(1..).unwrap_or_default();
        let least = others.iter().copied().fold(f64::INFINITY, f64::min);
        let most = others.iter().copied().fold(0.0, f64::max);
        let others = match others.len() {
            0 => String::new(),
            1 => format!(" {most:.1}"),
            2 => format!(" {:.2} and {:.2}", others[0], others[1]),
            _ if most == 0.0 => " 0".to_owned(),
            _ => format!(" {least:.2} to {most:.2}"),
        };
        println!("| {name} | {all:.1} | {:.2} |{others} |", rates[0]);
    }
    Ok(())
}

fn default_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/fair.svg")
}

/// Returns how many requests a second of each tenant pass in each half of a second, or how many slots it holds then.
fn had(limit: Limit, way: Way, tenants: &[Tenant]) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let clock = ManualClock::new();
    let limiter = limiter(limit, way, &clock)?;
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut next = BinaryHeap::new();
    for (place, tenant) in tenants.iter().enumerate() {
        next.push(Reverse((tenant.next(0, &mut draw), place, None)));
    }
    let mut had = vec![vec![0.0; (END * 2.0) as usize]; tenants.len()];
    let mut held = Vec::new();
    let mut now = 0;
    while let Some(Reverse((at, place, ends))) = next.pop() {
        let half = (at / HALF) as usize;
        let tenant = &tenants[place];
        if half >= had[place].len() {
            continue;
        }
        clock.advance(Duration::from_micros(at - now));
        now = at;
        if let Some(number) = ends {
            held[number] = None;
            continue;
        }
        let name = (place as u64).into_key();
        let key = match way {
            Way::Shared => Key::GLOBAL,
            Way::ByHand => name,
            Way::Fair => Key::branch(Key::GLOBAL, &[name]),
        };
        let plan = if tenant.is_pro { "pro" } else { "free" };
        let reservation = limiter.plan(plan).reserve(key, 1).now();
        match limit {
            _ if !reservation.is_allowed() => {}
            Limit::Rate => had[place][half] += 2.0,
            Limit::Slots => {
                let ends = at + (HELD_FOR * (0.5 + draw.next()) * 1e6) as u64;
                for (half, held) in (0..).zip(&mut had[place]) {
                    let (from, to) = (at.max(half * HALF), ends.min((half + 1) * HALF));
                    *held += to.saturating_sub(from) as f64 / HALF as f64;
                }
                next.push(Reverse((ends, place, Some(held.len()))));
                held.push(Some(reservation));
            }
        }
        next.push(Reverse((tenant.next(at + 1, &mut draw), place, None)));
    }
    Ok(had)
}

/// Half a second, in microseconds.
const HALF: u64 = 500_000;

fn limiter(limit: Limit, way: Way, clock: &ManualClock) -> Result<LocalLimiter, ConfigError> {
    let parts = if matches!(way, Way::ByHand) { 4 } else { 1 };
    let limit: Algorithm = match limit {
        Limit::Rate => TokenBucket::per_second(LIMIT / parts).into(),
        Limit::Slots => Concurrency::of(SLOTS / parts).into(),
    };
    let policy = match way {
        Way::Shared | Way::ByHand => Policy::new("upstream", limit),
        Way::Fair => Policy::new("upstream", limit).fair(Fair::new().weight("pro", 4)),
    };
    Limiter::builder()
        .policy(policy)
        .plans_by_name(Plans::new([Plan::new("free"), Plan::new("pro")]))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
}

impl Tenant {
    /// Returns when it asks next, in microseconds, at a gap of half to one and a half of the mean.
    fn next(&self, now: u64, draw: &mut Draw) -> u64 {
        let micros = |seconds: f64| (seconds * 1e6) as u64;
        let mut at = now + micros((0.5 + draw.next()) / self.per_second);
        for &(from, to) in &self.asks_in {
            if at < micros(to) {
                at = at.max(micros(from));
                return at;
            }
        }
        u64::MAX / 2
    }
}

/// Numbers from 0 to 1, drawn by xorshift.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
