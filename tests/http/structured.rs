//! Structured fields (RFC 9651), read by a parser that is not ours.

use sfv::{BareItem, FieldType, List, ListEntry, Parser};

/// A member of a list: a string with integers for parameters.
#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    parameters: Vec<(String, u64)>,
}

impl Member {
    pub(crate) fn number(&self, parameter: &str) -> Option<u64> {
        let mut parameters = self.parameters.iter();
        let (_, number) = parameters.find(|(name, _)| name == parameter)?;
        Some(*number)
    }
}

/// The members of a field in the draft's shape, which must be in its canonical form.
#[track_caller]
pub(crate) fn list(field: &str) -> Vec<Member> {
    let list: List = Parser::new(field)
        .parse()
        .unwrap_or_else(|error| panic!("{field}: {error}"));
    assert_eq!(list.serialize().as_deref(), Some(field), "not canonical");
    list.into_iter().map(member).collect()
}

#[track_caller]
fn member(entry: ListEntry) -> Member {
    let ListEntry::Item(item) = entry else {
        panic!("an inner list: {entry:?}");
    };
    let BareItem::String(name) = item.bare_item else {
        panic!("not a string: {:?}", item.bare_item);
    };
    let parameters = item.params.into_iter().map(|(name, value)| {
        let number = value.as_integer().expect("not an integer");
        (name.into(), u64::try_from(i64::from(number)).unwrap())
    });
    Member {
        name: name.into(),
        parameters: parameters.collect(),
    }
}
