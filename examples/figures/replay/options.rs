//! The command line of the example.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tower_ratelimit::algorithm::CalendarWindow;
use tower_ratelimit::calendar::{Weekday, Zone};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Quota, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::Request;

/// Runs a log of requests through a rate limit.
#[derive(Parser)]
pub(crate) struct Options {
    /// The algorithm
    #[arg(long, value_enum, default_value = "token-bucket")]
    algorithm: Name,
    /// The number of requests in a window
    #[arg(
        long,
        allow_negative_numbers = true,
        required_unless_present = "config"
    )]
    limit: Option<u32>,
    /// The limits of a file, in place of one algorithm
    #[arg(long, conflicts_with_all = ["algorithm", "limit", "window_us", "burst", "slots", "zone", "places"])]
    pub(crate) config: Option<PathBuf>,
    /// The length of the window, in microseconds
    #[arg(long, default_value_t = 1_000_000)]
    window_us: u64,
    /// The burst of a bucket; the default is the limit
    #[arg(long)]
    burst: Option<u32>,
    /// The number of slots of sliding-slots; the default is 10
    #[arg(long)]
    slots: Option<u32>,
    /// The time zone of a calendar window, such as Europe/London; the default is UTC
    #[arg(long)]
    zone: Option<Zone>,
    /// The number of requests that may wait in a leaky-queue; the default is one less than the limit
    #[arg(long)]
    places: Option<u32>,
    /// Another limit to compare, such as 'sliding-window 100/minute'; may be repeated. With --config, another file
    #[arg(long)]
    pub(crate) versus: Vec<String>,
    /// Only requests of this method are limited
    #[arg(long)]
    method: Option<String>,
    /// Only requests whose path has this prefix are limited
    #[arg(long)]
    path: Option<String>,
    /// Write each decision as a line of JSON
    #[arg(long)]
    pub(crate) jsonl: bool,
    /// The log; the default is standard input
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

impl Options {
    pub(crate) fn algorithm(&self) -> Result<Algorithm, Box<dyn Error>> {
        let limit = self.limit.unwrap_or_default();
        let quota = Quota::new(limit, Duration::from_micros(self.window_us))?;
        let burst = self.burst.unwrap_or(limit);
        let algorithm = match self.algorithm {
            Name::FixedWindow => FixedWindow::of(quota).into(),
            Name::CalendarDay => self.in_zone(FixedWindow::per_calendar_day(limit)),
            Name::CalendarWeek => {
                self.in_zone(FixedWindow::per_calendar_week(limit, Weekday::Monday))
            }
            Name::CalendarMonth => self.in_zone(FixedWindow::per_calendar_month(limit)),
            Name::CalendarYear => self.in_zone(FixedWindow::per_calendar_year(limit)),
            Name::AnchoredWindow => AnchoredWindow::of(quota).into(),
            Name::SlidingLog => SlidingLog::up_to(u32::MAX, quota)?.into(),
            Name::SlidingWindow => SlidingWindow::of(quota).into(),
            Name::SlidingSlots => SlidingSlots::cut(quota, self.slots.unwrap_or(10))?.into(),
            Name::TokenBucket => TokenBucket::of(quota).burst(burst).into(),
            Name::TokenBucketInterval => TokenBucket::of(quota).burst(burst).by_interval().into(),
            Name::LeakyBucket => LeakyBucket::of(quota).capacity(burst).into(),
            Name::Gcra => Gcra::of(quota).burst(burst).into(),
            Name::LeakyQueue => {
                let places = self.places.unwrap_or(limit.saturating_sub(1));
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

    pub(crate) fn limits(&self, request: &Request) -> bool {
        let method = self.method.is_none() || self.method == request.method;
        let path = self.path.as_ref().is_none_or(|prefix| {
            let path = request.path.as_ref();
            path.is_some_and(|path| path.starts_with(prefix))
        });
        method && path
    }

    pub(crate) fn input(&self) -> Result<(Box<dyn Read>, ProgressBar), Box<dyn Error>> {
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
