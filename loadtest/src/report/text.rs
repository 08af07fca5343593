//! The report for people.

use std::fmt;

use hdrhistogram::Histogram;

use super::Report;
use super::numbers::{QUANTILES, float};

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tally, judgement) = (&self.outcome.tally, &self.outcome.judgement);
        writeln!(f, "Total: {} in {:.2}s", tally.total(), self.seconds())?;
        writeln!(f, "Allowed: {}", tally.allowed)?;
        writeln!(f, "Limited: {}", tally.limited)?;
        writeln!(f, "Errors: {}", tally.errors())?;
        for (failure, count) in &tally.failures {
            writeln!(f, "  {count:>8} {failure}")?;
        }
        writeln!(f, "Rate: {:.1} req/s", self.rate())?;

        let from = if self.options.is_open() {
            "from the intended start"
        } else {
            "from the sending"
        };
        writeln!(f, "\nLatency {from}, in ms:")?;
        write!(f, "  {:8}", "")?;
        for (name, _) in QUANTILES {
            write!(f, " {name:>9}")?;
        }
        writeln!(f)?;
        latency(f, "allowed", &tally.allowed_latency)?;
        latency(f, "limited", &tally.limited_latency)?;

        writeln!(f, "\nTold:")?;
        for line in &judgement.words {
            writeln!(f, "  {line}")?;
        }
        if self.options.check {
            writeln!(f, "\nChecks:")?;
            write!(f, "{judgement}")?;
        }
        let notes = self.notes();
        if !notes.is_empty() {
            writeln!(f, "\nNotes:")?;
        }
        for note in notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

fn latency(f: &mut fmt::Formatter<'_>, name: &str, histogram: &Histogram<u64>) -> fmt::Result {
    if histogram.is_empty() {
        return Ok(());
    }
    write!(f, "  {name:8}")?;
    for (_, quantile) in QUANTILES {
        let millis = float(histogram.value_at_quantile(quantile)) / 1_000.0;
        write!(f, " {millis:>9.3}")?;
    }
    writeln!(f)
}
