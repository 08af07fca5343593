//! Applies the limits of one file or two, and prints where the two differ.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tower_ratelimit::{Decision, Micros, Outcome};
use tower_ratelimit_config::{Config, Replay, Replayed};

use super::super::log::Request;
use super::tally::Tally;
use crate::BoxError;

/// The limits of a file, and another file to compare.
pub(super) struct Files {
    live: File,
    versus: Option<(File, Differences)>,
}

/// One line of output.
#[derive(Serialize)]
pub(super) struct OutputLine<'a> {
    t_us: u64,
    key: &'a str,
    allowed: bool,
    /// The policy that refuses; null if none does.
    policy: Option<String>,
    /// The policy that pays in each group of `first_of`, under the name of the group.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    paid_by: BTreeMap<String, String>,
    #[serde(flatten)]
    numbers: Numbers,
    #[serde(skip_serializing_if = "Option::is_none")]
    versus: Option<Other>,
}

/// The numbers of the policy that binds; null for a request that is not limited.
#[derive(Serialize)]
struct Numbers {
    limit: Option<u32>,
    remaining: Option<u32>,
    reset_after_us: Option<u64>,
    retry_after_us: Option<u64>,
    delay_us: u64,
}

#[derive(Serialize)]
struct Other {
    allowed: bool,
    policy: Option<String>,
}

/// The results of a file so far.
struct File {
    name: String,
    replay: Replay,
    exempt: u64,
    tally: Tally,
    waits: u64,
    refused_by: BTreeMap<String, u64>,
    /// By the group and the policy that pays in it.
    paid_by: BTreeMap<(String, String), u64>,
}

#[derive(Default)]
struct Differences {
    would_refuse: u64,
    would_allow: u64,
    by_key: HashMap<String, u64>,
    first: Vec<String>,
}

/// The number of differences that are printed line by line.
const SHOWN: usize = 10;

impl Files {
    pub(super) fn read(live: &Path, versus: Option<&Path>) -> Result<Self, BoxError> {
        let versus =
            versus.map(|path| Ok::<_, BoxError>((File::read(path)?, Differences::default())));
        Ok(Self {
            live: File::read(live)?,
            versus: versus.transpose()?,
        })
    }

    /// Decides on a request of the log; `line` is its number.
    pub(super) fn decide<'a>(
        &mut self,
        line: usize,
        request: &'a Request,
    ) -> Result<OutputLine<'a>, BoxError> {
        let decided = self.live.decide(request)?;
        let mut output = OutputLine {
            t_us: request.t_us,
            key: &request.key,
            allowed: decided.goes_on(),
            policy: refuser(&decided),
            paid_by: payers(&decided).collect(),
            numbers: Numbers::of(decided.decision()),
            versus: None,
        };
        if let Some((file, differences)) = &mut self.versus {
            let other = file.decide(request)?;
            differences.note(line, request, &decided, &other);
            output.versus = Some(Other {
                allowed: other.goes_on(),
                policy: refuser(&other),
            });
        }
        Ok(output)
    }
}

impl Numbers {
    fn of(decision: Option<&Decision>) -> Self {
        let outcome = decision.and_then(Decision::binding).map(|(_, it)| it);
        Self {
            limit: outcome.map(Outcome::limit),
            remaining: outcome.map(Outcome::remaining),
            reset_after_us: outcome.map(|it| micros(it.reset_after())),
            retry_after_us: outcome.and_then(Outcome::retry_after).map(micros),
            delay_us: decision.map_or(0, |it| micros(it.delay())),
        }
    }
}

fn micros(time: Duration) -> u64 {
    Micros::from(time).get()
}

/// Returns the policy that refuses a request.
fn refuser(decided: &Replayed) -> Option<String> {
    let decision = decided.decision().filter(|_| !decided.goes_on())?;
    decision.binding().map(|(policy, _)| policy.to_owned())
}

/// Returns the policy that pays in each group, after the name of the group.
fn payers(decided: &Replayed) -> impl Iterator<Item = (String, String)> {
    let payers = decided.decision().into_iter().flat_map(Decision::payers);
    payers.map(|(group, payer)| (group.to_owned(), payer.to_owned()))
}

impl File {
    fn read(path: &Path) -> Result<Self, BoxError> {
        let config =
            Config::read(path).map_err(|error| format!("the file has a mistake\n{error}"))?;
        Ok(Self {
            name: path.display().to_string(),
            replay: config.replay()?,
            exempt: 0,
            tally: Tally::default(),
            waits: 0,
            refused_by: BTreeMap::new(),
            paid_by: BTreeMap::new(),
        })
    }

    fn decide(&mut self, request: &Request) -> Result<Replayed, BoxError> {
        let mut made = http::Request::builder()
            .method(request.method.as_deref().unwrap_or("GET"))
            .uri(request.path.as_deref().unwrap_or("/"));
        for (name, value) in &request.headers {
            made = made.header(name, value);
        }
        let made = made.body(()).map_err(|error| {
            format!("{error}: write a method, a path and headers as they are sent")
        })?;
        let at = Micros::new(request.t_us);
        let plan = request.plan.as_deref();
        let decided = self
            .replay
            .decide(at, made, Some(&request.key), plan, request.cost);
        for pays in payers(&decided) {
            *self.paid_by.entry(pays).or_default() += 1;
        }
        match &decided {
            Replayed::Allowed(decision) => self.tally.allow(decision.delay()),
            Replayed::Waits(_) => self.waits += 1,
            Replayed::Refused(_) | Replayed::Forbidden | Replayed::WithoutKey => {
                self.tally.deny(&request.key);
                let by = refuser(&decided).unwrap_or_else(|| "no policy".to_owned());
                *self.refused_by.entry(by).or_default() += 1;
            }
            _ => self.exempt += 1,
        }
        Ok(decided)
    }
}

impl Differences {
    fn note(&mut self, line: usize, request: &Request, in_force: &Replayed, other: &Replayed) {
        let says = match (in_force.goes_on(), other.goes_on()) {
            (true, false) => {
                self.would_refuse += 1;
                "refused"
            }
            (false, true) => {
                self.would_allow += 1;
                "allowed"
            }
            _ => return,
        };
        *self.by_key.entry(request.key.clone()).or_default() += 1;
        if self.first.len() < SHOWN {
            let by = refuser(if in_force.goes_on() { other } else { in_force });
            let by = by.unwrap_or_else(|| "no policy".to_owned());
            self.first.push(format!(
                "line {line}, {} µs, {}: {says}, by {by}",
                request.t_us, request.key
            ));
        }
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.live)?;
        let Some((file, differences)) = &self.versus else {
            return Ok(());
        };
        write!(f, "{file}")?;
        writeln!(f, "{} beside {}", file.name, self.live.name)?;
        writeln!(
            f,
            "  {:>12} refused in place of allowed",
            differences.would_refuse
        )?;
        writeln!(
            f,
            "  {:>12} allowed in place of refused, of {} keys together",
            differences.would_allow,
            differences.by_key.len()
        )?;
        for difference in &differences.first {
            writeln!(f, "  {difference}")?;
        }
        let all = differences.would_refuse + differences.would_allow;
        let shown = differences.first.len() as u64;
        if all > shown {
            writeln!(f, "  and {} more", all - shown)?;
        }
        Ok(())
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        if self.exempt > 0 {
            writeln!(f, "  {:>12} without a limit", self.exempt)?;
        }
        if self.waits > 0 {
            writeln!(f, "  {:>12} wait for their turn", self.waits)?;
        }
        write!(f, "{}", self.tally)?;
        for (policy, times) in &self.refused_by {
            writeln!(f, "  {times:>12} by {policy}")?;
        }
        for ((group, payer), times) in &self.paid_by {
            writeln!(f, "  {times:>12} of {group} paid by {payer}")?;
        }
        Ok(())
    }
}
