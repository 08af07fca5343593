//! The judgement on a run.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;

use super::Judge;
use super::client::Tally;
use super::finding::{Check, Finding, Premise};

/// The results of all checks.
#[derive(Debug)]
pub struct Judgement {
    /// The result of each check, in the order of [`Check::ALL`].
    pub checks: Vec<CheckResult>,
    /// Facts that are reported and not judged.
    pub notes: Vec<String>,
    /// The content of the headers.
    pub words: Vec<String>,
    /// The number of kept and broken waits in each second of the run.
    pub promises: BTreeMap<u64, [u64; 2]>,
}

/// The result of one check.
#[derive(Debug)]
pub struct CheckResult {
    /// The check.
    pub check: Check,
    /// Its outcome.
    pub conclusion: Conclusion,
}

/// The outcome of a check.
#[derive(Debug)]
pub enum Conclusion {
    /// Nothing disproves it.
    Held,
    /// It was disproved this many times; the first findings are listed.
    Broken {
        /// The number of findings.
        count: u64,
        /// The first findings.
        findings: Vec<Finding>,
    },
    /// It could not be judged, for this reason.
    Unjudged(String),
}

impl Judgement {
    /// Returns whether time stamps disprove a promise.
    pub fn is_disproved(&self) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|result| matches!(result.conclusion, Conclusion::Broken { .. }))
    }

    /// Returns the checks that were disproved.
    pub fn broken(&self) -> Vec<Check> {
        let broken = self.checks.iter();
        let broken = broken.filter(|result| matches!(result.conclusion, Conclusion::Broken { .. }));
        broken.map(|result| result.check).collect()
    }
}

impl fmt::Display for Judgement {
    /// Returns a line for each check, with the findings and their requests below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CheckResult { check, conclusion } in &self.checks {
            match conclusion {
                Conclusion::Held => writeln!(f, "  ok       {check}")?,
                Conclusion::Unjudged(reason) => writeln!(f, "  unjudged {check}: {reason}")?,
                Conclusion::Broken { count, findings } => {
                    writeln!(f, "  BROKEN   {check}: {count} times")?;
                    for finding in findings {
                        writeln!(f, "             {}", finding.text)?;
                        for request in &finding.requests {
                            writeln!(f, "               {request}")?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn conclude(mut judge: Judge) -> Judgement {
    if let Some(terms) = &judge.terms
        && let Some(finding) = judge.words.disagree_with(terms)
    {
        judge.findings.add(finding);
    }
    if let Some(finding) = slow_refusals(&judge.admissions, &judge.refusals) {
        judge.findings.add(finding);
    }
    let tallies: Vec<(u32, Tally)> = judge.each.iter().map(|(id, c)| (*id, c.tally)).collect();
    if let Some(finding) = unfair(&tallies) {
        judge.findings.add(finding);
    }
    let several = judge.words.are_several();
    let words = judge.terms.is_some() || judge.words.has_remaining();
    let shared = judge.clients > 1 && (!judge.apart || several || !words);
    judge.findings.keep_up_to(match (shared, several) {
        (true, _) => Premise::None,
        (false, true) => Premise::OwnLimit,
        (false, false) => Premise::OnlyLimit,
    });
    if judge.nodes > 1 {
        for mut finding in judge.findings.of(Check::Bound).1 {
            finding.check = Check::Nodes;
            judge.findings.add(finding);
        }
    }
    let checks = Check::ALL.map(|check| CheckResult {
        check,
        conclusion: conclusion(&judge, check, shared, several, &tallies),
    });
    let mut notes = Vec::new();
    if shared {
        notes.push(format!(
            "the {} clients may share a limit: that each has one of its own is not shown",
            judge.clients
        ));
    }
    if let Some(index) = jain(&tallies) {
        notes.push(format!(
            "Jain's index of the admissions of {} clients: {index:.3}",
            tallies.len()
        ));
    }
    Judgement {
        checks: checks.into(),
        notes,
        words: judge.words.lines(),
        promises: judge.promises,
    }
}

fn conclusion(
    judge: &Judge,
    check: Check,
    shared: bool,
    several: bool,
    tallies: &[(u32, Tally)],
) -> Conclusion {
    let (count, findings) = judge.findings.of(check);
    if count > 0 {
        return Conclusion::Broken { count, findings };
    }
    if shared && check.premise() > Premise::None {
        return Conclusion::Unjudged(String::from("the clients may share a limit"));
    }
    if several && check.premise() > Premise::OwnLimit {
        return Conclusion::Unjudged(String::from("there are several policies"));
    }
    match unjudged(judge, check, tallies) {
        Some(reason) => Conclusion::Unjudged(reason.to_owned()),
        None => Conclusion::Held,
    }
}

/// Returns the reason why no finding was possible.
fn unjudged(judge: &Judge, check: Check, tallies: &[(u32, Tally)]) -> Option<&'static str> {
    let limited: u64 = tallies.iter().map(|(_, tally)| tally.limited).sum();
    let no_policy = judge.terms.is_none().then_some("needs --policy");
    let no_refusal = (limited == 0).then_some("no request was refused");
    let no_wait = (!judge.words.has_waits()).then_some("no wait was told");
    let no_number = (!judge.words.has_remaining()).then_some("no number was told");
    match check {
        Check::Strictness => no_policy.or(no_refusal),
        Check::RetryAfterEnough | Check::RetryAfterLeast => no_refusal.or(no_wait),
        Check::RefusalLatency => no_refusal,
        Check::Fairness if judge.clients < 2 => Some("needs --clients"),
        Check::Nodes if judge.nodes < 2 => Some("needs several URLs"),
        Check::Bound | Check::Fairness | Check::Nodes => no_policy,
        Check::RefusalsCharge => no_refusal.or(no_policy.and(no_number)),
        Check::Remaining => no_number,
        Check::Headers => no_wait.and(no_number),
    }
}

/// Returns a finding if some clients were refused below the policy, or admitted above it, and others were not.
fn unfair(tallies: &[(u32, Tally)]) -> Option<Finding> {
    let is_wronged = |tally: &Tally| tally.refused_wrongly > 0;
    let is_favoured = |tally: &Tally| tally.admitted_wrongly > 0;
    let text = |which: &dyn Fn(&Tally) -> bool, what: &str| {
        let found: Vec<u32> = tallies
            .iter()
            .filter(|(_, t)| which(t))
            .map(|(id, _)| *id)
            .collect();
        let is_some = !found.is_empty() && found.len() < tallies.len();
        is_some.then(|| {
            let shown: Vec<String> = found.iter().take(8).map(u32::to_string).collect();
            format!(
                "{} of {} clients were {what} the policy, and the others were not: {}",
                found.len(),
                tallies.len(),
                shown.join(", "),
            )
        })
    };
    let text =
        text(&is_wronged, "refused below").or_else(|| text(&is_favoured, "admitted above"))?;
    Some(Finding::new(Check::Fairness, text, &[]))
}

/// Returns Jain's index: 1 if all clients were admitted equally often, 1/n if one had it all.
fn jain(tallies: &[(u32, Tally)]) -> Option<f64> {
    if tallies.len() < 2 {
        return None;
    }
    let allowed = tallies.iter().map(|(_, tally)| float(tally.allowed));
    let (sum, squares) = allowed.fold((0.0, 0.0), |(sum, squares), n| (sum + n, squares + n * n));
    (squares > 0.0).then(|| sum * sum / (float(tallies.len() as u64) * squares))
}

/// Returns whether refusals take over twice as long as admissions, and a millisecond more.
///
/// The medians of few answers are uncertain, so the bounds at three standard deviations are compared: the
/// least of the one, and the most of the other.
fn slow_refusals(admissions: &Histogram<u64>, refusals: &Histogram<u64>) -> Option<Finding> {
    const LEAST: u64 = 16;
    const MORE: u64 = 1_000;
    if admissions.len() < LEAST || refusals.len() < LEAST {
        return None;
    }
    let margin = |histogram: &Histogram<u64>| (1.5 / float(histogram.len()).sqrt()).min(0.45);
    let refused = refusals.value_at_quantile(0.5 - margin(refusals));
    let admitted = admissions.value_at_quantile(0.5 + margin(admissions));
    let medians = [refusals, admissions].map(|histogram| histogram.value_at_quantile(0.5));
    let is_slow = |refused: u64, admitted: u64| refused > 2 * admitted && refused > admitted + MORE;
    let [refusal, admission] = medians;
    (is_slow(refused, admitted) && is_slow(refusal, admission)).then(|| {
        let text = format!(
            "half of the refusals take {refusal} µs or more, and half of the admissions {admission} µs or less"
        );
        Finding::new(Check::RefusalLatency, text, &[])
    })
}

#[allow(clippy::cast_precision_loss, reason = "an index of three digits")]
fn float(number: u64) -> f64 {
    number as f64
}
