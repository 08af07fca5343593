//! The flags of the rate limit service.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::length::length;
use crate::limits::Limits;
use crate::ratelimit::{Headers, Mistakes, Options, RateLimits};

/// What decides about the descriptors that Envoy sends.
#[derive(Debug, clap::Args)]
pub(super) struct Descriptors {
    /// The directory of the files of envoyproxy/ratelimit, which may change; without LIMITS, they alone limit
    #[arg(long, value_name = "DIR")]
    pub(super) ratelimit_config: Option<PathBuf>,
    /// Charge refused requests too, as envoyproxy/ratelimit does
    #[arg(long)]
    charge_refused: bool,
    /// Let all requests with descriptors pass, and count those that would be refused
    #[arg(id = "shadow_descriptors", long = "shadow-descriptors")]
    shadow: bool,
    /// The headers that Envoy adds: draft, for `RateLimit` and `RateLimit-Policy`, or envoy, for the three of envoyproxy/ratelimit
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "draft",
        hide_possible_values = true
    )]
    headers: Names,
    /// The metrics of descriptors: own, or envoy, under the names of envoyproxy/ratelimit
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "own",
        hide_possible_values = true
    )]
    stats: Metrics,
    /// The time for a decision, if the call of Envoy says none
    #[arg(long, value_name = "TIME", default_value = "15ms", value_parser = length)]
    grpc_deadline: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Names {
    Draft,
    Envoy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Metrics {
    Own,
    Envoy,
}

impl Descriptors {
    /// Returns how long a call of Envoy may take that does not say.
    pub(super) fn time(&self) -> Duration {
        self.grpc_deadline
    }

    /// Returns a flag that has another value than its default.
    pub(super) fn changed(&self) -> Option<&'static str> {
        let flags = [
            ("--charge-refused", self.charge_refused),
            ("--shadow-descriptors", self.shadow),
            ("--headers", matches!(self.headers, Names::Envoy)),
            ("--stats", self.stats == Metrics::Envoy),
            (
                "--grpc-deadline",
                self.grpc_deadline != Options::default().time,
            ),
        ];
        flags
            .into_iter()
            .find_map(|(flag, is_changed)| is_changed.then_some(flag))
    }

    /// Reads the files, beside the tables of the file of limits.
    pub(super) fn read(&self, limits: &Limits) -> Result<RateLimits, Mistakes> {
        let options = Options {
            charge_refused: self.charge_refused,
            is_shadow: self.shadow,
            headers: match self.headers {
                Names::Draft => Headers::Draft,
                Names::Envoy => Headers::Envoy,
            },
            time: self.grpc_deadline,
            their_metrics: self.stats == Metrics::Envoy,
        };
        RateLimits::beside(limits, self.ratelimit_config.clone(), options)
    }
}
