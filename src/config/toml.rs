//! Parses TOML into the tree. The parser returns all syntax errors at once, and the place of each value.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::tree::{Entry, Node, Value};

/// A syntax error, and its place.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) message: String,
    pub(super) span: Option<Range<usize>>,
}

/// Parses a text. With errors the tree has what could be read.
pub(super) fn parse(text: &str) -> (Node, Vec<SyntaxError>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let span = table.span();
    let errors = errors.into_iter().map(|error| SyntaxError {
        message: error.message().to_owned(),
        span: error.span(),
    });
    (node(table_of(table.into_inner()), span), errors.collect())
}

fn node(value: Value, span: Range<usize>) -> Node {
    Node {
        value,
        span: Some(span),
    }
}

fn table_of(table: DeTable<'_>) -> Value {
    let entries = table.into_iter().map(|(name, value)| Entry {
        name_span: Some(name.span()),
        name: name.into_inner().into_owned(),
        node: node_of(value),
    });
    let mut entries: Vec<Entry> = entries.collect();
    // The parser sorts the entries by name.
    entries.sort_by_key(|entry| entry.name_span.as_ref().map(|span| span.start));
    Value::Table(entries)
}

fn node_of(value: Spanned<DeValue<'_>>) -> Node {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => whole(&number),
        DeValue::Float(number) => Value::Other(number.to_string()),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(moment) => Value::Other(moment.to_string()),
        DeValue::Array(list) => Value::List(list.into_iter().map(node_of).collect()),
        DeValue::Table(table) => table_of(table),
    };
    node(value, span)
}

fn whole(number: &DeInteger<'_>) -> Value {
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) => Value::Whole(number),
        Err(_) => Value::Other(number.to_string()),
    }
}
