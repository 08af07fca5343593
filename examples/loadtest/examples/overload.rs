//! A service under three times the load that it can take, with and without an adaptive concurrency.
//!
//! `cargo run --release -p loadtest --example overload -- docs/overload.svg`
//!
//! The service has four workers, each of which takes 50 ms for a request: 80 requests a second. The load tester sends 240 a
//! second at random times, whether the service keeps up or not. A tenth of them is critical, and has a partition. A
//! client waits for two seconds; an answer within one is a good one. Each run takes twelve seconds on loopback.

use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::{Router, routing::get};
use clap::Parser;
use loadtest::aim::aim;
use loadtest::drive::{self, Load, Tally};
use loadtest::options::Options;
use plotters::prelude::*;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tower_ratelimit::adapt::AdaptiveConcurrency;
use tower_ratelimit::middleware::AdaptiveConcurrencyLayer;

const WORKERS: usize = 4;
const SERVICE: Duration = Duration::from_millis(50);
const SECONDS: u64 = 12;
const CRITICAL: u64 = 24;
const OTHERS: u64 = 216;
const GOOD: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(2);

/// What a run has shown.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// Good answers a second.
    goodput: f64,
    /// Of the requests that were not refused, in seconds.
    p99: f64,
    /// The share of critical requests with a good answer, in percent.
    critical: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let picture = env::args().nth(1);
    let without = run(service()).await?;
    let concurrency = AdaptiveConcurrency::builder()
        .partition("critical", 80)
        .build()?;
    let layer = AdaptiveConcurrencyLayer::new(&concurrency)
        .partition_of(|head| (head.path() == "/critical").then_some("critical"));
    let with = run(service().layer(layer)).await?;
    for (name, shown) in [("without", without), ("with", with)] {
        println!(
            "{name:>8}: {:5.1} good answers a second, p99 {:.2} s, {:5.1} % of critical requests",
            shown.goodput, shown.p99, shown.critical
        );
    }
    println!("the limit is {}", concurrency.limit());
    if let Some(picture) = picture {
        draw(without, with, Path::new(&picture))?;
    }
    Ok(())
}

/// Answers each request after a worker has had it for a while.
fn service() -> Router {
    let workers = Arc::new(Semaphore::new(WORKERS));
    let work = move || async move {
        let _worker = workers.acquire().await;
        sleep(SERVICE).await;
        "done"
    };
    Router::new().fallback(get(work))
}

async fn run(service: Router) -> Result<Shown, Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, service).into_future());
    let critical = format!("http://{address}/critical");
    let others = format!("http://{address}/");
    let (critical, others) = tokio::join!(load(&critical, CRITICAL), load(&others, OTHERS));
    server.abort();
    let (critical, others) = (critical?, others?);
    let mut all = critical.clone();
    all.add(&others);
    let seconds = f64::from(u32::try_from(SECONDS)?);
    let sent = f64::from(u32::try_from(CRITICAL * SECONDS)?);
    Ok(Shown {
        goodput: good(&all) / seconds,
        p99: p99(&all),
        critical: (100.0 * good(&critical) / sent).min(100.0),
    })
}

/// Sends so many requests a second.
async fn load(url: &str, rate: u64) -> Result<Tally, Box<dyn Error>> {
    let requests = (rate * SECONDS).to_string();
    let (rate, timeout) = (rate.to_string(), format!("{}s", TIMEOUT.as_secs()));
    let options = Options::try_parse_from([
        "loadtest",
        url,
        "--poisson",
        "--concurrency=2000",
        "--rate",
        &rate,
        "--requests",
        &requests,
        "--timeout",
        &timeout,
    ])?;
    let targets = aim(&options.urls, &[], TIMEOUT).await;
    let targets = targets.map_err(|error| format!("{error:?}"))?;
    let load = Load::new(&options, targets)?;
    Ok(drive::run(load, Arc::default(), std::future::pending())
        .await?
        .tally)
}

/// Answers that came in time.
#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn good(tally: &Tally) -> f64 {
    let longest = u64::try_from(GOOD.as_micros()).unwrap_or(u64::MAX);
    tally.allowed_latency.count_between(0, longest) as f64
}

/// Of the requests that were not refused. One whose client gave up took as long as that.
#[expect(clippy::cast_precision_loss, reason = "microseconds of a few seconds")]
fn p99(tally: &Tally) -> f64 {
    let mut latency = tally.allowed_latency.clone();
    let given_up = tally.failures.iter();
    let given_up = given_up.filter(|(failure, _)| !failure.is_answered());
    let given_up: u64 = given_up.map(|(_, count)| count).sum();
    let timeout = u64::try_from(TIMEOUT.as_micros()).unwrap_or(u64::MAX);
    latency.saturating_record_n(timeout, given_up);
    latency.value_at_quantile(0.99) as f64 / 1e6
}

const INK: RGBColor = RGBColor(0x22, 0x26, 0x2c);
const WITHOUT: RGBColor = RGBColor(0xb4, 0x53, 0x3c);
const WITH: RGBColor = RGBColor(0x1f, 0x5f, 0x46);

fn draw(without: Shown, with: Shown, picture: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(picture, (860, 260)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = [
        ("good answers a second", 80.0, without.goodput, with.goodput),
        ("p99, seconds", TIMEOUT.as_secs_f64(), without.p99, with.p99),
        (
            "critical requests, %",
            100.0,
            without.critical,
            with.critical,
        ),
    ];
    for (area, (title, top, without, with)) in root.split_evenly((1, 3)).iter().zip(panels) {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .caption(title, ("sans-serif", 16, &INK))
            .x_label_area_size(10)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..2.0, 0.0..top * 1.12)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .y_labels(5)
            .label_style(("sans-serif", 12, &INK))
            .draw()?;
        for (place, name, value, colour) in [
            (0.0, "without", without, WITHOUT),
            (1.0, "with", with, WITH),
        ] {
            let corners = [(place + 0.2, 0.0), (place + 0.8, value)];
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            let label = format!("{name}: {value:.1}");
            let above = (place + 0.2, value + top * 0.06);
            let style = ("sans-serif", 13).into_font().color(&INK);
            chart.draw_series([Text::new(label, above, style)])?;
        }
    }
    root.present()?;
    Ok(())
}
