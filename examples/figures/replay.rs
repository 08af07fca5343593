//! Applies a limit to the requests of a log.
//!
//! It reads requests as JSON lines, from a file or from standard input, and decides them by a clock that follows the
//! log:
//!
//! ```text
//! {"t_us":1700000000000000,"key":"ann","cost":1,"method":"GET","path":"/"}
//! ```
//!
//! `t_us` is in microseconds since the Unix epoch. `cost`, `method` and `path` are optional; the default cost is 1.
//! Other fields are ignored.
//!
//! ```text
//! cargo run --release --example replay -- --algorithm token-bucket --limit 5 --burst 10 \
//!     --versus 'fixed-window 300/minute' requests.jsonl
//! ```
//!
//! prints which keys the limit would have refused, and how often. `--versus` compares another limit. A leaky queue
//! also reports how many requests it would have held. With `--jsonl`, each decision is a line on standard output, and
//! the summary goes to standard error.
//!
//! `--config` takes the limits from a file, and `--versus` compares those of another file:
//!
//! ```text
//! cargo run --release --example replay -- --config limits.toml --versus next.toml requests.jsonl
//! ```
//!
//! A policy reads `method`, `path` and, if the log has them, `headers` of a request. If the log lacks what a policy
//! reads, such as an API key, the policy counts `key`. A `key` that is an address is also the address of the client.
//! `plan` is the plan of the request. `cost` replaces the costs of the file. This example cannot use a file that
//! needs functions of a program: see `Config::replay`.
//!
//! State is in this process or, with `REDIS_URL`, on that server, which then decides by the time of the log:
//! `REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis,testing --example replay …`. With files, state is
//! always in this process. Each run has its own keys on the server. They expire as usual, after ten minutes at least.

#[path = "replay/files.rs"]
mod files;
#[path = "replay/options.rs"]
mod options;
#[path = "replay/store.rs"]
mod store;
#[path = "replay/tally.rs"]
mod tally;

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use files::Files;
use options::Options;
use serde::{Deserialize, Serialize};
use store::ChosenStore;
use tally::Tally;
use tower_ratelimit::{
    Algorithm, Decision, Limiter, ManualClock, Micros, Outcome, Policy, StoreError,
};

#[derive(Deserialize)]
struct Request {
    t_us: u64,
    key: String,
    cost: Option<u32>,
    method: Option<String>,
    path: Option<String>,
    plan: Option<String>,
    #[serde(default)]
    headers: HashMap<String, String>,
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

/// Returns whether the error says that the reader of the output has closed it.
fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let json = error.downcast_ref::<serde_json::Error>();
    io.or(json.and_then(serde_json::Error::io_error_kind)) == Some(io::ErrorKind::BrokenPipe)
}

async fn replay(options: &Options) -> Result<(), Box<dyn Error>> {
    if let Some(config) = &options.config {
        return replay_files(options, config);
    }
    let clock = ManualClock::new();
    let state = ChosenStore::chosen(&clock)?;
    let mut replays = Vec::new();
    let versus: Vec<Algorithm> = options
        .versus
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    for algorithm in [options.algorithm()?].iter().chain(&versus) {
        // Each policy has its own name: limits that differ in numbers alone would share their state in Redis.
        let policy = Policy::new(format!("replay-{}", replays.len()), *algorithm);
        replays.push(Replay::new(*algorithm, state.limiter(policy)?));
    }

    let (input, progress) = options.input()?;
    let input = BufReader::new(progress.wrap_read(input));
    let mut output = BufWriter::new(io::stdout().lock());
    // An unreadable line ends the replay, and the results until then are printed.
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
    let mut lines = Lines::of(input);
    while let Some((_, request)) = lines.next()? {
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

/// Returns the same for the limits of files.
fn replay_files(options: &Options, config: &Path) -> Result<(), Box<dyn Error>> {
    let versus = match options.versus.as_slice() {
        [] => None,
        [versus] => Some(versus.as_ref()),
        _ => return Err("one file is held beside another: give --versus once".into()),
    };
    let mut files = Files::read(config, versus)?;
    let (input, progress) = options.input()?;
    let input = BufReader::new(progress.wrap_read(input));
    let mut output = BufWriter::new(io::stdout().lock());
    let ended = run_files(options, input, &mut output, &mut files);
    progress.finish_and_clear();
    if options.jsonl {
        output.flush()?;
        eprint!("{files}");
    } else {
        write!(output, "{files}")?;
    }
    output.flush()?;
    ended
}

fn run_files(
    options: &Options,
    input: impl BufRead,
    output: &mut impl Write,
    files: &mut Files,
) -> Result<(), Box<dyn Error>> {
    let mut lines = Lines::of(input);
    while let Some((line, request)) = lines.next()? {
        if !options.limits(&request) {
            continue;
        }
        let told = files.ask(line, &request);
        let told = told.map_err(|error| format!("line {line}: {error}"))?;
        if options.jsonl {
            serde_json::to_writer(&mut *output, &told)?;
            output.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// The requests of a log, with the numbers of their lines.
struct Lines<R> {
    input: io::Lines<R>,
    number: usize,
    last: u64,
}

impl<R: BufRead> Lines<R> {
    fn of(input: R) -> Self {
        Self {
            input: input.lines(),
            number: 0,
            last: 0,
        }
    }

    fn next(&mut self) -> Result<Option<(usize, Request)>, Box<dyn Error>> {
        loop {
            let Some(line) = self.input.next() else {
                return Ok(None);
            };
            self.number += 1;
            let at = format!("line {}", self.number);
            let line = line.map_err(|error| format!("{at}: {error}"))?;
            if line.trim().is_empty() {
                continue;
            }
            let request: Request = serde_json::from_str(&line).map_err(|error| {
                // The error would say "at line 1", because each line is a text of its own.
                let error = error.to_string();
                let what = error.split(" at line ").next().unwrap_or_default().to_owned();
                format!(
                    "{at}: {what}: write a request such as {{\"t_us\":1700000000000000,\"key\":\"ann\",\"cost\":1}}"
                )
            })?;
            if request.t_us < self.last {
                eprintln!(
                    "replay: {at}: time steps back by {} µs",
                    self.last - request.t_us
                );
            }
            self.last = request.t_us;
            return Ok(Some((self.number, request)));
        }
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

/// One limit, and its results so far.
struct Replay {
    algorithm: Algorithm,
    limiter: Limiter,
    tally: Tally,
}

impl Replay {
    fn new(algorithm: Algorithm, limiter: Limiter) -> Self {
        Self {
            algorithm,
            limiter,
            tally: Tally::default(),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Decision, StoreError> {
        let cost = request.cost.unwrap_or(1);
        let decision = self.limiter.check(&request.key, cost).await?;
        if decision.is_allowed() {
            self.tally.allow(decision.delay());
        } else {
            self.tally.deny(&request.key);
        }
        Ok(decision)
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.algorithm, self.tally)
    }
}
