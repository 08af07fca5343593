//! A service under three times the load that it can take, with and without an adaptive concurrency.
//!
//! `cargo run --release -p tower-ratelimit-loadtest --example overload -- crates/adapt/docs/overload.svg`
//!
//! The service has four workers, and each needs 50 ms for a request: 80 requests a second. The load tester sends 240
//! a second at random times, whether the service keeps up or not. A tenth of them is critical, and has a partition. A
//! client waits for two seconds; an answer within one second is a good one. Each run takes twenty seconds on
//! loopback. A request counts in the second in which it arrives.

use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::{Router, routing::get};
use clap::Parser;
use plotters::prelude::*;
use ratelimit_loadtest::aim::aim;
use ratelimit_loadtest::drive::{self, Load, Tally};
use ratelimit_loadtest::options::Options;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};
use tower_ratelimit_adapt::AdaptiveConcurrency;
use tower_ratelimit_adapt::middleware::AdaptiveConcurrencyLayer;

const WORKERS: usize = 4;
const SERVICE: Duration = Duration::from_millis(50);
const SECONDS: u64 = 20;
const CRITICAL: u64 = 24;
const OTHERS: u64 = 216;
const GOOD: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(2);

/// The results of the requests of a second, or of all.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// Good answers per second.
    goodput: f64,
    /// The latency of requests that were not refused, in seconds.
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
    for (name, run) in [("without", &without), ("with", &with)] {
        let shown = shown(&run.iter().fold(Sent::default(), Sent::and), SECONDS);
        println!(
            "{name:>8}: {:5.1} good answers a second, p99 {:.2} s, {:5.1} % of critical requests",
            shown.goodput, shown.p99, shown.critical
        );
    }
    println!("the limit is {}", concurrency.limit());
    if let Some(picture) = picture {
        draw(&without, &with, Path::new(&picture))?;
    }
    Ok(())
}

/// Answers each request after a worker has processed it.
fn service() -> Router {
    let workers = Arc::new(Semaphore::new(WORKERS));
    let work = move || async move {
        let _worker = workers.acquire().await;
        sleep(SERVICE).await;
        "done"
    };
    Router::new().fallback(get(work))
}

/// The requests that arrive in a second.
#[derive(Clone, Default)]
struct Sent {
    critical: Tally,
    others: Tally,
}

impl Sent {
    /// Sets the results of critical and other requests together.
    fn and(mut self, other: &Self) -> Self {
        self.critical.add(&other.critical);
        self.others.add(&other.others);
        self
    }
}

/// Sends all requests to this service, and returns the results of each second.
async fn run(service: Router) -> Result<Vec<Sent>, Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, service).into_future());
    let begin = Instant::now();
    let mut seconds = Vec::new();
    for second in 0..SECONDS {
        // The next requests are sent while answers to these still come.
        sleep_until(begin + Duration::from_secs(second)).await;
        seconds.push(tokio::spawn(async move {
            let critical = format!("http://{address}/critical");
            let others = format!("http://{address}/");
            let (critical, others) = tokio::join!(load(&critical, CRITICAL), load(&others, OTHERS));
            Ok::<_, String>(Sent {
                critical: critical?,
                others: others?,
            })
        }));
    }
    let mut sent = Vec::new();
    for second in seconds {
        sent.push(second.await??);
    }
    server.abort();
    Ok(sent)
}

/// Sends this many requests in a second.
async fn load(url: &str, requests: u64) -> Result<Tally, String> {
    let (number, timeout) = (requests.to_string(), format!("{}s", TIMEOUT.as_secs()));
    let options = Options::try_parse_from([
        "loadtest",
        url,
        "--poisson",
        "--concurrency=2000",
        "--rate",
        &number,
        "--requests",
        &number,
        "--timeout",
        &timeout,
    ]);
    let options = options.map_err(|error| error.to_string())?;
    let targets = aim(&options.urls, &[], TIMEOUT).await;
    let targets = targets.map_err(|error| format!("{error:?}"))?;
    let load = Load::new(&options, targets)?;
    let outcome = drive::run(load, Arc::default(), std::future::pending()).await;
    Ok(outcome.map_err(|error| error.to_string())?.tally)
}

/// Adds up the results of these seconds.
#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn shown(sent: &Sent, seconds: u64) -> Shown {
    let mut all = sent.critical.clone();
    all.add(&sent.others);
    Shown {
        goodput: good(&all) / seconds as f64,
        p99: p99(&all),
        critical: 100.0 * good(&sent.critical) / (CRITICAL * seconds) as f64,
    }
}

/// The answers that came in time.
#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn good(tally: &Tally) -> f64 {
    let longest = u64::try_from(GOOD.as_micros()).unwrap_or(u64::MAX);
    tally.allowed_latency.count_between(0, longest) as f64
}

/// Returns the latency of requests that were not refused. A request whose client gave up took that long.
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

type Reading = fn(&Shown) -> f64;

fn draw(without: &[Sent], with: &[Sent], picture: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(picture, (860, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels: [(&str, f64, Reading); 3] = [
        (
            "good answers a second, by when the request came",
            80.0,
            |it| it.goodput,
        ),
        (
            "p99 of requests that were not refused, seconds",
            2.0,
            |it| it.p99,
        ),
        ("critical requests with a good answer, %", 100.0, |it| {
            it.critical
        }),
    ];
    let end = f64::from(u32::try_from(SECONDS)?) - 1.0;
    for (area, (title, top, read)) in root.split_evenly((3, 1)).iter().zip(panels) {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(28)
            .caption(title, ("sans-serif", 15, &INK))
            .x_label_area_size(20)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..end, 0.0..top * 1.15)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(10)
            .y_labels(5)
            .label_style(("sans-serif", 12, &INK))
            .draw()?;
        for (name, run, colour, width) in
            [("without", without, WITHOUT, 2), ("with", with, WITH, 3)]
        {
            let points = (0_u32..).zip(run);
            let points = points.map(|(second, sent)| (second.into(), read(&shown(sent, 1))));
            // In grey, the two lines differ in their width.
            let stroke = colour.stroke_width(width);
            chart
                .draw_series(LineSeries::new(points, stroke))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], stroke));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 12, &INK))
            .draw()?;
    }
    root.present()?;
    Ok(())
}
