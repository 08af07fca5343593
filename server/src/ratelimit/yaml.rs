//! A text in YAML as a tree, in which each value has its place.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

/// The most levels of lists and maps.
const DEEPEST: usize = 64;

/// The most values. An alias counts as all values of its anchor, so that a small file cannot become a large tree.
const MOST_NODES: usize = 200_000;

/// The most bytes of all values. An anchor counts twice, and an alias as its anchor.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A value and its bytes in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
    /// The number of values in it, with itself.
    size: usize,
    /// The bytes of all texts in it.
    bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar { text: String, is_plain: bool },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// What is wrong with a text, at these bytes.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

impl Node {
    /// Returns whether it stands for nothing: `~`, `null` or no value.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, is_plain: true } if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns its text, if it is no list and no map.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns its text, if that stands for no number and no truth value.
    pub(super) fn string(&self) -> Option<&str> {
        let text = self.text()?;
        let is_plain = matches!(self.value, Value::Scalar { is_plain: true, .. });
        let is_another = self.is_null() || self.truth().is_some() || text.parse::<f64>().is_ok();
        (!is_plain || !is_another).then_some(text)
    }

    /// Returns a truth value, as YAML 1.2 and its forerunner spell it.
    pub(super) fn truth(&self) -> Option<bool> {
        let Value::Scalar {
            text,
            is_plain: true,
        } = &self.value
        else {
            return None;
        };
        match &*text.to_ascii_lowercase() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// Returns what it is, for people.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Value::Scalar { text, .. } if text.chars().count() > 60 => {
                format!("{}…", text.chars().take(60).collect::<String>())
            }
            Value::Scalar { text, .. } => text.clone(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// A list or a map whose end has not come yet.
struct Open {
    start: usize,
    anchor: usize,
    is_map: bool,
    items: Vec<Node>,
}

/// Reads the only document of a text; `None` if there is none.
pub(super) fn read(text: &str) -> Result<Option<Node>, Wrong> {
    let places = Places::of(text);
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, Node> = HashMap::new();
    let mut root = None;
    let (mut nodes, mut bytes) = (0_usize, 0_usize);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Wrong {
            span: places.of_span(Span::empty(*error.marker())),
            message: format!("this is no YAML: {}", error.info()),
        })?;
        let wrong = |message: String| Wrong {
            span: places.of_span(span),
            message,
        };
        let (node, added, added_bytes, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                let text = text.into_owned();
                let node = Node {
                    span: places.of_span(span),
                    size: 1,
                    bytes: text.len(),
                    value: Value::Scalar { text, is_plain },
                };
                let bytes = node.bytes;
                (node, 1, bytes, anchor)
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if open.len() == DEEPEST {
                    let message = format!(
                        "lists and maps stand in each other on more than {DEEPEST} levels; leave out levels"
                    );
                    return Err(wrong(message));
                }
                open.push(Open {
                    start: places.at(span.start),
                    anchor,
                    is_map: matches!(event, Event::MappingStart(..)),
                    items: Vec::new(),
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(ended) = open.pop() else { continue };
                let anchor = ended.anchor;
                (ended.close(places.at(span.start)), 1, 0, anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    let message = "an alias stands within its own anchor; write the value out";
                    return Err(wrong(message.to_owned()));
                };
                (node.clone(), node.size, node.bytes, 0)
            }
            Event::DocumentStart(_) if root.is_some() => {
                let message = "a second document begins here; give it a file of its own";
                return Err(wrong(message.to_owned()));
            }
            _ => continue,
        };
        nodes += added;
        if nodes > MOST_NODES {
            let message = format!("there are more than {MOST_NODES} values; divide the file");
            return Err(wrong(message));
        }
        let copied = if anchor > 0 { node.bytes } else { 0 };
        bytes = bytes.saturating_add(added_bytes).saturating_add(copied);
        if bytes > MOST_BYTES {
            let message = format!(
                "its values have more than {MOST_BYTES} bytes, with those of aliases; leave out aliases of long values"
            );
            return Err(wrong(message));
        }
        if anchor > 0 {
            anchors.insert(anchor, node.clone());
        }
        match open.last_mut() {
            Some(outer) => outer.items.push(node),
            None => root = Some(node),
        }
    }
    Ok(root)
}

impl Open {
    fn close(self, end: usize) -> Node {
        let size = 1 + self.items.iter().map(|item| item.size).sum::<usize>();
        let bytes = self.items.iter().map(|item| item.bytes).sum();
        let value = if self.is_map {
            let mut items = self.items.into_iter();
            let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
            Value::Map(pairs.collect())
        } else {
            Value::List(self.items)
        };
        Node {
            span: self.start..end,
            value,
            size,
            bytes,
        }
    }
}

/// The byte at which each character of a text begins.
struct Places {
    /// `None` if each character is one byte.
    bytes: Option<Vec<usize>>,
    end: usize,
}

impl Places {
    fn of(text: &str) -> Self {
        let bytes = || text.char_indices().map(|(byte, _)| byte).collect();
        Self {
            bytes: (!text.is_ascii()).then(bytes),
            end: text.len(),
        }
    }

    fn at(&self, place: Marker) -> usize {
        let index = place.index();
        let byte = match &self.bytes {
            None => index,
            Some(bytes) => bytes.get(index).copied().unwrap_or(self.end),
        };
        byte.min(self.end)
    }

    fn of_span(&self, span: Span) -> Range<usize> {
        let start = self.at(span.start);
        // A caret has a width.
        start..self.at(span.end).max(start + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text).unwrap_err().message
    }

    #[test]
    fn each_value_has_its_place_in_bytes() {
        let text = "é: [a, \"b\"]\nc: 1\n";
        let Value::Map(pairs) = read(text).unwrap().unwrap().value else {
            panic!("it is a map")
        };
        let Value::List(list) = &pairs[0].1.value else {
            panic!("it is a list")
        };
        let spans = [&pairs[0].0, &list[0], &list[1], &pairs[1].1];
        let texts = spans.map(|node| &text[node.span.clone()]);
        assert_eq!(texts, ["é", "a", "\"b\"", "1"]);
    }

    #[test]
    fn a_string_is_no_number_and_no_truth_value() {
        for (text, expected) in [
            ("a", Some("a")),
            ("'1'", Some("1")),
            ("1", None),
            ("0.25", None),
            ("true", None),
            ("~", None),
            ("", None),
        ] {
            let text = format!("- {text}");
            let Value::List(list) = read(&text).unwrap().unwrap().value else {
                panic!("it is a list")
            };
            assert_eq!(list[0].string(), expected, "{text}");
        }
        assert!(read("# nothing").unwrap().is_none_or(|it| it.is_null()));
    }

    #[test]
    fn an_alias_is_its_anchor() {
        let text = "a: &x { b: 1 }\nc: *x\n";
        let Value::Map(pairs) = read(text).unwrap().unwrap().value else {
            panic!("it is a map")
        };
        assert!(matches!(&pairs[1].1.value, Value::Map(inner) if inner[0].0.text() == Some("b")));
    }

    #[test]
    fn a_small_text_cannot_become_a_large_tree() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let before = format!("*a{}, ", level - 1).repeat(9);
            text.extend([format!("a{level}: &a{level} [{before}]\n")]);
        }
        let error = refused(&text);
        assert!(error.contains("more than 200000 values; divide"), "{error}");

        let long = "x".repeat(1024 * 1024);
        let aliases = "*a, ".repeat(16);
        let error = refused(&format!("a: &a {long}\nb: [{aliases}]\n"));
        assert!(error.contains("more than 16777216 bytes"), "{error}");
        // Each anchor has a copy of what is in it.
        let nested = (0..17).fold(String::new(), |text, level| text + &format!("&a{level} ["));
        let error = refused(&format!("{nested}{long}{}", "]".repeat(17)));
        assert!(error.contains("more than 16777216 bytes"), "{error}");

        let error = refused(&"[".repeat(200));
        assert!(error.contains("more than 64 levels"), "{error}");
        // The parser has a bound of its own.
        refused(&"[".repeat(1_000_000));
        refused(&"- ".repeat(1_000_000));
        let error = refused("a: &x [*x]");
        assert!(error.contains("alias"), "{error}");
        let error = refused("a: 1\n---\nb: 2\n");
        assert!(error.contains("second document"), "{error}");
        let error = refused("a: [1, 2\nb: }");
        assert!(error.contains("this is no YAML"), "{error}");
    }
}
