//! Applies a controller to a recorded trace of loads.
//!
//! ```text
//! cargo run --example adapt_replay -- loads.csv [picture.svg]
//! ```
//!
//! reads a recorded trace, runs the standard steps over it, prints each change of the factor, and draws the loads, the
//! factor and the requests that it admits. The picture is written beside the trace unless said. A line of the trace is
//!
//! ```text
//! second,cpu,memory,demand
//! 0,31.5,40.2,120
//! ```
//!
//! with loads in percent, nothing for a signal that was absent, and the requests that arrived in that second. The limit
//! is 100 requests a second. A controller reads no clock, so the picture is always the same.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plotters::prelude::*;
use tower_ratelimit::factor::Factor;
use tower_ratelimit_adapt::{Controller, Load, Loads, Steps};

/// Requests per second under a factor of 1.
const LIMIT: f64 = 100.0;

const WIDTH: u32 = 1_000;
const HEIGHT: u32 = 560;

const CPU: RGBColor = RGBColor(0xd6, 0x45, 0x45);
const MEMORY: RGBColor = RGBColor(0x8a, 0x5c, 0xc2);
const FACTOR: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const ADMITTED: RGBColor = RGBColor(0x1f, 0x7a, 0x4d);
const DEMAND: RGBColor = RGBColor(0xc8, 0xcc, 0xd2);
const INK: RGBColor = RGBColor(0x2b, 0x30, 0x38);

/// One line of a trace.
struct Sample {
    second: f64,
    loads: Loads,
    demand: f64,
}

/// The result of one line.
struct Step {
    sample: Sample,
    factor: Factor,
    cause: Option<String>,
}

impl Step {
    fn percent(&self, signal: &str) -> Option<f64> {
        let load = self.sample.loads.get(signal)?;
        Some(f64::from(load.get()) / 10_000.0)
    }

    fn admitted(&self) -> f64 {
        let limit = LIMIT * f64::from(self.factor.get()) / 1_000.0;
        limit.min(self.sample.demand)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let trace = arguments
        .next()
        .ok_or("name a trace: adapt_replay -- loads.csv")?;
    let picture = arguments
        .next()
        .unwrap_or_else(|| trace.with_extension("svg"));

    let text =
        fs::read_to_string(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
    let growing = Steps::standard().grow(Factor::thousandths(250), Factor::thousandths(2_000));
    let steps = replay(growing, samples(&text)?);
    let mut last = None;
    for step in &steps {
        if last != Some(step.factor) {
            let cause = step.cause.as_deref().unwrap_or("calm");
            println!(
                "{:>5} s: factor {}: {cause}",
                step.sample.second, step.factor
            );
            last = Some(step.factor);
        }
    }
    draw(&steps, &picture)?;
    println!("drawn in {}", picture.display());
    Ok(())
}

fn samples(text: &str) -> Result<Vec<Sample>, Box<dyn Error>> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line);
    if header.trim() != "second,cpu,memory,demand" {
        return Err("the first line is not second,cpu,memory,demand".into());
    }
    let mut samples = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let sample = sample(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        samples.push(sample);
    }
    Ok(samples)
}

fn sample(line: &str) -> Result<Sample, Box<dyn Error>> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [second, cpu, memory, demand] = fields[..] else {
        return Err("it has not four fields".into());
    };
    let second: f64 = second.parse()?;
    if !second.is_finite() || second < 0.0 {
        return Err(format!("{second} is no moment").into());
    }
    let demand: f64 = demand.parse()?;
    let load = |text: &str| match text {
        "" => Ok(None),
        text => text.parse::<Load>().map(Some),
    };
    let loads = Loads::new()
        .with("cpu", load(cpu)?)
        .with("memory", load(memory)?);
    Ok(Sample {
        second,
        loads,
        demand,
    })
}

/// A name, a colour, and the points.
type Curve = (&'static str, RGBColor, Vec<(f64, f64)>);

fn replay(mut controller: impl Controller, samples: Vec<Sample>) -> Vec<Step> {
    let mut factor = Factor::ONE;
    let steps = samples.into_iter().map(|sample| {
        // The limit was reached if more requests arrived than it admitted.
        let is_wanted = sample.demand > LIMIT * f64::from(factor.get()) / 1_000.0;
        let loads = sample.loads.clone().wanted(is_wanted);
        let target = controller.step(Duration::from_secs_f64(sample.second), &loads);
        factor = target.factor();
        Step {
            sample,
            factor,
            cause: target.cause().map(str::to_owned),
        }
    });
    steps.collect()
}

fn draw(steps: &[Step], picture: &Path) -> Result<(), Box<dyn Error>> {
    let end = steps.last().map_or(1.0, |step| step.sample.second);
    let root = SVGBackend::new(picture, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((3, 1));
    let line = |value: &dyn Fn(&Step) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = steps
            .iter()
            .filter_map(|step| Some((step.sample.second, value(step)?)));
        points.collect()
    };
    let most = steps
        .iter()
        .map(|step| step.sample.demand)
        .fold(LIMIT, f64::max);
    let panels: [(&str, f64, Vec<Curve>); 3] = [
        (
            "load, %",
            100.0,
            vec![
                ("cpu", CPU, line(&|step| step.percent("cpu"))),
                ("memory", MEMORY, line(&|step| step.percent("memory"))),
            ],
        ),
        (
            "factor",
            2.0,
            vec![(
                "factor",
                FACTOR,
                line(&|step| Some(f64::from(step.factor.get()) / 1_000.0)),
            )],
        ),
        (
            "requests a second",
            most,
            vec![
                ("demand", DEMAND, line(&|step| Some(step.sample.demand))),
                ("admitted", ADMITTED, line(&|step| Some(step.admitted()))),
            ],
        ),
    ];
    for (area, (title, top, lines)) in areas.iter().zip(panels) {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(28)
            .caption(title, ("sans-serif", 15, &INK))
            .x_label_area_size(22)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..end, 0.0..top * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(10)
            .y_labels(5)
            .label_style(("sans-serif", 12, &INK))
            .draw()?;
        for (name, colour, points) in lines {
            let series = LineSeries::new(points, colour.stroke_width(2));
            chart
                .draw_series(series)?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 12, &INK))
            .draw()?;
    }
    root.present()?;
    Ok(())
}
