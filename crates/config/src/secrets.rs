//! The places and the texts of what may be secret in a file, beside which no line is shown.

use std::ops::Range;

use super::tree::{Node, Value};

/// The places and the texts of what may be secret in a file.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    spans: Vec<Range<usize>>,
    texts: Vec<String>,
}

/// Shorter texts stand in many lines that show no secret.
const SHORTEST: usize = 6;

/// Longer lines are not searched for the texts of secrets, and not shown beside any.
const LONGEST: usize = 1_000;

impl Secrets {
    /// Returns those of a file that is marked.
    pub(super) fn of(root: &Node) -> Self {
        let mut secrets = Self::default();
        secrets.add(root);
        secrets
    }

    fn add(&mut self, node: &Node) {
        match &node.value {
            Value::List(list) => {
                for node in list {
                    self.add(node);
                }
            }
            Value::Table(entries) => {
                for entry in entries {
                    if entry.hides_name {
                        self.hide(entry.name_span.as_ref(), &entry.name);
                    }
                    self.add(&entry.node);
                }
            }
            value if node.is_secret => match value {
                Value::Text(text) | Value::Other(text) => self.hide(node.span.as_ref(), text),
                other => self.hide(node.span.as_ref(), &other.shown()),
            },
            _ => {}
        }
    }

    fn hide(&mut self, span: Option<&Range<usize>>, text: &str) {
        self.spans.extend(span.cloned());
        if text.len() >= SHORTEST {
            self.texts.push(text.to_owned());
        }
    }

    /// Returns whether the line at these bytes has a part of a secret, or the text of one.
    pub(super) fn are_in(&self, line: &str, at: &Range<usize>) -> bool {
        let overlaps = |span: &Range<usize>| span.start <= at.end && at.start <= span.end;
        if self.spans.iter().any(overlaps) {
            return true;
        }
        let mut texts = self.texts.iter();
        (line.len() > LONGEST && !self.texts.is_empty()) || texts.any(|text| line.contains(text))
    }
}
