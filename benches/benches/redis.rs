//! One decision in Redis, beside the cost of a round trip alone.
//!
//! All rows use the same client, one connection each, and the same thousand addresses. They take turns, a
//! slice of a fraction of a second each, so that other load of the machine meets all alike: see `Rounds`. `--
//! --test` runs each once.

use std::env;
use std::fs;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Connection, Value};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower_ratelimit::plan::{Plan as NamedPlan, Plans};
use tower_ratelimit::store::{Lease, RedisStoreBuilder};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, Hours, LeakyBucket, LeakyQueue, Limiter, Policy,
    RedisStore, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};
use tower_ratelimit_benches::PLENTY;
use tower_ratelimit_benches::figures::{Figures, Rounds};
use tower_ratelimit_benches::keys::{Walk, address};
use tower_ratelimit_testing::servers::redis::{self as server, Server};

const KEYS: u32 = 1_000;

/// The numbers of concurrent requests.
const CONCURRENCY: [usize; 2] = [1, 64];

/// The burst beside a request in a second for each key, large enough that none is ever refused. Each request
/// leaves a state that lasts.
const BURST: u32 = 1_000_000;

/// The script of a minimal limiter: GCRA for one key, which returns three numbers.
const MINIMAL: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = ARGV[1] + 0, ARGV[2] + 0
local at = math.max((redis.call('GET', KEYS[1]) or 0) + 0, now) + interval
if at - now > burst then
  return {0, 0, at - now - burst}
end
redis.call('SET', KEYS[1], string.format('%d', at), 'PX', math.ceil((at - now) / 1000))
return {1, math.floor((now + burst - at) / interval), at - now}";

/// A request to the server.
#[derive(Clone)]
enum Ask {
    Ping,
    Incr,
    /// A script, by its digest.
    Script(String),
    Decision(Limiter),
}

struct Row {
    name: &'static str,
    ask: Ask,
    /// The figures of each slice, by concurrency.
    slices: [Vec<Slice>; CONCURRENCY.len()],
}

/// The figures of one row in its turn.
struct Slice {
    p50: f64,
    p99: f64,
    requests: f64,
    /// The requests per second.
    rate: f64,
    /// The processor time of the server for a request, and that of the client.
    server: f64,
    client: f64,
}

/// The length of the measurements.
#[derive(Clone, Copy)]
struct Plan {
    slices: u32,
    slice: Duration,
    /// The hundreds of remembered denials that each round reads.
    denials: u32,
}

impl Plan {
    fn of_arguments() -> Self {
        let arguments: Vec<String> = env::args().collect();
        let given = |name: &str| arguments.iter().position(|argument| argument == name);
        if given("--test").is_some() {
            return Self {
                slices: 1,
                slice: Duration::from_millis(1),
                denials: 10,
            };
        }
        // The form of criterion.
        let seconds =
            given("--measurement-time").and_then(|at| arguments.get(at + 1)?.parse().ok());
        let slices = 15;
        Self {
            slices,
            slice: Duration::from_secs_f64(seconds.unwrap_or(3.0)) / slices,
            denials: 1_000,
        }
    }
}

fn main() -> io::Result<()> {
    let plan = Plan::of_arguments();
    let server = Server::start(&[]);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let connection = runtime
        .block_on(connect(&server))
        .expect("the server is there");
    let mut rows = rows(&server, &runtime, &connection);
    let denied = denied(&server, &runtime);
    let leasing = leasing(&server);
    let (mut remembered, mut leased) = (Vec::new(), Vec::new());
    let mut other = server.connection();
    for row in &rows {
        // The first call sends the text of a script, and its keys are new.
        runtime.block_on(slice(&row.ask, &connection, 1, Duration::from_millis(1)));
        runtime.block_on(each_key_once(&row.ask, &connection));
    }
    for round in 0..plan.slices {
        for row in &mut rows {
            for (slices, concurrency) in row.slices.iter_mut().zip(CONCURRENCY) {
                let before = (busy(&mut other), busy_here());
                let mut slice =
                    runtime.block_on(slice(&row.ask, &connection, concurrency, plan.slice));
                slice.client = (busy_here() - before.1) / slice.requests;
                slice.server = (busy(&mut other) - before.0) / slice.requests;
                slices.push(slice);
            }
        }
        remembered.push(runtime.block_on(told_here(&denied, plan.denials)));
        leased.push(runtime.block_on(told_here(&leasing, plan.denials)));
        eprint!("\rredis: round {} of {}", round + 1, plan.slices);
    }
    eprintln!();

    let mut figures = Figures::default();
    for row in &rows {
        for (slices, concurrency) in row.slices.iter().zip(CONCURRENCY) {
            for slice in slices {
                for (what, figure) in [
                    ("p50", slice.p50),
                    ("p99", slice.p99),
                    ("rate", slice.rate),
                    ("server", slice.server),
                    ("client", slice.client),
                ] {
                    // Only Linux tells the time of the client.
                    if figure.is_finite() {
                        let name = format!("redis/{}/{concurrency}/{what}", row.name);
                        figures.insert(name, figure);
                    }
                }
            }
        }
    }
    for denial in remembered {
        figures.insert("redis/remembered denial", denial);
    }
    for unit in leased {
        figures.insert("redis/leased unit", unit);
    }
    for (name, figure) in figures.iter() {
        println!("{name}: {figure:.0}");
    }
    figures.save("redis")
}

async fn connect(server: &Server) -> redis::RedisResult<MultiplexedConnection> {
    // There are no timers: the rows beside ours are as cheap as they can be.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    let client = Client::open(server.url())?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

fn rows(server: &Server, runtime: &Runtime, connection: &MultiplexedConnection) -> Vec<Row> {
    let script = |text: &str| {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(text);
        let mut connection = connection.clone();
        let digest = runtime.block_on(load.query_async(&mut connection));
        Ask::Script(digest.expect("the script compiles"))
    };
    let mut rows = vec![
        ("PING", Ask::Ping),
        ("INCR", Ask::Incr),
        ("empty script", script("return 1")),
        ("minimal script", script(MINIMAL)),
    ];
    let four = (0..4).map(|n| Policy::new(format!("policy {n}"), gcra()));
    rows.push(("four policies", decision(server, four)));
    for (name, algorithm) in algorithms().into_iter().chain(by_time()) {
        rows.push((name, decision(server, [Policy::new("default", algorithm)])));
    }
    rows.push(("anchored window, plan", planned(server)));
    let row = |(name, ask)| Row {
        name,
        ask,
        slices: Default::default(),
    };
    rows.into_iter().map(row).collect()
}

fn gcra() -> Gcra {
    Gcra::per_second(1).burst(BURST)
}

fn algorithms() -> [(&'static str, Algorithm); 10] {
    [
        ("gcra", gcra().into()),
        (
            "token bucket",
            TokenBucket::per_second(1).burst(BURST).into(),
        ),
        (
            "token bucket by interval",
            TokenBucket::per_second(1).burst(BURST).by_interval().into(),
        ),
        (
            "leaky bucket",
            LeakyBucket::per_second(1).capacity(BURST).into(),
        ),
        (
            "leaky queue",
            LeakyQueue::per_second(1).places(BURST).into(),
        ),
        ("fixed window", FixedWindow::per_day(PLENTY).into()),
        ("anchored window", AnchoredWindow::per_day(PLENTY).into()),
        ("sliding window", SlidingWindow::per_day(PLENTY).into()),
        ("sliding slots", SlidingSlots::per_day(PLENTY).into()),
        // Some requests are refused: a log has a hundred entries, as many as fit.
        ("sliding log", SlidingLog::per_minute(100).into()),
    ]
}

/// Returns limits of a calendar, and limits that depend on the hour.
fn by_time() -> [(&'static str, Algorithm); 3] {
    let hours = |more: Algorithm, own: Algorithm| {
        let hours = Hours::in_zone("UTC").and_then(|hours| hours.at("22:00-06:00", more));
        hours
            .and_then(|hours| hours.over(own))
            .expect("one interval")
    };
    // The bucket drains within a second: a server gets 64 switches at most.
    let once = Gcra::per_second(1_000_000);
    let twice = Gcra::per_second(2_000_000);
    let window = FixedWindow::per_day(PLENTY / 2);
    [
        ("calendar day", FixedWindow::per_calendar_day(PLENTY).into()),
        (
            "fixed window by hours",
            hours(FixedWindow::per_day(PLENTY).into(), window.into()),
        ),
        ("gcra by hours", hours(twice.into(), once.into())),
    ]
}

/// Returns a store whose server makes each decision, without remembered denials.
fn store() -> RedisStoreBuilder {
    RedisStore::builder()
        .deadline(Duration::from_secs(20))
        .remember_denials_for(Duration::ZERO)
}

fn decision(server: &Server, policies: impl IntoIterator<Item = Policy>) -> Ask {
    let limiter = Limiter::builder()
        .policies(policies)
        .store(store().open(server.url()).expect("the address is good"))
        .build();
    Ask::Decision(limiter.expect("policies with good names"))
}

/// Returns a window whose limit is that of a plan, which a closure names.
fn planned(server: &Server) -> Ask {
    let plan = |name, limit| NamedPlan::new(name).limit("default", AnchoredWindow::per_day(limit));
    let plans = Plans::new([plan("free", 10), plan("pro", PLENTY / 2)]);
    let limiter = Limiter::builder()
        .policy(Policy::new("default", AnchoredWindow::per_day(PLENTY)))
        .plans(plans, |_| Some("pro"))
        .store(store().open(server.url()).expect("the address is good"))
        .build();
    Ask::Decision(limiter.expect("a policy and its plans"))
}

/// Returns a limiter that has refused the first address, and remembers it.
fn denied(server: &Server, runtime: &Runtime) -> Limiter {
    let an_hour = Duration::from_secs(3_600);
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(20))
        .remember_denials_for(an_hour);
    let limiter = Limiter::builder()
        .policy(Policy::new("denied", Gcra::per_day(1)))
        .store(store.open(server.url()).expect("the address is good"))
        .build()
        .expect("one policy with a good name");
    for is_allowed in [true, false] {
        let decision = runtime.block_on(limiter.check(address(0), 1).into_future());
        assert_eq!(
            decision.expect("the server is there").is_allowed(),
            is_allowed
        );
    }
    limiter
}

/// Returns a limiter that leases the units of a key.
fn leasing(server: &Server) -> Limiter {
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(20))
        .lease(Lease::up_to(Duration::from_secs(1)));
    Limiter::builder()
        .policy(Policy::new("leased", Gcra::per_second(PLENTY)))
        .store(store.open(server.url()).expect("the address is good"))
        .build()
        .expect("one policy with a good name")
}

/// Returns the nanoseconds of a request that this process decides: the median of groups of a hundred.
async fn told_here(limiter: &Limiter, groups: u32) -> f64 {
    let mut times = Vec::new();
    for _ in 0..groups {
        let begin = Instant::now();
        for _ in 0..100 {
            let decision = limiter.check(black_box(address(0)), 1).await;
            assert!(black_box(decision).is_ok());
        }
        times.push(begin.elapsed().as_nanos() as f64 / 100.0);
    }
    let times: Rounds = times.into_iter().collect();
    times.median().expect("there are groups")
}

/// Runs a slice of time with this many concurrent requests.
async fn slice(
    ask: &Ask,
    connection: &MultiplexedConnection,
    concurrency: usize,
    length: Duration,
) -> Slice {
    let mut clients = JoinSet::new();
    let begin = Instant::now();
    for seed in 0..concurrency {
        let (ask, mut connection) = (ask.clone(), connection.clone());
        let mut walk = Walk::over(KEYS, seed as u64);
        clients.spawn(async move {
            let mut times = Vec::new();
            while begin.elapsed() < length {
                let asked = Instant::now();
                ask.put(&mut connection, walk.next_place()).await;
                times.push(asked.elapsed().as_nanos() as u64);
            }
            times
        });
    }
    let mut all = Histogram::<u64>::new(3).expect("good bounds");
    for times in clients.join_all().await {
        for time in times {
            all.record(time).expect("it grows");
        }
    }
    Slice {
        p50: all.value_at_quantile(0.5) as f64,
        p99: all.value_at_quantile(0.99) as f64,
        rate: all.len() as f64 / begin.elapsed().as_secs_f64(),
        requests: all.len() as f64,
        server: 0.0,
        client: 0.0,
    }
}

async fn each_key_once(ask: &Ask, connection: &MultiplexedConnection) {
    let mut clients = JoinSet::new();
    for place in 0..KEYS {
        let (ask, mut connection) = (Arc::new(ask.clone()), connection.clone());
        clients.spawn(async move { ask.put(&mut connection, place).await });
    }
    clients.join_all().await;
}

impl Ask {
    async fn put(&self, connection: &mut MultiplexedConnection, place: u32) {
        let key = address(place);
        let command = match self {
            Self::Ping => redis::cmd("PING"),
            Self::Incr => {
                let mut command = redis::cmd("INCR");
                command.arg(format!("incr:1:{{ip:{key}}}:default"));
                command
            }
            Self::Script(digest) => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(digest).arg(1);
                command.arg(format!("script:1:{{ip:{key}}}:default"));
                // A second, and a million of them, in microseconds.
                command.arg(1_000_000).arg(1_000_000_000_000_u64);
                command
            }
            Self::Decision(limiter) => {
                let decision = limiter.check(key, 1).await;
                let _ = black_box(decision).expect("the server decides");
                return;
            }
        };
        let answer: redis::RedisResult<Value> = command.query_async(connection).await;
        black_box(answer).expect("the server answers");
    }
}

/// Returns the nanoseconds for which the server has had a processor, including the system's work for it.
fn busy(connection: &mut Connection) -> f64 {
    let Value::BulkString(info) = server::ask(connection, &["INFO", "cpu"]) else {
        return f64::NAN;
    };
    let info = String::from_utf8_lossy(&info);
    let seconds = ["used_cpu_user_main_thread:", "used_cpu_sys_main_thread:"].map(|name| {
        let told = info.lines().find_map(|line| line.strip_prefix(name));
        told.and_then(|seconds| seconds.parse::<f64>().ok())
    });
    1e9 * seconds
        .into_iter()
        .map(|seconds| seconds.unwrap_or(f64::NAN))
        .sum::<f64>()
}

/// Returns the same for this thread, where Linux tells it.
fn busy_here() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.unwrap_or(f64::NAN)
}
