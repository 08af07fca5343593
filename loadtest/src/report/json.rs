//! The report for programs. `report.schema.json` is its schema.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Report;
use super::numbers::QUANTILES;
use crate::exchange::Exchange;
use crate::judge::{CheckResult, Conclusion, Finding};

/// The version of the report. It rises when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Json<'a> {
    version: u32,
    urls: &'a [String],
    policy: Option<String>,
    total: u64,
    seconds: f64,
    allowed: u64,
    limited: u64,
    errors: u64,
    errors_by_kind: BTreeMap<String, u64>,
    rate: f64,
    latency_us: Latencies,
    per_second: Vec<Second>,
    open_loop: OpenLoop,
    headers: &'a [String],
    checks: Vec<Check<'a>>,
    disproved: bool,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Latencies {
    from: &'static str,
    allowed: Option<BTreeMap<&'static str, u64>>,
    limited: Option<BTreeMap<&'static str, u64>>,
}

#[derive(Serialize)]
struct Second {
    allowed: u64,
    limited: u64,
    errors: u64,
}

#[derive(Serialize)]
struct OpenLoop {
    late: u64,
    unsent: u64,
    withheld: u64,
    unfinished: u64,
}

#[derive(Serialize)]
struct Check<'a> {
    name: &'static str,
    conclusion: &'static str,
    reason: Option<&'a str>,
    count: u64,
    findings: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    text: &'a str,
    requests: Vec<Request>,
}

#[derive(Serialize)]
struct Request {
    number: u64,
    client: u32,
    node: u16,
    sent_us: u64,
    received_us: Option<u64>,
    answer: String,
}

impl Report<'_> {
    /// Returns the report as JSON.
    ///
    /// # Errors
    ///
    /// None is known: all fields are numbers and text.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let (tally, judgement) = (&self.outcome.tally, &self.outcome.judgement);
        let failures = tally.failures.iter();
        let checks = judgement.checks.iter().filter(|_| self.options.check);
        serde_json::to_string_pretty(&Json {
            version: VERSION,
            urls: &self.options.urls,
            policy: self.options.policy.map(|policy| policy.to_string()),
            total: tally.total(),
            seconds: self.seconds(),
            allowed: tally.allowed,
            limited: tally.limited,
            errors: tally.errors(),
            errors_by_kind: failures
                .map(|(failure, count)| (failure.to_string(), *count))
                .collect(),
            rate: self.rate(),
            latency_us: Latencies {
                from: if self.options.is_open() {
                    "intended start"
                } else {
                    "sending"
                },
                allowed: quantiles(&tally.allowed_latency),
                limited: quantiles(&tally.limited_latency),
            },
            per_second: tally.seconds.iter().map(Second::of).collect(),
            open_loop: OpenLoop {
                late: tally.late,
                unsent: tally.unsent,
                withheld: tally.withheld,
                unfinished: tally.unfinished,
            },
            headers: &judgement.words,
            checks: checks.map(Check::of).collect(),
            disproved: self.options.check && judgement.is_disproved(),
            notes: self.notes(),
        })
    }
}

impl Second {
    fn of([allowed, limited, errors]: &[u64; 3]) -> Self {
        Self {
            allowed: *allowed,
            limited: *limited,
            errors: *errors,
        }
    }
}

impl<'a> Check<'a> {
    fn of(result: &'a CheckResult) -> Self {
        let (conclusion, reason, count, findings) = match &result.conclusion {
            Conclusion::Held => ("held", None, 0, &[][..]),
            Conclusion::Unjudged(reason) => ("unjudged", Some(reason.as_str()), 0, &[][..]),
            Conclusion::Broken { count, findings } => ("broken", None, *count, findings.as_slice()),
        };
        Self {
            name: result.check.name(),
            conclusion,
            reason,
            count,
            findings: findings.iter().map(Shown::of).collect(),
        }
    }
}

impl<'a> Shown<'a> {
    fn of(finding: &'a Finding) -> Self {
        let requests = finding.requests.iter();
        Self {
            text: &finding.text,
            requests: requests.map(|answer| Request::of(answer)).collect(),
        }
    }
}

impl Request {
    fn of(answer: &Exchange) -> Self {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).ok();
        Self {
            number: answer.number,
            client: answer.client,
            node: answer.node,
            sent_us: micros(answer.sent).unwrap_or(u64::MAX),
            // The longest time stands for none.
            received_us: micros(answer.received),
            answer: answer.to_string(),
        }
    }
}

fn quantiles(histogram: &Histogram<u64>) -> Option<BTreeMap<&'static str, u64>> {
    (!histogram.is_empty()).then(|| {
        let quantile = |(name, quantile)| (name, histogram.value_at_quantile(quantile));
        QUANTILES.into_iter().map(quantile).collect()
    })
}
