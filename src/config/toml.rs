//! Parses TOML into the tree. The parser returns all syntax errors at once, and the place of each value.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::tree::{Entry, Node, Value, quoted};

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
        message: message(text, &error),
        span: error.span(),
    });
    let root = node(table_of(table.into_inner()), span);
    (root, without_consequences(text, errors.collect()))
}

/// Leaves the first error of each line, and none of the names in a table that is there twice.
fn without_consequences(text: &str, mut errors: Vec<SyntaxError>) -> Vec<SyntaxError> {
    let start = |error: &SyntaxError| error.span.as_ref().map_or(0, |span| span.start);
    errors.sort_by_key(start);
    let mut told_to = 0;
    errors.retain(|error| {
        let start = start(error);
        if start < told_to {
            return false;
        }
        let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let is_table = error.message.contains(TWICE) && text[line..].trim_start().starts_with('[');
        let next = if is_table { "\n[" } else { "\n" };
        told_to = text[start..]
            .find(next)
            .map_or(text.len(), |end| start + end + 1);
        true
    });
    errors
}

const TWICE: &str = " is there twice";

/// The message of the parser, which says nothing of the first of two equal names.
fn message(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    match error.span() {
        Some(span) if message == "duplicate key" => {
            let name = text.get(span.clone()).unwrap_or_default();
            let name = quoted(name.trim_matches(['"', '\'']));
            match line_of_the_first(text, &span) {
                Some(line) => format!("{name}{TWICE}, first in line {line}; leave one"),
                None => format!("{name}{TWICE}; leave one"),
            }
        }
        Some(span) => match unquoted(text, span.start) {
            Some(value) => format!("text stands in quotes; write {value:?}"),
            None => message.to_owned(),
        },
        None => message.to_owned(),
    }
}

/// The value in whose line the error is, if it is text without quotes.
fn unquoted(text: &str, at: usize) -> Option<&str> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?;
    let equals = line.find('=')?;
    let value = line[equals + 1..].split('#').next()?.trim();
    let is_in_it = at > start + equals;
    let is_text = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.contains(|c: char| c.is_ascii_alphabetic())
        && !value.contains(['"', '\'', '=', '[', '{', ',']);
    (is_in_it && is_text && value.len() < 100).then_some(value)
}

/// The line of the name or of the table that stands here for the second time; `None` if it is not spelt alike.
fn line_of_the_first(text: &str, second: &Range<usize>) -> Option<usize> {
    let bare = |part: &str| part.replace([' ', '\t', '\r'], "");
    let before = text.get(..second.start)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let wanted = bare(text.get(start..second.end)?);
    let is_table = wanted.starts_with('[');
    for (index, line) in before[..start]
        .lines()
        .enumerate()
        .collect::<Vec<_>>()
        .iter()
        .rev()
    {
        let line = bare(line);
        let rest = line.strip_prefix(&wanted);
        let ends = if is_table { &[']'][..] } else { &['=', '.'] };
        if rest.is_some_and(|rest| rest.starts_with(ends)) {
            return Some(index + 1);
        }
        if !is_table && line.starts_with('[') {
            // The table begins here.
            return None;
        }
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_twice_is_told_with_the_line_of_the_first() {
        for (text, says) in [
            (
                "[a]\nx = 1\ny = 2\nx = 3",
                "\"x\" is there twice, first in line 2; leave one",
            ),
            (
                "[a]\nx = 1\n[b]\nx = 2\nx=3",
                "\"x\" is there twice, first in line 4; leave one",
            ),
            (
                "[a.\"b c\"]\n[a.d]\n[ a.\"b c\" ]",
                "\"b c\" is there twice, first in line 1; leave one",
            ),
            (
                "[a]\nx.y = 1\nz = 2\nx.y = 3",
                "\"y\" is there twice, first in line 2; leave one",
            ),
            ("a = { x = 1, x = 2 }", "\"x\" is there twice; leave one"),
            // Not of each of its names.
            (
                "[a]\nx = 1\ny = 2\n\n[a]\nx = 1\ny = 2\n[b]\n",
                "\"a\" is there twice, first in line 1; leave one",
            ),
        ] {
            let (_, errors) = parse(text);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].message, says);
        }
    }

    #[test]
    fn a_value_without_quotes_is_told_once_with_its_quotes() {
        for (line, says) in [
            (
                "quota = 100/minute",
                "text stands in quotes; write \"100/minute\"",
            ),
            (
                "quota = 100/minute # each",
                "text stands in quotes; write \"100/minute\"",
            ),
            (
                "key = client_ip",
                "text stands in quotes; write \"client_ip\"",
            ),
            ("mode = off", "text stands in quotes; write \"off\""),
        ] {
            let (_, errors) = parse(&format!("[a]\n{line}\nz = 1\n"));
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].message, says);
        }
        let (_, errors) = parse("a = = 1\nb = 1 2\nc = [1,,2]");
        let lines = errors.iter().map(|error| &error.message);
        assert!(
            lines.clone().all(|message| !message.contains("quotes")),
            "{errors:?}"
        );
        assert_eq!(lines.len(), 3);
    }
}
