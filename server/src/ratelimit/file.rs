//! Reads the limits of a domain from a file, and finds all of its mistakes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use prost_types::{ListValue, Struct, Value as Data, value::Kind};
use tower_ratelimit::{Algorithm, FixedWindow, OnStoreFailure, Quota};
use tower_ratelimit_config::__internal::{Notes, SourceText};
use tower_ratelimit_config::FileError;

use super::rules::{Descriptor, Level, Limit, Rule, Values, path, state_name};
use super::statistics::Statistics;
use super::yaml::{self, Node, Value};
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// The most bytes of a file.
pub(super) const LARGEST: usize = 4 << 20;

/// The most levels of descriptors. Each takes three of YAML.
const DEEPEST: usize = 16;

/// The fields of a file, wherever they stand.
const OF_DOMAIN: &[&str] = &["domain", "descriptors"];
const OF_DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const OF_LIMIT: &[&str] = &[
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "algorithm",
    "period",
    "burst",
    "settles",
    "on_store_failure",
];
const OF_REPLACED: &[&str] = &["name"];

/// The limits of a file.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) file: String,
    pub(super) name: String,
    /// The place of the name in the file.
    pub(super) span: Range<usize>,
    pub(super) top: Level,
}

/// Reads the text of a file. Its limits count into `statistics`.
pub(super) fn read(name: &str, text: &str, statistics: &Statistics) -> Result<Domain, FileError> {
    let source = &SourceText::without_secrets(name, text);
    let mut reader = Reader {
        file: name,
        source,
        statistics,
        notes: Notes::default(),
        domain: String::new(),
        steps: Vec::new(),
    };
    let domain = match yaml::read(text) {
        Ok(root) => reader.domain(root),
        Err(wrong) => {
            reader.notes.add(Some(&wrong.span), "", wrong.message);
            None
        }
    };
    match domain {
        Some(domain) if reader.notes.is_empty() => Ok(domain),
        _ => Err(FileError::of(reader.notes, source)),
    }
}

struct Reader<'a> {
    file: &'a str,
    source: &'a SourceText,
    statistics: &'a Statistics,
    notes: Notes,
    domain: String,
    /// The keys and values that lead to the present descriptor.
    steps: Vec<(String, Option<String>)>,
}

/// A map whose fields are known, and where it stands.
struct Fields<'n> {
    span: Range<usize>,
    path: String,
    by_name: HashMap<&'n str, &'n Node>,
}

impl<'n> Fields<'n> {
    fn get(&self, name: &str) -> Option<&'n Node> {
        self.by_name
            .get(name)
            .copied()
            .filter(|node| !node.is_null())
    }

    fn path(&self, name: &str) -> String {
        match &*self.path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }
}

impl Reader<'_> {
    fn wrong(&mut self, span: &Range<usize>, path: &str, message: impl Into<String>) {
        self.notes.add(Some(span), path, message.into());
    }

    /// Notes what is wrong with a field.
    fn refuse(&mut self, fields: &Fields<'_>, name: &str, message: impl Into<String>) {
        let span = fields.get(name).map_or(&fields.span, |node| &node.span);
        self.wrong(span, &fields.path(name), message);
    }

    fn domain(&mut self, root: Option<Node>) -> Option<Domain> {
        let empty = "config file cannot have empty domain; name the domain that Envoy sends, `domain: shop`";
        let Some(root) = root.filter(|root| !root.is_null()) else {
            self.wrong(&(0..1), "domain", empty);
            return None;
        };
        let fields = self.fields(&root, String::new(), OF_DOMAIN)?;
        let name = self.text(&fields, "domain").unwrap_or_default();
        if name.is_empty() {
            self.refuse(&fields, "domain", empty);
        }
        self.domain.clone_from(&name);
        let top = self.level(&fields);
        let span = fields.get("domain").map_or(0..1, |node| node.span.clone());
        let file = self.file.to_owned();
        Some(Domain {
            file,
            name,
            span,
            top,
        })
    }

    /// Returns the fields of a map, of which only these are known.
    fn fields<'n>(&mut self, node: &'n Node, path: String, known: &[&str]) -> Option<Fields<'n>> {
        let Value::Map(pairs) = &node.value else {
            let message = format!(
                "{:?} is no map; write the fields {}",
                node.shown(),
                known.join(", ")
            );
            self.wrong(&node.span, &path, message);
            return None;
        };
        let mut fields = Fields {
            span: node.span.start..node.span.start + 1,
            path,
            by_name: HashMap::new(),
        };
        for (key, value) in pairs {
            let Some(name) = key.string() else {
                let message = format!(
                    "config error, key is not of type string: {}; put a text in quotes, or leave the field out",
                    key.shown()
                );
                self.wrong(&key.span, &fields.path, message);
                continue;
            };
            if !known.contains(&name) {
                let message = unknown(name, known);
                self.wrong(&key.span, &fields.path, message);
            } else if fields.by_name.insert(name, value).is_some() {
                let path = fields.path(name);
                self.wrong(&key.span, &path, "it stands there twice; leave one");
            }
        }
        Some(fields)
    }

    /// Returns the maps of a list, each with its path.
    fn maps<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Vec<(&'n Node, String)> {
        let Some(node) = fields.get(name) else {
            return Vec::new();
        };
        let Value::List(list) = &node.value else {
            self.refuse(
                fields,
                name,
                format!(
                    "{:?} is no list; begin each of its maps with `- `",
                    node.shown()
                ),
            );
            return Vec::new();
        };
        let path = fields.path(name);
        let mut maps = Vec::new();
        for (number, item) in list.iter().enumerate() {
            let path = format!("{path}[{number}]");
            if matches!(item.value, Value::Map(_)) {
                maps.push((item, path));
            } else {
                let message = format!(
                    "config error, yaml file contains list of type other than map: {}; write a map, such as `- key: tenant`",
                    item.shown()
                );
                self.wrong(&item.span, &path, message);
            }
        }
        maps
    }

    fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let node = fields.get(name)?;
        let text = node.text();
        if text.is_none() {
            self.refuse(
                fields,
                name,
                format!("{} is no text; write one value", node.shown()),
            );
        }
        text.map(str::to_owned)
    }

    fn flag(&mut self, fields: &Fields<'_>, name: &str) -> bool {
        let Some(node) = fields.get(name) else {
            return false;
        };
        node.truth().unwrap_or_else(|| {
            self.refuse(
                fields,
                name,
                format!(
                    "{:?} is neither true nor false; write one of them",
                    node.shown()
                ),
            );
            false
        })
    }

    fn number(&mut self, fields: &Fields<'_>, name: &str) -> Option<u32> {
        let node = fields.get(name)?;
        let number = match &node.value {
            Value::Scalar {
                text,
                is_plain: true,
            } => text.parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let message = format!(
                "{:?} is no number of requests; write a whole number from 0 to {}",
                node.shown(),
                u32::MAX
            );
            self.refuse(fields, name, message);
        }
        number
    }

    /// Reads the descriptors of a domain or of a descriptor.
    fn level(&mut self, fields: &Fields<'_>) -> Level {
        let mut level = Level::default();
        if self.steps.len() == DEEPEST && fields.get("descriptors").is_some() {
            let message = format!(
                "descriptors stand in each other on more than {DEEPEST} levels; leave out levels"
            );
            self.refuse(fields, "descriptors", message);
            return level;
        }
        for (node, path) in self.maps(fields, "descriptors") {
            let Some(fields) = self.fields(node, path, OF_DESCRIPTOR) else {
                continue;
            };
            let key = self.text(&fields, "key").unwrap_or_default();
            if key.is_empty() {
                self.refuse(
                    &fields,
                    "key",
                    "descriptor has empty key; write the key of an entry, `key: tenant`",
                );
                continue;
            }
            let value = self
                .text(&fields, "value")
                .filter(|value| !value.is_empty());
            self.steps.push((key.clone(), value.clone()));
            let descriptor = self.descriptor(&fields);
            let values = level.0.entry(key.into()).or_default();
            if put(values, value, descriptor).is_none() {
                let composite = format!("{}.{}", self.domain, self.path());
                let message =
                    format!("duplicate descriptor composite key '{composite}'; leave one of them");
                self.refuse(&fields, "key", message);
            }
            self.steps.pop();
        }
        level
    }

    fn steps(&self) -> Vec<(&str, Option<&str>)> {
        let steps = self.steps.iter();
        steps
            .map(|(key, value)| (&**key, value.as_deref()))
            .collect()
    }

    fn path(&self) -> String {
        path(self.steps().into_iter())
    }

    /// Reads the descriptor at the end of the present steps.
    fn descriptor(&mut self, fields: &Fields<'_>) -> Descriptor {
        let is_shared = self.flag(fields, "share_threshold");
        if let (true, Some((key, value))) = (is_shared, self.steps.last())
            && !value.as_ref().is_some_and(|value| value.contains('*'))
        {
            let found = path([(&**key, value.as_deref())].into_iter());
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{found}'; give it a value \
                 with `*`, or leave it out"
            );
            self.refuse(fields, "share_threshold", message);
        }
        Descriptor {
            rule: self.rule(fields),
            is_shared,
            tells_value: self.flag(fields, "value_to_metric"),
            below: self.level(fields),
        }
    }

    fn rule(&mut self, fields: &Fields<'_>) -> Option<Arc<Rule>> {
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
        let (limit, unit) = self.limit(&its)?;
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
            policy: state_name(&self.domain, &self.steps()),
            limit,
            unit,
            name,
            replaces,
            is_shadow,
            is_quota,
            is_detailed,
            metadata,
            settles: self.flag(&its, "settles"),
            on_store_failure: self.on_store_failure(&its),
            line: self.source.line(&node.span),
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

    fn limit(&mut self, its: &Fields<'_>) -> Option<(Limit, Unit)> {
        if self.flag(its, "unlimited") {
            for field in ["unit", "period"] {
                if its.get(field).is_some() {
                    let message =
                        "should not specify rate limit unit when unlimited; leave out one of them";
                    self.refuse(its, field, message);
                }
            }
            return Some((Limit::Unlimited, Unit::Unknown));
        }
        let requests = match its.get("requests_per_unit") {
            None => 0,
            Some(_) => self.number(its, "requests_per_unit")?,
        };
        let (period, unit) = self.period(its)?;
        let burst = match its.get("burst") {
            None => None,
            Some(_) => Some(self.number(its, "burst")?),
        };
        let Some(name) = self.text(its, "algorithm") else {
            if burst.is_some() {
                let message = "a fixed window has no burst; name an algorithm that has one, such as `algorithm: token-bucket`";
                self.refuse(its, "burst", message);
            }
            return match FixedWindow::new(requests, period) {
                Ok(window) => Some((Limit::Rate(window.into()), unit)),
                Err(error) => {
                    self.refuse(its, "period", error.to_string());
                    None
                }
            };
        };
        let algorithm = self.algorithm(its, &name, (requests, period), burst)?;
        Some((Limit::Rate(algorithm), unit))
    }

    /// Reads an algorithm that is no fixed window.
    fn algorithm(
        &mut self,
        its: &Fields<'_>,
        name: &str,
        (requests, period): (u32, Duration),
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
        let quota = match Quota::new(requests, period) {
            Ok(quota) => quota,
            Err(error) => {
                self.refuse(its, "period", error.to_string());
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

    fn period(&mut self, its: &Fields<'_>) -> Option<(Duration, Unit)> {
        if let Some(text) = self.text(its, "period") {
            if its.get("unit").is_some() {
                self.refuse(its, "period", "there is a unit too; leave out one of them");
            }
            let Ok(quota) = format!("1/{text}").parse::<Quota>() else {
                let message =
                    format!("{text:?} is no length of time; write one such as 10min, 12h or 90d");
                self.refuse(its, "period", message);
                return None;
            };
            return Some((quota.period(), unit_of(quota.period())));
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
        Some((Duration::from_secs(*secs), *unit))
    }
}

/// A month has 30 days and a year 365.
pub(super) const UNITS: [(&str, Unit, u64); 7] = [
    ("second", Unit::Second, 1),
    ("minute", Unit::Minute, 60),
    ("hour", Unit::Hour, 3_600),
    ("day", Unit::Day, 86_400),
    ("week", Unit::Week, 7 * 86_400),
    ("month", Unit::Month, 30 * 86_400),
    ("year", Unit::Year, 365 * 86_400),
];

/// Returns the unit of this length, or `Unknown`.
pub(super) fn unit_of(period: Duration) -> Unit {
    let mut units = UNITS.iter();
    let unit = units.find(|(_, _, secs)| Duration::from_secs(*secs) == period);
    unit.map_or(Unit::Unknown, |(_, unit, _)| *unit)
}

/// Returns whether an algorithm answers at once. Envoy does not let a request wait for its turn.
fn is_counted(name: &str) -> bool {
    name != "leaky-queue" && !name.starts_with("calendar")
}

/// Puts a descriptor in its place; `None` if another one is there.
fn put(values: &mut Values, value: Option<String>, descriptor: Descriptor) -> Option<()> {
    match value {
        None if values.any.is_some() => return None,
        None => values.any = Some(descriptor),
        Some(value) if value.contains('*') => {
            if values
                .patterns
                .iter()
                .any(|(pattern, _)| **pattern == *value)
            {
                return None;
            }
            values.patterns.push((value.into(), descriptor));
        }
        Some(value) => {
            let value = value.into_boxed_str();
            if values.exact.contains_key(&value) {
                return None;
            }
            values.exact.insert(value, descriptor);
        }
    }
    Some(())
}

/// Says where a field belongs, or which one may be meant.
fn unknown(name: &str, known: &[&str]) -> String {
    let message = format!("config error, unknown key '{name}'");
    for (fields, place) in [
        (OF_DOMAIN, "at the top of the file"),
        (OF_DESCRIPTOR, "beside the `key` of a descriptor"),
        (OF_LIMIT, "below `rate_limit`"),
    ] {
        if fields.contains(&name) {
            return format!("{message} here; it stands {place}");
        }
    }
    let nearest = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(known, name), known));
    match nearest.min() {
        Some((edits, nearest)) if edits <= 3 => format!("{message}; the nearest is {nearest}"),
        _ => format!("{message}; the known ones are {}", known.join(", ")),
    }
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
            (None, Ok(number)) if *is_plain => Kind::NumberValue(number),
            _ => Kind::StringValue(text.clone()),
        },
    };
    Data { kind: Some(kind) }
}
