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
    let errors = without_consequences(text, errors).into_iter().enumerate();
    let errors = errors.map(|(number, error)| SyntaxError {
        message: if number < MOST_EXPLAINED {
            message(text, &error)
        } else {
            error.message().to_owned()
        },
        span: error.span(),
    });
    let errors = errors.collect();
    let root = node(table_of(table.into_inner()), span);
    (root, errors)
}

/// An explanation looks through the file, so a file of mistakes would take minutes.
const MOST_EXPLAINED: usize = 100;

/// The message of the parser about a name or a table that is there for the second time.
const TWICE: &str = "duplicate key";

/// Leaves the first error of each line, and the first of the names of a table that is there twice.
fn without_consequences(text: &str, mut errors: Vec<toml::de::Error>) -> Vec<toml::de::Error> {
    let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
    errors.sort_by_key(start);
    let (mut end_of_line, mut end_of_table) = (0, 0);
    errors.retain(|error| {
        let start = start(error);
        let is_twice = error.message() == TWICE;
        if start < end_of_line || (is_twice && start < end_of_table) {
            return false;
        }
        let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let end = text[start..].find('\n');
        end_of_line = end.map_or(text.len(), |end| start + end + 1);
        if is_twice && text[line..].trim_start().starts_with('[') {
            let mut lines = text[end_of_line..].split_inclusive('\n');
            let is_name = |line: &&str| !line.trim_start().starts_with('[');
            let names = lines.by_ref().take_while(is_name).map(str::len);
            end_of_table = end_of_line + names.sum::<usize>();
        }
        true
    });
    errors
}

/// Returns the message of the parser, which says nothing of the first of two equal names. It quotes nothing, since a text
/// that cannot be parsed may be secret anywhere.
fn message(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    match error.span() {
        Some(span) if message == TWICE => match line_of_the_first(text, &span) {
            Some(line) => format!("the name is there twice, first in line {line}; leave one"),
            None => "the name is there twice; leave one".to_owned(),
        },
        Some(span) if is_unquoted(text, span.start) => {
            "text stands in quotes, such as \"100/minute\"".to_owned()
        }
        _ => message.to_owned(),
    }
}

/// Returns whether the value in whose line the error is is text without quotes.
fn is_unquoted(text: &str, at: usize) -> bool {
    let start = text.get(..at).and_then(|before| before.rfind('\n'));
    let start = start.map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let Some(equals) = line.find('=') else {
        return false;
    };
    let value = line[equals + 1..].split('#').next();
    let value = value.unwrap_or_default().trim();
    let is_in_it = at > start + equals;
    let is_text = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.contains(|c: char| c.is_ascii_alphabetic())
        && !value.contains(['"', '\'', '=', '[', '{', ',']);
    is_in_it && is_text && value.len() < 100
}

/// Returns the line in which a name or a table stands first that is there again here; `None` if it is not spelt alike.
fn line_of_the_first(text: &str, again: &Range<usize>) -> Option<usize> {
    let bare = |part: &str| part.replace([' ', '\t', '\r'], "");
    let before = text.get(..again.start)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let wanted = bare(text.get(start..again.end)?);
    let is_table = wanted.starts_with('[');
    let ends = if is_table { &[']'][..] } else { &['=', '.'] };
    let mut first = None;
    for (index, line) in before[..start].lines().enumerate() {
        let line = bare(line);
        let rest = line.strip_prefix(&wanted);
        if first.is_none() && rest.is_some_and(|rest| rest.starts_with(ends)) {
            first = Some(index + 1);
        } else if !is_table && line.starts_with('[') {
            // Another table begins here.
            first = None;
        }
    }
    first
}

fn node(value: Value, span: Range<usize>) -> Node {
    Node {
        value,
        span: Some(span),
        is_secret: false,
    }
}

fn table_of(table: DeTable<'_>) -> Value {
    let entries = table.into_iter().map(|(name, value)| Entry {
        name_span: Some(name.span()),
        hides_name: false,
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
        Ok(number) => Value::Integer(number),
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
                "the name is there twice, first in line 2; leave one",
            ),
            (
                "[a]\nx = 1\n[b]\nx = 2\nx=3",
                "the name is there twice, first in line 4; leave one",
            ),
            (
                "[a.\"b c\"]\n[a.d]\n[ a.\"b c\" ]",
                "the name is there twice, first in line 1; leave one",
            ),
            (
                "[a]\nx.y = 1\nz = 2\nx.y = 3",
                "the name is there twice, first in line 2; leave one",
            ),
            (
                "[a]\nx = 1\nx = 2\ny = 1\n[b]\nz = 1\n",
                "the name is there twice, first in line 2; leave one",
            ),
            ("a = { x = 1, x = 2 }", "the name is there twice; leave one"),
            // Not of each of its names.
            (
                "[a]\nx = 1\ny = 2\n\n[a]\nx = 1\ny = 2\n[b]\n",
                "the name is there twice, first in line 1; leave one",
            ),
        ] {
            let (_, errors) = parse(text);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].message, says);
        }
    }

    #[test]
    fn each_copy_is_told_and_a_table_that_is_there_twice_hides_no_other_mistake() {
        let (_, errors) = parse(
            "[a]\nx = 1\nx = 2\nx = 3\n  [a]\nx = 1\nquota = 100/minute\n  [b]\ny = 1\ny = 2\n",
        );
        let told: Vec<&str> = errors.iter().map(|error| &*error.message).collect();
        let says = [
            "the name is there twice, first in line 2; leave one",
            "the name is there twice, first in line 2; leave one",
            "the name is there twice, first in line 1; leave one",
            "text stands in quotes, such as \"100/minute\"",
            "the name is there twice, first in line 9; leave one",
        ];
        assert_eq!(told, says);
    }

    /// Each error looked through the whole file, which took ten minutes.
    #[test]
    fn a_file_of_many_mistakes_is_explained_in_part() {
        let (_, errors) = parse(&"a = 1\n".repeat(20_000));
        assert_eq!(errors.len(), 19_999);
        let is_explained = |error: &&SyntaxError| error.message.contains("first in line 1");
        assert_eq!(errors.iter().filter(is_explained).count(), MOST_EXPLAINED);
    }

    #[test]
    fn a_value_without_quotes_is_told_once_with_its_quotes() {
        for (line, says) in [
            (
                "quota = 100/minute",
                "text stands in quotes, such as \"100/minute\"",
            ),
            (
                "quota = 100/minute # each",
                "text stands in quotes, such as \"100/minute\"",
            ),
            (
                "key = client_ip",
                "text stands in quotes, such as \"100/minute\"",
            ),
            (
                "mode = off",
                "text stands in quotes, such as \"100/minute\"",
            ),
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
