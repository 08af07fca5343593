//! Which values of a file may be secret, by their position.
//!
//! The vocabulary says it: all below [`Shape::Secret`] is hidden. So is each value that has no known position, since a
//! misspelt field may have been a secret, and each value of the wrong kind where a table with a secret belongs.

use super::settings::{NAMED, ROOT};
use super::shape::{Fields, Shape};
use super::tree::{Node, Value};

/// Marks what may be secret in a file.
pub(super) fn mark(root: &mut Node) {
    mark_as(root, Shape::Table(&ROOT), false);
}

fn mark_as(node: &mut Node, of: Shape, hide: bool) {
    node.is_secret = hide;
    match (of, &mut node.value) {
        (Shape::Secret(of), _) => mark_as(node, *of, true),
        (Shape::Named(name), _) => mark_as(node, named(name), hide),
        (Shape::Any(shapes), value) => {
            let fitting = shapes.iter().find(|of| fits(**of, value));
            match fitting.copied() {
                Some(of) => mark_as(node, of, hide),
                None => mark_misplaced(node, of, hide),
            }
        }
        (Shape::List(of) | Shape::ListOf(of, _) | Shape::OneOrList(of), Value::List(list)) => {
            for node in list {
                mark_as(node, *of, hide);
            }
        }
        (Shape::OneOrList(of), _) => mark_as(node, *of, hide),
        (Shape::Map(of), Value::Table(entries)) => {
            for entry in entries {
                entry.hides_name = hide;
                mark_as(&mut entry.node, *of, hide);
            }
        }
        (Shape::Table(table), Value::Table(entries)) => {
            // One that was to stand in the table below.
            let may_be_secret = hide || has_secret_names(table);
            let fields = table.fields();
            for entry in entries {
                let mut known = fields.iter();
                if let Some(field) = known.find(|field| field.name == entry.name) {
                    mark_as(&mut entry.node, field.shape, hide);
                } else {
                    entry.hides_name = may_be_secret;
                    hide_all(&mut entry.node);
                }
            }
        }
        _ => mark_misplaced(node, of, hide),
    }
}

/// Marks a value that is not of this shape, or has no parts.
fn mark_misplaced(node: &mut Node, of: Shape, hide: bool) {
    let has_parts = matches!(node.value, Value::List(_) | Value::Table(_));
    if hide || has_parts || holds_secret(of, &mut Vec::new()) {
        hide_all(node);
    }
}

fn hide_all(node: &mut Node) {
    node.is_secret = true;
    match &mut node.value {
        Value::List(list) => list.iter_mut().for_each(hide_all),
        Value::Table(entries) => {
            for entry in entries {
                entry.hides_name = true;
                hide_all(&mut entry.node);
            }
        }
        _ => {}
    }
}

fn named(name: &str) -> Shape {
    let of = NAMED.iter().find(|(known, _)| *known == name);
    // A shape without a name would be a mistake of the vocabulary: then all is hidden.
    of.map_or(Shape::Secret(&Shape::Text), |(_, of)| *of)
}

/// Returns whether a value has the parts of this shape.
fn fits(of: Shape, value: &Value) -> bool {
    match of {
        Shape::Secret(of) => fits(*of, value),
        Shape::Named(name) => fits(named(name), value),
        Shape::Any(shapes) => shapes.iter().any(|of| fits(*of, value)),
        Shape::List(_) | Shape::ListOf(..) => matches!(value, Value::List(_)),
        Shape::OneOrList(of) => matches!(value, Value::List(_)) || fits(*of, value),
        Shape::Map(_) | Shape::Table(_) => matches!(value, Value::Table(_)),
        _ => !matches!(value, Value::List(_) | Value::Table(_)),
    }
}

/// Returns whether one of the fields is a table under whose names secrets stand.
fn has_secret_names(table: &dyn Fields) -> bool {
    let mut fields = table.fields().into_iter();
    fields.any(|field| matches!(field.shape, Shape::Secret(Shape::Map(_))))
}

fn holds_secret(of: Shape, seen: &mut Vec<&'static str>) -> bool {
    match of {
        Shape::Secret(_) => true,
        Shape::Named(name) if seen.contains(&name) => false,
        Shape::Named(name) => {
            seen.push(name);
            holds_secret(named(name), seen)
        }
        Shape::List(of) | Shape::ListOf(of, _) | Shape::OneOrList(of) | Shape::Map(of) => {
            holds_secret(*of, seen)
        }
        Shape::Any(shapes) => shapes.iter().any(|of| holds_secret(*of, seen)),
        Shape::Table(table) => {
            let mut fields = table.fields().into_iter();
            fields.any(|field| holds_secret(field.shape, seen))
        }
        _ => false,
    }
}
