//! The limits of a domain, and which of them a descriptor has.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use prost_types::Struct;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::{Algorithm, Policy};
use tower_ratelimit_config::__internal::digest;

use super::statistics::Counts;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// The most bytes of a request's value in the statistics: each has its metrics for as long as the process runs.
const LONGEST_SHOWN: usize = 128;

/// The limit of a descriptor in a file.
#[derive(Debug)]
pub(super) struct Rule {
    /// The limit, under the name of its state.
    pub(super) policy: Policy,
    /// The keys and values that lead to it, as `explain` and the statistics show them.
    pub(super) path: String,
    pub(super) unit: Unit,
    /// How many units the period has, if the file says so.
    pub(super) multiplier: Option<u32>,
    pub(super) name: Option<String>,
    pub(super) replaces: Vec<String>,
    pub(super) is_shadow: bool,
    pub(super) is_quota: bool,
    /// Whether it counts all units that are reported to it, past the limit.
    pub(super) settles: bool,
    pub(super) entries: Vec<OfEntry>,
    pub(super) metadata: Option<Struct>,
    /// The line of the file, if its form has lines.
    pub(super) line: Option<usize>,
    pub(super) counts: Arc<Counts>,
}

/// What a limit does with the value of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfEntry {
    /// Whether all values that match the pattern are counted together.
    pub(super) is_together: bool,
    /// Whether the statistics have the value of the request.
    pub(super) is_shown: bool,
}

impl Rule {
    /// Returns the limit; `None` if requests are not counted.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        let algorithm = *self.policy.algorithm();
        (algorithm != Algorithm::Unlimited).then_some(algorithm)
    }
}

/// The descriptors that may come next.
#[derive(Debug, Default)]
pub(super) struct Level(pub(super) HashMap<Box<str>, Values>);

/// The descriptors of a key.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) exact: HashMap<Box<str>, Descriptor>,
    /// In the order of the file.
    pub(super) patterns: Vec<(Box<str>, Descriptor)>,
    pub(super) any: Option<Descriptor>,
}

/// A descriptor of a file.
#[derive(Debug, Default)]
pub(super) struct Descriptor {
    /// The line of the file, or 0 in a form that has none.
    pub(super) line: usize,
    pub(super) rule: Option<Arc<Rule>>,
    pub(super) below: Level,
    /// Whether all values that match are counted together.
    pub(super) is_shared: bool,
    /// Whether the statistics have the value of the request.
    pub(super) tells_value: bool,
}

/// The limit that a descriptor of a request has.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) rule: &'a Arc<Rule>,
    pub(super) key: Key,
    /// The path with the values of the request, if the statistics have some.
    pub(super) path: Option<String>,
}

/// What of the file an entry of a request has met.
#[derive(Clone, Copy)]
struct Step<'a> {
    descriptor: &'a Descriptor,
    /// The value or the pattern of the file.
    value: Option<&'a str>,
}

impl Level {
    /// Returns the descriptor of this key and this value or pattern, which is added if it is not there.
    pub(super) fn at(&mut self, key: &str, value: Option<&str>) -> &mut Descriptor {
        let values = self.0.entry(key.into()).or_default();
        match value {
            None => values.any.get_or_insert_default(),
            Some(pattern) if pattern.contains('*') => {
                let known = values.patterns.iter();
                let known = known.enumerate().find(|(_, (text, _))| **text == *pattern);
                let place = known.map_or(values.patterns.len(), |(place, _)| place);
                if place == values.patterns.len() {
                    let descriptor = Descriptor::default();
                    values.patterns.push((pattern.into(), descriptor));
                }
                &mut values.patterns[place].1
            }
            Some(value) => values.exact.entry(value.into()).or_default(),
        }
    }

    /// Returns the limit of these entries: that of the descriptor that the last entry meets.
    pub(super) fn find(&self, entries: &[Entry]) -> Option<Found<'_>> {
        let mut level = self;
        let mut steps = Vec::with_capacity(entries.len());
        for entry in entries {
            let step = level.step(entry)?;
            level = &step.descriptor.below;
            steps.push(step);
        }
        let rule = steps.last()?.descriptor.rule.as_ref()?;
        let met = || entries.iter().zip(&steps).zip(&rule.entries);
        let is_shared =
            |step: &Step<'_>, its: &OfEntry| its.is_together || step.descriptor.is_shared;
        let counted = met().map(|((entry, step), its)| {
            let pattern = step.value.filter(|_| is_shared(step, its));
            let value = pattern.map_or(&*entry.value, str::as_bytes);
            (&*entry.key, value)
        });
        let tells = |step: &Step<'_>, its: &OfEntry| its.is_shown || step.descriptor.tells_value;
        let path = met().any(|((_, step), its)| tells(step, its)).then(|| {
            let texts: Vec<_> = entries.iter().map(Entry::text).collect();
            let shown = met().zip(&texts).map(|(((entry, step), its), text)| {
                let is_shown = tells(step, its) && !is_shared(step, its);
                let value = if is_shown {
                    Some(beginning(text))
                } else {
                    step.value
                };
                (&*entry.key, value)
            });
            path(shown)
        });
        let key = key(counted);
        Some(Found { rule, key, path })
    }

    /// Returns whether there is a descriptor for these entries, with or without a limit.
    pub(super) fn meets(&self, entries: &[Entry]) -> bool {
        let mut level = Some(self);
        for entry in entries {
            let step = level.and_then(|level| level.step(entry));
            level = step.map(|step| &step.descriptor.below);
        }
        level.is_some()
    }

    fn step(&self, entry: &Entry) -> Option<Step<'_>> {
        let values = self.0.get(&*entry.key)?;
        let step = |(value, descriptor)| Step {
            descriptor,
            value: Some(value),
        };
        let text = entry.text();
        if let Some((value, descriptor)) = values.exact.get_key_value(&*text) {
            return Some(step((value, descriptor)));
        }
        let patterns = || values.patterns.iter().map(|(text, it)| (&**text, it));
        // A value that is written as a pattern is that pattern, and not one before it.
        let itself = patterns().find(|(pattern, _)| *pattern == text);
        let pattern = itself.or_else(|| patterns().find(|(pattern, _)| matches(pattern, &text)));
        let any = || {
            let descriptor = values.any.as_ref()?;
            let value = None;
            Some(Step { descriptor, value })
        };
        pattern.map(step).or_else(any)
    }

    /// Calls `with` with each limit, from the top.
    pub(super) fn each<'a>(&'a self, with: &mut impl FnMut(&'a Arc<Rule>)) {
        for values in self.0.values() {
            let patterns = values.patterns.iter().map(|(_, it)| it);
            let all = values.exact.values().chain(patterns).chain(&values.any);
            for descriptor in all {
                descriptor.rule.iter().for_each(&mut *with);
                descriptor.below.each(with);
            }
        }
    }
}

impl Entry {
    /// Returns the value as it is shown, and as files have it.
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.value)
    }
}

/// Returns what the statistics have of a value.
fn beginning(value: &str) -> &str {
    let mut end = value.len().min(LONGEST_SHOWN);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

/// Returns whether a pattern matches a text, in which each `*` stands for any characters or none. It takes as long as the text
/// is, for each part of the pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some(at) = text.find(part) else {
            return false;
        };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

/// Returns the key of these entries. No two lists of entries run together, and a value, which may be a secret, does not stand in
/// it.
pub(super) fn key<'a>(entries: impl Iterator<Item = (&'a str, &'a [u8])>) -> Key {
    let texts = entries.flat_map(|(key, value)| [key.as_bytes(), value]);
    digest(texts).as_slice().into_key()
}

/// Returns how keys and values are shown: `tenant_gold.path`. A point stands between two steps alone: in an address of a client it
/// is `_`, as in the statistics of `envoyproxy/ratelimit`.
pub(super) fn path<'a>(steps: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let steps = steps.map(|(key, value)| match value {
        Some(value) if value.parse::<Ipv4Addr>().is_ok() => {
            format!("{key}_{value}").replace('.', "_")
        }
        Some(value) if !value.is_empty() => format!("{key}_{value}"),
        _ => key.to_owned(),
    });
    let path = steps.collect::<Vec<_>>().join(".");
    path.replace([':', '|'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_value_the_statistics_have_the_beginning() {
        let long = "a".repeat(LONGEST_SHOWN);
        assert_eq!(beginning("a"), "a");
        assert_eq!(beginning(&long), long);
        assert_eq!(beginning(&format!("{long}b")), long);
        let wide = format!("{}é", &long[1..]);
        assert_eq!(beginning(&wide), &long[1..]);
        let mut top = Level::default();
        let descriptor = top.at("user", None);
        descriptor.tells_value = true;
        descriptor.rule = Some(Arc::new(rule()));
        let found = |value: &str| {
            let entry = Entry {
                key: "user".to_owned(),
                value: value.into(),
            };
            let found = top.find(&[entry]).unwrap();
            (found.path.unwrap(), found.key)
        };
        let (path, key) = found(&format!("{long}b"));
        assert_eq!(path, format!("user_{long}"));
        assert_ne!(key, found(&long).1, "they are counted apart all the same");
    }

    fn rule() -> Rule {
        Rule {
            policy: Policy::new("user", Algorithm::Unlimited),
            path: "user".to_owned(),
            unit: Unit::Hour,
            multiplier: None,
            name: None,
            replaces: Vec::new(),
            is_shadow: false,
            is_quota: false,
            settles: false,
            entries: vec![OfEntry::default()],
            metadata: None,
            line: None,
            counts: Arc::default(),
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("foo*", "foo", true),
            ("foo*", "foo1", true),
            ("foo*", "fo", false),
            ("bar*b", "barxb", true),
            ("bar*b", "barb", true),
            ("bar*b", "bar", false),
            ("bar*rb", "barb", false),
            ("foo*bar*baz", "fooXbarYbaz", true),
            ("foo*bar*baz", "foobarbaz", true),
            ("foo*bar*baz", "foobaz", false),
            ("*", "", true),
            ("**", "x", true),
            ("*a*", "xax", true),
            ("*a*b", "ab", true),
            ("*ab*ab", "ab", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
