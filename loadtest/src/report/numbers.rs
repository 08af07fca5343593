//! The numbers in both reports.

use super::Report;

/// The quantiles of a latency.
pub(super) const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Report<'_> {
    /// Returns the seconds from the beginning to the last answer.
    pub(super) fn seconds(&self) -> f64 {
        self.outcome.tally.elapsed.as_secs_f64()
    }

    /// Requests per second.
    pub(super) fn rate(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 {
            float(self.outcome.tally.total()) / seconds
        } else {
            0.0
        }
    }

    /// Notes on the tester, and not on the server.
    pub(super) fn notes(&self) -> Vec<String> {
        let tally = &self.outcome.tally;
        let mut notes = self.outcome.judgement.notes.clone();
        if tally.unfinished > 0 {
            notes.push(format!(
                "{} requests were on their way when the run ended, and are not counted",
                tally.unfinished
            ));
        }
        if tally.late > 0 && self.options.is_open() {
            notes.push(format!(
                "{} arrivals were sent over 10 ms late, the latest by {:?}",
                tally.late, tally.latest
            ));
        }
        if tally.unsent > 0 {
            notes.push(format!(
                "{} arrivals could not be sent in time",
                tally.unsent
            ));
        }
        if tally.withheld > 0 {
            notes.push(format!(
                "{} arrivals were not sent, since their clients were told to wait",
                tally.withheld
            ));
        }
        let [retries, refused] = tally.retries;
        if retries > 0 {
            notes.push(format!(
                "{retries} requests were sent right after a wait, and {refused} of them were refused again"
            ));
        }
        if let Some(used) = self.outcome.processor {
            let threads = float(self.outcome.threads as u64);
            let alone = if used > 0.9 * threads {
                ": the tester is the bottleneck"
            } else {
                ""
            };
            notes.push(format!(
                "processors used by the tester: {used:.2}, of threads: {}{alone}",
                self.outcome.threads
            ));
        }
        notes
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a run has ten million requests at most"
)]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}
