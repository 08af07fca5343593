//! The JSON form of a decision, for responses and logs.
//!
//! Times are in whole microseconds, as in the decision: a client can wait for exactly that long.

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{Decision, Outcome};

/// The numbers of one policy.
#[derive(Serialize)]
struct Numbers {
    limit: u32,
    used: u32,
    remaining: u32,
    reset_after_us: u64,
    retry_after_us: Option<u64>,
}

/// The numbers of the binding policy, and of each policy by its name.
#[derive(Serialize)]
struct SerializedDecision<'a> {
    allowed: bool,
    degraded: bool,
    delay_us: u64,
    policy: Option<&'a str>,
    rule: Option<String>,
    resolution: Option<String>,
    #[serde(flatten)]
    numbers: Option<Numbers>,
    policies: Policies<'a>,
}

struct Policies<'a>(&'a Decision);

impl From<&Outcome> for Numbers {
    fn from(outcome: &Outcome) -> Self {
        Self {
            limit: outcome.limit(),
            used: outcome.used(),
            remaining: outcome.remaining(),
            reset_after_us: micros(outcome.reset_after()),
            retry_after_us: outcome.retry_after().map(micros),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Serialize for Policies<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(decision) = self;
        let mut map = serializer.serialize_map(None)?;
        for (name, outcome) in decision.policies() {
            map.serialize_entry(name, &Numbers::from(outcome))?;
        }
        map.end()
    }
}

/// `allowed`, `degraded`, `delay_us`, and the binding `policy` with its `rule`, `limit`, `used`, `remaining`,
/// `reset_after_us` and `retry_after_us`. `policies` has the same numbers for each policy, by name.
/// `resolution` says how a resolver found the plan; it is null without a resolver. Without a binding policy, `policy` is null
/// and has no numbers.
impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let numbers = SerializedDecision {
            allowed: self.is_allowed(),
            degraded: self.is_degraded(),
            delay_us: micros(self.delay()),
            policy: self.binding().map(|(policy, _)| policy),
            rule: self.rule().map(|rule| rule.to_string()),
            resolution: self.resolution().map(|found| found.to_string()),
            numbers: self.binding().map(|(_, outcome)| outcome.into()),
            policies: Policies(self),
        };
        numbers.serialize(serializer)
    }
}
