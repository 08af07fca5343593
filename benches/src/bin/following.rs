//! What it costs that limits follow a file: `cargo run --release --package tower-ratelimit-benches --features config --bin following`.
//!
//! It prints the time of a request under the layer of a file, with and without `watch`; how long large files take to be
//! read; and how many requests are slow while such a file is reloaded.

use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use axum::body::Body;
use http::{HeaderValue, Request, Response};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::RateLimitLayer;
use tower_ratelimit_config::{Config, ConfigBuilder, Format};

/// A limit that no request reaches.
const POLICY: &str = "quota = \"4000000000/day\"\nkey = { header = \"x-user\" }\n";

/// The least of so many rounds counts.
const ROUNDS: u32 = 200;

const REQUESTS: u32 = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::temp_dir().join(format!("following-{}.toml", std::process::id()));
    let builder = Config::builder().max_bytes(64 << 20);
    fs::write(&path, format!("[policies.a]\n{POLICY}"))?;
    swap(&builder.read(&path)?)?;
    reading(&builder)?;
    let slow = reloading(&builder, &path);
    fs::remove_file(&path)?;
    slow
}

fn hello() -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone {
    service_fn(|_: Request<Body>| async { Ok(Response::new(Body::empty())) })
}

/// Sends one request; nothing here ever waits.
fn send<S, B>(service: &mut S)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut request = Request::new(Body::empty());
    let user = HeaderValue::from_static("ann");
    request.headers_mut().insert("x-user", user);
    let mut cx = Context::from_waker(Waker::noop());
    let _ = service.poll_ready(&mut cx);
    match pin!(service.call(request)).poll(&mut cx) {
        Poll::Ready(Ok(response)) => drop(black_box(response)),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => unreachable!("memory answers at once"),
    }
}

fn nanoseconds(layer: &RateLimitLayer) -> f64 {
    let mut service = layer.layer(hello());
    let start = Instant::now();
    for _ in 0..REQUESTS {
        send(&mut service);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS)
}

/// For valgrind, which counts the instructions of a function by its name.
#[inline(never)]
fn of_a_layer(layer: &RateLimitLayer) -> f64 {
    nanoseconds(black_box(layer))
}

#[inline(never)]
fn of_a_layer_that_follows(layer: &RateLimitLayer) -> f64 {
    nanoseconds(black_box(layer))
}

fn swap(config: &Config) -> Result<(), Box<dyn Error>> {
    let layer = config.layer()?;
    let watched = config.watch()?;
    let following = watched.layer();
    let (mut least, mut least_following) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        least = least.min(of_a_layer(&layer));
        least_following = least_following.min(of_a_layer_that_follows(&following));
    }
    println!("a request: {least:.0} ns, and {least_following:.0} ns if the limits follow the file");
    Ok(())
}

/// One policy with so many limits by key.
fn overrides(count: u32, limit: u32) -> String {
    let mut text = format!("[policies.a]\n{POLICY}[policies.a.key_limits.keys]\n");
    for key in 0..count {
        text.push_str(&format!("customer-{key} = {}\n", limit + key));
    }
    text
}

fn policies(count: u32, limit: u32) -> String {
    let policy = |number: u32| {
        let key = "client_ip";
        format!("[policies.p{number}]\nquota = \"{limit}/minute\"\nkey = \"{key}\"\n")
    };
    (0..count).map(policy).collect()
}

fn reading(builder: &ConfigBuilder) -> Result<(), Box<dyn Error>> {
    type Text = fn(u32, u32) -> String;
    for (what, text) in [("overrides", overrides as Text), ("policies", policies)] {
        for count in [2_500, 5_000, 10_000, 20_000] {
            let text = text(count, 1_000);
            let mut least = Duration::MAX;
            for _ in 0..3 {
                let start = Instant::now();
                let config = builder.parse(&text, Format::Toml)?;
                let layer = config.layer()?;
                least = least.min(start.elapsed());
                drop(layer);
            }
            println!("{count} {what}, {} bytes: {least:.1?}", text.len());
        }
    }
    Ok(())
}

/// Returns how long each request takes, in ns, until it is told to stop.
fn requests(layer: &RateLimitLayer, stop: &AtomicBool) -> Vec<u32> {
    let mut service = layer.layer(hello());
    let mut took = Vec::with_capacity(1 << 24);
    while !stop.load(Ordering::Relaxed) && took.len() < took.capacity() {
        let start = Instant::now();
        send(&mut service);
        took.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    took.sort_unstable();
    took
}

fn of_a_thousand(took: &[u32], rank: usize) -> u32 {
    took.get(took.len() * rank / 1_000).copied().unwrap_or(0)
}

/// Sends requests while a file of 10,000 overrides is reloaded again and again, and before.
fn reloading(builder: &ConfigBuilder, path: &std::path::Path) -> Result<(), Box<dyn Error>> {
    fs::write(path, overrides(10_000, 1_000))?;
    let watched = builder.read(path)?.watch()?;
    let layer = watched.layer();
    for round in 0..3 {
        let (mut p999, mut longest) = ([0; 2], [0; 2]);
        for reloads in [false, true] {
            let stop = AtomicBool::new(false);
            let took = thread::scope(|scope| {
                let asking = scope.spawn(|| requests(&layer, &stop));
                for number in 0..20 {
                    if reloads {
                        let text = overrides(10_000, 2_000 + number + 100 * round);
                        let written = fs::write(path, text);
                        written.map_err(|error| error.to_string())?;
                        watched.reload().map_err(|error| error.to_string())?;
                    } else {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
                stop.store(true, Ordering::Relaxed);
                asking
                    .join()
                    .map_err(|_| "a request has panicked".to_owned())
            })?;
            p999[usize::from(reloads)] = of_a_thousand(&took, 999);
            longest[usize::from(reloads)] = took.last().copied().unwrap_or(0);
        }
        println!(
            "p99.9 of a request: {} ns before, {} ns during 20 reloads; the longest: {} and {} ns",
            p999[0], p999[1], longest[0], longest[1],
        );
    }
    Ok(())
}
