//! A file as a tree of values, each with its place in the text. TOML and JSON are parsed into the same tree.

use std::ops::Range;

/// A value, and its bytes in the text; `None` for JSON, whose parser has no places.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Option<Range<usize>>,
    /// Whether no message shows the value.
    pub(super) is_secret: bool,
}

#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Flag(bool),
    List(Vec<Node>),
    /// In the order of the file.
    Table(Vec<Entry>),
    /// A value that no setting has, such as a date or a fraction, as text.
    Other(String),
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) name_span: Option<Range<usize>>,
    /// Whether no message shows the name.
    pub(super) hides_name: bool,
    pub(super) node: Node,
}

impl Node {
    /// Returns the value as a message shows it, or its kind if it may be secret.
    pub(super) fn shown(&self) -> String {
        if self.is_secret {
            self.value.kind().to_owned()
        } else {
            self.value.shown()
        }
    }
}

impl Value {
    /// Returns the kind of value, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(_) => "another kind of value",
        }
    }

    /// Returns the value as a message shows it, shortened if it is long.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Integer(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::List(_) | Self::Table(_) => self.kind().to_owned(),
            Self::Other(shown) => shown.chars().take(SHOWN).collect(),
        }
    }
}

const SHOWN: usize = 40;

/// Returns text in quotes, shortened if it is long.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
