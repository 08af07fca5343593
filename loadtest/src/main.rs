//! The command line of the load tester.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use ratelimit_loadtest::aim::{AimError, aim};
use ratelimit_loadtest::drive::{self, Load, Outcome};
use ratelimit_loadtest::options::Options;
use ratelimit_loadtest::report::Report;

const DISPROVED: u8 = 1;
const USAGE: u8 = 2;
const NO_ANSWER: u8 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    match loadtest(&options).await {
        Ok(code) => code,
        Err((code, text)) => {
            eprintln!("ratelimit-loadtest: {text}");
            ExitCode::from(code)
        }
    }
}

async fn loadtest(options: &Options) -> Result<ExitCode, (u8, String)> {
    let targets = aim(&options.urls, &options.allow_remote, options.timeout).await;
    let targets = targets.map_err(|error| match error {
        AimError::Usage(text) => (USAGE, text),
        AimError::NoAnswer(text) => (NO_ANSWER, text),
    })?;
    let load = Load::new(options, targets).map_err(|text| (USAGE, text))?;
    let outcome = with_progress(load).await;
    let outcome = outcome.map_err(|error| (NO_ANSWER, error.to_string()))?;

    let report = Report::new(options, &outcome);
    tell(options, &report).map_err(|error| (USAGE, error.to_string()))?;
    if let Some(path) = &options.svg {
        let drawn = report.draw(path);
        drawn.map_err(|error| (USAGE, format!("--svg {}: {error}", path.display())))?;
    }
    Ok(if !outcome.tally.is_answered() {
        ExitCode::from(NO_ANSWER)
    } else if options.check && outcome.judgement.is_disproved() {
        ExitCode::from(DISPROVED)
    } else {
        ExitCode::SUCCESS
    })
}

/// Writes the report. A reader that closes the pipe is no error.
fn tell(options: &Options, report: &Report<'_>) -> io::Result<()> {
    let written = if options.json {
        eprint!("{report}");
        let json = report.json().map_err(io::Error::other)?;
        writeln!(io::stdout(), "{json}")
    } else {
        write!(io::stdout(), "{report}")
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Runs the load with a progress bar, which is hidden unless standard error is a terminal.
async fn with_progress(load: Load) -> io::Result<Outcome> {
    let answered = Arc::new(AtomicU64::new(0));
    let (requests, length) = (load.requests(), load.length());
    let bar = ProgressBar::new(1_000);
    let style = ProgressStyle::with_template("{wide_bar} {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    let begin = Instant::now();
    let watch = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            let answered = answered.load(Ordering::Relaxed);
            let by_time = begin.elapsed().as_millis() * 1_000 / length.as_millis().max(1);
            let by_count = u128::from(answered) * 1_000 / u128::from(requests.max(1));
            let part = by_time.max(by_count).min(1_000);
            bar.set_position(u64::try_from(part).unwrap_or(1_000));
            bar.set_message(format!("{answered} answers"));
        }
    };
    // The first poll begins to listen, before any request is sent. If it fails, the run ends by itself.
    let mut signal = Box::pin(tokio::signal::ctrl_c());
    let listens =
        std::future::poll_fn(|context| Poll::Ready(signal.as_mut().poll(context).is_pending()))
            .await;
    let interrupted = async {
        if !listens || signal.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let run = drive::run(load, Arc::clone(&answered), interrupted);
    let outcome = tokio::select! {
        outcome = run => outcome,
        () = watch => unreachable!("the watch has no end"),
    };
    bar.finish_and_clear();
    outcome
}
