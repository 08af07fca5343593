//! The limit of a descriptor: its numbers, and what it is beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost_types::{ListValue, Struct, Value as Data, value::Kind};
use tower_ratelimit::{Algorithm, FixedWindow, OnStoreFailure, Policy, Quota};
use tower_ratelimit_config::__internal::state_name;

use super::fields::{Fields, OF_LIMIT, OF_REPLACED, Reader};
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::ratelimit::rules::{OfEntry, Rule};
use crate::ratelimit::yaml::{Node, Value};

impl Reader<'_> {
    pub(super) fn rule(&mut self, fields: &Fields<'_>) -> Option<Arc<Rule>> {
        let is_shadow = self.flag(fields, "shadow_mode");
        let is_quota = self.flag(fields, "quota_mode");
        let is_detailed = self.flag(fields, "detailed_metric");
        let metadata = match fields.get("metadata").map(data) {
            None => None,
            Some(Data {
                kind: Some(Kind::StructValue(metadata)),
            }) => Some(metadata),
            Some(_) => {
                self.refuse(fields, "metadata", "it is no map; write fields below it");
                None
            }
        };
        let node = fields.get("rate_limit")?;
        let its = self.fields(node, fields.path("rate_limit"), OF_LIMIT)?;
        let (
            limit,
            Span {
                unit, multiplier, ..
            },
        ) = self.limit(&its)?;
        let name = self.text(&its, "name").filter(|name| !name.is_empty());
        let mut replaces = Vec::new();
        for (node, path) in self.maps(&its, "replaces") {
            let Some(fields) = self.fields(node, path, OF_REPLACED) else {
                continue;
            };
            let other = self.text(&fields, "name").unwrap_or_default();
            if other.is_empty() {
                let message = "should not have an empty replaces entry; write the `name` of another rate_limit";
                self.refuse(&fields, "name", message);
            } else if Some(&other) == name.as_ref() {
                let message = "replaces should not contain name of same descriptor; leave it out";
                self.refuse(&fields, "name", message);
            }
            replaces.push(other);
        }
        let path = self.path();
        Some(Arc::new(Rule {
            policy: Policy::new(state_name(&self.domain, &self.steps()), limit)
                .on_store_failure(self.on_store_failure(&its)),
            unit,
            multiplier,
            name,
            replaces,
            is_shadow,
            is_quota,
            metadata,
            settles: self.flag(&its, "settles"),
            entries: vec![
                OfEntry {
                    is_together: false,
                    is_shown: is_detailed
                };
                self.steps.len()
            ],
            line: Some(self.source.line(&node.span)),
            counts: self.statistics.of(&self.domain, &path),
            path,
        }))
    }

    fn on_store_failure(&mut self, its: &Fields<'_>) -> OnStoreFailure {
        match self.text(its, "on_store_failure").as_deref() {
            None | Some("local") => OnStoreFailure::Local,
            Some("allow") => OnStoreFailure::Allow,
            Some("refuse") => OnStoreFailure::Refuse,
            Some(other) => {
                let message = format!("{other:?} is none of them; write local, allow or refuse");
                self.refuse(its, "on_store_failure", message);
                OnStoreFailure::Local
            }
        }
    }

    fn limit(&mut self, its: &Fields<'_>) -> Option<(Algorithm, Span)> {
        if self.flag(its, "unlimited") {
            for field in ["unit", "unit_multiplier", "period"] {
                if its.get(field).is_some() {
                    let message =
                        "should not specify rate limit unit when unlimited; leave out one of them";
                    self.refuse(its, field, message);
                }
            }
            return Some((Algorithm::Unlimited, Span::default()));
        }
        let requests = match its.get("requests_per_unit") {
            None => 0,
            Some(_) => self.number(its, "requests_per_unit")?,
        };
        let span = self.span(its)?;
        let burst = match its.get("burst") {
            None => None,
            Some(_) => Some(self.number(its, "burst")?),
        };
        let Some(name) = self.text(its, "algorithm") else {
            if burst.is_some() {
                let message = "a fixed window has no burst; name an algorithm that has one, such as `algorithm: token-bucket`";
                self.refuse(its, "burst", message);
            }
            return match FixedWindow::new(requests, span.period) {
                Ok(window) => Some((window.into(), span)),
                Err(error) => {
                    self.refuse(its, span.field(), error.to_string());
                    None
                }
            };
        };
        let algorithm = self.algorithm(its, &name, (requests, span), burst)?;
        Some((algorithm, span))
    }

    /// Reads an algorithm that is no fixed window.
    fn algorithm(
        &mut self,
        its: &Fields<'_>,
        name: &str,
        (requests, span): (u32, Span),
        burst: Option<u32>,
    ) -> Option<Algorithm> {
        let known: Vec<_> = Algorithm::names()
            .filter(|(name, _)| is_counted(name))
            .collect();
        let Some((_, word)) = known.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            let message = format!(
                "{name:?} is no algorithm for descriptors; write one of {}",
                known.join(", ")
            );
            self.refuse(its, "algorithm", message);
            return None;
        };
        let quota = match Quota::new(requests, span.period) {
            Ok(quota) => quota,
            Err(error) => {
                self.refuse(its, span.field(), error.to_string());
                return None;
            }
        };
        let word = word.filter(|word| matches!(*word, "burst" | "capacity"));
        let text = match (burst, word) {
            (None, _) => format!("{name} {quota}"),
            (Some(burst), Some(word)) => format!("{name} {quota} {word} {burst}"),
            (Some(_), None) => {
                let message = format!(
                    "{name} has no burst; leave it out, or write `algorithm: token-bucket`"
                );
                self.refuse(its, "burst", message);
                return None;
            }
        };
        let algorithm = text.parse();
        algorithm
            .map_err(|error: tower_ratelimit::ConfigError| {
                self.refuse(its, "algorithm", error.to_string());
            })
            .ok()
    }

    fn span(&mut self, its: &Fields<'_>) -> Option<Span> {
        if let Some(text) = self.text(its, "period") {
            for field in ["unit", "unit_multiplier"] {
                if its.get(field).is_some() {
                    self.refuse(
                        its,
                        "period",
                        format!("there is a {field} too; leave out one of them"),
                    );
                }
            }
            let Ok(quota) = format!("1/{text}").parse::<Quota>() else {
                let message =
                    format!("{text:?} is no length of time; write one such as 10min, 12h or 90d");
                self.refuse(its, "period", message);
                return None;
            };
            let period = quota.period();
            return Some(Span {
                period,
                unit: unit_of(period),
                multiplier: None,
            });
        }
        let name = self.text(its, "unit").unwrap_or_default();
        let unit = UNITS
            .iter()
            .find(|(known, ..)| name.eq_ignore_ascii_case(known));
        let Some((_, unit, secs)) = unit else {
            let known: Vec<&str> = UNITS.iter().map(|(name, ..)| *name).collect();
            let message = format!(
                "invalid rate limit unit '{name}'; write one of {}, or a length of time as `period`",
                known.join(", ")
            );
            self.refuse(its, "unit", message);
            return None;
        };
        let multiplier = match its.get("unit_multiplier") {
            None => None,
            Some(_) => Some(self.number(its, "unit_multiplier")?),
        };
        if multiplier == Some(0) {
            let message = "no unit is no time; write how many there are, from 1, or leave it out";
            self.refuse(its, "unit_multiplier", message);
            return None;
        }
        Some(Span {
            period: Duration::from_secs(secs * u64::from(multiplier.unwrap_or(1))),
            unit: *unit,
            multiplier,
        })
    }
}

/// The period of a limit, and how its file says it.
#[derive(Clone, Copy, Default)]
struct Span {
    period: Duration,
    unit: Unit,
    /// How many units there are, if the file says so.
    multiplier: Option<u32>,
}

impl Span {
    /// Returns the field to which a mistake of the period belongs.
    fn field(self) -> &'static str {
        match self.multiplier {
            None => "period",
            Some(_) => "unit_multiplier",
        }
    }
}

/// A month has 30 days and a year 365.
pub(in crate::ratelimit) const UNITS: [(&str, Unit, u64); 7] = [
    ("second", Unit::Second, 1),
    ("minute", Unit::Minute, 60),
    ("hour", Unit::Hour, 3_600),
    ("day", Unit::Day, 86_400),
    ("week", Unit::Week, 7 * 86_400),
    ("month", Unit::Month, 30 * 86_400),
    ("year", Unit::Year, 365 * 86_400),
];

/// Returns the unit of this length, or `Unknown`.
pub(in crate::ratelimit) fn unit_of(period: Duration) -> Unit {
    let mut units = UNITS.iter();
    let unit = units.find(|(_, _, secs)| Duration::from_secs(*secs) == period);
    unit.map_or(Unit::Unknown, |(_, unit, _)| *unit)
}

/// Returns whether an algorithm answers at once. Envoy does not let a request wait for its turn.
fn is_counted(name: &str) -> bool {
    name != "leaky-queue" && !name.starts_with("calendar")
}

/// Returns a value as Envoy's metadata has it.
fn data(node: &Node) -> Data {
    let kind = match &node.value {
        _ if node.is_null() => Kind::NullValue(0),
        Value::List(list) => Kind::ListValue(ListValue {
            values: list.iter().map(data).collect(),
        }),
        Value::Map(pairs) => {
            let fields = pairs.iter().map(|(key, value)| (key.shown(), data(value)));
            let fields: BTreeMap<_, _> = fields.collect();
            Kind::StructValue(Struct { fields })
        }
        Value::Scalar { text, is_plain } => match (node.truth(), text.parse()) {
            (Some(truth), _) => Kind::BoolValue(truth),
            // Rust reads `nan` and `infinity` as numbers, and YAML as texts.
            (None, Ok(number)) if *is_plain && f64::is_finite(number) => Kind::NumberValue(number),
            _ => Kind::StringValue(text.clone()),
        },
    };
    Data { kind: Some(kind) }
}
