//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use http::{HeaderName, HeaderValue, Method};
use tower_ratelimit_core::{Algorithm, Quota};

/// The largest number of requests of a run.
pub const MOST_REQUESTS: u64 = 10_000_000;

/// The longest run.
pub const LONGEST_RUN: Duration = Duration::from_secs(3_600);

/// The default rate for a server of another machine.
pub const REMOTE_RATE: f64 = 50.0;

/// Loads a rate limited server, and checks whether its limiter is right.
///
/// Exits with 0 if nothing is disproved, 1 if a check is, 2 if the command line is wrong, and 3 if the server does not
/// answer.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Clone, Debug, Parser)]
#[command(name = "ratelimit-loadtest", max_term_width = 100)]
pub struct Options {
    /// URL of the server; several URLs are nodes of one service, used in turn
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<String>,

    /// Number of requests; 1000 if neither this nor --duration is given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MOST_REQUESTS))]
    pub requests: Option<u64>,

    /// Length of the run, such as 12s; an hour at most
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,

    /// Requests at once; with --rate or --burst, the most in flight
    #[arg(long, default_value = "50")]
    pub concurrency: NonZeroU32,

    /// Requests per second, whether the server keeps up or not
    #[arg(long, value_parser = rate, conflicts_with = "burst")]
    pub rate: Option<f64>,

    /// Random gaps between requests, as of independent clients
    #[arg(long, requires = "rate")]
    pub poisson: bool,

    /// Bursts of this many requests in each period: 50/1s
    #[arg(long)]
    pub burst: Option<Quota>,

    /// Number of clients, each with its own key
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: u32,

    /// The header that carries the key of a client; sent only with --clients
    #[arg(long, default_value = "x-api-key")]
    pub key_header: HeaderName,

    /// Clients wait for the time in Retry-After
    #[arg(long)]
    pub wait: bool,

    /// The method of the requests
    #[arg(long, default_value = "GET")]
    pub method: Method,

    /// A header of the requests, such as 'accept: text/html'; may be repeated
    #[arg(long = "header", value_parser = header, value_name = "NAME: VALUE")]
    pub headers: Vec<(HeaderName, HeaderValue)>,

    /// The body of the requests
    #[arg(long, default_value = "")]
    pub body: String,

    /// Check the behaviour and the headers of the limiter
    #[arg(long)]
    pub check: bool,

    /// The policy of each client, such as 'anchored-window 10/2s'; a request costs one
    #[arg(long, requires = "check")]
    pub policy: Option<Algorithm>,

    /// Host of another machine that the URLs may name; it gets 50 requests a second unless --rate or --burst is given
    #[arg(long, value_name = "HOST")]
    pub allow_remote: Vec<String>,

    /// Timeout of a request
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub timeout: Duration,

    /// Seed of the random gaps
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Write the report as JSON to standard output, and as text to standard error
    #[arg(long)]
    pub json: bool,

    /// Draw the run into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl Options {
    /// The end of a run: after this many requests, or after this time.
    pub fn ends(&self) -> (u64, Duration) {
        let requests = match (self.requests, self.duration) {
            (Some(requests), _) => requests,
            (None, Some(_)) => MOST_REQUESTS,
            (None, None) => 1_000,
        };
        (requests, self.duration.unwrap_or(LONGEST_RUN))
    }

    /// Returns whether requests are sent at times of their own, and not after answers.
    pub fn is_open(&self) -> bool {
        self.rate.is_some() || self.burst.is_some()
    }
}

/// Parses a length of time as in a quota: `12s`, `500ms`, `minute`.
fn duration(text: &str) -> Result<Duration, String> {
    let quota: Quota = format!("1/{text}")
        .parse()
        .map_err(|_| String::from("write a length of time such as 12s, 500ms or 2m"))?;
    if quota.period() > LONGEST_RUN {
        return Err(String::from("an hour is the most"));
    }
    Ok(quota.period())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| String::from("write a number"))?;
    if rate.is_finite() && (0.001..=1e6).contains(&rate) {
        return Ok(rate);
    }
    Err(String::from("write a rate from 0.001 to 1000000"))
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || String::from("write 'name: value'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = value.trim().parse().map_err(|_| wrong())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split(' '))
    }

    #[test]
    fn without_an_end_a_thousand_requests_are_sent() {
        let ends = |line| options(line).unwrap().ends();
        assert_eq!(ends("ratelimit-loadtest http://h/"), (1_000, LONGEST_RUN));
        let seconds = Duration::from_secs(12);
        assert_eq!(
            ends("ratelimit-loadtest http://h/ --duration 12s"),
            (MOST_REQUESTS, seconds)
        );
        assert_eq!(
            ends("ratelimit-loadtest http://h/ --duration 12s --requests 5"),
            (5, seconds)
        );
    }

    #[test]
    fn what_is_too_much_or_makes_no_sense_is_refused() {
        for line in [
            "ratelimit-loadtest",
            "ratelimit-loadtest http://h/ --requests 0",
            "ratelimit-loadtest http://h/ --requests 10000001",
            "ratelimit-loadtest http://h/ --duration 2h",
            "ratelimit-loadtest http://h/ --duration soon",
            "ratelimit-loadtest http://h/ --concurrency 0",
            "ratelimit-loadtest http://h/ --rate 0",
            "ratelimit-loadtest http://h/ --rate NaN",
            "ratelimit-loadtest http://h/ --rate 5 --burst 5/1s",
            "ratelimit-loadtest http://h/ --poisson",
            "ratelimit-loadtest http://h/ --clients 0",
            "ratelimit-loadtest http://h/ --header accept",
            "ratelimit-loadtest http://h/ --policy unlimited",
            "ratelimit-loadtest http://h/ --check --policy sometimes",
        ] {
            let error = options(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
