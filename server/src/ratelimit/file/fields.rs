//! Reads the fields of a map, and notes what is wrong with them.

use std::collections::HashMap;
use std::ops::Range;

use tower_ratelimit_config::__internal::{Notes, SourceText};

use crate::ratelimit::rules::path;
use crate::ratelimit::statistics::Statistics;
use crate::ratelimit::yaml::{Node, Value};

/// The fields of a file, wherever they stand.
pub(super) const OF_DOMAIN: &[&str] = &["domain", "descriptors"];
pub(super) const OF_DESCRIPTOR: &[&str] = &[
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

pub(super) const OF_LIMIT: &[&str] = &[
    "unit",
    "unit_multiplier",
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
pub(super) const OF_REPLACED: &[&str] = &["name"];

/// A file that is read.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) source: &'a SourceText,
    pub(super) statistics: &'a Statistics,
    pub(super) notes: Notes,
    pub(super) domain: String,
    /// The keys and values that lead to the present descriptor.
    pub(super) steps: Vec<(String, Option<String>)>,
}

/// A map whose fields are known, and where it stands.
pub(super) struct Fields<'n> {
    pub(super) span: Range<usize>,
    pub(super) path: String,
    by_name: HashMap<&'n str, &'n Node>,
}

impl<'n> Fields<'n> {
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.by_name
            .get(name)
            .copied()
            .filter(|node| !node.is_null())
    }

    pub(super) fn path(&self, name: &str) -> String {
        match &*self.path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }
}

impl Reader<'_> {
    pub(super) fn wrong(&mut self, span: &Range<usize>, path: &str, message: impl Into<String>) {
        self.notes.add(Some(span), path, message.into());
    }

    /// Notes what is wrong with a field.
    pub(super) fn refuse(&mut self, fields: &Fields<'_>, name: &str, message: impl Into<String>) {
        let span = fields.get(name).map_or(&fields.span, |node| &node.span);
        self.wrong(span, &fields.path(name), message);
    }

    /// Returns the fields of a map, of which only these are known.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: String,
        known: &[&str],
    ) -> Option<Fields<'n>> {
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
    pub(super) fn maps<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Vec<(&'n Node, String)> {
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

    pub(super) fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
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

    pub(super) fn flag(&mut self, fields: &Fields<'_>, name: &str) -> bool {
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

    pub(super) fn number(&mut self, fields: &Fields<'_>, name: &str) -> Option<u32> {
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
                "{:?} is no number{}; write a whole number from 0 to {}",
                node.shown(),
                if name == "unit_multiplier" {
                    ""
                } else {
                    " of requests"
                },
                u32::MAX
            );
            self.refuse(fields, name, message);
        }
        number
    }

    pub(super) fn steps(&self) -> Vec<(&str, Option<&str>)> {
        let steps = self.steps.iter();
        steps
            .map(|(key, value)| (&**key, value.as_deref()))
            .collect()
    }

    pub(super) fn path(&self) -> String {
        path(self.steps().into_iter())
    }
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
