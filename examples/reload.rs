//! The cost of limits from a file that can change.
//!
//! `cargo run --release --features config --example reload` measures how much longer a request takes behind a layer
//! that follows its file, how long a file with 10,000 limits by key takes to read, and whether requests are slower
//! while such a file is reloaded again and again. Times differ between machines: compare the columns.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::RateLimitLayer;
use tower_ratelimit_config::Config;

const OVERRIDES: u32 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("reload-{}.toml", std::process::id()));
    let measured = swap(&path)
        .and_then(|()| read(&path))
        .and_then(|()| reload(&path));
    let _ = fs::remove_file(path);
    measured
}

/// Returns a file with limits for this many keys.
fn limits(overrides: u32, other: u32) -> String {
    let mut text = format!(
        "[policies.a]\nquota = \"{other}/day\"\nkey = {{ header = \"x-id\" }}\n[policies.a.key_limits.keys]\n"
    );
    for key in 0..overrides {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "customer-{key} = \"{}/day\"", 1_000_000_000 + key);
    }
    text
}

fn config(path: &PathBuf) -> Result<Config, Box<dyn Error>> {
    Ok(Config::builder().max_bytes(8 << 20).read(path)?)
}

/// Sends requests through a layer, one after the other.
fn asking(layer: &RateLimitLayer) -> impl FnMut() + use<> {
    let mut service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    move || {
        let mut request = Request::new(());
        let id = axum::http::HeaderValue::from_static("customer-7");
        request.headers_mut().insert("x-id", id);
        let answer = pin!(service.call(request));
        match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(response)) => assert_eq!(black_box(response).status(), 200),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => unreachable!("the state is in this process"),
        }
    }
}

/// Returns the nanoseconds of a request, in the fastest of several rounds.
fn nanos(ask: &mut impl FnMut()) -> f64 {
    const REQUESTS: u32 = 20_000;
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        ask();
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS)
}

fn swap(path: &PathBuf) -> Result<(), Box<dyn Error>> {
    fs::write(path, limits(1, 4_000_000_000))?;
    let config = config(path)?;
    let watched = config.watch()?;
    let (mut fixed, mut following) = (asking(&config.layer()?), asking(&watched.layer()));
    let mut best = [f64::MAX; 2];
    // In turns, so that both run in the quiet moments of the machine.
    for _ in 0..200 {
        best[0] = best[0].min(nanos(&mut fixed));
        best[1] = best[1].min(nanos(&mut following));
    }
    println!(
        "a request: {:.1} ns behind a fixed layer, {:.1} ns behind one that follows its file: {:+.1} ns",
        best[0],
        best[1],
        best[1] - best[0]
    );
    Ok(())
}

fn read(path: &PathBuf) -> Result<(), Box<dyn Error>> {
    fs::write(path, limits(OVERRIDES, 1_000_000_000))?;
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        black_box(config(path)?);
        fastest = fastest.min(begun.elapsed());
    }
    println!("a file of {OVERRIDES} limits by key: read in {fastest:.1?}");
    Ok(())
}

fn reload(path: &PathBuf) -> Result<(), Box<dyn Error>> {
    const TIME: Duration = Duration::from_secs(5);
    fs::write(path, limits(OVERRIDES, 1_000_000_000))?;
    let watched = config(path)?.watch()?;
    let mut ask = asking(&watched.layer());
    let mut measure = |until: &dyn Fn() -> bool| {
        let mut times = Vec::new();
        while !until() {
            let begun = Instant::now();
            ask();
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        times
    };
    let ended = AtomicBool::new(false);
    // The same work on the other thread, without a reload.
    let (before, _) = beside(&ended, &mut measure, || read_only(path), TIME);
    let mut version = 0;
    let (during, reloads) = beside(
        &ended,
        &mut measure,
        || {
            version += 1;
            fs::write(path, limits(OVERRIDES, 1_000_000_000 + version)).is_ok()
                && watched.reload().is_ok()
        },
        TIME,
    );
    let at = |times: &[Duration], share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a list"
        )]
        let place = (times.len() as f64 * share) as usize;
        times[place.min(times.len() - 1)]
    };
    let limit = at(&before, 0.999);
    let slower = during.iter().filter(|time| **time > limit).count();
    for (name, times) in [("before", &before), ("during", &during)] {
        println!(
            "{name}: {} requests, half in {:?}, 99.9 % in {:?}, 99.999 % in {:?}, the slowest {:?}",
            times.len(),
            at(times, 0.5),
            at(times, 0.999),
            at(times, 0.999_99),
            times[times.len() - 1]
        );
    }
    println!(
        "during {reloads} reloads, {slower} of {} requests were slower than 99.9 % before",
        during.len()
    );
    Ok(())
}

fn read_only(path: &Path) -> bool {
    config(&path.to_owned()).is_ok()
}

/// Measures while another thread does this work repeatedly.
fn beside(
    ended: &AtomicBool,
    measure: &mut impl FnMut(&dyn Fn() -> bool) -> Vec<Duration>,
    mut other: impl FnMut() -> bool + Send,
    time: Duration,
) -> (Vec<Duration>, u32) {
    ended.store(false, Ordering::Relaxed);
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut times = 0;
            while !ended.load(Ordering::Relaxed) {
                assert!(other(), "the file cannot be read");
                times += 1;
                thread::sleep(Duration::from_millis(20));
            }
            times
        });
        let begun = Instant::now();
        let times = measure(&|| begun.elapsed() >= time);
        ended.store(true, Ordering::Relaxed);
        (times, worker.join().unwrap_or_default())
    })
}
