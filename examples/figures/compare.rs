//! One bursty client under every algorithm, drawn by `cargo run --example compare`.
//!
//! The picture shows a request at the moment at which it goes on: under a leaky queue, that is its turn.
//!
//! It writes `docs/compare.svg`, or the file in the argument. Time is a manual clock, so the picture is always the
//! same.

use std::error::Error;
use std::num::TryFromIntError;
use std::path::PathBuf;
use std::time::Duration;

use plotters::prelude::*;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter, ManualClock,
    MemoryStore, Micros, Policy, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

const LIMIT: u32 = 10;
const WINDOW_MS: u64 = 1_000;
const END_MS: u64 = 5_000;

const WIDTH: u32 = 1_070;
const ROW: u32 = 62;
const MARGIN: u32 = 44;
const LABELS: i32 = 190;

const ADMITTED: RGBColor = RGBColor(0x1f, 0x7a, 0x4d);
const DENIED: RGBColor = RGBColor(0xd6, 0x45, 0x45);
const GRID: RGBColor = RGBColor(0xc8, 0xcc, 0xd2);
const INK: RGBColor = RGBColor(0x2b, 0x30, 0x38);

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .map_or_else(default_path, PathBuf::from);
    let window = Duration::from_millis(WINDOW_MS);
    let algorithms: [(&str, Algorithm); 10] = [
        ("fixed window", FixedWindow::new(LIMIT, window)?.into()),
        (
            "anchored window",
            AnchoredWindow::new(LIMIT, window)?.into(),
        ),
        ("sliding window", SlidingWindow::new(LIMIT, window)?.into()),
        ("sliding log", SlidingLog::new(LIMIT, window)?.into()),
        ("sliding slots", SlidingSlots::new(LIMIT, window)?.into()),
        ("token bucket", TokenBucket::new(LIMIT, window)?.into()),
        ("leaky bucket", LeakyBucket::new(LIMIT, window)?.into()),
        ("GCRA", Gcra::new(LIMIT, window)?.into()),
        (
            "tokens by interval",
            TokenBucket::new(LIMIT, window)?.by_interval().into(),
        ),
        (
            "leaky queue",
            LeakyQueue::new(LIMIT, window)?.places(LIMIT - 1).into(),
        ),
    ];

    let height = MARGIN * 2 + ROW * u32::try_from(algorithms.len())?;
    let area = SVGBackend::new(&path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = ("sans-serif", 15).into_font().color(&INK);
    let title = format!(
        "{LIMIT} in a second: the same arrivals, as they go on (tall) or are denied (short)"
    );
    area.draw(&Text::new(title, (16, 14), text.clone()))?;

    let bottom = i32::try_from(height - MARGIN)?;
    for ms in (0..=END_MS).step_by(500) {
        let x = x_of(ms)?;
        let width = if ms % WINDOW_MS == 0 { 2 } else { 1 };
        let line = [(x, 40), (x, bottom)];
        area.draw(&PathElement::new(line, GRID.stroke_width(width)))?;
        if ms % WINDOW_MS == 0 {
            let label = format!("{} s", ms / 1_000);
            area.draw(&Text::new(label, (x - 8, bottom + 8), text.clone()))?;
        }
    }
    for (row, (name, algorithm)) in algorithms.into_iter().enumerate() {
        let base = i32::try_from(MARGIN + ROW * u32::try_from(row + 1)?)? - 8;
        let decided = decided(algorithm)?;
        let admitted = decided.iter().filter(|(_, allowed)| *allowed).count();
        area.draw(&Text::new(name, (16, base - 30), text.clone()))?;
        let count = format!("{admitted} of {}", decided.len());
        area.draw(&Text::new(
            count,
            (16, base - 13),
            ("sans-serif", 12).into_font().color(&INK),
        ))?;
        area.draw(&PathElement::new(
            [(LABELS, base), (x_of(END_MS)?, base)],
            GRID,
        ))?;
        for (ms, allowed) in decided {
            let (height, color) = if allowed {
                (38, ADMITTED)
            } else {
                (12, DENIED)
            };
            let x = x_of(ms)?;
            let line = [(x, base), (x, base - height)];
            area.draw(&PathElement::new(line, color.stroke_width(2)))?;
        }
    }
    area.present()?;
    println!("wrote {}", path.display());
    Ok(())
}

fn default_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/compare.svg")
}

/// Two bursts on either side of a window's edge, one after a rest, and a steady trickle.
fn arrivals() -> impl Iterator<Item = u64> {
    let bursts = [820, 1_040, 2_300].into_iter();
    let bursts = bursts.flat_map(|start| (0..12).map(move |n| start + n * 14));
    let trickle = (0..24).map(|n| 2_600 + n * 58);
    bursts.chain(trickle)
}

/// Returns the moment at which each request goes on, or `None` if it is denied.
fn decided(algorithm: Algorithm) -> Result<Vec<(u64, bool)>, Box<dyn Error>> {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policy(Policy::new("compare", algorithm))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()?;
    Ok(arrivals()
        .map(|ms| {
            // Windows are aligned to the epoch, so the zero of the picture is the edge of a window.
            clock.set_micros(Micros::new(1_700_000_000_000_000 + ms * 1_000));
            let decision = limiter.check("client", 1).now();
            let delay = u64::try_from(decision.delay().as_millis())?;
            Ok((ms + delay, decision.is_allowed()))
        })
        .collect::<Result<_, TryFromIntError>>()?)
}

fn x_of(ms: u64) -> Result<i32, TryFromIntError> {
    let width = u64::from(WIDTH) - u64::try_from(LABELS)? - 30;
    Ok(LABELS + i32::try_from(ms * width / END_MS)?)
}
