//! Closed and open loops, clients, nodes, and the report.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use tower_ratelimit::{AnchoredWindow, RateLimitLayer, key};

use crate::server::{Run, Server, program, run};

fn limited(limit: u32, window: Duration) -> Server {
    let policy = AnchoredWindow::new(limit, window).unwrap();
    let layer = RateLimitLayer::new(key::header("x-api-key").or(key::peer_ip()), policy);
    Server::of(
        Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer),
    )
}

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn the_report_begins_with_five_lines() {
    let server = limited(40, DAY);
    let run = run(&[&server.url, "--requests", "1000", "--concurrency", "50"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().take(5).collect();
    let seconds = lines[0].strip_prefix("Total: 1000 in ").unwrap();
    let seconds: f64 = seconds.strip_suffix('s').unwrap().parse().unwrap();
    assert_eq!(lines[1..4], ["Allowed: 40", "Limited: 960", "Errors: 0"]);
    let rate = lines[4].strip_prefix("Rate: ").unwrap();
    let rate: f64 = rate.strip_suffix(" req/s").unwrap().parse().unwrap();
    // The report has hundredths of seconds.
    assert!(rate > 1_000.0 / (seconds + 0.006), "{rate} in {seconds}");
    assert_eq!(run.stderr, "", "the progress bar is for terminals");
}

#[test]
fn each_client_has_a_key_of_its_own() {
    let server = limited(3, DAY);
    let words = ["--requests", "100", "--clients", "10", "--concurrency", "5"];
    let run = run(&[&[server.url.as_str()][..], &words].concat());
    assert_eq!(run.number("Allowed: "), 30);
    assert_eq!(run.number("Limited: "), 70);
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let server = limited(1_000, DAY);
    let run = run(&[&server.url, "--rate", "100", "--requests", "50"]);
    assert_eq!(run.number("Allowed: "), 50);
    let seconds = run.stdout.lines().next().unwrap();
    let seconds = seconds.strip_prefix("Total: 50 in ").unwrap();
    let seconds: f64 = seconds.trim_end_matches('s').parse().unwrap();
    // The last of fifty is due at 0.49 s, and none is sent early.
    assert!(seconds >= 0.49, "{seconds}");
    assert!(run.stdout.contains("from the intended start"));
}

#[test]
fn clients_that_heed_are_refused_once_for_each_wait() {
    // Five pass, one is refused, and after the wait five pass again. More pass if a window ends before it is used up,
    // on a machine that stands still: another run tells then.
    let mut runs = (0..20).map(|_| {
        let server = limited(5, Duration::from_secs(1));
        let words = ["--requests", "12", "--concurrency", "1", "--wait"];
        run(&[&[server.url.as_str()][..], &words].concat())
    });
    let run = runs.find(|run| run.number("Limited: ") >= 2).unwrap();
    assert_eq!(run.number("Limited: "), 2, "{}", run.stdout);
    assert!(
        run.stdout
            .contains("2 requests were sent right after a wait")
            || run
                .stdout
                .contains("1 requests were sent right after a wait"),
        "{}",
        run.stdout
    );
}

#[test]
fn requests_are_what_was_asked_for_and_nodes_are_asked_in_turn() {
    let seen: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let note = Arc::clone(&seen);
    let app = |name: &'static str| {
        let note = Arc::clone(&note);
        Router::new().route(
            "/a",
            post(move |headers: HeaderMap, body: String| async move {
                let accept = headers["accept"].to_str().unwrap().to_owned();
                let text = format!("{name} {accept} {body}");
                *note.lock().unwrap().entry(text).or_default() += 1;
            }),
        )
    };
    let (one, two) = (Server::of(app("one")), Server::of(app("two")));
    let urls = [&one, &two].map(|server| format!("{}a?b=c", server.url));
    let words = [
        "--requests",
        "10",
        "--concurrency",
        "1",
        "--method",
        "POST",
        "--body",
        "hi",
    ];
    let header = ["--header", "accept: text/html"];
    let urls = [urls[0].as_str(), urls[1].as_str()];
    let run = run(&[&urls[..], &words, &header].concat());
    assert_eq!(run.number("Allowed: "), 10, "{}", run.stdout);
    let seen = seen.lock().unwrap();
    assert_eq!(seen["one text/html hi"], 5);
    assert_eq!(seen["two text/html hi"], 5);
}

#[test]
fn an_interrupted_run_ends_with_the_report() {
    let answers = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&answers);
    let server = Server::of(Router::new().route(
        "/",
        get(move || async move {
            count.fetch_add(1, Ordering::Relaxed);
        }),
    ));
    let program = program()
        .args([&server.url, "--duration", "1h", "--concurrency", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program listens for the signal before it sends its first request.
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while answers.load(Ordering::Relaxed) == 0 {
        assert!(std::time::Instant::now() < limit, "nothing was sent");
        std::thread::yield_now();
    }
    let kill = std::process::Command::new("kill");
    let mut kill = kill;
    let killed = kill.args(["-INT", &program.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let run = Run::of(program.wait_with_output().unwrap());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("Total: "), "{}", run.stdout);
}

#[test]
fn the_picture_shows_the_run() {
    let server = limited(10, DAY);
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("loadtest.svg");
    let path = file.to_str().unwrap();
    let words = [
        "--requests",
        "30",
        "--check",
        "--policy",
        "anchored-window 10/day",
        "--svg",
        path,
    ];
    let run = run(&[&[server.url.as_str()][..], &words].concat());
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let svg = std::fs::read_to_string(&file).unwrap();
    for part in ["<svg", "allowed", "limited", "#1F5F46", "#F0C4B0"] {
        assert!(svg.contains(part), "{part}");
    }
}
