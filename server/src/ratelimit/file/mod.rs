//! Reads the limits of a domain from a file, and finds all of its mistakes.

mod fields;
mod limit;

use std::ops::Range;

use tower_ratelimit_config::__internal::{Notes, SourceText};
use tower_ratelimit_config::FileError;

use super::rules::{Descriptor, Level, Values, path};
use super::statistics::Statistics;
use super::yaml::{self, Node};

use self::fields::{Fields, OF_DESCRIPTOR, OF_DOMAIN, Reader};
pub(super) use self::limit::{UNITS, unit_of};

/// The most bytes of a file.
pub(super) const LARGEST: usize = 4 << 20;

/// The most levels of descriptors. Each takes three of YAML.
const DEEPEST: usize = 16;

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

impl Reader<'_> {
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
            line: self.source.line(&fields.span),
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
