//! What would this limit have done to that traffic?
//!
//! Reads a log of requests as JSON lines, from a file or from standard input, and runs it
//! through a limit under a clock that follows the log:
//!
//! ```text
//! {"t_us":1700000000000000,"key":"ann","cost":1,"method":"GET","path":"/"}
//! ```
//!
//! `t_us` is in microseconds since the Unix epoch; `cost` is 1 if it is left out; `method` and
//! `path` may be left out too, and other fields are passed over.
//!
//! ```text
//! cargo run --release --example replay -- --algorithm token-bucket --limit 5 --burst 10 \
//!     --versus 'fixed-window 300/minute' requests.jsonl
//! ```
//!
//! prints whom the limit would have hit, and how often; `--versus` adds another limit beside
//! it. Of those that are allowed it tells how many a leaky queue would have held. With `--jsonl`
//! each decision is a line of its own on standard output, and the summary goes to standard error.
//!
//! State is in this process, or with `REDIS_URL` on that server, which is told the time of the log
//! too: `REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis,testing --example replay …`.
//! Each run has keys of its own there. They die as they would have, and in ten minutes at least.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use tower_ratelimit::algorithm::CalendarWindow;
use tower_ratelimit::calendar::{Weekday, Zone};
use tower_ratelimit::store::Ledger;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter,
    ManualClock, MemoryStore, Micros, Outcome, Policy, Quota, SlidingLog, SlidingSlots,
    SlidingWindow, StoreError, TokenBucket,
};

/// Runs a log of requests through a rate limit.
#[derive(Parser)]
struct Options {
    /// How to count
    #[arg(long, value_enum, default_value = "token-bucket")]
    algorithm: Name,
    /// How many requests in a window
    #[arg(long, allow_negative_numbers = true)]
    limit: u32,
    /// The length of the window, in microseconds
    #[arg(long, default_value_t = 1_000_000)]
    window_us: u64,
    /// How many at once, for a bucket; the limit unless said
    #[arg(long)]
    burst: Option<u32>,
    /// How many slots, for sliding-slots; 10 unless said
    #[arg(long)]
    slots: Option<u32>,
    /// The time zone, for a calendar-day and its kin, such as Europe/London; UTC unless said
    #[arg(long)]
    zone: Option<Zone>,
    /// How many may wait, for leaky-queue; one less than the limit unless said
    #[arg(long)]
    places: Option<u32>,
    /// Another limit to hold beside it, such as 'sliding-window 100/minute'; may be repeated
    #[arg(long)]
    versus: Vec<Algorithm>,
    /// Only requests of this method are limited
    #[arg(long)]
    method: Option<String>,
    /// Only requests whose path begins so are limited
    #[arg(long)]
    path: Option<String>,
    /// Write each decision as a line of JSON
    #[arg(long)]
    jsonl: bool,
    /// The log; standard input unless said
    file: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    FixedWindow,
    CalendarDay,
    CalendarWeek,
    CalendarMonth,
    CalendarYear,
    AnchoredWindow,
    SlidingLog,
    SlidingWindow,
    SlidingSlots,
    TokenBucket,
    TokenBucketInterval,
    LeakyBucket,
    Gcra,
    LeakyQueue,
}

#[derive(Deserialize)]
struct Request {
    t_us: u64,
    key: String,
    #[serde(default = "one")]
    cost: u32,
    method: Option<String>,
    path: Option<String>,
}

fn one() -> u32 {
    1
}

/// One line of output; the numbers are null for a request that is not limited.
#[derive(Serialize)]
struct Decided<'a> {
    t_us: u64,
    key: &'a str,
    allowed: bool,
    limit: Option<u32>,
    remaining: Option<u32>,
    reset_after_us: Option<u64>,
    retry_after_us: Option<u64>,
    delay_us: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match replay(&Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = error
                .source()
                .map_or_else(String::new, |cause| format!(" ({cause})"));
            eprintln!("replay: {error}{cause}");
            ExitCode::FAILURE
        }
    }
}

/// The reader of the output has closed it.
fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let json = error.downcast_ref::<serde_json::Error>();
    io.or(json.and_then(serde_json::Error::io_error_kind)) == Some(io::ErrorKind::BrokenPipe)
}

async fn replay(options: &Options) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let state = State::chosen(&clock)?;
    let mut replays = Vec::new();
    for algorithm in [options.algorithm()?].iter().chain(&options.versus) {
        // A name of its own: limits that differ in numbers alone would share their state in Redis.
        let policy = Policy::new(format!("replay-{}", replays.len()), *algorithm);
        replays.push(Replay::new(*algorithm, state.limiter(policy)?));
    }

    let (input, progress) = options.input()?;
    let input = BufReader::new(progress.wrap_read(input));
    let mut output = BufWriter::new(io::stdout().lock());
    // A line that cannot be read ends the replay, and not what is known so far.
    let ended = run(options, input, &mut output, &clock, &mut replays).await;
    progress.finish_and_clear();

    for replay in &replays {
        if options.jsonl {
            output.flush()?;
            eprint!("{replay}");
        } else {
            write!(output, "{replay}")?;
        }
    }
    output.flush()?;
    ended
}

async fn run(
    options: &Options,
    input: impl BufRead,
    output: &mut impl Write,
    clock: &ManualClock,
    replays: &mut [Replay],
) -> Result<(), Box<dyn Error>> {
    let mut last = 0;
    for (index, line) in input.lines().enumerate() {
        let at = || format!("line {}", index + 1);
        let line = line.map_err(|error| format!("{}: {error}", at()))?;
        if line.trim().is_empty() {
            continue;
        }
        let request: Request = serde_json::from_str(&line).map_err(|error| {
            // Its own "at line 1" is that of a text of one line.
            let error = error.to_string();
            let what = error.split(" at line ").next().unwrap_or_default().to_owned();
            format!(
                "{}: {what}: write a request such as {{\"t_us\":1700000000000000,\"key\":\"ann\",\"cost\":1}}",
                at()
            )
        })?;
        if request.t_us < last {
            eprintln!(
                "replay: {}: time steps back by {} µs",
                at(),
                last - request.t_us
            );
        }
        last = request.t_us;
        clock.set_micros(Micros::new(request.t_us));

        let limited = options.limits(&request);
        for (place, replay) in replays.iter_mut().enumerate() {
            let decision = if limited {
                Some(replay.ask(&request).await?)
            } else {
                None
            };
            if options.jsonl && place == 0 {
                let decided = Decided::new(&request, decision.as_ref());
                serde_json::to_writer(&mut *output, &decided)?;
                output.write_all(b"\n")?;
            }
        }
    }
    Ok(())
}

impl Options {
    fn algorithm(&self) -> Result<Algorithm, Box<dyn Error>> {
        let quota = Quota::new(self.limit, Duration::from_micros(self.window_us))?;
        let burst = self.burst.unwrap_or(self.limit);
        let algorithm = match self.algorithm {
            Name::FixedWindow => FixedWindow::of(quota).into(),
            Name::CalendarDay => self.in_zone(FixedWindow::per_calendar_day(self.limit)),
            Name::CalendarWeek => {
                self.in_zone(FixedWindow::per_calendar_week(self.limit, Weekday::Monday))
            }
            Name::CalendarMonth => self.in_zone(FixedWindow::per_calendar_month(self.limit)),
            Name::CalendarYear => self.in_zone(FixedWindow::per_calendar_year(self.limit)),
            Name::AnchoredWindow => AnchoredWindow::of(quota).into(),
            Name::SlidingLog => SlidingLog::up_to(u32::MAX, quota)?.into(),
            Name::SlidingWindow => SlidingWindow::of(quota).into(),
            Name::SlidingSlots => SlidingSlots::cut(quota, self.slots.unwrap_or(10))?.into(),
            Name::TokenBucket => TokenBucket::of(quota).burst(burst).into(),
            Name::TokenBucketInterval => TokenBucket::of(quota).burst(burst).by_interval().into(),
            Name::LeakyBucket => LeakyBucket::of(quota).capacity(burst).into(),
            Name::Gcra => Gcra::of(quota).burst(burst).into(),
            Name::LeakyQueue => {
                let places = self.places.unwrap_or(self.limit.saturating_sub(1));
                LeakyQueue::of(quota).places(places).into()
            }
        };
        let is_bucket = matches!(
            algorithm,
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) | Algorithm::Gcra(_)
        );
        if self.burst.is_some() && !is_bucket {
            return Err(format!("--burst is for buckets: a {} has none", algorithm.name()).into());
        }
        if self.zone.is_some() && !matches!(algorithm, Algorithm::CalendarWindow(_)) {
            let name = algorithm.name();
            return Err(
                format!("--zone is for calendar-day and its kin: a {name} has none").into(),
            );
        }
        if self.slots.is_some() && !matches!(algorithm, Algorithm::SlidingSlots(_)) {
            let name = algorithm.name();
            return Err(format!("--slots is for sliding-slots: a {name} has none").into());
        }
        if self.places.is_some() && !matches!(algorithm, Algorithm::LeakyQueue(_)) {
            let name = algorithm.name();
            return Err(format!("--places is for leaky-queue: a {name} has none").into());
        }
        Ok(algorithm)
    }

    fn in_zone(&self, window: CalendarWindow) -> Algorithm {
        window.zone(self.zone.unwrap_or_else(Zone::utc)).into()
    }

    fn limits(&self, request: &Request) -> bool {
        let method = self.method.is_none() || self.method == request.method;
        let path = self.path.as_ref().is_none_or(|prefix| {
            let path = request.path.as_ref();
            path.is_some_and(|path| path.starts_with(prefix))
        });
        method && path
    }

    fn input(&self) -> Result<(Box<dyn Read>, ProgressBar), Box<dyn Error>> {
        let Some(path) = &self.file else {
            return Ok((Box::new(io::stdin()), ProgressBar::hidden()));
        };
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let progress = ProgressBar::new(file.metadata()?.len());
        progress.set_style(ProgressStyle::with_template(
            "{wide_bar} {bytes} of {total_bytes}, {eta} left",
        )?);
        Ok((Box::new(file), progress))
    }
}

impl<'a> Decided<'a> {
    fn new(request: &'a Request, decision: Option<&Decision>) -> Self {
        let outcome = decision
            .and_then(Decision::binding)
            .map(|(_, outcome)| outcome);
        Self {
            t_us: request.t_us,
            key: &request.key,
            allowed: decision.is_none_or(Decision::is_allowed),
            limit: outcome.map(Outcome::limit),
            remaining: outcome.map(Outcome::remaining),
            reset_after_us: outcome.map(|outcome| micros(outcome.reset_after())),
            retry_after_us: outcome.and_then(Outcome::retry_after).map(micros),
            delay_us: decision.map_or(0, |decision| micros(decision.delay())),
        }
    }
}

fn micros(time: Duration) -> u64 {
    Micros::from(time).get()
}

/// Where state is kept.
enum State {
    Here(MemoryStore),
    #[cfg(all(feature = "redis", feature = "testing"))]
    InRedis(tower_ratelimit::RedisStore),
}

impl State {
    fn chosen(clock: &ManualClock) -> Result<Self, Box<dyn Error>> {
        match std::env::var("REDIS_URL") {
            Ok(url) if !url.is_empty() => Self::in_redis(&url, clock),
            _ => Ok(Self::Here(MemoryStore::new().clock(clock.clone()))),
        }
    }

    #[cfg(all(feature = "redis", feature = "testing"))]
    fn in_redis(url: &str, clock: &ManualClock) -> Result<Self, Box<dyn Error>> {
        // An earlier run has left states, which are from this one's future.
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?;
        let prefix = format!("replay-{}-{}", std::process::id(), now.as_micros());
        let store = tower_ratelimit::RedisStore::builder()
            .prefix(prefix)
            .deadline(Duration::from_secs(5))
            .open(url)?;
        Ok(Self::InRedis(store.clock(clock.clone())))
    }

    #[cfg(not(all(feature = "redis", feature = "testing")))]
    fn in_redis(_: &str, _: &ManualClock) -> Result<Self, Box<dyn Error>> {
        Err(
            "REDIS_URL is set: run this with `--features redis,testing`, or without REDIS_URL"
                .into(),
        )
    }

    fn limiter(&self, policy: Policy) -> Result<Limiter<dyn Ledger>, Box<dyn Error>> {
        let builder = Limiter::builder().policy(policy);
        Ok(match self {
            Self::Here(store) => builder.store(store.clone()).build()?.erased(),
            #[cfg(all(feature = "redis", feature = "testing"))]
            Self::InRedis(store) => builder.store(store.clone()).build()?.erased(),
        })
    }
}

/// One limit, and what it has done so far.
struct Replay {
    algorithm: Algorithm,
    limiter: Limiter<dyn Ledger>,
    allowed: u64,
    /// Those of the allowed that were to wait for their turn.
    held: u64,
    longest_delay: Duration,
    denied: u64,
    keys_denied: HashMap<String, u64>,
}

impl Replay {
    fn new(algorithm: Algorithm, limiter: Limiter<dyn Ledger>) -> Self {
        Self {
            algorithm,
            limiter,
            allowed: 0,
            held: 0,
            longest_delay: Duration::ZERO,
            denied: 0,
            keys_denied: HashMap::new(),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Decision, StoreError> {
        let decision = self.limiter.check(&request.key, request.cost).await?;
        if decision.is_allowed() {
            self.allowed += 1;
            self.held += u64::from(!decision.delay().is_zero());
            self.longest_delay = self.longest_delay.max(decision.delay());
        } else {
            self.denied += 1;
            match self.keys_denied.get_mut(&request.key) {
                Some(times) => *times += 1,
                None => drop(self.keys_denied.insert(request.key.clone(), 1)),
            }
        }
        Ok(decision)
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        writeln!(f, "{}", self.algorithm)?;
        writeln!(f, "  {:>12} allowed", self.allowed)?;
        if self.held > 0 {
            let longest = self.longest_delay;
            writeln!(
                f,
                "  {:>12} of them held, for {longest:?} at most",
                self.held
            )?;
        }
        writeln!(
            f,
            "  {:>12} denied, to {} keys",
            self.denied,
            self.keys_denied.len()
        )?;
        let mut hit: Vec<_> = self.keys_denied.iter().collect();
        hit.sort_by(|(a_key, a), (b_key, b)| b.cmp(a).then(a_key.cmp(b_key)));
        for (key, times) in hit.iter().take(SHOWN) {
            writeln!(f, "  {times:>12} {key}")?;
        }
        if hit.len() > SHOWN {
            writeln!(f, "               and {} more", hit.len() - SHOWN)?;
        }
        Ok(())
    }
}
