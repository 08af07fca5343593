//! Reads the limits of a domain from a file, and finds all of its mistakes.

mod limit;

use std::collections::HashMap;
use std::ops::Range;

use tower_ratelimit_config::__internal::{Notes, SourceText};
use tower_ratelimit_config::FileError;

use super::rules::{Descriptor, Level, Values, path};
use super::statistics::Statistics;
use super::yaml::{self, Node, Value};

use self::limit::OF_LIMIT;
pub(super) use self::limit::{UNITS, unit_of};

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
